"""The memory of a training run, counted before it starts."""

import os
import sys
import weakref
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mlrforecast._core.devices import find_device
from mlrforecast.data import ForecastBatch, WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.training.options import TrainingOptions
from mlrforecast.training.seeding import isolated_seed

__all__ = [
    "MemoryEstimate",
    "available_memory",
    "check_memory",
    "estimate_memory",
    "find_batch_size",
]

SMALLEST_BATCH, LARGEST_BATCH = 16, 4096
"""Where the search of a batch size ends."""

SHARE = 0.8
"""Share of the available memory that a found batch size may fill."""

TRIED = (8, 16)
"""Windows of the trial steps: with fewer, what stems from the weights may outweigh the rest."""

KEPT = 1.5
"""Bytes that an allocator takes for each byte of short-lived tensors, as pieces that were freed do
not fit the next ones: 0.9 to 2 of glibc, by benchmarks/results/memory."""

POOLED = 1.2
"""The same of torch's pool on a GPU, whose kernels hold less than those of the trial on a CPU."""

VALIDATED = 2048
"""Validation windows that a run keeps as batches, at most."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a training run needs on each device.

    Parameters
    ----------
    weights : int
        Parameters and buffers, with the copies of a moving average and of early stopping.
    gradients : int
        One number a parameter.
    optimizer : int
        Two moments a parameter, as AdamW keeps them.
    activations : int
        The most that a step holds beside these: what the forward pass keeps for the backward
        pass and what that computes with, or the numbers that the optimiser computes with.
    data : int
        The windows, a batch of them, and the batches of the validation.

    Examples
    --------
    >>> estimate = MemoryEstimate(200_000, 200_000, 400_000, 31_200_000, 5_000_000)
    >>> estimate.total
    37000000
    >>> print(estimate)
    37.0 MB: weights 0.2 MB, gradients 0.2 MB, optimizer 0.4 MB, activations 31.2 MB, data 5.0 MB
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    data: int

    @property
    def total(self) -> int:
        """Sum of all parts in bytes."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        parts = (f"{field.name} {_readable(getattr(self, field.name))}" for field in fields(self))
        return f"{_readable(self.total)}: {', '.join(parts)}"


def estimate_memory(
    model: EncoderForecaster,
    store: WindowStore,
    options: TrainingOptions,
    *,
    validation: WindowStore | None = None,
    forecast_batch: int = 0,
) -> MemoryEstimate:
    """Count the memory of a training run.

    A copy of the model makes a training step on 8 windows and one on 16, on the CPU, in which
    every tensor is counted from its making to its end; what they hold grows in proportion to
    the windows. Allocators need half as much again for them on a CPU, a fifth on a GPU, which may
    compute with other kernels, which hold more or less.

    Parameters
    ----------
    model : EncoderForecaster
        The model; it is left as it is.
    store : WindowStore
        Training windows.
    options : TrainingOptions
        How to train: ``batch_size``, ``devices``, ``precision``, ``ema_decay`` and
        ``early_stopping`` are read.
    validation : WindowStore, optional
        Windows of the validation loss.
    forecast_batch : int
        Windows that are forecast at once when training has ended; 0 if none are.

    Returns
    -------
    MemoryEstimate
        Bytes on each device; without what torch and its libraries take themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mlrforecast.data import CovariateEncoding, read_panel
    >>> from mlrforecast.models import EncoderConfig
    >>> index = pd.date_range("2024-01-01", periods=100, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": np.arange(100) % 24}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> lengths = {"context_length": 32, "prediction_length": 8}
    >>> store = WindowStore(panel, encoding, **lengths, min_context=16)
    >>> model = EncoderForecaster(EncoderConfig(**lengths))
    >>> options = TrainingOptions(max_steps=1, batch_size=64, learning_rate=1e-3)
    >>> estimate = estimate_memory(model, store, options)
    >>> estimate.gradients == 4 * sum(parameter.numel() for parameter in model.parameters())
    True
    """
    trial = _Trial(model, store, options, validation, forecast_batch)
    return trial.estimate(options.batch_size)


def find_batch_size(
    model: EncoderForecaster,
    store: WindowStore,
    options: TrainingOptions,
    *,
    available: int,
    validation: WindowStore | None = None,
    forecast_batch: int = 0,
) -> int:
    """Return the largest batch size whose estimate fills at most 80 % of the available memory.

    Parameters
    ----------
    model, store, options, validation, forecast_batch
        As in :func:`estimate_memory`; the batch size in ``options`` is not read.
    available : int
        Bytes for each device, see :func:`available_memory`.

    Returns
    -------
    int
        A power of two from 16 to 4096, at most the number of windows rounded up to one; 16 where
        not even that fits. Devices share the windows of a batch.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from mlrforecast.data import CovariateEncoding, read_panel
    >>> from mlrforecast.models import EncoderConfig
    >>> index = pd.date_range("2024-01-01", periods=100, freq="h")
    >>> panel = read_panel(pd.DataFrame({"load": np.arange(100) % 24}, index=index))
    >>> encoding = CovariateEncoding.fit(panel, calendar=False)
    >>> lengths = {"context_length": 32, "prediction_length": 8}
    >>> store = WindowStore(panel, encoding, **lengths, min_context=16)
    >>> model = EncoderForecaster(EncoderConfig(**lengths))
    >>> options = TrainingOptions(max_steps=1, batch_size=1, learning_rate=1e-3)
    >>> len(store), find_batch_size(model, store, options, available=10**9)
    (61, 64)
    """
    trial = _Trial(model, store, options, validation, forecast_batch)
    size = SMALLEST_BATCH
    while size < min(LARGEST_BATCH, len(store)):
        if trial.estimate(2 * size).total > SHARE * available:
            break
        size *= 2
    return size


def check_memory(estimate: MemoryEstimate, available: int) -> None:
    """Refuse a run that needs more memory than there is.

    Parameters
    ----------
    estimate : MemoryEstimate
        What it needs on each device.
    available : int
        Bytes for each device, see :func:`available_memory`.

    Raises
    ------
    MemoryError
        If it needs more.

    Examples
    --------
    >>> check_memory(MemoryEstimate(10, 10, 20, 300, 60), available=1000)
    """
    if estimate.total > available:
        raise MemoryError(
            f"Training needs about {estimate}; {_readable(available)} are available. Lower "
            "`batch_size`, or set it to 'auto'; a shorter `context_length`, longer patches or a "
            "smaller network need less as well."
        )


def available_memory(device: torch.device) -> int:
    """Return the bytes of memory that a program could still take on a device.

    Parameters
    ----------
    device : torch.device
        The device.

    Returns
    -------
    int
        Of a CUDA device what the driver and torch's own pool have free. Otherwise what the system
        has available, or the limit of the process's control group leaves if that is less. Where
        the system does not tell, all of its memory, or :data:`sys.maxsize`.

    Examples
    --------
    >>> available_memory(torch.device("cpu")) > 1_000_000
    True
    """
    if device.type == "cuda":
        pool = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + pool
    return min([_system_memory(), *_group_limits(Path("/"))])


class _Trial:
    """Steps on a few windows, and what follows from them for any batch size."""

    def __init__(
        self,
        model: EncoderForecaster,
        store: WindowStore,
        options: TrainingOptions,
        validation: WindowStore | None,
        forecast_batch: int,
    ) -> None:
        stores = [store] if validation is None else [store, validation]
        self.windows = sum(each.num_bytes for each in stores)
        self.num_validated = 0 if validation is None else min(VALIDATED, len(validation))
        self.num_devices = options.devices
        on_cpu = find_device(options.accelerator).type == "cpu"
        self.kept = KEPT if on_cpu else POOLED
        # Early stopping keeps the best of all that there is, an average included.
        copies = (1 + (options.ema_decay is not None)) * (1 + options.early_stopping)
        learned = sum(parameter.nbytes for parameter in model.parameters())
        fixed = sum(buffer.nbytes for buffer in model.buffers())
        self.weights, self.learned = copies * (learned + fixed), learned
        batches = [store.gather(torch.arange(count) % len(store)) for count in TRIED]
        self.window = _bytes_of(batches[1]) // TRIED[1]
        self.steps = [_peak_of_step(model, batch, options.precision) for batch in batches]
        # AdamW takes the roots of all second moments at once, when activations are gone.
        self.others = learned
        if forecast_batch:
            forecasts = [_peak_of_forecast(model, batch) for batch in batches]
            self.others = max(learned, _extrapolate(forecasts, forecast_batch))

    def estimate(self, batch_size: int) -> MemoryEstimate:
        """Return the estimate for a batch size."""
        here = -(-batch_size // self.num_devices)
        return MemoryEstimate(
            weights=self.weights,
            gradients=self.learned,
            optimizer=2 * self.learned,
            activations=int(self.kept * max(_extrapolate(self.steps, here), self.others)),
            data=self.windows + (here + self.num_validated) * self.window,
        )


def _extrapolate(peaks: list[int], count: int) -> int:
    """Return the peak of so many windows from those of the trial."""
    few, many = TRIED
    return peaks[0] + (count - few) * (peaks[1] - peaks[0]) // (many - few)


def _peak_of_forecast(model: EncoderForecaster, batch: ForecastBatch) -> int:
    """Return the most bytes that a forecast holds at one time beside weights."""
    trial = deepcopy(model).cpu().eval()
    live = _Live()
    with isolated_seed(0), torch.no_grad(), live:
        trial.forecast(batch)
    return live.most


def _peak_of_step(model: EncoderForecaster, batch: ForecastBatch, precision: str) -> int:
    """Return the most bytes that a step holds at one time beside weights and gradients."""
    trial = deepcopy(model).cpu().train()
    live = _Live()
    with isolated_seed(0), live:
        for parameter in trial.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(live.forget_gradient)
        with _cast(precision):
            loss = trial.loss(batch)
        loss.backward()
    return live.most


def _cast(precision: str) -> AbstractContextManager[Any]:
    """Return the context of a forward pass; both short formats have 2 bytes."""
    return nullcontext() if precision == "32-true" else torch.autocast("cpu", torch.bfloat16)


class _Live(TorchDispatchMode):
    """Count the bytes of all tensors that are made in it, from their making to their end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.most = 0
        self._storages: dict[int, weakref.finalize[Any, Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it returns."""
        given = {_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            # A view of what was there before, a weight say, is nothing new.
            if isinstance(leaf, Tensor) and _key(leaf) not in given | self._storages.keys():
                self._count(leaf)
        self.most = max(self.most, self.now)
        return found

    def forget_gradient(self, parameter: Tensor) -> None:
        """Take the gradient of a parameter out of the count: it stays, and stands apart."""
        assert parameter.grad is not None
        if ends := self._storages.get(_key(parameter.grad)):
            ends()

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        size, key = storage.nbytes(), _key(tensor)
        self.now += size
        self._storages[key] = weakref.finalize(storage, self._end, key, size)

    def _end(self, key: int, size: int) -> None:
        self.now -= size
        del self._storages[key]


def _key(tensor: Tensor) -> int:
    """Return the number of the memory of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def _bytes_of(batch: ForecastBatch) -> int:
    return sum(int(tensor.nbytes) for tensor in batch if tensor is not None)


def _readable(count: int) -> str:
    """Return a number of bytes in MB, or in GB from one on."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _system_memory() -> int:
    """Return what the system has available."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(available.split()[1]) * 1024
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


def _group_limits(root: Path) -> list[int]:
    """Return what each limited control group of this process leaves, of version 1 or 2.

    A group inside a container is found at the root, wherever its path says that it is.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names not in _LIMITS:
            continue
        base = root / "sys/fs/cgroup" / names
        place = base / path.lstrip("/")
        folders = [each for each in (place, *place.parents) if each.is_relative_to(base)]
        found += [_left(folder, *_LIMITS[names]) for folder in folders]
    return [left for left in found if left is not None]


# Of version 2, and of the memory of version 1.
_LIMITS = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def _left(folder: Path, limit: str, used: str) -> int | None:
    """Return what a control group leaves, None where it has no limit."""
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return None
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        # Files that were read are dropped from memory as soon as it is needed.
        cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return max(int(most) - int((folder / used).read_text()) + cached, 0)
    except (OSError, ValueError):
        return None
