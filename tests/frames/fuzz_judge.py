"""What came of a case of the fuzz test, and whether that may be."""

import dis
import pickle
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from mlrforecast import MLRForecaster
from tests.frames.fuzz_cases import Case
from tests.frames.fuzz_oracle import problems_of


@dataclass
class Outcome:
    """What came of a case: a ``kind`` to be counted, and what is wrong, if anything is."""

    kind: str
    problems: list[str] = field(default_factory=list)


# A column, an argument, a series or a number.
NAMED = re.compile(r"[`'\"]|\d")


def outcome_of(case: Case) -> Outcome:
    """Fit and forecast, and look for what must not be."""
    given = {"frame": case.frame, "X": case.X, "future": case.future}
    before = {name: _snapshot(part) for name, part in given.items()}
    forecaster = MLRForecaster(**case.parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = _attempt(forecaster, case)
    outcome.problems += [f"warned: {warning.message}" for warning in caught]
    outcome.problems += [
        f"changed: {name}" for name, part in given.items() if _snapshot(part) != before[name]
    ]
    return outcome


def _attempt(forecaster: MLRForecaster, case: Case) -> Outcome:
    stage = "fit"
    try:
        forecaster.fit(case.frame)
        stage = "predict"
        forecast = forecaster.predict(
            case.X, future=case.future, quantile_levels=case.quantile_levels
        )
    except Exception as error:
        outcome = Outcome(f"{stage} refused", _unlike_ours(error))
        if stage == "fit" and hasattr(forecaster, "model_"):
            outcome.problems.append("fitted although it was refused")
        return outcome
    return Outcome("forecast", problems_of(forecast, forecaster, case))


def _unlike_ours(error: Exception) -> list[str]:
    """Say what makes an exception one that no user should see."""
    *_, trace = _traces(error)
    module = trace.tb_frame.f_globals["__name__"]
    if module == "sklearn.utils._param_validation":
        return []
    problems = []
    # An exception that comes out of an expression is no decision of ours.
    raised = trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    ours = module.startswith("mlrforecast.") and isinstance(error, ValueError | TypeError)
    if not (raised and ours):
        short = "".join(traceback.format_exception(error, limit=-8))
        problems.append(f"{type(error).__name__} from {module}: {short}")
    if not NAMED.search(str(error)) or len(str(error)) < 20:
        problems.append(f"a message that names nothing: {error}")
    return problems


def _traces(error: Exception) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _snapshot(part: Any) -> Any:
    """All that can be changed in what a caller passed, as something that can be compared."""
    if isinstance(part, pd.DataFrame | pd.Series):
        columns = part.items() if isinstance(part, pd.DataFrame) else [(part.name, part)]
        return (
            type(part),
            [(repr(name), str(column.dtype), _cells(column)) for name, column in columns],
            (repr(part.index.names), str(part.index.dtype), _cells(part.index)),
            getattr(part.index, "freqstr", None),
            repr(part.attrs),
            part.flags.allows_duplicate_labels,
        )
    if isinstance(part, np.ndarray):
        return part.dtype, part.shape, part.flags.writeable, pickle.dumps(part.tolist())
    return repr(part)


def _cells(values: Any) -> str:
    return repr(values.tolist())
