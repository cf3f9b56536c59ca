"""Score the peers of the ETT benchmark on the same windows, by the models of neuralforecast.

It runs in an environment of its own, since neuralforecast pins other packages::

    python -m venv ENV && ENV/bin/pip install neuralforecast==3.3.0
    MLRFORECAST_DATA=... ENV/bin/python benchmarks/ett_peers.py benchmarks/results/peers

Rows 0 to 8639 are learnt from, values are standardised by them, and every window of stride 1 of
rows 11520 to 14399 is scored. Settings are those of the published scripts: DLinear and NLinear
(context 336), PatchTST/42 (context 336, width 16) and iTransformer (context 96, width 256 or, from
horizon 336 on, 512), each trained on the squared error with its own schedule of learning rates.
Two things differ for all: the weights of the last step are taken, where the published code takes
those that were best on the validation rows; and a step draws windows at random, where the published
code goes through all of them once an epoch.
"""

import argparse
import csv
import logging
import os
import platform
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import neuralforecast
import numpy as np
import pandas as pd
import torch
from _arguments import numbers
from _rows import replace_rows
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MSE
from neuralforecast.models import DLinear, NLinear, PatchTST, iTransformer

TRAIN, TEST, ROWS = 8640, 2880, 14400
COLUMNS = (
    "dataset", "target", "split", "horizon", "model", "seed", "context_length", "mse", "mae",
    "windows", "parameters", "train_seconds", "hardware", "versions", "command",
)  # fmt: skip
KEY = ("dataset", "target", "horizon", "model", "seed")


def main() -> None:
    """Fit, score and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--dataset", default="ETTh1", choices=("ETTh1", "ETTh2"))
    parser.add_argument("--target", help="the one column to forecast; all by default")
    parser.add_argument("--horizons", type=numbers, default=(96, 192, 336, 720))
    parser.add_argument("--models", type=names, default=tuple(MODELS))
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for logger in ("lightning", "pytorch_lightning", "neuralforecast"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    values = standardised(arguments.dataset, arguments.target)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{arguments.dataset}_{arguments.target or 'M'}_peers.csv"
    known = set()
    if path.exists():
        with path.open(encoding="utf-8") as file:
            known = set(map(rank, csv.DictReader(file)))
    for seed in range(arguments.seeds):
        for model in arguments.models:
            for horizon in arguments.horizons:
                target = arguments.target or "M"
                key = (arguments.dataset, target, str(horizon), model, str(seed))
                if key in known:
                    continue
                row = dict(zip(KEY, key, strict=True)) | measured(model, values, horizon, seed)
                replace_rows(path, COLUMNS, [row], rank)
                print(*key, row["mse"], row["mae"], f"{row['train_seconds']} s", flush=True)


def names(text: str) -> tuple[str, ...]:
    """Read names of models with commas between them."""
    found = tuple(text.split(","))
    if unknown := set(found) - set(MODELS):
        raise argparse.ArgumentTypeError(f"one of {', '.join(MODELS)}, got {', '.join(unknown)}")
    return found


def standardised(dataset: str, target: str | None) -> pd.DataFrame:
    """Return the rows of the benchmark in units of the train rows, a column a series."""
    if not (root := os.environ.get("MLRFORECAST_DATA")):
        raise SystemExit("Set MLRFORECAST_DATA to the folder of the data sets.")
    path = next(Path(root).rglob(f"{dataset}.csv"))
    frame = pd.read_csv(path, index_col=0, parse_dates=True).iloc[:ROWS]
    known = frame.iloc[:TRAIN]
    scaled = (frame - known.mean()) / known.std(ddof=0)
    return scaled if target is None else scaled[[target]]


def measured(model: str, values: pd.DataFrame, horizon: int, seed: int) -> dict[str, Any]:
    """Fit one model, and forecast from every hour of the test rows."""
    network = MODELS[model](horizon, values.shape[1], seed)
    long = values.reset_index(names="ds").melt("ds", var_name="unique_id", value_name="y")
    forecaster = NeuralForecast(models=[network], freq="h")
    begin = time.perf_counter()
    rolled = forecaster.cross_validation(
        long.astype({"y": "float32"}), val_size=TEST, test_size=TEST, n_windows=None, step_size=1
    )
    seconds = time.perf_counter() - begin
    errors = (rolled[model] - rolled["y"]).to_numpy(np.float64)
    windows = TEST - horizon + 1
    if len(errors) != windows * horizon * values.shape[1]:
        raise SystemExit(f"{model}: {len(errors)} values were forecast, some windows are missing.")
    on_gpu = torch.cuda.is_available()
    return {
        "split": "test",
        "context_length": network.input_size,
        "mse": f"{np.square(errors).mean():.6f}",
        "mae": f"{np.abs(errors).mean():.6f}",
        "windows": windows,
        "parameters": sum(p.numel() for p in forecaster.models[0].parameters()),
        "train_seconds": round(seconds, 1),
        "hardware": torch.cuda.get_device_name() if on_gpu else processor(),
        "versions": f"python {platform.python_version()}; torch {torch.__version__}; "
        f"neuralforecast {neuralforecast.__version__}",
        "command": f"python benchmarks/ett_peers.py {shlex.join(sys.argv[1:])}",
    }


def processor() -> str:
    """Name the processor and how many of its cores train."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{found[0] if found else platform.machine()}, {torch.get_num_threads()} threads"


def rank(row: dict[str, Any]) -> tuple[str, ...]:
    """Tell runs apart."""
    return tuple(str(row[name]) for name in KEY)


def options(seed: int, epochs: int, batch: int, context: int, horizon: int) -> dict[str, Any]:
    """Return what all models have in common: an epoch has as many steps as published."""
    steps = epochs * (TRAIN - context - horizon + 1) // batch
    return {
        "h": horizon,
        "input_size": context,
        "loss": MSE(),
        "max_steps": steps,
        "val_check_steps": steps,
        "random_seed": seed,
        "scaler_type": "identity",
        "inference_windows_batch_size": 512,
        "devices": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }


def halved(seed: int, epochs: int, batch: int, context: int, horizon: int) -> dict[str, Any]:
    """Return these with a learning rate that is halved after each epoch."""
    return options(seed, epochs, batch, context, horizon) | {"num_lr_decays": epochs}


def nlinear(horizon: int, series: int, seed: int) -> NLinear:
    """Return NLinear as published: batches of 32 windows of all series."""
    return NLinear(
        **halved(seed, 10, 32, 336, horizon), learning_rate=5e-3, windows_batch_size=32 * series
    )


def dlinear(horizon: int, series: int, seed: int) -> DLinear:
    """Return DLinear as published."""
    return DLinear(
        **halved(seed, 10, 32, 336, horizon), learning_rate=5e-3, windows_batch_size=32 * series
    )


def patchtst(horizon: int, series: int, seed: int) -> PatchTST:
    """Return PatchTST/42 as published for ETTh1: a rate that falls by a tenth an epoch."""
    shared = options(seed, 100, 128, 336, horizon)
    return PatchTST(
        **shared,
        encoder_layers=3, n_heads=4, hidden_size=16, linear_hidden_size=128, dropout=0.3,
        fc_dropout=0.3, revin_affine=False, revin_subtract_last=False, batch_normalization=True,
        learning_rate=1e-4, windows_batch_size=128 * series,
        lr_scheduler=torch.optim.lr_scheduler.ExponentialLR,
        lr_scheduler_kwargs={"gamma": 0.9 ** (100 / shared["max_steps"])},
    )  # fmt: skip


def itransformer(horizon: int, series: int, seed: int) -> iTransformer:
    """Return iTransformer as published for ETTh1, which reads all series at once."""
    return iTransformer(
        **halved(seed, 10, 32, 96, horizon),
        n_series=series, hidden_size=256 if horizon < 336 else 512,
        d_ff=256 if horizon < 336 else 512, e_layers=2, n_heads=8, dropout=0.1,
        learning_rate=1e-4, windows_batch_size=32,
    )  # fmt: skip


MODELS = {
    "DLinear": dlinear,
    "NLinear": nlinear,
    "iTransformer": itransformer,
    "PatchTST": patchtst,
}


if __name__ == "__main__":
    main()
