"""What a backtest holds, and forecasts of networks that are fitted again."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

TIME, NAMES = ("item_id", "cutoff", "timestamp"), ("actual", "forecast")


@pytest.fixture(scope="module")
def on_wide() -> MLRForecaster:
    return MLRForecaster(**TINY).fit(wide())


@pytest.fixture(scope="module")
def on_long() -> MLRForecaster:
    return MLRForecaster(**TINY).fit(long())


def test_the_frame_of_a_wide_one_has_a_row_for_each_column_cutoff_and_step(
    on_wide: MLRForecaster,
) -> None:
    frame = wide(90)
    found = on_wide.backtest(frame, windows=4, step=5, quantile_levels=(0.05, 0.9))
    tidy = found.frame
    assert list(tidy.columns) == [*TIME, *NAMES, "0.05", "0.9"]
    assert isinstance(tidy.index, pd.RangeIndex)
    number = 0
    for channel, name in enumerate("ab"):
        for window, cutoff in enumerate(found.cutoffs):
            for step in range(PREDICTION):
                row = tidy.iloc[number]
                stamp = cutoff + pd.Timedelta(hours=step + 1)
                assert tuple(row[list(TIME)]) == (name, cutoff, stamp)
                assert row["actual"] == frame.loc[stamp, name]
                assert row["forecast"] == found.forecast[window, step, channel]
                assert list(row[["0.05", "0.9"]]) == list(found.quantiles[window, step, channel])
                number += 1
    assert number == len(tidy)
    assert tidy["cutoff"].dtype == tidy["timestamp"].dtype == frame.index.dtype
    assert (tidy.dtypes[3:] == np.float64).all()


def test_the_frame_of_a_long_one_keeps_items_and_their_dtype(on_long: MLRForecaster) -> None:
    frame = long(ids=(30, 7, 12))
    found = on_long.backtest(frame, windows=3)
    tidy = found.frame
    assert tidy["item_id"].dtype == np.int64
    assert list(tidy["item_id"].drop_duplicates()) == list(dict.fromkeys(found.item_ids))
    actual = frame.set_index(["item_id", "timestamp"])["target"]
    keys = pd.MultiIndex.from_frame(tidy[["item_id", "timestamp"]])
    np.testing.assert_array_equal(tidy["actual"], actual.loc[keys])
    np.testing.assert_array_equal(tidy["forecast"], found.forecast.ravel())
    for _, part in tidy.groupby("item_id", sort=False):
        assert part["cutoff"].is_monotonic_increasing
        assert (part.groupby("cutoff")["timestamp"].diff().dropna() == pd.Timedelta("1h")).all()


def test_the_frame_keeps_labels_that_are_tuples(on_wide: MLRForecaster) -> None:
    labels = [("load", "north"), ("load", "south")]
    frame = wide(80)
    frame.columns = pd.MultiIndex.from_tuples(labels)
    tidy = on_wide.backtest(frame, windows=2).frame
    assert list(tidy["item_id"].drop_duplicates()) == labels


def test_integer_time_goes_on(on_wide: MLRForecaster) -> None:
    fitted = MLRForecaster(**TINY).fit(wide()["a"].to_numpy())
    tidy = fitted.backtest(wide(50)["a"].to_numpy(), windows=2).frame
    assert list(tidy["timestamp"]) == list(range(50 - 2 * PREDICTION, 50))
    assert set(tidy["item_id"]) == {0}


def test_residuals_are_actual_minus_forecast(on_wide: MLRForecaster) -> None:
    frame = wide(90)
    frame.iloc[-3, 0] = np.nan
    found = on_wide.backtest(frame, windows=3, quantile_levels=[0.5])
    table = found.residuals()
    assert list(table.columns) == [*TIME, *NAMES, "residual", "0.5"]
    np.testing.assert_array_equal(table["residual"], table["actual"] - table["forecast"])
    assert table["residual"].isna().sum() == 1
    pd.testing.assert_frame_equal(table.drop(columns="residual"), found.frame)
    assert "residual" not in found.frame


def loop_scale(values: np.ndarray, num_rows: int, season: int) -> float:
    """The mean absolute difference a season apart, of the first rows."""
    lag = season if num_rows > season else 1
    steps = [abs(values[n] - values[n - lag]) for n in range(lag, num_rows)]
    steps = [step for step in steps if not np.isnan(step)]
    return float(np.mean(steps)) if steps else float("nan")


def test_scale_is_the_seasonal_error_before_each_cutoff(on_wide: MLRForecaster) -> None:
    frame = wide(100)
    frame.iloc[[5, 30, 31, 60], 1] = np.nan
    frame.iloc[:50, 0] = np.nan
    found = on_wide.backtest(frame, step=3, windows=31)
    expected = [
        [loop_scale(frame[name].to_numpy(), rows, 24) for name in "ab"] for rows in found.num_rows
    ]
    assert (found.num_rows <= 24).any()
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found.scale(), expected, rtol=1e-9)


@pytest.mark.parametrize("sizes", [(1e12, 1e-3, 1.0), (1e-3, 1e12, 1e-3), (1.0, 1e-3, 1e12)])
def test_scale_of_series_of_very_different_sizes(
    on_long: MLRForecaster, sizes: tuple[float, ...]
) -> None:
    frame = long()
    frame["target"] *= frame["item_id"].map(dict(zip("zbm", sizes, strict=True)))
    found = on_long.backtest(frame, step=2)
    expected = []
    for item, rows in zip(found.item_ids, found.num_rows, strict=True):
        values = frame.loc[frame["item_id"] == item, "target"].to_numpy()
        expected.append([loop_scale(values, rows, found.season_length)])
    np.testing.assert_allclose(found.scale(), expected, rtol=1e-9)


def test_scale_of_columns_of_very_different_sizes(on_wide: MLRForecaster) -> None:
    frame = wide(100) * [1e12, 1e-3]
    found = on_wide.backtest(frame)
    expected = [
        [loop_scale(frame[name].to_numpy(), rows, 24) for name in "ab"] for rows in found.num_rows
    ]
    np.testing.assert_allclose(found.scale(), expected, rtol=1e-9)


def test_scale_does_not_read_what_follows_the_cutoff(on_wide: MLRForecaster) -> None:
    frame = wide(100)
    before = on_wide.backtest(frame, windows=1).scale()
    frame.iloc[-PREDICTION:] *= 1e14
    np.testing.assert_allclose(on_wide.backtest(frame, windows=1).scale(), before, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e9])
def test_a_season_that_repeats_itself_has_no_scale(on_wide: MLRForecaster, size: float) -> None:
    frame = wide(120)
    # Not the same floats each day, as a sine is not.
    frame["a"] = size * (3 + np.sin(2 * np.pi * np.arange(120) / 24))
    frame["b"] = np.tile(np.arange(24.0), 5) * size
    np.testing.assert_array_equal(on_wide.backtest(frame, windows=3).scale(), 0.0)


def test_a_small_column_beside_a_large_one_that_repeats(on_long: MLRForecaster) -> None:
    frame = long()
    rows = frame["item_id"] == "b"
    frame.loc[rows, "target"] = 1e12 * np.arange(rows.sum())
    frame.loc[frame["item_id"] == "m", "target"] = 0.25
    found = on_long.backtest(frame, windows=1)
    scale = dict(zip(found.item_ids, found.scale()[:, 0], strict=True))
    assert scale["m"] == 0
    assert scale["b"] == pytest.approx(1e12 * found.season_length)


@pytest.mark.parametrize("make", [wide, long])
def test_refitted_forecasts_are_those_of_a_clone_on_what_came_before(make: Any) -> None:
    frame = make()
    fitted = MLRForecaster(**TINY).fit(frame)
    weights = {name: part.clone() for name, part in fitted.model_.state_dict().items()}
    found = fitted.backtest(frame, windows=3, step=4, refit=True, quantile_levels=[0.1, 0.7])
    for place in range(3):
        if make is wide:
            cut = frame[: len(frame) - PREDICTION - 4 * place]
            chosen = [len(found.forecast) - 1 - place]
        else:
            parts = [part for _, part in frame.groupby("item_id", sort=False)]
            cut = pd.concat([part[: len(part) - PREDICTION - 4 * place] for part in parts])
            chosen = [2 - place, 5 - place, 8 - place]
        again = clone(fitted).fit(cut).predict(cut, quantile_levels=[0.1, 0.7])
        if make is wide:
            expected = np.stack([again[name].to_numpy() for name in "ab"], axis=1)[None]
        else:
            expected = again[["target", "0.1", "0.7"]].to_numpy().reshape(3, PREDICTION, 1, 3)
        np.testing.assert_allclose(found.forecast[chosen], expected[..., 0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.quantiles[chosen], expected[..., 1:], rtol=1e-5, atol=1e-5)
    for name, part in fitted.model_.state_dict().items():
        assert (part == weights[name]).all()


def test_every_second_window_has_a_network_of_its_own() -> None:
    frame = wide()
    fitted = MLRForecaster(**TINY).fit(frame)
    found = fitted.backtest(frame, windows=5, refit=2)
    ends = len(frame) - PREDICTION * np.arange(5, 0, -1)
    np.testing.assert_array_equal(found.num_rows, ends)
    for group in ((0, 1), (2, 3), (4,)):
        network = clone(fitted).fit(frame[: ends[group[0]]])
        for window in group:
            expected = network.predict(frame[: ends[window]])
            np.testing.assert_allclose(found.forecast[window], expected, rtol=1e-5, atol=1e-5)


def test_a_large_refit_is_one_network() -> None:
    frame = wide()
    fitted = MLRForecaster(**TINY).fit(frame)
    found = fitted.backtest(frame, windows=3, refit=1000)
    network = clone(fitted).fit(frame[: -3 * PREDICTION])
    expected = network.backtest(frame, windows=3)
    np.testing.assert_allclose(found.forecast, expected.forecast, rtol=1e-5, atol=1e-5)


def test_refitting_needs_rows_to_train_on(on_wide: MLRForecaster) -> None:
    with pytest.raises(DataError, match="No series has two rows before its oldest cutoff"):
        on_wide.backtest(wide(PREDICTION + 2), windows=2, step=1, refit=True)


def test_windows_at_most(on_long: MLRForecaster) -> None:
    frame = long(rows=(80, PREDICTION + 4, 40))
    found = on_long.backtest(frame, windows=7, step=3)
    assert pd.Series(found.item_ids).value_counts().to_dict() == {"z": 7, "b": 2, "m": 7}
    for item, rows in (("z", 80), ("b", PREDICTION + 4), ("m", 40)):
        ends = found.num_rows[found.item_ids == item]
        np.testing.assert_array_equal(ends[::-1], rows - PREDICTION - 3 * np.arange(len(ends)))


@pytest.mark.parametrize("refit", [False, True])
def test_series_that_are_too_short_are_named_and_left_out(refit: bool) -> None:
    frame = long(rows=(80, PREDICTION, 70))
    fitted = MLRForecaster(**TINY).fit(frame)
    with pytest.warns(UserWarning, match=r"series 'b' has 6\. It is left out, .* 1 of 3 series"):
        found = fitted.backtest(frame, windows=2, refit=refit)
    assert list(found.item_ids) == ["z", "z", "m", "m"]
    assert set(found.frame["item_id"]) == {"z", "m"}
    assert found.scale().shape == (4, 1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"windows": 0}, ValueError, "`windows` must be at least 1, got 0"),
        ({"windows": 2.0}, TypeError, r"`windows` must be an integer, got 2\.0"),
        ({"windows": True}, TypeError, "`windows` must be an integer, got True"),
        ({"step": 0}, ValueError, "`step` must be at least 1, got 0"),
        ({"step": "2"}, TypeError, "`step` must be an integer, got '2'"),
        ({"refit": 0}, ValueError, "`refit` must be at least 1, got 0"),
        ({"refit": -1}, ValueError, "`refit` must be at least 1, got -1"),
        ({"refit": 1.5}, TypeError, r"`refit` must be an integer, got 1\.5"),
        ({"refit": None}, TypeError, "`refit` must be an integer, got None"),
    ],
)
def test_arguments_out_of_range(
    on_wide: MLRForecaster, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        on_wide.backtest(wide(CONTEXT + 20), **options)
