"""Sweeps that are ready to run: a data set, an estimator, what is searched and how it is scored."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd
from scipy import stats

from mlrforecast.data import load_dataset
from mlrforecast.estimators import MLRForecaster

__all__ = ["Preset", "presets"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A sweep by name.

    Attributes
    ----------
    title : str
        What it is, in a line.
    dataset : str
        A data set of the catalogue.
    target : tuple of str, optional
        Columns to forecast. Default: all targets.
    settings : mapping of str to object
        Parameters of :class:`mlrforecast.MLRForecaster` that are the same in all trials.
    space : mapping of str to object
        What is searched.
    options : mapping of str to object
        Arguments of :func:`mlrforecast.tuning.tune`: how trials are counted and scored.

    Examples
    --------
    >>> from mlrforecast.tuning import presets
    >>> preset = presets["paper-etth1"]
    >>> preset.space["learning_rate"]
    {'grid_search': [1e-05, 0.0002, 0.005]}
    >>> preset.forecaster(attention="standard").width
    512
    """

    title: str
    dataset: str
    target: tuple[str, ...] | None
    settings: Mapping[str, Any]
    space: Mapping[str, Any]
    options: Mapping[str, Any]

    def forecaster(self, **changes: Any) -> MLRForecaster:
        """Return the estimator that is tuned.

        Parameters
        ----------
        **changes : object
            Parameters that take the place of those of the preset.

        Returns
        -------
        MLRForecaster
            It is not fitted.
        """
        return MLRForecaster(**{**self.settings, **changes})

    def load(
        self, root: str | os.PathLike[str] | None = None, *, download: bool = True
    ) -> pd.DataFrame:
        """Return the rows that settings are chosen on: all before the first one of the test.

        Parameters
        ----------
        root : path, optional
            Folder to look for the file in, as in :func:`mlrforecast.load_dataset`.
        download : bool, default True
            Whether the file may be fetched.

        Returns
        -------
        DataFrame
            Targets in standard units: their mean and standard deviation over the train rows are
            0 and 1.

        Raises
        ------
        DatasetNotFoundError, ChecksumError, ValueError
            As in :func:`mlrforecast.load_dataset`.
        """
        dataset = load_dataset(self.dataset, root=root, download=download)
        frame = dataset.standardised().iloc[: dataset.splits["test"].start]
        return frame if self.target is None else frame[list(self.target)]


_SCORED = MappingProxyType({"metric": "MSE", "folds": 3, "windows": 30, "step": 25})
"""Windows of a month, each an hour later in the day than the one before."""

presets: Mapping[str, Preset] = MappingProxyType(
    {
        "etth1": Preset(
            title="all seven columns of ETTh1, small models, horizon 96",
            dataset="ETTh1",
            target=None,
            settings=MappingProxyType({"prediction_length": 96}),
            space=MappingProxyType(
                {
                    "learning_rate": stats.loguniform(3e-4, 1e-2),
                    "context_length": [192, 336, 512, 720],
                    "width": [16, 32, 64],
                    "num_layers": [1, 2],
                    "dropout": stats.uniform(0.0, 0.4),
                    "frequency_weight": stats.uniform(0.0, 1.0),
                    "max_steps": [100, 200, 400],
                }
            ),
            options=MappingProxyType({**_SCORED, "num_samples": 32}),
        ),
        "paper-etth1": Preset(
            title="the grid of the paper: oil temperature of ETTh1, horizons 96, 192 and 336",
            dataset="ETTh1",
            target=("OT",),
            # Point tokens, and nothing that the paper does not have. How far back it reads is not
            # known here; 336 steps are two weeks.
            settings=MappingProxyType(
                {
                    "prediction_length": 96,
                    "context_length": 336,
                    "patch_length": 1,
                    "width": 512,
                    "num_heads": 8,
                    "num_layers": 2,
                    "hidden_width": 2048,
                    "dropout": 0.1,
                    "loss": "mse",
                    "frequency_weight": 0.0,
                    "linear_share": 0.0,
                    "calendar": False,
                }
            ),
            space=MappingProxyType(
                {
                    "learning_rate": {"grid_search": [1e-5, 2e-4, 5e-3]},
                    "max_steps": {"grid_search": [200, 1000]},
                    "prediction_length": {"grid_search": [96, 192, 336]},
                }
            ),
            options=MappingProxyType({**_SCORED, "num_samples": 1}),
        ),
    }
)
"""Presets by name; :func:`tune` takes the name in place of a space."""
