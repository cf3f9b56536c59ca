"""A trained model of the Chronos family: forecasts, and files that Chronos reads too."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mlrforecast.pretraining import _files
from mlrforecast.pretraining._checks import at_least, entries
from mlrforecast.pretraining._checks import series as checked
from mlrforecast.pretraining.config import PretrainConfig
from mlrforecast.pretraining.model import QuantileModel, TokenModel

__all__ = ["PretrainedModel"]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class PretrainedModel:
    """A trained model that forecasts any series.

    Parameters
    ----------
    network : TokenModel or QuantileModel
        What was trained.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.pretraining import PretrainOptions, kernel_synth, pretrain
    >>> config = PretrainConfig(
    ...     head="quantiles", context_length=64, prediction_length=8, width=16, num_layers=1
    ... )
    >>> options = PretrainOptions(max_steps=2, batch_size=4, accelerator="cpu", progress=False)
    >>> model = pretrain(config, [kernel_synth(4, length=128)], options).model
    >>> quantiles, median = model.predict_quantiles([np.arange(30.0), np.ones(5)])
    >>> quantiles.shape, median.shape
    ((2, 8, 9), (2, 8))
    >>> folder = f"{tempfile.mkdtemp()}/model"
    >>> model.save(folder)
    >>> again, _ = PretrainedModel.load(folder).predict_quantiles([np.arange(30.0), np.ones(5)])
    >>> bool((again == quantiles).all())
    True
    """

    def __init__(self, network: TokenModel | QuantileModel) -> None:
        self.network = network.eval()

    @property
    def config(self) -> PretrainConfig:
        """What the model consists of."""
        return self.network.config

    def predict_quantiles(
        self,
        contexts: Sequence[Any],
        *,
        prediction_length: int | None = None,
        quantile_levels: Sequence[float] = LEVELS,
        num_samples: int = 20,
        seed: int = 0,
        batch_size: int = 64,
        device: str | torch.device = "cpu",
    ) -> tuple[Float[np.ndarray, "N F Q"], Float[np.ndarray, "N F"]]:
        """Forecast quantiles, and the median.

        Parameters
        ----------
        contexts : sequence of arrays of shape (T,)
            The past of each series; NaN is a missing value.
        prediction_length : int, optional
            Steps to forecast. More than were trained are forecast block by block, each after the
            median of those before it. Default: as trained.
        quantile_levels : sequence of float
            Levels in (0, 1). Of ``head="quantiles"`` those between two trained ones lie on a
            straight line, and those beyond the outermost are these.
        num_samples : int
            Paths that ``head="tokens"`` draws.
        seed : int
            Of the draw.
        batch_size : int
            Series that are forecast at the same time.
        device : str or torch.device
            Where to forecast.

        Returns
        -------
        quantiles : ndarray of shape (N, F, Q), float32
        median : ndarray of shape (N, F), float32

        Raises
        ------
        ValueError
            If an argument is out of its range, or a context is no row of finite values and NaN.
        TypeError
            If an argument is of the wrong type.
        """
        steps = self.config.prediction_length if prediction_length is None else prediction_length
        steps, batch_size = (
            at_least(1, "prediction_length", steps),
            at_least(1, "batch_size", batch_size),
        )
        num_samples = at_least(1, "num_samples", num_samples)
        try:
            levels = np.asarray(quantile_levels, dtype=float)
        except (TypeError, ValueError):
            levels = np.zeros(0)
        if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"`quantile_levels` must lie in (0, 1), got {quantile_levels!r}.")
        rows = [_row(context, n) for n, context in enumerate(entries("contexts", contexts))]
        seed = at_least(0, "seed", seed)
        if not rows:
            raise ValueError("`contexts` must hold at least one series, got none.")
        generator = torch.Generator(device).manual_seed(seed)
        self.network.to(device)
        try:
            parts = [
                self._forecast(
                    rows[first : first + batch_size], steps, levels, num_samples, generator
                )
                for first in range(0, len(rows), batch_size)
            ]
        finally:
            self.network.cpu()
        found = np.concatenate(parts)
        return found[..., :-1], found[..., -1]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a folder: JSON and safetensors, under the names of Chronos.

        ``BaseChronosPipeline.from_pretrained(path)`` reads it; with MLR attention only after
        ``import mlrforecast.integrations.chronos``.

        Parameters
        ----------
        path : path
            Folder to make, or of an earlier model to replace.

        Raises
        ------
        FileExistsError
            If the folder holds something else.
        OSError
            If it cannot be written.
        """
        _files.save(self.network, Path(path))

    @staticmethod
    def check_folder(path: str | PathLike[str]) -> None:
        """Check, before anything is trained, that :meth:`save` would not refuse a folder.

        Parameters
        ----------
        path : path
            The folder.

        Raises
        ------
        FileExistsError
            If it holds something else than a model.

        Examples
        --------
        >>> PretrainedModel.check_folder("a-new-folder")
        """
        _files.check_folder(Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model that :meth:`save` wrote; nothing in the files is executed.

        Parameters
        ----------
        path : path
            The folder.

        Returns
        -------
        PretrainedModel

        Raises
        ------
        FileNotFoundError
            If there is no such folder.
        ModelFileError
            If the files are incomplete or do not fit each other.
        """
        return cls(_files.load(Path(path)))

    def _forecast(
        self,
        rows: list[np.ndarray],
        steps: int,
        levels: np.ndarray,
        num_samples: int,
        generator: torch.Generator,
    ) -> np.ndarray:
        """Forecast levels and the median of some series, (B, F, Q + 1)."""
        length, trained = self.config.context_length, self.config.prediction_length
        wanted, blocks = np.append(levels, 0.5), []
        for first in range(0, steps, trained):
            context = np.full((len(rows), length), np.nan, dtype=np.float32)
            for line, row in zip(context, rows, strict=True):
                newest = row[-length:]
                line[length - len(newest) :] = newest
            given = torch.from_numpy(context).to(generator.device)
            ahead = min(trained, steps - first)
            block = self._block(given, ahead, wanted, num_samples, generator)
            blocks.append(block)
            rows = [np.append(row, new[:, -1]) for row, new in zip(rows, block, strict=True)]
        return np.concatenate(blocks, axis=1)

    def _block(
        self,
        context: Tensor,
        steps: int,
        levels: np.ndarray,
        num_samples: int,
        generator: torch.Generator,
    ) -> np.ndarray:
        """Forecast at most as many steps as were trained, (B, F, Q)."""
        if isinstance(self.network, TokenModel):
            paths = self.network.sample(
                context, steps, num_samples=num_samples, generator=generator
            )
            found = np.quantile(paths.cpu().numpy(), levels, axis=1)
            return np.asarray(np.moveaxis(found, 0, -1), dtype=np.float32)
        trained = self.network.quantiles(context)[..., :steps].cpu().numpy()
        # Learnt quantiles may cross.
        trained = np.moveaxis(np.sort(trained, axis=1), 1, -1)
        known = np.asarray(self.config.quantile_levels)
        places = np.interp(levels, known, np.arange(len(known)))
        below = np.floor(places).astype(int)
        above = np.minimum(below + 1, len(known) - 1)
        share = places - below
        found = trained[..., below] + share * (trained[..., above] - trained[..., below])
        return np.asarray(found, dtype=np.float32)


def _row(context: Any, number: int) -> np.ndarray:
    """Return one series."""
    row = checked(f"contexts[{number}]", context, np.float32)
    if not len(row):
        raise ValueError(f"`contexts[{number}]` must have at least one step, got none.")
    return row
