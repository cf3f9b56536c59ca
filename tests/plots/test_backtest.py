"""Forecasts from many cutoffs: what is drawn of them, and where."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import dates as mdates
from matplotlib import pyplot as plt

from mlrforecast.plots import plot_backtest


def tidy(items=("a", "b"), windows=3, step=6, steps=6, index=None, levels=("0.1", "0.9")):
    """Windows of ``steps`` rows every ``step`` rows; actual values count rows."""
    parts = []
    total = 10 + step * windows + steps
    index = pd.date_range("2024-01-01", periods=total, freq="h") if index is None else index
    for number, item in enumerate(items):
        for window in range(windows):
            cutoff = 9 + step * window
            rows = np.arange(cutoff + 1, cutoff + 1 + steps)
            part = pd.DataFrame({"cutoff": index[cutoff], "timestamp": index[rows]})
            part.insert(0, "item_id", [item] * steps)
            part["actual"] = 100.0 * number + rows
            part["forecast"] = part["actual"] + window + 1
            for level in levels:
                part[level] = part["forecast"] + 10 * (float(level) - 0.5)
            parts.append(part)
    return pd.concat(parts, ignore_index=True)


def named(axis, label):
    return [line for line in axis.get_lines() if line.get_label() == label]


def forecasts(axis):
    """The thick lines, oldest first."""
    return [line for line in axis.get_lines() if line.get_linewidth() == 1.8]


def marks(axis):
    """Where the dashed lines stand."""
    return [
        mdates.date2num(line.get_xdata()[0])
        for line in axis.get_lines()
        if line.get_linewidth() == 0.8
    ]


def test_each_item_has_its_actual_values_and_a_forecast_from_each_cutoff():
    frame = tidy()
    axes = plot_backtest(frame)
    assert [axis.get_ylabel() for axis in axes] == ["a", "b"]
    for axis, (_, rows) in zip(axes, frame.groupby("item_id"), strict=True):
        (actual,) = named(axis, "actual")
        np.testing.assert_array_equal(actual.get_ydata(), rows["actual"])
        assert list(actual.get_xdata()) == list(rows["timestamp"])
        windows = [window for _, window in rows.groupby("cutoff")]
        for line, window in zip(forecasts(axis), windows, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), window["forecast"])
            assert list(line.get_xdata()) == list(window["timestamp"])
        assert marks(axis) == [mdates.date2num(cutoff) for cutoff in rows["cutoff"].unique()]


def test_bands_are_the_quantiles_of_each_window():
    frame = tidy(("a",))
    axis = plot_backtest(frame)[0]
    assert len(axis.collections) == 3
    for band, (_, window) in zip(axis.collections, frame.groupby("cutoff"), strict=True):
        x, y = band.get_paths()[0].vertices.T
        for stamp, row in window.set_index("timestamp").iterrows():
            here = y[np.isclose(x, mdates.date2num(stamp), rtol=0, atol=1e-6)]
            assert (here.min(), here.max()) == (row["0.1"], row["0.9"])


def test_forecasts_that_lie_on_one_another_are_thinned_out_from_the_newest():
    frame = tidy(("a",), windows=20, step=1)
    axis = plot_backtest(frame)[0]
    cutoffs = sorted(frame["cutoff"].unique())
    assert marks(axis) == [mdates.date2num(cutoffs[place]) for place in (1, 7, 13, 19)]
    (actual,) = named(axis, "actual")
    assert list(actual.get_ydata()) == list(range(11, 35))
    assert len(forecasts(plot_backtest(frame, max_cutoffs=2)[0])) == 2


def test_windows_that_are_apart_leave_a_gap_between_actual_values():
    (actual,) = named(plot_backtest(tidy(("a",), step=9))[0], "actual")
    missing = np.isnan(np.asarray(actual.get_ydata(), dtype=float))
    assert list(np.flatnonzero(missing)) == [6, 13]


def test_the_legend_names_each_thing_once():
    axes = plot_backtest(tidy())
    texts = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert texts == ["actual", "forecast", "80 % interval"]
    assert axes[1].get_legend() is None


def test_items_can_be_chosen_and_others_are_counted():
    frame = tidy([f"shop {number}" for number in range(50)], windows=1)
    axes = plot_backtest(frame)
    assert [axis.get_ylabel() for axis in axes] == [f"shop {number}" for number in range(4)]
    assert axes[-1].get_xlabel() == "and 46 more items, not drawn"
    chosen = plot_backtest(frame, items=["shop 7", "shop 3"])
    assert [axis.get_ylabel() for axis in chosen] == ["shop 7", "shop 3"]
    assert chosen[-1].get_xlabel() == ""


def test_items_may_be_tuples_numbers_and_categories():
    axes = plot_backtest(tidy([("north", 1), 7]), items=[("north", 1)])
    assert axes[0].get_ylabel() == "('north', 1)"
    frame = tidy().astype({"item_id": "category"})
    assert len(plot_backtest(frame)) == 2


def test_time_may_be_whole_numbers_or_in_a_zone():
    axis = plot_backtest(tidy(("a",), index=pd.RangeIndex(40)))[0]
    assert all(float(tick).is_integer() for tick in axis.get_xticks())
    zoned = pd.date_range("2024-01-01 18:00", periods=40, freq="h", tz="Asia/Tokyo")
    axis = plot_backtest(tidy(("a",), index=zoned))[0]
    axis.figure.canvas.draw()
    assert axis.xaxis.get_major_formatter()._tz == zoned.tz


def test_missing_actual_values_and_one_step_are_drawn():
    frame = tidy(("a",), steps=1, step=1)
    frame.loc[0, "actual"] = np.nan
    axis = plot_backtest(frame)[0]
    assert len(forecasts(axis)) == 3
    assert all(line.get_marker() == "o" for line in forecasts(axis))
    frame["actual"] = np.nan
    plot_backtest(frame)[0].figure.canvas.draw()


def test_given_axes_are_drawn_on():
    _, grid = plt.subplots(2)
    axes = plot_backtest(tidy(), ax=grid)
    assert list(axes) == list(grid)
    with pytest.raises(ValueError, match=r"`ax` must hold one axes per drawn column \(2\), got 1"):
        plot_backtest(tidy(), ax=grid[0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"frame": tidy().iloc[:0]}, ValueError, r"`frame` must not be empty, got the shape \(0,"),
        ({"frame": tidy().drop(columns="cutoff")}, ValueError, "cutoff is missing"),
        ({"frame": [1]}, TypeError, "`frame` must be a DataFrame, got list"),
        ({"items": ["z"]}, ValueError, "`items` must be among those of `frame`, which has no 'z'"),
        ({"items": []}, ValueError, "`items` must name at least one item"),
        ({"items": "a"}, TypeError, "`items` must be a sequence of items, got 'a'"),
        ({"max_items": 0}, ValueError, "`max_items` must be at least 1, got 0"),
        ({"max_cutoffs": 0}, ValueError, "`max_cutoffs` must be at least 1, got 0"),
    ],
)
def test_wrong_input_is_one_clear_error(change, error, message):
    with pytest.raises(error, match=message):
        plot_backtest(**({"frame": tidy()} | change))


def test_the_frame_is_left_alone():
    frame = tidy()
    before = frame.copy()
    plot_backtest(frame)
    pd.testing.assert_frame_equal(frame, before)
