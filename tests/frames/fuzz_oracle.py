"""What is wrong with a forecast, told from the table that the frame was made of."""

from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
from pandas.api.types import is_numeric_dtype

from mlrforecast import MLRForecaster
from tests.frames.fuzz_cases import Case
from tests.frames.fuzz_tables import TIME_FAULTS
from tests.frames.tiny import PREDICTION

RELIABLE_ROWS = 9


def problems_of(forecast: Any, forecaster: MLRForecaster, case: Case) -> list[str]:
    """Compare a forecast with what its frame asks for: kind, items, stamps, finite numbers."""
    source = case.frame if case.X is None else case.X
    problems = []
    if not _same_kind(forecast, source, case.quantile_levels is not None):
        problems.append(f"{type(forecast)} for {type(source)}")
    frame = _as_pandas(forecast)
    numbers = frame.iloc[
        :, [place for place in range(frame.shape[1]) if _holds_forecast(frame, place, case)]
    ]
    if numbers.empty:
        problems.append("no numbers")
    if not np.isfinite(numbers.to_numpy(dtype=float)).all():
        problems.append("a forecast that is not finite")
    if case.form is None or not (case.X is None or case.X is case.frame):
        return problems
    return problems + _wrong_rows(frame, forecaster, case)


def _same_kind(forecast: Any, source: Any, with_levels: bool) -> bool:
    if isinstance(source, pd.Series):
        return isinstance(forecast, pd.DataFrame if with_levels else pd.Series)
    if isinstance(source, pd.DataFrame):
        return isinstance(forecast, pd.DataFrame)
    if isinstance(source, np.ndarray):
        return isinstance(forecast, np.ndarray)
    return type(forecast) is type(source)


def _as_pandas(forecast: Any) -> pd.DataFrame:
    if isinstance(forecast, polars.DataFrame):
        return pd.DataFrame({name: forecast[name].to_list() for name in forecast.columns})
    if isinstance(forecast, pyarrow.Table):
        return pd.DataFrame(forecast.to_pydict())
    if isinstance(forecast, np.ndarray):
        return pd.DataFrame(forecast.reshape(len(forecast), -1))
    return pd.DataFrame(forecast)


def _holds_forecast(frame: pd.DataFrame, place: int, case: Case) -> bool:
    """Tell whether a column holds numbers of the forecast, not items or time."""
    form = case.form
    keys = (form.item_name(), form.time_name()) if form and form.shape == "long" else ()
    dtype = frame.dtypes.iloc[place]
    return frame.columns[place] not in keys and bool(is_numeric_dtype(dtype)) and dtype.kind != "b"


def _wrong_rows(frame: pd.DataFrame, forecaster: MLRForecaster, case: Case) -> list[str]:
    """Compare the items and stamps of a forecast with the table."""
    form, table = case.form, case.table
    assert form is not None
    assert table is not None
    if form.shape == "array":
        return [] if len(frame) == PREDICTION else [f"{len(frame)} rows"]
    if form.oddity in ("levels of columns", "column twice"):
        return []
    if form.is_long:
        items = list(dict.fromkeys(table["item"]))
        found = frame.index.to_frame(index=False) if form.shape == "long index" else frame
        stamps = found[form.time_name()]
    else:
        items = [None]
        column = form.shape == "wide column"
        stamps = frame[form.time_name()] if column else frame.index.to_series()
    if len(frame) != PREDICTION * len(items):
        return [f"{len(frame)} rows for {len(items)} series"]
    problems = []
    if form.is_long:
        problems += _wrong_items(found[form.item_name()], items, case)
    steps = [forecaster.freq_]
    if _is_plain(case):
        steps.append(case.step)
    for number, item in enumerate(items):
        own = table if item is None else table[table["item"] == item]
        got = stamps.iloc[number * PREDICTION : (number + 1) * PREDICTION]
        for step in steps:
            problems += _wrong_stamps(_as_index(got), own["stamp"].max(), step, case)
    return problems


def _wrong_items(got: pd.Series, items: list[int], case: Case) -> list[str]:
    assert case.form is not None
    source = _as_pandas(case.frame)
    source = source.index.to_frame(index=False) if case.form.shape == "long index" else source
    given = list(dict.fromkeys(source[case.form.item_name()].tolist()))
    expected = [item for item in given for _ in range(PREDICTION)]
    problems = [] if got.tolist() == expected else [f"items {got.tolist()}, not {expected}"]
    if case.form.library == "pandas" and got.dtype != source[case.form.item_name()].dtype:
        problems.append(f"items of {got.dtype}, not {source[case.form.item_name()].dtype}")
    return problems


def _is_plain(case: Case) -> bool:
    """Tell whether nothing makes the frequency doubtful."""
    assert case.table is not None
    changed = {"freq", "resample"} & case.parameters.keys()
    longest = case.table.groupby("item").size().max()
    faulty = set(case.notes) & {*TIME_FAULTS, "two rows", "single row"}
    return not changed and not faulty and longest >= RELIABLE_ROWS


def _as_index(stamps: pd.Series) -> pd.Index:
    index = pd.Index(stamps)
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    # Stamps of Python, from another library, have lost their dtype.
    return pd.DatetimeIndex(index) if index.dtype == object else index


def _wrong_stamps(got: pd.Index, last: Any, step: str | int | None, case: Case) -> list[str]:
    """Compare the stamps of one series with the steps that follow its last row."""
    assert case.form is not None
    rounded = case.form.time == "periods" and "irregular stamps" in case.notes
    if rounded or "resample" in case.parameters or case.form.time in ("epoch", "floats", "dates"):
        return []
    if isinstance(step, int):
        expected: Any = [int(last) + step * number for number in range(1, PREDICTION + 1)]
        return [] if got.tolist() == expected else [f"{got.tolist()}, not {expected}"]
    # The steps may end where nanoseconds do.
    last = pd.Timestamp(last).as_unit("us")
    expected = pd.date_range(last, periods=PREDICTION + 1, freq=step, unit="us")[1:]
    if not isinstance(got, pd.DatetimeIndex):
        return [f"{got.dtype} for stamps"]
    if case.form.time in ("periods", "month first", "day first"):
        got, expected = got.tz_localize(None), expected.tz_localize(None)
    zone = expected.tz
    if (got.tz is None) != (zone is None):
        return [f"zone {got.tz}, not {zone}"]
    same = (got == expected).all() and (zone is None or (got.tz_convert(zone) == expected).all())
    return [] if same else [f"{list(got)}, not {list(expected)}"]
