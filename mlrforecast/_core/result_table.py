"""Result files: one CSV line a run, written by several processes that may be stopped."""

import csv
import io
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlrforecast._core.locks import locked

__all__ = ["ResultTable", "Row", "split_torn"]

Row = dict[str, object]

_NEWLINE = b"\n"
_REMEDY = "Remove that line and start again; the other runs are kept."
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """What the lines of a result file hold.

    Parameters
    ----------
    columns : tuple of str
        All columns, in their order.
    key : tuple of str
        What tells one run from another: a run whose key is in a file is not written again.
    whole, real : tuple of str
        Columns of whole numbers and of real ones, none of them negative.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "runs.csv"
    >>> table = ResultTable(columns=("run", "loss"), key=("run",), real=("loss",))
    >>> table.append(path, {"run": "a", "loss": 0.5})
    >>> table.append(path, {"run": "a", "loss": 0.4})
    >>> table.read(path)
    [{'run': 'a', 'loss': '0.5'}]
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    whole: tuple[str, ...] = ()
    real: tuple[str, ...] = ()

    def key_of(self, row: Mapping[str, object]) -> tuple[str, ...]:
        """Return what tells a run from others, as the text that stands in a file.

        Parameters
        ----------
        row : mapping of str to object
            At least the columns of the key.
        """
        return tuple(str(row[name]) for name in self.key)

    def read(self, path: Path) -> list[Row]:
        """Return the rows of a file, as text; none if there is no file yet.

        A last line without its end is what a stop in mid-write leaves: it is no run, and
        :meth:`append` takes it away.

        Parameters
        ----------
        path : Path
            The file.

        Raises
        ------
        ValueError
            If it is no such file, or a line is none of its lines.
        """
        if not path.exists():
            return []
        with locked(path) as file:
            content = file.read()
        whole, torn = split_torn(content)
        rows = self._parse(path.name, whole)
        if torn:
            self._check_torn_header(path.name, whole, torn)
            _LOGGER.warning(
                "Line %d of %s was cut off as it was written: it is left out, and its run done "
                "again.",
                whole.count(_NEWLINE) + 1,
                path.name,
            )
        return rows

    def append(self, path: Path, *rows: Mapping[str, object]) -> None:
        """Append rows with one write, so that a stop in between leaves whole lines.

        A row that stands there already, which another process may have written, is left out.

        Parameters
        ----------
        path : Path
            The file; it is made, and its folder, if there is none.
        *rows : mapping of str to object
            Each with all columns.

        Raises
        ------
        ValueError
            If the file is no such file.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, write=True) as file:
            content = file.read()
            whole, torn = split_torn(content)
            known = {self.key_of(row) for row in self._parse(path.name, whole)}
            new = [row for row in rows if self.key_of(row) not in known]
            if not new:
                return
            if torn:
                self._check_torn_header(path.name, whole, torn)
                file.truncate(len(whole))
            header = b"" if whole else _line(self.columns)
            lines = [_line([row[name] for name in self.columns]) for row in new]
            file.write(header + b"".join(lines))

    def _check_torn_header(self, name: str, whole: bytes, torn: bytes) -> None:
        """Refuse a file of one line without end that is not the beginning of the header."""
        if not whole and not _line(self.columns).startswith(torn):
            raise ValueError(self._foreign(name))

    def _foreign(self, name: str) -> str:
        return (
            f"{name} is not a result file of this benchmark: its header must be "
            f"{','.join(self.columns)}. Move it away, or choose another folder with --out."
        )

    def _parse(self, name: str, whole: bytes) -> list[Row]:
        """Read whole lines; an error names the file, the line and the column."""
        if not whole:
            return []
        reader = csv.DictReader(io.StringIO(self._decode(name, whole), newline=""))
        rows: list[Row] = []
        try:
            if tuple(reader.fieldnames or ()) != self.columns:
                raise ValueError(self._foreign(name))
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f"Line {reader.line_num} of {name} must hold {len(self.columns)} fields "
                        f"and does not. {_REMEDY}"
                    )
                self._check_numbers(row, f"Line {reader.line_num} of {name}")
                rows.append(dict(row))
        except csv.Error as error:
            raise ValueError(
                f"Line {reader.line_num} of {name} is no CSV: {error}. {_REMEDY}"
            ) from error
        return rows

    def _decode(self, name: str, whole: bytes) -> str:
        try:
            return whole.decode()
        except UnicodeDecodeError as error:
            before = whole[: error.start]
            raise ValueError(
                f"Line {before.count(_NEWLINE) + 1} of {name} is not UTF-8 text: column "
                f"{self._column_at(before)!r} holds the byte 0x{whole[error.start]:02x}. {_REMEDY}"
            ) from error

    def _column_at(self, before: bytes) -> str:
        """Name the column in which text before a byte ends."""
        fields = next(csv.reader([before.rpartition(_NEWLINE)[2].decode()]), [""])
        return self.columns[min(len(fields), len(self.columns)) - 1]

    def _check_numbers(self, row: Mapping[str, object], where: str) -> None:
        """Check that the columns of numbers hold numbers, finite and not negative."""
        for name in (*self.whole, *self.real):
            text = str(row[name])
            try:
                number = int(text) if name in self.whole else float(text)
                valid = 0 <= number < math.inf
            except ValueError:
                valid = False
            if not valid:
                rule = "a whole number" if name in self.whole else "a finite number"
                raise ValueError(
                    f"{where} must hold {rule} of at least 0 in column {name!r}, got {text!r}. "
                    f"{_REMEDY}"
                )


def split_torn(content: bytes) -> tuple[bytes, bytes]:
    r"""Split what follows the last end of a line from the whole lines.

    Parameters
    ----------
    content : bytes
        What a file holds.

    Examples
    --------
    >>> split_torn(b"whole\ncut o")
    (b'whole\n', b'cut o')
    """
    end = content.rfind(_NEWLINE) + 1
    return content[:end], content[end:]


def _line(fields: Sequence[object]) -> bytes:
    text = io.StringIO()
    # An end of a line inside a field would make half a row look whole.
    words = [" ".join(str(field).splitlines()) for field in fields]
    csv.writer(text, lineterminator="\n").writerow(words)
    return text.getvalue().encode()
