"""The group "files" of ``failures.py``: models cut, altered, exchanged, moved and renamed."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from _failures_harm import cut, edit, file_of, flip, refused
from _failures_lab import Row, Workshop


def files(shop: Workshop) -> Iterator[Row]:
    """Cut, alter, exchange and move the files of a model."""
    for part in ("model", "context", "calibration", "config"):
        size = file_of(shop.folder / "new", part).stat().st_size
        for place in (0, 1, 8, size // 2, size - 2):
            harm = partial(cut, part=part, size=place)
            yield refused(shop, "load", part, f"cut after byte {place} of {size}", harm)
        for place in (0, 9, size // 4, size // 2, size - 3):
            harm = partial(flip, part=part, place=place)
            yield refused(shop, "load", part, f"bit flipped in byte {place} of {size}", harm)
        yield refused(shop, "load", part, "a byte more", partial(_longer, part=part))
        yield refused(shop, "load", part, "missing", lambda f, p=part: file_of(f, p).unlink())
    for version in (0, 2, "1", None, True):
        change = partial(edit, change=lambda d, v=version: d.update(format=v))
        yield refused(shop, "load", "config", f"file format {version!r}", change, "file format")
    yield refused(shop, "load", "model", "that of another model", partial(_exchange, shop))
    yield from _harmless(shop)


def _longer(folder: Path, part: str) -> None:
    file = file_of(folder, part)
    file.write_bytes(file.read_bytes() + b"{")


def _exchange(shop: Workshop, folder: Path) -> None:
    file_of(folder, "model").write_bytes(file_of(shop.folder / "old", "model").read_bytes())


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
