"""Tables of series with random faults: what a fuzzed frame says, before it has a form.

A table has the columns ``item`` (0, 1, ...), ``stamp``, ``target`` and four covariates, and its
rows stand in the order of the series. A fault is a function of a table and a generator.
"""

import decimal
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

Fault = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]

COVARIATES = ("temp", "promo", "kind", "shop")


def clean_table(
    rng: np.random.Generator, stamps: list[pd.Index], values: str, extra: int = 0
) -> pd.DataFrame:
    """One series on each of the ``stamps``; ``extra`` more targets are named ``more0``, ..."""
    parts = []
    for item, index in enumerate(stamps):
        count = len(index)
        table = pd.DataFrame({"item": item, "stamp": index})
        table["target"] = VALUES[values](rng, count)
        for number in range(extra):
            table[f"more{number}"] = VALUES[values](rng, count)
        table["temp"] = rng.normal(20, 5, count)
        table["promo"] = rng.integers(0, 2, count)
        table["kind"] = pd.Series(rng.choice(["a", "b", "ç"], count), dtype=object)
        table["shop"] = f"shop {item % 2}"
        parts.append(table)
    return pd.concat(parts, ignore_index=True)


VALUES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "noise": lambda rng, count: rng.normal(size=count),
    "wave": lambda rng, count: 50 + 10 * np.sin(np.arange(count)),
    "constant": lambda rng, count: np.full(count, 0.1),
    "zeros": lambda rng, count: np.zeros(count),
    "sales": lambda rng, count: rng.poisson(0.4, count),
    "huge": lambda rng, count: 1e12 + rng.normal(size=count),
    "at the limit": lambda rng, count: rng.choice([-1e300, 1e300], count),
    "tiny": lambda rng, count: 1e-300 * rng.normal(size=count),
    "of all sizes": lambda rng, count: 10.0 ** rng.uniform(-300, 300, count),
    "nearly constant": lambda rng, count: 1e9 + 1e-7 * rng.integers(0, 2, count),
    "large integers": lambda rng, count: 2**62 + rng.integers(0, 1000, count),
}


def _some(table: pd.DataFrame, rng: np.random.Generator, share: float = 0.3) -> np.ndarray:
    """Numbers of at least one row."""
    count = max(1, int(share * len(table)))
    return rng.choice(len(table), count, replace=False)


def _put(table: pd.DataFrame, column: str, rows: Any, value: Any) -> pd.DataFrame:
    """Put a value into some rows; the column becomes one of objects where it does not fit."""
    cells = list(table[column])
    for row in np.atleast_1d(rows):
        cells[row] = value
    if isinstance(value, float) and table[column].dtype.kind in "iuf":
        return table.assign(**{column: np.array(cells, dtype=float)})
    if value is pd.NaT and table[column].dtype.kind == "M":
        return table.assign(
            **{column: pd.Series(cells, index=table.index, dtype=table[column].dtype)}
        )
    return table.assign(**{column: pd.Series(cells, index=table.index, dtype=object)})


def _gap(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    inner = np.flatnonzero(table["item"].eq(table["item"].shift(-1)) & ~_first(table))
    absent = rng.choice(inner, min(len(inner), int(rng.integers(1, 4))), replace=False)
    return table.drop(index=table.index[absent]).reset_index(drop=True)


def _first(table: pd.DataFrame) -> pd.Series:
    return table["item"].ne(table["item"].shift())


def _doubled(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return pd.concat([table, table.iloc[_some(table, rng, 0.1)]], ignore_index=True)


def _irregular(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    if table["stamp"].dtype.kind == "i":
        return table.assign(stamp=table["stamp"] * 10 + rng.integers(0, 9, len(table)))
    return table.assign(
        stamp=table["stamp"] + pd.to_timedelta(rng.integers(0, 3000, len(table)), unit="s")
    )


def _lost_zone(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    if getattr(table["stamp"].dtype, "tz", None) is None:
        return table
    return table.assign(stamp=table["stamp"].dt.tz_localize(None))


def _end_of_time(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """The last stamp is the last that there is."""
    stamps = table["stamp"]
    if stamps.dtype.kind == "i":
        return table.assign(stamp=stamps + (np.iinfo(np.int64).max - stamps.max()))
    stamps = stamps.dt.tz_localize(None).astype("datetime64[ns]")
    return table.assign(stamp=stamps + (pd.Timestamp("2262-04-11 23:00") - stamps.max()))


def _beginning_of_time(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Stamps that nanoseconds cannot hold."""
    stamps = table["stamp"]
    if stamps.dtype.kind == "i":
        return table.assign(stamp=stamps - 2**62)
    stamps = stamps.dt.tz_localize(None).astype("datetime64[s]")
    return table.assign(stamp=stamps - np.timedelta64(365 * 700 * 86_400, "s"))


def _one_series_missing(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    item = rng.choice(table["item"])
    return _put(table, "target", np.flatnonzero(table["item"] == item), np.nan)


def _single_row_series(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    item = rng.choice(table["item"])
    return table[(table["item"] != item) | _first(table)].reset_index(drop=True)


def _tail_missing(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    after = table.groupby("item").cumcount(ascending=False) < rng.integers(1, 12)
    return _put(table, "target", np.flatnonzero(after), np.nan)


def _of_type(column: str, convert: Callable[[pd.Series], Any]) -> Fault:
    def fault(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        return table.assign(**{column: convert(table[column])})

    return fault


def _with(column: str, value: Any, share: float = 0.3) -> Fault:
    def fault(table: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
        return _put(table, column, _some(table, rng, share), value)

    return fault


def _clipped(column: pd.Series, dtype: str) -> pd.Series:
    """A smaller dtype, with the values that it can hold."""
    return column.astype(float).fillna(0.0).clip(0, 100).round().astype(dtype)


TIME_FAULTS: dict[str, Fault] = {
    "gap": _gap,
    "doubled stamps": _doubled,
    "irregular stamps": _irregular,
    "no zone": _lost_zone,
    "end of time": _end_of_time,
    "beginning of time": _beginning_of_time,
    "missing stamp": _with("stamp", pd.NaT, 0.01),
    "backwards": lambda table, rng: table.iloc[::-1].reset_index(drop=True),
    "shuffled": lambda table, rng: table.sample(frac=1, random_state=rng).reset_index(drop=True),
}

VALUE_FAULTS: dict[str, Fault] = {
    "missing values": _with("target", np.nan),
    "mostly missing values": _with("target", np.nan, 0.95),
    "all missing": lambda table, rng: table.assign(target=np.nan),
    "one series missing": _one_series_missing,
    "missing at the end": _tail_missing,
    "infinite": _with("target", np.inf, 0.01),
    "minus infinite": _with("target", -np.inf, 0.01),
    "too large": _with("target", -1e301, 0.01),
    "text target": _of_type("target", lambda column: column.astype(str)),
    "text among numbers": _with("target", "n/a", 0.01),
    "objects": _of_type("target", lambda column: column.astype(object)),
    "None": _with("target", None, 0.01),
    "decimals": _with("target", decimal.Decimal("1.5"), 0.99),
    "bool target": _of_type("target", lambda column: column > column.median()),
    "complex": _of_type("target", lambda column: column.astype(float) + 1j),
    "int8": _of_type("target", lambda column: _clipped(column, "int8")),
    "uint64": _of_type("target", lambda column: _clipped(column, "uint64")),
    "float16": _of_type("target", lambda column: _clipped(column, "float16")),
    "nullable": _of_type("target", lambda column: column.astype("Float64")),
    "nullable integers": _of_type("target", lambda column: _clipped(column, "Int64")),
    "arrow numbers": _of_type("target", lambda column: _clipped(column, "double[pyarrow]")),
    "category target": _of_type("target", lambda column: column.astype("category")),
    "sparse": _of_type("target", lambda column: column.astype(pd.SparseDtype(float))),
    "durations": _of_type("target", lambda column: pd.to_timedelta(_clipped(column, "int64"))),
    "empty": lambda table, rng: table.iloc[:0],
    "single row": lambda table, rng: table.iloc[:1],
    "two rows": lambda table, rng: table.iloc[:2],
    "single-row series": _single_row_series,
    "missing item": _with("item", None, 0.01),
}

COVARIATE_FAULTS: dict[str, Fault] = {
    "missing covariate": _with("temp", np.nan),
    "covariate without values": lambda table, rng: table.assign(temp=np.nan),
    "infinite covariate": _with("temp", np.inf, 0.01),
    "huge covariate": _of_type("temp", lambda column: column * 1e290),
    "tiny covariate": _of_type("temp", lambda column: column * 1e-310),
    "constant covariate": lambda table, rng: table.assign(temp=7.0),
    "covariate too large": _with("temp", 1e305, 0.5),
    "covariate of dates": _of_type("temp", lambda column: pd.to_datetime(column)),
    "covariate of lists": _of_type("kind", lambda column: column.map(lambda text: [text])),
    "mixed covariate": _with("kind", 3.5),
    "missing category": _with("kind", None),
    "all categories missing": lambda table, rng: table.assign(kind=None),
    "category dtype": _of_type("kind", lambda column: column.astype("category")),
    "string dtype": _of_type("kind", lambda column: column.astype("string")),
    "bool covariate": _of_type("promo", lambda column: column.astype(bool)),
    "nullable bool": _of_type("promo", lambda column: column.astype("boolean").mask(column > 0)),
    "complex covariate": _of_type("promo", lambda column: column + 0j),
    "static changes": _with("shop", "another", 0.2),
    "static missing": _with("shop", None, 0.5),
    "static numbers": lambda table, rng: table.assign(shop=table["item"].astype(float)),
    "a category of its own each": lambda table, rng: table.assign(
        kind=[f"k{number}" for number in range(len(table))]
    ),
}


def with_faults(
    table: pd.DataFrame, names: list[str], rng: np.random.Generator
) -> tuple[pd.DataFrame, list[str]]:
    """Apply faults one after the other; one that does not fit what others left is left out."""
    applied = []
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table = FAULTS[name](table, rng)
        except (ValueError, TypeError, OverflowError):
            continue
        applied.append(name)
    return table, applied


FAULTS = TIME_FAULTS | VALUE_FAULTS | COVARIATE_FAULTS
