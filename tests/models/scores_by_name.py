"""Every score by its name, with fields of a configuration that make it do something."""

from typing import Any

FIELDS: dict[str, dict[str, Any]] = {
    "bilinear": {"attention_options": {"structure": "monarch", "logit_scale": "mup"}},
    "bilinear_btt": {"attention_options": {"tensor_rank": 2}},
    "bilinear_mlr": {"attention_options": {"divide_by_num_levels": True}},
    "global_window": {"ranks": (3, 1), "attention_options": {"window": 3, "combine": "sum"}},
    "mlr": {"attention_options": {"level_scale": "inverse_rank", "divide_by_shared_levels": True}},
    "mlr_window": {"attention_options": {"window": 5}},
    "sliding_window": {"attention_options": {"window": 4}},
    "standard": {"attention_options": {"logit_scale": "mup"}},
}
"""Name -> fields; ``ranks`` are those of a head of four columns."""

NAMES = sorted(FIELDS)
