"""The group "checkpoint" of ``failures.py``: a fit goes on from a checkpoint that was harmed."""

import pickle
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _failures_harm import Payload, cut, file_of, flip, judge, replace
from _failures_lab import End, Row, Workshop, attempt, kill_in_step, told
from _failures_training import Run, fitted


def checkpoints(shop: Workshop) -> Iterator[Row]:
    """Harm the checkpoint of a killed fit."""
    source = shop.fresh()
    attempt(lambda: (kill_in_step(7), fitted(source)))
    for how, harm in _harms(file_of(source, "fit").stat().st_size).items():
        yield _refused(shop, source, how, harm)
    digest, _ = Run("fit", fitted).unbroken()
    for by in ("a pipe", "a folder", "an endless device"):
        yield _replaced(shop, source, by, digest)
    yield _of_another_seed(source)


def _harms(size: int) -> dict[str, Callable[[Path], Any]]:
    """Return what is done to a checkpoint of that size."""
    harms: dict[str, Callable[[Path], Any]] = {}
    for place in (0, 7, size // 2, size - 1):
        harms[f"cut after byte {place} of {size}"] = partial(cut, part="fit", size=place)
    for place in (0, 40, size // 2, size - 2):
        harms[f"bit flipped in byte {place} of {size}"] = partial(flip, part="fit", place=place)
    harms["a pickle that runs code"] = _pickled
    harms["8 TB of zeros at its end"] = partial(cut, part="fit", size=2**43)
    return harms


def _pickled(folder: Path) -> None:
    payload = pickle.dumps(Payload(folder.parent / "executed"))
    file_of(folder, "fit").write_bytes(payload)


def _harmed(shop: Workshop, source: Path, harm: Callable[[Path], Any]) -> tuple[Path, End]:
    """Harm a copy of the checkpoints and fit with it."""
    folder = shop.fresh()
    shutil.copytree(source, folder)
    harm(folder)
    return folder, attempt(lambda: fitted(folder))


def _refused(shop: Workshop, source: Path, how: str, harm: Callable[[Path], Any]) -> Row:
    folder, end = _harmed(shop, source, harm)
    happened, good = judge(end, folder, "fit-", within=folder)
    expected = "ModelFileError that names the file; nothing is executed"
    return Row("fit", "its checkpoint", how, expected, happened, good)


def _replaced(shop: Workshop, source: Path, by: str, digest: str) -> Row:
    folder, end = _harmed(shop, source, partial(replace, part="fit", by=by))
    good = (end.kind == "returned" and end.value == digest) or end.kind == "raised"
    how = f"replaced by {by if by != 'an endless device' else 'a link to an endless device'}"
    wanted = "an error, or a fit from the start"
    return Row("fit", "its checkpoint", how, wanted, told(end, folder), good)


def _of_another_seed(source: Path) -> Row:
    other = Run("fit", partial(fitted, seed=3))
    unbroken = other.unbroken()
    happened, same = other.again(source, unbroken)
    anew = same and f"after {unbroken[1]} of" in happened
    how, wanted = "that of another seed", "a fit from the start"
    return Row("fit", "its checkpoint", how, wanted, happened, anew)
