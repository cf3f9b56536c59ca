"""The devices that torch finds."""

import torch

__all__ = ["find_device"]


def find_device(accelerator: str) -> torch.device:
    """Return the device of an accelerator's name, or say that it is not there."""
    available = {
        "cpu": True,
        "gpu": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if accelerator == "auto":
        accelerator = next(name for name in ("gpu", "mps", "cpu") if available[name])
    if not available[accelerator]:
        raise ValueError(
            f"`accelerator` is {accelerator!r}, but torch finds no such device here. "
            "Set it to 'auto' or 'cpu'."
        )
    return torch.device({"gpu": "cuda"}.get(accelerator, accelerator))
