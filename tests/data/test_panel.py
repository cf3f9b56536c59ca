"""The panel itself: names of its series, and the parts that are taken of it."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast.data import Covariate, FrameSchema, Layout, Panel, read_panel
from tests.data.frames import long, wide


def a_panel(*lengths: int) -> Panel:
    """Make series ``a``, ``b``, ... whose values and covariates tell series and row."""
    count = len(lengths)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.concatenate([np.arange(length) for length in lengths])
    value = rows + 100.0 * np.repeat(np.arange(count), lengths)
    return Panel(
        layout=Layout(form="long", id_name="i", time_name="t", target_name="y", indexed=False),
        freq=1,
        labels=pd.Index(list("abcdefgh")[:count]),
        index=pd.Index(rows),
        values=value[:, None],
        bounds=bounds,
        past=(Covariate("p", value + 0.5),),
        known=(Covariate("k", rows % 2, ("even", "odd")),),
        static=(Covariate("s", np.arange(count) * 10.0),),
    )


def test_series_are_views_with_their_rows() -> None:
    panel = a_panel(3, 1, 4)
    assert len(panel) == 3
    assert panel.num_channels == 1
    np.testing.assert_array_equal(panel.lengths, [3, 1, 4])
    for number, series in enumerate(panel):
        count = [3, 1, 4][number]
        np.testing.assert_array_equal(series.values[:, 0], 100 * number + np.arange(count))
        assert list(series.index) == list(range(count))
        assert np.shares_memory(series.values, panel.values)


def test_a_crop_keeps_the_rows_asked_for_and_their_covariates() -> None:
    panel = a_panel(3, 1, 4, 2)
    part = panel.crop(np.array([1, 1, 0, 0]), np.array([3, 1, 3, 2]))
    np.testing.assert_array_equal(part.lengths, [2, 0, 3, 2])
    np.testing.assert_array_equal(part.values[:, 0], [1, 2, 200, 201, 202, 300, 301])
    np.testing.assert_array_equal(part.past[0].values, part.values[:, 0] + 0.5)
    np.testing.assert_array_equal(part.known[0].values, np.array(part.index) % 2)
    assert part.known[0].categories == ("even", "odd")
    np.testing.assert_array_equal(part.static[0].values, panel.static[0].values)
    assert not np.shares_memory(part.values, panel.values)
    assert [part.owner(number) for number in range(4)] == [f"series '{s}'" for s in "abcd"]


def test_tail_keeps_the_newest_rows() -> None:
    part = a_panel(9, 3).tail(4)
    np.testing.assert_array_equal(part.lengths, [4, 3])
    np.testing.assert_array_equal(part.values[:, 0], [5, 6, 7, 8, 100, 101, 102])
    np.testing.assert_array_equal(part.index, [5, 6, 7, 8, 0, 1, 2])
    np.testing.assert_array_equal(part.past[0].values, part.values[:, 0] + 0.5)
    panel = read_panel(pd.concat([long("a", rows=9), long("b", rows=3)])).tail(4)
    assert str(panel.series(0).index[0].date()) == "2024-01-06"


def test_select_takes_series_in_the_order_given() -> None:
    part = a_panel(3, 1, 2).select(np.array([2, 0]))
    assert list(part.labels) == ["c", "a"]
    np.testing.assert_array_equal(part.values[:, 0], [200, 201, 0, 1, 2])
    np.testing.assert_array_equal(part.past[0].values, part.values[:, 0] + 0.5)
    np.testing.assert_array_equal(part.static[0].values, [20, 0])
    np.testing.assert_array_equal(part.bounds, [0, 2, 5])


@pytest.mark.parametrize(
    ("frame", "owner", "label"),
    [
        (wide(a=np.ones(6), b=np.ones(6)), "the frame", "column 'b'"),
        (np.ones((4, 2)), "the array", "column 1"),
        (long(3, 7), "series 3", "series 3"),
    ],
)
def test_names_are_written_as_the_owner_would(frame: object, owner: str, label: str) -> None:
    panel = read_panel(frame)
    assert panel.owner(0) == owner
    assert panel.label(0, 1 if panel.num_channels > 1 else 0) == label


def test_the_name_of_a_series_is_its_label() -> None:
    panel = read_panel(wide()["load"])
    assert panel.owner(0) == panel.label(0, 0) == "the series"


def test_a_column_with_a_name_of_two_parts_is_one_target() -> None:
    frame = wide(a=np.ones(6), b=np.zeros(6)).set_axis([("a", 1), ("b", 1)], axis=1)
    panel = read_panel(frame, FrameSchema(target=("a", 1)))
    assert panel.label(0, 0) == "column ('a', 1)"
    assert (panel.values == 1).all()
    both = read_panel(frame, FrameSchema(target=(("b", 1), ("a", 1))))
    assert both.label(0, 0) == "column ('b', 1)"
    np.testing.assert_array_equal(both.values[0], [0, 1])
