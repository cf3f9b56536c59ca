"""Covariates: numbers, categories, static ones, and what is neither."""

import enum
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from mlrforecast.data import FrameSchema, read_panel
from tests.data.frames import long, refused, wide

KNOWN = FrameSchema(known_covariates=("x",))


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def __str__(self) -> str:
        return self.name


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, 3, 4],
        np.array([1, 0, 3, 4], dtype=np.int8),
        pd.array([1, None, 3, 4], dtype="Int64"),
        pd.array([1, None, 3, 4], dtype="Float32"),
        np.array([1, np.nan, 3, 4], dtype=np.float32),
        [np.nan] * 4,
    ],
)
def test_numbers_become_float64_with_nan(values: object) -> None:
    (covariate,) = read_panel(wide(4, a=range(4), x=values), KNOWN).known
    assert (covariate.values.dtype, covariate.categories) == (np.dtype("float64"), None)
    expected = pd.Series(values).astype("Float64").to_numpy(float, na_value=np.nan)
    np.testing.assert_array_equal(covariate.values, expected)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (["b", "a", None, "b"], ["b", "a", None, "b"]),
        (pd.Series(["b", "a", None, "b"], dtype=object), ["b", "a", None, "b"]),
        (pd.array(["b", "a", None, "b"], dtype="string"), ["b", "a", None, "b"]),
        (pd.Categorical(["b", "a", None, "b"], ["z", "b", "a"]), ["b", "a", None, "b"]),
        (pd.Categorical([2, 10, None, 2]), ["2", "10", None, "2"]),
        ([True, False, False, True], ["True", "False", "False", "True"]),
        (pd.array([True, False, None, True], dtype="boolean"), ["True", "False", None, "True"]),
        (pd.Series([True, False, None, True], dtype=object), ["True", "False", None, "True"]),
        (pd.Series([Color.RED, Color.BLUE, None, Color.RED]), ["RED", "BLUE", None, "RED"]),
        (pd.Series([1, "1", "2", None], dtype=object), ["1", "1", "2", None]),
        (pd.Series([None] * 4, dtype=object), [None] * 4),
    ],
)
def test_all_else_becomes_categories_known_by_their_text(
    values: object, texts: list[str | None]
) -> None:
    (covariate,) = read_panel(
        wide(4, a=range(4), x=np.arange(4)).assign(x=list_of(values)), KNOWN
    ).known
    assert covariate.categories == tuple(sorted({text for text in texts if text is not None}))
    assert covariate.values.dtype == np.dtype("int64")
    named = [None if code < 0 else covariate.categories[code] for code in covariate.values]
    assert named == texts


def list_of(values: object) -> object:
    """Return values without an index that would be aligned."""
    return values.array if isinstance(values, pd.Series) else values


@pytest.mark.parametrize("kind", ["string", "bool", "dictionary"])
def test_categories_of_pyarrow_dtypes_are_read(kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    dtype = {
        "string": pa.string(),
        "bool": pa.bool_(),
        "dictionary": pa.dictionary(pa.int32(), pa.string()),
    }[kind]
    values = [True, False, None, True] if kind == "bool" else ["True", "False", None, "True"]
    frame = wide(4, a=range(4), x=pd.array(values, dtype=pd.ArrowDtype(dtype)))
    (covariate,) = read_panel(frame, KNOWN).known
    assert covariate.categories == ("False", "True")
    np.testing.assert_array_equal(covariate.values, [1, 0, -1, 1])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pd.date_range("2024", periods=6), ("time stamps", "datetime64")),
        (pd.date_range("2024", periods=6, tz="UTC"), ("time stamps",)),
        (pd.period_range("2024", periods=6, freq="D"), ("time stamps",)),
        (pd.Series(pd.date_range("2024", periods=6).date, dtype=object).array, ("time stamps",)),
        (pd.timedelta_range("1h", periods=6), ("holds neither", "timedelta64")),
        (np.arange(6) * 1j, ("complex128",)),
        (pd.Series([Decimal(1)] * 6).array, ("Python objects", "pd.to_numeric", "Decimal('1')")),
        (
            pd.Series([1, 2, 3, 4, 5, None], dtype=object).array,
            ("Python objects", ".astype(float)"),
        ),
        (pd.Series([[1], [2], [3], [4], [5], [6]]).array, ("lists", "object")),
        (np.array([1, 2, np.inf, 4, 5, 6]), ("finite", "column 'x' is inf at 2024-01-01 02:00")),
    ],
)
def test_covariates_that_are_neither_are_refused(values: object, words: tuple[str, ...]) -> None:
    frame = wide(a=range(6)).assign(x=values)
    refused(frame, "olumn 'x'", *words, known_covariates=("x",))
    refused(frame, "olumn 'x'", *words, past_covariates=("x",))


def test_static_covariates_have_one_entry_a_series() -> None:
    frame = long("b", "a", "c")
    frame["size"] = frame["item_id"].map({"b": 2.0, "a": 1.0, "c": np.nan})
    frame["kind"] = frame["item_id"].map({"b": "x", "a": None, "c": "y"})
    # What is missing in some rows only is known from the others.
    frame.loc[[0, 3], ["size", "kind"]] = None
    schema = FrameSchema(static_covariates=("kind", "size"))
    kind, size = (
        read_panel(frame.sample(frac=1, random_state=1), schema).select(np.arange(3)).static
    )
    order = read_panel(frame.sample(frac=1, random_state=1), schema).labels.tolist()
    sizes = dict(zip(order, size.values, strict=True))
    assert (sizes["b"], sizes["a"], np.isnan(sizes["c"])) == (2.0, 1.0, True)
    codes = dict(zip(order, kind.values, strict=True))
    assert kind.categories == ("x", "y")
    assert codes == {"b": 0, "a": -1, "c": 1}


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0] * 8 + [2.5, 1.0], ("1.0 and 2.5",)),
        (["x"] * 8 + ["y", "x"], ("'x' and 'y'",)),
        ([True] * 8 + [False, True], ("'True' and 'False'",)),
        ([None] * 6 + ["q", None, "p", "q"], ("'q' and 'p'",)),
    ],
)
def test_a_static_covariate_that_changes_is_named(
    values: list[object], shown: tuple[str, ...]
) -> None:
    frame = long("a", "b").assign(fixed=values)
    refused(frame, "'fixed'", "series 'b'", *shown, static_covariates=("fixed",))
