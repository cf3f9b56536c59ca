"""Roles of columns: what the schema says, what is plain without it, and what is refused."""

import pandas as pd
import pytest

from mlrforecast.data import FrameSchema, read_panel
from mlrforecast.data.reading import read_rows
from tests.data.frames import long, refused, wide


def shops() -> pd.DataFrame:
    """Make a long frame whose names say nothing."""
    frame = long("a", "b").set_axis(["shop", "day", "sold"], axis=1)
    return frame.assign(price=1.5, promo="no", region=frame["shop"].map({"a": "n", "b": "s"}))


NAMED = {"id_column": "shop", "timestamp_column": "day", "target": "sold"}


def test_columns_without_a_role_are_left_out_where_the_target_is_named() -> None:
    panel = read_panel(shops(), FrameSchema(**NAMED))
    assert (panel.past, panel.known, panel.static) == ((), (), ())
    assert list(panel.labels) == ["a", "b"]
    wide_panel = read_panel(wide(a=range(6), b=list("abcdef")), FrameSchema(target="a"))
    assert list(wide_panel.labels) == ["a"]


def test_the_time_of_a_long_frame_is_found_by_its_type() -> None:
    panel = read_panel(shops(), FrameSchema(id_column="shop", target="sold"))
    assert panel.layout.time_name == "day"


def test_covariates_keep_the_order_of_the_schema() -> None:
    schema = FrameSchema(
        **NAMED, known_covariates=("promo", "price"), static_covariates=("region",)
    )
    panel = read_panel(shops()[["region", "price", "promo", "sold", "shop", "day"]], schema)
    assert [covariate.name for covariate in panel.known] == ["promo", "price"]
    assert [covariate.name for covariate in panel.static] == ["region"]


def test_targets_of_a_wide_frame_keep_the_order_of_the_schema() -> None:
    frame = wide(a=range(6), b=range(6), c=range(6))
    assert list(read_panel(frame, FrameSchema(target=("c", "a"))).labels) == ["c", "a"]
    panel = read_panel(frame, FrameSchema(past_covariates=("b",)))
    assert list(panel.labels) == ["a", "c"]
    assert panel.values.shape == (6, 2)


def test_columns_of_a_long_frame_without_a_role_are_listed() -> None:
    frame = long("a").assign(extra=1, more="x")
    refused(frame, "without a role", "'extra', 'more'", "known_covariates", "target='target'")
    assert len(read_panel(frame, FrameSchema(target="target"))) == 1
    schema = FrameSchema(past_covariates=("extra",), static_covariates=("more",))
    assert len(read_panel(frame, schema).past) == 1


def test_columns_of_a_wide_frame_must_all_be_numbers() -> None:
    frame = wide(a=range(6), kind=list("aabbcc"))
    refused(frame, "Column 'kind'", "must be numeric", "target=", "covariate")
    assert list(read_panel(frame, FrameSchema(known_covariates=("kind",))).labels) == ["a"]
    refused(frame[["kind"]], "no column left to forecast", known_covariates=("kind",))


@pytest.mark.parametrize(
    "schema",
    [
        {"id_column": "store"},
        {"timestamp_column": "store"},
        {"target": "store"},
        {"target": ("sold", "store")},
        {"past_covariates": ("store",)},
        {"known_covariates": ("price", "store")},
        {"static_covariates": ("store",)},
    ],
)
def test_a_column_that_is_absent_is_named_with_those_there_are(schema: dict[str, object]) -> None:
    refused(shops(), "no column 'store'", f"`{next(iter(schema))}`", "'shop', 'day'", **schema)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"target": "shop"}, ("`id_column` and in `target`",)),
        ({"past_covariates": ("sold",)}, ("`target` and in `past_covariates`",)),
        (
            {"past_covariates": ("price",), "known_covariates": ("price",)},
            ("'price'", "`past_covariates` and in `known_covariates`"),
        ),
        ({"static_covariates": ("day",)}, ("`timestamp_column` and in `static_covariates`",)),
        ({"known_covariates": ("price", "price")}, ("'price'", "`known_covariates` twice")),
    ],
)
def test_a_column_has_one_role(schema: dict[str, object], words: tuple[str, ...]) -> None:
    refused(shops(), "one role", *words, **{**NAMED, **schema})


def test_a_name_that_is_known_may_have_a_role_of_another_kind() -> None:
    frame = long("a", "b").assign(y=1.0)
    refused(frame, "'target', 'y'", "target=")
    panel = read_panel(frame, FrameSchema(known_covariates=("y",)))
    assert panel.layout.target_name == "target"
    both = long("a", "b").assign(unique_id="x")
    refused(both, "'item_id', 'unique_id'", "id_column=")
    panel = read_panel(both, FrameSchema(static_covariates=("unique_id",)))
    assert list(panel.labels) == ["a", "b"]


def test_a_long_frame_without_its_target_says_so() -> None:
    frame = long("a").rename(columns={"target": "sold"})
    refused(frame, "without a column target or y", "target=", "'sold'")
    refused(shops(), "one target", "'sold', 'price'", **{**NAMED, "target": ("sold", "price")})


def test_static_covariates_are_for_long_frames() -> None:
    refused(wide(a=range(6), b=1), "wide", "'b'", "id_column", static_covariates=("b",))


def test_many_columns_are_listed_in_part() -> None:
    frame = wide(**{f"column{number}": range(6) for number in range(20)})
    refused(frame, "'column7' and 12 more", target="other")


def test_rows_of_the_future_need_no_target() -> None:
    frame = shops().drop(columns=["sold", "region"])
    schema = FrameSchema(**NAMED, past_covariates=("price",), known_covariates=("promo",))
    rows = read_rows(frame.iloc[::-1], schema, argument="future", targets=False)
    assert (rows.targets, rows.past, rows.static) == ((), (), ())
    assert (list(rows.labels), rows.codes.tolist()) == (["b", "a"], [0] * 5 + [1] * 5)
    assert rows.known[0].name == "promo"
    counted = read_rows(
        wide(x=range(6)), FrameSchema(known_covariates=("x",)), argument="future", targets=False
    )
    assert len(counted.labels) == 0
