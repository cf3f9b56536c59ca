"""Saved forecasters: whole or not at all, without data, and never executed."""

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError, ModelFileError
from mlrforecast.estimators import _files
from tests.estimators.frames import CONTEXT, TINY, long, wide

FILES = ["config.json", "model.safetensors"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def saved(on_wide: MLRForecaster, tmp_path: Path) -> Path:
    on_wide.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def saved_with_context(on_wide: MLRForecaster, tmp_path: Path) -> Path:
    on_wide.save(tmp_path / "with context", with_context=True)
    return tmp_path / "with context"


class TestRoundTrip:
    def test_weights_are_equal_to_the_bit(self, on_wide: MLRForecaster, saved: Path) -> None:
        assert names(saved) == FILES
        loaded = MLRForecaster.load(saved)
        state = loaded.model_.state_dict()
        assert state.keys() == on_wide.model_.state_dict().keys()
        for name, value in on_wide.model_.state_dict().items():
            assert torch.equal(value, state[name])
        levels = {"quantile_levels": (0.15, 0.9)}
        assert_frame_equal(loaded.predict(wide(), **levels), on_wide.predict(**levels))
        assert loaded.config_ == on_wide.config_
        assert not loaded.model_.training

    @pytest.mark.parametrize(
        "parameters",
        [
            {"loss": "mse", "attention": "standard", "patch_length": 4, "patch_stride": 2},
            {"ranks": (2, 2), "block_sizes": (None, 4), "max_time": 5, "seed": 9},
            {"quantile_levels": (0.05, 0.5), "max_time": timedelta(minutes=2)},
        ],
        ids=["patches", "levels", "quantiles"],
    )
    def test_every_parameter_comes_back(self, tmp_path: Path, parameters: dict[str, Any]) -> None:
        fitted = MLRForecaster(**TINY | parameters).fit(wide())
        fitted.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model")
        assert loaded.get_params() == fitted.get_params()
        assert clone(loaded).fit(wide()).predict().equals(fitted.predict())
        assert loaded.num_steps_ == fitted.num_steps_
        # What was loaded can be saved and loaded again.
        loaded.save(tmp_path / "again")
        for name in FILES:
            assert (tmp_path / "again" / name).read_bytes() == (
                tmp_path / "model" / name
            ).read_bytes()

    def test_a_moved_folder_loads(self, on_wide: MLRForecaster, saved: Path) -> None:
        moved = saved.rename(saved.with_name("ümläut and space"))
        assert MLRForecaster.load(str(moved)).predict(wide()).equals(on_wide.predict())

    def test_without_its_context_the_frame_is_needed(self, saved: Path) -> None:
        loaded = MLRForecaster.load(saved)
        for call in (loaded.predict, loaded.plot):
            with pytest.raises(ValueError, match=r"`X` is needed.*without its context"):
                call()
        with pytest.raises(ValueError, match="`with_context` needs a context"):
            loaded.save(saved, with_context=True)

    @pytest.mark.parametrize(
        "frame",
        [
            wide(),
            wide(columns=(3, "b")),
            wide(15),
            wide().tz_localize("Europe/Paris"),
            wide().tz_localize("+05:30"),
            wide(freq="QS-OCT"),
            long(),
            long(ids=(3, 1, 2), names=("unique_id", "ds", "y")),
        ],
        ids=["wide", "int", "short", "zone", "offset", "quarters", "long", "long-int"],
    )
    def test_with_context_the_forecast_goes_on(self, tmp_path: Path, frame: pd.DataFrame) -> None:
        frame.iloc[-4, -1] = np.nan
        fitted = MLRForecaster(**TINY).fit(frame)
        fitted.save(tmp_path / "model", with_context=True)
        assert names(tmp_path / "model") == ["config.json", "context.safetensors", FILES[1]]
        loaded = MLRForecaster.load(tmp_path / "model")
        levels = {"quantile_levels": (0.2, 0.5)}
        assert_frame_equal(loaded.predict(**levels), fitted.predict(**levels), check_names=False)

    def test_names_that_cannot_be_stored(self, tmp_path: Path) -> None:
        fitted = MLRForecaster(**TINY).fit(wide(columns=("a", 1.5)))
        with pytest.raises(DataError, match=r"Only text and integers .* got 1.5 of type float"):
            fitted.save(tmp_path / "model", with_context=True)
        assert not list(tmp_path.iterdir())
        fitted.save(tmp_path / "model")

    def test_loading_leaves_the_random_state(self, saved: Path) -> None:
        before = torch.get_rng_state()
        MLRForecaster.load(saved)
        assert torch.equal(torch.get_rng_state(), before)


class TestPrivacy:
    SENTINEL = 123456.78125

    def found(self, folder: Path) -> bool:
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        spelled = [struct.pack(kind, self.SENTINEL) for kind in ("<f", "<d", ">f", ">d")]
        return any(part in content for part in [*spelled, b"123456", b"secret", b"2024"])

    @pytest.mark.parametrize("form", ["wide", "long"])
    def test_no_data_without_context(self, tmp_path: Path, form: str) -> None:
        frame = (
            wide(columns=("secret a", "secret b")) if form == "wide" else long(("secret",), (80,))
        )
        frame.iloc[-3:, -1] = self.SENTINEL
        fitted = MLRForecaster(**TINY).fit(frame)
        fitted.save(tmp_path / "without")
        fitted.save(tmp_path / "with", with_context=True)
        assert not self.found(tmp_path / "without")
        assert self.found(tmp_path / "with")

    def test_only_the_newest_rows_with_context(self, tmp_path: Path) -> None:
        frame = wide()
        frame.iloc[-CONTEXT - 1, 0] = self.SENTINEL
        MLRForecaster(**TINY).fit(frame).save(tmp_path / "model", with_context=True)
        assert not self.found(tmp_path / "model")


class TestTarget:
    def test_an_earlier_model_is_replaced_whole(
        self, on_long: MLRForecaster, saved_with_context: Path
    ) -> None:
        on_long.save(saved_with_context)
        assert names(saved_with_context) == FILES
        loaded = MLRForecaster.load(saved_with_context)
        assert loaded.predict(long()).equals(on_long.predict())
        assert names(saved_with_context.parent) == [saved_with_context.name]

    def test_parents_are_made_and_an_empty_folder_is_taken(
        self, on_wide: MLRForecaster, tmp_path: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        for path in (tmp_path / "new" / "deep" / "model", tmp_path / "empty"):
            on_wide.save(path)
            assert names(path) == FILES

    @pytest.mark.parametrize("content", ["text", "config", "config and weights", "with a note"])
    def test_folders_of_others_are_left_alone(
        self, on_wide: MLRForecaster, tmp_path: Path, content: str
    ) -> None:
        folder = tmp_path / "mine"
        folder.mkdir()
        if content == "with a note":
            on_wide.save(folder)
        files = {
            "text": {"notes.txt": "x"},
            "config": {"config.json": "{}"},
            "config and weights": {"config.json": '{"model_type": "t5"}', FILES[1]: "w"},
            "with a note": {"notes.txt": "x"},
        }
        for name, text in files[content].items():
            (folder / name).write_text(text)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(FileExistsError, match="is no saved forecaster; it is left alone"):
            on_wide.save(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert names(tmp_path) == ["mine"]

    def test_a_file_is_left_alone(self, on_wide: MLRForecaster, tmp_path: Path) -> None:
        (tmp_path / "model").write_text("x")
        with pytest.raises(FileExistsError, match="it is left alone"):
            on_wide.save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "x"

    @pytest.mark.parametrize("stage", ["write", "hash", "rename"])
    @pytest.mark.parametrize("earlier", [False, True])
    def test_a_failure_leaves_what_was_there(
        self,
        on_wide: MLRForecaster,
        on_long: MLRForecaster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        stage: str,
        earlier: bool,
    ) -> None:
        if earlier:
            on_long.save(tmp_path / "model")
        calls = []

        def full(*args: Any) -> None:
            calls.append(args)
            raise OSError("No space left on device")

        def second_rename(self: Path, target: Path) -> Path:
            calls.append(target)
            if target.name == "model" and len(calls) <= 2:
                raise OSError("No space left on device")
            shutil.move(self, target)
            return target

        with monkeypatch.context() as patch:
            if stage == "rename":
                patch.setattr(Path, "rename", second_rename)
            else:
                patch.setattr(_files, {"write": "save_file", "hash": "_sha256"}[stage], full)
            with pytest.raises(OSError, match="No space left"):
                on_wide.save(tmp_path / "model", with_context=True)
        assert calls
        assert names(tmp_path) == (["model"] if earlier else [])
        if earlier:
            assert names(tmp_path / "model") == FILES
            assert MLRForecaster.load(tmp_path / "model").predict(long()).equals(on_long.predict())


class Doubled(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return tokens + self.map(tokens)


class TestBackbone:
    def test_is_given_again_at_load(self, seeded: None, tmp_path: Path) -> None:
        fitted = MLRForecaster(**TINY, backbone=Doubled()).fit(wide())
        fitted.save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"custom backbone 'Doubled'.*pass a module"):
            MLRForecaster.load(tmp_path / "model")
        given = Doubled()
        before = given.map.weight.clone()
        loaded = MLRForecaster.load(tmp_path / "model", backbone=given)
        assert loaded.predict(wide()).equals(fitted.predict())
        assert loaded.backbone is given
        assert torch.equal(given.map.weight, before)
        for wrong in (Doubled(16), nn.Identity()):
            with pytest.raises(ModelFileError, match="cannot be built from its files"):
                MLRForecaster.load(tmp_path / "model", backbone=wrong)

    def test_is_refused_where_there_was_none(self, saved: Path) -> None:
        with pytest.raises(ModelFileError, match="has no custom backbone"):
            MLRForecaster.load(saved, backbone=nn.Identity())


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the configuration in place, or put what ``change`` returns in its stead."""
    document = json.loads((folder / "config.json").read_text())
    changed = change(document)
    (folder / "config.json").write_text(json.dumps(document if changed is None else changed))


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "list": lambda _: [1, 2],
    "text": lambda _: "mlrforecast",
    "null": lambda _: {"format": None},
    "another format": lambda d: d.update(format=2),
    "format as text": lambda d: d.update(format="1"),
    "extra key": lambda d: d.update(hook="os.system"),
    "no weights listed": lambda d: d.update(sha256={}),
    "sha256 as list": lambda d: d.update(sha256=["model.safetensors"]),
    "path outside": lambda d: d.update(sha256={"../other": "0"}),
    "context not listed": lambda d: d.update(context={"form": "wide"}),
    "parameters as list": lambda d: d.update(parameters=[1]),
    "unknown parameter": lambda d: d["parameters"].update(callback="os.system"),
    "backbone as parameter": lambda d: d["parameters"].update(backbone="torch.nn.Identity"),
    "no parameters": lambda d: d.update(parameters={}),
    "parameter out of range": lambda d: d["parameters"].update(max_steps=-1),
    "time as text": lambda d: d["parameters"].update(max_time={"seconds": "x"}),
    "time without end": lambda d: d["parameters"].update(max_time={"days": 1}),
    "self": lambda d: d["parameters"].update(self=1),
    "config as text": lambda d: d.update(config="x"),
    "unknown field": lambda d: d["config"].update(target="builtins.eval"),
    "unknown attention": lambda d: d["config"].update(attention="os.system"),
    "unknown loss": lambda d: d["config"].update(loss="__import__"),
    "width as text": lambda d: d["config"].update(width="8"),
    "width of another model": lambda d: d["config"].update(width=16),
    "stride of zero": lambda d: d["config"].update(patch_stride=0),
    "levels of zero": lambda d: d["config"].update(quantile_levels=[0] * 9),
    "levels as number": lambda d: d["config"].update(quantile_levels=3),
    "frequency as list": lambda d: d.update(freq=["h"]),
    "unknown frequency": lambda d: d.update(freq="fortnight"),
    "no frequency": lambda d: d.update(freq=None),
    "steps as text": lambda d: d.update(num_steps="many"),
    "steps as list": lambda d: d.update(num_steps=[]),
    "backbone as list": lambda d: d.update(backbone=["Doubled"]),
    "library of others": lambda d: d.update(library=None),
}

HOSTILE_CONTEXTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as list": lambda d: d.update(context=[1]),
    "form": lambda d: d["context"].update(form="tall"),
    "long form": lambda d: d["context"].update(form="long"),
    "names": lambda d: d["context"].update(names=["a"]),
    "labels": lambda d: d["context"].update(labels=["a"]),
    "labels of lists": lambda d: d["context"].update(labels=[["a"], ["b"]]),
    "lengths": lambda d: d["context"].update(lengths=[7]),
    "negative lengths": lambda d: d["context"].update(lengths=[-1, 25]),
    "lengths as text": lambda d: d["context"].update(lengths="24"),
    "unit": lambda d: d["context"].update(unit="parsec"),
    "time zone": lambda d: d["context"].update(time_zone="Mars/Olympus"),
    "no unit": lambda d: d["context"].pop("unit"),
}


class TestAlteredFiles:
    @pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
    def test_hostile_configurations(self, saved: Path, change: Callable[..., Any]) -> None:
        edit(saved, change)
        with pytest.raises(ModelFileError, match="model'") as caught:
            MLRForecaster.load(saved)
        assert len(str(caught.value)) < 600

    @pytest.mark.parametrize("key", sorted(_files.KEYS))
    def test_missing_parts(self, saved: Path, key: str) -> None:
        edit(saved, lambda document: document.pop(key) and None)
        with pytest.raises(ModelFileError):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("change", HOSTILE_CONTEXTS.values(), ids=HOSTILE_CONTEXTS)
    def test_hostile_contexts(self, saved_with_context: Path, change: Callable[..., Any]) -> None:
        edit(saved_with_context, change)
        with pytest.raises(ModelFileError, match="with context'"):
            MLRForecaster.load(saved_with_context)

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": NaN}', b'{"format": 1e999}'],
        ids=["empty", "cut", "binary", "deep", "nan", "inf"],
    )
    def test_configurations_that_are_none(self, saved: Path, content: bytes) -> None:
        (saved / "config.json").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"config.json|file format"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("name", FILES)
    def test_missing_files_are_named(self, saved: Path, name: str) -> None:
        (saved / name).unlink()
        with pytest.raises(ModelFileError, match=name):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("how", ["cut", "flipped", "longer", "empty"])
    def test_altered_weights(self, saved: Path, how: str) -> None:
        file = saved / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        altered = {
            "cut": content[:-100],
            "flipped": content,
            "longer": file.read_bytes() + b"\0",
            "empty": b"",
        }
        file.write_bytes(bytes(altered[how]))
        with pytest.raises(ModelFileError, match=r"model.safetensors .* altered or cut short"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("content", [b"no tensors", b"\xff" * 64, b""])
    def test_weights_in_another_format_under_their_own_hash(
        self, saved: Path, content: bytes
    ) -> None:
        (saved / "model.safetensors").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        edit(saved, lambda document: document["sha256"].update({"model.safetensors": digest}))
        with pytest.raises(ModelFileError, match=r"model.safetensors .* cannot be read"):
            MLRForecaster.load(saved)

    def test_another_format_says_which(self, saved: Path) -> None:
        edit(saved, HOSTILE["another format"])
        with pytest.raises(ModelFileError, match=r"has file format 2; this version .* reads 1"):
            MLRForecaster.load(saved)

    def test_no_folder(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        for name in ("nowhere", "file"):
            with pytest.raises(FileNotFoundError, match=f"There is no folder .*{name}'"):
                MLRForecaster.load(tmp_path / name)
        with pytest.raises(ModelFileError, match=r"holds no config.json: it is no forecaster"):
            MLRForecaster.load(tmp_path)
