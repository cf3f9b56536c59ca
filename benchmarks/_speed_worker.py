"""What both sides of ``train_speed.py`` share: the data, the clock and the talk with the parent.

It imports neither library, for each runs in an environment of its own.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch

CONTEXT, HORIZON, PATCH, STRIDE = 512, 96, 16, 8
DROPOUT = 0.2
SIZES: dict[str, dict[str, int]] = {
    "wide": {"width": 128, "num_heads": 16, "num_layers": 3, "hidden_width": 256},
    "narrow": {"width": 16, "num_heads": 4, "num_layers": 3, "hidden_width": 128},
}


class Side(Protocol):
    """One library with one model, as the benchmark drives it."""

    def fit(self, frame: pd.DataFrame, steps: int, note: Callable[[], None]) -> None:
        """Train a new model for some steps; call ``note`` once in each."""

    def predict(self) -> pd.DataFrame:
        """Forecast all series from what ``fit`` has kept."""

    def network(self, contexts: torch.Tensor) -> torch.Tensor:
        """Forecast from contexts (B, T) with the network alone."""

    def counts(self) -> dict[str, Any]:
        """Return parameters, tokens, and what went through the network in a step."""


def long_frame(values: np.ndarray, names: tuple[str, str, str]) -> pd.DataFrame:
    """Return series (S, T) as a long frame of hourly rows, its columns named id, stamp, value."""
    series, rows = values.shape
    stamps = pd.date_range("2020-01-01", periods=rows, freq="h")
    ids = np.array([f"s{number:04d}" for number in range(series)], dtype=object)
    columns = (np.repeat(ids, rows), np.tile(stamps, series), values.reshape(-1))
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def serve(side: Side, names: tuple[str, str, str]) -> None:
    """Measure what the parent asks for, one JSON line in, one out."""
    frame = long_frame(np.load(sys.argv[sys.argv.index("--data") + 1]), names)
    torch.set_num_threads(int(sys.argv[sys.argv.index("--threads") + 1]))
    reply({"start_mb": _memory("VmRSS")})
    for line in sys.stdin:
        reply(_measure(side, frame, **json.loads(line)))


def reply(values: dict[str, Any]) -> None:
    """Write one line to the parent."""
    print("REPLY " + json.dumps(values), flush=True)


def _measure(
    side: Side, frame: pd.DataFrame, steps: int, warm_up: int, windows: int
) -> dict[str, Any]:
    """Fit and forecast once."""
    marks: list[float] = []
    begin = time.perf_counter()
    side.fit(frame, steps, lambda: marks.append(time.perf_counter()))
    fit_seconds = time.perf_counter() - begin
    each = np.diff(marks)[warm_up:]
    peak_fit = _memory("VmHWM")
    predict_seconds = [_seconds(side.predict) for _ in range(3)]
    peak = _memory("VmHWM")
    contexts = torch.randn(windows, CONTEXT, generator=torch.Generator().manual_seed(0))
    network_seconds = [_seconds(lambda: side.network(contexts)) for _ in range(4)][1:]
    return {
        "steps": each.tolist(),
        "fit_seconds": fit_seconds,
        "predict_seconds": statistics.median(predict_seconds),
        "network_seconds": statistics.median(network_seconds),
        "peak_fit_mb": peak_fit,
        "peak_mb": peak,
        "mm_gflops": mm_gflops(),
        **side.counts(),
    }


def mm_gflops(size: int = 2048) -> float:
    """Return the speed of one large product of matrices, in 10^9 operations a second."""
    x = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    seconds = min(_seconds(lambda: torch.mm(x, x)) for _ in range(5))
    return 2 * size**3 / seconds / 1e9


def gflop_a_step(size: str, tokens: int, windows: int) -> float:
    """Return the operations in the products of a step, in 10^9: backward makes each one twice.

    Standard attention, the queries, keys, values and output, the network, the patches, the head.
    """
    width, hidden = SIZES[size]["width"], SIZES[size]["hidden_width"]
    layer = 4 * width**2 + 2 * width * hidden + 2 * tokens * width
    forward = tokens * (SIZES[size]["num_layers"] * layer + PATCH * width + width * HORIZON)
    return 3 * 2 * windows * forward / 1e9


def _seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _memory(entry: str) -> float:
    """Return the memory of this process now (VmRSS) or at most so far (VmHWM), in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith(entry):
                return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
