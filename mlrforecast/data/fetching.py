"""Files of data sets: fetched into the user's cache, and compared with what they must be."""

import lzma
import os
from pathlib import Path

import pandas as pd

from mlrforecast.data._checks import (
    Identity,
    expected_of,
    identity_of_content,
    identity_of_stream,
    open_decompressed,
)
from mlrforecast.data._files import check_root, fetched, find_files, locate, names_at_hand
from mlrforecast.data.catalogue import (
    DatasetCard,
    FileCard,
    catalogue_folder,
    list_datasets,
    load_card,
)

__all__ = ["datasets_at_hand", "fetch_dataset", "find_files", "verify_dataset"]

_COLUMNS = ["file", "where", "size", "sha256", "expected", "state"]


def datasets_at_hand() -> list[str]:
    """Name the data sets that load without a download.

    Returns
    -------
    list of str
        Those whose files all come with the package, or have the right names in the folder that
        ``MLRFORECAST_DATA`` names or in the user's cache. What GluonTS keeps is not looked for.

    Raises
    ------
    ValueError
        If ``MLRFORECAST_DATA`` is no folder.

    Examples
    --------
    >>> "synthetic" in datasets_at_hand()
    True
    """
    there = names_at_hand()
    cards = map(load_card, list_datasets())
    return [
        card.name
        for card in cards
        if card.files and all(file.embedded or file.name in there for file in card.files)
    ]


def fetch_dataset(name: str, *, force: bool = False, progress: bool = True) -> list[Path]:
    """Download the files of a data set into the user's cache, so that it loads without internet.

    A file that is in the cache and intact is not downloaded again. A download that was
    interrupted goes on where it stopped. A file whose hash the catalogue does not know must
    be what it was when it was first downloaded. Proxies are taken from the usual environment
    variables; ``MLRFORECAST_OFFLINE=1`` or ``HF_HUB_OFFLINE=1`` switches downloads off. The cache
    is the usual one of the system, on Linux ``mlrforecast`` in ``$XDG_CACHE_HOME`` or
    ``~/.cache``.

    Parameters
    ----------
    name : str
        One of :func:`mlrforecast.data.list_datasets`.
    force : bool, default False
        Whether to download files that are there, too, and to accept a new version of a file
        whose hash the catalogue does not know.
    progress : bool, default True
        Whether to show a bar on stderr if that is a terminal.

    Returns
    -------
    list of Path
        The files in the cache, in the order of the card; none of a data set that comes with the
        package.

    Raises
    ------
    ValueError
        If the name is unknown, or GluonTS fetches the data set itself.
    DatasetNotFoundError
        If no address serves a file, or downloads are switched off; the message lists what was
        tried.
    ChecksumError
        If an address serves another file than the one that was expected.
    OSError
        If the cache cannot be written to or is full.

    Examples
    --------
    >>> fetch_dataset("synthetic")
    []
    """
    files = _files_of(load_card(name))
    return [
        fetched(file, dataset=name, force=force, progress=progress)
        for file in files
        if not file.embedded
    ]


def verify_dataset(name: str, *, root: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Compare the files of a data set with what they must be; nothing is downloaded.

    They are sought as :func:`mlrforecast.data.load_dataset` does.

    Parameters
    ----------
    name : str
        One of :func:`mlrforecast.data.list_datasets`.
    root : path, optional
        An existing folder to look through first.

    Returns
    -------
    DataFrame
        A row for each file: ``file``, its name; ``where`` it was found; ``size`` in bytes and
        ``sha256``, both of the decompressed content; the ``expected`` hash, of the catalogue or of
        the first download; and the ``state``: ``"ok"``, ``"unverified"`` if no hash is known,
        ``"altered"`` or ``"absent"``. What does not apply is empty, and the size 0.

    Raises
    ------
    ValueError
        If the name is unknown, GluonTS keeps the data set, or ``root`` or ``MLRFORECAST_DATA`` is
        no folder.

    Examples
    --------
    >>> verify_dataset("synthetic")[["file", "size", "state"]]
                file   size state
    0  synthetic.csv  47049    ok
    """
    check_root(root)
    rows = [_verified(file, root) for file in _files_of(load_card(name))]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _files_of(card: DatasetCard) -> tuple[FileCard, ...]:
    """Files of a card; GluonTS keeps its own."""
    if card.format == "gluonts":
        raise ValueError(
            f"The files of data set {card.name!r} are fetched and kept by GluonTS: "
            f"use load_dataset({card.name!r})."
        )
    return card.files


def _verified(file: FileCard, root: str | os.PathLike[str] | None) -> tuple[object, ...]:
    """Row of a file."""
    expected = expected_of(file)
    if file.embedded:
        entry = catalogue_folder() / file.embedded
        return _row(file, str(entry), identity_of_content(entry.read_bytes()), expected)
    rows = [
        _row(file, str(path), _seen(path, expected), expected) for path in locate(file, root).paths
    ]
    # As load_dataset, which takes the first copy that is intact.
    intact = [row for row in rows if row[-1] != "altered"]
    return next(iter(intact + rows), (file.name, "", 0, "", expected.sha256, "absent"))


def _seen(path: Path, expected: Identity) -> Identity:
    """Measure a file; one that cannot be decompressed has no hash."""
    try:
        with open_decompressed(path) as stream:
            return identity_of_stream(stream, expected.limit)
    except (lzma.LZMAError, EOFError):
        return Identity()


def _row(file: FileCard, where: str, seen: Identity, expected: Identity) -> tuple[object, ...]:
    """Row of a file that was found."""
    state = "altered"
    if seen.sha256 and expected.fits(seen):
        state = "ok" if expected.sha256 else "unverified"
    return file.name, where, seen.size, seen.sha256, expected.sha256, state
