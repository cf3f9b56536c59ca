"""Covariates as numbers: what is learnt from training rows, and what a window makes of it."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlrforecast._core.errors import DataError
from mlrforecast.data import ColumnEncoding, Covariate, CovariateEncoding
from mlrforecast.data._columns import read_covariate
from mlrforecast.data._covariate_columns import LARGEST, batch_columns
from mlrforecast.data.covariates import columns_of
from tests.data.panels import (
    categories_of,
    columns_by_loop,
    make_panel,
    numbers_of,
    row_numbers,
    scaler,
)


def number(*values: float) -> Covariate:
    return Covariate("x", np.array(values))


def text(*values: str | None) -> Covariate:
    names = tuple(dict.fromkeys(value for value in values if value is not None))
    return Covariate("x", np.array([names.index(v) if v in names else -1 for v in values]), names)


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e12, 1e290])
def test_numbers_are_standardised_over_the_rows_given(size: float) -> None:
    values = numbers_of("x", 400, missing=0.2).values
    encoding = ColumnEncoding.fit(Covariate("x", size * values))
    loc, scale = scaler(values, "standard")
    np.testing.assert_allclose([encoding.loc, encoding.scale], [size * loc, size * scale])
    assert encoding.has_missing
    found = encoding.encode(Covariate("x", size * values))
    np.testing.assert_allclose(found, (values - loc) / scale, rtol=1e-9, atol=1e-9)


def test_later_rows_are_encoded_by_what_earlier_ones_taught() -> None:
    encoding = ColumnEncoding.fit(number(1.0, 3.0))
    assert not encoding.has_missing
    found = encoding.encode(number(1.0, 3.0, 6.0, np.nan))
    np.testing.assert_array_equal(found, [-1, 1, 4, np.nan])


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e299])
def test_values_far_beyond_those_of_training_do_not_overflow(size: float) -> None:
    encoding = ColumnEncoding.fit(number(0.0, size))
    encoded = encoding.encode(number(1e300, -1e300, 0.0, 1e300, np.nan))[None, :, None]
    for context in (1, 2, 4):
        columns = batch_columns(encoded, columns_of((encoding,)), context)
        assert np.isfinite(columns).all()
        assert columns[0, 0, 0] == (19 if size == 1e299 else LARGEST)
        assert columns[0, 1, 0] == (-21 if size == 1e299 else -LARGEST)


@pytest.mark.parametrize(
    "values", [(0.1,) * 7, (1e300,) * 3, (0.0,), (0.3, 0.1 + 0.2, 0.3), (7.0, np.nan, 7.0)]
)
def test_a_constant_becomes_0(values: tuple[float, ...]) -> None:
    encoding = ColumnEncoding.fit(number(*values))
    assert encoding.scale == 0.0
    assert np.nanmax(np.abs(encoding.encode(number(*values)))) == 0
    # The network never saw it move, so what it would make of a move is chance.
    assert encoding.encode(number(values[0], 1e12, np.nan))[:2].tolist() == [0, 0]
    assert CovariateEncoding.from_dict(CovariateEncoding(past=(encoding,)).to_dict()).past == (
        encoding,
    )


def test_a_column_without_any_value_is_learnt_as_such() -> None:
    encoding = ColumnEncoding.fit(number(np.nan, np.nan))
    assert (encoding.loc, encoding.scale, encoding.has_missing) == (0.0, 0.0, True)
    nothing = ColumnEncoding.fit(Covariate("x", np.array([-1, -1]), ("a",)))
    assert nothing.categories == ()
    assert nothing.encode(text("a", None)).tolist() == [0, 0]


def test_categories_have_codes_in_the_order_of_their_text() -> None:
    encoding = ColumnEncoding.fit(text("wet", "dry", None, "10", "9", "wet"))
    assert encoding.categories == ("10", "9", "dry", "wet")
    # Known ones have their code under any numbering of the frame, and new ones have none.
    assert encoding.encode(text("dry", "new", None, "wet")).tolist() == [3, 0, 0, 4]


def test_categories_that_no_training_row_has_are_not_learnt() -> None:
    encoding = ColumnEncoding.fit(Covariate("x", np.array([2, 0]), ("a", "b", "c")))
    assert encoding.categories == ("a", "c")


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (number(1.0, 2.0), text("a"), "'x' held numbers in `fit`, but holds categories now"),
        (text("a"), number(1.0), "'x' held categories in `fit`, but holds numbers now"),
    ],
)
def test_a_column_of_another_kind_is_refused(first: Covariate, then: Covariate, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ColumnEncoding.fit(first).encode(then)


def panel_with_all(lengths: tuple[int, ...] = (30, 7, 12), *, missing: float = 0.3) -> Any:
    count = sum(lengths)
    return make_panel(
        lengths,
        past=(numbers_of("p", count, missing=missing), categories_of("q", count)),
        known=(
            categories_of("r", count),
            numbers_of("s", count),
            numbers_of("t", count, missing=missing),
        ),
        static=(numbers_of("u", len(lengths)), categories_of("v", len(lengths))),
    )


def test_cardinalities_name_the_columns_of_a_batch() -> None:
    panel = panel_with_all()
    encoding = CovariateEncoding.fit(panel, calendar=True)
    assert encoding.past_cardinalities == (0, 0, 0, 3)
    assert encoding.known_cardinalities == (0, 0, 0, 0, 0, 3)
    assert encoding.static_cardinalities[0] == 0
    assert encoding.cycles == ()
    assert encoding.num_calendar_features == 0
    encoded = encoding.encode(panel)
    assert encoded.past is not None
    assert encoded.known is not None
    past = batch_columns(encoded.past[None], columns_of(encoding.past), 20)
    known = batch_columns(encoded.known[None], columns_of(encoding.known), 20)
    assert past.shape == (1, 49, 4)
    assert known.shape == (1, 49, 6)
    assert past.dtype == known.dtype == np.float32
    assert encoded.static is not None
    assert encoded.static.shape == (3, 2)
    for columns, sizes in (
        (past, encoding.past_cardinalities),
        (known, encoding.known_cardinalities),
    ):
        for place, size in enumerate(sizes):
            if size:
                assert set(np.unique(columns[..., place])) <= set(range(size + 1))
    assert np.isfinite(np.concatenate([past, known], axis=-1)).all()


def test_nothing_is_made_of_no_covariates() -> None:
    panel = make_panel((9, 4))
    encoding = CovariateEncoding.fit(panel, calendar=False)
    assert encoding == CovariateEncoding()
    assert all(part is None for part in encoding.encode(panel))
    assert encoding.past_cardinalities == encoding.known_cardinalities == ()


def test_the_calendar_is_that_of_the_longest_series() -> None:
    fit = CovariateEncoding.fit
    assert fit(make_panel((400, 3)), calendar=True).cycles == ("day", "week")
    assert fit(make_panel((40, 400)), calendar=True).num_calendar_features == 8
    assert fit(make_panel((40, 40, 40, 40)), calendar=True).cycles == ()
    assert fit(make_panel((400,)), calendar=False).cycles == ()
    panel = make_panel((400,))
    numbered = replace(panel, index=panel.index.asi8 // 3600, freq=1)
    assert fit(numbered, calendar=True) == CovariateEncoding()


@pytest.mark.parametrize("names", [("s", "r", "t"), ("r", "s"), ("r", "s", "other"), ()])
def test_covariates_of_other_names_or_order_are_refused(names: tuple[str, ...]) -> None:
    panel = panel_with_all()
    encoding = CovariateEncoding.fit(panel, calendar=False)
    by_name = {covariate.name: covariate for covariate in panel.known}
    known = tuple(by_name.get(name, numbers_of(name, 49)) for name in names)
    with pytest.raises(DataError, match=r"known covariates were \['r', 's', 't'\] in `fit`"):
        encoding.encode(replace(panel, known=known))


@given(st.integers(1, 5), st.integers(1, 11), st.integers(0, 5), st.integers(0, 99), st.booleans())
def test_columns_of_a_batch_are_those_of_a_loop(
    windows: int, context: int, future: int, seed: int, gaps: bool
) -> None:
    length = context + future
    count = windows * length
    missing = 0.4 if gaps else 0.0
    covariates = (
        numbers_of("a", count, missing=missing, seed=seed),
        categories_of("b", count, seed=seed),
        numbers_of("c", count, seed=seed),
        Covariate("d", np.repeat(np.arange(windows) * 1e3, length)),
    )
    encodings = tuple(map(ColumnEncoding.fit, covariates))
    encoded = np.stack(
        [e.encode(c) for e, c in zip(encodings, covariates, strict=True)], axis=-1
    ).reshape(windows, length, 4)
    found = batch_columns(encoded, columns_of(encodings), context)
    bounds = np.arange(windows + 1) * length
    for window in range(windows):
        expected = columns_by_loop(covariates, covariates, bounds, window, range(length), context)
        np.testing.assert_allclose(found[window], expected, rtol=1e-5, atol=1e-5)


def test_relative_numbers_are_relative_to_the_context_alone() -> None:
    """What comes after the cutoff, and other windows, change nothing before it."""
    rng = np.random.default_rng(0)
    encoded = rng.standard_normal((5, 12, 3))
    encoded[1, 2:5, 1] = np.nan
    columns = columns_of(tuple(ColumnEncoding(name=name, has_missing=True) for name in "abc"))
    found = batch_columns(encoded, columns, 8)
    other = encoded.copy()
    other[:, 8:] = rng.standard_normal((5, 4, 3)) * 1e3
    other[2, 9] = np.nan
    np.testing.assert_array_equal(batch_columns(other, columns, 8)[:, :8], found[:, :8])
    for window in range(5):
        alone = batch_columns(encoded[window : window + 1], columns, 8)
        np.testing.assert_array_equal(alone[0], found[window])


def test_a_covariate_that_is_the_target_has_its_relative_values() -> None:
    """So that a linear map of it can give the target, which is scaled by its context too."""
    target = np.random.default_rng(1).standard_normal(40) * 5e6 + 3e7
    encoding = ColumnEncoding.fit(Covariate("x", np.append(target, [0.0, 9e7])))
    encoded = encoding.encode(Covariate("x", target))[None, :, None]
    relative = batch_columns(encoded, columns_of((encoding,)), 30)[0, :, 1]
    loc, scale = scaler(target[:30], "standard")
    np.testing.assert_allclose(relative, (target - loc) / scale, atol=1e-5)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_a_series_of_any_scale_has_relative_numbers(size: float) -> None:
    """Items of a panel may differ by nine powers of ten."""
    shape = np.random.default_rng(0).standard_normal(12)
    encoding = ColumnEncoding.fit(number(-1e6, 1e6))
    encoded = encoding.encode(Covariate("x", size * (shape + 10)))[None, :, None]
    relative = batch_columns(encoded, columns_of((encoding,)), 12)[0, :, 1]
    np.testing.assert_allclose(relative, (shape - shape.mean()) / shape.std(), atol=1e-3)


@pytest.mark.parametrize("level", [0.0, 1.0, 1e4])
def test_relative_numbers_of_a_constant_context_are_0(level: float) -> None:
    encoded = np.full((1, 400, 1), level)
    encoded[0, 350:] = 7.0
    relative = batch_columns(encoded, columns_of((ColumnEncoding(name="x"),)), 350)[..., 1]
    assert (relative == 0).all()


def test_an_encoding_is_stored_as_json_and_read_back() -> None:
    count = 800
    panel = make_panel(
        (count,),
        past=(Covariate(3, row_numbers((count,))), Covariate("leer", np.full(count, np.nan))),
        known=(categories_of("Größe", count),),
        static=(Covariate(np.int64(4), np.array([2.5])),),
    )
    encoding = CovariateEncoding.fit(panel, calendar=True)
    assert encoding.cycles
    again = CovariateEncoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert again == encoding
    assert type(again.static[0].name) is int


@pytest.mark.parametrize("name", [1.5, ("a", "b"), True, None])
def test_names_that_json_does_not_hold_are_refused(name: Any) -> None:
    encoding = CovariateEncoding(known=(ColumnEncoding(name=name),))
    with pytest.raises(DataError, match="Only text and integers can be stored as names"):
        encoding.to_dict()


COLUMN = {"name": "x", "loc": 0.0, "scale": 1.0, "has_missing": False, "categories": None}
WHOLE: dict[str, Any] = {"past": [], "known": [COLUMN], "static": [], "cycles": ["day"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": None},
        {"name": 1.5},
        {"name": True},
        {"name": ["x"]},
        {"loc": "0"},
        {"loc": float("nan")},
        {"loc": 10**400},
        {"scale": -1.0},
        {"scale": float("inf")},
        {"scale": True},
        {"has_missing": 1},
        {"categories": "abc"},
        {"categories": [1, 2]},
        {"categories": ["a", "a"]},
        {"categories": {"a": 1}},
        {"more": 1},
    ],
    ids=str,
)
def test_nonsense_about_a_column_is_refused(changes: dict[str, Any]) -> None:
    assert CovariateEncoding.from_dict(WHOLE).known[0].name == "x"
    with pytest.raises(ValueError, match="encoding"):
        CovariateEncoding.from_dict({**WHOLE, "known": [{**COLUMN, **changes}]})


@pytest.mark.usefixtures("own_errors")
@pytest.mark.parametrize(
    "fields",
    [
        [],
        None,
        {},
        {**WHOLE, "more": []},
        {**WHOLE, "past": None},
        {**WHOLE, "past": 3},
        {**WHOLE, "past": [None]},
        {**WHOLE, "past": {"name": "x"}},
        {**WHOLE, "known": [{"name": "x"}]},
        {**WHOLE, "cycles": "day"},
        {**WHOLE, "cycles": ["week", "day"]},
        {**WHOLE, "cycles": ["day", "day"]},
        {**WHOLE, "cycles": ["hour"]},
        {**WHOLE, "cycles": [["day"]]},
        {**WHOLE, "cycles": 1},
    ],
    ids=str,
)
def test_nonsense_about_an_encoding_is_refused(fields: Any) -> None:
    with pytest.raises(ValueError, match=r"encoding|cycles"):
        CovariateEncoding.from_dict(fields)


def test_a_category_is_the_same_as_a_whole_float() -> None:
    """A column of integer categories becomes one of floats where a value is missing."""
    encodings = []
    for values in ([0, 1, 2, 1], [0.0, 1.0, np.nan, 2.0]):
        column = pd.Series(values, name="k").astype("category")
        encodings.append(ColumnEncoding.fit(read_covariate(column, "k", "X")).categories)
    assert encodings == [("0", "1", "2")] * 2


def test_a_categorical_column_without_any_value_may_read_as_numbers() -> None:
    encoding = ColumnEncoding.fit(text("a", "b"))
    assert encoding.encode(number(np.nan, np.nan)).tolist() == [0, 0]
