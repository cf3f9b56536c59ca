"""Try what may happen to a model: killed, cut short, altered, hostile; and write what happened.

Each row is one attempt on a tiny model, in a process of its own, which is killed with SIGKILL where
the row says so. What must hold stands beside what did.

    python benchmarks/failures.py --out benchmarks/results/failures

`--only save` tries one group (save, files, hostile, fit, checkpoint or backtest) and keeps the
lines of the others that are there.
"""

import argparse
import csv
import hashlib
import json
import os
import pickle
import platform
import resource
import shutil
import signal
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from mlrforecast import MLRForecaster, __version__
from mlrforecast.benchmark import cpu_model
from mlrforecast.estimators._document import checksum, file_name

FIELDS = (
    "group",
    "what",
    "where",
    "how",
    "expected",
    "happened",
    "ok",
    "version",
    "torch",
    "python",
    "hardware",
    "command",
)
TINY: dict[str, Any] = {
    "prediction_length": 4,
    "context_length": 24,
    "width": 8,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_width": 8,
    "max_steps": 12,
    "batch_size": 16,
    "accelerator": "cpu",
    "progress": False,
}
LIMIT_S = 120
NOBODY = 65534


class Row(NamedTuple):
    """One attempt, and what came of it.

    Parameters
    ----------
    what, where, how : str
        What was done meanwhile, where in it, and what harm came.
    expected, happened : str
        What must be the case afterwards, and what was.
    ok : bool
        Whether it is.
    """

    what: str
    where: str
    how: str
    expected: str
    happened: str
    ok: bool


class End(NamedTuple):
    """How a process ended: "returned", "raised" or "killed", and with what."""

    kind: str
    value: Any


def attempt(act: Callable[[], Any]) -> End:
    """Run something in a process of its own, forked so that nothing is imported anew."""
    ours, theirs = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_report, args=(act, theirs))
    process.start()
    theirs.close()
    try:
        end = ours.recv() if ours.poll(LIMIT_S) else End("hung", f"for {LIMIT_S} s")
    except EOFError:
        end = None
    if end is not None and end.kind == "hung":
        process.kill()
    process.join()
    if end is None:
        end = End("killed", signal.Signals(-process.exitcode).name)
    return end


def _report(act: Callable[[], Any], connection: Connection) -> None:
    try:
        end = End("returned", act())
    except BaseException as error:
        if os.environ.get("FAILURES_DEBUG"):
            traceback.print_exc()
        end = End("raised", f"{type(error).__name__}: {error}")
    connection.send(end)


def told(end: End, *folders: Path) -> str:
    """Return what happened in words, without paths of this run."""
    text = f"{end.kind} {end.value}" if end.kind != "returned" else "no error"
    for folder in folders:
        text = text.replace(f"{folder}/", "")
    return " ".join(text.split())[:300]


# ---- what is tried on: two small models ----


def frame() -> pd.DataFrame:
    """Return two noisy waves."""
    number = np.arange(120)[:, None]
    wave = np.sin(2 * np.pi * number / 24 + np.arange(2))
    values = wave + np.random.default_rng(0).normal(size=(120, 2)) / 10
    index = pd.date_range("2024-01-01", periods=len(values), freq="h")
    return pd.DataFrame(values, index=index, columns=["a", "b"])


def fit(**parameters: Any) -> MLRForecaster:
    """Fit a small model."""
    return MLRForecaster(**TINY | parameters).fit(frame())


def weights(forecaster: MLRForecaster) -> str:
    """Return a digest of all weights."""
    digest = hashlib.sha256()
    for name, value in forecaster.model_.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


class Workshop:
    """A folder with two saved models, of which copies are harmed.

    Parameters
    ----------
    folder : Path
        An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = fit(seed=1), fit(seed=2)
        self.new.calibrate(frame(), refit=False)
        self.number = 0
        for name, model in (("old", self.old), ("new", self.new)):
            model.save(folder / name, with_context=True)

    def fresh(self, source: str | None = None) -> Path:
        """Return a new folder, which is a copy of a model if one is named."""
        self.number += 1
        target = self.folder / f"attempt-{self.number}" / "model"
        target.parent.mkdir()
        if source is not None:
            shutil.copytree(self.folder / source, target)
        return target

    def which(self, folder: Path) -> str:
        """Return which model loads from a folder."""
        end = attempt(lambda: weights(MLRForecaster.load(folder)))
        if end.kind != "returned":
            return told(end, folder.parent)
        known = {weights(self.old): "the old model", weights(self.new): "the new model"}
        return known.get(end.value, "another model")


# ---- moments in which a process is killed ----


def die() -> None:
    """Kill this process at once, without any tidying up."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(number: int) -> None:
    """Kill this process before its ``number``-th call that makes a file durable or renames it."""
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                die()
            return call(*args, **kwargs)

        return wrapper

    os.fsync = counted(os.fsync)
    Path.replace = counted(Path.replace)  # type: ignore[method-assign]


def kill_in_step(number: int) -> None:
    """Kill this process in the ``number``-th step of an optimiser."""
    step, count = torch.optim.AdamW.step, 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            die()
        return step(*args, **kwargs)

    torch.optim.AdamW.step = counted  # type: ignore[method-assign]


def limit_files(size: int, *, deadly: bool = False) -> None:
    """Let no file grow beyond a size: an error as of a full disk, or death in mid-write."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


# ---- save ----


def saves(shop: Workshop) -> Iterator[Row]:
    """Kill and starve savers."""
    for earlier in (None, "old"):
        over = "into a new folder" if earlier is None else "over an older model"
        for number in range(1, 100):
            target = shop.fresh(earlier)
            end = attempt(lambda n=number, t=target: (kill_before(n), shop.new.save(t)))
            if end.kind == "returned":
                break
            yield _after_save(shop, target, earlier, f"{over}, before disk operation {number}", end)
        for size, which in _sizes(shop):
            target = shop.fresh(earlier)
            end = attempt(partial(_save_limited, shop, target, size, deadly=True))
            yield _after_save(shop, target, earlier, f"{over}, inside {which}", end)
    yield from _full_disk(shop)
    yield _read_only(shop)
    yield _two_savers(shop)


def _after_save(shop: Workshop, target: Path, earlier: str | None, where: str, end: End) -> Row:
    """Say what is there after a killed save, and after the next one."""
    found = shop.which(target)
    allowed = ["the new model", "the old model" if earlier else "holds no config.json"]
    attempt(lambda: shop.new.save(target, with_context=True))
    clean = contents(target) == contents(shop.folder / "new")
    expected = "the old model or the new one loads" if earlier else "nothing loads, or the new one"
    return Row(
        "save",
        where,
        f"process killed ({end.value})",
        f"{expected}; the next save leaves its files only",
        f"{found}; next save {'left its files only' if clean else 'left other files'}",
        end.kind == "killed" and any(text in found for text in allowed) and clean,
    )


def _save_limited(shop: Workshop, target: Path, size: int, *, deadly: bool = False) -> None:
    limit_files(size, deadly=deadly)
    shop.new.save(target)


def _sizes(shop: Workshop) -> list[tuple[int, str]]:
    """Return sizes at which a save stops, and in which file it does."""
    sizes = [len(content) for content in contents(shop.folder / "new").values()]
    return [(min(sizes) // 2, "its first file"), (max(sizes) - 1, "its largest file")]


def _full_disk(shop: Workshop) -> Iterator[Row]:
    for size, which in _sizes(shop):
        for earlier in (None, "old"):
            target = shop.fresh(earlier)
            end = attempt(partial(_save_limited, shop, target, size))
            there = contents(target) if target.exists() else {}
            kept = there == (contents(shop.folder / "old") if earlier else {})
            yield Row(
                "save",
                "over an older model" if earlier else "into a new folder",
                f"no room for all of {which}",
                "OSError that names `path`; the folder is as it was",
                f"{told(end, target.parent)}; folder {'as it was' if kept else 'changed'}",
                end.kind == "raised" and "`path` cannot be written" in end.value and kept,
            )


def _read_only(shop: Workshop) -> Row:
    target = shop.fresh("old")
    for path in (target, target.parent, shop.folder):
        path.chmod(0o755)
    target.chmod(0o555)

    def act() -> None:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        shop.new.save(target)

    end = attempt(act)
    target.chmod(0o755)
    kept = contents(target) == contents(shop.folder / "old")
    return Row(
        "save",
        "over an older model",
        "folder that may not be written to",
        "PermissionError that names `path`; the folder is as it was",
        f"{told(end, target.parent)}; folder {'as it was' if kept else 'changed'}",
        end.kind == "raised" and end.value.startswith("PermissionError") and kept,
    )


def _two_savers(shop: Workshop) -> Row:
    target = shop.fresh("old")

    def save_often(model: MLRForecaster) -> None:
        for _ in range(30):
            model.save(target)

    fork = get_context("fork")
    savers = [fork.Process(target=save_often, args=(model,)) for model in (shop.old, shop.new)]
    for saver in savers:
        saver.start()
    known = {weights(shop.old), weights(shop.new)}

    def load_often() -> int:
        return sum(weights(MLRForecaster.load(target)) in known for _ in range(30))

    end = attempt(load_often)
    for saver in savers:
        saver.join()
    left = [name for name in contents(target) if name.startswith(".")]
    return Row(
        "save",
        "30 times each into one folder",
        "two processes save while a third one loads",
        "every load gives one of the models; no draft is left",
        f"{end.value} of 30 loads gave one of them; drafts left: {len(left)}",
        end.value == 30 and not left and all(saver.exitcode == 0 for saver in savers),
    )


# ---- files ----


def _file(folder: Path, part: str) -> Path:
    """Return the file of a model whose name begins so."""
    (found,) = folder.glob(f"{part}*")
    return found


def refused(
    shop: Workshop, what: str, where: str, how: str, harm: Callable[[Path], Any], says: str = ""
) -> Row:
    """Harm a copy of a model, load it, and expect one error."""
    folder = shop.fresh("new")
    harm(folder)
    marker = folder.parent / "executed"
    end = attempt(lambda: MLRForecaster.load(folder) and None)
    good = end.kind == "raised" and end.value.startswith("ModelFileError") and says in end.value
    return Row(
        what,
        where,
        how,
        "ModelFileError; nothing is executed",
        told(end, folder.parent) + ("; CODE WAS EXECUTED" if marker.exists() else ""),
        good and not marker.exists(),
    )


def files(shop: Workshop) -> Iterator[Row]:
    """Cut, alter, exchange and move the files of a model."""
    for part in ("model", "context", "calibration", "config"):
        size = _file(shop.folder / "new", part).stat().st_size
        for place in (0, 1, 8, size // 2, size - 2):
            cut = partial(_cut, part=part, size=place)
            yield refused(shop, "load", part, f"cut after byte {place} of {size}", cut)
        for place in (0, 9, size // 4, size // 2, size - 3):
            flip = partial(_flip, part=part, place=place)
            yield refused(shop, "load", part, f"bit flipped in byte {place} of {size}", flip)
        yield refused(shop, "load", part, "a byte more", partial(_longer, part=part))
        yield refused(shop, "load", part, "missing", lambda f, p=part: _file(f, p).unlink())
    for version in (0, 2, "1", None, True):
        change = partial(edit, change=lambda d, v=version: d.update(format=v))
        yield refused(shop, "load", "config", f"file format {version!r}", change, "file format")
    yield refused(shop, "load", "model", "that of another model", partial(_exchange, shop))
    yield from _harmless(shop)


def _cut(folder: Path, part: str, size: int) -> None:
    os.truncate(_file(folder, part), size)


def _flip(folder: Path, part: str, place: int) -> None:
    file = _file(folder, part)
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def _longer(folder: Path, part: str) -> None:
    file = _file(folder, part)
    file.write_bytes(file.read_bytes() + b"{")


def _exchange(shop: Workshop, folder: Path) -> None:
    _file(folder, "model").write_bytes(_file(shop.folder / "old", "model").read_bytes())


def _harmless(shop: Workshop) -> Iterator[Row]:
    """Change what a model does not depend on."""

    def moved(folder: Path) -> Path:
        return folder.rename(folder.with_name("another name ü"))

    def card(folder: Path, content: bytes | None) -> Path:
        (folder / "README.md").unlink()
        if content is not None:
            (folder / "README.md").write_bytes(content)
        return folder

    def downloaded(folder: Path) -> Path:
        (folder / ".cache" / "huggingface").mkdir(parents=True)
        (folder / ".gitattributes").write_text("*.safetensors filter=lfs\n")
        return folder

    harms: dict[str, Callable[[Path], Path]] = {
        "folder renamed": moved,
        "card removed": partial(card, content=None),
        "card edited": partial(card, content=b"# Mine"),
        "card of no text": partial(card, content=b"\xff" * 99),
        "downloaded from a hub": downloaded,
    }
    for how, harm in harms.items():
        found = shop.which(harm(shop.fresh("new")))
        yield Row("load", "folder", how, "the new model loads", found, found == "the new model")


# ---- hostile files: made to do harm, and sealed with the checksums that belong to them ----


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a configuration, and seal it."""
    document = json.loads((folder / "config.json").read_text())
    change(document)
    document["checksum"] = checksum(document)
    (folder / "config.json").write_text(json.dumps(document))


def put(folder: Path, content: bytes) -> None:
    """Put other content in place of the weights, under the digest that it has."""
    digest = hashlib.sha256(content).hexdigest()
    name = file_name("model", digest)
    old = _file(folder, "model").name
    (folder / name).write_bytes(content)

    def relist(document: dict[str, Any]) -> None:
        listed = document["sha256"].items()
        document["sha256"] = dict((name, digest) if k == old else (k, v) for k, v in listed)

    edit(folder, relist)


class Payload:
    """What writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def _pickle(folder: Path) -> None:
    put(folder, pickle.dumps(Payload(folder.parent / "executed")))


def _torch_file(folder: Path) -> None:
    torch.save(Payload(folder.parent / "executed"), folder.parent / "payload")
    put(folder, (folder.parent / "payload").read_bytes())


def _bomb(folder: Path) -> None:
    with zipfile.ZipFile(folder.parent / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(10**8))
    put(folder, (folder.parent / "bomb").read_bytes())


def _header(folder: Path, described: dict[str, Any]) -> None:
    text = json.dumps(described).encode()
    put(folder, len(text).to_bytes(8, "little") + text + bytes(4))


def _other_weights(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = load_file(_file(folder, "model"))
    name = max(tensors)
    put(folder, to_bytes(tensors | {name: change(tensors[name])}))


def _replaced(folder: Path, part: str, by: str) -> None:
    file = _file(folder, part)
    file.unlink()
    if by == "a pipe":
        os.mkfifo(file)
    elif by == "a folder":
        file.mkdir()
    else:
        file.symlink_to({"an endless device": "/dev/zero", "itself": str(file)}[by])


def hostile(shop: Workshop) -> Iterator[Row]:
    """Load models that somebody has made to do harm."""
    both = ("parameters", "config")

    def set_both(document: dict[str, Any], **fields: Any) -> None:
        for part in both:
            document[part].update(fields)

    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "attention names a function": lambda d: set_both(d, attention="os.system"),
        "loss names a function": lambda d: set_both(d, loss="__import__"),
        "a parameter names a class": lambda d: d["parameters"].update(callback="os.system"),
        "a field names a class": lambda d: d["config"].update(_target_="builtins.eval"),
        "a custom backbone": lambda d: d.update(backbone="torch.nn.Identity"),
        "a key more": lambda d: d.update(hook="os.system('touch executed')"),
        "files outside of the folder": lambda d: d.update(sha256={"../x.safetensors": "0" * 64}),
        "a width for no memory": lambda d: set_both(d, width=10**9),
        "a context for no memory": lambda d: set_both(d, context_length=10**12),
        "layers without end": lambda d: set_both(d, num_layers=10**9),
        "a frequency of 100,000 letters": lambda d: d.update(freq="h" * 10**5),
        "a time zone as path": lambda d: d["context"]["time"].update(zone="../../etc/passwd"),
        "a zero in front of the frequency": lambda d: d.update(freq="0h"),
        "checkpoints to a folder": lambda d: d["parameters"].update(checkpoint_dir="x"),
    }
    for how, change in changes.items():
        yield refused(shop, "load", "config, sealed", how, partial(edit, change=change))
    texts = {
        "100,000 brackets": b"[" * 10**5,
        "a number of 5,000 digits": b'{"format": ' + b"9" * 5000 + b"}",
        "no text": b"\xff\xfe\x00",
    }
    for how, text in texts.items():
        write = partial(lambda f, text: (f / "config.json").write_bytes(text), text=text)
        yield refused(shop, "load", "config", how, write)
    spoilt: dict[str, Callable[[Path], Any]] = {
        "a pickle that runs code": _pickle,
        "a file of torch.save that runs code": _torch_file,
        "an archive of 100 MB of zeros": _bomb,
        "shapes beyond the file": partial(
            _header,
            described={"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}},
        ),
        "offsets beyond the file": partial(
            _header, described={"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 10**15]}}
        ),
        "a header of 10^15 bytes": lambda f: put(f, (10**15).to_bytes(8, "little") + b"{}"),
        "NaN among the weights": partial(_other_weights, change=lambda w: w * float("nan")),
        "weights in float64": partial(_other_weights, change=torch.Tensor.double),
        "weights of another shape": partial(_other_weights, change=lambda w: torch.cat([w, w])),
    }
    for how, harm in spoilt.items():
        yield refused(shop, "load", "model, under its own digest", how, harm)
    for part in ("config", "model"):
        for by in ("a pipe", "a folder", "an endless device", "itself"):
            how = f"replaced by {by if by in ('a pipe', 'a folder') else f'a link to {by}'}"
            yield refused(shop, "load", part, how, partial(_replaced, part=part, by=by))
        grow = partial(_cut, part=part, size=2**43)
        yield refused(shop, "load", part, "8 TB of zeros at its end", grow)


# ---- fit and backtest: killed, and started again ----


def steps_of(act: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a call returns, and the optimiser steps that it made."""
    step, count = torch.optim.AdamW.step, 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return step(*args, **kwargs)

    torch.optim.AdamW.step = counted  # type: ignore[method-assign]
    try:
        return act(), count
    finally:
        torch.optim.AdamW.step = step  # type: ignore[method-assign]


class Run(NamedTuple):
    """Something that trains, and what must come out of it.

    Parameters
    ----------
    what : str
        In words.
    act : callable
        Trains with some folder of checkpoints, or None, and returns a digest of the outcome.
    """

    what: str
    act: Callable[[Path | None], str]

    def unbroken(self) -> tuple[str, int]:
        """Return the digest of a run without checkpoints, and its optimiser steps."""
        end = attempt(lambda: steps_of(lambda: self.act(None)))
        if end.kind != "returned":
            raise RuntimeError(f"{self.what}: {end.kind} {end.value}")
        digest, steps = end.value
        return digest, steps

    def again(self, folder: Path, expected: tuple[str, int]) -> tuple[str, bool]:
        """Start a run again; return what happened and whether it ended with the same outcome."""
        end = attempt(lambda: steps_of(lambda: self.act(folder)))
        if end.kind != "returned":
            return told(end, folder), False
        digest, steps = end.value
        same = digest == expected[0]
        happened = f"{'same' if same else 'OTHER'} outcome, after {steps} of {expected[1]} steps"
        return happened, same


def _fitted(folder: Path | None, **parameters: Any) -> str:
    return weights(fit(checkpoint_dir=folder, **parameters))


def _backtested(folder: Path | None) -> str:
    forecaster = fit(max_steps=2).set_params(max_steps=6, checkpoint_dir=folder)
    result = forecaster.backtest(frame(), windows=3, refit=True)
    return hashlib.sha256(result.forecast.tobytes()).hexdigest()


FITS = {
    "fit": {},
    "fit with early stopping": {"early_stopping": True},
    "fit with averaged weights and clipping": {"ema_decay": 0.5, "gradient_clip": 0.1},
}


def fits(shop: Workshop) -> Iterator[Row]:
    """Kill fits in steps and in the writing of checkpoints."""
    for what, parameters in FITS.items():
        run = Run(what, partial(_fitted, **parameters))
        expected = run.unbroken()
        for number in (1, 2, 7, expected[1]):
            yield _killed(shop, run, expected, f"in step {number}", partial(kill_in_step, number))
        yield from _killed_writing(shop, run, expected, most=12 if what == "fit" else 4)
    run = Run("fit", _fitted)
    expected = run.unbroken()
    yield _killed(shop, run, expected, "a checkpoint ends in its middle", _die_in_mid_write)
    yield _twice_killed(shop, run, expected)
    yield _finished(shop, run, expected)


def _die_in_mid_write() -> None:
    limit_files(4000, deadly=True)


def _killed(
    shop: Workshop, run: Run, expected: tuple[str, int], where: str, fatal: Callable[[], None]
) -> Row:
    """Kill a run and start it again."""
    folder = shop.fresh()
    end = attempt(lambda: (fatal(), run.act(folder)))
    happened, same = run.again(folder, expected)
    return Row(
        run.what,
        where,
        f"process killed ({end.value})" if end.kind == "killed" else told(end, folder),
        "started again, it ends with the same outcome to the bit",
        happened,
        end.kind == "killed" and same,
    )


def _killed_writing(
    shop: Workshop, run: Run, expected: tuple[str, int], most: int
) -> Iterator[Row]:
    """Kill before each of the first operations on the disk; those of a checkpoint are three."""
    for number in range(1, most + 1):
        folder = shop.fresh()
        end = attempt(lambda n=number, f=folder: (kill_before(n), run.act(f)))
        if end.kind == "returned":
            return
        happened, same = run.again(folder, expected)
        left = [file.name for file in folder.glob(".*")] if folder.exists() else []
        yield Row(
            run.what,
            f"before disk operation {number} of its checkpoints",
            f"process killed ({end.value})",
            "started again, it ends with the same outcome to the bit; no draft is left",
            f"{happened}; drafts left: {len(left)}",
            end.kind == "killed" and same and not left,
        )


def _twice_killed(shop: Workshop, run: Run, expected: tuple[str, int]) -> Row:
    folder = shop.fresh()
    for number in (5, 3):
        attempt(lambda n=number: (kill_in_step(n), run.act(folder)))
    happened, same = run.again(folder, expected)
    how = "process killed (SIGKILL), twice"
    return Row(run.what, "in step 5, then 3 steps on", how, "same weights", happened, same)


def _finished(shop: Workshop, run: Run, expected: tuple[str, int]) -> Row:
    folder = shop.fresh()
    run.again(folder, expected)
    happened, same = run.again(folder, expected)
    at_once = "after 0 of" in happened
    return Row(run.what, "after its end", "none", "done at once", happened, same and at_once)


def checkpoints(shop: Workshop) -> Iterator[Row]:
    """Harm the checkpoint of a killed fit."""
    source = shop.fresh()
    attempt(lambda: (kill_in_step(7), _fitted(source)))
    (file,) = source.iterdir()
    size = file.stat().st_size
    run = Run("fit", _fitted)
    expected = run.unbroken()
    harms: dict[str, Callable[[Path], Any]] = {}
    for place in (0, 7, size // 2, size - 1):
        harms[f"cut after byte {place} of {size}"] = partial(_cut, part="fit", size=place)
    for place in (0, 40, size // 2, size - 2):
        harms[f"bit flipped in byte {place} of {size}"] = partial(_flip, part="fit", place=place)
    harms["a pickle that runs code"] = _pickled_checkpoint
    harms["8 TB of zeros at its end"] = partial(_cut, part="fit", size=2**43)
    for how, harm in harms.items():
        folder = shop.fresh()
        shutil.copytree(source, folder)
        harm(folder)
        marker = folder.parent / "executed"
        end = attempt(lambda f=folder: _fitted(f))
        yield Row(
            "fit",
            "its checkpoint",
            how,
            "ModelFileError that names the file; nothing is executed",
            told(end, folder) + ("; CODE WAS EXECUTED" if marker.exists() else ""),
            end.kind == "raised"
            and end.value.startswith("ModelFileError")
            and "fit-" in end.value
            and not marker.exists(),
        )
    for by in ("a pipe", "a folder", "an endless device"):
        folder = shop.fresh()
        shutil.copytree(source, folder)
        _replaced(folder, "fit", by)
        end = attempt(lambda f=folder: _fitted(f))
        good = (end.kind == "returned" and end.value == expected[0]) or end.kind == "raised"
        how = f"replaced by {by if by != 'an endless device' else 'a link to an endless device'}"
        wanted = "an error, or a fit from the start"
        yield Row("fit", "its checkpoint", how, wanted, told(end, folder), good)
    other = Run("fit", partial(_fitted, seed=3))
    unbroken = other.unbroken()
    happened, same = other.again(source, unbroken)
    anew = same and f"after {unbroken[1]} of" in happened
    yield Row(
        "fit", "its checkpoint", "that of another seed", "a fit from the start", happened, anew
    )


def _pickled_checkpoint(folder: Path) -> None:
    payload = pickle.dumps(Payload(folder.parent / "executed"))
    _file(folder, "fit").write_bytes(payload)


def backtests(shop: Workshop) -> Iterator[Row]:
    """Kill a backtest inside a fit, between two, and in the writing of a checkpoint."""
    run = Run("backtest with 3 fits of 6 steps", _backtested)
    expected = run.unbroken()
    # The first two steps are those of the fit before the backtest.
    for number, where in (
        (3, "in the first step of the first fit"),
        (6, "inside the first fit"),
        (9, "between two fits"),
        (12, "inside the second fit"),
        (20, "in the last step of all"),
    ):
        yield _killed(shop, run, expected, where, partial(kill_in_step, number))
    yield from _killed_writing(shop, run, expected, most=6)


GROUPS = {
    "save": saves,
    "files": files,
    "hostile": hostile,
    "fit": fits,
    "checkpoint": checkpoints,
    "backtest": backtests,
}


def _write(path: Path, rows: list[dict[str, Any]], names: list[str]) -> None:
    """Write rows in place of earlier ones of the same groups."""
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["group"] not in names] + rows
    rows.sort(key=lambda row: list(GROUPS).index(row["group"]))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Try all, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=GROUPS)
    options = parser.parse_args()
    # A process is forked for each attempt: threads would not be there.
    torch.set_num_threads(1)
    about = {
        "version": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": f"{cpu_model()}, 1 thread",
        "command": "python benchmarks/failures.py --out benchmarks/results/failures"
        + (f" --only {options.only}" if options.only else ""),
    }
    names = [options.only] if options.only else list(GROUPS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(Path(folder))
        for name in names:
            for row in GROUPS[name](shop):
                rows.append({"group": name, **row._asdict(), **about})
                print("ok " if row.ok else "BAD", *row[:-1], sep=" | ", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    _write(options.out / "failures.csv", rows, names)
    bad = sum(not row["ok"] for row in rows)
    print(f"{len(rows)} attempts, {bad} not as expected")


if __name__ == "__main__":
    main()
