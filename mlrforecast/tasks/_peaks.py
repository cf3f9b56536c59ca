"""What GPUs can do at most, as their makers state it."""

__all__ = ["peak_flops"]

# Dense products of bfloat16, as their maker states them, in FLOP/s.
_PEAKS = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}


def peak_flops(device: str) -> float | None:
    """Return the FLOP/s of dense bfloat16 products that a GPU's maker states.

    Parameters
    ----------
    device : str
        Name of the GPU.

    Returns
    -------
    float or None
        None if it is not known here.

    Examples
    --------
    >>> peak_flops("NVIDIA H200"), peak_flops("a processor")
    (989000000000000.0, None)
    """
    return next((peak for name, peak in _PEAKS.items() if name in device), None)
