"""Plots of forecasts: what is on the axes; nothing is shown and nothing saved."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
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
    before = plt.get_fignums()
    axes = on_wide.plot()
    forecast = on_wide.predict()
    assert [axis.get_ylabel() for axis in axes] == ["a", "b"]
    for axis, name in zip(axes, "ab", strict=True):
        np.testing.assert_array_equal(line(axis, "forecast").get_ydata(), forecast[name])
        history = line(axis, "history").get_ydata()
        np.testing.assert_array_equal(history, wide()[name].tail(3 * PREDICTION))
        assert "80 % interval" in [band.get_label() for band in axis.collections]
    assert len(plt.get_fignums()) == len(before) + 1


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


@pytest.mark.parametrize("zone", [None, "Asia/Kolkata"])
@pytest.mark.parametrize("form", ["time column", "series", "polars", "array", "integers"])
def test_every_form(on_wide: MLRForecaster, form: str, zone: str | None) -> None:
    frame = wide().tz_localize(zone)
    given: dict[str, Any] = {
        "time column": frame.reset_index(),
        "series": frame["a"],
        "polars": pl.from_pandas(frame.reset_index()),
        "array": frame.to_numpy(),
        "integers": frame.set_index(np.arange(100, 100 + len(frame))),
    }
    fitted = copy.copy(on_wide)
    if form in ("array", "integers"):
        fitted = MLRForecaster(**TINY).fit(given[form])
    axes = fitted.plot(given[form])
    names = {"array": ["0", "1"], "series": ["a"]}.get(form, ["a", "b"])
    assert [axis.get_ylabel() for axis in axes] == names
    forecast = fitted.predict(given[form])
    if form in ("time column", "polars"):
        forecast = forecast[["a", "b"]]
    values = np.asarray(forecast).reshape(PREDICTION, -1)
    for number, axis in enumerate(axes):
        np.testing.assert_array_equal(line(axis, "forecast").get_ydata(), values[:, number])
        np.testing.assert_array_equal(
            line(axis, "history").get_ydata(), frame.iloc[-3 * PREDICTION :, number]
        )
    if form == "integers":
        assert line(axes[0], "forecast").get_xdata()[0] == 100 + len(frame)


def test_known_covariates_are_given_to_plot() -> None:
    frame = wide().assign(price=np.arange(120.0) % 5)
    fitted = MLRForecaster(**TINY, target="a", known_covariates=["price"])
    fitted.fit(frame[:-PREDICTION])
    (axis,) = fitted.plot(future=frame[-PREDICTION:])
    expected = fitted.predict(future=frame[-PREDICTION:])["a"]
    np.testing.assert_array_equal(line(axis, "forecast").get_ydata(), expected)
    with pytest.raises(ValueError, match=r"`future` is needed.*'price'"):
        fitted.plot()


def test_only_what_is_drawn_needs_a_future() -> None:
    frame = long().assign(price=1.0)
    fitted = MLRForecaster(**TINY, target="target", known_covariates=["price"]).fit(frame)
    last = long().groupby("item_id", sort=False)["timestamp"].max()
    steps = pd.timedelta_range("1h", periods=PREDICTION, freq="h")
    future = pd.DataFrame({"item_id": "z", "timestamp": last["z"] + steps, "price": 2.0})
    assert len(fitted.plot(future=future, max_items=1)) == 1
    with pytest.raises(ValueError, match="2 of 3 series: 'b', 'm'"):
        fitted.plot(future=future)


def test_no_items_at_all(on_wide: MLRForecaster) -> None:
    with pytest.raises(ValueError, match="`max_items` must be at least 1, got 0"):
        on_wide.plot(max_items=0)
