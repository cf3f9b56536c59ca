"""Columns read as numbers or as categories, and the rules that their values keep."""

from collections.abc import Callable, Hashable

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from mlrforecast._core.errors import DataError
from mlrforecast.data._stamps import holds_time
from mlrforecast.data.panel import Covariate

# Differences, means and forecasts of larger values would not be finite.
_LARGEST = 1e300

# What a dictionary of pyarrow is to pandas.
_DICTIONARY = pd.CategoricalDtype.type

_ADVICE = "Convert it, e.g. with pd.to_numeric or .astype(float), or leave it out."


def is_number(column: pd.Series) -> bool:
    """Tell whether the dtype of a column is one of real numbers, nullable or not."""
    dtype = column.dtype
    return dtype.kind in "iuf" and not isinstance(dtype, pd.CategoricalDtype | pd.PeriodDtype)


def read_numbers(column: pd.Series, owner: str) -> np.ndarray:
    """Return the values as float64 with NaN for missing ones, without a copy where possible.

    Raises
    ------
    DataError
        If the column holds no real numbers, or real numbers as Python objects.
    """
    dtype = column.dtype
    if not is_number(column):
        raise DataError(
            f"{owner[0].upper()}{owner[1:]} must be numeric, got dtype {dtype} "
            f"(first value {_first(column)}). {_ADVICE}"
        )
    if isinstance(dtype, np.dtype):
        with np.errstate(over="ignore"):
            return column.to_numpy(dtype=np.float64)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def read_covariate(column: pd.Series, name: Hashable, argument: str) -> Covariate:
    """Read a column as numbers where its dtype is one of numbers, else as categories.

    Booleans, text, categories of any dtype and objects such as enumerations are categories, each
    known by its text.

    Raises
    ------
    DataError
        If the column holds time, complex numbers, lists and the like, or numbers as objects.
    """
    if is_number(column):
        return Covariate(name, read_numbers(column, f"column {name!r}"))
    dtype = column.dtype
    reason = _why_no_category(column)
    if reason is None:
        try:
            codes, found = pd.factorize(column)
        except TypeError:
            reason = "holds values that cannot be told apart by a hash, such as lists"
        else:
            return Covariate(name, *_by_text(codes, found))
    raise DataError(
        f"Column {name!r} of `{argument}` is named as a covariate but {reason} (dtype {dtype}, "
        f"first value {_first(column)}). A covariate holds numbers, booleans, text or categories."
    )


def _why_no_category(column: pd.Series) -> str | None:
    """Say why a column that is not numeric cannot be read as categories, or None."""
    dtype = column.dtype
    if holds_time(column):
        return "holds time stamps"
    if dtypes.is_object_dtype(dtype):
        held = dtypes.infer_dtype(column, skipna=True)
        if held in ("integer", "floating", "decimal", "complex", "mixed-integer-float"):
            return f"holds numbers as Python objects; {_ADVICE[0].lower()}{_ADVICE[1:-1]}"
        return f"holds {held}" if held.startswith(("timedelta", "interval", "bytes")) else None
    if dtypes.is_bool_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype | pd.StringDtype):
        return None
    # Of pyarrow: text and dictionaries.
    return None if dtype.type in (str, _DICTIONARY) else "holds neither"


def _text(value: Hashable) -> str:
    """Return a category as text, the same whether a whole number is an integer or a float."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value)  # type: ignore[call-overload]


def _by_text(codes: np.ndarray, found: pd.Index) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the codes of sorted text instead of codes of values."""
    texts, names = pd.factorize(
        np.array([_text(value) for value in found], dtype=object), sort=True
    )
    numbers = np.append(texts, -1).astype(np.int64)
    return numbers[codes], tuple(names)


def static_of(covariate: Covariate, bounds: np.ndarray, owner: Callable[[int], str]) -> Covariate:
    """Return the one value that each series has in its rows; missing ones do not count.

    Raises
    ------
    DataError
        If a series has two.
    """
    values = covariate.values
    if covariate.categories is not None:
        values = np.where(values < 0, np.nan, values.astype(np.float64))
    starts = bounds[:-1]
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    differing = np.flatnonzero(low < high)
    if len(differing):
        number = int(differing[0])
        own = values[bounds[number] : bounds[number + 1]]
        own = own[~np.isnan(own)]
        pair = (own[0], own[np.argmax(own != own[0])])
        shown = (
            [float(value) for value in pair]
            if covariate.categories is None
            else [covariate.categories[int(code)] for code in pair]
        )
        raise DataError(
            f"A static covariate has one value for each series, but column {covariate.name!r} is "
            f"{shown[0]!r} and {shown[1]!r} in {owner(number)} ({len(differing)} such series). "
            "Name it as a known or past covariate, or keep one value."
        )
    if covariate.categories is None:
        return Covariate(covariate.name, low)
    return Covariate(
        covariate.name, np.where(np.isnan(low), -1, low).astype(np.int64), covariate.categories
    )


def check_values(
    values: np.ndarray, stamps: pd.Index, bounds: np.ndarray, owner: Callable[[int], str]
) -> None:
    """Check that all values, which stand in runs with the ``bounds``, can be worked with.

    Raises
    ------
    DataError
        If a value is infinite, or beyond 1e300.
    """
    # One pass for the common case; a missing value is neither beyond nor within.
    beyond = np.abs(values) > _LARGEST
    if not beyond.any():
        return
    infinite = np.isinf(values)
    wrong = infinite if infinite.any() else beyond
    row = int(np.argmax(wrong))
    where = f"{owner(_run_of(row, bounds))} is {values[row]} at {stamps[row]}"
    rule, advice = (
        ("must be finite or missing", "Replace them by NaN.")
        if infinite.any()
        else (
            f"must lie within -{_LARGEST:g} and {_LARGEST:g}",
            "Replace them by NaN, or change the unit.",
        )
    )
    raise DataError(f"Values {rule}, but {where} ({np.count_nonzero(wrong)} in all). {advice}")


def check_observed(values: np.ndarray, bounds: np.ndarray, owner: Callable[[int], str]) -> None:
    """Check that each run of values, with the ``bounds``, holds one that is observed.

    Raises
    ------
    DataError
        If one does not.
    """
    empty = np.logical_and.reduceat(np.isnan(values), bounds[:-1])
    if empty.any():
        raise DataError(
            f"There is no observed value in {owner(int(np.argmax(empty)))}: "
            f"all its rows are missing ({np.count_nonzero(empty)} such in all)."
        )


def _run_of(row: int, bounds: np.ndarray) -> int:
    """Return the number of the run that holds a row."""
    return int(np.searchsorted(bounds, row, side="right")) - 1


def _first(column: pd.Series) -> str:
    """Show the first value of a column as Python writes it."""
    return repr(column.iloc[:1].tolist()[0])
