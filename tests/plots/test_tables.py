"""Errors by step, attention by level, importance of covariates, and coverage as pictures."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from mlrforecast.plots import (
    plot_attention,
    plot_coverage,
    plot_error_by_step,
    plot_importance,
)

ERRORS = pd.DataFrame({"MLR": [1.0, 2.0, 3.0], "naive": [2.0, 2.5, 3.5]}, index=[1, 2, 3])
ATTENTION = pd.DataFrame(
    {
        "layer": [1, 1, 2, 2, 3],
        "level": [1, 2, 1, 2, 0],
        "block": [336, 84, 336, 84, 336],
        "share": [0.7, 0.3, 0.97, 0.03, 1.0],
        "even_share": [0.75, 0.25, 0.75, 0.25, 1.0],
        "distance": [200.0, 20.0, 100.0, np.nan, 110.0],
    }
)
IMPORTANCE = pd.DataFrame(
    {
        "covariate": ["noise", "price", ("a", 1)],
        "role": ["past", "known", "static"],
        "importance": [-0.01, 0.6, 0.2],
        "std": [0.01, 0.05, 0.0],
    }
)
COVERAGE = pd.DataFrame(
    {"before": [0.7, 0.4], "after": [0.8, 0.5], "width": [1.2, 1.3]}, index=[0.8, 0.5]
)
DRAWN = [
    (plot_error_by_step, ERRORS),
    (plot_attention, ATTENTION),
    (plot_importance, IMPORTANCE),
    (plot_coverage, COVERAGE),
]


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_errors_are_a_line_a_model():
    axis = plot_error_by_step(ERRORS, ylabel="MAE")
    for line, name in zip(axis.get_lines(), ERRORS, strict=True):
        assert list(line.get_xdata()) == [1, 2, 3]
        np.testing.assert_array_equal(line.get_ydata(), ERRORS[name])
    assert legend(axis) == ["MLR", "naive"]
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylabel() == "MAE"


def test_many_models_differ_and_many_steps_have_no_dots():
    errors = pd.DataFrame(np.ones((720, 12)), index=range(1, 721))
    lines = plot_error_by_step(errors).get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 12
    assert {line.get_marker() for line in lines} == {"None"}


def test_one_step_is_a_dot_above_a_whole_number():
    axis = plot_error_by_step(ERRORS.iloc[:1])
    assert axis.get_lines()[0].get_marker() == "o"
    assert list(axis.get_xticks()) == [0, 1, 2]


def widths(axis):
    """Widths of the parts of each bar, by the row that it stands in."""
    bars = [bar for bar in axis.patches if bar.get_width() > 0]
    rows = sorted({round(bar.get_y() + bar.get_height() / 2) for bar in bars})
    return [
        [bar.get_width() for bar in bars if round(bar.get_y() + bar.get_height() / 2) == row]
        for row in rows
    ]


def test_attention_is_a_bar_a_layer_and_one_for_even_weights():
    axis = plot_attention(ATTENTION)
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["layer 1", "layer 2", "layer 3", "if even"]
    np.testing.assert_allclose(np.concatenate(widths(axis)), [0.7, 0.3, 0.97, 0.03, 1, 0.75, 0.25])
    lefts = [bar.get_x() for bar in axis.patches if bar.get_width() > 0]
    np.testing.assert_allclose(lefts, [0, 0.7, 0, 0.97, 0, 0, 0.75])
    texts = [text.get_text() for text in axis.texts]
    assert "70%" in texts
    assert "3%" not in texts
    assert {"146", "97", "110"} <= set(texts)
    assert legend(axis) == ["no level", "level 1, 336 steps", "level 2, 84 steps"]


def test_attention_without_levels_or_of_two_block_sizes_has_no_even_bar():
    alone = plot_attention(ATTENTION[ATTENTION["level"] == 0])
    assert [label.get_text() for label in alone.get_yticklabels()] == ["layer 3"]
    mixed = ATTENTION.assign(even_share=[0.75, 0.25, 0.5, 0.5, 1.0], block=[336, 84, 336, 168, 336])
    axis = plot_attention(mixed)
    assert len(axis.get_yticklabels()) == 3
    assert "level 2" in legend(axis)


def test_importance_is_sorted_and_coloured_by_role():
    axis = plot_importance(IMPORTANCE)
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["price", "('a', 1)", "noise"]
    bars = [bar for bar in axis.patches if bar.get_width() != 0]
    assert [bar.get_width() for bar in bars] == [0.6, 0.2, -0.01]
    assert len({bar.get_facecolor() for bar in bars}) == 3
    assert legend(axis) == ["known", "static", "past"]


def test_many_covariates_are_cut_and_counted():
    table = pd.DataFrame(
        {"covariate": range(50), "role": "past", "importance": np.linspace(0, 1, 50), "std": 0.0}
    )
    axis = plot_importance(table)
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [str(number) for number in range(49, 29, -1)]
    assert axis.get_xlabel().endswith("and 30 more covariates, not drawn")
    with pytest.raises(ValueError, match="`max_rows` must be at least 1, got 0"):
        plot_importance(table, max_rows=0)


def test_coverage_stands_against_the_diagonal():
    axis = plot_coverage(COVERAGE)
    diagonal, before, after = axis.get_lines()
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata()) == [0, 1]
    assert (list(before.get_xdata()), list(before.get_ydata())) == ([0.5, 0.8], [0.4, 0.7])
    assert list(after.get_ydata()) == [0.5, 0.8]
    assert before.get_color() != after.get_color()
    assert before.get_marker() != after.get_marker()
    assert legend(axis) == ["before", "after", "exact"]


def test_coverage_that_is_not_known_is_left_out():
    axis = plot_coverage(COVERAGE.assign(before=np.nan))
    assert legend(axis) == ["after", "exact"]
    with pytest.raises(ValueError, match="`table` must hold a coverage"):
        plot_coverage(COVERAGE[["width"]])


@pytest.mark.parametrize("index", [[0.5, 1.2], ["50%", "80%"]])
def test_coverage_of_no_share_is_an_error(index):
    with pytest.raises(ValueError, match="`table` must be indexed by nominal coverages"):
        plot_coverage(COVERAGE.set_axis(index))


@pytest.mark.parametrize(("draw", "table"), DRAWN)
def test_nothing_is_drawn_of_an_empty_or_wrong_table(draw, table):
    name = "errors" if draw is plot_error_by_step else "table"
    with pytest.raises(ValueError, match=f"`{name}` must not be empty"):
        draw(table.iloc[:0])
    with pytest.raises(TypeError, match=f"`{name}` must be a DataFrame, got dict"):
        draw(table.to_dict())
    if draw in (plot_attention, plot_importance):
        with pytest.raises(ValueError, match="are missing"):
            draw(table.iloc[:, :2])


@pytest.mark.parametrize(("draw", "table"), DRAWN)
def test_a_given_axes_is_used_and_the_legend_is_above_it(draw, table):
    figure, ax = plt.subplots()
    assert draw(table, ax=ax) is ax
    figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    assert box.y0 >= ax.get_window_extent().y1
    with pytest.raises(TypeError, match="`ax` must be one axes, got ndarray"):
        draw(table, ax=np.array([ax]))
