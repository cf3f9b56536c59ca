"""The side of neuralforecast in ``train_speed.py``; runs in an environment that has it."""

import argparse
import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import neuralforecast
import pandas as pd
import pytorch_lightning as pl
import torch
from _speed_worker import CONTEXT, DROPOUT, HORIZON, PATCH, SIZES, STRIDE, serve
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import MAE
from neuralforecast.models import PatchTST

NAMES = ("unique_id", "ds", "y")


class _Noted(pl.Callback):
    """Call a function at the end of each step."""

    def __init__(self, note: Callable[[], None]) -> None:
        self.note = note

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.note()


class Other:
    """PatchTST of neuralforecast."""

    def __init__(self, size: str, attention: str, windows: int) -> None:
        self.size = SIZES[size]
        self.attention = attention
        self.windows = windows
        self.seen: set[tuple[int, ...]] = set()

    def fit(self, frame: pd.DataFrame, steps: int, note: Callable[[], None]) -> None:
        """Train a new model; note each step."""
        model = PatchTST(
            h=HORIZON,
            input_size=CONTEXT,
            patch_len=PATCH,
            stride=STRIDE,
            hidden_size=self.size["width"],
            n_heads=self.size["num_heads"],
            encoder_layers=self.size["num_layers"],
            linear_hidden_size=self.size["hidden_width"],
            dropout=DROPOUT,
            res_attention=self.attention == "residual",
            loss=MAE(),
            windows_batch_size=self.windows,
            max_steps=steps,
            accelerator="cpu",
            devices=1,
            callbacks=[_Noted(note)],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            logger=False,
        )
        self.seen = set()
        self.forecaster = NeuralForecast(models=[model], freq="h")
        # NeuralForecast trains a copy of the model, so its shapes are noted by class.
        with _noted_shapes(self.seen):
            self.forecaster.fit(frame)

    def predict(self) -> pd.DataFrame:
        """Forecast all series."""
        return self.forecaster.predict()

    def network(self, contexts: torch.Tensor) -> torch.Tensor:
        """Forecast from contexts (B, T) with the network alone."""
        model = self.forecaster.models[0].eval()
        with torch.inference_mode():
            forecast: torch.Tensor = model({"insample_y": contexts.unsqueeze(-1)})
        return forecast

    def counts(self) -> dict[str, Any]:
        """Return what describes the model."""
        model = self.forecaster.models[0]
        (shape,) = self.seen
        return {
            "windows_a_step": shape[0],
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "tokens": model.model.backbone.seq_len,
            "version": neuralforecast.__version__,
            "torch": torch.__version__,
        }


@contextlib.contextmanager
def _noted_shapes(seen: set[tuple[int, ...]]) -> Iterator[None]:
    """Note the shape of what the network reads in training."""
    forward = PatchTST.forward

    def noted(model: PatchTST, windows_batch: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.add(tuple(windows_batch["insample_y"].shape))
        forecast: torch.Tensor = forward(model, windows_batch)
        return forecast

    PatchTST.forward = noted
    try:
        yield
    finally:
        PatchTST.forward = forward


def main() -> None:
    """Serve the parent."""
    parser = argparse.ArgumentParser()
    for name in ("--size", "--attention", "--data"):
        parser.add_argument(name, required=True)
    parser.add_argument("--windows", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    serve(Other(given.size, given.attention, given.windows), NAMES)


if __name__ == "__main__":
    main()
