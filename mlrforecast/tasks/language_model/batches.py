"""Windows of a corpus, made where its tokens are.

Functions that make batches for training wait for no device and have shapes that depend on their
arguments alone, so that a CUDA graph can hold them.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from mlrforecast.tasks.language_model._checks import row, same_device, whole
from mlrforecast.tasks.language_model.corpus import Split

__all__ = ["Windows", "document_levels", "draw_windows", "validation_batches", "windows"]

_TOKENS = (torch.uint8,)
_PLACES = (torch.int64,)


class Windows(NamedTuple):
    """A batch of windows of a corpus.

    Attributes
    ----------
    tokens : Tensor of uint8 of shape (B, T)
        Tokens that are read.
    targets : Tensor of uint8 of shape (B, T)
        The token that follows each.
    starts : Tensor of int64 of shape (B,)
        Places of the first ones in the corpus.
    """

    tokens: UInt8[Tensor, "B T"]
    targets: UInt8[Tensor, "B T"]
    starts: Int[Tensor, " B"]


def windows(tokens: UInt8[Tensor, " N"], starts: Int[Tensor, " B"], length: int) -> Windows:
    """Cut windows out of a corpus.

    Parameters
    ----------
    tokens : Tensor of uint8 of shape (N,)
        The corpus, on any device.
    starts : Tensor of int64 of shape (B,)
        Where windows begin, 0 to ``N - length - 1``, on the same device. They are not looked at,
        which would wait for the device; indexing refuses those beyond the end.
    length : int, 1 to N - 1
        Tokens ``T`` of a window.

    Returns
    -------
    Windows
        Tokens, targets and starts.

    Raises
    ------
    ValueError
        If ``length`` does not leave a target for the last token, or a shape or device is wrong.
    TypeError
        If ``tokens`` are not uint8, or ``starts`` not int64.

    Examples
    --------
    >>> windows(torch.arange(10, dtype=torch.uint8), torch.tensor([0, 5]), 4).targets
    tensor([[1, 2, 3, 4],
            [6, 7, 8, 9]], dtype=torch.uint8)
    """
    length = _check_length(tokens, length)
    row("starts", starts, _PLACES)
    same_device("starts", starts.device, "tokens", tokens.device)
    places = starts[:, None] + torch.arange(length + 1, device=tokens.device)
    found = tokens[places]
    return Windows(found[:, :-1], found[:, 1:], starts)


def draw_windows(
    tokens: UInt8[Tensor, " N"], batch_size: int, length: int, generator: torch.Generator
) -> Windows:
    """Draw windows of a corpus, each place as likely as any other.

    Parameters
    ----------
    tokens : Tensor of uint8 of shape (N,)
        The corpus, on any device.
    batch_size : int, at least 1
        Windows ``B``, drawn with replacement.
    length : int, 1 to N - 1
        Tokens ``T`` of a window.
    generator : torch.Generator
        Draws them, on the device of ``tokens``. For a CUDA graph, register it with the graph.

    Returns
    -------
    Windows
        Tokens, targets and starts.

    Raises
    ------
    ValueError
        If ``length`` or ``batch_size`` is out of its range, or the generator elsewhere.
    TypeError
        If ``tokens`` are not uint8, or ``generator`` is none.

    Examples
    --------
    >>> tokens = torch.arange(100, dtype=torch.uint8)
    >>> batch = draw_windows(tokens, 8, 16, torch.Generator().manual_seed(0))
    >>> batch.tokens.shape
    torch.Size([8, 16])
    >>> bool((batch.tokens[:, 0] == batch.starts).all())
    True
    """
    batch_size, length = whole("batch_size", batch_size), _check_length(tokens, length)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"`generator` must be a torch.Generator, got a {type(generator).__name__}.")
    same_device("generator", _device_of(generator), "tokens", tokens.device)
    starts = torch.randint(
        len(tokens) - length, (batch_size,), generator=generator, device=tokens.device
    )
    return windows(tokens, starts, length)


def document_levels(
    starts: Int[Tensor, " B"],
    documents: Int[Tensor, " edges"],
    length: int,
    block_sizes: Sequence[int] = (),
) -> Int[Tensor, "B num_levels T"]:
    """Return levels of windows that keep documents apart, to be given as ``block_ids``.

    The coarsest level is the document; on finer ones the tokens of each document are counted into
    blocks, from the first one that the window shows. They are those of
    :func:`mlrforecast.ops.nested_block_ids`, without sorting.

    Parameters
    ----------
    starts : Tensor of int64 of shape (B,)
        Where windows begin in the corpus, as :class:`Windows` have them.
    documents : Tensor of int64 of shape (num_documents + 1,)
        Where documents begin and the last one ends, see :meth:`Split.document_tensor`; on the
        device of ``starts``.
    length : int, at least 1
        Tokens ``T`` of a window.
    block_sizes : sequence of int, never growing, optional
        Finer levels: of a model's own those after the first, which the documents take the place
        of.

    Returns
    -------
    Tensor of int64 of shape (B, 1 + len(block_sizes), T)
        Ids from 0 on each level of each window.

    Raises
    ------
    ValueError
        If a size or ``length`` is less than 1, sizes grow, or a shape or device is wrong.
    TypeError
        If a tensor is not of int64, or a size not an int.

    Examples
    --------
    >>> document_levels(torch.tensor([3]), torch.tensor([0, 5, 10]), 6, [2])
    tensor([[[0, 0, 1, 1, 1, 1],
             [0, 0, 1, 1, 2, 2]]])
    """
    length = whole("length", length)
    sizes = [whole(f"block_sizes[{n}]", size) for n, size in enumerate(block_sizes)]
    if any(coarse < fine for coarse, fine in itertools.pairwise(sizes)):
        raise ValueError(f"`block_sizes` must never grow, got {tuple(sizes)}.")
    row("starts", starts, _PLACES)
    row("documents", documents, _PLACES, least=2)
    same_device("documents", documents.device, "starts", starts.device)
    places = starts[:, None] + torch.arange(length, device=starts.device)
    number = torch.searchsorted(documents, places, right=True) - 1
    # A document that began before the window begins with it.
    first = torch.maximum(documents[number], starts[:, None])
    place = places - first
    border = place == 0
    borders = [border]
    for size in sizes:
        border = border | (place % size == 0)
        borders.append(border)
    return torch.stack(borders, 1).cumsum(-1) - 1


def validation_batches(
    split: Split | UInt8[Tensor, " N"],
    length: int,
    batch_size: int,
    max_tokens: int | None = None,
) -> Iterator[Windows]:
    """Yield fixed windows, one after the other, in which no token is predicted twice.

    Parameters
    ----------
    split : Split or Tensor of uint8 of shape (N,)
        The side of a corpus, or its tokens on the device where the batches are wanted.
    length : int, 1 to N - 1
        Tokens ``T`` of a window. What is left at the end and fills none is not predicted.
    batch_size : int, at least 1
        Windows of a batch; the last one may have fewer.
    max_tokens : int, at least ``length``, optional
        Predict at most so many tokens, in windows that lie evenly over the split. Default: all.

    Yields
    ------
    Windows
        The same whenever it is called.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    TypeError
        If ``split`` is neither a split nor a tensor of uint8.

    Examples
    --------
    >>> tokens = torch.arange(10, dtype=torch.uint8)
    >>> [batch.starts.tolist() for batch in validation_batches(tokens, 2, 3)]
    [[0, 2, 4], [6]]
    >>> [batch.starts.tolist() for batch in validation_batches(tokens, 2, 3, max_tokens=5)]
    [[0, 4]]
    """
    tokens = split.tensor() if isinstance(split, Split) else split
    length, batch_size = _check_length(tokens, length), whole("batch_size", batch_size)
    whole_windows = (len(tokens) - 1) // length
    count = whole_windows
    if max_tokens is not None:
        count = min(count, whole("max_tokens", max_tokens, least=length) // length)
    starts = torch.arange(count, device=tokens.device) * whole_windows // count * length
    return (windows(tokens, some, length) for some in starts.split(batch_size))


def _check_length(tokens: Tensor, length: int) -> int:
    """Return a length of windows that the tokens allow."""
    row("tokens", tokens, _TOKENS, least=2)
    length = whole("length", length)
    if length >= len(tokens):
        raise ValueError(
            f"`length` must be below the {len(tokens)} tokens, so that each has one that follows, "
            f"got {length}."
        )
    return length


def _device_of(generator: torch.Generator) -> torch.device:
    """Return the device of a generator, as tensors name it."""
    device = generator.device
    return torch.device(device.type, device.index or 0) if device.type == "cuda" else device
