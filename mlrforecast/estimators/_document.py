"""The description of a saved forecaster: what ``config.json`` holds, sealed and checked."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from mlrforecast._core.errors import ModelFileError
from mlrforecast._version import __version__

FORMAT = 1
LIBRARY = "mlrforecast"
CONFIG = "config.json"
MODEL_TYPE = "mlrforecast"
"""By this transformers, and with it Chronos, tells whose configuration a folder holds."""
KEYS = {
    "format",
    "library",
    "parameters",
    "backbone",
    "config",
    "encoding",
    "freq",
    "num_steps",
    "batch_size",
    "dependence",
    "calibration",
    "context",
    "sha256",
    "checksum",
}
LONGEST = 200


def file_name(kind: str, digest: str) -> str:
    """Return the name of a file of tensors: other content has another name."""
    return f"{kind}-{digest[:12]}.safetensors"


def short(value: object) -> str:
    """Return a value as text that a message can hold."""
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def write_document(document: dict[str, Any]) -> bytes:
    """Return the text of a description, with a checksum of the rest of it."""
    sealed = {**document, "checksum": checksum(document)}
    return (json.dumps(sealed, indent=2) + "\n").encode()


def checksum(document: dict[str, Any]) -> str:
    """Return the sha256 of a description but its checksum: found are accidents, not attacks."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_ours(text: bytes) -> bool:
    """Tell whether a text describes a forecaster of this library, of whatever version."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("library")).startswith(LIBRARY)


def listed_files(text: bytes) -> set[str]:
    """Return the names of the files that a description lists."""
    return set(json.loads(text)["sha256"])


def read_document(folder: Path, text: bytes) -> dict[str, Any]:
    """Read the description in a folder, and check all that does not need a model."""
    try:
        document = json.loads(text)
        version, found = document["format"], checksum(document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} is no description of a forecaster; it was altered or "
            "cut short."
        ) from error
    if version != FORMAT or isinstance(version, bool):
        raise ModelFileError(
            f"The forecaster in {str(folder)!r} has file format {short(repr(version))}; this "
            f"version of mlrforecast ({__version__}) reads {FORMAT}."
        )
    # Folders of before the model type are the same in all else.
    if differing := KEYS ^ (set(document) - {"model_type"}):
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} lacks or adds {short(', '.join(sorted(differing)))}."
        )
    if document["checksum"] != found:
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} was altered: its checksum is {found}, and it says "
            f"{short(document['checksum'])}."
        )
    _check_types(folder, document)
    return dict(document)


def _check_types(folder: Path, document: dict[str, Any]) -> None:
    """Check the parts that are read before a model is built."""
    library, freq, backbone = document["library"], document["freq"], document["backbone"]
    if (
        not str(library).startswith(LIBRARY)
        or not isinstance(freq, str | int)
        or isinstance(freq, bool)
    ):
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} must have text or an integer under 'freq', and "
            f"{LIBRARY!r} with its version under 'library', got {short(repr(freq))} and "
            f"{short(repr(library))}."
        )
    if backbone is not None and not isinstance(backbone, str):
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} must have text or null under 'backbone', got "
            f"{short(backbone)!r}."
        )
    parts = ("context", "calibration")
    kinds = ["model", *(name for name in parts if document[name] is not None)]
    digests = document["sha256"]
    fits = isinstance(digests, dict) and all(_is_digest(value) for value in digests.values())
    if not fits or list(digests) != [
        file_name(kind, digest) for kind, digest in zip(kinds, digests.values(), strict=False)
    ]:
        raise ModelFileError(
            f"{CONFIG} in {str(folder)!r} must list the files of {' and '.join(kinds)} under "
            f"'sha256', each under the name of its digest, got {short(digests)}."
        )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
