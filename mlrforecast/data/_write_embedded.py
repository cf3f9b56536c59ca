"""Write the embedded data file again: ``python -m mlrforecast.data._write_embedded FILE``."""

import sys
from pathlib import Path

import numpy as np

from mlrforecast.data.catalogue import load_card
from mlrforecast.data.synthetic import make_synthetic


def embedded_csv() -> bytes:
    """Draw the embedded data set and write it as csv, one decimal to a value."""
    card = load_card("synthetic")
    frame = make_synthetic(**card.generator).frame.round(1)
    # Adding zero turns -0.0, which would print a sign, into 0.0.
    values = frame.select_dtypes(np.floating) + 0.0
    frame[values.columns] = values
    text = frame.to_csv(date_format=card.timestamp_format, lineterminator="\n")
    assert isinstance(text, str)
    return text.encode()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(embedded_csv())
