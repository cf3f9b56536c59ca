"""Frames as users bring them: each works, or gets one clear error before any training."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from tests.estimators.frames import TINY, long, wide

Change = Callable[[pd.DataFrame], Any]


def put(row: Any, column: int, value: Any) -> Change:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame.iloc[row, column] = value
        return frame

    return change


def stamp(row: int, value: Any) -> Change:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        index = frame.index.to_list()
        index[row] = value
        return frame.set_axis(pd.DatetimeIndex(index), axis=0)

    return change


WORK: dict[str, tuple[Callable[[], pd.DataFrame], Change]] = {
    "missing values": (wide, put(slice(-9, -3), 0, np.nan)),
    "a long span of missing values": (wide, put(slice(10, 80), 0, np.nan)),
    "unsorted": (wide, lambda f: f.sample(frac=1, random_state=0)),
    "constant": (wide, lambda f: f.assign(a=3.5)),
    "all constant": (wide, lambda f: f.assign(a=3.5, b=-1)),
    "as short as a fit may be": (wide, lambda f: f[:2]),
    "huge": (wide, lambda f: f * 1e298),
    "tiny": (wide, lambda f: f * 1e-300),
    "backwards": (wide, lambda f: f[::-1]),
    "long, unsorted": (long, lambda f: f.sample(frac=1, random_state=0)),
    "long, missing values": (long, put(slice(60, 79), 2, np.nan)),
    "long, stamps as text": (long, lambda f: f.assign(timestamp=f["timestamp"].astype(str))),
    "long, columns in another order": (long, lambda f: f[["target", "item_id", "timestamp"]]),
}

REFUSED: dict[str, tuple[Callable[[], pd.DataFrame], Change, str]] = {
    "duplicate": (
        wide,
        lambda f: pd.concat([f, f.iloc[[5]]]),
        r"must be unique, but `X` has 2024-01-01 05:00:00",
    ),
    "gap": (
        wide,
        lambda f: f.drop(f.index[50]),
        r"`X` has a gap: 2024-01-03 01:00:00 is followed by 2024-01-03 03:00:00.*fill='missing'",
    ),
    "irregular": (
        wide,
        stamp(-1, pd.Timestamp("2024-01-05 22:47")),
        r"`X` has 2024-01-05 22:47:00 after 2024-01-05 22:00:00.*resample",
    ),
    "no stamp": (wide, stamp(-1, pd.NaT), r"index of `X` has no time stamp in row 119"),
    "text": (wide, lambda f: f.assign(a="x"), r"Column 'a' of `X` must be numeric.*'x'"),
    "numbers as text": (
        wide,
        lambda f: f.assign(a=f["a"].astype(str)),
        r"Column 'a' of `X` must be numeric.*to_numeric",
    ),
    "stamps as values": (wide, lambda f: f.assign(a=f.index), r"Column 'a' of `X` must be numeric"),
    "complex": (wide, lambda f: f.assign(a=1j), r"Column 'a' of `X` must be numeric.*complex"),
    "no rows": (wide, lambda f: f[:0], r"`X` is empty: it has 0 rows and 2 columns"),
    "no columns": (wide, lambda f: f[[]], r"`X` is empty: it has 120 rows and 0 columns"),
    "infinite": (
        wide,
        put(7, 1, np.inf),
        r"column 'b' is inf at 2024-01-01 07:00:00.*NaN",
    ),
    "no values": (wide, lambda f: f.assign(a=np.nan), r"no observed value in column 'a'"),
    "doubled column": (
        wide,
        lambda f: f.set_axis(["a", "a"], axis=1),
        r"more than one column named 'a'",
    ),
    "no time": (
        wide,
        lambda f: f.set_index("a"),
        r"No time is found in `X`.*index is of type float64, and of its columns 'b' none",
    ),
    "long, another column": (
        long,
        lambda f: f.assign(price=1),
        r"columns without a role: 'price'.*past_covariates",
    ),
    "long, no ids": (
        long,
        lambda f: f.drop(columns="item_id"),
        r"must be unique, but `X` has 2024-01-01 00:00",
    ),
    "long, missing id": (long, put(3, 0, None), r"'item_id' of `X` is missing in row 3"),
    "long, missing stamp": (
        long,
        put(3, 1, pd.NaT),
        r"'timestamp' of `X` has no time stamp in row 3",
    ),
    "long, words as stamps": (
        long,
        lambda f: f.assign(timestamp="soon"),
        r"'timestamp' of `X` cannot be read as time stamps",
    ),
    "long, duplicate": (
        long,
        lambda f: pd.concat([f, f.iloc[[5]]]),
        r"must be unique, but series 'z' has 2024-01-01 05:00:00",
    ),
    "long, gap": (long, lambda f: f.drop(index=100), r"series 'b' has a gap: 2024-01-01 19:00"),
    "long, no values": (
        long,
        lambda f: f.assign(target=f["target"].where(f["item_id"] != "b")),
        r"no observed value in series 'b'",
    ),
    "long, infinite": (long, put(100, 2, -np.inf), r"series 'b' is -inf at 2024-01-01 20:00:00"),
    "long, text": (long, lambda f: f.assign(target="x"), r"Column 'target' must be numeric"),
}

TOO_SHORT = {
    "wide": (lambda: wide(1), r"at least 2 rows .*, but the frame has 1"),
    "one of many": (lambda: long(rows=(80, 1, 70)), r"at least 2 rows .*, but series 'b' has 1"),
}

NO_FRAMES = [{"a": [1.0, 2.0]}, [wide()], "frame.csv", 3, wide]


@pytest.mark.parametrize("name", WORK)
def test_forecasts_are_finite(on_wide: MLRForecaster, name: str) -> None:
    make, change = WORK[name]
    frame = change(make())
    for forecast in (MLRForecaster(**TINY).fit(frame).predict(), on_wide.predict(frame)):
        assert np.isfinite(forecast.select_dtypes("number").to_numpy()).all()


@pytest.mark.parametrize("name", REFUSED)
def test_errors_come_before_training_and_say_what_is_wrong(
    on_wide: MLRForecaster, no_training: None, name: str
) -> None:
    make, change, message = REFUSED[name]
    calls = (
        MLRForecaster(**TINY).fit,
        on_wide.predict,
        on_wide.backtest,
        on_wide.score,
        on_wide.check_leakage,
    )
    for call in calls:
        with pytest.raises(DataError, match=message) as caught:
            call(change(make()))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", TOO_SHORT)
def test_too_short_to_fit_is_long_enough_to_predict(
    on_wide: MLRForecaster, no_training: None, name: str
) -> None:
    make, message = TOO_SHORT[name]
    with pytest.raises(DataError, match=message):
        MLRForecaster(**TINY).fit(make())
    assert np.isfinite(on_wide.predict(make()).select_dtypes("number").to_numpy()).all()


@pytest.mark.parametrize("given", NO_FRAMES, ids=lambda given: type(given).__name__)
def test_only_frames_are_read(on_wide: MLRForecaster, no_training: None, given: Any) -> None:
    calls = (MLRForecaster(**TINY).fit, on_wide.predict, on_wide.backtest)
    for call in calls:
        with pytest.raises(
            TypeError, match=rf"`X` must be a DataFrame .*GluonTS.*, got {type(given).__name__}"
        ):
            call(given)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.reset_index(drop=True),
        lambda f: f.to_numpy(),
        lambda f: f.set_axis(range(0, 600, 5)),
    ],
    ids=["RangeIndex", "array", "integers"],
)
def test_time_of_another_kind_than_that_of_fit_is_refused(
    on_wide: MLRForecaster, change: Change
) -> None:
    with pytest.raises(DataError, match="'h'"):
        on_wide.predict(change(wide()))
    on_numbers = MLRForecaster(**TINY).fit(change(wide()))
    with pytest.raises(DataError, match=str(on_numbers.freq_)):
        on_numbers.predict(wide())
