"""Training on from what is there, memory counted before it starts, and settings that cannot be."""

import json
import random
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core import devices
from mlrforecast._core.errors import DataError, MissingDependencyError, ModelFileError
from mlrforecast.estimators import _document, _fitting
from mlrforecast.training import MemoryEstimate
from tests.estimators.frames import PREDICTION, TINY, long, wide
from tests.training.runs import weights

NEWER = wide(100, seed=1)


@pytest.fixture
def fitted(on_wide: MLRForecaster) -> MLRForecaster:
    return deepcopy(on_wide)


def equal(one: MLRForecaster, other: MLRForecaster) -> bool:
    """Whether two forecasters have the same weights to the bit."""
    return torch.equal(weights(one.model_), weights(other.model_))


def far(one: MLRForecaster, other: MLRForecaster) -> float:
    return float((weights(one.model_) - weights(other.model_)).abs().max())


class TestPartialFit:
    def test_weights_move_and_what_reads_a_frame_stays(self, fitted: MLRForecaster) -> None:
        before, parts = weights(fitted.model_), dict(vars(fitted))
        model = fitted.model_
        assert fitted.partial_fit(NEWER) is fitted
        assert not torch.equal(weights(fitted.model_), before)
        assert torch.equal(weights(model), before)
        for name in ("config_", "encoding_", "schema_", "freq_", "context_length_"):
            assert getattr(fitted, name) == parts[name], name
        assert fitted.num_steps_ == 6
        assert fitted.batch_size_ == 16
        assert not fitted.model_.training
        pd.testing.assert_frame_equal(fitted.predict(), fitted.predict(NEWER))

    def test_it_begins_with_the_weights_of_the_fit(self, fitted: MLRForecaster) -> None:
        """A rate that moves nothing leaves them, whatever the seed of first weights."""
        start = deepcopy(fitted)
        fitted.set_params(learning_rate=1e-9, seed=5).partial_fit(NEWER)
        # The regression is no weight of the network.
        for forecaster in (fitted, start):
            forecaster.model_.linear.weight.data.zero_()
        assert 0 < far(fitted, start) < 1e-6
        assert far(MLRForecaster(**TINY).fit(NEWER), MLRForecaster(**TINY, seed=5).fit(NEWER)) > 0.1

    def test_it_is_neither_a_fit_anew_nor_a_longer_one(self, fitted: MLRForecaster) -> None:
        fitted.partial_fit(NEWER)
        assert not equal(fitted, MLRForecaster(**TINY).fit(NEWER))
        assert not equal(fitted, MLRForecaster(**TINY | {"max_steps": 6}).fit(wide()))

    def test_forecasts_of_a_new_regime_improve(self) -> None:
        hours = np.arange(400)
        old, new = np.sin(hours * 2 * np.pi / 24), np.sign(np.sin(hours * 2 * np.pi / 9))
        options = {"max_steps": 100, "learning_rate": 1e-2, "dropout": 0.0, "calendar": False}
        forecaster = MLRForecaster(**TINY | options).fit(old)

        def error() -> float:
            ends = range(300, 390, 5)
            found = [forecaster.predict(new[:end]) - new[end : end + PREDICTION] for end in ends]
            return float(np.abs(found).mean())

        before = error()
        forecaster.partial_fit(new[:300])
        assert error() < 0.7 * before

    def test_a_calibration_is_dropped(self, fitted: MLRForecaster) -> None:
        fitted.calibrate(wide(), windows=5, refit=False)
        assert fitted.calibration_ is not None
        assert fitted.partial_fit(NEWER).calibration_ is None

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("prediction_length", 5),
            ("context_length", 12),
            ("target", "a"),
            ("known_covariates", ["b"]),
            ("calendar", False),
            ("freq", "D"),
            ("fill", "zero"),
            ("scaling", "robust"),
            ("attention", "standard"),
            ("attention_options", {"qk_norm": True}),
            ("ranks", (2, 2)),
            ("positions", "rotary"),
            ("patch_length", 2),
            ("width", 16),
            ("num_heads", 1),
            ("num_layers", 2),
            ("hidden_width", 16),
            ("dropout", 0.1),
            ("loss", "mse"),
            ("quantile_levels", (0.1, 0.5)),
            ("frequency_weight", 0.1),
        ],
    )
    @pytest.mark.usefixtures("no_training")
    def test_another_network_is_refused_by_name(
        self, fitted: MLRForecaster, name: str, value: Any
    ) -> None:
        before = weights(fitted.model_)
        fitted.set_params(**{name: value})
        with pytest.raises(ValueError, match=rf"^`{name}` is .*, but the network was fitted with"):
            fitted.partial_fit(NEWER)
        assert torch.equal(weights(fitted.model_), before)

    @pytest.mark.parametrize(
        ("options", "frame", "error"),
        [
            ({"learning_rate": 1e30}, NEWER, FloatingPointError),
            ({}, pd.concat([NEWER, NEWER]), DataError),
            ({}, NEWER.iloc[:1], DataError),
            ({}, NEWER.asfreq("2h"), DataError),
            ({}, NEWER.assign(a="text"), DataError),
            ({"early_stopping": True}, NEWER.iloc[:12], DataError),
            ({}, None, TypeError),
            ({"max_steps": 0}, NEWER, ValueError),
        ],
        ids=["diverged", "twice", "short", "freq", "text", "held back", "none", "parameter"],
    )
    def test_a_failure_leaves_all_as_it_was(
        self, fitted: MLRForecaster, options: dict[str, Any], frame: Any, error: type[Exception]
    ) -> None:
        fitted.calibrate(wide(), windows=5, refit=False)
        forecast = fitted.predict(quantile_levels=[0.1, 0.9])
        learnt = {name: part for name, part in vars(fitted).items() if name.endswith("_")}
        before = weights(fitted.model_)
        fitted.set_params(**options)
        with pytest.raises(error):
            fitted.partial_fit(frame)
        assert {name: part for name, part in vars(fitted).items() if name in learnt} == learnt
        assert torch.equal(weights(fitted.model_), before)
        pd.testing.assert_frame_equal(fitted.predict(quantile_levels=[0.1, 0.9]), forecast)

    def test_a_loaded_forecaster_goes_on_to_the_same_weights(
        self, fitted: MLRForecaster, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model").partial_fit(NEWER)
        assert equal(loaded, fitted.partial_fit(NEWER))
        assert loaded.num_steps_ == 6
        pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())

    def test_unfitted_it_is_a_fit(self) -> None:
        one, other = MLRForecaster(**TINY).partial_fit(wide()), MLRForecaster(**TINY).fit(wide())
        assert equal(one, other)
        assert one.num_steps_ == 3

    def test_series_and_columns_may_be_new(self, fitted: MLRForecaster) -> None:
        fitted.partial_fit(wide(columns=("q", "r", "s"), seed=2))
        assert list(fitted.feature_names_in_) == ["q", "r", "s"] == list(fitted.predict().columns)
        assert fitted.n_features_in_ == 3

    def test_items_may_be_new_and_a_category_unknown(self) -> None:
        roles = {"static_covariates": ["kind"], "known_covariates": ["promo"]}

        def frame(ids: tuple[str, ...], kinds: tuple[str, ...]) -> pd.DataFrame:
            made = long(ids, rows=(60, 60))
            promo = np.where(np.arange(len(made)) % 3, "no", "yes")
            return made.assign(
                kind=made["item_id"].map(dict(zip(ids, kinds, strict=True))), promo=promo
            )

        forecaster = MLRForecaster(**TINY | roles).fit(frame(("a", "b"), ("x", "y")))
        encoding, start = forecaster.encoding_, weights(forecaster.model_)
        newer = frame(("c", "d"), ("y", "z"))
        forecaster.partial_fit(newer.replace({"promo": {"yes": "perhaps"}}))
        assert forecaster.encoding_ == encoding
        assert not torch.equal(weights(forecaster.model_), start)
        future = pd.concat(
            group.assign(timestamp=group["timestamp"] + pd.Timedelta(hours=60)).head(PREDICTION)
            for _, group in newer.groupby("item_id")
        )
        forecast = forecaster.predict(future=future)
        assert list(forecast["item_id"].unique()) == ["c", "d"]
        assert np.isfinite(forecast["target"]).all()

    def test_y_is_refused(self, fitted: MLRForecaster) -> None:
        with pytest.raises(ValueError, match="`y` must be None"):
            fitted.partial_fit(NEWER, np.ones(3))


def test_warm_start_goes_on_and_a_plain_fit_begins_anew(fitted: MLRForecaster) -> None:
    again = deepcopy(fitted).fit(wide())
    assert equal(again, fitted)
    assert again.num_steps_ == 3
    warm = MLRForecaster(**TINY, warm_start=True).fit(wide())
    assert equal(warm, fitted)
    warm.fit(NEWER)
    assert equal(warm, deepcopy(fitted).partial_fit(NEWER))
    assert warm.num_steps_ == 6
    # Another network can only begin anew.
    with pytest.raises(ValueError, match="`width` is 16, but the network was fitted with 8"):
        warm.set_params(width=16).fit(NEWER)


@pytest.mark.parametrize("size", [256, 1024])
def test_the_batch_size_is_found(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """As many windows as fill four fifths of the memory, and no more than there are."""
    frame = wide(120 if size == 256 else 2000)
    forecaster = MLRForecaster(**TINY | {"batch_size": "auto", "max_steps": 1})
    fits = clone(forecaster).set_params(batch_size=1024).estimate_memory(frame).total
    monkeypatch.setattr(_fitting, "available_memory", lambda _: int(1.01 * fits / 0.8))
    assert forecaster.fit(frame).batch_size_ == size
    assert forecaster.batch_size == "auto"
    assert equal(forecaster, clone(forecaster).set_params(batch_size=size).fit(frame))


class TestMemory:
    def test_an_estimate_counts_and_leaves_no_trace(self, fitted: MLRForecaster) -> None:
        unfitted = MLRForecaster(**TINY)
        found = unfitted.estimate_memory(wide())
        assert isinstance(found, MemoryEstimate)
        assert not [name for name in vars(unfitted) if name.endswith("_")]
        assert found.gradients == 4 * fitted.num_parameters_
        before = weights(fitted.model_)
        assert fitted.estimate_memory(wide()) == found
        assert torch.equal(weights(fitted.model_), before)

    def test_it_grows_with_the_windows_of_a_step_and_shrinks_with_devices(self) -> None:
        sizes = [
            MLRForecaster(**TINY | {"batch_size": size, "devices": devices})
            .estimate_memory(wide())
            .activations
            for size, devices in ((1024, 1), (2048, 1), (2048, 2))
        ]
        assert 1.8 < sizes[1] / sizes[0] < 2.2
        assert sizes[2] == sizes[0]

    @pytest.mark.usefixtures("no_training")
    def test_bad_frames_and_parameters_are_refused(self) -> None:
        with pytest.raises(DataError, match="at least 2 rows"):
            MLRForecaster(**TINY).estimate_memory(wide(1))
        with pytest.raises(ValueError, match="max_steps"):
            MLRForecaster(**TINY | {"max_steps": 0}).estimate_memory(wide())

    @pytest.mark.usefixtures("no_training")
    @pytest.mark.parametrize("batch_size", [16, "auto"])
    def test_too_little_is_refused_before_the_first_step(
        self, fitted: MLRForecaster, monkeypatch: pytest.MonkeyPatch, batch_size: Any
    ) -> None:
        monkeypatch.setattr(_fitting, "available_memory", lambda _: 10_000)
        fitted.set_params(batch_size=batch_size)
        for train in (MLRForecaster(**TINY).fit, fitted.fit, fitted.partial_fit):
            with pytest.raises(MemoryError, match=r"needs about .* weights .* available. Lower"):
                train(wide())
        assert fitted.num_steps_ == 3
        assert len(fitted.predict()) == PREDICTION


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"precision": "16-mixed"}, "`precision`='16-mixed' needs a GPU"),
    ({"precision": "64-true"}, "'precision' .* Got '64-true'"),
    ({"precision": 32}, "'precision' .* Got 32"),
    ({"devices": 0}, "'devices' .* Got 0"),
    ({"devices": 2.0}, "'devices' .* Got 2.0"),
    ({"devices": True}, "`devices` must be a number, got True"),
    ({"devices": 3}, r"`batch_size` must be a multiple of `devices` \(3\), .* got 16"),
    ({"batch_size": "big"}, "'batch_size' .* Got 'big'"),
    ({"batch_size": 0}, "'batch_size' .* Got 0"),
    ({"batch_size": True}, "`batch_size` must be a number, got True"),
    ({"schedule": "step"}, "'schedule' .* Got 'step'"),
    ({"warmup_steps": -1}, "'warmup_steps' .* Got -1"),
    ({"warmup_steps": 4}, r"`warmup_steps` must be at most `max_steps` \(3\), got 4"),
    ({"warmup_steps": 1.5}, "'warmup_steps' .* Got 1.5"),
    ({"gradient_clip": 0.0}, "'gradient_clip' .* Got 0.0"),
    ({"gradient_clip": float("nan")}, "'gradient_clip' .* Got nan"),
    ({"ema_decay": 0.0}, "'ema_decay' .* Got 0.0"),
    ({"ema_decay": 1.0}, "'ema_decay' .* Got 1.0"),
    ({"ema_decay": float("nan")}, "'ema_decay' .* Got nan"),
    ({"ema_decay": True}, "`ema_decay` must be a number, got True|'ema_decay'"),
    ({"compile": "yes"}, "'compile' .* Got 'yes'"),
    ({"warm_start": "yes"}, "'warm_start' .* Got 'yes'"),
    ({"checkpoint_dir": 3}, "'checkpoint_dir' .* Got 3"),
    ({"log_dir": 3, "logger": "csv"}, "'log_dir' .* Got 3"),
    ({"logger": "csv"}, r"`logger` and `log_dir` go together.* got \('csv',\) and None"),
    ({"log_dir": "logs"}, "`logger` and `log_dir` go together"),
    ({"logger": [], "log_dir": "logs"}, "`logger` and `log_dir` go together"),
    ({"logger": "wandb", "log_dir": "logs"}, "`logger` must be among csv, .*, got 'wandb'"),
    ({"logger": ["csv", 3], "log_dir": "logs"}, "`logger` must be among csv, .*, got 3"),
    ({"logger": 3, "log_dir": "logs"}, "'logger' .* Got 3"),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("settings", "words"), WRONG, ids=[str(entry[0]) for entry in WRONG])
def test_settings_that_cannot_be_are_named_before_training(
    settings: dict[str, Any], words: str
) -> None:
    forecaster = MLRForecaster(**TINY | settings)
    for check in (forecaster.check_parameters, lambda: forecaster.fit(wide())):
        with pytest.raises((TypeError, ValueError), match=words):
            check()
    assert not hasattr(forecaster, "model_")


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("kind", "there"), [("cuda", 1), ("mps", 1), ("cuda", 3)])
def test_devices_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, there: int
) -> None:
    monkeypatch.setattr(devices, "find_device", lambda _: torch.device(kind))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    with pytest.raises(ValueError, match=f"`devices` is 4, but torch finds {there} .*'{kind}'"):
        MLRForecaster(**TINY | {"devices": 4}).check_parameters()
    MLRForecaster(**TINY | {"devices": there, "batch_size": 12}).check_parameters()


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_logger_whose_package_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    forecaster = MLRForecaster(**TINY | {"logger": ["csv", name], "log_dir": tmp_path})
    with pytest.raises(MissingDependencyError, match=rf"'{name}'.*mlrforecast\[loggers\]"):
        forecaster.fit(wide())
    assert list(tmp_path.iterdir()) == []


SETTINGS: dict[str, Any] = {
    "batch_size": "auto",
    "schedule": "linear",
    "warmup_steps": 1,
    "gradient_clip": None,
    "ema_decay": 0.9,
    "early_stopping": True,
    "max_time": timedelta(minutes=1),
    "devices": 1,
    "precision": "bf16-mixed",
    "compile": False,
    "warm_start": True,
}


class TestStored:
    """What is kept of the settings, in clones and in files."""

    def test_settings_come_back_but_for_where_to_write(self, tmp_path: Path) -> None:
        local = {
            "checkpoint_dir": tmp_path / "secret-a",
            "log_dir": str(tmp_path / "secret-b"),
            "logger": ["csv"],
        }
        forecaster = MLRForecaster(**TINY | SETTINGS | local)
        copied = clone(forecaster)
        given = SETTINGS | local
        assert {name: copied.get_params()[name] for name in given} == given
        forecaster.fit(wide()).save(tmp_path / "model")
        for file in (tmp_path / "model").iterdir():
            assert b"secret" not in file.read_bytes(), file.name
        stored = json.loads((tmp_path / "model" / "config.json").read_text())["parameters"]
        assert not stored.keys() & local.keys()
        loaded = MLRForecaster.load(tmp_path / "model")
        found = loaded.get_params()
        assert {name: found[name] for name in SETTINGS} == SETTINGS
        assert {name: found[name] for name in local} == dict.fromkeys(local)
        assert loaded.batch_size_ == forecaster.batch_size_ == 256

    @pytest.mark.parametrize("name", ["checkpoint_dir", "log_dir", "logger"])
    @pytest.mark.parametrize("value", ["elsewhere", None])
    def test_a_file_that_says_where_to_write_is_refused(
        self, fitted: MLRForecaster, tmp_path: Path, name: str, value: str | None
    ) -> None:
        fitted.save(tmp_path)
        file = tmp_path / "config.json"
        document = json.loads(file.read_text())
        document["parameters"][name] = value
        file.write_bytes(_document.write_document(document))
        with pytest.raises(ModelFileError, match=f"must not say where to write: {name}"):
            MLRForecaster.load(tmp_path)
        # The rest of that file is sound: without the name it loads.
        del document["parameters"][name]
        file.write_bytes(_document.write_document(document))
        assert MLRForecaster.load(tmp_path).num_steps_ == 3


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize(
    "options",
    [{}, {"early_stopping": True}, {"ema_decay": 0.9, "parametrization": "mup"}],
    ids=str,
)
def test_fits_are_equal_to_the_bit_whatever_was_drawn_before(options: dict[str, Any]) -> None:
    def draw(count: int) -> None:
        random.random(), torch.rand(count), np.random.rand(count)  # noqa: NPY002

    def states() -> tuple[Any, ...]:
        _, keys, *rest = np.random.get_state()  # noqa: NPY002
        return random.getstate(), keys.tolist(), rest, torch.get_rng_state().tolist()

    def life() -> tuple[MLRForecaster, Any]:
        before = states()
        made = MLRForecaster(**TINY | options).fit(wide()).partial_fit(NEWER)
        forecasts = made.predict(quantile_levels=[0.1]), made.predict_samples(num_samples=3)
        made.estimate_memory(wide())
        assert states() == before
        return made, forecasts

    one, forecasts = life()
    draw(17)
    other, again = life()
    assert equal(one, other)
    for found, expected in zip(again, forecasts, strict=True):
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert not equal(one, MLRForecaster(**TINY | options, seed=1).fit(wide()).partial_fit(NEWER))


def test_a_backbone_is_trained_on_too(seeded: None) -> None:
    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(8, 8)

        def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
            return self.mix(tokens)

    given = Backbone()
    before = given.mix.weight.clone()
    forecaster = MLRForecaster(**TINY, backbone=given).fit(wide())
    start = deepcopy(forecaster)
    forecaster.partial_fit(NEWER)
    assert not torch.equal(forecaster.model_.backbone.mix.weight, start.model_.backbone.mix.weight)
    assert torch.equal(given.mix.weight, before)


class TanhNet(nn.Sequential):
    """A backbone."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.Tanh())

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return super().forward(tokens)


class ReluNet(TanhNet):
    """Another one, with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self[1] = nn.ReLU()


def test_backbones_with_equal_weights_are_different_fits(seeded: None, tmp_path: Path) -> None:
    one, other = TanhNet(), ReluNet()
    other.load_state_dict(one.state_dict())
    for backbone in (one, other):
        MLRForecaster(**TINY | {"backbone": backbone, "checkpoint_dir": tmp_path}).fit(wide())
    assert len(list(tmp_path.iterdir())) == 2


def test_another_backbone_is_refused(seeded: None, tmp_path: Path) -> None:
    fitted = MLRForecaster(**TINY).fit(wide()).set_params(backbone=TanhNet())
    with pytest.raises(ValueError, match=r"`backbone` is of the class TanhNet, but .* Encoder"):
        fitted.partial_fit(wide())
    with pytest.raises(ValueError, match=r"`backbone` is of the class TanhNet"):
        fitted.save(tmp_path / "model")
