"""Where the file of a data set is sought, how it is checked, and how it is fetched."""

import hashlib
import logging
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlrforecast._core.errors import ChecksumError, DatasetNotFoundError
from mlrforecast.data.catalogue import DatasetCard, catalogue_folder

FOLDER_VARIABLE = "MLRFORECAST_DATA"


def read_file(card: DatasetCard, *, root: str | os.PathLike[str] | None, download: bool) -> bytes:
    """Return the checked, decompressed content of the file of ``card``.

    Sought in ``root``, in the folder named by ``MLRFORECAST_DATA`` and in the user's cache, then
    fetched if ``download``.
    """
    if root is not None:
        _check_folder(_folder(root), "root")
    if card.embedded:
        entry = catalogue_folder() / card.embedded
        return _checked(card, entry.read_bytes(), str(entry))
    tried = []
    for label, folder in _folders(root):
        if folder.is_dir() and (found := sorted(_search(folder, card.file))):
            return _read_first_intact(card, [path for _, path in found])
        tried.append(f"{label} ({folder})")
    if not os.environ.get(FOLDER_VARIABLE):
        tried.append(f"the environment variable {FOLDER_VARIABLE} (not set)")
    if not download:
        raise _not_found(card, [*tried, "download (switched off by download=False)"])
    return _fetch(card, tried)


def _user_cache() -> Path:
    """Return the user's cache folder, which need not exist."""
    # Imported here since it loads requests, which few calls need; it carries no types.
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("mlrforecast"))


def _folders(root: str | os.PathLike[str] | None) -> Iterator[tuple[str, Path]]:
    """Folders to look through, in order, each with what named it."""
    if root is not None:
        yield "root", _folder(root)
    if named := os.environ.get(FOLDER_VARIABLE):
        _check_folder(_folder(named), FOLDER_VARIABLE)
        yield FOLDER_VARIABLE, _folder(named)
    yield "the user cache", _user_cache()


def _folder(path: str | os.PathLike[str]) -> Path:
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


def _search(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    """Every file of this name below ``folder``, plain or ``.xz``, with its depth."""
    for parent, _, files in os.walk(folder):
        path = Path(parent)
        for candidate in (name, f"{name}.xz"):
            # A broken link or a pipe stands among the files too.
            if candidate in files and (path / candidate).is_file():
                yield len(path.parts), path / candidate


def _read_first_intact(card: DatasetCard, paths: list[Path]) -> bytes:
    """Return the content of the first file that is the one of the card."""
    errors: list[Exception] = []
    for path in paths:
        try:
            return _checked(card, _read_capped(path, card.size + 1), str(path))
        except (lzma.LZMAError, EOFError) as error:
            errors.append(ChecksumError(f"{path} is no readable .xz file ({error}). Delete it."))
        except (ChecksumError, OSError) as error:
            errors.append(error)
    raise errors[0]


def _read_capped(path: Path, limit: int) -> bytes:
    """Read at most ``limit`` bytes, decompressed where the file is an ``.xz``."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        return file.read(limit)


def _checked(card: DatasetCard, content: bytes, where: str) -> bytes:
    """Return ``content`` if it is what the card describes."""
    if (found := hashlib.sha256(content).hexdigest()) == card.sha256:
        return content
    size = str(len(content))
    if len(content) > card.size:
        # No more was read.
        size, found = f"more than {card.size}", "not computed"
    raise ChecksumError(
        f"{where} is not the {card.file} of the catalogue: its content has {size} bytes "
        f"and sha256 {found}, expected {card.size} bytes and {card.sha256}. The file was altered "
        f"or cut short: delete it and load {card.name!r} again, or put an unaltered copy there."
    )


def _fetch(card: DatasetCard, tried: list[str]) -> bytes:
    """Download the file into the cache; nothing is left there unless it is intact."""
    # Imported here since they are slow to load and few calls need them; no types for tqdm.
    import pooch
    import requests
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    altered: ChecksumError | None = None
    for url in card.urls:
        # disable=None: no bar where nobody watches, that is where stderr is no terminal.
        bar = tqdm(
            total=card.size, unit="B", unit_scale=True, desc=card.file, disable=None, leave=False
        )
        try:
            with _quiet(pooch.get_logger()):
                path = pooch.retrieve(
                    url,
                    known_hash=f"sha256:{card.sha256}",
                    fname=card.file,
                    path=_user_cache(),
                    downloader=pooch.HTTPDownloader(progressbar=bar, timeout=30),
                )
        except (requests.RequestException, OSError) as error:
            tried.append(f"{url} ({type(error).__name__}: {error})")
        except ValueError as error:
            altered = ChecksumError(
                f"{url} did not serve the {card.file} of the catalogue, nothing was kept: {error} "
                f"Put an unaltered copy into a folder and name it with root= or {FOLDER_VARIABLE}."
            )
        else:
            return _checked(card, Path(path).read_bytes(), path)
        finally:
            bar.close()
    raise altered or _not_found(card, tried)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep a logger to warnings for a while."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _not_found(card: DatasetCard, tried: list[str]) -> DatasetNotFoundError:
    """Say where a file was sought and what to do."""
    places = "".join(f"\n  - {place}" for place in tried)
    return DatasetNotFoundError(
        f"{card.file}, the file of data set {card.name!r}, was not found. Tried:{places}\n"
        f"Either set {FOLDER_VARIABLE} to a folder that holds it (at any depth, plain or .xz), "
        f"or pass that folder as root=, or fetch {card.urls[0]} on a machine with internet and "
        f"copy it there. load_dataset('synthetic') needs no file."
    )
