"""What a pipeline of Chronos that holds a forecaster does."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mlrforecast.data import parse_frequency
from mlrforecast.estimators import MLRForecaster
from mlrforecast.integrations._chronos_inputs import (
    context_rows,
    device_option,
    first_stamp,
    level_list,
)

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MEDIAN = 0.5
_OF_HUB = {"revision", "cache_dir", "token", "local_files_only"}


class Pipeline:
    """What a pipeline does; the class of Chronos is mixed in where that is installed."""

    def __init__(
        self,
        forecaster: MLRForecaster,
        levels: tuple[float, ...] | None,
        read_entries: Callable[[], MLRForecaster],
        read_columns: Callable[..., MLRForecaster],
    ) -> None:
        super().__init__(inner_model=forecaster.model_)  # type: ignore[call-arg]
        self.forecaster = forecaster
        self._levels = levels
        self._read_entries = read_entries
        self._read_columns = read_columns

    @property
    def model_context_length(self) -> int:
        """Steps that a forecast reads."""
        return self.forecaster.context_length_

    @property
    def model_prediction_length(self) -> int:
        """Steps that were trained; more can be forecast."""
        return self.forecaster.config_.prediction_length

    @property
    def quantiles(self) -> list[float]:
        """Levels that :meth:`predict` gives, of a forecaster that has points alone the median."""
        return list(self._levels or (_MEDIAN,))

    def predict(
        self,
        inputs: Tensor | Sequence[Any],
        prediction_length: int | None = None,
        limit_prediction_length: bool = False,
    ) -> Tensor:
        """Forecast the levels in :attr:`quantiles`.

        Parameters
        ----------
        inputs : Tensor of shape (B, T) or (T,), or sequence of tensors or arrays of shape (T,)
            Contexts, oldest step first; NaN where a value is missing, and on the left of shorter
            ones.
        prediction_length : int, optional
            Steps to forecast. Default: as trained.
        limit_prediction_length : bool
            Whether more steps than were trained are an error.

        Returns
        -------
        Tensor of shape (B, Q, F)
            Float32, on the CPU.

        Raises
        ------
        ValueError
            If the forecaster reads covariates or the calendar, which contexts do not have, or an
            argument is out of its range.
        TypeError
            If an argument is of the wrong type, or a context does not hold numbers.
        DataError
            If a context holds no value, or an infinite one.
        """
        quantiles, _ = self.predict_quantiles(
            inputs,
            prediction_length,
            self.quantiles,
            limit_prediction_length=limit_prediction_length,
        )
        return quantiles.swapaxes(1, 2).contiguous()

    def predict_quantiles(
        self,
        inputs: Tensor | Sequence[Any],
        prediction_length: int | None = None,
        quantile_levels: Sequence[float] = LEVELS,
        *,
        limit_prediction_length: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Forecast quantiles, and points.

        Parameters
        ----------
        inputs, prediction_length, limit_prediction_length
            As in :meth:`predict`.
        quantile_levels : sequence of float
            Levels in (0, 1). A forecaster that has points alone gives them as its median.

        Returns
        -------
        quantiles : Tensor of shape (B, F, Q)
            Float32, on the CPU.
        mean : Tensor of shape (B, F)
            The point forecast.

        Raises
        ------
        ValueError, TypeError, DataError
            As in :meth:`predict`; also if a level cannot be had.
        """
        self._check_context_alone()
        horizon = self._horizon(prediction_length, limit_prediction_length)
        rows = context_rows(inputs, self.model_context_length)
        start = first_stamp(self.forecaster.freq_)
        entries = [
            {"item_id": str(number), "start": start, "target": row}
            for number, row in enumerate(rows)
        ]
        columns, forecast = self._forecast(
            self._read_entries(), entries, None, horizon, quantile_levels
        )
        blocks = forecast[["target", *columns]].to_numpy(dtype=np.float32)
        found = torch.from_numpy(blocks).reshape(len(rows), horizon, -1)
        return found[..., 1:].contiguous(), found[..., 0].contiguous()

    def predict_df(
        self,
        df: pd.DataFrame,
        future_df: pd.DataFrame | None = None,
        *,
        id_column: Hashable = "item_id",
        timestamp_column: Hashable = "timestamp",
        target: Hashable = "target",
        prediction_length: int | None = None,
        quantile_levels: Sequence[float] = LEVELS,
        batch_size: int = 256,
        validate_inputs: bool = True,
        freq: str | None = None,
        limit_prediction_length: bool = False,
    ) -> pd.DataFrame:
        """Forecast the series of a long frame.

        It is read as ``MLRForecaster.predict`` reads frames: rows may stand in any order, names of
        series be of any dtype, stamps carry time zones, and covariates and the calendar count.

        Parameters
        ----------
        df : DataFrame
            Items, stamps, targets and the past of the covariates that the forecaster reads.
        future_df : DataFrame, optional
            Covariates of the steps to forecast; needed if some are known in advance.
        id_column, timestamp_column, target : hashable
            Columns of the frame.
        prediction_length, quantile_levels, limit_prediction_length
            As in :meth:`predict_quantiles`.
        batch_size, validate_inputs
            Without effect: windows are forecast 512 at a time, and frames are always checked.
        freq : str, optional
            Step of the rows; it must be that of the forecaster.

        Returns
        -------
        DataFrame
            For each item and step to forecast the item, the stamp, ``"target_name"``,
            ``"predictions"`` (the point forecast) and a column for each level, named ``"0.9"``.

        Raises
        ------
        DataError
            If the frame breaks a rule.
        ValueError
            If an argument is out of its range or a level cannot be had.
        """
        del batch_size, validate_inputs
        if freq is not None and parse_frequency(freq) != self.forecaster.freq_:
            raise ValueError(
                f"`freq` must be that of the forecaster, {self.forecaster.freq_!r}, got {freq!r}."
            )
        horizon = self._horizon(prediction_length, limit_prediction_length)
        names = {"id_column": id_column, "timestamp_column": timestamp_column, "target": target}
        for name, value in names.items():
            if not isinstance(value, Hashable):
                raise TypeError(f"`{name}` must name one column, got {value!r}.")
        reader = self._read_columns(**names)
        columns, forecast = self._forecast(reader, df, future_df, horizon, quantile_levels)
        made = forecast[[id_column, timestamp_column]].copy()
        # As Chronos names them.
        named: Any = target
        return made.assign(
            target_name=named,
            predictions=forecast[target],
            **{
                str(level): forecast[column]
                for level, column in zip(quantile_levels, columns, strict=True)
            },
        )

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | PathLike[str],
        *,
        backbone: nn.Module | None = None,
        device_map: Any = None,
        dtype: Any = "auto",
        **hub: Any,
    ) -> Any:
        """Read a forecaster from a folder, or from a repository on the hub.

        Parameters
        ----------
        pretrained_model_name_or_path : path or str
            Folder that ``MLRForecaster.save`` wrote, or ``"owner/name"``.
        backbone : Module, optional
            See ``MLRForecaster.load``.
        device_map : str or torch.device, optional
            ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``. Default: where it was trained.
        dtype : {"auto", "float32", torch.float32}
            Forecasts are computed in float32.
        **hub
            ``revision``, ``cache_dir``, ``token`` and ``local_files_only``, as in
            ``MLRForecaster.from_hub``.

        Returns
        -------
        MLRForecasterPipeline
            The pipeline; nothing in the files is executed.

        Raises
        ------
        ModelFileError, HubError
            As ``MLRForecaster.load`` and ``from_hub``.
        ValueError
            If an argument is not one of those above.
        """
        if dtype not in ("auto", "float32", torch.float32):
            raise ValueError(f"`dtype` must be 'auto' or float32, got {dtype!r}.")
        if unknown := set(hub) - _OF_HUB:
            raise ValueError(
                f"A forecaster is read without `{min(unknown)}`: beside `backbone`, `device_map` "
                f"and `dtype` there are {', '.join(sorted(_OF_HUB))}."
            )
        path = Path(pretrained_model_name_or_path)
        if path.is_dir():
            forecaster = MLRForecaster.load(path, backbone=backbone)
        else:
            name = str(pretrained_model_name_or_path)
            forecaster = MLRForecaster.from_hub(name, backbone=backbone, **hub)
        if device_map is not None:
            forecaster.set_params(accelerator=device_option(device_map))
        return forecaster.to_chronos()

    def save_pretrained(self, save_directory: str | PathLike[str]) -> None:
        """Write the forecaster into the folder ``save_directory``, as ``MLRForecaster.save``."""
        self.forecaster.save(save_directory)

    def _check_context_alone(self) -> None:
        """Check that a context is all that the forecaster reads."""
        encoding = self.forecaster.encoding_
        roles = [role for role in ("past", "known", "static") if getattr(encoding, role)]
        if roles:
            raise ValueError(
                f"This forecaster reads {' and '.join(roles)} covariates, which `inputs` do not "
                "have: give a frame with them to `predict_df`."
            )
        if encoding.cycles:
            raise ValueError(
                f"This forecaster reads the calendar ({', '.join(encoding.cycles)}), and `inputs` "
                "have no time stamps: give a frame to `predict_df`, or fit with calendar=False."
            )

    def _horizon(self, prediction_length: int | None, limited: bool) -> int:
        """Return the steps to forecast."""
        trained = self.model_prediction_length
        horizon: Any = trained if prediction_length is None else prediction_length
        # What is no number is refused by the forecaster.
        if limited and isinstance(horizon, int | np.integer) and horizon > trained:
            raise ValueError(
                f"`prediction_length` must be at most {trained}, the trained number of steps, with "
                f"limit_prediction_length=True; got {horizon}."
            )
        found: int = horizon
        return found

    def _forecast(
        self,
        reader: MLRForecaster,
        frame: Any,
        future: pd.DataFrame | None,
        horizon: int,
        levels: Sequence[float],
    ) -> tuple[list[Any], pd.DataFrame]:
        """Return the columns of some levels, and the long frame that holds them and the point."""
        predict = partial(reader.predict, frame, future=future, prediction_length=horizon)
        levels = level_list(levels)
        if self._levels is None and levels == [_MEDIAN]:
            return [reader.schema_.target], predict()
        forecast = predict(quantile_levels=levels)
        return [f"{round(float(level), 6):g}" for level in levels], forecast
