"""What is done to the files of a copied model or to a checkpoint, for ``failures.py``."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _failures_lab import End, Row, Workshop, attempt, told

from mlrforecast import MLRForecaster
from mlrforecast.estimators._document import checksum, file_name


def file_of(folder: Path, part: str) -> Path:
    """Return the only file of a folder whose name begins so."""
    (found,) = folder.glob(f"{part}*")
    return found


def cut(folder: Path, part: str, size: int) -> None:
    """Cut a file at a size, or fill it with zeros up to it."""
    os.truncate(file_of(folder, part), size)


def flip(folder: Path, part: str, place: int) -> None:
    """Flip a bit of a file."""
    file = file_of(folder, part)
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def replace(folder: Path, part: str, by: str) -> None:
    """Put something in place of a file that is none."""
    file = file_of(folder, part)
    file.unlink()
    if by == "a pipe":
        os.mkfifo(file)
    elif by == "a folder":
        file.mkdir()
    else:
        file.symlink_to({"an endless device": "/dev/zero", "itself": str(file)}[by])


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
    old = file_of(folder, "model").name
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


def judge(end: End, folder: Path, says: str, within: Path) -> tuple[str, bool]:
    """Return what happened, and whether it was an error of a file that says so and no more."""
    executed = (folder.parent / "executed").exists()
    good = end.kind == "raised" and end.value.startswith("ModelFileError") and says in end.value
    happened = told(end, within) + ("; CODE WAS EXECUTED" if executed else "")
    return happened, good and not executed


def refused(
    shop: Workshop, what: str, where: str, how: str, harm: Callable[[Path], Any], says: str = ""
) -> Row:
    """Harm a copy of a model, load it, and expect one error."""
    folder = shop.fresh("new")
    harm(folder)
    end = attempt(lambda: MLRForecaster.load(folder) and None)
    happened, good = judge(end, folder, says, within=folder.parent)
    return Row(what, where, how, "ModelFileError; nothing is executed", happened, good)
