"""A run that was cut short goes on from its checkpoint, to the same weights."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from lightning.pytorch.callbacks import EarlyStopping

from mlrforecast._core.errors import ModelFileError
from mlrforecast.models import EncoderForecaster
from mlrforecast.training import Checkpoint, TrainingOptions, _keeper, isolated_seed, train
from mlrforecast.training._keeper import STOPPER
from tests.training.runs import model_of, store_of, weights

RUN = "0123456789abcdef" * 4


class KilledError(Exception):
    """Stands for the end of a process."""


@contextmanager
def killed_after(count: int) -> Iterator[None]:
    """End a run as soon as it has written so many checkpoints."""
    plain, written = Checkpoint.write, []

    def write(self: Checkpoint, progress: Any) -> None:
        plain(self, progress)
        written.append(progress)
        if len(written) == count:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", write)
        yield


def fit(folder: Path | None = None, **options: Any) -> tuple[EncoderForecaster, int]:
    """Train a network with dropout, whose steps all draw random numbers."""
    given = {"max_steps": 47, "batch_size": 16, "learning_rate": 1e-2, "accelerator": "cpu"}
    settings = TrainingOptions(**{**given, "progress": False, **options})
    validation = store_of(200, seed=1) if settings.early_stopping else None
    checkpoint = None if folder is None else Checkpoint(folder, RUN)
    model = model_of(dropout=0.3)
    with isolated_seed(3):
        steps = train(model, store_of(), settings, validation=validation, checkpoint=checkpoint)
    return model, steps


STOPPING = {"early_stopping": True, "max_steps": 80}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear": {"schedule": "linear", "warmup_steps": 9, "gradient_clip": None},
    "early stopping": {**STOPPING, "patience": 3, "learning_rate": 0.1},
    "early stopping, to the end": {**STOPPING, "max_steps": 47, "patience": 100},
    "average": {"ema_decay": 0.9},
    "average, early stopping": {**STOPPING, "ema_decay": 0.9},
    "bfloat16": {"precision": "bf16-mixed"},
    "muP": {"parametrization": "mup", "weight_decay": 0.1},
}


@pytest.mark.parametrize("count", [1, 4, 20])
@pytest.mark.parametrize("case", CASES)
def test_the_weights_are_those_of_an_unbroken_run(tmp_path: Path, case: str, count: int) -> None:
    options = CASES[case]
    whole, steps = fit(**options)
    # A run that stops early may end before; then nothing is interrupted, and that must work too.
    with killed_after(count):
        try:
            fit(tmp_path, **options)
        except KilledError:
            assert not Checkpoint(tmp_path, RUN).read().finished
    resumed, again = fit(tmp_path, **options)
    assert torch.equal(weights(resumed), weights(whole))
    assert again == steps
    assert not resumed.training


def test_a_run_interrupted_again_and_again_ends_the_same(tmp_path: Path) -> None:
    whole, _ = fit()
    for _ in range(7):
        with killed_after(3), pytest.raises(KilledError):
            fit(tmp_path)
    resumed, steps = fit(tmp_path)
    assert torch.equal(weights(resumed), weights(whole))
    assert steps == 47


@pytest.mark.parametrize("part", ["module", "optimizer", "random"])
def test_every_part_of_a_checkpoint_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The tests above would find a checkpoint that lacks a part: what it holds is not idle."""
    whole, _ = fit()
    with killed_after(8), pytest.raises(KilledError):
        fit(tmp_path)
    plain = Checkpoint.read

    def spoilt(self: Checkpoint) -> Any:
        progress = plain(self)
        for name, value in progress.tensors.items():
            if name.split(".")[0] == part and value.is_floating_point():
                value.mul_(0.5)
        if part == "random":
            generator = torch.Generator().manual_seed(11)
            progress.tensors["random.cpu"] = generator.get_state().unsqueeze(0)
        return progress

    monkeypatch.setattr(Checkpoint, "read", spoilt)
    resumed, _ = fit(tmp_path)
    assert not torch.equal(weights(resumed), weights(whole))


def test_early_stopping_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[dict[str, Any]] = []

    def note(self: _keeper.Keeper, *_: Any) -> None:
        state = {"seconds": self.seconds, "loss": self.best_loss, "best": dict(self.best)}
        names = (*STOPPER, "best_score")
        kept.append(state | {name: self.stopper.state_dict()[name] for name in names})

    monkeypatch.setattr(_keeper.Keeper, "on_exception", note)
    with killed_after(8), pytest.raises(KilledError):
        fit(tmp_path, **STOPPING, patience=10)
    monkeypatch.setattr(_keeper.Keeper, "on_train_start", note)
    fit(tmp_path, **STOPPING, patience=10)
    before, after = kept
    assert 0 < after["seconds"] < 60
    assert after["loss"] == before["loss"] == pytest.approx(float(after["best_score"]))
    assert after["wait_count"] == before["wait_count"]
    assert after["best"].keys() == before["best"].keys()
    assert all(torch.equal(after["best"][name], value) for name, value in before["best"].items())


def test_a_run_that_has_ended_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, steps = fit(tmp_path)

    def begin(*_: Any) -> None:
        raise AssertionError("A step was made.")

    monkeypatch.setattr(_keeper.Keeper, "on_train_start", begin)
    second, again = fit(tmp_path)
    assert torch.equal(weights(first), weights(second))
    assert again == steps == 47


def test_a_run_with_checkpoints_equals_one_without(tmp_path: Path) -> None:
    assert torch.equal(weights(fit(tmp_path)[0]), weights(fit()[0]))


def test_the_time_that_was_used_counts(tmp_path: Path) -> None:
    options = {"max_steps": 10_000, "max_time": timedelta(seconds=0.2)}
    checkpoint = Checkpoint(tmp_path, RUN)
    with killed_after(1), suppress(KilledError):
        fit(tmp_path, max_steps=10_000)
    progress = checkpoint.read()
    assert progress.numbers["seconds"] > 0
    progress.numbers["seconds"] = 0.3
    checkpoint.write(progress)
    _, steps = fit(tmp_path, **options)
    assert steps == progress.numbers["num_steps"] == 500


def test_a_checkpoint_holds_tensors_numbers_and_text_only(tmp_path: Path) -> None:
    with killed_after(5), pytest.raises(KilledError):
        fit(tmp_path, **STOPPING)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    assert set(metadata) == {"format", "run", "numbers", "sha256"}
    for value in json.loads(metadata["numbers"]).values():
        assert isinstance(value, (bool, int, float, str)) or value in ({}, None)
    # Nothing behind the header but the numbers of the tensors.
    sizes = [value.nbytes for value in safetensors.torch.load(content).values()]
    assert len(content) == 8 + length + sum(sizes)


class TestHarm:
    """Files that are no checkpoint of this run are refused before a step is made."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        with killed_after(5), pytest.raises(KilledError):
            fit(tmp_path)
        return Checkpoint(tmp_path, RUN).path

    @pytest.mark.parametrize("place", [0, 9, 200, -1])
    def test_a_changed_byte(self, file: Path, place: int) -> None:
        content = bytearray(file.read_bytes())
        content[place] ^= 1
        file.write_bytes(content)
        self._check_refused(file)

    @pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
    def test_a_file_that_was_cut_short(self, file: Path, share: float) -> None:
        content = file.read_bytes()
        file.write_bytes(content[: int(share * len(content))])
        self._check_refused(file)

    def test_the_file_of_another_run(self, file: Path) -> None:
        progress = Checkpoint(file.parent, RUN).read()
        other = Checkpoint(file.parent, RUN[:12] + "f" * 52)
        assert other.path == file
        other.write(progress)
        self._check_refused(file)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("module.model.head.point.weight", lambda value: value[:1]),
            ("optimizer.0.exp_avg", lambda value: value.flatten()),
            ("optimizer.0.exp_avg", lambda value: value[:0]),
            ("random.cpu", lambda value: value[:, :5]),
            ("losses", lambda value: None),
            ("module.num_steps", lambda value: None),
        ],
    )
    def test_tensors_that_do_not_fit(self, file: Path, name: str, change: Any) -> None:
        checkpoint = Checkpoint(file.parent, RUN)
        progress = checkpoint.read()
        changed = change(progress.tensors.pop(name))
        if changed is not None:
            progress.tensors[name] = changed
        checkpoint.write(progress)
        self._check_refused(file)

    @pytest.mark.parametrize("steps", [-1, 48, 10**30, "7", None, 1.5])
    def test_steps_that_are_none(self, file: Path, steps: Any) -> None:
        checkpoint = Checkpoint(file.parent, RUN)
        progress = checkpoint.read()
        progress.numbers["num_steps"] = steps
        checkpoint.write(progress)
        self._check_refused(file)

    @pytest.mark.parametrize("content", [b"", b"\x80\x04N.", b"PK\x03\x04" * 9, b"{" * 10**5])
    def test_files_of_another_kind(self, file: Path, content: bytes) -> None:
        file.write_bytes(content)
        self._check_refused(file)

    def _check_refused(self, file: Path) -> None:
        before = file.read_bytes()
        with pytest.raises(ModelFileError, match=r"cannot be used: .* Remove the file to start"):
            fit(file.parent)
        assert file.read_bytes() == before


def test_drafts_of_a_killed_process_go(tmp_path: Path) -> None:
    draft = tmp_path / f".mlrforecast-draft-{Checkpoint(tmp_path, RUN).path.name}-0123"
    draft.write_bytes(b"half")
    fit(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [Checkpoint(tmp_path, RUN).path.name]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("mine")
    with pytest.raises(OSError, match="file"):
        fit(place)
    assert place.read_text() == "mine"


def test_early_stopping_is_lightnings(tmp_path: Path) -> None:
    """What a checkpoint keeps of it is all of its state that decides something."""
    state = EarlyStopping("validation_loss").state_dict()
    reasons = {"stopping_reason", "stopping_reason_message"}
    assert state.keys() - reasons == {"best_score", *STOPPER}


def test_a_finished_checkpoint_does_not_carry_the_optimiser(tmp_path: Path) -> None:
    fit(tmp_path)
    progress = Checkpoint(tmp_path, RUN).read()
    assert {name.split(".")[0] for name in progress.tensors} == {"model"}
    assert np.isfinite(progress.numbers["num_steps"])
