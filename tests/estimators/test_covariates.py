"""Covariates from the frame to the forecast: roles, kinds, unknown categories, future frames."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.estimators import _fitting as module
from tests.estimators.frames import PREDICTION, TINY, long, wide

ROLES = {"past_covariates": ["load", "wind"], "known_covariates": ["price", "open", "kind"]}
WIDE: dict[str, Any] = TINY | {"target": ["a", "b"]} | ROLES
LONG: dict[str, Any] = TINY | ROLES | {"static_covariates": ["size", "city"]}


def add_covariates(frame: pd.DataFrame) -> pd.DataFrame:
    """Put columns of every kind beside the targets."""
    rng = np.random.default_rng(1)
    count = len(frame)
    columns = {
        "load": rng.integers(0, 9, count),
        "wind": pd.Categorical(rng.choice(["N", "S", "calm"], count), ["S", "N", "calm"]),
        "price": rng.normal(30.0, 4.0, count),
        "open": rng.random(count) < 0.5,
        "kind": rng.choice(["x", "y", "z"], count),
    }
    return frame.assign(**columns)


def split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows to fit on and those to forecast."""
    if "item_id" not in frame:
        return frame[:-PREDICTION], frame[-PREDICTION:]
    last = frame.groupby("item_id").cumcount(ascending=False) < PREDICTION
    return frame[~last], frame[last]


def wide_frame() -> pd.DataFrame:
    return add_covariates(wide())


def long_frame() -> pd.DataFrame:
    frame = add_covariates(long())
    size = frame["item_id"].map({"z": 10, "b": 250, "m": 3})
    city = frame["item_id"].map({"z": "Rome", "b": "Oslo", "m": "Rome"})
    return frame.assign(size=size, city=city)


MAKERS: dict[str, tuple[Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "wide": (wide_frame, WIDE),
    "long": (long_frame, LONG),
}


@pytest.fixture(scope="module", params=MAKERS)
def case(request: pytest.FixtureRequest) -> tuple[MLRForecaster, pd.DataFrame, pd.DataFrame]:
    """A fitted forecaster, the frame of its fit and the one of the future."""
    make, parameters = MAKERS[request.param]
    history, future = split(make())
    return MLRForecaster(**parameters).fit(history), history, future


def numbers(forecast: pd.DataFrame) -> np.ndarray:
    return forecast.select_dtypes("number").to_numpy()


def test_the_forecast_holds_targets_only(case: Any) -> None:
    fitted, _, future = case
    forecast = fitted.predict(future=future)
    targets = ["item_id", "timestamp", "target"] if "item_id" in future else ["a", "b"]
    assert list(forecast.columns) == targets
    assert np.isfinite(numbers(forecast)).all()
    assert len(forecast) == len(future)


def test_columns_of_every_kind_are_encoded(case: Any) -> None:
    fitted, history, _ = case
    # A number stands for itself and relative to its context.
    assert fitted.config_.past_cardinalities == (0, 0, 3)
    assert fitted.config_.known_cardinalities == (0, 0, 2, 3)
    assert fitted.encoding_.past[1].categories == ("N", "S", "calm")
    assert fitted.encoding_.known[1].categories == ("False", "True")
    static = (0, 2) if "item_id" in history else ()
    assert fitted.config_.static_cardinalities == static


@pytest.mark.parametrize("name", ["load", "wind", "price", "open", "kind", "size", "city"])
def test_every_covariate_is_read(case: Any, name: str) -> None:
    fitted, history, future = case
    if name not in history:
        pytest.skip("static covariates are for long frames")
    changed = history.copy()
    values = history[name].astype(object).unique()
    swap = dict(zip(values, np.roll(values, 1), strict=True))
    changed[name] = history[name].astype(object).map(swap).infer_objects()
    before = numbers(fitted.predict(history, future=future))
    assert not np.allclose(numbers(fitted.predict(changed, future=future)), before, atol=1e-7)


@pytest.mark.parametrize("name", ["price", "open", "kind"])
def test_known_covariates_of_the_future_are_read(case: Any, name: str) -> None:
    fitted, _, future = case
    other = {"price": 99.0, "open": ~future["open"], "kind": "x"}
    changed = numbers(fitted.predict(future=future.assign(**{name: other[name]})))
    assert not np.allclose(changed, numbers(fitted.predict(future=future)), atol=1e-7)


def test_a_forecast_with_a_future_frame_is_that_of_a_rolling_window(case: Any) -> None:
    fitted, history, future = case
    forecast = numbers(fitted.predict(future=future))
    whole = pd.concat([history, future]).sort_index(kind="stable")
    rolled = fitted.backtest(whole, step=1000)
    found = rolled.forecast.reshape(forecast.shape)
    np.testing.assert_allclose(found, forecast, rtol=1e-6, atol=1e-6)
    assert np.isfinite(fitted.score(whole))


def test_rows_and_columns_of_the_future_may_be_more_and_in_any_order(case: Any) -> None:
    fitted, history, future = case
    expected = fitted.predict(future=future)
    whole = pd.concat([history.tail(40), future]).sample(frac=1, random_state=0)
    later = whole.assign(another="text")[["another", *whole.columns[::-1]]]
    assert_frame_equal(fitted.predict(future=later), expected)
    lean = future.drop(columns=[c for c in ("a", "b", "target", "load", "wind") if c in future])
    assert_frame_equal(fitted.predict(future=lean), expected)


def test_frames_are_left_alone(case: Any) -> None:
    fitted, history, future = case
    frames = history.sample(frac=1, random_state=0), future.sample(frac=1, random_state=0)
    copies = [frame.copy(deep=True) for frame in frames]
    fresh = MLRForecaster(**fitted.get_params()).fit(frames[0])
    fresh.predict(frames[0], future=frames[1])
    fresh.backtest(frames[0], step=1), fresh.check_leakage(frames[0])
    for frame, copy in zip(frames, copies, strict=True):
        assert_frame_equal(frame, copy)


class TestUnseenCategories:
    def test_in_the_future_they_count_as_one(self, case: Any) -> None:
        fitted, _, future = case
        seen = numbers(fitted.predict(future=future.assign(kind="x")))
        first, other = (
            numbers(fitted.predict(future=future.assign(kind=kind))) for kind in ("new", "newer")
        )
        np.testing.assert_array_equal(first, other)
        assert np.isfinite(first).all()
        assert not np.allclose(first, seen, atol=1e-7)

    def test_in_the_past_and_of_a_series(self, case: Any) -> None:
        fitted, history, future = case
        changed = history.assign(wind="storm")
        if "city" in history:
            changed = changed.assign(city="Lima")
        found = numbers(fitted.predict(changed, future=future))
        assert np.isfinite(found).all()
        assert not np.allclose(found, numbers(fitted.predict(history, future=future)), atol=1e-7)

    def test_codes_go_by_name_not_by_place(self, case: Any) -> None:
        fitted, history, future = case
        expected = fitted.predict(history, future=future)
        renamed = history.assign(
            wind=pd.Categorical(history["wind"].astype(str), ["unused", "calm", "N", "S"])
        )
        assert_frame_equal(fitted.predict(renamed, future=future), expected)


def test_missing_values_of_the_past_are_allowed(case: Any) -> None:
    fitted, history, future = case
    holes = history.astype({"load": float, "kind": object})
    holes.iloc[-9:-3, [holes.columns.get_loc(n) for n in ("load", "wind", "price")]] = np.nan
    holes.iloc[5:9, holes.columns.get_loc("kind")] = None
    assert np.isfinite(numbers(fitted.predict(holes, future=future))).all()
    again = MLRForecaster(**fitted.get_params()).fit(holes)
    assert again.encoding_.past[0].has_missing
    assert np.isfinite(numbers(again.predict(future=future))).all()


class TestIncompleteFutures:
    def refusal(self, case: Any, future: Any, *words: str) -> None:
        """Check that a future is refused with a message that says each word."""
        with pytest.raises(DataError) as caught:
            case[0].predict(future=future)
        for word in ("`future`", *words):
            assert word in str(caught.value)
        assert len(str(caught.value)) < 600

    def test_no_frame(self, case: Any) -> None:
        self.refusal(case, None, "'price', 'open', 'kind'")

    def test_a_column_is_absent(self, case: Any) -> None:
        self.refusal(case, case[2].drop(columns="price"), "'price'")

    def test_rows_are_absent(self, case: Any) -> None:
        future = case[2].iloc[2:]
        stamp = case[2].iloc[0]["timestamp"] if "timestamp" in case[2] else case[2].index[0]
        self.refusal(case, future, "lacks 2 of", str(stamp))

    def test_values_are_absent(self, case: Any) -> None:
        future = case[2].copy()
        future.iloc[1, future.columns.get_loc("price")] = np.nan
        self.refusal(case, future, "'price' at", "lacks 1 value")

    def test_a_series_is_absent(self, case: Any) -> None:
        if "item_id" not in case[2]:
            pytest.skip("a wide frame is one series")
        future = case[2][case[2]["item_id"] != "b"]
        self.refusal(case, future, f"lacks {PREDICTION} of", "series 'b'")

    def test_of_another_kind(self, case: Any) -> None:
        self.refusal(case, case[2].assign(price="cheap"), "'price'", "numbers", "categories")

    def test_one_that_nobody_asked_for(self, on_wide: MLRForecaster) -> None:
        with pytest.raises(DataError, match=r"`future` was given.*`known_covariates`"):
            on_wide.predict(future=wide_frame())


@pytest.mark.parametrize("call", ["predict", "backtest", "score"])
def test_the_frame_needs_the_covariates_too(case: Any, call: str) -> None:
    fitted, history, _ = case
    with pytest.raises(DataError, match=r"no column 'price', which `known_covariates` names"):
        getattr(fitted, call)(history.drop(columns="price"))
    with pytest.raises(DataError, match=r"'load' held numbers in `fit`.*categories now"):
        getattr(fitted, call)(history.assign(load="much"), **future_of(call, case))


def future_of(call: str, case: Any) -> dict[str, Any]:
    return {"future": case[2]} if call == "predict" else {}


def test_what_is_held_back_teaches_no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[Any] = []

    def record(model: Any, store: Any, options: Any, *, validation: Any, **_: Any) -> int:
        stores.append(store)
        return 1

    monkeypatch.setattr(module, "train", record)
    history, _ = split(wide_frame())
    fitted = MLRForecaster(**WIDE, early_stopping=True)
    encodings = [fitted.fit(history).encoding_]
    changed = history.copy()
    tail = changed.index[-11:]
    changed.loc[tail, ["a", "price", "load"]] = 10**6
    changed.loc[tail, "kind"] = "new"
    encodings.append(fitted.fit(changed).encoding_)
    assert encodings[0] == encodings[1]
    batches = [next(store.sample(64, 1, seed=0)) for store in stores]
    for one, other in zip(*batches, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


class TestCalendar:
    def test_by_default_cycles_that_were_seen_twice(self) -> None:
        cycles = {
            ("h", 40): (),
            ("h", 120): ("day",),
            ("h", 24 * 15): ("day", "week"),
            ("D", 60): ("week",),
            ("MS", 60): ("year",),
            ("YE", 30): (),
        }
        for (freq, rows), expected in cycles.items():
            assert MLRForecaster(**TINY).fit(wide(rows, freq=freq)).encoding_.cycles == expected
        fitted = MLRForecaster(**TINY, calendar=False).fit(wide())
        assert fitted.config_.num_calendar_features == 0

    def test_it_goes_by_the_local_clock(self) -> None:
        # The clock changes after the training, and the day follows the clock.
        index = pd.date_range("2024-01-01", "2024-04-20", freq="h", tz="Europe/Berlin")
        height = np.sin(2 * np.pi * index.hour / 24)
        noise = np.random.default_rng(0).normal(0.0, 0.3, len(index))
        local = pd.DataFrame({"y": height + noise}, index=index)
        options = TINY | {"context_length": 3, "learning_rate": 0.03, "max_steps": 200}
        errors = {}
        for zone in ("Europe/Berlin", "UTC"):
            frame = local.tz_convert(zone)
            fitted = MLRForecaster(**options | {"loss": "mse", "dropout": 0.0})
            fitted.fit(frame[:"2024-03-25"])
            rolled = fitted.backtest(frame["2024-04-01":], step=1)
            errors[zone] = np.mean((rolled.forecast - rolled.actual) ** 2)
        # An hour is worth 0.03 of the squared error; most of it is noise.
        assert errors["Europe/Berlin"] < errors["UTC"] - 0.01


def test_training_learns_from_known_covariates_of_many_series() -> None:
    """A promotion doubles the sales of all shops, which the history alone does not foretell."""
    rng = np.random.default_rng(0)
    parts = []
    for shop in range(20):
        promo = rng.random(60) < 0.3
        days = pd.date_range("2024-01-01", periods=60, freq="D")
        sold = (5.0 + shop) * (1.0 + promo)
        parts.append(pd.DataFrame({"shop": shop, "day": days, "sold": sold, "promo": promo}))
    frame = pd.concat(parts)
    roles = {"id_column": "shop", "target": "sold", "known_covariates": ["promo"]}
    options = TINY | {"max_steps": 100, "learning_rate": 0.1, "loss": "mse", "dropout": 0.0}
    fitted = MLRForecaster(**options, **roles).fit(frame[frame["day"] < "2024-02-20"])
    rolled = fitted.backtest(frame[frame["day"] >= "2024-01-26"], step=PREDICTION)
    error = np.abs(rolled.forecast - rolled.actual).mean() / rolled.actual.mean()
    assert error < 0.1
