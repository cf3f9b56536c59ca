"""The side of neuralforecast in ``sweeps.py``; runs in an environment that has it, and Ray."""

import json
import logging
import sys
import time
import warnings
from typing import Any

import pandas as pd
import ray
import torch
from neuralforecast import NeuralForecast
from neuralforecast.auto import AutoPatchTST
from neuralforecast.common._base_auto import RayOptions
from neuralforecast.losses.pytorch import MAE
from neuralforecast.models import PatchTST
from ray import tune


def main() -> None:
    """Read one case from the arguments, write one line of JSON."""
    case = json.loads(sys.argv[1])
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    frame = pd.read_parquet(case["frame"])
    config: dict[str, Any] = {
        "input_size": case["context"],
        "patch_len": 16,
        "stride": 16,
        "hidden_size": 32,
        "n_heads": 4,
        "encoder_layers": 2,
        "linear_hidden_size": 64,
        "windows_batch_size": 256,
        "max_steps": case["steps"],
        "val_check_steps": max(1, case["steps"] // 4),
        "random_seed": 1,
        "accelerator": "cpu",
        "devices": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "enable_checkpointing": False,
    }
    if case["executor"] == "loop":
        print(json.dumps(_loop(frame, config, case)))
        return
    begin = time.perf_counter()
    ray.init(num_cpus=case["workers"], log_to_driver=False, include_dashboard=False)
    ready = time.perf_counter()
    rates = [float(rate) for rate in case["rates"]]
    model = AutoPatchTST(
        h=case["horizon"],
        loss=MAE(),
        config=config | {"learning_rate": tune.grid_search(rates)},
        num_samples=1,
        ray_options=RayOptions(cpus=1, gpus=0),
        verbose=False,
    )
    NeuralForecast([model], freq="h").fit(frame, val_size=case["validation"])
    wall = time.perf_counter() - ready
    print(json.dumps({"start_seconds": ready - begin, "wall_seconds": wall, "refits": 1}))


def _loop(frame: pd.DataFrame, config: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """Fit the same models one after the other."""
    begin = time.perf_counter()
    for rate in case["rates"]:
        model = PatchTST(h=case["horizon"], loss=MAE(), learning_rate=float(rate), **config)
        NeuralForecast([model], freq="h").fit(frame, val_size=case["validation"])
    wall = time.perf_counter() - begin
    return {"start_seconds": 0.0, "wall_seconds": wall, "refits": 0}


if __name__ == "__main__":
    main()
