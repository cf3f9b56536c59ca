"""Tables of results that several calls of a script write to."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any


def replace_rows(
    path: Path,
    columns: Sequence[str],
    rows: Iterable[dict[str, Any]],
    rank: Callable[[dict[str, Any]], Any],
    end: str = "\n",
) -> None:
    """Write rows in place of the earlier ones of the same ranks, all in the order of their ranks.

    Parameters
    ----------
    path : Path
        A CSV file, which need not be there.
    columns : sequence of str
        Its columns.
    rows : iterable of dict
        The rows to write.
    rank : callable
        Takes a row; what it returns tells groups of rows apart and sorts them.
    end : str
        The end of a line.
    """
    rows = list(rows)
    ranks = [rank(row) for row in rows]
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if rank(row) not in ranks] + rows
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator=end)
        writer.writeheader()
        writer.writerows(sorted(rows, key=rank))
