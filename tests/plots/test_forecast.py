"""What stands on the axes; nothing is shown and nothing is saved."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import dates as mdates
from matplotlib import pyplot as plt

from mlrforecast.plots import plot_forecast

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


def wide(start, rows, columns=("a", "b"), seed=0):
    index = pd.date_range(start, periods=rows, freq="h")
    values = np.random.default_rng(seed).normal(size=(rows, len(columns)))
    return pd.DataFrame(values, index=index, columns=list(columns))


def fan(columns=("a", "b"), levels=LEVELS, rows=6):
    point = wide("2024-01-03", rows, columns, seed=1)
    parts = {(name, "point"): point[name] for name in columns}
    for level in levels:
        for name in columns:
            parts[(name, str(level))] = point[name] + 4 * (level - 0.5)
    return pd.DataFrame(parts)


@pytest.fixture
def history():
    return wide("2024-01-01", 48)


def lines(axis):
    return {line.get_label(): line for line in axis.get_lines() if line.get_label()[0] != "_"}


def bands(axis):
    return {band.get_label(): band for band in axis.collections}


def test_bands_are_the_quantiles(history):
    forecast = fan()
    for axis, name in zip(plot_forecast(history, forecast), "ab", strict=True):
        drawn = bands(axis)
        assert list(drawn) == ["80 % interval", "50 % interval"]
        for (low, high), band in zip(
            [("0.1", "0.9"), ("0.25", "0.75")], drawn.values(), strict=True
        ):
            x, y = band.get_paths()[0].vertices.T
            for stamp, row in forecast[name].iterrows():
                here = y[np.isclose(x, mdates.date2num(stamp), rtol=0, atol=1e-6)]
                assert here.min() == row[low]
                assert here.max() == row[high]


def test_the_wide_band_is_the_pale_one_and_lies_below(history):
    outer, inner = plot_forecast(history, fan())[0].collections
    assert outer.get_alpha() < inner.get_alpha()
    assert outer.get_zorder() < inner.get_zorder() < 2


def test_lines_are_history_actual_and_median(history):
    forecast, actual = fan(), wide("2024-01-03", 6, seed=2)
    axis = plot_forecast(history, forecast, actual=actual, history_length=12)[1]
    drawn = lines(axis)
    assert set(drawn) == {"history", "actual", "forecast"}
    np.testing.assert_array_equal(drawn["history"].get_ydata(), history["b"][-12:])
    np.testing.assert_array_equal(drawn["actual"].get_ydata(), actual["b"])
    np.testing.assert_array_equal(drawn["forecast"].get_ydata(), forecast[("b", "0.5")])
    assert drawn["actual"].get_linewidth() < drawn["forecast"].get_linewidth()


def test_a_plain_forecast_has_a_line_and_no_band(history):
    forecast = wide("2024-01-03", 5)
    axes = plot_forecast(history, forecast)
    assert [axis.get_ylabel() for axis in axes] == ["a", "b"]
    assert not axes[0].collections
    np.testing.assert_array_equal(lines(axes[0])["forecast"].get_ydata(), forecast["a"])
    assert len(lines(axes[0])["history"].get_ydata()) == 15


def test_without_the_median_the_point_is_the_line(history):
    forecast = fan(levels=(0.1, 0.9))
    axis = plot_forecast(history, forecast)[0]
    np.testing.assert_array_equal(lines(axis)["forecast"].get_ydata(), forecast[("a", "point")])


def test_levels_can_be_chosen_and_a_lone_level_is_dotted(history):
    axis = plot_forecast(history, fan(), quantiles=(0.1, 0.75, 0.9))[0]
    assert list(bands(axis)) == ["80 % interval"]
    lone = lines(axis)["quantile 0.75"]
    assert lone.get_linestyle() == ":"
    np.testing.assert_array_equal(lone.get_ydata(), fan()[("a", "0.75")])


def test_many_columns_are_cut_and_counted():
    names = [f"s{number}" for number in range(7)]
    axes = plot_forecast(wide("2024-01-01", 48, names), wide("2024-01-03", 5, names), max_items=3)
    assert [axis.get_ylabel() for axis in axes] == ["s0", "s1", "s2"]
    assert axes[-1].get_xlabel() == "and 4 more columns, not drawn"


def test_the_legend_stands_outside_the_data_and_reads_in_order(history):
    axis = plot_forecast(history, fan(), actual=wide("2024-01-03", 6))[0]
    axis.figure.canvas.draw()
    legend = axis.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "history",
        "actual",
        "forecast",
        "80 % interval",
        "50 % interval",
    ]
    assert legend.get_window_extent().y0 >= axis.get_window_extent().y1
    assert axis.figure.bbox.contains(*legend.get_window_extent().max)


def test_dates_are_concise_and_numbers_stay_numbers(history):
    axis = plot_forecast(history, fan())[0]
    assert isinstance(axis.xaxis.get_major_formatter(), mdates.ConciseDateFormatter)
    numbered = history.reset_index(drop=True)
    axis = plot_forecast(numbered[:40], numbered[40:])[0]
    assert not isinstance(axis.xaxis.get_major_formatter(), mdates.ConciseDateFormatter)


@pytest.mark.parametrize("zone", ["America/New_York", "+05:30"])
def test_dates_are_those_of_the_clock_on_the_spot(zone):
    # The clock goes back on 3 November.
    frame = wide("2024-11-02", 72).tz_localize("UTC").tz_convert(zone)
    axis = plot_forecast(frame[:60], frame[60:], history_length=60)[0]
    texts = axis.xaxis.get_major_formatter().format_ticks(axis.get_xticks())
    ticks = mdates.num2date(axis.get_xticks(), tz=frame.index.tz)
    assert {tick.hour for tick in ticks} <= {0, 12}
    for tick, text in zip(ticks, texts, strict=True):
        assert text == (tick.strftime("%b-%d") if tick.hour == 0 else tick.strftime("%H:%M"))


def test_integer_time_has_whole_numbers():
    frame = wide("2024-01-01", 4).set_index(np.array([7, 8, 9, 10]))
    axis = plot_forecast(frame[:2], frame[2:])[0]
    assert all(tick == int(tick) for tick in axis.get_xticks())
    np.testing.assert_array_equal(lines(axis)["forecast"].get_xdata(), [9, 10])


def test_given_axes_are_used_and_returned(history):
    figure, grid = plt.subplots(1, 2)
    before = plt.get_fignums()
    axes = plot_forecast(history, fan(), ax=grid)
    assert list(axes) == list(grid)
    one = plot_forecast(history["a"], fan()["a"]["0.5"].rename("a"), ax=grid[0])
    assert list(one) == [grid[0]]
    assert plt.get_fignums() == before
    assert figure is grid[0].figure


def test_frames_are_left_alone(history):
    forecast = fan()
    copies = history.copy(), forecast.copy()
    plot_forecast(history, forecast)
    pd.testing.assert_frame_equal(history, copies[0])
    pd.testing.assert_frame_equal(forecast, copies[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": wide("2024", 0)}, r"`history` must not be empty, got the shape \(0, 2\)"),
        ({"columns": ["a", "z"]}, r"`history` must hold the column 'z', got \['a', 'b'\]"),
        ({"columns": []}, "`columns` must name at least one column"),
        ({"actual": wide("2024-01-03", 6, ["a"])}, "`actual` must hold the column 'b'"),
        ({"quantiles": [0.3]}, r"`quantiles` must be among \[0.1, .*got \[0.3\]"),
        ({"forecast": wide("2024-01-03", 6), "quantiles": [0.1]}, "`forecast` holds no quantiles"),
        ({"max_items": 0}, "`max_items` must be at least 1, got 0"),
        ({"history_length": 0}, "`history_length` must be at least 1, got 0"),
    ],
)
def test_errors_name_the_argument(history, arguments, message):
    everything = {"history": history, "forecast": fan()} | arguments
    with pytest.raises(ValueError, match=message):
        plot_forecast(everything.pop("history"), everything.pop("forecast"), **everything)


def test_too_few_axes_and_wrong_types(history):
    _, axis = plt.subplots()
    with pytest.raises(ValueError, match=r"`ax` must hold one axes per drawn column \(2\), got 1"):
        plot_forecast(history, fan(), ax=axis)
    with pytest.raises(TypeError, match="`history` must be a DataFrame or a Series, got ndarray"):
        plot_forecast(history.to_numpy(), fan())


def test_a_forecast_of_one_step_has_a_point_and_bars(history):
    forecast = fan(rows=1)
    axis = plot_forecast(history, forecast)[0]
    assert lines(axis)["forecast"].get_marker() == "o"
    bar = bands(axis)["80 % interval"].get_segments()[0][:, 1]
    assert sorted(bar) == sorted(forecast["a"].loc[:, ["0.1", "0.9"]].iloc[0])
