"""The forecast of a series does not depend on what is forecast beside it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast.estimators import _inference
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, wide

LEVELS = (0.1, 0.5, 0.9)
ROLES = {
    "past_covariates": ["load"],
    "known_covariates": ["price", "kind"],
    "static_covariates": ["city"],
}


def shops(count: int = 30) -> pd.DataFrame:
    """Series of all lengths and sizes, some with missing values, some constant."""
    rng = np.random.default_rng(0)
    parts = []
    for shop in range(count):
        rows = int(rng.integers(2, 3 * CONTEXT)) + PREDICTION
        size = 10.0 ** rng.integers(-3, 9)
        target = size * (rng.normal(size=rows) + rng.integers(-5, 50))
        if shop % 7 == 3:
            target[:] = size
        if shop % 5 == 1:
            target[rng.random(rows) < 0.3] = np.nan
            target[-PREDICTION - 1] = size
        parts.append(
            pd.DataFrame(
                {
                    "item_id": f"shop {shop}",
                    "timestamp": pd.date_range("2024-01-01", periods=rows, freq="h"),
                    "target": target,
                    "load": rng.normal(size=rows),
                    "price": rng.normal(50, 9, size=rows),
                    "kind": rng.choice(["x", "y"], rows),
                    "city": rng.choice(["Rome", "Oslo"]),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module", params=["standard", "robust", "mean_abs"])
def fitted(request: pytest.FixtureRequest) -> MLRForecaster:
    options = {"scaling": request.param, "learning_rate": 0.03}
    return MLRForecaster(**TINY | options, **ROLES).fit(history(shops()))


def history(frame: pd.DataFrame) -> pd.DataFrame:
    newest_first = frame.sort_values("timestamp", ascending=False)
    number = newest_first.groupby("item_id").cumcount()
    return frame[number.reindex(frame.index) >= PREDICTION]


def forecast(fitted: MLRForecaster, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the forecast of each shop, in units of the spread of its history."""
    found = fitted.predict(history(frame), future=frame, quantile_levels=LEVELS)
    context = history(frame).groupby("item_id")["target"]
    # What the scaler divides by, about: the accuracy of float32 goes with it.
    level = 1.0 if fitted.scaling == "mean_abs" else 1e-6
    size = context.agg(lambda values: max(values.std(ddof=0), level * values.abs().mean()))
    return {
        shop: part[["target", "0.1", "0.5", "0.9"]].to_numpy() / size[shop]
        for shop, part in found.groupby("item_id")
    }


def assert_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for shop, values in other.items():
        # What float32 leaves of a value, and not more.
        np.testing.assert_allclose(one[shop], values, rtol=3e-6, atol=3e-6)


def test_alone_and_among_others(fitted: MLRForecaster) -> None:
    frame = shops()
    together = forecast(fitted, frame)
    for number in range(0, 30, 3):
        shop = f"shop {number}"
        assert_equal(together, forecast(fitted, frame[frame["item_id"] == shop]))


def test_in_another_order(fitted: MLRForecaster) -> None:
    frame = shops()
    order = frame["item_id"].map({f"shop {n}": -n for n in range(30)})
    turned = frame.iloc[np.argsort(order, kind="stable")]
    assert list(fitted.predict(history(turned), future=frame)["item_id"].unique()) == [
        f"shop {n}" for n in range(29, -1, -1)
    ]
    assert_equal(forecast(fitted, frame), forecast(fitted, turned))
    assert_equal(forecast(fitted, frame), forecast(fitted, frame.sample(frac=1, random_state=0)))


@pytest.mark.parametrize("size", [1, 7])
def test_in_batches_of_any_size(
    fitted: MLRForecaster, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = forecast(fitted, shops())
    monkeypatch.setattr(_inference, "BATCH", size)
    assert_equal(expected, forecast(fitted, shops()))


def test_rows_before_the_context_pad_nothing(fitted: MLRForecaster) -> None:
    frame = shops()
    newest = frame.groupby("item_id").cumcount(ascending=False) < CONTEXT + PREDICTION
    short = forecast(fitted, frame[newest])
    found = fitted.predict(history(frame[newest]), future=frame, quantile_levels=LEVELS)
    expected = fitted.predict(history(frame), future=frame, quantile_levels=LEVELS)
    assert len(short) == 30
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6)


def test_columns_of_a_wide_frame_share_passes_of_a_bounded_size(
    on_wide: MLRForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    call = _inference.Predictor._call

    def record(self: Any, batch: Any, channels: slice, device: Any) -> Any:
        sizes.append(len(batch.past_target) * (channels.stop - channels.start))
        return call(self, batch, channels, device)

    frame = wide(60, [f"c{number}" for number in range(20)])
    frame.iloc[-5, 3] = np.nan
    expected = on_wide.predict(frame, quantile_levels=LEVELS)
    monkeypatch.setattr(_inference, "BATCH", 8)
    monkeypatch.setattr(_inference.Predictor, "_call", record)
    found = on_wide.predict(frame, quantile_levels=LEVELS)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5, atol=1e-5)
    assert sizes == [8, 8, 4]
