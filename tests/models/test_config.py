"""Configurations: checked field by field, and the same after a round trip."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from mlrforecast.models import EncoderConfig

pytestmark = pytest.mark.usefixtures("own_errors")


def config_of(**fields: Any) -> EncoderConfig:
    sizes = {"patch_length": 4, "patch_stride": 4, "width": 16, "num_heads": 2}
    return EncoderConfig(**{"context_length": 24, "prediction_length": 6, **sizes, **fields})


@pytest.mark.parametrize(
    "config",
    [
        config_of(),
        config_of(attention="standard", loss="mae", dropout=0.0),
        config_of(ranks=(4, 2, 2), block_sizes=(None, 4, 2), quantile_levels=(0.25, 0.75)),
        config_of(
            attention=("bilinear", "mlr_window"),
            attention_options={"structure_options": {"rank": 3}, "level_scale": (1.0, 0.5, 0.5)},
            positions="rotary",
        ),
        config_of(
            scaling="robust",
            past_cardinalities=(0, 3),
            known_cardinalities=(0,),
            static_cardinalities=(12,),
            num_calendar_features=8,
        ),
    ],
)
def test_a_configuration_survives_json(config: EncoderConfig) -> None:
    assert EncoderConfig.from_dict(config.to_dict()) == config
    assert EncoderConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_numbers_of_numpy_become_plain() -> None:
    config = config_of(
        width=np.int64(16), ranks=list(np.array([4, 4])), dropout=np.float32(0.5),
        quantile_levels=np.array([0.1, 0.9]), past_cardinalities=np.array([0, 3]),
        known_cardinalities=[np.int64(2)], num_calendar_features=np.int64(4),
    )  # fmt: skip
    assert config == config_of(
        ranks=(4, 4), dropout=0.5, quantile_levels=(0.1, 0.9), past_cardinalities=(0, 3),
        known_cardinalities=(2,), num_calendar_features=4,
    )  # fmt: skip
    assert json.dumps(config.to_dict()["past_cardinalities"]) == "[0, 3]"
    assert json.loads(json.dumps(config.to_dict()))["width"] == 16


def test_unknown_fields_are_refused() -> None:
    fields = {**config_of().to_dict(), "widht": 1, "depth": 2}
    with pytest.raises(ValueError, match="Unknown configuration fields: depth, widht"):
        EncoderConfig.from_dict(fields)


OPTIONAL = {"num_calendar_features"}
COUNTS = [
    field.name
    for field in dataclasses.fields(EncoderConfig)
    if field.type in (int, "int") and field.name not in OPTIONAL
]


@pytest.mark.parametrize("value", [0, -3, 2.0, True, "4", None])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_checked(name: str, value: object) -> None:
    with pytest.raises(
        ValueError, match=f"`{name}` must be an integer of at least 1, got {value!r}"
    ):
        dataclasses.replace(config_of(), **{name: value})


@pytest.mark.parametrize("value", [-1, 2.0, True, "4", None])
def test_counts_of_columns_are_checked(value: object) -> None:
    words = f"must be an integer of at least 0, got {value!r}"
    with pytest.raises(ValueError, match=f"`num_calendar_features` {words}"):
        config_of(num_calendar_features=value)
    for role in ("past", "known", "static"):
        with pytest.raises(ValueError, match=f"`{role}_cardinalities` {words}"):
            config_of(**{f"{role}_cardinalities": (3, value)})


@pytest.mark.parametrize("value", [3, "03", None, {3: 1}])
def test_cardinalities_are_a_sequence(value: object) -> None:
    with pytest.raises(TypeError, match="`known_cardinalities` must be a sequence of integers"):
        config_of(known_cardinalities=value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\), got 1.0"),
        ({"head_dropout": -0.1}, r"`head_dropout` must be in \[0, 1\), got -0.1"),
        ({"dropout": float("nan")}, r"`dropout` must be in \[0, 1\), got nan"),
        ({"dropout": "much"}, r"`dropout` must be in \[0, 1\), got 'much'"),
        ({"frequency_weight": 1.1}, r"`frequency_weight` must be in \[0, 1\], got 1.1"),
        ({"attention": "mrl"}, "`attention` must be one of bilinear, .*mlr, .*standard, got 'mrl'"),
        ({"attention": ()}, "`attention` must name at least one score"),
        ({"attention": ("mlr",) * 3}, r"`attention` must name at most 2 scores \(`num_layers`\)"),
        (
            {"attention_options": {"window": 3}},
            "attention='mlr' has no option `window`; .*mlr_window",
        ),
        ({"attention_options": {"ranks": (8,)}}, "`attention_options` holds 'ranks'"),
        ({"positions": "sinus"}, "`positions` must be one of learned, rotary, none, got 'sinus'"),
        ({"scaling": "max"}, "`scaling` must be one of standard, robust, mean_abs, got 'max'"),
        ({"loss": "huber"}, "`loss` must be one of quantile, mae, mse, .*, got 'huber'"),
        ({"quantile_levels": ()}, r"`quantile_levels` must increase within \(0, 1\), got \(\)"),
        ({"quantile_levels": (0.5, 0.1)}, r"must increase .* got \(0.5, 0.1\)"),
        ({"quantile_levels": (0.1, 0.1)}, r"must increase .* got \(0.1, 0.1\)"),
        ({"quantile_levels": (0.0, 0.5)}, r"must increase .* got \(0.0, 0.5\)"),
        ({"quantile_levels": (0.5, 1.0)}, r"must increase .* got \(0.5, 1.0\)"),
        ({"quantile_levels": (float("nan"),)}, r"must increase .* got \(nan,\)"),
        ({"ranks": (4, 0)}, "`ranks` must be an integer of at least 1, got 0 at index 1"),
        ({"block_sizes": (None, 2.5)}, "`block_sizes` must be .* got 2.5 at index 1"),
        ({"patch_length": 25}, r"`patch_length` must be at most `context_length` \(24\), got 25"),
        ({"patch_stride": 5}, r"`patch_stride` must be at most `patch_length` \(4\).* got 5"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_of(**fields)


@pytest.mark.parametrize("share", [-0.1, 1, "half"])
def test_the_network_has_a_share_of_the_forecast(share: Any) -> None:
    with pytest.raises(ValueError, match=r"`linear_share` must be in \[0, 1\), got"):
        config_of(linear_share=share)


def test_frequency_weight_may_be_one() -> None:
    assert config_of(frequency_weight=1).frequency_weight == 1.0
