"""Steps of a generation by the fused kernel, in Triton's interpreter, against the loop.

Triton reads ``TRITON_INTERPRET`` when it is imported, so this runs in a process of its own. It
prints the largest error of each case.
"""

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.ops.oracle import loop_attention

LENGTHS = (1, 7, 63, 64, 65, 127, 129, 1000)
LEVELS: dict[str, dict[str, Any]] = {
    "nested": {"ranks": (16, 8, 8), "block_sizes": (None, 64, 16)},
    "odd-ranks": {"ranks": (3, 2, 1, 7), "block_sizes": (None, 50, 20, 5)},
    "not-nested": {"ranks": (4, 2, 3), "block_sizes": (None, 30, 7)},
    "no-whole-level": {"ranks": (4, 4), "block_sizes": (48, 20)},
    "unshared-zero": {"ranks": (4, 4), "block_sizes": (48, 20), "unshared": "zero"},
    "window": {"ranks": (4, 2), "block_sizes": (None, 24), "window": 37},
    "window-narrow": {"ranks": (4, 2), "block_sizes": (None, 24), "window": 0},
    "one-level": {"ranks": (5,), "block_sizes": (None,)},
    "divided": {
        "ranks": (4, 2, 3),
        "block_sizes": (None, 30, 7),
        "divide_by_shared_levels": True,
        "divide_by_num_levels": True,
    },
    "scales": {"ranks": (4, 4), "block_sizes": (None, 32), "level_scale": (0.3, 1.5)},
}
CASES: dict[str, dict[str, Any]] = {
    f"{name}-{length}": {"levels": name, "length": length}
    for name in LEVELS
    for length in (LENGTHS if name in ("nested", "odd-ranks") else (1, 64, 129))
}
CASES |= {
    f"{name}-{length}-splits{splits}": {"levels": name, "length": length, "splits": splits}
    for name in ("nested", "divided", "no-whole-level", "window", "unshared-zero")
    for length, splits in ((129, 1), (129, 2), (129, 3), (129, 7), (200, 16), (5, 4))
}
CASES |= {
    f"{name}-{label}": {"levels": name, "length": 129, **options}
    for name in ("divided", "unshared-zero", "window")
    for label, options in {
        "masked": {"masked": True},
        "masked-split": {"masked": True, "splits": 3},
        "grouped": {"group": 4, "groups": 2},
        "grouped-wide": {"group": 20},
        "grouped-split": {"group": 3, "groups": 2, "splits": 2, "masked": True},
        "spare": {"cache": "spare"},
        "interleaved": {"cache": "interleaved"},
        "apart": {"cache": "apart"},
        "longer": {"cache": "longer"},
        "float32": {"dtype": torch.float32},
        "float16": {"dtype": torch.float16},
        "float16-split": {"dtype": torch.float16, "splits": 3},
        "values-of-another-dtype": {"dtype": torch.float32, "value_dtype": torch.float16},
        "in-order": {"splits": 3, "strided": False},
        "one-stage": {"splits": 3, "staged": False},
    }.items()
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3}


def tolerance(case: dict[str, Any]) -> float:
    dtypes = (case.get("dtype", torch.float64), case.get("value_dtype", torch.float64))
    return max(TOLERANCE[dtype] for dtype in dtypes)


def draw(case: dict[str, Any], device: str = "cpu") -> dict[str, Any]:
    """Return the whole tensors of a case, its key mask and its options."""
    options = dict(LEVELS[case["levels"]])
    groups, group, length = case.get("groups", 1), case.get("group", 1), case["length"]
    width = sum(options["ranks"])
    generator = torch.Generator().manual_seed(length)
    dtype = case.get("dtype", torch.float64)

    def normal(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)

    mask = None
    if case.get("masked"):
        mask = torch.rand(2, length, generator=generator) > 0.4
        mask[1] = False
        mask = mask.to(device)
    return {
        "q": normal(2, groups * group, 1, width),
        "k": normal(2, groups, length, width),
        "v": normal(2, groups, length, 20, dtype=case.get("value_dtype", dtype)),
        "key_mask": mask,
        "options": options,
    }


def caches(drawn: dict[str, Any], kind: str) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """Return of each level the keys that the newest step reads, as a cache may hold them."""
    ranks, sizes = drawn["options"]["ranks"], drawn["options"]["block_sizes"]
    window, length = drawn["options"].get("window"), drawn["k"].shape[2]
    firsts = [0 if size is None else (length - 1) // size * size for size in sizes]
    if window is not None:
        firsts[0] = max(0, length - 1 - window)
    if kind == "longer":
        firsts = [max(0, first - 3) for first in firsts]
    kept = 0 if drawn["options"].get("unshared") == "zero" else min(firsts)
    parts = drawn["k"].split(list(ranks), -1)
    keys = [held(part[:, :, first:], kind) for part, first in zip(parts, firsts, strict=True)]
    mask = drawn["key_mask"]
    return keys, held(drawn["v"][:, :, kept:], kind), None if mask is None else mask[:, kept:]


def held(x: Tensor, kind: str) -> Tensor:
    """Lay out what a cache holds; what it does not hold is not a number."""
    if kind == "spare":
        room = x.new_full((*x.shape[:2], x.shape[2] + 5, x.shape[3]), float("nan"))
        room[:, :, : x.shape[2]] = x
        return room[:, :, : x.shape[2]]
    if kind == "interleaved":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if kind == "apart":
        room = x.new_full((*x.shape[:3], 2 * x.shape[3]), float("nan"))
        room[..., ::2] = x
        return room[..., ::2]
    return x.contiguous()


def exact(drawn: dict[str, Any]) -> Tensor:
    mask = drawn["key_mask"]
    return loop_attention(
        *(drawn[name].double().cpu() for name in ("q", "k", "v")),
        causal=True,
        key_mask=None if mask is None else mask.cpu(),
        **drawn["options"],
    )


def fused(case: dict[str, Any], device: str = "cpu") -> Tensor:
    """Attend by the fused kernel, cut as the case says."""
    from mlrforecast.ops import level_scales, mlr_step_attention
    from mlrforecast.ops.attention import decode

    drawn = draw(case, device)
    keys, v, mask = caches(drawn, case.get("cache", "exact"))
    options = dict(drawn["options"])
    ranks = options.pop("ranks")
    if "splits" not in case:
        options |= {"length": case["length"], "key_mask": mask, "backend": "triton"}
        return mlr_step_attention(drawn["q"], keys, v, **options)
    by_number = options.get("divide_by_num_levels", False)
    scales = level_scales(
        ranks, options.get("level_scale", "inverse_rank"), divide_by_num_levels=by_number
    )
    cut = {name: case[name] for name in ("strided", "staged") if name in case}
    usual = decode._tiles
    decode._tiles = lambda *sizes: dataclasses.replace(usual(*sizes), **cut)
    try:
        return decode.decode_attention(
            drawn["q"],
            keys,
            v,
            length=case["length"],
            block_sizes=options["block_sizes"],
            window=options.get("window"),
            key_mask=mask,
            scales=scales,
            divide_by_shared_levels=options.get("divide_by_shared_levels", False),
            attend_unshared=options.get("unshared") == "zero",
            splits=case["splits"],
        )
    finally:
        decode._tiles = usual


def error(case: dict[str, Any], device: str = "cpu") -> float:
    """Return the largest error of the fused kernel."""
    out = fused(case, device)
    assert out.dtype == case.get("value_dtype", case.get("dtype", torch.float64))
    return float((out.double().cpu() - exact(draw(case))).abs().max())


def operator_is_well_behaved() -> None:
    drawn = draw(CASES["divided-masked-split"])
    keys, v, mask = caches(drawn, "exact")
    sizes, scales = [0, 30, 7], [0.5, 0.25, 0.125]
    for splits in (1, 3):
        arguments = (drawn["q"], keys, v, mask, 129, sizes, None, scales, True, False, splits)
        torch.library.opcheck(torch.ops.mlrforecast.mlr_decode.default, arguments)


def compiles_for_any_length() -> None:
    from torch._dynamo.testing import CompileCounter

    from mlrforecast.ops import mlr_step_attention

    counter = CompileCounter()
    step = torch.compile(mlr_step_attention, fullgraph=True, backend=counter)
    for length in range(40, 60):
        drawn = draw({"levels": "nested", "length": length})
        keys, v, _ = caches(drawn, "exact")
        sizes = LEVELS["nested"]["block_sizes"]
        with torch.no_grad():
            out = step(drawn["q"], keys, v, length=length, block_sizes=sizes, backend="triton")
        torch.testing.assert_close(out, exact(drawn), rtol=0, atol=1e-12)
    assert counter.frame_count <= 4, counter.frame_count


CHECKS: tuple[Callable[[], None], ...] = (operator_is_well_behaved, compiles_for_any_length)


def main() -> None:
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        try:
            results[name] = error(case)
        except Exception:
            results[name] = traceback.format_exc()
    for check in CHECKS:
        try:
            check()
            results[check.__name__] = "ok"
        except Exception:
            results[check.__name__] = traceback.format_exc()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
