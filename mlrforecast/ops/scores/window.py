"""Scores with a window: which keys are near enough, and the columns that look no further."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.ops._checks import LARGEST, entries, integer, positive
from mlrforecast.ops._layout import step_distances
from mlrforecast.ops.scores.dot import dot_scores, softmax_scale

__all__ = ["check_parts", "check_window", "global_window_scores", "part_scales", "window_mask"]


def window_mask(
    num_queries: int,
    num_keys: int,
    *,
    window: int,
    causal: bool = False,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Return which keys lie in the window of each query, both ends included.

    A causal query at position ``i`` sees ``i - window`` to ``i``, that is ``window + 1`` keys (the
    convention of the published code); otherwise ``i - window`` to ``i + window``.

    Parameters
    ----------
    num_queries, num_keys : int, at least 1
        Steps ``T`` and ``S``. The queries are the last ``T`` of the ``S`` steps.
    window : int, at least 0
        Largest distance that is attended; 0 is the step itself.
    causal : bool, default False
        Whether a query sees only its own and earlier steps.
    device : torch.device or str, optional
        Where the mask is made.

    Returns
    -------
    bool Tensor of shape (T, S)
        True where a query may attend a key.

    Raises
    ------
    ValueError
        If a number is out of range or there are more queries than keys.
    TypeError
        If a number is not an integer.

    Examples
    --------
    >>> window_mask(4, 4, window=1, causal=True).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    >>> window_mask(1, 4, window=2).int()
    tensor([[0, 1, 1, 1]], dtype=torch.int32)
    """
    num_queries, num_keys = positive(num_queries, "num_queries"), positive(num_keys, "num_keys")
    window = check_window(window, num_queries, num_keys)
    distance = step_distances(num_queries, num_keys, device)
    return (distance <= window) & (distance >= (0 if causal else -window))


def global_window_scores(
    q: Float[Tensor, "B H T R"],
    k: Float[Tensor, "B G S R"],
    *,
    ranks: Sequence[int],
    scales: Sequence[float] | None = None,
) -> tuple[Float[Tensor, "B H T S"], Float[Tensor, "B H T S"]]:
    """Score every pair twice: by the first columns, for all keys, and by the others, for a window.

    Parameters
    ----------
    q : Tensor of shape (B, H, T, R)
        Queries, not scaled.
    k : Tensor of shape (B, G, S, R)
        Keys. ``G`` divides ``H``; query head ``h`` reads key head ``h // (H // G)``.
    ranks : sequence of two int
        Columns of the global and of the local score; they sum to ``R``.
    scales : sequence of two float, optional
        Factors of the two scores, ``1 / sqrt(rank)`` by default.

    Returns
    -------
    global_scores, local_scores : Tensor of shape (B, H, T, S)
        Before masks and softmax, in the dtype of ``q``. The local ones count only where
        :func:`window_mask` is True.

    Raises
    ------
    ValueError
        If the shapes or ranks do not fit or a scale is not finite.
    TypeError
        If an argument is of the wrong type.

    Examples
    --------
    >>> q = k = torch.ones(1, 1, 2, 5)
    >>> everywhere, near = global_window_scores(q, k, ranks=(4, 1))
    >>> everywhere.flatten(), near.flatten()
    (tensor([2., 2., 2., 2.]), tensor([1., 1., 1., 1.]))
    """
    parts = check_parts(ranks, q.shape[-1])
    pairs = zip(q.split(parts, -1), k.split(parts, -1), part_scales(parts, scales), strict=True)
    everywhere, near = (dot_scores(q_part, k_part, scale=scale) for q_part, k_part, scale in pairs)
    return everywhere, near


def check_window(window: int, num_queries: int, num_keys: int) -> int:
    """Return ``window`` if it is a distance between steps of one sequence.

    There may be no more queries, ``num_queries``, than keys, ``num_keys``.
    """
    value = integer(window, "window")
    if value < 0:
        raise ValueError(f"`window` must be at least 0, got {value}.")
    if num_queries > num_keys:
        raise ValueError(
            "A window counts steps of one sequence, whose last T steps are the queries, so T must "
            f"not exceed S; got T={num_queries} and S={num_keys}."
        )
    # No two steps lie further apart, and a tensor could not be compared with any number.
    return min(value, LARGEST)


def check_parts(ranks: Sequence[int], width: int) -> list[int]:
    """Return ``ranks``, the columns of the two scores, if they fill a head of ``width`` columns."""
    parts = [positive(rank, f"ranks[{part}]") for part, rank in enumerate(entries(ranks, "ranks"))]
    if len(parts) != 2 or sum(parts) != width:
        raise ValueError(
            "`ranks` must hold the columns for all keys and those for the window, which sum to the "
            f"head width R={width}, got {tuple(parts)}."
        )
    return parts


def part_scales(parts: Sequence[int], scales: Sequence[float] | None) -> tuple[float, float]:
    """Return ``scales``, or the default factors of two scores of ``parts`` columns."""
    given = (None, None) if scales is None else entries(scales, "scales")
    if len(given) != 2:
        raise ValueError(f"`scales` must hold two numbers, got {tuple(given)}.")
    first, second = (
        softmax_scale(scale, rank, f"scales[{part}]")
        for part, (scale, rank) in enumerate(zip(given, parts, strict=True))
    )
    return first, second
