"""Frames with random faults: a finite forecast or an error of ours, and nothing else.

Few cases by default. For many: ``MLRFORECAST_FUZZ_CASES=2000 pytest tests/frames/test_fuzz.py``;
the last lines of the run count what came of them.
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, event, given, settings

from mlrforecast import MLRForecaster
from mlrforecast.data.panel import name_at
from mlrforecast.estimators._rules import check_quantile_levels
from tests.frames import fuzz_judge
from tests.frames.fuzz_cases import Case, cases
from tests.frames.fuzz_forms import Form
from tests.frames.fuzz_judge import outcome_of
from tests.frames.fuzz_tables import FAULTS, VALUES, clean_table
from tests.frames.tiny import TINY

NUM_CASES = int(os.environ.get("MLRFORECAST_FUZZ_CASES", "60"))


@settings(
    max_examples=NUM_CASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=cases())
def test_a_forecast_or_an_error_of_ours(case: Case, outcomes: Counter[str]) -> None:
    outcome = outcome_of(case)
    outcomes[outcome.kind] += 1
    event(outcome.kind)
    for note in case.notes:
        event(note)
    assert not outcome.problems, "\n".join(outcome.problems)


TABLES = {
    "stamps": [pd.date_range("2024-03-30", periods=12, freq="h", tz="Europe/Berlin")] * 2,
    "integers": [pd.RangeIndex(12).astype("int64")] * 2,
}


@pytest.mark.parametrize("time", TABLES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_fits_a_plain_table_and_changes_a_copy(fault: str, time: str) -> None:
    rng = np.random.default_rng(0)
    table = clean_table(rng, TABLES[time], "wave", extra=1)
    copy = table.copy(deep=True)
    faulty = FAULTS[fault](table, rng)
    pd.testing.assert_frame_equal(table, copy)
    if (fault, time) not in {("no zone", "integers")}:
        assert not faulty.equals(table)


@pytest.mark.parametrize("values", VALUES)
def test_every_kind_of_values_can_be_forecast_where_nothing_is_wrong(values: str) -> None:
    table = clean_table(np.random.default_rng(0), TABLES["integers"], values)
    frame = table.rename(columns={"item": "unique_id", "stamp": "ds", "target": "y"})
    case = Case(TINY, frame[["unique_id", "ds", "y"]])
    outcome = outcome_of(case)
    assert (outcome.kind, outcome.problems) == ("forecast", [])


def small(parameters: dict[str, object] | None = None) -> Case:
    index = pd.date_range("2024-01-01", periods=30, freq="h")
    frame = pd.DataFrame({"load": np.sin(np.arange(30.0))}, index=index)
    return Case(TINY | (parameters or {}), frame)


def test_the_judge_sees_what_must_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_of(small()).problems == []

    def spoilt(self: MLRForecaster, X: pd.DataFrame, y: None = None) -> MLRForecaster:
        X.iloc[0, 0] = 7.0
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
        raise ValueError("shape mismatch")

    monkeypatch.setattr(fuzz_judge.MLRForecaster, "fit", spoilt)
    found = "\n".join(outcome_of(small()).problems)
    for word in ("warned: deprecated", "changed: frame", "ValueError from tests", "names nothing"):
        assert word in found


@pytest.mark.parametrize(
    ("error", "allowed"),
    [
        (lambda: check_quantile_levels([2.0]), True),
        (lambda: name_at(None, 0), False),
        (lambda: pd.Timestamp("no stamp"), False),
    ],
    ids=["of ours", "an accident in our code", "of pandas"],
)
def test_the_judge_tells_a_decision_from_an_accident(
    error: Callable[[], object], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_judge.MLRForecaster, "fit", lambda *arguments: error())
    outcome = outcome_of(small())
    assert outcome.kind == "fit refused"
    assert (outcome.problems == []) == allowed


@pytest.mark.parametrize("wrong", ["nan", "stamps", "array"])
def test_the_judge_sees_a_wrong_forecast(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = small()
    case.table = pd.DataFrame({"item": 0, "stamp": case.frame.index, "target": case.frame["load"]})
    case.form = Form("wide")
    case.step = "h"
    forecast = MLRForecaster(**TINY).fit(case.frame).predict()
    assert outcome_of(case).problems == []
    spoilt = {
        "nan": forecast * np.nan,
        "stamps": forecast.set_axis(forecast.index + pd.Timedelta("1h"), axis=0),
        "array": forecast.to_numpy(),
    }[wrong]
    monkeypatch.setattr(fuzz_judge.MLRForecaster, "predict", lambda *args, **options: spoilt)
    assert outcome_of(case).problems
