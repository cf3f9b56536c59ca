"""Checked series, all in one table: what is left of a caller's frame once it has been read.

The rows of all series stand one after the other, each series sorted by time, so that a hundred
thousand short series cost what one long one does.
"""

import hashlib
import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from mlrforecast.data._grid import index_of, ticks_of
from mlrforecast.data._storage import MEMORY, Storage, blocks, groups

Form: TypeAlias = Literal["wide", "long", "series", "array"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a caller's frame looked, so that a forecast can be written in the same way.

    Parameters
    ----------
    form : {"wide", "long", "series", "array"}
        A wide frame holds a column for each series, a long one an item, a stamp and a value in
        each row. A pandas Series is a wide frame of one column. An array of shape (T,) or (T, C)
        is a wide frame whose time is 0 to T - 1.
    native : str
        What held it: ``"pandas"``, ``"numpy"``, or the name by which narwhals knows the library
        of the frame, such as ``"polars"`` or ``"pyarrow"``.
    id_name, time_name : hashable, optional
        Names of the item and of the time. Of a wide frame with time in its index, the name of
        that index.
    target_name : hashable, optional
        Long: name of the values. Series: its name.
    indexed : bool
        Whether time, and of a long frame the item too, stands in the index.
    flat : bool
        Whether an array had one axis.
    """

    form: Form
    native: str = "pandas"
    id_name: Hashable | None = None
    time_name: Hashable | None = None
    target_name: Hashable | None = None
    indexed: bool = True
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Covariate:
    """One column that is read beside the targets.

    Parameters
    ----------
    name : hashable
        Its name in the frame.
    values : ndarray of shape (N,)
        One entry a row of the panel, or a series for a static one: float64 numbers, NaN where
        missing; or int64 codes into ``categories``, -1 where missing.
    categories : tuple of str, optional
        The categories as text, for a column that is not numeric.
    """

    name: Hashable
    values: np.ndarray
    categories: tuple[str, ...] | None = None

    @property
    def kind(self) -> Literal["number", "category"]:
        """Whether it holds numbers or categories."""
        return "number" if self.categories is None else "category"

    @property
    def missing(self) -> np.ndarray:
        """Where it has no value, bool of shape (N,)."""
        return np.isnan(self.values) if self.categories is None else self.values < 0

    def take(self, rows: np.ndarray | slice) -> "Covariate":
        """Return the covariate of some ``rows``."""
        return Covariate(self.name, self.values[rows], self.categories)


@dataclass(frozen=True, eq=False)
class Series:
    """Views of the rows of one series.

    Parameters
    ----------
    index : DatetimeIndex or Index of int, of length T
        Time, oldest first.
    values : ndarray of shape (T, C)
        Float64 values, NaN where missing.
    """

    index: pd.Index
    values: np.ndarray


def _numbers(array: np.ndarray | pd.Index) -> np.ndarray:
    """Return numbers, or stamps as numbers."""
    if isinstance(array, pd.DatetimeIndex):
        return np.asarray(array.as_unit("us").asi8)
    return np.asarray(array)


def name_at(labels: pd.Index, number: int) -> Hashable:
    """Return label ``number`` of ``labels`` as the Python value that its owner would write."""
    return labels[number : number + 1].tolist()[0]  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, kw_only=True)
class Panel:
    """Series that share one frequency, with all that is needed to write a forecast like the frame.

    A wide frame gives one series whose channels are its columns; a long frame gives one series of
    one channel for each item.

    Parameters
    ----------
    layout : Layout
        How the frame looked.
    freq : str or int
        Step of every series: a pandas offset alias, or an integer for integer time.
    labels : Index
        Long: the items, in order of appearance and in the dtype of the frame. Else the names of
        the channels.
    index : DatetimeIndex or Index of int, of length N
        Time of the rows of all series, one series after the other, each oldest first.
    values : ndarray of shape (N, C)
        Float64 values, NaN where missing.
    bounds : ndarray of int of shape (S + 1,)
        Series ``s`` has the rows ``bounds[s]`` to ``bounds[s + 1] - 1``.
    past, known : tuple of Covariate
        Covariates with an entry for each of the ``N`` rows.
    static : tuple of Covariate
        Covariates with an entry for each of the ``S`` series.
    storage : Storage
        Where its arrays are, and those that are made of them: in memory, or in files.
    """

    layout: Layout
    freq: str | int
    labels: pd.Index
    index: pd.Index
    values: np.ndarray
    bounds: np.ndarray
    past: tuple[Covariate, ...] = ()
    known: tuple[Covariate, ...] = ()
    static: tuple[Covariate, ...] = ()
    storage: Storage = field(default=MEMORY, repr=False)

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[Series]:
        """Yield the series one by one."""
        return (self.series(number) for number in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each series, shape (S,)."""
        return np.diff(self.bounds)

    @property
    def num_channels(self) -> int:
        """Channels of every series, ``C``."""
        return int(self.values.shape[1])

    def digest(self) -> str:
        """Return the sha256 of all that can be learnt from the series, without their names."""
        covariates = (*self.past, *self.known, *self.static)
        categories = [covariate.categories for covariate in covariates]
        zone = getattr(self.index, "tz", None)
        digest = hashlib.sha256(json.dumps([self.freq, str(zone), categories]).encode())
        arrays: list[Any] = [self.values, self.bounds, self.index]
        arrays += [covariate.values for covariate in covariates]
        for array in arrays:
            digest.update(f"{_numbers(array[:0]).dtype} {array.shape}".encode())
            for part in self.blocks(len(array)):
                digest.update(_numbers(array[part]).tobytes())
        return digest.hexdigest()

    def series(self, number: int) -> Series:
        """Return views of series ``number``."""
        rows = slice(self.bounds[number], self.bounds[number + 1])
        return Series(self.index[rows], self.values[rows])

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield slices of ``count`` entries to work on one after the other, in little memory."""
        for part in blocks(count):
            yield part
            self.storage.release()

    def places(self, series: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find rows that are counted inside their series, also beyond its ends.

        Parameters
        ----------
        series : ndarray of int of shape (B,)
            Numbers of series, each with at least one row.
        steps : ndarray of int of shape (B, T)
            Rows, counted from the first one of each of them.

        Returns
        -------
        rows : ndarray of int of shape (B, T)
            The rows of the panel; that at the nearer end of the series for one beyond it.
        outside : ndarray of bool of shape (B, T)
            Which are beyond an end.
        """
        first, end = self.bounds[series, None], self.bounds[series + 1, None]
        rows = first + steps
        return np.clip(rows, first, end - 1), (rows < first) | (rows >= end)

    def values_at(self, series: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Copy the values of rows that are counted inside their series.

        Parameters
        ----------
        series, steps : ndarray of int
            As in :meth:`places`.

        Returns
        -------
        ndarray of shape (B, T, C)
            Values, NaN beyond the ends of a series.
        """
        rows, outside = self.places(series, steps)
        values = np.asarray(self.values[rows])
        values[outside] = np.nan
        self.storage.release()
        return values

    def owner(self, number: int) -> str:
        """Name all rows of series ``number`` the way their owner would, for messages."""
        if self.layout.form == "long":
            return f"series {name_at(self.labels, number)!r}"
        return {"series": "the series", "array": "the array"}.get(self.layout.form, "the frame")

    def label(self, number: int, channel: int) -> str:
        """Name a ``channel`` of series ``number`` the way its owner would, for messages."""
        if self.layout.form == "long" or self.layout.form == "series":
            return self.owner(number)
        return f"column {name_at(self.labels, channel)!r}"

    def crop(self, first: np.ndarray, last: np.ndarray) -> "Panel":
        """Return a copy of the rows ``first[s]`` to ``last[s] - 1``, counted inside series ``s``.

        Parameters
        ----------
        first, last : ndarray of int of shape (S,)
            ``0 <= first <= last <= lengths``; a series keeps its place even without rows.
        """
        return replace(self, **self._rows(self.bounds[:-1] + first, last - first))

    def head(self, num_rows: np.ndarray) -> "Panel":
        """Return the first ``num_rows[s]`` rows of each series, of a single one without a copy."""
        if len(self) > 1 or not self.storage.in_memory:
            return self.crop(np.zeros_like(num_rows), num_rows)
        rows = slice(0, int(num_rows[0]))
        return replace(
            self,
            index=self.index[rows],
            values=self.values[rows],
            bounds=np.array([0, rows.stop]),
            past=tuple(covariate.take(rows) for covariate in self.past),
            known=tuple(covariate.take(rows) for covariate in self.known),
        )

    def tail(self, rows: int) -> "Panel":
        """Return a copy of the newest ``rows`` rows of each series (all if there are fewer)."""
        lengths = self.lengths
        return self.crop(np.maximum(lengths - rows, 0), lengths)

    def select(self, numbers: np.ndarray) -> "Panel":
        """Return a copy of the series of a long panel with some ``numbers``, in their order."""
        return replace(
            self,
            labels=self.labels[numbers],
            static=tuple(covariate.take(numbers) for covariate in self.static),
            **self._rows(self.bounds[numbers], self.lengths[numbers]),
        )

    def _rows(self, first: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
        """Copy ``counts[s]`` rows from row ``first[s]`` on for each series ``s`` of a panel."""
        bounds = np.concatenate([[0], np.cumsum(counts)])
        covariates = (*self.past, *self.known)
        given = [ticks_of(self.index), self.values, *(each.values for each in covariates)]
        made = [
            self.storage.allocate((int(bounds[-1]), *array.shape[1:]), array.dtype)
            for array in given
        ]
        for part in groups(counts):
            here = slice(bounds[part.start], bounds[part.stop])
            moves = first[part] - bounds[:-1][part]
            rows = np.arange(here.start, here.stop) + np.repeat(moves, counts[part])
            for array, copied in zip(given, made, strict=True):
                copied[here] = array[rows]
            self.storage.release()
        taken = [
            replace(each, values=values) for each, values in zip(covariates, made[2:], strict=True)
        ]
        return {
            "index": index_of(made[0], self.index),
            "values": made[1],
            "bounds": bounds,
            "past": tuple(taken[: len(self.past)]),
            "known": tuple(taken[len(self.past) :]),
        }
