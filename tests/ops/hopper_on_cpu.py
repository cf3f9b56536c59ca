"""Stand-ins for Triton's Gluon that run its kernels for a Hopper GPU on the CPU.

Warps are threads, and layouts are ignored. Shared memory holds no numbers until it is written, and
a product is taken when it is waited for, of what shared memory holds then: a tile that was given
up too early, or never loaded, shows in the result. What cannot show is a layout that does not fit.
"""

import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

SECONDS_TO_WAIT = 30.0
SECONDS_TO_YIELD = 2e-4
_moved = threading.Condition()
_here = threading.local()
_failures: list[BaseException] = []
_grid = SimpleNamespace(ids=(0, 0), sizes=(0, 0))


class Pointer:
    def __init__(self, memory: Tensor, offset: Any) -> None:
        self.memory, self.offset = memory, offset
        self.dtype = SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.memory, self.offset + offset)


class TensorDescriptor:
    def __init__(self, base: Tensor, shape: Any, strides: Any, block: Any, layout: Any) -> None:
        self.base, self.block, self.dtype = base, block, base.dtype


class Shared:
    """A tensor in shared memory."""

    def __init__(self, data: Tensor) -> None:
        self.data, self.dtype = data, data.dtype

    def index(self, slot: Any) -> "Shared":
        return Shared(self.data[int(slot)])

    def reinterpret(self, dtype: Any, shape: Any, layout: Any) -> "Shared":
        size = torch.Size(shape).numel()
        return Shared(self.data.view(-1)[:size].view(shape))

    def permute(self, order: Any) -> "Shared":
        return Shared(self.data.permute(order))

    def store(self, x: Tensor) -> None:
        assert x.shape == self.data.shape
        self.data.copy_(x)


class Barrier:
    """Done when so many have arrived, and the bytes that they promised."""

    phase = count = missing = promised = 0

    def settle(self) -> None:
        assert self.missing >= 0, "more arrive than a barrier waits for"
        if self.missing == self.promised == 0:
            self.phase, self.missing = self.phase + 1, self.count
            _moved.notify_all()


class Barriers:
    def __init__(self, shape: Any) -> None:
        self.all = [Barrier() for _ in range(shape[0])]

    def index(self, slot: Any) -> Barrier:
        return self.all[int(slot)]


class Product:
    """A product under way."""

    def __init__(self, x: Any, y: Any, acc: Any, use_acc: bool) -> None:
        self.operands, self.value = (x, y, acc, use_acc), None

    def take(self) -> None:
        x, y, acc, use_acc = self.operands
        x, y = (side.data if isinstance(side, Shared) else side for side in (x, y))
        assert acc.shape == (x.shape[0], y.shape[1])
        self.value = x @ y + acc if use_acc else x @ y


def _under_way() -> list[Product]:
    return _here.__dict__.setdefault("products", [])


def _multiply(x: Any, y: Any, acc: Any, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    _under_way().append(Product(x, y, acc, use_acc))
    return _under_way()[-1]


def _wait_for_products(num_outstanding: int = 0, deps: Any = ()) -> Any:
    while len(_under_way()) > num_outstanding:
        _under_way().pop(0).take()
    values = [dep.value if isinstance(dep, Product) else dep for dep in deps]
    assert all(value is not None for value in values), "a product is read that is under way"
    return values[0] if len(values) == 1 else tuple(values)


def _init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.missing = count


def _arrive(barrier: Barrier, count: int = 1, pred: Any = True) -> None:
    if pred:
        with _moved:
            barrier.missing -= count
            barrier.settle()
        # Time for the others to use what was given up.
        time.sleep(SECONDS_TO_YIELD)


def _expect(barrier: Barrier, size: int) -> None:
    with _moved:
        barrier.promised += size
        barrier.missing -= 1
        barrier.settle()


def _wait(barrier: Barrier, phase: Any) -> None:
    with _moved:
        passed = _moved.wait_for(
            lambda: _failures or barrier.phase % 2 != int(phase), SECONDS_TO_WAIT
        )
        assert passed, "the warps wait for each other"
        assert not _failures, "another warp failed"


def _load_tile(tiles: TensorDescriptor, at: Any, barrier: Barrier, into: Shared) -> None:
    at = [int(index) for index in at]
    assert list(into.data.shape) == tiles.block
    assert min(at) >= 0
    shapes = zip(tiles.block, tiles.base.shape, at, strict=True)
    sizes = [max(0, min(size, whole - index)) for size, whole, index in shapes]
    inside = tuple(slice(index, index + size) for index, size in zip(at, sizes, strict=True))
    into.data.zero_()
    into.data[tuple(map(slice, sizes))] = tiles.base[inside]
    with _moved:
        barrier.promised -= into.data.numel() * 2
        barrier.settle()


def _load(pointer: Pointer, mask: Any = True, other: Any = 0.0) -> Tensor:
    at, mask = torch.broadcast_tensors(torch.as_tensor(pointer.offset), torch.as_tensor(mask))
    inside = (at >= 0) & (at < len(pointer.memory))
    assert (inside | ~mask).all(), "a load outside of a tensor"
    other = torch.as_tensor(other, dtype=pointer.memory.dtype)
    return torch.where(mask, pointer.memory[torch.where(inside, at, 0)], other)


def _store(pointer: Pointer, x: Any, mask: Any = True) -> None:
    at, x, mask = torch.broadcast_tensors(
        torch.as_tensor(pointer.offset), torch.as_tensor(x), torch.as_tensor(mask)
    )
    inside = (at >= 0) & (at < len(pointer.memory))
    assert (inside | ~mask).all(), "a store outside of a tensor"
    pointer.memory[at[mask]] = x[mask].to(pointer.memory.dtype)


def _specialize(parts: Any, warps: Any, registers: Any) -> None:
    assert len(parts) == len(warps) + 1 == len(registers) + 1

    def work(function: Callable[..., None], arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            with _moved:
                _failures.append(error)
                _moved.notify_all()

    threads = [threading.Thread(target=work, args=part, daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if _failures:
        raise _failures[0]


def _where(condition: Any, x: Any, y: Any) -> Tensor:
    dtype = next((v.dtype for v in (x, y) if isinstance(v, Tensor)), None)
    x, y = (torch.as_tensor(v, dtype=dtype) for v in (x, y))
    return torch.where(torch.as_tensor(condition), x, y)


def _allocate(dtype: torch.dtype, shape: Any, layout: Any) -> Any:
    if layout == "barriers":
        return Barriers(shape)
    return Shared(torch.full(shape, float("nan"), dtype=dtype))


class Kernel:
    """A function of Gluon that is called, or launched as a grid of programs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
        def launch(*args: Any, **options: Any) -> None:
            args = tuple(map(_as_argument, args))
            _grid.sizes = grid
            for ids in ((i, j) for j in range(grid[1]) for i in range(grid[0])):
                _grid.ids = ids
                _failures.clear()
                self.function(*args)

        return launch


def _as_argument(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return Pointer(x.new_empty(0).set_(x.untyped_storage()), x.storage_offset())


def _jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    return Kernel if function is None else Kernel(function)


def _nothing(*args: Any, **options: Any) -> None:
    return None


def install(sums: torch.dtype) -> None:
    """Put the stand-ins where modules of kernels import Gluon from; sums are of this dtype."""
    tensor = torch.as_tensor
    names: dict[str, dict[str, Any]] = {
        "": {"jit": _jit, "constexpr_function": lambda function: function},
        ".language": {
            "constexpr": lambda x: x,
            "float32": sums,
            "int64": torch.int64,
            "shared_memory_descriptor": Shared,
            "program_id": lambda axis: tensor(_grid.ids[axis]),
            "num_programs": lambda axis: tensor(_grid.sizes[axis]),
            "arange": lambda begin, end, layout: torch.arange(begin, end),
            "zeros": lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
            "full": lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
            "static_range": range,
            "load": _load,
            "store": _store,
            "exp2": torch.exp2,
            "log2": torch.log2,
            "maximum": lambda x, y: torch.maximum(tensor(x), tensor(y)),
            "minimum": lambda x, y: torch.minimum(tensor(x), tensor(y)),
            "where": _where,
            "max": lambda x, axis: x.amax(axis),
            "sum": lambda x, axis: x.sum(axis),
            "convert_layout": lambda x, layout: x,
            "reshape": torch.reshape,
            "permute": torch.permute,
            "split": lambda x: x.unbind(-1),
            "barrier": _nothing,
            "warp_specialize": _specialize,
            "allocate_shared_memory": _allocate,
            **dict.fromkeys(
                ("NVMMASharedLayout", "NVMMADistributedLayout", "DotOperandLayout"), _nothing
            ),
            **dict.fromkeys(("SliceLayout", "BlockedLayout"), _nothing),
        },
        ".language.nvidia": {},
        ".language.nvidia.hopper": {
            "fence_async_shared": _nothing,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: "barriers", init=_init, wait=_wait, arrive=_arrive,
                expect=_expect,
            ),
            "tma": SimpleNamespace(async_load=_load_tile),
            "warpgroup_mma": _multiply,
            "warpgroup_mma_wait": _wait_for_products,
        },
        ".nvidia": {},
        ".nvidia.hopper": {"TensorDescriptor": TensorDescriptor},
    }  # fmt: skip
    for name, contents in names.items():
        module = ModuleType("triton.experimental.gluon" + name)
        module.__dict__.update(contents)
        sys.modules[module.__name__] = module
    gluon = sys.modules["triton.experimental.gluon"]
    gluon.__dict__["language"] = sys.modules["triton.experimental.gluon.language"]
