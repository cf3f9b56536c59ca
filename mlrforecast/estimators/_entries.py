"""A fitted forecaster that reads entries, or frames of other columns than those of ``fit``."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mlrforecast.data import ColumnEncoding, CovariateEncoding
from mlrforecast.data.gluonts import entry_columns
from mlrforecast.estimators._base import FittedForecaster
from mlrforecast.estimators._fitting import Fitted

Forecaster = TypeVar("Forecaster", bound=FittedForecaster)

_KEYS = {"id_column": "item_id", "timestamp_column": "timestamp", "target": "target"}


def reading_entries(forecaster: Forecaster) -> Forecaster:
    """Return a forecaster with the same network whose columns are named as entries name them."""
    calibration = forecaster.calibration_
    if calibration is not None and calibration.method == "rolling":
        raise ValueError(
            "A rolling calibration reads the newest rows of all series together, but entries of "
            "GluonTS come one by one, also those of earlier dates. Use calibrate(..., "
            "method='split')."
        )
    encoding = _renamed(forecaster.encoding_)
    names: dict[str, Any] = _KEYS | {
        f"{role}_covariates": tuple(column.name for column in getattr(encoding, role))
        for role in ("past", "known", "static")
    }
    return _reading(forecaster, encoding, names)


def reading_columns(forecaster: Forecaster, **names: Hashable) -> Forecaster:
    """Return a forecaster with the same network that reads long frames of these columns.

    ``names`` are ``id_column``, ``timestamp_column`` and ``target``; covariates keep theirs.
    """
    return _reading(forecaster, forecaster.encoding_, names)


def _reading(
    forecaster: Forecaster, encoding: CovariateEncoding, names: Mapping[str, Any]
) -> Forecaster:
    """Return a forecaster with the same network and another schema."""
    made = type(forecaster)(**forecaster.get_params(deep=False) | names)
    made._set_fitted(
        Fitted(
            forecaster.model_,
            encoding,
            forecaster.dependence_,
            forecaster.num_steps_,
            forecaster.batch_size_,
        ),
        schema=replace(forecaster.schema_, **names),
        freq=forecaster.freq_,
        context=None,
        calibration=forecaster.calibration_,
    )
    return made


def _renamed(encoding: CovariateEncoding) -> CovariateEncoding:
    """Return an encoding of columns that are named as features of entries."""

    def renamed(role: Any, columns: tuple[ColumnEncoding, ...]) -> tuple[ColumnEncoding, ...]:
        for column in columns:
            _check_categories(column)
        names = entry_columns(role, (column.categories is not None for column in columns))
        return tuple(
            replace(column, name=name) for column, name in zip(columns, names, strict=True)
        )

    return replace(
        encoding,
        past=renamed("past", encoding.past),
        known=renamed("known", encoding.known),
        static=renamed("static", encoding.static),
    )


def _check_categories(column: ColumnEncoding) -> None:
    """Refuse categories that no entry of GluonTS can hold."""
    wrong = [text for text in column.categories or () if not text.removeprefix("-").isdigit()]
    if wrong:
        raise ValueError(
            f"Covariate {column.name!r} has the category {wrong[0]!r}, but categories of GluonTS "
            "are whole numbers. Number them, e.g. with .cat.codes.astype('category'), and fit "
            "again."
        )
