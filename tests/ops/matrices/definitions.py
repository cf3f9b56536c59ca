"""Each structure written out entry by entry, from the formulas of the paper, by plain loops."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlrforecast.ops import BlockLevel, Shuffle

Parameters = dict[str, Tensor]


def empty(d_out: int, d_in: int) -> Tensor:
    return torch.zeros(d_out, d_in, dtype=torch.float64)


def low_rank(parameters: Parameters, d_out: int, d_in: int, *, rank: int) -> Tensor:
    dense = empty(d_out, d_in)
    for row, column, i in itertools.product(range(d_out), range(d_in), range(rank)):
        dense[row, column] += parameters["left"][row, i] * parameters["right"][column, i]
    return dense


def mlr(
    parameters: Parameters,
    d_out: int,
    d_in: int,
    *,
    ranks: Sequence[int],
    num_blocks: Sequence[int] | None = None,
    scales: Sequence[float] | None = None,
) -> Tensor:
    dense = empty(d_out, d_in)
    for lvl, rank in enumerate(ranks):
        count = 2**lvl if num_blocks is None else num_blocks[lvl]
        scale = 1.0 if scales is None else scales[lvl]
        left, right = parameters[f"left_{lvl}"], parameters[f"right_{lvl}"]
        tall, wide = d_out // count, d_in // count
        for row, column in itertools.product(range(d_out), range(d_in)):
            if row // tall == column // wide:
                block = row // tall
                for i in range(rank):
                    product = left[block, row % tall, i] * right[block, column % wide, i]
                    dense[row, column] += scale * product
    return dense


def btt(
    parameters: Parameters,
    d_out: int,
    d_in: int,
    *,
    rank: int = 1,
    out_factors: Any = None,
    in_factors: Any = None,
) -> Tensor:
    """M[(alpha, beta), (gamma, delta)], with the sizes read off the tensors."""
    left, right = parameters["left"], parameters["right"]
    (b, a, _), (c, d, _) = left.shape, right.shape
    dense = empty(d_out, d_in)
    for alpha, beta, gamma, delta in itertools.product(*map(range, (a, b, c, d))):
        for s in range(rank):
            product = left[beta, alpha, gamma * rank + s] * right[gamma, delta, beta * rank + s]
            dense[alpha * b + beta, gamma * d + delta] += product
    return dense


def kronecker(parameters: Parameters, d_out: int, d_in: int, **factors: Any) -> Tensor:
    return torch.kron(parameters["left"], parameters["right"])


def dense(parameters: Parameters, d_out: int, d_in: int) -> Tensor:
    return parameters["weight"].clone()


def butterfly(parameters: Parameters, d_out: int, d_in: int, *, radices: Any = None) -> Tensor:
    """The product of the sparse factors, each placed by the digits of row and column."""
    factors = [parameters[f"factor_{i}"] for i in range(len(parameters))]
    sizes = [factor.shape[-1] for factor in factors]
    product = torch.eye(d_out, dtype=torch.float64)
    for place, factor in enumerate(factors):
        sparse = empty(d_out, d_in)
        for row, column in itertools.product(range(d_out), range(d_in)):
            to, at = digits(row, sizes), digits(column, sizes)
            if to[:place] == at[:place] and to[place + 1 :] == at[place + 1 :]:
                before = number(at[:place], sizes[:place])
                after = number(at[place + 1 :], sizes[place + 1 :])
                sparse[row, column] = factor[before, after, to[place], at[place]]
        product = product @ sparse
    return product


def digits(index: int, sizes: Sequence[int]) -> list[int]:
    found = []
    for size in reversed(sizes):
        index, digit = divmod(index, size)
        found.insert(0, digit)
    return found


def number(found: Sequence[int], sizes: Sequence[int]) -> int:
    index = 0
    for digit, size in zip(found, sizes, strict=True):
        index = index * size + digit
    return index


def shuffle(permutation: Shuffle | None, length: int) -> Tensor:
    """The permutation matrix: each output entry takes the input entry of its reordered digits."""
    if permutation is None:
        return torch.eye(length, dtype=torch.float64)
    matrix = empty(length, length)
    new_sizes = [permutation.shape[axis] for axis in permutation.order]
    for source in range(length):
        old = digits(source, permutation.shape)
        new = [old[axis] for axis in permutation.order]
        matrix[number(new, new_sizes), source] = 1.0
    return matrix


def mlbtc(levels: Sequence[BlockLevel], scales: Sequence[float]) -> Tensor:
    """Sum of scale * P_out (left blocks) P_mid (right blocks)^T, by permutation matrices."""
    total = torch.zeros((), dtype=torch.float64)
    for level, scale in zip(levels, scales, strict=True):
        right = torch.block_diag(*level.right).T
        width = math.prod(right.shape[:1])
        left = torch.eye(width, dtype=torch.float64)
        if level.left is not None:
            left = torch.block_diag(*level.left)
        middle, output = shuffle(level.middle, width), shuffle(level.output, left.shape[0])
        total = total + scale * output @ left @ middle @ right
    return total
