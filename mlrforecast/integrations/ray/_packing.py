"""Objects that hold much data, in a form that processes of one machine read from shared memory."""

import io
import pickle
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor


def pack(value: object) -> list[Any]:
    """Return an object as bytes and arrays: Ray hands out arrays without copying them.

    Tensors on the CPU become arrays too, and views of one memory stay views of it.
    """
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return [file.getvalue(), *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]


def unpack(parts: list[Any]) -> Any:
    """Undo :func:`pack`; the arrays and tensors of what is returned must not be written to."""
    return pickle.loads(parts[0], buffers=parts[1:])


class _Pickler(pickle.Pickler):
    """Pickles tensors as views of arrays."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._memories: dict[int, np.ndarray] = {}

    def reducer_override(self, value: object) -> Any:
        if type(value) is not Tensor:
            return NotImplemented
        start = value.untyped_storage().data_ptr()
        if start not in self._memories:
            self._memories[start] = _memory_of(value)
        view = value.dtype, value.storage_offset(), value.size(), value.stride()
        return _view_of, (self._memories[start], *view)


def _memory_of(tensor: Tensor) -> np.ndarray:
    """Return all bytes of the memory that a tensor looks at."""
    storage = tensor.untyped_storage()
    array: np.ndarray = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return array


def _view_of(
    memory: np.ndarray, dtype: torch.dtype, offset: int, size: torch.Size, stride: tuple[int, ...]
) -> Tensor:
    """Return the tensor that looks at memory in some way."""
    with warnings.catch_warnings():
        # That it must not be written to is known.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        whole = torch.from_numpy(memory)
    return whole.view(dtype).as_strided(size, stride, offset)
