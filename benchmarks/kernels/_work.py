"""What one of several processes does: they compile at once and take turns to be timed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from benchmarks.kernels._cases import Case
from benchmarks.kernels._timing import time_case
from benchmarks.kernels._verifying import Check, check

__all__ = ["begin", "time_one", "verify"]

_turn: AbstractContextManager[Any] = nullcontext()


def begin(turn: AbstractContextManager[Any], threads: int) -> None:
    """Set a process up."""
    global _turn
    _turn = turn
    torch.set_num_threads(threads)


def verify(what: Check) -> list[dict[str, Any]]:
    """Compare one result with float64."""
    return check(what)


def time_one(case: Case) -> list[dict[str, Any]]:
    """Time one case; one that fails must not take the others' results along."""
    try:
        return time_case(case, _turn)
    except Exception as error:
        return [{"failed": f"{case}: {type(error).__name__}: {str(error)[:300]}"}]
