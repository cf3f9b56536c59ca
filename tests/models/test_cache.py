"""What the cache of a language model keeps: the closed forms, at every length."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mlrforecast.models import CausalLM, CausalLMConfig
from mlrforecast.nn import Score
from tests.models.generation_cases import (
    NUM_HEADS,
    NUM_LAYERS,
    PAST,
    VARIANTS,
    VOCABULARY,
    WIDTH,
    model_of,
    padding,
    text,
)
from tests.models.scores_by_name import NAMES

pytestmark = pytest.mark.usefixtures("seeded")


def kept(variant: str, length: int) -> tuple[int, int]:
    """Return key numbers of a key head and steps whose values are kept, after ``length`` tokens.

    The closed forms, written out for each variant; those of a bilinear score are of a query head.
    """
    t = length
    window = {"mlr_window": 5, "sliding_window": 4, "global_window": 3}
    match variant:
        case "standard":
            return 4 * t, t
        case "bilinear" | "bilinear_btt":
            return WIDTH * t, t
        case "bilinear_mlr":
            return (2 * 1 + 1 * 2 + 1 * 4) * t, t
        case "sliding_window":
            near = min(t, window[variant])
            return 4 * near, near
        case "global_window":
            return 3 * t + 1 * min(t, window[variant]), t
        case "mlr" | "mlr-plain":
            return 2 * t + 1 * (t % 8) + 1 * (t % 4), t
        case "mlr-ragged":
            return 1 * t + 1 * (t % 7) + 2 * (t % 3), t
        case "mlr-no-whole-level":
            return 2 * (t % 8) + 2 * (t % 5), max(t % 8, t % 5)
        case "mlr-unshared-attend":
            return 2 * (t % 6) + 2 * (t % 3), t
        case "mlr_window":
            near = min(t, window[variant])
            return 2 * near + 1 * (t % 8) + 1 * (t % 4), max(near, t % 8)
        case "mlr-window-narrow":
            return 2 * min(t, 2) + 2 * (t % 8), max(min(t, 2), t % 8)
        case "mlr-counted":
            return 2 * t + 1 * (t % 9) + 1 * (t % 3), t
        case _:
            return 0, 0


MEASURED = [variant for variant in VARIANTS if variant not in ("mix", "window-itself")]


@pytest.mark.parametrize("variant", MEASURED)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@torch.no_grad()
def test_bytes_are_the_closed_form_at_every_length(
    variant: str, grouped: bool, padded: bool
) -> None:
    model, tokens = model_of(variant, grouped=grouped).float(), text()
    heads = 2 if grouped else NUM_HEADS
    key_heads = NUM_HEADS if variant in ("bilinear", "bilinear_btt") else heads
    cache = model.new_cache()
    for t in range(1, PAST + 1):
        mask = padding(PAST)[:, t - 1 : t] if padded else None
        model(tokens[:, t - 1 : t], mask, cache=cache)
        keys, steps = kept(variant, t)
        numbers = key_heads * keys + heads * (WIDTH // NUM_HEADS) * steps
        expected = NUM_LAYERS * 2 * (4 * numbers + (steps if padded else 0))
        assert cache.num_bytes == expected, t


@pytest.mark.parametrize("num_levels", [1, 2, 3, 5])
@torch.no_grad()
def test_keys_take_the_published_closed_form_at_block_boundaries_and_never_more(
    num_levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``T * sum(r_l / 2 ** (l - 1))``: reached inside the step that completes every block."""
    ranks, context = (8, 4, 2, 1, 1)[: num_levels - 1], 32
    ranks = (*ranks, 16 - sum(ranks))
    config = CausalLMConfig(
        vocabulary_size=VOCABULARY,
        context_length=context,
        width=16,
        num_heads=1,
        num_layers=1,
        ranks=ranks,
        positions="none",
    )
    model = CausalLM(config)
    score, seen = model.encoder.blocks[0].attention.score, []
    attend_step = type(score).attend_step

    def watched(self: Score, step: Any) -> Tensor:
        seen.append(sum(keys.numel() for keys in step.keys))
        return attend_step(self, step)

    monkeypatch.setattr(type(score), "attend_step", watched)
    cache = model.new_cache()
    for t in range(1, context + 1):
        model(text(1, 1), cache=cache)
        sizes = [context / 2**lvl for lvl in range(num_levels)]
        bound = sum(
            rank * (t if lvl == 0 else min(t, size))
            for lvl, (rank, size) in enumerate(zip(ranks, sizes, strict=True))
        )
        between = sum(keys.numel() for keys in cache.layers[0].keys)
        assert between <= seen[-1] <= bound
        assert cache.num_bytes == 4 * (between + 16 * t)
    closed_form = context * sum(rank / 2**lvl for lvl, rank in enumerate(ranks))
    assert seen[-1] == closed_form
    assert max(seen) == closed_form


@pytest.mark.parametrize("variant", ["sliding_window", "mlr_window", "mlr-no-whole-level"])
@torch.no_grad()
def test_windows_and_blocks_bound_the_cache_however_long_the_text(variant: str) -> None:
    model, sizes = model_of(variant), []
    cache = model.new_cache()
    for start in range(40):
        model(text(1, 17, seed=start), cache=cache)
        sizes.append(cache.num_bytes)
    assert cache.length == 680
    assert max(sizes[20:]) <= max(sizes[:20])
    keys, values = (max(x) for x in zip(*(kept(variant, t) for t in range(200)), strict=True))
    assert max(sizes) <= NUM_LAYERS * NUM_HEADS * 8 * (keys + 4 * values)


def test_an_empty_cache() -> None:
    cache = model_of("mlr").new_cache()
    assert (cache.length, cache.num_bytes, len(cache.layers)) == (0, 0, NUM_LAYERS)


def test_the_table_of_the_page_is_what_its_code_computes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "generation.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {}
    exec(code[0].splitlines()[0] + "\nfrom mlrforecast.models import *\n" + code[-1], namespace)
    table = re.findall(r'^\| `"(\w+)"` \| (.*) \|$', page, re.MULTILINE)
    assert {name: row.split(" | ") for name, row in table} == namespace["rows"]
    assert sorted(namespace["rows"]) == NAMES
