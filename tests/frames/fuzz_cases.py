"""Cases of the fuzz test: what is fitted, and what is forecast from."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from tests.frames import fuzz_forms as forms
from tests.frames.fuzz_forms import Form, as_frame, describe
from tests.frames.fuzz_tables import (
    COVARIATE_FAULTS,
    COVARIATES,
    FAULTS,
    VALUES,
    clean_table,
    with_faults,
)
from tests.frames.tiny import PREDICTION, TINY

ZONES = (None, None, None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
STARTS = ("2024-01-01", "2024-03-30 22:00", "2024-10-26 22:00", "2024-11-02 20:00", "1900-03-01")
STEPS = ("h", "15min", "D", "B", "W-WED", "MS", "ME", "QS-FEB", "YE", "2h", "90s", "30min", 1, 7)


@dataclass
class Case:
    """Arguments of one fit and one forecast.

    ``table`` is what ``frame`` says, and ``step`` the frequency that it was made with, where no
    fault makes that doubtful; ``X`` of None stands for a forecast from what was fitted.
    """

    parameters: dict[str, Any]
    frame: Any
    X: Any = None
    future: Any = None
    quantile_levels: tuple[float, ...] | None = None
    form: Form | None = None
    table: pd.DataFrame | None = None
    step: str | int | None = None
    notes: list[str] = field(default_factory=list)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show what hypothesis found wrong."""
        heads = "\n".join(repr(part)[:1500] for part in (self.frame, self.X, self.future))
        printer.text(f"Case({self.notes}, {self.parameters}, {self.form})\n{heads}")


# True in one of sixteen cases, or of four.
_seldom = st.sampled_from([*[False] * 15, True])
_at_times = st.sampled_from([*[False] * 3, True])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Frames with random faults; a few are no frames at all."""
    if draw(_seldom):
        kind = draw(st.sampled_from(sorted(forms.NO_FRAMES)))
        X = draw(st.sampled_from([None, *sorted(forms.NO_FRAMES)]))
        return Case(
            TINY,
            forms.NO_FRAMES[kind](),
            None if X is None else forms.NO_FRAMES[X](),
            notes=["no frame", kind, f"X: {X}"],
        )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    form, roles = draw(_forms())
    step = draw(st.sampled_from(STEPS))
    if form.time not in ("stamps", "seconds", "nanoseconds") and isinstance(step, int):
        form.time = "stamps"
    # A column of integers is time if somebody says so.
    form.named = form.named or (form.shape == "wide column" and isinstance(step, int))
    most = 1 if not form.is_long else 2 if form.ids == "booleans" else 4
    stamps = _stamps(draw, step, draw(st.integers(1, most)))
    values = draw(st.sampled_from(sorted(VALUES)))
    whole = clean_table(rng, stamps, values, form.extra)
    last = whole.groupby("item").cumcount(ascending=False) < PREDICTION
    number = draw(st.sampled_from([0, 0, 0, 1, 1, 2, 3]))
    names = st.sampled_from(_faults(form))
    faults = draw(st.lists(names, min_size=number, max_size=number, unique=True))
    table, applied = with_faults(whole[~last].reset_index(drop=True), faults, rng)
    case = Case(
        TINY | describe(form, roles) | draw(_parameters(step)),
        _made(table, form),
        quantile_levels=draw(st.sampled_from([None, None, (0.1, 0.5), (0.9,)])),
        form=form,
        table=table,
        step=step,
        notes=[f"{form.shape} of {form.library}", f"step {step}", f"values {values}", *applied],
    )
    case.X = _context(draw, case, table, rng)
    if not draw(_seldom) if "known" in roles.values() else draw(_seldom):
        case.future = _future(draw, case, whole[last].reset_index(drop=True), form, rng)
    return case


def _faults(form: Form) -> list[str]:
    """Faults that this form can show, plain ones first: hypothesis shrinks towards them."""
    return [
        name for name in FAULTS if form.covariates or name not in COVARIATE_FAULTS or name == "gap"
    ]


_roles = st.sampled_from(["known", "past"])


@st.composite
def _forms(draw: st.DrawFn) -> tuple[Form, dict[str, str]]:
    shapes = ["long", "long", "long index", "wide", "wide", "wide column", "series", "array"]
    shape = draw(st.sampled_from(shapes))
    form = Form(shape)
    if form.is_long:
        form.ids = draw(st.sampled_from(sorted(forms.IDS)))
        form.categorical = draw(st.booleans()) and form.ids != "lists"
        form.names = draw(st.sampled_from(["ours", *forms.LONG_NAMES]))
        form.undeclared = draw(_seldom)
    else:
        form.names = draw(st.sampled_from(["plain", *forms.WIDE_NAMES]))
        form.extra = draw(st.integers(0, 1)) if shape != "series" else 0
    roles: dict[str, str] = {}
    if shape not in ("series", "array"):
        form.covariates = tuple(draw(st.lists(st.sampled_from(COVARIATES), unique=True)))
        for name in form.covariates:
            roles[name] = "static" if name == "shop" and form.is_long else draw(_roles)
            if draw(_seldom):
                roles[name] = draw(st.sampled_from(["static", "known", "past"]))
        if form.shape in ("long", "wide column"):
            form.library = draw(st.sampled_from(["pandas", "pandas", "polars", "pyarrow"]))
            form.library = "polars, lazy" if draw(_seldom) else form.library
    if form.library != "pandas" and form.names in ("numbers", "tuples", "odd", "stamps"):
        # Other libraries name columns by text.
        form.names = "own" if form.is_long else "plain"
    form.named = draw(st.booleans())
    if draw(_at_times):
        form.time = draw(st.sampled_from(sorted(forms.TIMES)))
    if draw(_at_times):
        form.oddity = draw(st.sampled_from(sorted(forms.ODDITIES)))
    return form, roles


def _stamps(draw: st.DrawFn, step: str | int, count: int) -> list[pd.Index]:
    """Time of each series, with the steps that are to be forecast."""
    start, zone = draw(st.sampled_from(STARTS)), draw(st.sampled_from(ZONES))
    most = draw(st.sampled_from([30, 40, 12]))
    found: list[pd.Index] = []
    for number in range(count):
        # One series shows the frequency in most cases.
        some = [most, most, 20, 9, 2, 1] if number or draw(_seldom) else [most]
        rows = PREDICTION + draw(st.sampled_from(some))
        if isinstance(step, int):
            found.append(pd.RangeIndex(5, 5 + step * rows, step).astype("int64"))
        else:
            found.append(pd.date_range(start, periods=rows, freq=step, tz=zone).as_unit("us"))
    return found


@st.composite
def _parameters(draw: st.DrawFn, step: str | int) -> dict[str, Any]:
    """Parameters that say how a frame is read; most are left as they are."""
    parameters: dict[str, Any] = {}
    for name, values in {
        "fill": ["missing", "zero"],
        "scaling": ["robust", "mean_abs"],
        "calendar": [False],
    }.items():
        if draw(_at_times):
            parameters[name] = draw(st.sampled_from(values))
    for name, values in {
        "freq": [step, step, "h", "D", 1, "30T", "nonsense"],
        "resample": ["mean", "sum", "last", "median"],
        "early_stopping": [True],
    }.items():
        if draw(_seldom):
            parameters[name] = draw(st.sampled_from(values))
    if draw(_seldom) and draw(_at_times):
        parameters["known_covariates"] = [draw(st.sampled_from(["absent", "target", "item_id"]))]
    return parameters


def _made(table: pd.DataFrame, form: Form) -> Any:
    """Return a table in its form, or in a plainer one where pandas itself cannot build that."""
    for attempt in (form, Form(**vars(form) | {"library": "pandas", "oddity": "none"})):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return as_frame(table, attempt)
        except (ValueError, TypeError, AttributeError, OverflowError, KeyError, IndexError):
            continue
        except Exception as error:
            if type(error).__module__.split(".")[0] not in ("pandas", "polars", "pyarrow"):
                raise
    plain = Form(**vars(form) | {"library": "pandas", "oddity": "none", "time": "stamps"})
    vars(form).update(vars(plain) | {"ids": "letters", "categorical": False})
    return as_frame(table, form)


def _context(draw: st.DrawFn, case: Case, table: pd.DataFrame, rng: np.random.Generator) -> Any:
    """Return what is given as ``X`` of the forecast."""
    assert case.form is not None
    kinds = ["fitted", "fitted", "same", "same", "tail", "faulty", "other form"]
    kind = "no frame" if draw(_seldom) else draw(st.sampled_from(kinds))
    case.notes.append(f"X: {kind}")
    if kind == "fitted":
        return None
    if kind == "same":
        return case.frame
    if kind == "no frame":
        return forms.NO_FRAMES[draw(st.sampled_from(sorted(forms.NO_FRAMES)))]()
    if kind == "tail":
        return _made(table.groupby("item").tail(draw(st.integers(1, 9))), case.form)
    if kind == "faulty":
        faults = draw(st.lists(st.sampled_from(_faults(case.form)), min_size=1, max_size=2))
        return _made(with_faults(table, faults, rng)[0], case.form)
    other, _ = draw(_forms())
    return _made(_with_more(table, other), other)


def _with_more(table: pd.DataFrame, form: Form) -> pd.DataFrame:
    return table.assign(
        **{
            f"more{number}": table["target"]
            for number in range(form.extra)
            if f"more{number}" not in table
        }
    )


FUTURE_FAULTS = {
    "rows absent": lambda frame: frame.iloc[::2],
    "first row absent": lambda frame: frame.iloc[1:],
    "one series": lambda frame: frame.iloc[:PREDICTION],
    "backwards": lambda frame: frame.iloc[::-1],
    "column absent": lambda frame: frame.iloc[:, :-1],
    "one more column": lambda frame: frame.assign(another=1.0),
    "no rows": lambda frame: frame.iloc[:0],
    "twice": lambda frame: pd.concat([frame, frame]),
    "no frame": lambda frame: {"temp": [1.0]},
    "array": lambda frame: frame.to_numpy(),
}


def _future(
    draw: st.DrawFn, case: Case, table: pd.DataFrame, form: Form, rng: np.random.Generator
) -> Any:
    """Return the frame of the steps to be forecast, right or with a fault."""
    if draw(_at_times):
        faults = draw(st.lists(st.sampled_from(sorted(COVARIATE_FAULTS)), max_size=1))
        table, applied = with_faults(table, faults, rng)
        case.notes += [f"future: {name}" for name in applied]
    plain = Form(**vars(form) | {"oddity": "none", "shape": form.shape})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame = as_frame(table, plain, with_target=draw(st.booleans()))
        except Exception:
            return None
    kind = draw(st.sampled_from(sorted(FUTURE_FAULTS))) if draw(_at_times) else None
    if kind is not None and isinstance(frame, pd.DataFrame):
        case.notes.append(f"future: {kind}")
        frame = FUTURE_FAULTS[kind](frame)
    return frame
