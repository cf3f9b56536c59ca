"""Covariates as the numbers that a network reads, by rules that are learnt from training rows."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data._covariate_columns import Columns, batch_columns
from mlrforecast.data._storage import MEMORY, Storage, blocks
from mlrforecast.data.calendar import CYCLES, FEATURES_PER_CYCLE, calendar_cycles
from mlrforecast.data.frequency import clock_seconds
from mlrforecast.data.panel import Covariate, Panel
from mlrforecast.data.scaling import summarise

_LARGEST = 1e100
"""Standardised numbers beyond this are cut off there, so that their squares are finite."""

_FAR_APART = 100
"""Rows of different series that are read at once from a file."""

# A deviation below this share of the mean is what rounding leaves of a constant.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class ColumnEncoding:
    """How one covariate becomes columns of numbers.

    Parameters
    ----------
    name : hashable
        Its name in the frame.
    loc, scale : float
        A number ``x`` becomes ``(x - loc) / scale``: mean and standard deviation of the training
        rows. The scale 0 is that of a column that never moved: it becomes 0 whatever it holds,
        since nothing was learnt of its moves.
    has_missing : bool
        Whether numbers were missing in training; a column then says where.
    categories : tuple of str, optional
        Categories of the training rows, for a column that is not numeric; they have the codes 1,
        2, and so on, and all else is 0.
    """

    name: Hashable
    loc: float = 0.0
    scale: float = 1.0
    has_missing: bool = False
    categories: tuple[str, ...] | None = None

    @classmethod
    def fit(cls, covariate: Covariate) -> "ColumnEncoding":
        """Learn from a ``covariate`` that holds training rows."""
        values = covariate.values
        if covariate.categories is not None:
            seen = {int(code) for part in blocks(len(values)) for code in np.unique(values[part])}
            return cls(
                name=covariate.name,
                categories=tuple(sorted(covariate.categories[code] for code in seen - {-1})),
            )
        found = summarise(values)
        moves = found.least < found.largest and found.scale > _ROUNDING * abs(found.loc)
        return cls(
            name=covariate.name,
            loc=found.loc,
            scale=found.scale if moves else 0.0,
            has_missing=found.observed < len(values),
        )

    def encode(self, covariate: Covariate) -> np.ndarray:
        """Return a ``covariate`` as standardised numbers, NaN where missing, or codes, in float64.

        Raises
        ------
        DataError
            If the covariate holds numbers and held categories in training, or the other way round.
        """
        if self.categories is not None and covariate.missing.all():
            # A column without any value reads as numbers, whatever it would hold.
            return np.zeros(len(covariate.values))
        if (covariate.categories is None) != (self.categories is None):
            kinds = ("numbers", "categories")
            fitted = kinds[self.categories is not None]
            raise DataError(
                f"Covariate {self.name!r} held {fitted} in `fit`, but holds "
                f"{kinds[covariate.categories is not None]} now. Bring it to the same dtype."
            )
        if covariate.categories is None or self.categories is None:
            if self.scale == 0:
                return np.where(np.isnan(covariate.values), np.nan, 0.0)
            with np.errstate(over="ignore"):
                standard = (covariate.values - self.loc) / self.scale
            return np.clip(standard, -_LARGEST, _LARGEST)
        known = {category: code for code, category in enumerate(self.categories, start=1)}
        codes = [known.get(category, 0) for category in covariate.categories]
        return np.asarray(np.array([*codes, 0], dtype=np.float64)[covariate.values])


class EncodedCovariates(NamedTuple):
    """Covariates of a panel, a column each: numbers, NaN where missing, or codes of categories.

    Parameters
    ----------
    past, known : ndarray of float64 of shape (N, K), or None
        An entry for each row of the panel. In float64, because a window may move by little
        against all rows of a panel.
    static : ndarray of float32 of shape (S, K), or None
        An entry for each series, as a batch has it.
    clock : ndarray of shape (N,), or None
        Seconds since 1970 on the local clock, if there are calendar features.
    """

    past: np.ndarray | None
    known: np.ndarray | None
    static: np.ndarray | None
    clock: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class CovariateEncoding:
    """How the covariates of a frame, and its calendar, become what a network reads.

    In a batch a number has a column that is standardised over the training rows, a column
    relative to the observed values of its own context (but for static ones), and, where it was
    missing in training, a column that is 1 where it is missing; a category has one column of
    codes. Numbers come first.

    Parameters
    ----------
    past, known, static : tuple of ColumnEncoding
        One a covariate, in the order of the frame's schema.
    cycles : tuple of {"day", "week", "year"}
        Cycles of the calendar.

    Examples
    --------
    >>> import pandas as pd
    >>> from mlrforecast.data import FrameSchema, read_panel
    >>> index = pd.date_range("2024-01-01", periods=400, freq="h")
    >>> frame = pd.DataFrame({"load": 1.0, "open": ["yes", "no"] * 200}, index=index)
    >>> panel = read_panel(frame, FrameSchema(known_covariates=("open",)))
    >>> encoding = CovariateEncoding.fit(panel, calendar=True)
    >>> encoding.known[0].categories, encoding.known_cardinalities, encoding.cycles
    (('no', 'yes'), (2,), ('day', 'week'))
    """

    past: tuple[ColumnEncoding, ...] = ()
    known: tuple[ColumnEncoding, ...] = ()
    static: tuple[ColumnEncoding, ...] = ()
    cycles: tuple[str, ...] = ()

    @classmethod
    def fit(cls, panel: Panel, *, calendar: bool) -> "CovariateEncoding":
        """Learn how to encode from the training rows of a panel.

        Parameters
        ----------
        panel : Panel
            Training rows only: what is learnt here must not know of later ones.
        calendar : bool
            Whether to read the calendar too.

        Returns
        -------
        CovariateEncoding
        """
        cycles: tuple[str, ...] = ()
        if calendar and isinstance(panel.index, pd.DatetimeIndex):
            cycles = calendar_cycles(panel.freq, _longest_span(panel))
        return cls(
            past=tuple(map(ColumnEncoding.fit, panel.past)),
            known=tuple(map(ColumnEncoding.fit, panel.known)),
            static=tuple(map(ColumnEncoding.fit, panel.static)),
            cycles=cycles,
        )

    @property
    def past_cardinalities(self) -> tuple[int, ...]:
        """Categories of each column of ``ForecastBatch.past_covariates``, 0 for numbers."""
        return _cardinalities(self.past, relative=True)

    @property
    def known_cardinalities(self) -> tuple[int, ...]:
        """Categories of each column of ``ForecastBatch.known_covariates``, 0 for numbers."""
        return _cardinalities(self.known, relative=True)

    @property
    def static_cardinalities(self) -> tuple[int, ...]:
        """Categories of each column of ``ForecastBatch.static_covariates``, 0 for numbers."""
        return _cardinalities(self.static, relative=False)

    @property
    def num_calendar_features(self) -> int:
        """Columns of ``ForecastBatch.calendar``."""
        return FEATURES_PER_CYCLE * len(self.cycles)

    def encode(self, panel: Panel) -> EncodedCovariates:
        """Encode the covariates of a panel.

        Parameters
        ----------
        panel : Panel
            A panel with the covariates of the one given to :meth:`fit`.

        Returns
        -------
        EncodedCovariates

        Raises
        ------
        DataError
            If the covariates have other names or another order than in training, or one holds
            numbers now and held categories then, or the other way round.
        """
        static = _encode("static", self.static, panel.static, MEMORY)
        if static is not None:
            static = batch_columns(static, columns_of(self.static), None)
        return EncodedCovariates(
            past=_encode("past", self.past, panel.past, panel.storage),
            known=_encode("known", self.known, panel.known, panel.storage),
            static=static,
            clock=_clock(panel) if self.cycles else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        columns = {role: [_to_dict(c) for c in getattr(self, role)] for role in _ROLES}
        return {**columns, "cycles": list(self.cycles)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "CovariateEncoding":
        """Undo :meth:`to_dict`, which gave ``fields``.

        Raises
        ------
        ValueError
            If the fields are not what :meth:`to_dict` returns.
        """
        if not isinstance(fields, Mapping) or set(fields) != {*_ROLES, "cycles"}:
            raise ValueError("the encoding of covariates must have past, known, static and cycles.")
        for name, entries in fields.items():
            if not isinstance(entries, list | tuple):
                raise ValueError(f"{name} of the encoding of covariates must be a list.")
        cycles = fields["cycles"]
        if [name for name in CYCLES if name in cycles] != list(cycles):
            raise ValueError(f"calendar cycles must be some of {list(CYCLES)}, in this order.")
        columns = {role: tuple(map(_from_dict, fields[role])) for role in _ROLES}
        return cls(**columns, cycles=tuple(cycles))


_ROLES = ("past", "known", "static")


def _cardinalities(encodings: tuple[ColumnEncoding, ...], *, relative: bool) -> tuple[int, ...]:
    """Return 0 for each column of numbers and the number of categories for each of codes."""
    numbers = [column for column in encodings if column.categories is None]
    count = len(numbers) * (1 + relative) + sum(column.has_missing for column in numbers)
    codes = [len(c.categories) for c in encodings if c.categories is not None]
    return (0,) * count + tuple(max(1, code) for code in codes)


def columns_of(encodings: tuple[ColumnEncoding, ...]) -> Columns:
    """Say which of the covariates of some ``encodings`` are what."""
    numbers = [column for column in encodings if column.categories is None]
    return Columns(
        numeric=np.array([column.categories is None for column in encodings], dtype=bool),
        marked=np.array([column.has_missing for column in numbers], dtype=bool),
    )


def _longest_span(panel: Panel) -> float:
    """Return the seconds from the first to the last stamp of the longest series."""
    filled = panel.lengths > 0
    first, last = panel.bounds[:-1][filled], panel.bounds[1:][filled] - 1
    longest = 0.0
    # A stamp that is read from a file brings its surroundings along.
    step = len(first) if panel.storage.in_memory else _FAR_APART
    for number in range(0, len(first), step):
        part = slice(number, number + step)
        begins, ends = (clock_seconds(panel.index[rows[part]]) for rows in (first, last))
        if begins is not None and ends is not None:
            longest = max(longest, float(np.max(ends - begins)))
        panel.storage.release()
    return longest


def _clock(panel: Panel) -> np.ndarray | None:
    """Return the seconds of the local clock for each row; None for integer time."""
    clock: np.ndarray | None = None
    for part in panel.blocks(len(panel.index)):
        found = clock_seconds(panel.index[part])
        if found is None:
            return None
        if clock is None:
            clock = panel.storage.allocate((len(panel.index),), np.float64)
        clock[part] = found
    return clock


def _encode(
    role: str,
    encodings: tuple[ColumnEncoding, ...],
    covariates: tuple[Covariate, ...],
    storage: Storage,
) -> np.ndarray | None:
    """Encode covariates side by side."""
    fitted, given = [e.name for e in encodings], [c.name for c in covariates]
    if fitted != given:
        raise DataError(
            f"The {role} covariates were {fitted} in `fit`, but are {given} now. Name the same "
            "ones in the same order, or fit again."
        )
    if not encodings:
        return None
    count = len(covariates[0].values)
    encoded = storage.allocate((count, len(encodings)), np.float64)
    for place, (encoding, covariate) in enumerate(zip(encodings, covariates, strict=True)):
        for part in blocks(count):
            encoded[part, place] = encoding.encode(covariate.take(part))
        storage.release()
    return encoded


def _to_dict(column: ColumnEncoding) -> dict[str, Any]:
    name = column.name
    if not isinstance(name, (str, int, np.integer)) or isinstance(name, bool):
        raise DataError(
            f"Only text and integers can be stored as names of covariates, got {name!r} of type "
            f"{type(name).__name__}. Rename the column, fit and save again."
        )
    return {
        "name": name if isinstance(name, str) else int(name),
        "loc": column.loc,
        "scale": column.scale,
        "has_missing": column.has_missing,
        "categories": None if column.categories is None else list(column.categories),
    }


def _from_dict(fields: Any) -> ColumnEncoding:
    """Undo :func:`_to_dict`, and refuse what it cannot have returned."""
    keys = {"name", "loc", "scale", "has_missing", "categories"}
    if not isinstance(fields, Mapping) or set(fields) != keys:
        raise ValueError(f"a covariate's encoding must have {', '.join(sorted(keys))}.")
    name, categories = fields["name"], fields["categories"]
    numbers = [fields["loc"], fields["scale"]]
    if (
        isinstance(name, bool)
        or not isinstance(name, str | int)
        or not _are_categories(categories)
        or not isinstance(fields["has_missing"], bool)
        # An int of JSON may have any number of digits, of which a float would be inf.
        or not all(isinstance(number, float) and math.isfinite(number) for number in numbers)
        or numbers[1] < 0
    ):
        raise ValueError(f"the encoding of covariate {str(name)[:80]!r} is not one.")
    return ColumnEncoding(
        name=name,
        loc=numbers[0],
        scale=numbers[1],
        has_missing=fields["has_missing"],
        categories=None if categories is None else tuple(categories),
    )


def _are_categories(found: Any) -> bool:
    """Tell whether something is None or different texts."""
    if found is None:
        return True
    texts = isinstance(found, list | tuple) and all(isinstance(text, str) for text in found)
    return texts and len(set(found)) == len(found)
