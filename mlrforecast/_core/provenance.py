"""What a result must say about how it was made."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from mlrforecast._version import __version__


def config_hash(settings: Mapping[str, object]) -> str:
    """Twelve hexadecimal digits that change with any setting."""
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Model and usable cores of the processor, e.g. ``"AMD EPYC, 2 cores"``."""
    return f"{cpu_model()}, {num_cores()} cores"


def device_name(accelerator: str) -> str:
    """Name what trains: the GPU where one is there and allowed, else the processor."""
    if accelerator in {"auto", "gpu", "cuda"} and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if accelerator in {"auto", "gpu", "mps"} and torch.backends.mps.is_available():
        return f"{cpu_model()} GPU"
    return cpu_name()


def versions() -> str:
    """Versions that decide a number, in one field."""
    return (
        f"python {platform.python_version()}; torch {torch.__version__}; mlrforecast {__version__}"
    )


def command_line(words: Sequence[str], options: Mapping[str, object]) -> str:
    """Write a command that repeats the run; of a path only the last part is told.

    An option that is None or False was not given; True is a bare flag; a tuple is given repeatedly.
    """
    parts = ["mlrforecast", *words]
    for name, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            parts.append(f"--{name}")
        elif isinstance(value, tuple):
            parts += [f"--{name} {entry}" for entry in value]
        elif isinstance(value, Path):
            parts.append(f"--{name} {value.resolve().name}")
        else:
            parts.append(f"--{name} {value}")
    return " ".join(parts)


def cpu_model() -> str:
    """Name the model of the processor, e.g. ``"AMD EPYC"``.

    Returns
    -------
    str

    Examples
    --------
    >>> bool(cpu_model())
    True
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        # Only Linux has the file.
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
