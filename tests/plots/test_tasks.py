"""Errors by point, and how models scale, as pictures."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy import stats

from mlrforecast.plots import plot_error_by_point, plot_scaling
from mlrforecast.plots._tasks import COMPARATORS
from mlrforecast.tasks.in_context_regression import comparators

POINTS = range(6)


def errors(method, values, spread=0.1):
    values = np.asarray(values, dtype=float)
    table = {"point": POINTS, "error": values, "standard_error": spread * values}
    return pd.DataFrame({**table, "method": method})


MODEL = errors("MLR", [1.0, 0.8, 0.5, 0.2, 0.1, 0.05])
LEAST = errors("least_squares", [1.0, 0.7, 0.3, 1e-28, 1e-29, 0.0])
EXPLODES = errors("ridge", [1.0, 50.0, 1e6, 50.0, 2.0, 1.0])


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def lines(axis):
    return {line.get_label(): line for line in axis.get_lines()}


def test_comparators_are_known_by_their_names():
    assert tuple(comparators) == COMPARATORS


def test_models_are_solid_and_come_first_and_comparators_are_dashed():
    axis = plot_error_by_point(pd.concat([LEAST, EXPLODES, MODEL, errors("MLBTC", [0.9] * 6)]))
    assert legend(axis) == ["MLR", "MLBTC", "least squares", "ridge"]
    styles = [line.get_linestyle() for line in axis.get_lines()]
    assert styles == ["-", "-", "--", "--"]
    assert len({line.get_color() for line in axis.get_lines()}) == 4
    assert (axis.get_yscale(), axis.get_ylabel()) == ("log", "squared error")


def test_points_are_drawn_in_order_and_errors_of_0_are_left_out():
    axis = plot_error_by_point(pd.concat([MODEL[::-1], LEAST]))
    np.testing.assert_array_equal(lines(axis)["MLR"].get_xdata(), POINTS)
    np.testing.assert_array_equal(lines(axis)["MLR"].get_ydata(), MODEL["error"])
    assert np.isnan(lines(axis)["least squares"].get_ydata()[-1])


def test_models_set_the_scale_and_neither_rounding_nor_explosions():
    low, high = plot_error_by_point(pd.concat([MODEL, LEAST, EXPLODES])).get_ylim()
    assert low == pytest.approx(0.025)
    assert high == pytest.approx(10.0)
    alone = plot_error_by_point(pd.concat([LEAST, EXPLODES])).get_ylim()
    assert alone[0] > 1e-5
    assert alone[1] < 100
    assert plot_error_by_point(MODEL).get_ylim()[1] == pytest.approx(1.6)


def test_bands_are_intervals_on_the_scale_of_the_axis():
    (band,) = plot_error_by_point(MODEL).collections
    heights = band.get_paths()[0].vertices
    first = heights[heights[:, 0] == 0, 1]
    assert first.max() == pytest.approx(np.exp(0.196))
    assert first.min() == pytest.approx(np.exp(-0.196))
    assert not plot_error_by_point(MODEL.drop(columns="standard_error")).collections


def test_one_method_is_called_by_the_label_and_goes_to_the_given_axes():
    _, (left, _) = plt.subplots(1, 2)
    axis = plot_error_by_point(MODEL.drop(columns="method"), ax=left, label="8 heads")
    assert axis is left
    assert legend(axis) == ["8 heads"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (MODEL[:0], "`table` must not be empty"),
        (MODEL.drop(columns="error"), "`table` must have the columns point, error; error is mis"),
        (pd.concat([MODEL, MODEL]), "each point of a method once, got point 0 of 'MLR' twice"),
        (errors("MLR", [0.0] * 6), "`table` must hold an error above 0, got none"),
    ],
)
def test_errors_of_the_table_of_points(table, message):
    with pytest.raises(ValueError, match=message):
        plot_error_by_point(table)


RUNS = pd.DataFrame(
    [
        {"kind": kind, "width": width, "flops": flops * width**2, "loss": loss * factor}
        for kind, flops, loss in (("standard", 1e12, 1.0), ("MLR", 2e12, 0.9))
        for width, factors in ((768, (0.8,)), (256, (1.0, 1.1, 1.21)), (512, (0.9, 0.95)))
        for factor in factors
    ]
)


def test_lines_go_through_geometric_means_in_the_order_of_places():
    axis = plot_scaling(RUNS, "width", "loss", "kind")
    assert legend(axis) == ["standard", "MLR"]
    for line, loss in zip(axis.get_lines(), (1.0, 0.9), strict=True):
        assert list(line.get_xdata()) == [256, 512, 768]
        means = [1.1 * loss, np.sqrt(0.9 * 0.95) * loss, 0.8 * loss]
        np.testing.assert_allclose(line.get_ydata(), means)
    assert len({(line.get_color(), line.get_marker()) for line in axis.get_lines()}) == 2
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("width", "loss")


def bars(axis):
    """Ends of the bars of the first kind, by place."""
    segments = axis.collections[0].get_segments()
    return {int(segment[0, 0]): (segment[0, 1], segment[1, 1]) for segment in segments}


@pytest.mark.parametrize("interval", [0.5, 0.95])
def test_bars_are_intervals_of_student_and_one_run_has_none(interval):
    found = bars(plot_scaling(RUNS, "width", "loss", "kind", interval=interval))
    assert set(found) == {256, 512}
    for place, values in ((256, [1.0, 1.1, 1.21]), (512, [0.9, 0.95])):
        logs = np.log(values)
        expected = stats.t.interval(interval, len(values) - 1, logs.mean(), stats.sem(logs))
        np.testing.assert_allclose(found[place], np.exp(expected))


def test_seeds_are_rings_and_bars_can_be_left_out():
    axis = plot_scaling(RUNS, "width", "loss", "kind", interval=None)
    assert bars(axis) == {}
    rings = axis.collections[1].get_offsets()
    assert sorted(map(tuple, rings.tolist())) == [
        (256, 1.0),
        (256, 1.1),
        (256, 1.21),
        (512, 0.9),
        (512, 0.95),
    ]


def drawn_at(axis):
    """Pixels to the right at which the first marker of each line stands."""
    axis.figure.canvas.draw()
    return [line.get_transform().transform(line.get_xydata()[0])[0] for line in axis.get_lines()]


def test_kinds_of_the_same_places_stand_beside_each_other_and_others_do_not():
    first, second = drawn_at(plot_scaling(RUNS, "width", "loss", "kind"))
    assert 2 < second - first < 6
    axis = plot_scaling(RUNS, "flops", "loss", "kind")
    axis.figure.canvas.draw()
    exact = axis.transData.transform((RUNS["flops"].min(), 1))[0]
    assert drawn_at(axis)[0] == pytest.approx(exact)


def test_axes_have_numbers_that_can_be_read():
    axis = plot_scaling(RUNS, "width", "loss", "kind")
    axis.figure.canvas.draw()
    assert [label.get_text() for label in axis.get_xticklabels()] == ["256", "512", "768"]
    shown = [tick for tick in axis.get_yticks() if axis.get_ylim()[0] < tick < axis.get_ylim()[1]]
    assert len(shown) >= 3
    assert axis.get_xlim()[0] < 256
    assert axis.get_xlim()[1] > 768
    wide = RUNS.assign(loss=RUNS["loss"] * (RUNS["width"] / 256.0) ** -4)
    decades = plot_scaling(wide, "flops", "loss", "kind")
    assert decades.get_xlabel() == "FLOPs"
    assert 0.1 in decades.get_yticks()


def test_many_kinds_differ_and_one_run_is_a_marker():
    table = pd.DataFrame({"kind": range(12), "width": 64, "loss": np.linspace(1, 2, 12)})
    axis = plot_scaling(table, "width", "loss", "kind")
    assert len({(line.get_color(), line.get_marker()) for line in axis.get_lines()}) == 12
    axis.figure.canvas.draw()


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (RUNS[:0], {}, "`table` must not be empty"),
        (RUNS.drop(columns="loss"), {}, "the columns width, loss, kind; loss is missing"),
        (RUNS.assign(loss=0.0), {}, "must have finite numbers above 0 in 'loss', got 0.0"),
        (RUNS.assign(width=np.nan), {}, "must have finite numbers above 0 in 'width', got nan"),
        (RUNS.assign(loss="low"), {}, "must have finite numbers above 0 in 'loss', got 'low'"),
        (RUNS, {"interval": 95}, r"`interval` must be in \(0, 1\) or None, got 95"),
    ],
)
def test_errors_of_the_table_of_runs(table, options, message):
    with pytest.raises(ValueError, match=message):
        plot_scaling(table, "width", "loss", "kind", **options)


@pytest.mark.parametrize(
    "draw", [plot_error_by_point, lambda table: plot_scaling(table, "x", "y", "hue")]
)
def test_something_else_than_a_frame(draw):
    with pytest.raises(TypeError, match="`table` must be a DataFrame, got dict"):
        draw({})
