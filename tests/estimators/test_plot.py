"""Plots of forecasts: what is on the axes; nothing is shown and nothing saved."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from mlrforecast import MLRForecaster
from tests.estimators.frames import PREDICTION, TINY, long, wide


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forbidden(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a figure was shown or saved")

    monkeypatch.setattr(plt, "show", forbidden)
    monkeypatch.setattr(plt.Figure, "savefig", forbidden)
    yield
    plt.close("all")


def line(axis: Any, label: str) -> Any:
    return next(line for line in axis.get_lines() if line.get_label() == label)


def test_history_and_forecast_of_every_column(on_wide: MLRForecaster) -> None:
    axes = on_wide.plot()
    forecast = on_wide.predict()
    assert [axis.get_ylabel() for axis in axes] == ["a", "b"]
    for axis, name in zip(axes, "ab", strict=True):
        np.testing.assert_array_equal(line(axis, "forecast").get_ydata(), forecast[name])
        history = line(axis, "history").get_ydata()
        np.testing.assert_array_equal(history, wide()[name].tail(3 * PREDICTION))
        assert "80 % interval" in [band.get_label() for band in axis.collections]
    assert len(plt.get_fignums()) == 1


def test_each_series_of_a_long_frame(on_long: MLRForecaster) -> None:
    axes = on_long.plot(long(), quantile_levels=(0.25, 0.75))
    forecast = on_long.predict()
    assert [axis.get_ylabel() for axis in axes] == ["z", "b", "m"]
    for axis, item in zip(axes, "zbm", strict=True):
        expected = forecast.loc[forecast["item_id"] == item, "target"]
        drawn = line(axis, "forecast").get_ydata()
        np.testing.assert_array_equal(drawn[~np.isnan(drawn)], expected)
        past = line(axis, "history").get_ydata()
        rows = long().query("item_id == @item")["target"].tail(3 * PREDICTION)
        np.testing.assert_array_equal(past[~np.isnan(past)], rows)
        assert [band.get_label() for band in axis.collections] == ["50 % interval"]


@pytest.mark.parametrize("form", ["wide", "long"])
def test_many_are_cut_and_counted(on_wide: MLRForecaster, form: str) -> None:
    names = [f"s{number}" for number in range(7)]
    frame = wide(60, names) if form == "wide" else long(names, [60] * 7)
    axes = on_wide.plot(frame, max_items=3)
    assert [axis.get_ylabel() for axis in axes] == names[:3]
    assert axes[-1].get_xlabel() == "and 4 more, not drawn"
    assert on_wide.plot(frame, max_items=7)[-1].get_xlabel() == ""


def test_a_point_loss_has_no_fan() -> None:
    (axis,) = MLRForecaster(**TINY, loss="mae").fit(wide(columns=("a",))).plot()
    assert not axis.collections


def test_names_of_every_kind(on_wide: MLRForecaster) -> None:
    frame = wide(columns=(0, 1))
    assert [axis.get_ylabel() for axis in on_wide.plot(frame)] == ["0", "1"]
    frame.columns = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)])
    assert [axis.get_ylabel() for axis in on_wide.plot(frame)] == ["x, 1", "y, 2"]
    items = long().astype({"item_id": "category"})
    assert [axis.get_ylabel() for axis in on_wide.plot(items)] == ["z", "b", "m"]


def test_no_items_at_all(on_wide: MLRForecaster) -> None:
    with pytest.raises(ValueError, match="`max_items` must be at least 1, got 0"):
        on_wide.plot(max_items=0)
