"""What ``mlrforecast datasets`` does."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any

from mlrforecast._core.errors import (
    ChecksumError,
    DatasetNotFoundError,
    MissingDependencyError,
)
from mlrforecast.cli._console import Console
from mlrforecast.data import (
    DatasetCard,
    FileCard,
    datasets_at_hand,
    fetch_dataset,
    list_datasets,
    load_card,
    load_dataset,
    verify_dataset,
)

_WIDTH = 100
_SHORT = 24
_HEAD = ("name", "step", "horizon", "hash", "at hand", "licence", "title")


def run_list(match: str, *, console: Console) -> None:
    """Write a row for each data set whose name or title holds a text."""
    there = set(datasets_at_hand())
    cards = [
        card
        for card in map(load_card, list_datasets())
        if match.lower() in card.name.lower() or match.lower() in card.title.lower()
    ]
    if not cards:
        raise ValueError(f"No data set has `--match` {match!r} in its name or title.")
    rows = [
        {
            "name": card.name,
            "freq": card.freq,
            "prediction_length": card.prediction_length,
            "verified": card.verified,
            "at_hand": card.name in there,
            "licence": card.licence,
            "title": card.title,
        }
        for card in cards
    ]
    console.finish({"datasets": rows}, _aligned([_HEAD, *map(_listed, rows)]))


def _listed(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one data set; what stands in its files is left open."""
    return (
        row["name"],
        row["freq"] or "-",
        str(row["prediction_length"] or "-"),
        "verified" if row["verified"] else "unverified",
        "yes" if row["at_hand"] else "-",
        textwrap.shorten(row["licence"], _SHORT, placeholder="..."),
        row["title"],
    )


def run_info(name: str, *, root: Path | None, console: Console) -> None:
    """Write the card of a data set, and what it holds if it is at hand."""
    card = load_card(name)
    try:
        holds = load_dataset(name, root=root, download=False).describe()
    except (DatasetNotFoundError, MissingDependencyError):
        holds = ""
    lines = list(_card_lines(card))
    how = "load_dataset lets GluonTS fetch it" if card.format == "gluonts" else ""
    how = how or f"mlrforecast datasets fetch {name}"
    told = holds.splitlines() or [f"Not at hand: {how}"]
    # Title, source and licence stand in both.
    text = "\n".join([*lines, *(line for line in told if line not in lines)])
    console.finish({**_card_fields(card), "at_hand": bool(holds)}, text)


def _card_fields(card: DatasetCard) -> dict[str, Any]:
    """Return the fields of a card as JSON has them."""
    found = _plain_fields(card)
    return found | {
        "files": [_plain_fields(file) for file in card.files],
        "columns": [_plain_fields(column) for column in card.columns],
        "splits": {part: [rows.start, rows.stop] for part, rows in card.splits.items()},
    }


def _plain_fields(card: Any) -> dict[str, Any]:
    return {field.name: getattr(card, field.name) for field in fields(card)}


def _card_lines(card: DatasetCard) -> Iterator[str]:
    """Write a card to be read."""
    yield f"{card.name}: {card.title}"
    yield from textwrap.wrap(card.description, _WIDTH)
    for label, text in (
        ("source", card.source),
        ("licence", card.licence),
        ("cite", card.citation),
    ):
        yield from textwrap.wrap(f"{label}: {text}", _WIDTH, subsequent_indent="  ")
    for file in card.files:
        yield from _file_lines(file)


def _file_lines(file: FileCard) -> Iterator[str]:
    """Write what is known of a file."""
    size = f"{file.size} bytes" if file.size else "size unknown"
    yield f"file: {file.name}, {size}, {f'sha256 {file.sha256}' if file.verified else 'unverified'}"
    for url in file.urls:
        yield f"  {url}"
    if file.embedded:
        yield "  comes with the package"


def run_fetch(names: Sequence[str], *, force: bool, console: Console) -> None:
    """Download the files of data sets, and write where they are."""
    # Whoever mistypes the last name is told before the first download.
    for name in names:
        load_card(name)
    found = {
        name: [str(path) for path in fetch_dataset(name, force=force, progress=console.progress)]
        for name in names
    }
    for name in (name for name, paths in found.items() if not paths):
        console.say(f"{name} comes with the package.")
    rows = [{"name": name, "files": paths} for name, paths in found.items()]
    console.finish({"datasets": rows}, "\n".join(chain(*found.values())) or None)


def run_verify(names: Sequence[str], *, root: Path | None, console: Console) -> None:
    """Write the state of each file of data sets, and fail if one is not what it must be."""
    rows: list[dict[str, Any]] = []
    for name in names:
        table = verify_dataset(name, root=root).assign(name=name)
        rows += [dict(zip(table.columns, row, strict=True)) for row in table.to_numpy()]
    shown = ("name", "file", "state", "size", "where")
    lines = [shown, *(tuple(str(row[field] or "-") for field in shown) for row in rows)]
    console.finish({"files": rows}, _aligned(lines))
    states = {row["state"]: row for row in reversed(rows)}
    if row := states.get("altered"):
        raise ChecksumError(
            f"{row['where']} was altered or cut short: its sha256 is "
            f"{row['sha256'] or 'not to be had'}, expected {row['expected'] or 'another size'}."
        )
    if row := states.get("absent"):
        raise DatasetNotFoundError(
            f"{row['file']} of {row['name']} is nowhere. To get it: mlrforecast datasets fetch "
            f"{row['name']}"
        )


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Write rows of equal length as columns."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
