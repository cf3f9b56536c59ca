"""Work and memory grow with rows, not with series: counted, not timed."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast.data import CovariateEncoding, WindowStore, read_panel
from mlrforecast.estimators import _fitting as module
from tests.frames.tiny import CONTEXT, PREDICTION, TINY

# Chunks of windows that a forecast takes at once may be more for more series; nothing else is.
FEW, MANY = 40, 2000


def panel_frame(series: int, rows: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    stamps = pd.date_range("2024-01-01", periods=rows, freq="D")
    return pd.DataFrame(
        {
            "item_id": np.repeat([f"item {number}" for number in range(series)], rows),
            "timestamp": np.tile(stamps, series),
            "target": rng.normal(size=series * rows),
            "promo": rng.integers(0, 2, series * rows),
            "kind": np.repeat(rng.choice(["a", "b"], series), rows),
        }
    )


def long_frame(rows: int) -> pd.DataFrame:
    index = pd.date_range("2000-01-01", periods=rows, freq="min", tz="Europe/Berlin")
    return pd.DataFrame({"load": np.random.default_rng(0).normal(size=rows)}, index=index)


def future_of(frame: pd.DataFrame) -> pd.DataFrame:
    last = frame["timestamp"] > frame["timestamp"].max() - pd.Timedelta(days=PREDICTION)
    future = frame[last].drop(columns="target")
    return future.assign(timestamp=future["timestamp"] + pd.Timedelta(days=PREDICTION))


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the calls of Python functions."""
    calls = {"number": 0}

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls["number"] += 1

    gc.collect()
    gc.disable()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        gc.enable()


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of calls that a piece of work makes once all is imported and cached."""
    work()
    with counted() as calls:
        work()
    return calls["number"]


COVARIATES = {"known_covariates": ["promo"], "static_covariates": ["kind"]}


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop after the windows are there: the rest does not know how many series there are."""
    monkeypatch.setattr(module, "train", lambda model, store, *args, **options: len(store))
    # It reads windows in batches: calls grow with those, up to a fixed number of windows.
    monkeypatch.setattr(module, "solve_linear", lambda model, store, season_length, device: None)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_up_to_training_no_call_is_made_for_each_series(early_stopping: bool, order: str) -> None:
    def work(series: int) -> Callable[[], object]:
        frame = panel_frame(series)
        if order == "shuffled":
            frame = frame.sample(frac=1, random_state=0)
        built = MLRForecaster(**TINY | COVARIATES, early_stopping=early_stopping)
        return lambda: built.fit(frame)

    assert calls_of(work(MANY)) < calls_of(work(FEW)) + FEW


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("said", [{"fill": "missing"}, {"resample": "mean", "freq": "2D"}])
def test_filling_and_resampling_make_no_call_for_each_series(said: dict[str, str]) -> None:
    def work(series: int) -> Callable[[], object]:
        frame = panel_frame(series)
        frame = frame[frame.index % 20 != 7]
        built = MLRForecaster(**TINY | COVARIATES | said)
        return lambda: built.fit(frame)

    assert calls_of(work(MANY)) < calls_of(work(FEW)) + FEW


def test_a_forecast_makes_no_call_for_each_series() -> None:
    """Beyond those of the chunks that it is made in."""
    few = panel_frame(FEW)
    fitted = MLRForecaster(**TINY | COVARIATES).fit(few)

    def work(series: int) -> Callable[[], object]:
        frame = panel_frame(series)
        future = future_of(frame)
        return lambda: fitted.predict(frame, future=future, quantile_levels=[0.1, 0.9])

    # What a batch of windows calls is about one call a series; one more for each would double it.
    assert calls_of(work(MANY)) < calls_of(work(FEW)) + 1.5 * MANY


@pytest.mark.usefixtures("no_training")
def test_up_to_training_no_call_is_made_for_each_row() -> None:
    def work(rows: int) -> Callable[[], object]:
        frame = long_frame(rows)
        built = MLRForecaster(**TINY)
        return lambda: built.fit(frame)

    # Windows that the dependence of errors is learnt from are fewer where there are fewer rows.
    assert calls_of(work(50_000)) < calls_of(work(500)) + 5000


@pytest.mark.parametrize("frame", [panel_frame(5000), long_frame(100_000)], ids=["panel", "long"])
def test_reading_takes_a_few_times_the_memory_of_the_frame(frame: pd.DataFrame) -> None:
    schema = module._parameters.to_schema(
        MLRForecaster(**TINY | (COVARIATES if "promo" in frame else {})).get_params()
    )
    read_panel(frame, schema)
    tracemalloc.start()
    try:
        panel = read_panel(frame, schema)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(panel.values) == len(frame)
    assert peak < 160 * len(frame), "more than twenty float64 columns"


def test_windows_share_their_rows() -> None:
    panel = read_panel(long_frame(10_000))
    encoding = CovariateEncoding.fit(panel, calendar=True)
    lengths = {"context_length": CONTEXT, "prediction_length": PREDICTION, "min_context": CONTEXT}
    store = WindowStore(panel, encoding, **lengths)
    assert len(store) == 10_000 - CONTEXT - PREDICTION + 1
    assert store.buffer.numel() == 10_000
    assert store.buffer.element_size() == 4


def test_the_committed_measurement_keeps_the_promise() -> None:
    """Under 4 GB, and training starts within 10 seconds; see benchmarks/frames_scale.py."""
    rows = pd.read_csv(Path(__file__).parents[2] / "benchmarks/results/frames/scale.csv")
    assert not rows.isna().to_numpy().any()
    assert {(100_000, 5_000_000), (1, 10_000_000)} <= set(
        zip(rows["series"], rows["rows"], strict=True)
    )
    assert rows["seconds_to_first_step"].max() < 10
    assert rows["peak_mb"].max() < 4000
    assert rows["command"].str.startswith("python benchmarks/frames_scale.py ").all()
