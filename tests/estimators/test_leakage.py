"""``check_leakage`` passes as things are, and finds every leak that is planted."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import CovariateEncoding, ForecastWindows, Panel, covariates
from mlrforecast.data import forecast_windows as windows_module
from mlrforecast.estimators import _training_data
from tests.estimators.frames import PREDICTION, TINY, long, wide
from tests.estimators.test_covariates import LONG, WIDE, long_frame, wide_frame

CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "wide": (wide, TINY),
    "long": (long, TINY),
    "array": (lambda: wide().to_numpy(), TINY),
    "series": (lambda: wide()["a"], TINY | {"loss": "mae"}),
    "robust": (wide, TINY | {"scaling": "robust"}),
    "mean_abs": (wide, TINY | {"scaling": "mean_abs"}),
    "wide, covariates": (wide_frame, WIDE),
    "long, covariates": (long_frame, LONG),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_leaks(name: str) -> None:
    make, parameters = CASES[name]
    report = MLRForecaster(**parameters).fit(make()).check_leakage(make(), cutoffs=2)
    assert list(report.columns) == ["check", "cutoff", "max_change", "passed"]
    expected = ["scaler", "forecast"] * 2 + ["training"]
    known = ["known covariate 'price'"] if "known_covariates" in parameters else []
    assert list(report["check"]) == expected + known
    assert report["passed"].all()
    assert (report["max_change"][: len(expected)] == 0).all()
    assert report["cutoff"][: len(expected)].notna().all()


def shift_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts that reach one row too far."""
    values = ForecastWindows._values

    def shifted(self: ForecastWindows, windows: slice, steps: np.ndarray) -> np.ndarray:
        return values(self, windows, steps + 1)

    monkeypatch.setattr(ForecastWindows, "_values", shifted)


def scale_by_the_whole_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler that knows all rows of the panel."""
    gather = ForecastWindows.gather

    def knowing(self: ForecastWindows, windows: slice) -> Any:
        given = gather(self, windows)
        return given._replace(loc=given.loc + 1e-9 * np.nanmean(self.panel.values))

    monkeypatch.setattr(ForecastWindows, "gather", knowing)


def shift_covariates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past covariates of the first step to be forecast."""
    exogenous = windows_module.Exogenous
    add_to = exogenous.add_to

    def shifted(self: Any, batch: Any, series: np.ndarray, cutoffs: np.ndarray) -> Any:
        later = add_to(self, batch, series, cutoffs + 1)
        return add_to(self, batch, series, cutoffs)._replace(past_covariates=later.past_covariates)

    monkeypatch.setattr(exogenous, "add_to", shifted)


def train_on_what_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that reach one row too far."""
    windows = _training_data._windows
    split = _training_data.split_validation
    panels: list[Panel] = []

    def remember(panel: Panel, **lengths: int) -> Any:
        panels.append(panel)
        return split(panel, **lengths)

    def greedy(panel: Panel, *rest: Any) -> Any:
        whole = panels[-1]
        last = np.minimum(panel.lengths + 1, whole.lengths)
        return windows(whole.crop(np.zeros_like(last), last), *rest)

    monkeypatch.setattr(_training_data, "split_validation", remember)
    monkeypatch.setattr(_training_data, "_windows", greedy)


def encode_by_what_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoding of covariates that is learnt from all rows."""
    panels: list[Panel] = []
    split = _training_data.split_validation
    fit = CovariateEncoding.fit

    def remember(panel: Panel, **lengths: int) -> Any:
        panels.append(panel)
        return split(panel, **lengths)

    monkeypatch.setattr(_training_data, "split_validation", remember)
    monkeypatch.setattr(
        covariates.CovariateEncoding,
        "fit",
        lambda panel, *, calendar: fit(panels[-1], calendar=calendar),
    )


LEAKS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    shift_contexts: {"scaler", "forecast"},
    scale_by_the_whole_series: {"scaler", "forecast"},
    shift_covariates: {"forecast"},
    train_on_what_is_held_back: {"training"},
    encode_by_what_is_held_back: {"training"},
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
@pytest.mark.parametrize("form", ["wide", "long"])
def test_a_planted_leak_is_found(
    monkeypatch: pytest.MonkeyPatch, form: str, leak: Callable[[pytest.MonkeyPatch], None]
) -> None:
    make, parameters = CASES[f"{form}, covariates"]
    fitted = MLRForecaster(**parameters).fit(make())
    leak(monkeypatch)
    report = fitted.check_leakage(make())
    assert set(report["check"][~report["passed"]]) == LEAKS[leak]
    assert (report["max_change"][~report["passed"]] > 0).all()


def test_a_known_covariate_that_is_the_target_is_found() -> None:
    frame = wide().assign(same=5.0 - 3.0 * wide()["b"], other=wide(seed=3)["b"])
    roles = {"target": ["a", "b"], "known_covariates": ["same", "other"]}
    report = MLRForecaster(**TINY, **roles).fit(frame).check_leakage(frame).set_index("check")
    assert not report["passed"]["known covariate 'same'"]
    assert report["max_change"]["known covariate 'same'"] == pytest.approx(1.0)
    assert report["passed"]["known covariate 'other'"]


def test_cutoffs_lie_inside_the_frame(on_wide: MLRForecaster) -> None:
    report = on_wide.check_leakage(wide(), cutoffs=5)
    stamps = report["cutoff"][report["check"] == "scaler"]
    assert list(stamps) == list(wide().index[[19, 39, 59, 79, 99]])
    every = on_wide.check_leakage(wide(3), cutoffs=10)
    assert list(every["cutoff"].unique()) == list(wide(3).index[:2])
    zoned = on_wide.check_leakage(wide().tz_localize("Europe/Paris"), cutoffs=1)
    assert str(zoned["cutoff"].dtype.tz) == "Europe/Paris"


@pytest.mark.parametrize(
    ("cutoffs", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError), ("3", TypeError)]
)
def test_wrong_cutoffs(on_wide: MLRForecaster, cutoffs: Any, error: type) -> None:
    with pytest.raises(error, match="`cutoffs` must be"):
        on_wide.check_leakage(wide(), cutoffs=cutoffs)


def test_one_row_has_nothing_after_it(on_wide: MLRForecaster) -> None:
    with pytest.raises(DataError, match="the frame has 1"):
        on_wide.check_leakage(wide(1))


def test_series_that_begin_after_a_cutoff_or_end_before_it(on_long: MLRForecaster) -> None:
    late = long(("late",), (30,)).assign(timestamp=lambda f: f["timestamp"] + pd.Timedelta("60h"))
    frame = pd.concat([long(rows=(80, PREDICTION, 9)), late])
    assert on_long.check_leakage(frame, cutoffs=4)["passed"].all()
