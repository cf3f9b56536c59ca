"""The leaderboard: baselines against plain loops, and what it refuses."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlrforecast import metrics
from mlrforecast.baselines import LinearBaseline
from mlrforecast.evaluation import _leaderboard, leaderboard
from mlrforecast.evaluation._scores import score_table
from tests.evaluation.handmade import NAN, backtest_of, long_frame, wide_frame

BASELINES = ["seasonal naive", "mean of 7 seasons", "repeat last", "linear"]
POINT = ["MSE", "MAE", "RMSE", "MASE", "sMAPE"]


def history(backtest, window, channel):
    """All rows before a cutoff."""
    values = backtest.panel.series(backtest.series[window]).values
    return values[: backtest.num_rows[window], channel]


def newest(values):
    seen = values[~np.isnan(values)]
    return seen[-1] if len(seen) else NAN


def by_loop(backtest):
    """The forecasts of the three baselines without training, a value at a time."""
    season, shape = backtest.season_length, backtest.forecast.shape
    made = {name: np.full(shape, NAN) for name in BASELINES[:3]}
    for n, f, c in np.ndindex(shape):
        past = history(backtest, n, c)
        same = np.array([v for t, v in enumerate(past) if (len(past) + f - t) % season == 0])
        last = newest(past)
        naive = last if np.isnan(newest(same)) else newest(same)
        week = same[-7:][~np.isnan(same[-7:])]
        made["repeat last"][n, f, c] = last
        made["seasonal naive"][n, f, c] = naive
        made["mean of 7 seasons"][n, f, c] = week.mean() if len(week) else naive
    return made


def gaps():
    """Columns with gaps: short ones, more than seven seasons, a whole phase, all of the start."""
    frame = wide_frame(70, 4)
    frame.iloc[40:44, 0] = NAN
    frame.iloc[20:60, 1] = NAN
    frame.iloc[[t for t in range(70) if t % 3 == 1], 2] = NAN
    frame.iloc[:30, 3] = NAN
    return frame


@pytest.mark.parametrize(
    "backtest",
    [
        backtest_of(wide_frame(60)),
        backtest_of(wide_frame(60), season=1),
        backtest_of(wide_frame(20), season=24),  # longer than the rows
        backtest_of(long_frame([40, 9, 33]), steps=5),  # longer than a season, short items
        backtest_of(gaps()),
    ],
    ids=["wide", "no season", "long season", "long", "gaps"],
)
def test_simple_forecasts_equal_a_loop(backtest, monkeypatch):
    monkeypatch.setattr(_leaderboard, "BLOCK", 100)  # a few windows at a time
    found = _leaderboard._simple_forecasts(backtest)
    expected = by_loop(backtest)
    assert list(found) == list(expected)
    table = leaderboard({"mine": backtest})
    for name, forecast in found.items():
        np.testing.assert_allclose(forecast, expected[name], atol=1e-12, err_msg=name)
        score = score_table(replace(backtest, forecast=forecast))
        np.testing.assert_array_equal(table.loc[name, POINT], score[POINT])


def linear_by_loop(backtest):
    """The forecast of the linear baseline, a window at a time, from the same definition."""
    panel, steps = backtest.panel, backtest.forecast.shape[1]
    series = sorted(set(backtest.series.tolist()))
    first = {s: min(backtest.num_rows[backtest.series == s]) for s in series}
    context = min(336, int(np.median(list(first.values()))) // 2)
    past, future = [], []
    for s in series:
        early = panel.series(s).values[: first[s]]
        unit = np.nanstd(early, axis=0)
        for start in range(first[s] - context - steps + 1):
            window = early[start : start + context + steps] / unit
            past.append(window[:context])
            future.append(window[context:])
    model = LinearBaseline().fit(np.stack(past), np.stack(future))
    made = np.empty(backtest.forecast.shape)
    for n in range(len(made)):
        rows = panel.series(backtest.series[n]).values[: backtest.num_rows[n]]
        padded = np.full((context, panel.num_channels), NAN)
        padded[max(context - len(rows), 0) :] = rows[-context:]
        made[n] = model.predict(padded[None])[0]
    return made


@pytest.mark.parametrize("frame", [wide_frame(60), long_frame([60, 15, 44])], ids=["wide", "long"])
def test_linear_is_fitted_before_the_first_cutoff_of_each_series(frame):
    backtest = backtest_of(frame)
    table = leaderboard({"mine": backtest})
    expected = metrics.mse(backtest.actual, linear_by_loop(backtest))
    assert table.loc["linear", "MSE"] == pytest.approx(expected, rel=1e-9)
    assert table.attrs["left_out"] == {}


def test_baselines_read_nothing_after_their_cutoff():
    backtest = backtest_of(wide_frame(60))
    before = _forecasts(backtest)
    later = backtest.panel.values.copy()
    later[backtest.num_rows[0] :] = 1e6
    after = _forecasts(replace(backtest, panel=replace(backtest.panel, values=later)))
    for name in BASELINES:
        np.testing.assert_array_equal(before[name][0], after[name][0], err_msg=name)
        assert (before[name][-1] != after[name][-1]).any()


def _forecasts(backtest):
    made = _leaderboard._simple_forecasts(backtest)
    return made | {"linear": _leaderboard._linear_forecast(backtest, made["repeat last"])}


def test_rows_and_columns_and_their_order():
    frame = wide_frame(60)
    good = backtest_of(frame)
    good = replace(good, forecast=good.actual + 0.01)
    point = backtest_of(frame, levels=(), seed=3)
    table = leaderboard({"point": point, "good": good})
    assert table.index[0] == "good"
    assert sorted(table.index) == sorted([*BASELINES, "point", "good"])
    assert table.index.name == "model"
    assert table["MASE"].is_monotonic_increasing
    assert table.columns.tolist() == score_table(good).index.tolist()
    pd.testing.assert_series_equal(table.loc["good"], score_table(good), check_names=False)
    assert table.loc[["point", *BASELINES], "WQL"].isna().all()
    assert table.loc["good"].notna().all()
    assert leaderboard({"a": good}, baselines=False).index.tolist() == ["a"]


def test_models_of_one_score_keep_their_order_and_undefined_ones_come_last():
    frame = wide_frame(60)
    one = backtest_of(frame)
    lost = replace(one, forecast=np.full_like(one.forecast, NAN))
    table = leaderboard({"lost": lost, "b": one, "a": one}, baselines=False)
    assert table.index.tolist() == ["b", "a", "lost"]


def test_a_constant_frame_has_no_scaled_scores_but_a_table():
    frame = wide_frame(60)
    frame[:] = 5.0
    table = leaderboard({"mine": backtest_of(frame)})
    assert table["MASE"].isna().all()
    assert (table.loc[BASELINES, "MAE"] == 0).all()


def test_too_few_rows_leave_the_linear_baseline_out_and_say_so():
    backtest = backtest_of(wide_frame(30, 1), windows=10)
    table = leaderboard({"mine": backtest})
    assert "linear" not in table.index
    assert table.attrs["left_out"]["linear"] == (
        "8 rows stand before the first cutoff: with a context of 4 rows, 1 windows have all of "
        "their 4 steps there, and 10 are needed. Backtest fewer windows, or give more rows."
    )


def test_windows_with_gaps_in_the_future_do_not_count():
    frame = wide_frame(60, 1)
    frame.iloc[::4] = NAN  # a gap in every four steps
    reason = leaderboard({"mine": backtest_of(frame)}).attrs["left_out"]["linear"]
    assert "0 windows have all of their 4 steps" in reason


def test_a_context_without_values_is_forecast_by_the_last_one():
    frame = wide_frame(80, 2)
    frame.iloc[30:, 0] = NAN
    frame.iloc[-4:, 0] = 1.0
    backtest = backtest_of(frame, windows=1)  # a context of 38 rows, and gaps of 46
    made = _forecasts(backtest)
    np.testing.assert_array_equal(made["linear"][0, :, 0], made["repeat last"][0, :, 0])
    assert not np.isnan(made["linear"]).any()
    assert leaderboard({"mine": backtest}).notna().loc[BASELINES, "MSE"].all()


def test_series_without_a_window_do_not_train_the_linear_baseline():
    backtest = backtest_of(long_frame([40, 60]), windows=1)
    part = {name: getattr(backtest, name)[:1] for name in ("forecast", "actual", "series")}
    part |= {"num_rows": backtest.num_rows[:1], "quantiles": None, "quantile_levels": ()}
    found = _forecasts(replace(backtest, **part))["linear"]
    alone = _forecasts(backtest_of(long_frame([40]), windows=1))["linear"]
    np.testing.assert_allclose(found, alone, rtol=1e-12)


def test_many_windows_are_thinned_evenly(monkeypatch):
    panel = backtest_of(long_frame([60, 80])).panel
    first = np.array([40, 50])
    everything, after = _leaderboard._training_windows(panel, first, 10, 4)
    assert len(everything) == 27 + 37
    monkeypatch.setattr(_leaderboard, "MAX_VALUES", 64 * 14 // 3)
    some, later = _leaderboard._training_windows(panel, first, 10, 4)
    np.testing.assert_array_equal(some, everything[::4])
    np.testing.assert_array_equal(later, after[::4])
    assert some.size + later.size <= 64 * 14 // 3


def change(name, value):
    return lambda backtest: replace(backtest, **{name: value(getattr(backtest, name))})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda b: backtest_of(wide_frame(60), steps=5), r"shapes \[N, F, C\], \(3, 5, 3\) and"),
        (lambda b: backtest_of(wide_frame(60).add_prefix("x")), "series"),
        (lambda b: backtest_of(wide_frame(60), stride=3), "cutoffs"),
        (lambda b: backtest_of(wide_frame(60).shift(freq="h")), "cutoffs"),
        (change("actual", lambda a: a + 1), "actual values"),
        (change("season_length", lambda s: s + 1), "season_length, 4 and 3"),
        (lambda b: backtest_of(wide_frame(60).iloc[1:]), "rows before the cutoffs"),
        (lambda b: backtest_of(wide_frame(60).replace(wide_frame().iloc[0, 0], 9)), "rows before"),
    ],
)
def test_backtests_of_other_windows_are_refused(other, message):
    backtest = backtest_of(wide_frame(60))
    pattern = f"`backtests` must share their windows, but 'b' and 'a' differ in their {message}"
    with pytest.raises(ValueError, match=pattern):
        leaderboard({"a": backtest, "b": other(backtest)})


def test_other_items_are_refused():
    frame = long_frame([40, 30])
    with pytest.raises(ValueError, match="differ in their series"):
        leaderboard({"a": backtest_of(frame), "b": backtest_of(frame.replace("b0", "z"))})


def test_wrong_arguments_are_named():
    backtest = backtest_of(wide_frame(60))
    with pytest.raises(TypeError, match=r"must map names of models to their backtests, got list"):
        leaderboard([backtest])
    with pytest.raises(ValueError, match="must hold at least one backtest, got none"):
        leaderboard({})
    with pytest.raises(TypeError, match="must hold Backtests, got DataFrame for 'a'"):
        leaderboard({"a": wide_frame()})
    with pytest.raises(
        ValueError, match=r"must not use the names of the baselines .*, got 'linear'"
    ):
        leaderboard({"linear": backtest})
    assert leaderboard({"linear": backtest}, baselines=False).index.tolist() == ["linear"]
