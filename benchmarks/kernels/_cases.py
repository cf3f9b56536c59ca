"""What is timed: the sizes of a problem, the pass over it, and what computes it."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Case", "cases", "equal", "sizes_of"]

TOKENS = 32768
"""Steps of a whole batch on a GPU: with WIDTH columns over all heads they fill it."""
WIDTH = 2048

STEEP = {64: (32, 8, 6, 4, 4, 4, 4, 2), 128: (64, 16, 12, 8, 8, 8, 8, 4)}
"""Rank lists as the paper's, the most columns on the coarsest level."""

FORECASTING = ((32, 32), (32, 16, 16), (16, 16, 16, 16))
"""Rank lists of few levels, for heads of 64 columns."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row but for what computes it.

    ``passes`` are ``fwd``, ``fwdbwd`` and ``decode``; ``batch_heads`` counts the heads of all
    sequences together.
    """

    device: str
    length: int
    ranks: tuple[int, ...]
    batch: int
    heads: int
    causal: bool = True
    passes: tuple[str, ...] = ("fwd", "fwdbwd")
    backends: tuple[str, ...] = ("auto",)
    dtype: str = "bfloat16"

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return sum(self.ranks)

    @property
    def batch_heads(self) -> int:
        """Heads of all sequences."""
        return self.batch * self.heads


def equal(head_dim: int, num_levels: int) -> tuple[int, ...]:
    """Return as many equal ranks."""
    return (head_dim // num_levels,) * num_levels


def sizes_of(length: int, num_levels: int) -> tuple[int | None, ...]:
    """Return block sizes that halve from level to level, the first the whole sequence."""
    return (None, *(max(1, length >> lvl) for lvl in range(1, num_levels)))


def cases(device: str, quick: bool) -> Iterator[Case]:
    """Yield what is timed on a device; quickly, a few of them."""
    yield from _on_gpu(quick) if device == "cuda" else _on_cpu(quick)


def _on_cpu(quick: bool) -> Iterator[Case]:
    for length in (512, 2048) if quick else (512, 2048, 8192):
        for causal in (True,) if quick else (True, False):
            backends = ("hierarchical", "auto")
            yield Case(
                device="cpu",
                length=length,
                ranks=equal(64, 8),
                batch=1,
                heads=8,
                causal=causal,
                backends=(*backends, "reference") if length < 1000 else backends,
                dtype="float32",
            )


def _on_gpu(quick: bool) -> Iterator[Case]:
    # The longest first: they take longest to compile.
    lengths = (8192,) if quick else (8192, 16384, 32768)
    for head_dim in (128, 64):
        for length in lengths:
            yield _full(head_dim, length, equal(head_dim, 8), True, ("triton", "auto"))
        if quick:
            continue
        yield _full(head_dim, 8192, equal(head_dim, 8), False, ("triton",))
        yield _full(head_dim, 16384, equal(head_dim, 4), True, ("triton",))
        yield _full(head_dim, 16384, STEEP[head_dim], True, ("triton",))
        yield _full(head_dim, 32768, equal(head_dim, 8), True, ("hierarchical",))
        for length in (1024, 2048, 4096):
            yield _full(head_dim, length, equal(head_dim, 8), True, ("triton", "auto"))
    for length in (512,) if quick else (256, 512, 1024, 2048):
        for ranks in FORECASTING[1:2] if quick else FORECASTING:
            for causal in (True, False):
                yield _full(64, length, ranks, causal, ("auto", "triton", "expanded"))
    for length in (512,) if quick else (512, 2048):
        # In float32 no tensor core computes.
        yield Case(
            device="cuda",
            length=length,
            ranks=(32, 16, 16),
            batch=8192 // length,
            heads=32,
            backends=("auto", "triton", "expanded", "hierarchical"),
            dtype="float32",
        )
    yield from _memory(quick)
    yield from _published(quick)
    yield from _decoding(quick)


def _full(
    head_dim: int, length: int, ranks: tuple[int, ...], causal: bool, backends: tuple[str, ...]
) -> Case:
    """Return a case that fills the GPU."""
    return Case(
        device="cuda",
        length=length,
        ranks=ranks,
        batch=max(1, TOKENS // length),
        heads=WIDTH // head_dim,
        causal=causal,
        backends=backends,
    )


def _published(quick: bool) -> Iterator[Case]:
    """Yield small batches on which one buffer for each level still finds room."""
    for length in (4096,) if quick else (4096, 8192):
        yield Case(
            device="cuda",
            length=length,
            ranks=equal(64, 8),
            batch=1,
            heads=(16 * 4096**2) // length**2,
            backends=("published",),
        )


def _decoding(quick: bool) -> Iterator[Case]:
    for head_dim in (64, 128):
        for length in (8192,) if quick else (8192, 32768):
            for ranks in (equal(head_dim, 8), STEEP[head_dim]):
                for batch in (1, 8 * 65536 // length):
                    yield Case(
                        device="cuda",
                        length=length,
                        ranks=ranks,
                        batch=batch,
                        heads=WIDTH // head_dim,
                        passes=("decode",),
                        backends=("triton",),
                    )


def _memory(quick: bool) -> Iterator[Case]:
    """Yield one sequence of growing length: its peak of memory is what counts."""
    for length in (2048, 8192) if quick else (2048, 4096, 8192, 16384, 32768):
        backends = ("triton", "hierarchical", "expanded")
        yield Case(
            device="cuda",
            length=length,
            ranks=(32, 16, 16),
            batch=1,
            heads=8,
            passes=("fwdbwd",),
            backends=backends if length > 8192 else (*backends, "reference"),
        )
