"""What each group of ``failures.py`` needs: processes that may end badly, and two small models."""

import hashlib
import os
import resource
import shutil
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from mlrforecast import MLRForecaster

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


class Count:
    """The calls of some functions, one of which may kill this process before it is made.

    Parameters
    ----------
    deadly : int
        Number of the call that kills; none does if it is 0.
    """

    def __init__(self, deadly: int = 0) -> None:
        self.deadly = deadly
        self.number = 0

    def of(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is counted."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.number += 1
            if self.number == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted


def kill_before(number: int) -> None:
    """Kill this process before its ``number``-th call that makes a file durable or renames it."""
    count = Count(deadly=number)
    os.fsync = count.of(os.fsync)
    Path.replace = count.of(Path.replace)  # type: ignore[method-assign]


def count_steps(deadly: int = 0) -> Count:
    """Count the steps of optimisers in this process, from now to its end."""
    count = Count(deadly)
    torch.optim.AdamW.step = count.of(torch.optim.AdamW.step)  # type: ignore[method-assign]
    return count


def kill_in_step(number: int) -> None:
    """Kill this process in the ``number``-th step of an optimiser."""
    count_steps(deadly=number)


def limit_files(size: int, *, deadly: bool = False) -> None:
    """Let no file grow beyond a size: an error as of a full disk, or death in mid-write."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
