"""Saved forecasters: whole or not at all, without data, and never executed."""

import copy
import hashlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file, save
from sklearn.base import clone
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError, ModelFileError
from mlrforecast.estimators import _document, _files, _storage
from mlrforecast.estimators._parameters import plain_parameters
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

FILES = ["README.md", "config.json", "model"]


def names(folder: Path) -> list[str]:
    """Names in a folder; those of tensors without the digest, which must be that of the file."""
    found = []
    for path in folder.iterdir():
        kind, _, digest = path.name.removesuffix(".safetensors").partition("-")
        if path.suffix == ".safetensors":
            assert hashlib.sha256(path.read_bytes()).hexdigest().startswith(digest)
            assert len(digest) == 12
        found.append(kind)
    return sorted(found)


def weights_file(folder: Path, kind: str = "model") -> Path:
    (file,) = folder.glob(f"{kind}-*.safetensors")
    return file


@pytest.fixture
def saved(on_wide: MLRForecaster, tmp_path: Path) -> Path:
    on_wide.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def saved_with_context(on_wide: MLRForecaster, tmp_path: Path) -> Path:
    on_wide.save(tmp_path / "with context", with_context=True)
    return tmp_path / "with context"


def same(found: Any, expected: Any) -> None:
    """Compare two forecasts, whatever holds them."""
    if isinstance(expected, pd.DataFrame):
        assert_frame_equal(found, expected)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    else:
        assert found.equals(expected)


# What a frame of tests/estimators/frames.py is made into.
FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "time column": lambda frame: frame.reset_index(),
    "zone in a column": lambda frame: frame.tz_localize("Europe/Paris").reset_index(),
    "integer time": lambda frame: frame.reset_index(drop=True),
    "integers in steps": lambda frame: frame.set_index(np.arange(len(frame)) * 7 - 100),
    "seconds": lambda frame: frame.set_index(frame.index.as_unit("s")),
    "business days": lambda frame: frame.set_index(
        pd.date_range("2024-01-01", periods=len(frame), freq="B", tz="UTC")
    ),
    "series": lambda frame: frame["a"],
    "series without a name": lambda frame: frame["a"].rename(None).rename_axis(None),
    "array": lambda frame: frame.to_numpy(),
    "flat array": lambda frame: frame["a"].to_numpy(),
    "polars": lambda frame: pl.from_pandas(frame.tz_localize("Asia/Tokyo").reset_index()),
    "polars without time": lambda frame: pl.from_pandas(frame),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame.reset_index(), preserve_index=False),
    "long in the index": lambda frame: frame.set_index(["item_id", "timestamp"]),
    "long without names": lambda frame: frame.set_index(["item_id", "timestamp"]).rename_axis(
        [None, None]
    ),
    "long polars": lambda frame: pl.from_pandas(frame.astype({"item_id": "category"})),
    "long with zone": lambda frame: frame.assign(
        timestamp=frame["timestamp"].dt.tz_localize("America/New_York", ambiguous="raise")
    ),
    "long with integers": lambda frame: frame.assign(
        timestamp=frame.groupby("item_id").cumcount(), item_id=frame["item_id"].map(ord)
    ),
}
LONG = [name for name in FORMS if name.startswith("long")]


def with_covariates(form: str) -> tuple[MLRForecaster, Any, Any]:
    """A forecaster that reads covariates of every kind, its frame, and the future of it."""
    parts = []
    for number, item in enumerate("ba"):
        part = wide(50 - 5 * number, ("target",)).rename_axis("timestamp").reset_index()
        part["price"] = np.arange(len(part)) % 7
        part["day"] = part["timestamp"].dt.day_name()
        part["seen"] = part["price"].shift(1) * 2.5
        part["sky"] = pd.Series(["blue", None, "grey"] * 20)[: len(part)]
        parts.append(part.assign(item_id=item, size=number, kind=f"kind {number}"))
    static = ["size", "kind"] if form != "wide" else []
    whole = pd.concat(parts) if static else parts[0].drop(columns=["item_id", "size", "kind"])
    is_new = (
        whole.index
        >= whole.groupby("item_id" if static else whole["day"] > "")["price"]
        .transform("size")
        .to_numpy()
        - PREDICTION
    )
    frame, future = whole[~is_new], whole.loc[is_new].drop(columns=["seen", "sky", "target"])
    if form == "polars":
        frame, future = pl.from_pandas(frame), pl.from_pandas(future)
    forecaster = MLRForecaster(
        **TINY,
        target="target",
        past_covariates=["seen", "sky"],
        known_covariates=("price", "day"),
        static_covariates=static,
        freq="60min",
    )
    return forecaster.fit(frame), frame, future


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
        first, second = (
            {file.name: file.read_bytes() for file in (tmp_path / part).iterdir()}
            for part in ("model", "again")
        )
        assert first == second

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
            wide().rename_axis(columns="name of columns"),
            wide().set_axis(pd.CategoricalIndex(["u", "v"], ["v", "u", "w"], ordered=True), axis=1),
            wide().set_axis(pd.Index(["u", "v"], dtype="string"), axis=1),
            wide().set_axis(pd.Index([2, 1], dtype="int8"), axis=1),
            long(),
            long(ids=(3, 1, 2), names=("unique_id", "ds", "y")),
            long().astype({"item_id": "category"}),
            long(ids=(3, 1, 2)).astype({"item_id": "category"}),
            long().astype({"item_id": "string"}),
            long(ids=(3, 1, 2)).astype({"item_id": "int8"}),
            long(ids=(3, "a", 2)),
        ],
        ids=[
            *["wide", "int", "short", "zone", "offset", "quarters", "columns", "category"],
            *["string", "int8", "long", "long-int", "long-category", "long-int-category"],
            *["long-string", "long-int8", "long-mixed"],
        ],
    )
    def test_with_context_the_forecast_goes_on(self, tmp_path: Path, frame: pd.DataFrame) -> None:
        frame.iloc[-4, -1] = np.nan
        fitted = MLRForecaster(**TINY).fit(frame)
        fitted.save(tmp_path / "model", with_context=True)
        assert names(tmp_path / "model") == ["README.md", "config.json", "context", "model"]
        loaded = MLRForecaster.load(tmp_path / "model")
        levels = {"quantile_levels": (0.2, 0.5)}
        assert_frame_equal(loaded.predict(**levels), fitted.predict(**levels))
        assert_frame_equal(loaded.predict(), fitted.predict())

    @pytest.mark.parametrize("form", FORMS, ids=list(FORMS))
    def test_with_context_the_form_comes_back(self, tmp_path: Path, form: str) -> None:
        frame = FORMS[form](long() if form in LONG else wide())
        fitted = MLRForecaster(**TINY).fit(frame)
        fitted.save(tmp_path / "model", with_context=True)
        loaded = MLRForecaster.load(tmp_path / "model")
        assert loaded.context_.layout == fitted.context_.layout
        for levels in (None, (0.2, 0.5)):
            found, expected = (model.predict(quantile_levels=levels) for model in (loaded, fitted))
            assert type(found) is type(expected)
            same(found, expected)
            same(loaded.predict(frame, quantile_levels=levels), expected)

    @pytest.mark.parametrize("form", ["wide", "long", "polars"])
    def test_covariates_come_back(self, tmp_path: Path, form: str) -> None:
        fitted, frame, future = with_covariates(form)
        fitted.save(tmp_path / "without")
        fitted.save(tmp_path / "with", with_context=True)
        expected = fitted.predict(future=future, quantile_levels=(0.3,))
        for name in ("without", "with"):
            loaded = MLRForecaster.load(tmp_path / name)
            assert loaded.encoding_ == fitted.encoding_
            assert loaded.schema_ == fitted.schema_
            assert plain_parameters(loaded) == plain_parameters(fitted)
            given = frame if name == "without" else None
            same(loaded.predict(given, future=future, quantile_levels=(0.3,)), expected)
            if name == "with":
                loaded.save(tmp_path / "again", with_context=True)
        first, second = (
            {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
            for name in ("with", "again")
        )
        assert first == second

    def test_names_that_cannot_be_stored(self, tmp_path: Path) -> None:
        fitted = MLRForecaster(**TINY).fit(wide(columns=("a", 1.5)))
        with pytest.raises(DataError, match=r"Only text and integers .* got 1.5 of type float"):
            fitted.save(tmp_path / "model", with_context=True)
        assert not list(tmp_path.iterdir())
        fitted.save(tmp_path / "model")
        for parameters in ({"target": [1.5]}, {"target": "a", "known_covariates": [1.5]}):
            fitted = MLRForecaster(**TINY, **parameters).fit(wide(columns=("a", 1.5)))
            with pytest.raises(DataError, match=r"Only text and integers can be stored as names"):
                fitted.save(tmp_path / "another")
        assert names(tmp_path) == ["model"]

    def test_without_its_library_a_frame_of_pandas_is_forecast(self, tmp_path: Path) -> None:
        frame = wide(40).reset_index()
        MLRForecaster(**TINY).fit(pl.from_pandas(frame)).save(tmp_path / "m", with_context=True)
        frame.to_csv(tmp_path / "frame.csv", index=False)
        program = """
            import sys
            sys.modules["polars"] = None
            import pandas as pd
            from mlrforecast import MLRForecaster
            loaded = MLRForecaster.load("m")
            print(*loaded.predict(pd.read_csv("frame.csv")).shape)
            try:
                loaded.predict()
            except ImportError as error:
                print(error)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        shape, message = done.stdout.splitlines()
        assert shape == f"{PREDICTION} 3"
        assert "a frame of polars" in message
        assert "pip install polars" in message

    def test_loading_leaves_the_random_state(self, saved: Path) -> None:
        before = torch.get_rng_state()
        MLRForecaster.load(saved)
        assert torch.equal(torch.get_rng_state(), before)


def spellings(value: float, stamp: pd.Timestamp, name: str) -> list[bytes]:
    """What a value, a time stamp and a name look like in a file, as text and as numbers."""
    ticks = [stamp.value // unit for unit in (1, 10**3, 10**6, 10**9)]
    return [
        *(struct.pack(kind, value) for kind in ("<f", "<d", ">f", ">d")),
        *(struct.pack(kind, tick) for kind in ("<q", ">q", "<d", ">d") for tick in ticks),
        *(str(tick).encode() for tick in ticks),
        str(int(value)).encode(),
        str(stamp.date()).encode(),
        name.encode(),
        name.encode("utf-16-le"),
    ]


class TestPrivacy:
    VALUE = 123456.78125
    STAMP = pd.Timestamp("2024-01-04 07:00")

    def found(self, folder: Path) -> set[str]:
        """The files in which a value, a stamp or a name of the training data is found."""
        traces = spellings(self.VALUE, self.STAMP, "secret")
        return {
            path.name.partition("-")[0]
            for path in folder.iterdir()
            if any(trace in path.read_bytes() for trace in traces)
        }

    @pytest.mark.parametrize("form", ["wide", "long"])
    def test_no_data_without_context(self, tmp_path: Path, form: str) -> None:
        frame = (
            wide(80, columns=("secret a", "secret b"))
            if form == "wide"
            else long(("secret",), (80,))
        )
        assert self.STAMP in (frame.index if form == "wide" else set(frame["timestamp"]))
        frame.iloc[-3:, -1] = self.VALUE
        fitted = MLRForecaster(**TINY).fit(frame)
        fitted.save(tmp_path / "without")
        fitted.save(tmp_path / "with", with_context=True)
        assert self.found(tmp_path / "without") == set()
        assert self.found(tmp_path / "with") == {"context", "config.json"}

    @pytest.mark.parametrize("loss", ["quantile", "mse"])
    @pytest.mark.parametrize("method", ["split", "rolling"])
    def test_of_a_calibration_a_rolling_one_keeps_stamps_only(
        self, tmp_path: Path, method: str, loss: str
    ) -> None:
        frame = long(("secret", "secret too"), (80, 80))
        frame.loc[frame["timestamp"] >= self.STAMP, "target"] = self.VALUE
        fitted = MLRForecaster(**TINY, loss=loss).fit(frame)
        fitted.calibrate(frame, method=method, refit=False).save(tmp_path / "model")
        found = {"calibration"} if method == "rolling" else set()
        assert self.found(tmp_path / "model") == found

    def test_only_the_newest_rows_with_context(self, tmp_path: Path) -> None:
        frame = wide()
        frame.iloc[-CONTEXT - 1, 0] = self.VALUE
        MLRForecaster(**TINY).fit(frame).save(tmp_path / "model", with_context=True)
        assert self.found(tmp_path / "model") == set()

    def test_no_data_of_covariates_but_their_categories(self, tmp_path: Path) -> None:
        frame = wide(80, columns=("y", "price"))
        frame.iloc[70, 1] = self.VALUE
        frame["kind"] = np.where(np.arange(80) % 2, "odd", "even")
        names = {"known_covariates": ["price"], "past_covariates": ["kind"]}
        MLRForecaster(**TINY, target="y", **names).fit(frame).save(tmp_path / "model")
        assert self.found(tmp_path / "model") == set()
        encoding = json.loads((tmp_path / "model" / "config.json").read_text())["encoding"]
        assert encoding["past"][0]["categories"] == ["even", "odd"]


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
            "config and weights": {"config.json": '{"model_type": "t5"}', "model.safetensors": "w"},
            "with a note": {"notes.txt": "x"},
        }
        for name, text in files[content].items():
            (folder / name).write_text(text)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(FileExistsError, match="is no saved forecaster; it is left alone"):
            on_wide.save(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert names(tmp_path) == ["mine"]

    @pytest.mark.parametrize("path", [None, 3, b"model", Path])
    def test_what_is_no_path(self, on_wide: MLRForecaster, path: Any) -> None:
        for call in (on_wide.save, MLRForecaster.load):
            with pytest.raises(TypeError, match="`path` must be the path of a folder, got a "):
                call(path)
            with pytest.raises(ValueError, match="`path` must name a folder, got an empty text"):
                call("")

    def test_a_file_is_left_alone(self, on_wide: MLRForecaster, tmp_path: Path) -> None:
        (tmp_path / "model").write_text("x")
        with pytest.raises(FileExistsError, match="it is left alone"):
            on_wide.save(tmp_path / "model")
        assert (tmp_path / "model").read_text() == "x"

    @pytest.mark.parametrize("name", ["model", "context", "README.md", "config.json"])
    @pytest.mark.parametrize("moment", ["fsync", "replace"])
    @pytest.mark.parametrize("earlier", [False, True])
    def test_a_failure_leaves_what_was_there(
        self,
        on_wide: MLRForecaster,
        on_long: MLRForecaster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        moment: str,
        earlier: bool,
    ) -> None:
        target = tmp_path / "model"
        if earlier:
            on_long.save(target)
            before = {file.name: file.read_bytes() for file in target.iterdir()}
        with monkeypatch.context() as patch:
            stop_at(patch, name, moment, OSError(28, "No space left on device", "/hidden"))
            with pytest.raises(OSError, match="`path` cannot be written: No space") as caught:
                on_wide.save(target, with_context=True)
        assert caught.value.filename == str(target)
        assert names(tmp_path) == (["model"] if earlier else [])
        if earlier:
            assert {file.name: file.read_bytes() for file in target.iterdir()} == before
            assert MLRForecaster.load(target).predict(long()).equals(on_long.predict())

    @pytest.mark.parametrize("name", ["model", "context", "README.md", "config.json"])
    @pytest.mark.parametrize("moment", ["fsync", "replace"])
    @pytest.mark.parametrize("earlier", [False, True])
    def test_a_kill_leaves_the_old_model_and_the_next_save_tidies_up(
        self,
        on_wide: MLRForecaster,
        on_long: MLRForecaster,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        moment: str,
        earlier: bool,
    ) -> None:
        target = tmp_path / "model"
        if earlier:
            on_long.save(target)
        with monkeypatch.context() as patch:
            stop_at(patch, name, moment, KeyboardInterrupt())
            # A killed process tidies nothing up.
            patch.setattr(_storage, "_remove_leftovers", lambda folder: None)
            patch.setattr(_storage, "_restore_card", lambda folder, earlier: None)
            for name_of_call in ("rmdir", "unlink"):
                patch.setattr(Path, name_of_call, lambda self: None)
            with pytest.raises(KeyboardInterrupt):
                on_wide.save(target, with_context=True)
        assert names(tmp_path) == ["model"]
        assert list(target.iterdir())
        if earlier:
            assert MLRForecaster.load(target).predict(long()).equals(on_long.predict())
        else:
            with pytest.raises(ModelFileError, match=r"holds no config\.json"):
                MLRForecaster.load(target)
        on_wide.save(target)
        assert names(target) == FILES
        assert MLRForecaster.load(target).predict(wide()).equals(on_wide.predict())

    def test_a_changed_parameter_of_the_network_cannot_be_saved(
        self, on_wide: MLRForecaster, tmp_path: Path
    ) -> None:
        changed = copy.copy(on_wide).set_params(width=16)
        with pytest.raises(ValueError, match="`width` is 16, but the network was fitted with 8"):
            changed.save(tmp_path / "model")
        assert not list(tmp_path.iterdir())
        copy.copy(on_wide).set_params(max_steps=9, seed=1).save(tmp_path / "model")

    def test_a_reader_finds_the_model_that_replaced_its_own(
        self, on_wide: MLRForecaster, on_long: MLRForecaster, saved: Path
    ) -> None:
        read, turns = _storage._read, []

        def slow(folder: Path, name: str) -> bytes | None:
            text = read(folder, name)
            if name == "config.json" and len(turns) < limit:
                turns.append(name)
                (on_long, on_wide)[len(turns) % 2].save(folder)
            return text

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_storage, "_read", slow)
            limit = 2
            assert MLRForecaster.load(saved).freq_ == "h"
            limit = 100
            with pytest.raises(ModelFileError, match="was replaced while it was read"):
                MLRForecaster.load(saved)

    def test_savers_and_readers_at_once(
        self, on_wide: MLRForecaster, on_long: MLRForecaster, saved: Path
    ) -> None:
        expected = [fitted.predict(wide()) for fitted in (on_wide, on_long)]

        def save(number: int) -> None:
            (on_wide, on_long)[number % 2].save(saved, with_context=number % 3 == 0)

        def load(number: int) -> bool:
            loaded = MLRForecaster.load(saved).predict(wide())
            return any(loaded.equals(forecast) for forecast in expected)

        with ThreadPoolExecutor(4) as pool:
            savers = [pool.submit(save, number) for number in range(40)]
            assert all(pool.map(load, range(40)))
            assert [saver.result() for saver in savers] == [None] * 40
        assert load(0)
        assert len(names(saved)) <= 4


def stop_at(patch: pytest.MonkeyPatch, name: str, moment: str, error: BaseException) -> None:
    """Fail before a file is on the disk, or before it gets its name."""
    fsync, replace, put, current = os.fsync, Path.replace, _storage.write_whole, [""]

    def note(path: Path, content: bytes) -> None:
        current[0] = path.name
        put(path, content)

    def stop(*args: Any) -> Any:
        if current[0].startswith(name):
            raise error
        return (fsync if moment == "fsync" else replace)(*args)

    patch.setattr(_storage, "write_whole", note)
    patch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), stop)


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
    """Change the configuration in place, or put what ``change`` returns in its stead; seal it."""
    document = json.loads((folder / "config.json").read_text())
    changed = change(document)
    document = document if changed is None else changed
    if isinstance(document, dict) and "checksum" in document:
        document["checksum"] = _document.checksum(document)
    (folder / "config.json").write_text(json.dumps(document))


def edit_tensors(folder: Path, kind: str, change: Callable[[Any], Any]) -> None:
    """Change the tensors of a file, and list it under the digest it then has."""
    file = weights_file(folder, kind)
    tensors = load_file(file)
    content = save(tensors | change(tensors))
    file.unlink()
    digest = hashlib.sha256(content).hexdigest()
    name = _document.file_name(kind, digest)
    (folder / name).write_bytes(content)

    def relist(document: dict[str, Any]) -> None:
        listed = document["sha256"].items()
        document["sha256"] = dict(
            (name, digest) if old == file.name else (old, value) for old, value in listed
        )

    edit(folder, relist)


def header(described: dict[str, Any]) -> bytes:
    """Return a file of tensors with four bytes of data and such a header."""
    text = json.dumps(described).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


def zipped(content: bytes) -> bytes:
    """Return an archive that is far smaller than what it holds."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data.pkl", content)
        return file.getvalue()


def both(document: dict[str, Any], **fields: Any) -> None:
    """Change the parameters and the configuration alike."""
    document["parameters"].update(fields)
    document["config"].update(fields)


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
    "width of another model": lambda d: both(d, width=16),
    "a width for no memory": lambda d: both(d, width=10**9),
    "a context for no memory": lambda d: both(d, context_length=10**12),
    "a horizon for no memory": lambda d: both(d, prediction_length=10**9),
    "layers without end": lambda d: both(d, num_layers=10**9),
    "another horizon as parameter": lambda d: d["parameters"].update(prediction_length=7),
    "another context as parameter": lambda d: d["parameters"].update(context_length=23),
    "another width as parameter": lambda d: d["parameters"].update(width=16),
    "another stride as parameter": lambda d: d["parameters"].update(patch_stride=2),
    "other levels as parameter": lambda d: d["parameters"].update(quantile_levels=[0.5]),
    "backwards": lambda d: d.update(freq="-1h"),
    "standing": lambda d: d.update(freq="0h"),
    "long frequency": lambda d: d.update(freq="h" * 10**5),
    "negative steps": lambda d: d.update(num_steps=-1),
    "steps in fractions": lambda d: d.update(num_steps=1.5),
    "digest as number": lambda d: d["sha256"].update({next(iter(d["sha256"])): 1}),
    "weights under another name": lambda d: d.update(sha256={"x": d["sha256"].popitem()[1]}),
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
    "frequency as truth": lambda d: d.update(freq=True),
    "frequency of zero": lambda d: d.update(freq=0),
    "frequency beyond numbers": lambda d: d.update(freq=10**30),
    "frequency of fractions": lambda d: d.update(freq=1.5),
    "old frequency": lambda d: d.update(freq="H"),
    "another frequency as parameter": lambda d: d["parameters"].update(freq="D"),
    "numbers with a calendar": lambda d: d.update(freq=1),
    "encoding as list": lambda d: d.update(encoding=[]),
    "no encoding": lambda d: d.update(encoding=None),
    "empty encoding": lambda d: d.update(encoding={}),
    "unknown encoding": lambda d: d["encoding"].update(hook="os.system"),
    "cycles as number": lambda d: d["encoding"].update(cycles=5),
    "cycles of lists": lambda d: d["encoding"].update(cycles=[["day"]]),
    "no cycles": lambda d: d["encoding"].update(cycles=[]),
    "unknown cycles": lambda d: d["encoding"].update(cycles=["decade"]),
    "a column of nobody": lambda d: d["encoding"].update(past=[COLUMN]),
    "a column of a parameter": lambda d: both_covariates(d, past_covariates=["c"]),
    "column as text": lambda d: d["encoding"].update(known=["c"]),
    "target of lists": lambda d: d["parameters"].update(target=[["a"], {"b": 1}]),
    "target as number": lambda d: d["parameters"].update(target=True),
    "covariates as text": lambda d: d["parameters"].update(past_covariates="abc"),
    "fill as code": lambda d: d["parameters"].update(fill="os.system"),
    "scaling as parameter": lambda d: d["parameters"].update(scaling="robust"),
    "unknown scaling": lambda d: both(d, scaling="os.system"),
    "no calendar as parameter": lambda d: d["parameters"].update(calendar=False),
    "more calendar": lambda d: d["config"].update(num_calendar_features=40),
    "less calendar": lambda d: d["config"].update(num_calendar_features=0),
    "categories for no memory": lambda d: d["config"].update(known_cardinalities=[10**12]),
    "categories below zero": lambda d: d["config"].update(static_cardinalities=[-1]),
}

COLUMN = {"name": "c", "loc": 0.0, "scale": 1.0, "has_missing": False, "categories": None}

# Of a model that reads covariates.
HOSTILE_ENCODINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another name": lambda d: d["encoding"]["known"][0].update(name="c"),
    "a name of a list": lambda d: d["encoding"]["known"][0].update(name=["c"]),
    "another order": lambda d: d["encoding"]["known"].reverse(),
    "another role": lambda d: d["encoding"].update(
        past=d["encoding"]["known"], known=d["encoding"]["past"]
    ),
    "a column less": lambda d: d["encoding"]["static"].pop(),
    "a column twice": lambda d: d["encoding"]["static"].append(d["encoding"]["static"][0]),
    "loc as text": lambda d: d["encoding"]["known"][0].update(loc="0"),
    "loc that is nan": lambda d: d["encoding"]["known"][0].update(loc=float("nan")),
    "scale below zero": lambda d: d["encoding"]["known"][0].update(scale=-1.0),
    "scale of many digits": lambda d: d["encoding"]["known"][0].update(scale=10**400),
    "a mark more": lambda d: d["encoding"]["known"][0].update(has_missing=True),
    "a mark less": lambda d: d["encoding"]["past"][0].update(has_missing=False),
    "mark as text": lambda d: d["encoding"]["past"][0].update(has_missing="yes"),
    "no categories": lambda d: d["encoding"]["known"][1].update(categories=None),
    "a category more": lambda d: d["encoding"]["known"][1]["categories"].append("x"),
    "categories of numbers": lambda d: d["encoding"]["known"][1].update(categories=[1, 2, 3]),
    "categories twice": lambda d: d["encoding"]["known"][1].update(categories=["a", "a", "a"]),
    "categories as text": lambda d: d["encoding"]["known"][1].update(categories="abc"),
    "columns of the network": lambda d: d["config"].update(known_cardinalities=[0]),
    "one of the parameters": lambda d: d["parameters"].update(known_covariates=["price"]),
    "the parameters as roles": lambda d: d["parameters"].update(past_covariates=["price", "day"]),
    "categories of the context": lambda d: d["context"].update(categories={}),
    "categories less": lambda d: d["context"]["categories"]["known"].pop(),
    "known as numbers": lambda d: d["context"]["categories"].update(known=[None, None]),
    "known as categories": lambda d: d["context"]["categories"].update(known=[["a"], ["b"]]),
    "fewer than codes": lambda d: d["context"]["categories"]["known"][1].clear(),
    "texts as numbers": lambda d: d["context"]["categories"]["known"].__setitem__(1, [1, 2, 3]),
    "texts twice": lambda d: d["context"]["categories"]["known"].__setitem__(1, ["a"] * 9),
    "wide layout": lambda d: d["context"]["layout"].update(form="wide"),
    "names of one column": lambda d: d["context"]["layout"].update(target_name="timestamp"),
    "an index of polars": lambda d: d["context"]["layout"].update(native="polars", indexed=True),
}

HOSTILE_CONTEXTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "as list": lambda d: d.update(context=[1]),
    "as number": lambda d: d.update(context=5),
    "form": lambda d: d["context"]["layout"].update(form="tall"),
    "form as list": lambda d: d["context"]["layout"].update(form=["wide"]),
    "long form": lambda d: d["context"]["layout"].update(form="long"),
    "series": lambda d: d["context"]["layout"].update(form="series"),
    "layout": lambda d: d["context"].update(layout=["wide"]),
    "part of a layout": lambda d: d["context"].update(layout={"form": "wide"}),
    "more layout": lambda d: d["context"]["layout"].update(hook="os.system"),
    "library": lambda d: d["context"]["layout"].update(native="os"),
    "library as list": lambda d: d["context"]["layout"].update(native=["pandas"]),
    "library of no frame": lambda d: d["context"]["layout"].update(native="unknown"),
    "switch": lambda d: d["context"]["layout"].update(indexed="yes"),
    "flat": lambda d: d["context"]["layout"].update(flat=True),
    "time named as a column": lambda d: d["context"]["layout"].update(indexed=False, time_name="a"),
    "index name": lambda d: d["context"]["layout"].update(time_name=["a"]),
    "index name as number": lambda d: d["context"]["layout"].update(time_name=1.5),
    "labels": lambda d: d["context"].update(labels=["a"]),
    "one label": lambda d: d["context"]["labels"].update(values=["a"]),
    "labels of lists": lambda d: d["context"]["labels"].update(values=[["a"], ["b"]]),
    "labels twice": lambda d: d["context"]["labels"].update(values=["a", "a"]),
    "labels as times": lambda d: d["context"]["labels"].update(dtype="M8[ns]"),
    "labels of code": lambda d: d["context"]["labels"].update(dtype="os.system"),
    "labels of no type": lambda d: d["context"]["labels"].update(dtype={}),
    "long time zone": lambda d: d["context"]["time"].update(zone="x" * 10**5),
    "time zone as path": lambda d: d["context"]["time"].update(zone="../../etc/passwd"),
    "time zone as folder": lambda d: d["context"]["time"].update(zone="America"),
    "time zone as number": lambda d: d["context"]["time"].update(zone=5),
    "time zone": lambda d: d["context"]["time"].update(zone="Mars/Olympus"),
    "unit": lambda d: d["context"]["time"].update(unit="parsec"),
    "no unit": lambda d: d["context"]["time"].pop("unit"),
    "another unit": lambda d: d["context"]["time"].update(unit="ms"),
    "time as integers": lambda d: d["context"].update(time=None),
    "time as text": lambda d: d["context"].update(time="ns"),
    "another frequency": lambda d: d.update(freq="D"),
    "no categories": lambda d: d["context"].pop("categories"),
    "categories of nobody": lambda d: d["context"]["categories"].update(past=[None]),
    "categories as list": lambda d: d["context"].update(categories=[]),
}


def both_covariates(document: dict[str, Any], **parameters: Any) -> None:
    """Name covariates in the parameters and the encoding; the network has no such columns."""
    document["parameters"].update(parameters)
    document["encoding"].update(past=[COLUMN])


def _places(value: Any) -> Iterator[list[Any]]:
    """Yield the way to every value in a document."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield [key]
        yield from ([key, *rest] for rest in _places(value[key]))


@pytest.fixture(scope="module")
def reading_covariates() -> MLRForecaster:
    return with_covariates("long")[0]


@pytest.fixture
def saved_covariates(reading_covariates: MLRForecaster, tmp_path: Path) -> Path:
    reading_covariates.save(tmp_path / "covariates", with_context=True)
    return tmp_path / "covariates"


class TestAlteredFiles:
    @pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
    def test_hostile_configurations(self, saved: Path, change: Callable[..., Any]) -> None:
        edit(saved, change)
        with pytest.raises(ModelFileError, match="model'") as caught:
            MLRForecaster.load(saved)
        assert len(str(caught.value)) < 600

    @pytest.mark.parametrize("field", ["width", "context_length", "prediction_length"])
    def test_shapes_are_compared_before_a_model_is_built(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch, field: str
    ) -> None:
        edit(saved, lambda document: both(document, **{field: 10**9}))
        monkeypatch.setattr(_files, "build_model", lambda *_: pytest.fail("a model was built"))
        with pytest.raises(ModelFileError, match=r"the weights do not fit|no list of 1000000000"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("key", sorted(_document.KEYS))
    def test_missing_parts(self, saved: Path, key: str) -> None:
        edit(saved, lambda document: {k: v for k, v in document.items() if k != key})
        with pytest.raises(ModelFileError, match=r"lacks or adds|no description"):
            MLRForecaster.load(saved)

    def test_any_change_of_the_configuration_is_found(self, saved_with_context: Path) -> None:
        config = saved_with_context / "config.json"
        whole = config.read_bytes()
        random = np.random.default_rng(0)
        for place in random.choice(len(whole), 150, replace=False):
            text = bytearray(whole)
            text[place] = ord("5") if text[place] != ord("5") else ord("4")
            if whole[place : place + 1].isspace():
                continue
            config.write_bytes(text)
            with pytest.raises(ModelFileError):
                MLRForecaster.load(saved_with_context)
        config.write_text(json.dumps(json.loads(whole), indent=4))
        MLRForecaster.load(saved_with_context)

    @pytest.mark.parametrize(
        "change",
        [
            lambda w: {k: v * np.nan for k, v in w.items()},
            lambda w: {k: v + np.inf for k, v in w.items()},
            lambda w: {k: v.int() for k, v in w.items()},
            lambda w: {k: v.to(torch.complex64) for k, v in w.items()},
            lambda w: {k: v[None] for k, v in w.items()},
            lambda w: {"another": torch.zeros(1)},
        ],
        ids=["nan", "inf", "int", "complex", "shape", "another"],
    )
    def test_weights_that_are_none(self, saved: Path, change: Callable[[Any], Any]) -> None:
        edit_tensors(saved, "model", change)
        with pytest.raises(ModelFileError, match="the weights"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: {"values": t["values"] + np.inf},
            lambda t: {"values": t["values"].float()},
            lambda t: {"stamps": t["stamps"].double()},
            lambda t: {"stamps": t["stamps"].flip(0)},
            lambda t: {"stamps": t["stamps"] * 0},
            lambda t: {"stamps": t["stamps"] * 0 - 2**63},
            lambda t: {"values": t["values"][1:]},
            lambda t: {"another": t["values"].clone()},
        ],
        ids=["inf", "float32", "float stamps", "backwards", "equal", "nat", "short", "another"],
    )
    def test_contexts_that_are_none(
        self, saved_with_context: Path, change: Callable[[Any], Any]
    ) -> None:
        edit_tensors(saved_with_context, "context", change)
        with pytest.raises(ModelFileError, match="its context"):
            MLRForecaster.load(saved_with_context)

    @pytest.mark.parametrize("name", ["config.json", "model"])
    def test_pipes_and_folders_are_no_files(self, saved: Path, name: str) -> None:
        file = weights_file(saved) if name == "model" else saved / name
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(ModelFileError, match=f"(holds no|lacks) {name}"):
            MLRForecaster.load(saved)
        file.unlink()
        file.mkdir()
        with pytest.raises(ModelFileError, match=f"(holds no|lacks) {name}"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("change", HOSTILE_CONTEXTS.values(), ids=HOSTILE_CONTEXTS)
    def test_hostile_contexts(self, saved_with_context: Path, change: Callable[..., Any]) -> None:
        edit(saved_with_context, change)
        with pytest.raises(ModelFileError, match="with context'"):
            MLRForecaster.load(saved_with_context)

    @pytest.mark.parametrize("change", HOSTILE_ENCODINGS.values(), ids=HOSTILE_ENCODINGS)
    def test_hostile_encodings(self, saved_covariates: Path, change: Callable[..., Any]) -> None:
        edit(saved_covariates, change)
        with pytest.raises(ModelFileError, match="covariates'") as caught:
            MLRForecaster.load(saved_covariates)
        assert len(str(caught.value)) < 600

    @pytest.mark.parametrize(
        "change",
        [
            lambda t: {"known.0": t["known.0"] * np.inf},
            lambda t: {"known.0": t["known.0"][1:]},
            lambda t: {"known.0": t["known.0"].long()},
            lambda t: {"known.1": t["known.1"].double()},
            lambda t: {"known.1": t["known.1"] + 100},
            lambda t: {"known.1": t["known.1"] - 2},
            lambda t: {"known.2": t["known.1"].clone()},
            lambda t: {"static.0": t["static.0"].repeat(2)},
            lambda t: {"lengths": t["lengths"].flip(0) - 1},
            lambda t: {"lengths": t["lengths"] + 2**62},
            lambda t: {"lengths": t["lengths"] * 0},
            lambda t: (
                {name: value[:CONTEXT] for name, value in t.items()}
                | {"lengths": torch.tensor([0, CONTEXT])}
            ),
            lambda t: {"lengths": torch.tensor([len(t["values"]) + 5, -5])},
            lambda t: {"lengths": t["lengths"].double()},
            lambda t: {"lengths": t["lengths"].repeat(2)},
        ],
        ids=[
            *["inf", "short", "ints", "floats", "beyond", "below", "another", "static"],
            *[
                "lengths",
                "overflow",
                "no rows",
                "an empty one",
                "less",
                "float lengths",
                "more series",
            ],
        ],
    )
    def test_covariates_that_are_none(
        self, saved_covariates: Path, change: Callable[[Any], Any]
    ) -> None:
        edit_tensors(saved_covariates, "context", change)
        with pytest.raises(ModelFileError, match=r": .*(its context|of covariate)"):
            MLRForecaster.load(saved_covariates)

    def test_numbers_in_place_of_categories(self, saved_covariates: Path) -> None:
        edit(saved_covariates, lambda d: d["context"]["categories"].update(known=[None, None]))
        edit_tensors(saved_covariates, "context", lambda t: {"known.1": t["known.1"].double()})
        with pytest.raises(ModelFileError, match="covariate 'day' of its context is not one"):
            MLRForecaster.load(saved_covariates)

    def test_random_changes_of_values(self, saved_covariates: Path) -> None:
        """Whatever a value is replaced by, a model is refused or forecasts as if it were read."""
        text = (saved_covariates / "config.json").read_text()
        random = np.random.default_rng(0)
        strange = [None, True, -1, 0, 3, 10**30, 1.5, "", "a", "\0", [], [[]], {}, {"a": []}]
        places = list(_places(json.loads(text)))
        for number in random.choice(len(places), 120, replace=False):
            value = strange[random.integers(len(strange))]

            def change(document: dict[str, Any], path: list[Any] = places[number]) -> None:
                for key in path[:-1]:
                    document = document[key]
                document[path[-1]] = value  # noqa: B023 - called at once

            (saved_covariates / "config.json").write_text(text)
            edit(saved_covariates, change)
            try:
                loaded = MLRForecaster.load(saved_covariates)
            except ModelFileError:
                continue
            with pytest.raises(DataError, match="`future` is needed"):
                loaded.predict()

    @pytest.mark.parametrize(
        "content",
        [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": NaN}', b'{"format": 1e999}'],
        ids=["empty", "cut", "binary", "deep", "nan", "inf"],
    )
    def test_configurations_that_are_none(self, saved: Path, content: bytes) -> None:
        (saved / "config.json").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"config.json|file format"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("name", ["config.json", "model"])
    def test_missing_files_are_named(self, saved: Path, name: str) -> None:
        (weights_file(saved) if name == "model" else saved / name).unlink()
        with pytest.raises(ModelFileError, match=f"(holds no|lacks) {name}"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("how", ["cut", "flipped", "longer", "empty"])
    def test_altered_weights(self, saved: Path, how: str) -> None:
        file = weights_file(saved)
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        altered = {
            "cut": content[:-100],
            "flipped": content,
            "longer": file.read_bytes() + b"\0",
            "empty": b"",
        }
        file.write_bytes(bytes(altered[how]))
        with pytest.raises(ModelFileError, match=r"model-.* was altered or cut short"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize(
        "content",
        [
            *[b"no tensors", b"\xff" * 64, b"", pickle.dumps({"w": [1.0]}), zipped(b"\0" * 10**6)],
            header({"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}}),
            header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**15]}}),
            (10**15).to_bytes(8, "little") + b"{}",
        ],
        ids=["text", "bytes", "empty", "pickle", "zip", "shapes", "offsets", "long header"],
    )
    def test_weights_in_another_format_under_their_own_hash(
        self, saved: Path, content: bytes
    ) -> None:
        digest = hashlib.sha256(content).hexdigest()
        name = _document.file_name("model", digest)
        (saved / name).write_bytes(content)
        edit(saved, lambda document: document.update(sha256={name: digest}))
        with pytest.raises(ModelFileError, match=r"model-.* cannot be read"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("name", ["config.json", "model"])
    def test_a_file_larger_than_memory(self, saved: Path, name: str) -> None:
        file = weights_file(saved) if name == "model" else saved / name
        os.truncate(file, 2**43)
        with pytest.raises(ModelFileError, match=f"{name}.* it does not fit into memory"):
            MLRForecaster.load(saved)

    @pytest.mark.parametrize("name", ["config.json", "model"])
    @pytest.mark.parametrize("target", ["/dev/zero", "nothing", "itself"])
    def test_links_in_place_of_a_file(self, saved: Path, name: str, target: str) -> None:
        file = weights_file(saved) if name == "model" else saved / name
        file.unlink()
        file.symlink_to(file if target == "itself" else target)
        with pytest.raises(ModelFileError, match=f"(holds no|lacks) {name}"):
            MLRForecaster.load(saved)

    def test_a_model_of_links_loads(self, on_wide: MLRForecaster, saved: Path) -> None:
        """Among downloads of a hub, the files are links."""
        (linked := saved.with_name("linked")).mkdir()
        for file in saved.iterdir():
            (linked / file.name).symlink_to(file)
        assert MLRForecaster.load(linked).predict(wide()).equals(on_wide.predict())

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


def test_every_file_follows_the_umask(on_wide: MLRForecaster, tmp_path: Path) -> None:
    """A colleague in the same group can read all of a model, or none of it."""
    old = os.umask(0o022)
    try:
        on_wide.save(tmp_path / "model", with_context=True)
    finally:
        os.umask(old)
    modes = {file.stat().st_mode & 0o777 for file in (tmp_path / "model").iterdir()}
    assert modes == {0o644}


def test_a_folder_in_place_of_the_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").mkdir(parents=True)
    with pytest.raises(ModelFileError, match=r"holds no config\.json"):
        MLRForecaster.load(tmp_path / "model")
