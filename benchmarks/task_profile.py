"""Tell what a training of a task spends its time on: products, attention, all else, or waiting.

Run it from the root of the repository::

    python benchmarks/task_profile.py benchmarks/lm/scaling.toml --corpus CORPUS --only mlr-512-0
    python benchmarks/task_profile.py benchmarks/icl/bottleneck-16.toml --together 16

It writes a row for each kind of work and each run (or, together, for all of them), by the profiler
of PyTorch over some steps after the first ones.
"""

import argparse
import csv
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from mlrforecast.benchmark import cpu_model
from mlrforecast.tasks import Execution, peak_flops, read_runs
from mlrforecast.tasks._loop import compiling
from mlrforecast.tasks._training import Training
from mlrforecast.tasks.in_context_regression import RegressionRun
from mlrforecast.tasks.in_context_regression.recipe import RegressionTrainee
from mlrforecast.tasks.language_model import Corpus, LanguageRun
from mlrforecast.tasks.language_model.recipe import LanguageTrainee

COLUMNS = (
    "runs", "together", "compile", "kind", "ms_a_step", "share", "step_ms", "tokens_per_second",
    "peak_share", "hardware", "versions",
)  # fmt: skip
KINDS = {
    "attention": r"flash|fmha|sdpa|scaled_dot|softmax|mlr_|^forward$|backward_(queries|keys)",
    "products": r"gemm|cutlass|nvjet|xmma|cublas|aten::(mm|addmm|bmm|matmul|linear)|gemv",
    "norms": r"layer_?norm",
    "optimiser": r"adam|multi_tensor|foreach",
    "copies": r"copy|memcpy|memset|fill|\bto\b|cast",
}
"""What the name of a kernel tells of its kind; the first that fits."""


def main() -> None:
    """Profile and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="a file of runs")
    parser.add_argument("--corpus", type=Path, help="of a language model")
    parser.add_argument("--only", nargs="+", help="names of runs; default: all")
    parser.add_argument("--together", type=int, default=1, help="runs at a time on a GPU")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--out", type=Path, help="a CSV file to append to")
    arguments = parser.parse_args()
    kind: Any = RegressionRun if arguments.corpus is None else LanguageRun
    runs = [
        run
        for run in read_runs(arguments.runs, kind)
        if arguments.only is None or run.name in arguments.only
    ]
    groups = [runs[at : at + arguments.together] for at in range(0, len(runs), arguments.together)]
    with compiling(arguments.compile):
        rows = [row for group in groups for row in _profiled(group, arguments)]
    for row in rows:
        print(*(row[name] for name in COLUMNS[:-2]), sep="  ")
    if arguments.out is not None:
        new = not arguments.out.exists()
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerows(rows)


def _profiled(runs: Sequence[Any], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each kind of work of some runs that are trained together."""
    fabric = Execution(accelerator=arguments.accelerator).fabric()
    on_gpu = fabric.device.type == "cuda"
    trainings = []
    for run in runs:
        if arguments.corpus is None:
            trainee: Any = RegressionTrainee(run)
        else:
            trainee = LanguageTrainee(run, Corpus.open(arguments.corpus))
        stream = torch.cuda.Stream() if on_gpu else None
        trainings.append(Training(trainee, fabric, compile=arguments.compile, stream=stream))
    # The last stage of a curriculum, where a training spends most of its time.
    for training in trainings:
        training.step = max(0, training.run.max_steps - 1000)
    _advance(trainings, 5, on_gpu)
    begin = time.perf_counter()
    _advance(trainings, arguments.steps, on_gpu)
    seconds = (time.perf_counter() - begin) / arguments.steps
    activities = [ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]
    with profile(activities=activities) as profiler:
        _advance(trainings, arguments.steps, on_gpu)
    spent: dict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        micros = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        spent[_kind_of(event.key)] += micros / 1000 / arguments.steps
    costs = [training.trainee.cost(training.trainee.stage(training.step)) for training in trainings]
    sizes = [training.run.batch_size for training in trainings]
    tokens = sum(cost.tokens * size for cost, size in zip(costs, sizes, strict=True))
    flops = sum(cost.training_flops * size for cost, size in zip(costs, sizes, strict=True))
    hardware = torch.cuda.get_device_name() if on_gpu else cpu_model()
    peak = peak_flops(hardware)
    what = {
        "runs": " ".join(run.name for run in runs),
        "together": len(runs),
        "compile": arguments.compile,
        "step_ms": round(seconds * 1000, 3),
        "tokens_per_second": round(tokens / seconds),
        "peak_share": "" if peak is None else round(flops / seconds / peak, 4),
        "hardware": hardware,
        "versions": f"torch {torch.__version__}",
    }
    total = sum(spent.values())
    return [
        what | {"kind": kind, "ms_a_step": round(ms, 3), "share": round(ms / total, 4)}
        for kind, ms in sorted(spent.items(), key=lambda item: -item[1])
    ]


def _advance(trainings: Sequence[Training], steps: int, on_gpu: bool) -> None:
    """Make steps of all runs, and wait for them."""
    for _ in range(steps):
        for training in trainings:
            training.advance(training.step + 1)
    if on_gpu:
        torch.cuda.synchronize()


def _kind_of(name: str) -> str:
    """Return what a kernel does, by its name."""
    for kind, pattern in KINDS.items():
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "elementwise and the rest"


if __name__ == "__main__":
    main()
