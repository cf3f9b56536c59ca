"""Small language models of every score, and options that stress what a cache must keep."""

from typing import Any

import torch
from torch import Tensor

from mlrforecast.models import CausalLM, CausalLMConfig
from tests.models.scores_by_name import FIELDS, NAMES

CONTEXT, VOCABULARY, WIDTH, NUM_HEADS, NUM_LAYERS = 16, 11, 16, 4, 2
PAST = 41
"""Tokens past the trained length, and past several blocks and windows."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, FIELDS[name]) for name in NAMES},
    "mlr-plain": ("mlr", {}),
    "mlr-ragged": ("mlr", {"ranks": (1, 1, 2), "block_sizes": (None, 7, 3)}),
    "mlr-no-whole-level": ("mlr", {"ranks": (2, 2), "block_sizes": (8, 5)}),
    "mlr-unshared-attend": (
        "mlr",
        {
            "ranks": (2, 2),
            "block_sizes": (6, 3),
            "attention_options": {"unshared": "zero", "divide_by_num_levels": True},
        },
    ),
    "mlr-counted": ("mlr", {"ranks": (2, 1, 1), "attention_options": {"num_blocks": (1, 2, 6)}}),
    "mlr-window-narrow": (
        "mlr_window",
        {
            "ranks": (2, 2),
            "block_sizes": (None, 8),
            "attention_options": {"window": 2, "divide_by_shared_levels": True},
        },
    ),
    "window-itself": ("sliding_window", {"attention_options": {"window": 0}}),
    "mix": (
        ("standard", "mlr", "sliding_window"),
        {"num_layers": 3, "attention_options": {"window": 3}},
    ),
}
GROUPED = {"num_kv_heads": 2}


def model_of(variant: str, *, grouped: bool = False, **fields: Any) -> CausalLM:
    """A model in float64 whose tokens differ enough to be told apart."""
    attention, own = VARIANTS[variant]
    fields = {"num_layers": NUM_LAYERS, "positions": "rotary", **own, **fields}
    if grouped:
        fields["attention_options"] = {**(fields.get("attention_options") or {}), **GROUPED}
    config = CausalLMConfig(
        vocabulary_size=VOCABULARY,
        context_length=CONTEXT,
        width=WIDTH,
        num_heads=NUM_HEADS,
        attention=attention,
        **fields,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CausalLM(config).double().eval()
        torch.nn.init.normal_(model.embedding.weight)
        torch.nn.init.normal_(model.head.weight, std=0.5)
    return model


def text(batch: int = 2, length: int = PAST, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def padding(length: int) -> Tensor:
    """No padding before the first text, much before the second."""
    return torch.arange(length) >= torch.tensor([[0], [min(9, length - 1)]])
