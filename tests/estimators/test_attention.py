"""Every score, mixes of layers, options and positions, as parameters of the forecaster."""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import ModelFileError
from mlrforecast.models import EncoderForecaster
from mlrforecast.nn import MLRScore, attentions
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide
from tests.estimators.test_files import edit

NAMES = list(attentions)

OPTIONS: dict[str, dict[str, Any]] = {
    "bilinear": {"attention_options": {"structure": "mlr", "structure_options": {"ranks": (2, 1)}}},
    "bilinear_btt": {"attention_options": {"tensor_rank": 2, "logit_scale": "mup"}},
    "bilinear_mlr": {"ranks": (2, 1), "attention_options": {"num_blocks": (2, 4)}},
    "global_window": {"ranks": (3, 1), "attention_options": {"window": 3, "combine": "sum"}},
    "mlr": {"ranks": (2, 2), "block_sizes": (None, 5), "attention_options": {"qk_norm": True}},
    "mlr_window": {"attention_options": {"window": 5, "level_scale": (1.0, 0.5, 0.25)}},
    "sliding_window": {"attention_options": {"window": 0, "num_kv_heads": 1}},
    "standard": {"attention_options": {"head_width": 6, "qk_width": 3}},
}

MIXES: list[Any] = [
    ("standard", "sliding_window", "sliding_window"),
    ["mlr", "bilinear_btt"],
    ("global_window",),
]


def scores_of(model: EncoderForecaster) -> list[nn.Module]:
    return [block.attention.score for block in model.backbone.blocks]


def fitted_on(frame: pd.DataFrame, **parameters: Any) -> MLRForecaster:
    return MLRForecaster(**TINY | parameters).fit(frame)


def ragged() -> pd.DataFrame:
    """Series with holes, one of them shorter than the context, and its newest token missing."""
    frame = long(rows=(80, CONTEXT - 7, 70))
    frame.loc[np.random.default_rng(0).random(len(frame)) < 0.2, "target"] = np.nan
    frame.loc[frame.groupby("item_id").tail(1).index, "target"] = np.nan
    return frame


class TestEveryScore:
    @pytest.mark.parametrize("tuned", [False, True], ids=["defaults", "options"])
    @pytest.mark.parametrize("name", NAMES)
    def test_forecasts_are_the_same_after_a_round_trip(
        self, tmp_path: Path, name: str, tuned: bool
    ) -> None:
        frame = ragged()
        assert OPTIONS.keys() == set(NAMES)
        fitted = fitted_on(frame, attention=name, **OPTIONS[name] if tuned else {})
        assert [type(score) for score in scores_of(fitted.model_)] == [attentions[name]]
        forecast = fitted.predict()
        assert forecast["item_id"].value_counts().to_dict() == dict.fromkeys("zbm", PREDICTION)
        assert np.isfinite(forecast["target"]).all()
        fitted.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model")
        assert loaded.predict(frame).equals(forecast)
        assert loaded.get_params() == fitted.get_params()
        assert loaded.config_ == fitted.config_
        assert clone(loaded).fit(frame).predict().equals(forecast)

    @pytest.mark.parametrize("name", NAMES)
    def test_padding_before_a_short_series_tells_nothing(self, name: str) -> None:
        """However many missing rows stand before it: the forecast reads what there is."""
        fitted = fitted_on(wide(), attention=name, **OPTIONS[name])
        short = wide().tail(9)
        padded = wide().tail(CONTEXT + 30).copy()
        padded.iloc[:-9] = np.nan
        expected = fitted.predict(padded).to_numpy()
        np.testing.assert_allclose(fitted.predict(short), expected, rtol=1e-6)

    def test_a_score_of_ones_own_is_found_by_its_name(self, tmp_path: Path) -> None:
        class Blunt(MLRScore):
            """Registered after the library was imported."""

        attentions.register("blunt", Blunt)
        try:
            fitted = fitted_on(wide(), attention="blunt", ranks=(2, 2))
            fitted.save(tmp_path / "model")
            assert MLRForecaster.load(tmp_path / "model").predict(wide()).equals(fitted.predict())
        finally:
            del attentions._entries["blunt"]
        with pytest.raises(ModelFileError, match=r"`attention` must be one of .*, got 'blunt'"):
            MLRForecaster.load(tmp_path / "model")


class TestMixes:
    @pytest.mark.parametrize("mix", MIXES)
    def test_the_pattern_is_repeated_over_the_layers(self, tmp_path: Path, mix: Any) -> None:
        fitted = fitted_on(wide(), attention=mix, num_layers=5)
        found = [type(score) for score in scores_of(fitted.model_)]
        assert found == [attentions[name] for name, _ in zip(cycle(mix), range(5), strict=False)]
        assert fitted.config_.attention == tuple(mix)
        fitted.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model")
        assert loaded.predict(wide()).equals(fitted.predict())
        assert loaded.attention == tuple(mix)

    def test_each_layer_takes_the_options_that_its_score_has(self) -> None:
        given = {"window": 3, "num_kv_heads": 1, "divide_by_shared_levels": True}
        mix = ("mlr", "sliding_window")
        fitted = fitted_on(
            wide(), attention=mix, num_layers=3, ranks=(3, 1), attention_options=given
        )
        first, middle, last = scores_of(fitted.model_)
        assert (first.ranks, last.ranks, middle.window) == ((3, 1), (3, 1), 3)
        assert first.divide_by_shared_levels
        assert {score.heads.num_kv_heads for score in (first, middle, last)} == {1}

    def test_a_mix_of_one_is_that_score(self) -> None:
        alone, mixed = (fitted_on(wide(), attention=a) for a in ("standard", ("standard",)))
        assert alone.predict().equals(mixed.predict())


class TestOptions:
    def test_numbers_of_numpy_become_plain(self, tmp_path: Path) -> None:
        given = {
            "window": np.int64(4),
            "level_scale": [np.float32(1.0), 0.5, np.float64(0.25)],
            "qk_norm": np.bool_(True),
        }
        plain = {"window": 4, "level_scale": (1.0, 0.5, 0.25), "qk_norm": True}
        fitted = fitted_on(wide(), attention=np.str_("mlr_window"), attention_options=given)
        assert fitted.config_.attention_options == plain
        assert fitted.attention_options is given
        assert type(fitted.config_.attention) is str
        fitted.save(tmp_path / "model")
        text = (tmp_path / "model" / "config.json").read_text()
        assert json.loads(text)["config"]["attention_options"]["level_scale"] == [1.0, 0.5, 0.25]
        assert MLRForecaster.load(tmp_path / "model").attention_options == plain

    def test_the_mapping_of_the_caller_is_left_alone(self) -> None:
        given = {"window": 2}
        fitted = fitted_on(wide(), attention="sliding_window", attention_options=given)
        given["window"] = 9
        assert scores_of(fitted.model_)[0].window == 2
        assert fitted.config_.attention_options == {"window": 2}

    def test_default_blocks_and_windows_are_those_of_the_tokens(self) -> None:
        fitted = fitted_on(wide(), attention="mlr_window", patch_length=4)
        (score,) = scores_of(fitted.model_)
        assert score.heads.context_length == fitted.model_.embedding.num_tokens == 6
        assert (score.sizes(6), score._window(6)) == ((None, 4, 2), 3)

    def test_the_window_is_what_bounds_a_forecast(self) -> None:
        """Window 0: no token knows another, so one more changes its own share of the sum only."""
        alone = {"attention": "sliding_window", "attention_options": {"window": 0}}
        model = fitted_on(wide(), **alone, positions="none").model_
        tokens = torch.linspace(-1, 1, 3 * CONTEXT * 8).sin().reshape(3, CONTEXT, 8)
        changed = tokens.clone()
        changed[:, 5] += 1.0
        with torch.no_grad():
            moved = (model.backbone(changed) - model.backbone(tokens)).abs().amax((0, 2)) > 1e-7
        assert moved.nonzero().tolist() == [[5]]

    def test_the_contract_of_scikit_learn(self) -> None:
        given = {"window": 2, "qk_norm": True}
        built = MLRForecaster(**TINY, attention=("mlr", "mlr_window"), attention_options=given)
        copy = clone(built)
        assert copy.get_params() == built.get_params()
        assert copy.attention_options is not given
        assert "attention_options={'qk_norm': True, 'window': 2}" in repr(built)
        assert "attention=('mlr', 'mlr_window')" in repr(built)
        assert copy.set_params(attention_options=None, attention="mlr").attention_options is None

    def test_a_search_over_scores_and_options(self) -> None:
        grid = [
            {"attention": ["mlr", ("mlr", "sliding_window"), ["standard"]]},
            {
                "attention": ["sliding_window"],
                "attention_options": [None, {"window": 1}],
                "positions": ["none", "rotary"],
            },
        ]
        splits = TimeSeriesSplit(2, test_size=CONTEXT + PREDICTION)
        search = GridSearchCV(
            MLRForecaster(**TINY, attention_options=None).set_params(num_layers=2, max_steps=1),
            grid,
            cv=splits,
            error_score="raise",
        ).fit(wide(150))
        assert len(search.cv_results_["params"]) == 7
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert ("mlr", "sliding_window") in list(search.cv_results_["param_attention"])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"attention": "mrl"}, "`attention` must be one of bilinear, .* got 'mrl'"),
    ({"attention": 3}, "'attention' parameter"),
    ({"attention": None}, "'attention' parameter"),
    ({"attention": {"mlr"}}, "'attention' parameter"),
    ({"attention": ()}, "`attention` must name at least one score"),
    ({"attention": ("mlr", 3)}, "`attention` must be one of .*, got 3"),
    ({"attention": ("mlr", ("mlr",))}, "`attention` must be one of .*, got"),
    (
        {"attention": ("mlr", "standard")},
        r"`attention` must name at most 1 scores \(`num_layers`\)",
    ),
    ({"attention": "standard", "ranks": (2, 2)}, "attention='standard' has no option `ranks`;"),
    ({"attention": "bilinear_btt", "block_sizes": (None, 2)}, "has no option `block_sizes`; .*mlr"),
    ({"attention": "global_window", "ranks": (2, 1, 1)}, "`ranks` of attention='global_window'"),
    ({"attention_options": "window"}, "'attention_options' parameter"),
    ({"attention_options": [("window", 3)]}, "'attention_options' parameter"),
    (
        {"attention_options": {"window": 3}},
        "`attention_options`: attention='mlr' has no .*`window`",
    ),
    ({"attention_options": {"ranks": (2, 2)}}, "`attention_options` holds 'ranks', set by `ranks`"),
    ({"attention_options": {"block_sizes": (8, 4)}}, "'block_sizes', set by `block_sizes`"),
    ({"attention_options": {"rotary": True}}, "'rotary', set by `positions`"),
    ({"attention_options": {"context_length": 8}}, "'context_length', set by the lengths"),
    ({"attention_options": {"causal": True}}, "has no option `causal`"),
    ({"attention_options": {"dropout": 0.1}}, "has no option `dropout`"),
    ({"attention_options": {3: 4}}, "has no option `3`"),
    ({"attention_options": {"qk_norm": "yes"}}, "`qk_norm` must be True or False, got 'yes'"),
    (
        {"attention_options": {"qk_norm": torch.ones(1)}},
        r"`attention_options\['qk_norm'\]` must be",
    ),
    ({"attention_options": {"level_scale": lambda r: r}}, r"`attention_options\['level_scale'\]`"),
    ({"attention_options": {"divide_by_num_levels": 1}}, "`divide_by_num_levels` must be True"),
    ({"attention_options": {"num_kv_heads": 3}}, r"`num_kv_heads` must divide `num_heads` \(2\)"),
    ({"attention_options": {"num_kv_heads": "2"}}, "`num_kv_heads` must be an integer, got '2'"),
    ({"attention_options": {"head_width": 2.5}}, "`head_width` must be an integer, got 2.5"),
    ({"attention_options": {"head_width": 10**30}}, "`head_width` must be less than"),
    ({"attention_options": {"unshared": "drop"}}, "`unshared` must be one of mask, zero"),
    (
        {"attention": "standard", "attention_options": {"qk_width": 0}},
        "`qk_width` must be at least",
    ),
    ({"attention": "standard", "attention_options": {"logit_scale": {}}}, "`logit_scale` must be"),
    (
        {"attention": "mlr_window", "attention_options": {"window": -1}},
        "`window` must be at least 0",
    ),
    ({"attention": "mlr_window", "attention_options": {"window": 10**30}}, "`window` must be less"),
    ({"attention": "bilinear", "attention_options": {"structure": "lu"}}, "'lu'. Available: btt"),
    (
        {"attention": "bilinear", "attention_options": {"structure": {}}},
        "`structure` must be one of",
    ),
    (
        {"attention": "bilinear", "attention_options": {"structure_options": 3}},
        "`structure_options` must map names",
    ),
    (
        {"attention": "bilinear_btt", "attention_options": {"tensor_rank": 0}},
        "`tensor_rank` must be",
    ),
    (
        {"attention": "bilinear_mlr", "attention_options": {"num_blocks": 3}},
        "`num_blocks` must be a",
    ),
    ({"attention": "bilinear_mlr", "ranks": ()}, "`ranks` must hold at least one"),
    ({"positions": "sinus"}, "'positions' parameter"),
    ({"positions": None}, "'positions' parameter"),
    ({"positions": "rotary", "backbone": nn.Identity()}, "`positions`='rotary' .* `backbone`"),
    ({"parametrization": "ntk"}, "'parametrization' parameter"),
    ({"width": 10**12, "num_heads": 10**6}, "`width` 1000000000000 .* too large"),
    ({"hidden_width": 10**19}, "`hidden_width` must be less than"),
]


@pytest.mark.parametrize(("parameters", "words"), WRONG, ids=lambda part: repr(part)[:60])
def test_what_does_not_go_together_is_named_before_training(
    no_training: None, parameters: dict[str, Any], words: str
) -> None:
    forecaster = MLRForecaster(**TINY | parameters)
    for call in (forecaster.check_parameters, lambda: forecaster.fit(wide())):
        with pytest.raises((ValueError, TypeError), match=words):
            call()


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "unknown option": lambda p: p.update(attention_options={"hook": "os.system"}),
    "option of another score": lambda p: p.update(attention_options={"window": 3}),
    "flat option": lambda p: p.update(attention_options={"ranks": [2, 2]}),
    "options as list": lambda p: p.update(attention_options=[["qk_norm", True]]),
    "options as text": lambda p: p.update(attention_options="qk_norm"),
    "option of lists": lambda p: p.update(attention_options={"qk_width": [4]}),
    "option for no memory": lambda p: p.update(attention_options={"qk_width": 10**9}),
    "another option": lambda p: p.update(attention_options={"num_kv_heads": 1}),
    "pattern of unknown": lambda p: p.update(attention=["mlr", "os.system"], num_layers=2),
    "pattern too long": lambda p: p.update(attention=["mlr"] * 10**5),
    "pattern of patterns": lambda p: p.update(attention=[["mlr"]]),
    "attention as mapping": lambda p: p.update(attention={"mlr": 1}),
    "another attention": lambda p: p.update(attention="bilinear_btt"),
    "other positions": lambda p: p.update(positions="none"),
    "unknown positions": lambda p: p.update(positions="absolute"),
}


def alter(document: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    for part in ("parameters", "config"):
        change(document[part])


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_options_in_a_file_are_refused(
    on_wide: MLRForecaster, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    on_wide.save(tmp_path / "model")
    edit(tmp_path / "model", lambda d: alter(d, change))
    with pytest.raises(ModelFileError, match="cannot be built from its files") as caught:
        MLRForecaster.load(tmp_path / "model")
    assert len(str(caught.value)) < 600


def test_another_network_cannot_be_saved(tmp_path: Path) -> None:
    fitted = fitted_on(wide(), attention="sliding_window", attention_options={"window": 2})
    fitted.set_params(attention_options={"window": 3})
    with pytest.raises(
        ValueError, match=r"`attention_options` is {'window': 3}, but .*'window': 2"
    ):
        fitted.save(tmp_path / "model")
    # How a network was trained is no part of it.
    fitted.set_params(attention_options={"window": 2}, parametrization="mup")
    fitted.save(tmp_path / "model")


class TestPositions:
    def test_only_learned_ones_are_parameters(self) -> None:
        counted = {
            kind: fitted_on(wide(), positions=kind).num_parameters_
            for kind in ("learned", "rotary", "none")
        }
        assert counted["learned"] - CONTEXT * 8 == counted["rotary"] == counted["none"]

    def test_rotary_ones_turn_queries_and_keys(self, tmp_path: Path) -> None:
        turned, none = (fitted_on(wide(), positions=kind) for kind in ("rotary", "none"))
        assert turned.model_.backbone.blocks[0].attention.rotary
        assert not none.model_.backbone.blocks[0].attention.rotary
        assert not np.allclose(turned.predict(), none.predict(), rtol=1e-9)
        turned.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model")
        assert loaded.predict(wide()).equals(turned.predict())

    def test_without_any_a_backbone_reads_tokens_alone(self) -> None:
        fitted = fitted_on(wide(), positions="none", backbone=Through())
        assert np.isfinite(fitted.predict().to_numpy()).all()


class Through(nn.Module):
    """A backbone without parameters."""

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return tokens
