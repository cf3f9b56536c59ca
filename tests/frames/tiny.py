"""Parameters of a forecaster that fits in a blink, for frames of any kind."""

from typing import Any

PREDICTION, CONTEXT = 3, 8

TINY: dict[str, Any] = {
    "prediction_length": PREDICTION,
    "context_length": CONTEXT,
    "width": 4,
    "num_heads": 1,
    "num_layers": 1,
    "hidden_width": 4,
    "max_steps": 1,
    "batch_size": 4,
    "accelerator": "cpu",
    "progress": False,
}
