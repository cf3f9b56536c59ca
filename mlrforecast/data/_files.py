"""Where the files of data sets are sought, and how what is found there is checked."""

import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mlrforecast._core.errors import ChecksumError
from mlrforecast._core.offline import offline_switch
from mlrforecast.data._checks import (
    FOLDER_VARIABLE,
    Identity,
    advice_on_file,
    check,
    expected_of,
    identity_of_content,
    is_intact,
    not_found,
    open_decompressed,
    user_cache,
)
from mlrforecast.data.catalogue import FileCard, catalogue_folder

CACHE = "the user's cache"


class Found(NamedTuple):
    """Copies of a file in the first place that has any, and the places without."""

    paths: list[Path]
    place: str
    tried: list[str]


def read_file(
    file: FileCard, *, dataset: str, root: str | os.PathLike[str] | None, download: bool
) -> bytes:
    """Return the checked, decompressed content of a file of a data set.

    Sought in ``root``, in the folder named by ``MLRFORECAST_DATA`` and in the user's cache, then
    fetched into the cache if ``download`` and no switch says that there is no internet.
    """
    expected = expected_of(file)
    if file.embedded:
        check_root(root)
        entry = catalogue_folder() / file.embedded
        return _checked(file, entry.read_bytes(), expected, dataset=dataset, where=str(entry))
    found = locate(file, root)
    if not found.paths:
        if not download:
            tried = [*found.tried, "download (switched off by download=False)"]
            raise not_found(file, dataset, tried)
        found = found._replace(paths=[fetched(file, dataset=dataset, tried=found.tried)])
        expected = expected_of(file)
    return _read_first_intact(file, found.paths, expected, dataset)


def fetched(
    file: FileCard,
    *,
    dataset: str,
    force: bool = False,
    progress: bool = True,
    tried: list[str] | None = None,
) -> Path:
    """Return where in the cache a file is, which is downloaded if need be, or with ``force``."""
    # Imported here since few calls need requests, which is slow to load.
    from mlrforecast.data._fetch import fetch

    places = list(tried or ())
    if offline := offline_switch():
        target = user_cache() / file.name
        if not force and is_intact(target, expected_of(file)):
            return target
        raise not_found(file, dataset, [*places, f"download (switched off by {offline})"])
    return fetch(file, dataset=dataset, force=force, progress=progress, tried=places)


def locate(file: FileCard, root: str | os.PathLike[str] | None) -> Found:
    """Look for a file through the folders, in order."""
    tried: list[str] = []
    for label, folder in folders(root):
        if paths := find_files(folder, file.name):
            return Found(paths, label, tried)
        tried.append(f"{label} ({folder})")
    if not os.environ.get(FOLDER_VARIABLE):
        tried.append(f"the environment variable {FOLDER_VARIABLE} (not set)")
    return Found([], "", tried)


def find_files(folder: str | os.PathLike[str], name: str) -> list[Path]:
    """Find the files of a name below a folder, at any depth, plain or ``.xz``.

    Parameters
    ----------
    folder : path
        Where to look; ``~`` is expanded. It need not exist.
    name : str
        Name of the file without ``.xz``.

    Returns
    -------
    list of Path
        Those nearest to the folder first; a broken link or a pipe is no file.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "deep").mkdir()
    >>> (folder / "deep" / "a.csv.xz").touch()
    >>> [path.name for path in find_files(folder, "a.csv")]
    ['a.csv.xz']
    """
    found = []
    for parent, _, files in os.walk(os.path.expanduser(folder)):
        for candidate in (name, f"{name}.xz"):
            if candidate in files and (path := Path(parent, candidate)).is_file():
                found.append(path)
    return sorted(found, key=lambda path: (len(path.parts), path))


def names_at_hand() -> set[str]:
    """Names of all files below the folders that are looked through, without ``.xz``."""
    return {
        name.removesuffix(".xz")
        for _, folder in folders(None)
        for _, _, names in os.walk(folder)
        for name in names
    }


def check_root(root: str | os.PathLike[str] | None) -> None:
    """Refuse a ``root`` that is no folder."""
    if root is not None:
        _check_folder(_expanded(root), "root")


def folders(root: str | os.PathLike[str] | None) -> Iterator[tuple[str, Path]]:
    """Folders to look through, in order, each with what named it."""
    check_root(root)
    if root is not None:
        yield "root", _expanded(root)
    if named := os.environ.get(FOLDER_VARIABLE):
        _check_folder(_expanded(named), FOLDER_VARIABLE)
        yield FOLDER_VARIABLE, _expanded(named)
    yield CACHE, user_cache()


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Expand ``~``, which no shell did where the path came from a program or a file."""
    # Path.expanduser raises where the user is unknown; this leaves the path as it is.
    return Path(os.path.expanduser(path))


def _check_folder(folder: Path, named_by: str) -> None:
    """Refuse a path that is no folder."""
    if not folder.is_dir():
        raise ValueError(
            f"{named_by} must name an existing folder, got {str(folder)!r}. "
            "Give the folder that holds the data files, at any depth."
        )


def _read_first_intact(
    file: FileCard, paths: list[Path], expected: Identity, dataset: str
) -> bytes:
    """Return the content of the first copy that is what the file must be."""
    errors: list[Exception] = []
    for path in paths:
        try:
            with open_decompressed(path) as stream:
                limit = expected.limit
                content = stream.read() if limit is None else stream.read(limit + 1)
            return _checked(file, content, expected, dataset=dataset, where=str(path))
        except (lzma.LZMAError, EOFError) as error:
            errors.append(ChecksumError(f"{path} is no readable .xz file ({error}). Delete it."))
        except (ChecksumError, OSError) as error:
            errors.append(error)
    raise errors[0]


def _checked(
    file: FileCard, content: bytes, expected: Identity, *, dataset: str, where: str
) -> bytes:
    """Return ``content`` if it is what the file must be."""
    seen = identity_of_content(content)
    if expected.limit is not None and seen.size > expected.limit:
        seen = Identity(size=seen.size)
    check(file, seen, expected, where=where, advice=advice_on_file(dataset, expected))
    return content
