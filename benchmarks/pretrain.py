"""Pretrain models of the Chronos family in the paper's appendix setting, and score them.

Each attention and head is trained on the same synthetic series with the same settings: ranks
32|10|8|4|4|4|2, 127 steps read and 127 forecast, 2000 steps of 32 windows, learning rate 1e-3
falling to 0, and first weights 0.05 times those of T5; ``--initial-factor 1`` starts with the whole
of them. The encoder is connected to the decoder by standard cross-attention, and is
bidirectional; the published fork severs them. The series are 90 % TSMixup and 10 % KernelSynth, and
what is mixed are KernelSynth series too, so that no public data set is in the training data.

Scores are those of Chronos' evaluation: the last window of each series, MASE and the weighted
quantile loss (WQL) of the levels 0.1 to 0.9, beside a seasonal naive forecast. Neither Chronos nor
GluonTS nor transformers is needed. Run it from the root of the repository, with the folder of data
sets in MLRFORECAST_DATA::

    python benchmarks/pretrain.py benchmarks/results/pretrain

``--quick`` is a trial of a minute on a CPU. Written are, after each model, ``runs.csv`` (what was
trained, where and how fast), ``losses.csv`` (the mean loss of each ten steps) and ``scores.csv``;
rows of the same model, attention, first weights and seed are replaced.

``train_seconds``, ``ms_a_step``
    The whole of training, and what is left of it for each step: windows, forward, backward, AdamW,
    and the start of Lightning, with ``--compile`` the compiler too.
"""

import argparse
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _pretrain_data import DATASETS, Dataset, read_datasets, score, seasonal_naive_scores
from _rows import replace_rows

import mlrforecast
from mlrforecast.benchmark import cpu_model
from mlrforecast.pretraining import (
    PretrainConfig,
    PretrainOptions,
    kernel_synth,
    pretrain,
    tsmixup,
)

RANKS = (32, 10, 8, 4, 4, 4, 2)
SIZES = {
    # The default T5 of transformers, which the published fork trains.
    "fork": {"width": 512, "num_heads": 8, "head_width": 64, "hidden_width": 2048, "layers": 6},
    "tiny": {"width": 256, "num_heads": 4, "head_width": 64, "hidden_width": 1024, "layers": 4},
}
KEYS = ("head", "attention", "size", "initial_factor", "seed")
RUNS = (
    *KEYS,
    *("ranks", "context_length", "prediction_length", "parameters", "steps", "batch_size"),
    *("learning_rate", "precision", "compiled", "train_seconds", "ms_a_step", "score_seconds"),
    *("first_loss", "last_loss", "hardware", "versions", "command"),
)
LOSSES = (*KEYS, "step", "loss")
SCORES = ("dataset", "horizon", "series", *KEYS, "mase", "wql")
LEVELS = tuple(round(0.1 * number, 1) for number in range(1, 10))


def main() -> None:
    """Train and score what was asked for."""
    arguments = parsed()
    for head in arguments.heads:
        for attention in arguments.attentions:
            # What is refused is refused before the minutes that series take.
            settings(head, attention, arguments)
    begin = time.monotonic()
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    datasets = read_datasets(arguments.datasets, most=8 if arguments.quick else None)
    write_scores(folder, [naive_row(data) for data in datasets])
    count, workers = (16, 1) if arguments.quick else (arguments.series, -1)
    kernels = list(kernel_synth(count, length=1024, seed=arguments.seed, num_workers=workers))
    mixtures = tsmixup([kernels], 2 * count, max_length=1024, seed=arguments.seed)
    print(f"{count} series and {2 * count} mixtures: {time.monotonic() - begin:.0f} s", flush=True)
    for head in arguments.heads:
        for attention in arguments.attentions:
            spent = time.monotonic() - begin
            if spent > 60 * arguments.max_minutes:
                print(f"{head}, {attention}: left out after {spent:.0f} s", flush=True)
                continue
            measure(head, attention, [mixtures, kernels], datasets, arguments)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a trial: tiny, on any machine")
    parser.add_argument("--heads", type=names, default=("tokens", "quantiles"))
    parser.add_argument("--attentions", type=names, default=("mlr", "standard"))
    parser.add_argument("--size", choices=SIZES, default="fork")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--series", type=int, default=4096, help="KernelSynth series")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--initial-factor", type=float, default=0.05, help="of the first weights")
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--datasets", type=names, default=tuple(DATASETS))
    parser.add_argument("--max-minutes", type=float, default=8.0, help="start no model after it")
    parser.add_argument("--models", type=Path, help="folder to write the models to")
    return parser.parse_args()


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between them."""
    return tuple(text.split(","))


def measure(
    head: str,
    attention: str,
    sources: list[Any],
    datasets: list[Dataset],
    arguments: argparse.Namespace,
) -> None:
    """Train and score one model, and write its rows."""
    config, options = settings(head, attention, arguments)
    run = pretrain(config, sources, options, weights=(0.9, 0.1))
    if arguments.models is not None:
        run.model.save(arguments.models / f"{head}-{attention}-{arguments.initial_factor:g}")
    key = {
        "head": head,
        "attention": attention,
        "size": "quick" if arguments.quick else arguments.size,
        "initial_factor": f"{arguments.initial_factor:g}",
        "seed": arguments.seed,
    }
    begin = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for data in datasets:
        quantiles, median = run.model.predict_quantiles(
            data.contexts, prediction_length=data.horizon, quantile_levels=LEVELS, device=device
        )
        mase, wql = score(data, median, quantiles, LEVELS)
        rows.append(
            {**key, "dataset": data.name, "horizon": data.horizon, "series": len(data.contexts)}
            | {"mase": f"{mase:.4f}", "wql": f"{wql:.4f}"}
        )
        print(f"{head}, {attention}, {data.name}: MASE {mase:.3f}, WQL {wql:.4f}", flush=True)
    folder, every = Path(arguments.out), 10
    write_scores(folder, rows)
    losses = run.losses[: len(run.losses) // every * every].reshape(-1, every).mean(axis=1)
    points = [
        {**key, "step": every * (number + 1), "loss": f"{loss:.5f}"}
        for number, loss in enumerate(losses)
    ]
    replace_rows(folder / "losses.csv", LOSSES, points, rank_of_losses)
    about = {
        "ranks": "|".join(map(str, config.ranks or ())),
        "context_length": config.context_length,
        "prediction_length": config.prediction_length,
        "parameters": sum(p.numel() for p in run.model.network.parameters()),
        "steps": options.max_steps,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "precision": options.precision,
        "compiled": options.compile,
        "train_seconds": f"{run.seconds:.1f}",
        "ms_a_step": f"{1000 * run.seconds / options.max_steps:.2f}",
        "score_seconds": f"{time.monotonic() - begin:.1f}",
        "first_loss": f"{run.losses[:every].mean():.4f}",
        "last_loss": f"{run.losses[-100:].mean():.4f}",
        "hardware": torch.cuda.get_device_name() if device == "cuda" else cpu_model(),
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"mlrforecast {mlrforecast.__version__}",
        "command": f"python benchmarks/pretrain.py {shlex.join(words(arguments))}",
    }
    replace_rows(folder / "runs.csv", RUNS, [key | about], rank_of_runs)
    print(f"{head}, {attention}: {about['train_seconds']} s, loss {about['last_loss']}", flush=True)


def settings(
    head: str, attention: str, arguments: argparse.Namespace
) -> tuple[PretrainConfig, PretrainOptions]:
    """Return the appendix setting, or a tiny one."""
    size: dict[str, Any] = dict(SIZES[arguments.size])
    steps = arguments.steps
    if arguments.quick:
        size = {"width": 32, "num_heads": 2, "head_width": 64, "hidden_width": 64, "layers": 1}
        steps = min(steps, 20)
    layers = size.pop("layers")
    levels = {"ranks": RANKS} if attention == "mlr" else {}
    if head == "quantiles":
        # A context of 127 steps has 8 patches of 16: as many levels as halve them.
        levels = {"ranks": (40, 12, 8, 4)} if attention == "mlr" else {}
    config = PretrainConfig(
        head=head,
        attention=attention,
        context_length=127,
        prediction_length=127,
        num_layers=layers,
        num_decoder_layers=layers,
        initial_factor=arguments.initial_factor,
        **size,
        **levels,
    )
    options = PretrainOptions(
        max_steps=steps,
        batch_size=8 if arguments.quick else 32,
        precision="32-true" if arguments.quick else arguments.precision,
        compile=arguments.compile,
        seed=arguments.seed,
        progress=False,
    )
    return config, options


def naive_row(data: Dataset) -> dict[str, Any]:
    """Return the scores of the seasonal naive forecast."""
    mase, wql = seasonal_naive_scores(data, LEVELS)
    return {
        "dataset": data.name,
        "horizon": data.horizon,
        "series": len(data.contexts),
        "head": "seasonal_naive",
        "attention": "",
        "size": "",
        "initial_factor": "",
        "seed": "",
        "mase": f"{mase:.4f}",
        "wql": f"{wql:.4f}",
    }


def write_scores(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Replace the rows of the same data set and model."""
    replace_rows(folder / "scores.csv", SCORES, rows, rank_of_scores)


def rank_of_runs(row: dict[str, Any]) -> tuple[str, ...]:
    """Tell models apart."""
    return tuple(str(row[name]) for name in KEYS)


def rank_of_losses(row: dict[str, Any]) -> tuple[Any, ...]:
    """Tell points of curves apart."""
    return (*rank_of_runs(row), int(row["step"]))


def rank_of_scores(row: dict[str, Any]) -> tuple[str, ...]:
    """Tell scores apart."""
    return (row["dataset"], str(row["series"]), *rank_of_runs(row))


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command line with the folder of committed results, wherever it was written."""
    home = "benchmarks/results/pretrain"
    return [home if word == arguments.out else word for word in sys.argv[1:]]


if __name__ == "__main__":
    main()
