"""Parameters: their ranges, the types they may come in, and what they do."""

import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.estimators import _fitting as module
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

WRONG = [
    ("prediction_length", 0, r"int in the range \[1, inf\). Got 0"),
    ("prediction_length", 2.0, r"int in the range.* Got 2.0"),
    ("prediction_length", "6", r"int in the range.* Got '6'"),
    ("prediction_length", True, r"must be a number, got True"),
    ("context_length", 0, r"None or an int in the range \[1, inf\). Got 0"),
    ("context_length", 12.0, "Got 12.0"),
    ("target", [], "must name at least one column, got an empty"),
    ("target", {"a"}, r"must hold names of columns, got \{'a'\}"),
    ("target", True, "must hold names of columns, got True"),
    ("id_column", ["a"], r"must hold names of columns, got \['a'\]"),
    ("timestamp_column", {}, r"must hold names of columns, got \{\}"),
    ("past_covariates", "temp", r"must be a sequence of names .* got 'temp'"),
    ("known_covariates", None, "must be a sequence of names .* got None"),
    ("known_covariates", [["a"]], r"must hold names of columns, got \['a'\]"),
    ("static_covariates", 3, "must be a sequence of names .* got 3"),
    ("calendar", "yes", "Got 'yes'"),
    ("freq", "sometimes", "must be a pandas offset alias .* got 'sometimes'"),
    ("freq", 0, r"int in the range \[1, inf\). Got 0"),
    ("freq", -2, "Got -2"),
    ("freq", "-1h", "forwards|alias"),
    ("freq", 1.5, "Got 1.5"),
    ("freq", True, "must be a number, got True"),
    ("fill", "ffill", r"'missing'.* Got 'ffill'"),
    ("fill", 0, "Got 0"),
    ("resample", "std", r"'mean'.* Got 'std'"),
    ("scaling", "minmax", r"'robust'.* Got 'minmax'"),
    ("attention", "flash", r"must be one of .*mlr, .*, got 'flash'"),
    ("ranks", 4, "Got 4"),
    ("ranks", (1, 1), r"must sum to the head width 4, got \(1, 1\) \(sum 2\)"),
    ("ranks", ("a", 4), "got 'a'"),
    ("ranks", (2.5, 1.5), r"got 2.5"),
    ("block_sizes", (4, 2), r"one entry for each of the 3 ranks, got 2"),
    ("block_sizes", (None, 0.5, 1), "got 0.5"),
    ("patch_length", 0, "Got 0"),
    ("patch_length", 25, r"must be at most the context length 24, got 25"),
    ("patch_stride", 0, "Got 0"),
    ("patch_stride", 2, r"must be at most `patch_length` \(1\).* got 2"),
    ("width", 0, "Got 0"),
    ("width", True, "got True"),
    ("num_heads", 0, "Got 0"),
    ("num_heads", 3, "must divide the width 8, got 3"),
    ("num_layers", 0, "Got 0"),
    ("hidden_width", -1, "Got -1"),
    ("dropout", 1.0, r"a float in the range \[0.0, 1.0\). Got 1.0"),
    ("head_dropout", -0.1, "Got -0.1"),
    ("loss", "huber", r"a str among .*'quantile'.* Got 'huber'"),
    ("quantile_levels", (), r"must increase within \(0, 1\).* got \(\)"),
    ("quantile_levels", (0.5, 0.1), r"must increase within \(0, 1\).* got \(0.5, 0.1\)"),
    ("quantile_levels", (0.1, 0.1), "must increase"),
    ("quantile_levels", (0.0, 0.5), "must increase"),
    ("quantile_levels", (0.5, 1.0), "must increase"),
    ("quantile_levels", (0.1, float("nan")), "must increase"),
    ("quantile_levels", ("low", "high"), "must be numbers, got 'low'"),
    ("quantile_levels", 0.5, "Got 0.5"),
    ("quantile_levels", "0.5", "Got '0.5'"),
    ("frequency_weight", 1.1, r"range \[0.0, 1.0\]. Got 1.1"),
    ("backbone", "encoder", r"Module'. Got 'encoder'"),
    ("max_steps", 0, "Got 0"),
    ("batch_size", 0, "Got 0"),
    ("learning_rate", 0.0, r"range \(0.0, inf\). Got 0.0"),
    ("learning_rate", float("inf"), "Got inf"),
    ("weight_decay", -1.0, "Got -1.0"),
    ("weight_decay", float("nan"), "Got nan"),
    ("early_stopping", "yes", "Got 'yes'"),
    ("patience", 0, "Got 0"),
    ("max_time", 0, "Got 0"),
    ("max_time", float("inf"), "Got inf"),
    ("max_time", 1e300, r"Got 1e\+300"),
    ("max_time", timedelta(0), r"must be positive, got datetime.timedelta\(0\)"),
    ("seed", -1, "Got -1"),
    ("seed", 2**32, "Got 4294967296"),
    ("accelerator", "tpu", "Got 'tpu'"),
    ("progress", 1, "Got 1"),
]


@pytest.mark.parametrize(("name", "value", "rest"), WRONG, ids=lambda part: repr(part)[:30])
def test_wrong_parameters_are_named_before_training(
    no_training: None, name: str, value: Any, rest: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=rest) as caught:
        MLRForecaster(**TINY | {name: value}).fit(wide())
    assert f"`{name}`" in str(caught.value) or f"'{name}'" in str(caught.value)


def test_levels_of_mlr_are_refused_with_another_attention(no_training: None) -> None:
    with pytest.raises(ValueError, match="attention='standard' has no option `ranks`"):
        MLRForecaster(**TINY, attention="standard", ranks=(2, 2)).fit(wide())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_an_accelerator_that_is_not_there(no_training: None) -> None:
    with pytest.raises(ValueError, match=r"`accelerator` is 'gpu', but .* 'auto' or 'cpu'"):
        MLRForecaster(**TINY | {"accelerator": "gpu"}).fit(wide())


def test_numbers_of_numpy_do_what_those_of_python_do(tmp_path: Any) -> None:
    plain = {
        "width": 8,
        "seed": 3,
        "max_steps": 2,
        "dropout": 0.5,
        "quantile_levels": (0.1, 0.5, 0.9),
        "ranks": (2, 2),
        "block_sizes": (None, 6),
        "early_stopping": False,
        "max_time": 60,
    }
    numpy = {
        "width": np.int64(8),
        "seed": np.uint32(3),
        "max_steps": np.int32(2),
        "dropout": np.float32(0.5),
        "quantile_levels": np.array([0.1, 0.5, 0.9], dtype=np.float32),
        "ranks": [np.int64(2), np.int16(2)],
        "block_sizes": [None, np.int64(6)],
        "early_stopping": np.bool_(False),
        "max_time": np.float32(60),
    }
    expected = MLRForecaster(**TINY | plain).fit(wide())
    built = MLRForecaster(**TINY | numpy).fit(wide())
    assert built.config_ == expected.config_
    assert built.config_.quantile_levels == (0.1, 0.5, 0.9)
    assert built.predict().equals(expected.predict())
    assert clone(built).get_params()["width"] == 8
    built.save(tmp_path / "model")
    assert MLRForecaster.load(tmp_path / "model").predict(wide()).equals(expected.predict())


@pytest.mark.parametrize(
    ("rows", "prediction", "context", "patch"),
    [(120, 6, 56, 2), (600, 24, 288, 12), (5000, 96, 504, 24), (8, 6, 1, 1), (100, 40, 30, 1)],
)
def test_lengths_left_open_follow_the_written_rule(
    rows: int, prediction: int, context: int, patch: int
) -> None:
    open_ends = {"context_length": None, "prediction_length": prediction, "max_steps": 1}
    fitted = MLRForecaster(**TINY | open_ends).fit(wide(rows))
    assert fitted.context_length_ == fitted.config_.context_length == context
    assert fitted.config_.patch_length == fitted.config_.patch_stride == patch


def test_steps_left_open_grow_with_the_root_of_windows() -> None:
    open_end = {"max_steps": None, "batch_size": 2}
    few = {"prediction_length": 60}
    assert MLRForecaster(**TINY | open_end | few).fit(wide()).num_steps_ == 100
    fitted = MLRForecaster(**TINY | open_end).fit(wide())
    windows = 2 * (120 - CONTEXT - PREDICTION + 1)
    assert fitted.num_steps_ == round(9 * windows**0.5) > 100


def test_steps_left_open_shrink_with_the_root_of_a_long_horizon() -> None:
    open_end = {"max_steps": None, "batch_size": 2, "prediction_length": 192, "dropout": 0.0}
    fitted = MLRForecaster(**TINY | open_end).fit(wide(1000))
    windows = 2 * (1000 - CONTEXT - 192 + 1)
    assert fitted.num_steps_ == round(9 * (windows / 4) ** 0.5) > 100


@pytest.mark.parametrize(
    ("given", "horizon", "share"),
    [(None, 6, 0.5), (None, 48, 0.5), (None, 192, 0.75), (0.3, 192, 0.3), (0.0, 6, 0.0)],
)
def test_the_regressions_share_grows_with_the_horizon(
    given: float | None, horizon: int, share: float
) -> None:
    settings = TINY | {"prediction_length": horizon, "max_steps": 1, "linear_share": given}
    fitted = MLRForecaster(**settings).fit(wide(300))
    linear = fitted.model_.linear
    assert share == (0.0 if linear is None else linear.share)
    assert len(fitted.predict()) == horizon


def test_first_weights_depend_on_the_seed() -> None:
    still = {"learning_rate": 1e-30, "max_steps": 1}
    first, again, other = (
        MLRForecaster(**TINY | still | {"seed": seed}).fit(wide()).model_.embedding.positions.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_what_was_learned_counts_what_was_trained(on_wide: MLRForecaster) -> None:
    assert on_wide.num_steps_ == 3
    assert on_wide.freq_ == "h"
    assert on_wide.season_length_ == 24
    assert on_wide.num_parameters_ == sum(p.numel() for p in on_wide.model_.parameters())
    assert not on_wide.model_.training


class TestEarlyStopping:
    def test_stops_and_keeps_the_best_weights(self) -> None:
        # So high a rate that no later step is better than an early one.
        options = {"early_stopping": True, "patience": 1, "max_steps": 200, "learning_rate": 0.3}
        fitted = MLRForecaster(**TINY | options).fit(wide(200))
        assert fitted.num_steps_ < 200
        last = MLRForecaster(**TINY | {"max_steps": 200, "learning_rate": 0.3}).fit(wide(200))
        assert fitted.score(wide(200)) != last.score(wide(200))

    def test_held_back_rows_are_never_trained_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stores = []

        def record(model: Any, store: Any, options: Any, *, validation: Any, **_: Any) -> int:
            stores.append((store, validation))
            return 1

        monkeypatch.setattr(module, "train", record)
        frame = wide(200)
        for tail in (frame.iloc[-20:], wide(20, seed=9)):
            changed = frame.copy()
            changed.iloc[-20:] = tail.to_numpy()
            MLRForecaster(**TINY, early_stopping=True).fit(changed)
        (training, validation), (other_training, other_validation) = stores
        assert torch.equal(training.buffer, other_training.buffer)
        assert not torch.equal(validation.buffer, other_validation.buffer)
        assert len(training) == 2 * (180 - CONTEXT - PREDICTION + 1)
        # Every forecast inside the newest tenth, and none that begins before it.
        assert len(validation) == 2 * (20 - PREDICTION + 1)

    def test_too_few_rows_are_refused(self, no_training: None) -> None:
        forecaster = MLRForecaster(**TINY, early_stopping=True)
        with pytest.raises(DataError, match=r"a series of 13 rows .*, but the frame has 12"):
            forecaster.fit(wide(12))
        with pytest.raises(DataError, match="series 'b' is the longest and has 12"):
            forecaster.fit(long(rows=(8, 12, 7)))

    def test_short_series_are_trained_on_as_a_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stores = []

        def record(model: Any, store: Any, options: Any, *, validation: Any, **_: Any) -> int:
            stores.append((store, validation))
            return 1

        monkeypatch.setattr(module, "train", record)
        for rows in ((80, 12, 70), (80, 12), (72, 12, 63)):
            ids = ("z", "b", "m")[: len(rows)]
            MLRForecaster(**TINY, early_stopping=rows[0] == 80).fit(long(ids=ids, rows=rows))
        (all_of, held_back), (without, _), (cut, nothing) = stores
        assert nothing is None
        assert len(all_of) == len(cut)
        assert len(all_of) > len(without)
        # Forecasts that begin in the newest tenth: of 8 rows of one series, 7 of the other.
        assert len(held_back) == (8 - PREDICTION + 1) + (7 - PREDICTION + 1)


def test_parameters_set_after_fit_are_for_the_next_fit(tmp_path: Any) -> None:
    fitted = MLRForecaster(**TINY).fit(wide())
    expected = fitted.predict(wide())
    changes: dict[str, Any] = {
        "target": "b",
        "known_covariates": ["a"],
        "freq": "D",
        "fill": "zero",
        "resample": "sum",
        "scaling": "robust",
        "calendar": False,
    }
    for name, value in changes.items():
        changed = MLRForecaster(**TINY).fit(wide()).set_params(**{name: value})
        assert changed.predict(wide()).equals(expected)
        assert changed.score(wide()) == fitted.score(wide())
        if name != "calendar":
            with pytest.raises(ValueError, match=f"`{name}` is .* fitted with"):
                changed.save(tmp_path / name)


def test_the_calendar_cannot_be_switched_off_after_fit(tmp_path: Any) -> None:
    fitted = MLRForecaster(**TINY).fit(wide())
    assert fitted.config_.num_calendar_features == 4
    fitted.set_params(calendar=False)
    with pytest.raises(ValueError, match=r"`calendar` is False, but .* fitted with True"):
        fitted.save(tmp_path / "model")


def test_columns_of_a_frame_are_counted_for_scikit_learn() -> None:
    fitted = MLRForecaster(**TINY).fit(wide())
    assert fitted.n_features_in_ == 2
    assert list(fitted.feature_names_in_) == ["a", "b"]
    fitted.fit(wide().to_numpy()[:, [0, 1, 0]])
    assert fitted.n_features_in_ == 3
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.fit(wide()["a"]).n_features_in_ == 1


def _equal(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("limit", [0.3, 1, timedelta(seconds=0.3)])
def test_max_time_ends_training(limit: Any) -> None:
    started = time.perf_counter()
    options = {"max_time": limit, "max_steps": 10**6}
    fitted = MLRForecaster(**TINY | options).fit(wide())
    assert 0 < fitted.num_steps_ < 10**6
    assert time.perf_counter() - started < 10
    assert np.isfinite(fitted.predict().to_numpy()).all()


class Scale(nn.Module):
    """A backbone of the documented signature."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return tokens * self.scale


def test_a_backbone_of_ones_own_is_copied_and_trained() -> None:
    backbone = Scale()
    fitted = MLRForecaster(**TINY, backbone=backbone).fit(wide())
    assert isinstance(fitted.model_.backbone, Scale)
    assert fitted.model_.backbone is not backbone
    assert torch.equal(backbone.scale, torch.ones(8))
    assert not torch.equal(fitted.model_.backbone.scale, torch.ones(8))
    assert _equal(fitted.model_, clone(fitted).fit(wide()).model_)


class Wrong(nn.Module):
    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> Any:
        return self.change(tokens)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (Wrong(lambda tokens: (tokens,)), r"must return .* \(2, 24, 8\), got <class 'tuple'>"),
        (Wrong(lambda tokens: tokens[..., :4]), r"must return .*, got \(2, 24, 4\)"),
        (Wrong(lambda tokens: tokens.mean(dim=1)), r"must return .*, got \(2, 8\)"),
        (Scale(5), r"must accept .* shape \(2, 24, 8\); it raised RuntimeError"),
        (nn.Identity(8), r"must accept backbone\(tokens, key_mask\) .* it raised TypeError"),
    ],
    ids=["tuple", "narrow", "pooled", "width", "arguments"],
)
def test_backbones_of_another_signature(
    no_training: None, backbone: nn.Module, message: str
) -> None:
    with pytest.raises(ValueError, match=f"`backbone` {message}"):
        MLRForecaster(**TINY, backbone=backbone).fit(wide())


def test_a_failed_fit_leaves_the_earlier_one(on_wide: MLRForecaster) -> None:
    fitted = clone(on_wide).fit(wide())
    with pytest.raises(DataError):
        fitted.fit(wide().iloc[:1])
    assert fitted.predict().equals(on_wide.predict())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 0}, "'width' parameter"),
        ({"width": True}, "`width` must be a number"),
        ({"width": 30}, "`num_heads` must divide the width"),
        ({"ranks": (1, 1)}, "ranks"),
        ({"ranks": (2, 2), "block_sizes": (None, 4, 2)}, "block_sizes"),
        ({"patch_length": 25}, "`patch_length` must be at most"),
        ({"patch_length": 4, "patch_stride": 5}, "`patch_stride` must be at most"),
        ({"quantile_levels": (0.9, 0.1)}, "`quantile_levels` must increase"),
        ({"accelerator": "mps"}, "`accelerator` is 'mps'"),
    ],
)
def test_parameters_are_checked_without_data(parameters: dict[str, Any], message: str) -> None:
    changed = TINY | {"num_heads": 4 if "width" in parameters else 2} | parameters
    with pytest.raises((ValueError, TypeError), match=message):
        MLRForecaster(**changed).check_parameters()
    with pytest.raises((ValueError, TypeError), match=message):
        MLRForecaster(**changed).fit(wide())


def test_checking_parameters_of_any_size_takes_no_memory_and_draws_nothing() -> None:
    before = torch.get_rng_state()
    MLRForecaster(**TINY | {"width": 2 * 10**6}).check_parameters()
    MLRForecaster(**TINY | {"context_length": None}, backbone=Scale()).check_parameters()
    assert torch.equal(torch.get_rng_state(), before)
