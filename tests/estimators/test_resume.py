"""Whatever ends a process, starting it again brings what an unbroken one would have brought."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.atomic import DRAFT
from mlrforecast.training import ForecastModule
from tests.estimators.frames import TINY, long, wide
from tests.estimators.lives import STEPS, live
from tests.training.runs import weights

ROOT = Path(__file__).parents[2]

PROGRAM = """
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from tests.estimators.lives import live

folder, module, owner, name, count = sys.argv[1:]
place = import_module(module)
place = getattr(place, owner) if owner else place
plain, calls = getattr(place, name), []


def killing(*args, **kwargs):
    calls.append(name)
    if len(calls) == int(count):
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*args, **kwargs)


setattr(place, name, killing)
live(Path(folder))
"""

# What is called when the process is killed: module, class, function, and for which time; then the
# steps, of five fits, that are left. A fit writes 21 files, a save three, the card among them.
STEP = ("mlrforecast.training", "ForecastModule", "advance")
REPLACE = ("pathlib", "Path", "replace")
KILLED = {
    "in a step": (*STEP, 25, 5 * STEPS - 24),
    "between draft and checkpoint": (*REPLACE, 9, 5 * STEPS - 16),
    "between fit and save": ("mlrforecast.estimators._files", "", "save", 1, 4 * STEPS),
    "in save": (*REPLACE, 21 + 3, 4 * STEPS),
    "inside the second refit of a backtest": (*STEP, 2 * STEPS + 15, 3 * STEPS - 14),
    "between two refits of a backtest": (
        "mlrforecast.estimators._backtest",
        "",
        "forecast_windows",
        2,
        2 * STEPS,
    ),
    "in the refit of a calibration": (*STEP, 4 * STEPS + 15, STEPS - 14),
}


def sizes(folder: Path) -> dict[str, int]:
    """Name and size of all files below a folder; names of tensors tell what they hold."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


class KilledError(Exception):
    """Stands for the end of a process."""


@contextmanager
def counted_steps(kill: int | None = None) -> Iterator[list[ForecastModule]]:
    """Note each step that is made, and end a run in one of them."""
    plain, made = ForecastModule.advance, []

    def advance(module: ForecastModule) -> None:
        made.append(module)
        if len(made) == kill:
            raise KilledError
        plain(module)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForecastModule, "advance", advance)
        yield made


@contextmanager
def killed_in_step(number: int) -> Iterator[None]:
    with counted_steps(kill=number), pytest.raises(KilledError):
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("unbroken")
    return folder, live(folder)


@pytest.mark.parametrize("place", KILLED)
def test_a_life_that_was_killed_ends_like_an_unbroken_one(
    tmp_path: Path, unbroken: tuple[Path, Any], place: str
) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "work"
    program.write_text(PROGRAM)
    folder.mkdir()
    module, owner, name, count, rest = KILLED[place]
    done = subprocess.run(
        [sys.executable, program, folder, module, owner, name, str(count)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole_folder, (whole, expected) = unbroken
    left = sizes(folder)
    assert left
    assert left != sizes(whole_folder)
    drafts = [name for name in left if DRAFT in name]
    assert bool(drafts) == (name == "replace")
    with counted_steps() as made:
        forecaster, backtest = live(folder)
    assert len(made) == rest
    assert torch.equal(weights(forecaster.model_), weights(whole.model_))
    assert forecaster.num_steps_ == STEPS
    assert np.array_equal(backtest.forecast, expected.forecast)
    levels = {"quantile_levels": [0.1, 0.9]}
    pd.testing.assert_frame_equal(
        forecaster.predict(**levels), whole.predict(**levels), check_exact=True
    )
    loaded = MLRForecaster.load(folder / "model")
    assert torch.equal(weights(loaded.model_), weights(whole.model_))
    # The same checkpoints and model, and no draft of the process that died.
    assert sizes(folder) == sizes(whole_folder)


def test_checkpoints_change_nothing(unbroken: tuple[Path, Any], tmp_path: Path) -> None:
    forecaster, backtest = live(tmp_path, checkpoint_dir=None)
    _, (whole, expected) = unbroken
    assert torch.equal(weights(forecaster.model_), weights(whole.model_))
    assert np.array_equal(backtest.forecast, expected.forecast)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def forecaster_in(folder: Path | None, **parameters: Any) -> MLRForecaster:
    return MLRForecaster(**TINY | {"max_steps": 12, "checkpoint_dir": folder, **parameters})


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_same_fit_twice_is_done_at_once(tmp_path: Path) -> None:
    first = forecaster_in(tmp_path).fit(wide())
    with counted_steps() as made:
        # The folder may have another name, and what shows progress or rows in another order is
        # the same fit.
        again = forecaster_in(str(tmp_path), progress=True).fit(wide().iloc[::-1])
    assert made == []
    assert torch.equal(weights(again.model_), weights(first.model_))
    assert again.num_steps_ == 12
    assert len(files_in(tmp_path)) == 1


def test_two_fits_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    with killed_in_step(9):
        forecaster_in(tmp_path).fit(wide())
    with killed_in_step(5):
        forecaster_in(tmp_path, seed=1).fit(wide())
    for seed, rest in ((0, 12 - 8), (1, 12 - 4)):
        with counted_steps() as made:
            found = forecaster_in(tmp_path, seed=seed).fit(wide())
        assert len(made) == rest
        whole = forecaster_in(None, seed=seed).fit(wide())
        assert torch.equal(weights(found.model_), weights(whole.model_))
    assert len(files_in(tmp_path)) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 1),
        ("max_steps", 13),
        ("batch_size", 8),
        ("learning_rate", 2e-3),
        ("weight_decay", 0.1),
        ("parametrization", "mup"),
        ("schedule", "linear"),
        ("warmup_steps", 5),
        ("gradient_clip", None),
        ("ema_decay", 0.9),
        ("early_stopping", True),
        ("max_time", 1000),
        ("precision", "bf16-mixed"),
        ("dropout", 0.1),
        ("width", 16),
        ("loss", "mse"),
        ("scaling", "robust"),
        ("calendar", False),
        ("attention", "standard"),
    ],
)
def test_another_parameter_is_another_fit(tmp_path: Path, name: str, value: Any) -> None:
    forecaster_in(tmp_path).fit(wide())
    forecaster_in(tmp_path, **{name: value}).fit(wide())
    assert len(files_in(tmp_path)) == 2


def test_other_data_are_another_fit(tmp_path: Path) -> None:
    frame = long()
    static = {"static_covariates": ["kind"], "known_covariates": ["promo"]}
    frame = frame.assign(kind=frame["item_id"], promo=np.arange(len(frame)) % 3)
    value, missing, promo = frame.copy(), frame.copy(), frame.copy()
    value.loc[7, "target"] += 1e-9
    missing.loc[7, "target"] = np.nan
    # Two that change places: their mean, which the encoding holds, stays.
    promo.loc[[7, 8], "promo"] = promo.loc[[8, 7], "promo"].to_numpy()
    frames = {
        "the frame": frame,
        "a value": value,
        "a missing value": missing,
        "a covariate": promo,
        "a category": frame.replace({"kind": {"z": "y"}}),
        "a day later": frame.assign(timestamp=frame["timestamp"] + pd.Timedelta(days=1)),
        "a row less": frame.iloc[:-1],
    }
    for count, (name, changed) in enumerate(frames.items(), 1):
        forecaster_in(tmp_path, max_steps=1, **static).fit(changed)
        assert len(files_in(tmp_path)) == count, name


def test_a_partial_fit_goes_on_and_each_further_one_is_another(tmp_path: Path) -> None:
    newer = wide(100, seed=1)
    whole = forecaster_in(None).fit(wide()).partial_fit(newer)
    with killed_in_step(12 + 7):
        forecaster_in(tmp_path).fit(wide()).partial_fit(newer)
    resumed = forecaster_in(tmp_path, warm_start=True).fit(wide())
    # A fit that goes on from its own weights is a partial fit.
    resumed.fit(newer)
    assert torch.equal(weights(resumed.model_), weights(whole.model_))
    assert resumed.num_steps_ == 24
    assert len(files_in(tmp_path)) == 2
    resumed.fit(newer), whole.partial_fit(newer)
    assert torch.equal(weights(resumed.model_), weights(whole.model_))
    assert len(files_in(tmp_path)) == 3


class Backbone(nn.Module):
    """A user's own encoder, with dropout."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.3)
        values = torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))
        self.mix.weight.data.copy_(values / 3)

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return tokens + self.drop(torch.tanh(self.mix(tokens)))


@pytest.mark.usefixtures("seeded")
def test_a_backbone_of_the_users_goes_on_too(tmp_path: Path) -> None:
    backbone, other = Backbone(0), Backbone(1)
    whole = forecaster_in(None, backbone=backbone).fit(wide())
    with killed_in_step(7):
        forecaster_in(tmp_path, backbone=backbone).fit(wide())
    resumed = forecaster_in(tmp_path, backbone=backbone).fit(wide())
    assert torch.equal(weights(resumed.model_), weights(whole.model_))
    forecaster_in(tmp_path, backbone=other).fit(wide())
    assert len(files_in(tmp_path)) == 2
