"""Documents of data sets on the Hugging Face hub, one at a time."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mlrforecast._core.errors import HubError, MissingDependencyError
from mlrforecast._core.offline import offline_switch
from mlrforecast._core.optional import import_optional
from mlrforecast.tasks.language_model._checks import whole

__all__ = ["hugging_face_documents"]


def hugging_face_documents(
    name: str,
    *,
    config: str | None = None,
    split: str = "train",
    column: str = "text",
    max_documents: int | None = None,
) -> Iterator[str]:
    """Yield the texts of a data set as they are downloaded, for :func:`prepare_corpus`.

    Nothing is stored beside what the hub's own client keeps. Needs the extra ``text``.

    Parameters
    ----------
    name : str
        Data set on the hub, such as ``"HuggingFaceFW/fineweb"``, or a folder of files that its
        library reads (parquet, JSON lines, csv), which needs no internet.
    config : str, optional
        Which configuration of it, such as ``"sample-10BT"``.
    split : str, default "train"
        Which split of it.
    column : str, default "text"
        Column of the texts; rows without one are left out.
    max_documents : int, at least 1, optional
        Stop after so many rows. Default: read all.

    Yields
    ------
    str
        Documents in the order of the data set.

    Raises
    ------
    MissingDependencyError
        If Hugging Face's ``datasets`` is not installed; an ImportError.
    HubError
        If the data set cannot be had; an OSError that says what was tried. While documents are
        read it says after how many.
    ValueError
        If there is no such column.
    TypeError
        If a value of it is no text.

    Examples
    --------
    >>> documents = hugging_face_documents(
    ...     "HuggingFaceFW/fineweb", config="sample-10BT", max_documents=1000
    ... )  # doctest: +SKIP
    >>> corpus = prepare_corpus(documents, "corpus")  # doctest: +SKIP
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"`name` must be the name of a data set or a folder, got {name!r}.")
    count = None if max_documents is None else whole("max_documents", max_documents)
    what = f"{name!r}" + (f", configuration {config!r}" if config else "") + f", split {split!r}"
    if (switch := offline_switch()) and not Path(name).exists():
        raise HubError(
            f"The data set {what} cannot be had. Tried: the folder {name!r} (not there); the hub "
            f"(switched off by {switch})."
        )
    library = _library()
    try:
        rows = library.load_dataset(name, config, split=split, streaming=True)
    except Exception as error:
        raise _explained(what, name, error) from error
    return _texts(rows, what, name, column, count)


def _library() -> Any:
    """Import Hugging Face's library, for which a folder of the same name may stand in."""
    purpose = "A data set of the hub"
    library = import_optional("datasets", extra="text", purpose=purpose)
    if not hasattr(library, "load_dataset"):
        where = ", ".join(map(str, getattr(library, "__path__", ()))) or "a module"
        raise MissingDependencyError(
            f"{purpose} needs 'datasets' of Hugging Face, and another one of that name was found "
            f"({where}). Install it with: pip install 'mlrforecast[text]'"
        )
    return library


def _texts(
    rows: Iterable[Mapping[str, Any]], what: str, name: str, column: str, count: int | None
) -> Iterator[str]:
    """Yield the texts of the rows; the library's errors become ours."""
    iterator = islice(iter(rows), count)
    number = 0
    while True:
        try:
            row = next(iterator, None)
        except Exception as error:
            raise _explained(what, name, error, after=number) from error
        if row is None:
            return
        number += 1
        if column not in row:
            raise ValueError(
                f"`column` must be one of {', '.join(map(repr, row))}, got {column!r}."
            )
        text = row[column]
        if text is not None:
            if not isinstance(text, str):
                raise TypeError(
                    f"`column` must hold texts, got a {type(text).__name__} in row {number}."
                )
            yield text


def _explained(what: str, name: str, error: Exception, after: int = 0) -> HubError:
    """Say what was tried, and what the library answered."""
    place = f"the folder {name!r}" if Path(name).exists() else "the hub"
    read = f" after {after} documents" if after else ""
    reason = " ".join(str(error).split()) or "no reason given"
    return HubError(
        f"The data set {what} cannot be read{read}. Tried: {place} "
        f"({type(error).__name__}: {reason})."
    )
