"""Blocks and windows are counted in tokens, and a token is a patch."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster


def hourly(rows: int) -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=rows, freq="h", name="time")
    return pd.DataFrame({"load": np.sin(np.arange(rows) / 4)}, index=stamps)


SMALL = {"prediction_length": 4, "width": 8, "num_heads": 1, "max_steps": 1, "progress": False}


@pytest.mark.parametrize(
    ("lengths", "tokens"),
    [
        ({}, 39),  # the most that any series gives: 39 steps in patches of one
        ({"context_length": 336}, 21),
        ({"patch_length": 4}, 126),
        ({"context_length": 24, "patch_length": 3}, 8),
    ],
)
def test_what_no_series_could_hold_is_refused_without_data(
    lengths: dict[str, int], tokens: int
) -> None:
    levels = {"ranks": (4, 4), "block_sizes": (None, tokens)}
    MLRForecaster(**SMALL, **levels, **lengths).check_parameters()
    for wrong, words in (
        ({**levels, "block_sizes": (None, tokens + 1)}, rf"`block_sizes\[1\]` .* {tokens} tokens"),
        (
            {"attention": "sliding_window", "attention_options": {"window": tokens}},
            f"`window` must be less than the {tokens} tokens",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            MLRForecaster(**SMALL, **wrong, **lengths).check_parameters()


def test_what_these_series_do_not_hold_is_refused_before_training() -> None:
    forecaster = MLRForecaster(**SMALL, ranks=(4, 4), block_sizes=(None, 30))
    forecaster.fit(hourly(2 * 39 + 4))
    with pytest.raises(ValueError, match=r"`block_sizes\[1\]` must be at most the 2[01] tokens"):
        forecaster.fit(hourly(2 * 240 + 4))
