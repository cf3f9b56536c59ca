"""The floors equal published and computed numbers: the proof that the protocol is right."""

import numpy as np
import pytest

from mlrforecast.benchmark._floors import FLOORS, score_floor
from mlrforecast.benchmark._splits import make_splits, standardise
from mlrforecast.data import load_dataset

HORIZONS = (96, 192, 336, 720)

# MSE/MAE for each horizon on the full test windows, printed with 4 decimals.
KNOWN = {
    ("ETTh1", "M", "repeat_last"): "1.2944/.7132 1.3249/.7331 1.3299/.7460 1.3351/.7550",
    ("ETTh1", "M", "seasonal_naive_24"): ".5122/.4333 .5808/.4692 .6499/.5008 .6554/.5141",
    ("ETTh1", "M", "seasonal_naive_168"): ".6570/.5086 .6620/.5127 .6827/.5197 .6582/.5215",
    ("ETTh1", "M", "profile_7d"): ".4000/.3998 .4459/.4225 .4690/.4313 .4510/.4414",
    ("ETTh2", "M", "repeat_last"): ".4317/.4216 .5337/.4725 .5973/.5109 .5945/.5190",
    ("ETTh2", "M", "seasonal_naive_24"): ".3905/.3802 .4819/.4285 .5324/.4656 .5255/.4739",
    ("ETTh2", "M", "seasonal_naive_168"): ".5824/.4847 .5794/.4872 .5670/.4907 .5544/.4910",
    ("ETTh2", "M", "profile_7d"): ".3497/.3781 .4009/.4133 .4100/.4277 .4196/.4390",
    ("ETTh1", "OT", "repeat_last"): ".0693/.2033 .0920/.2357 .1133/.2652 .1292/.2834",
    ("ETTh1", "OT", "seasonal_naive_24"): ".0715/.2105 .0916/.2368 .1108/.2634 .1252/.2796",
    ("ETTh1", "OT", "profile_7d"): ".0694/.2032 .0820/.2227 .0924/.2419 .1073/.2584",
}


@pytest.mark.shared
@pytest.mark.parametrize(("dataset", "target", "floor"), KNOWN, ids=map("-".join, KNOWN))
def test_floors_equal_the_known_table(dataset, target, floor):
    loaded = load_dataset(dataset, download=False)
    frame = loaded.targets if target == "M" else loaded.targets[[target]]
    (split,) = make_splits(loaded.splits, final=True)
    values = standardise(frame, split.train).to_numpy()
    found = [score_floor(floor, values, split.scored, horizon) for horizon in HORIZONS]
    known = [tuple(map(float, pair.split("/"))) for pair in KNOWN[dataset, target, floor].split()]
    assert [(round(errors.mse, 4), round(errors.mae, 4)) for errors in found] == known


@pytest.mark.shared
def test_the_scaler_is_that_of_the_data_set():
    loaded = load_dataset("ETTh1", download=False)
    scaled = standardise(loaded.targets, loaded.splits["train"])
    np.testing.assert_allclose(scaled, loaded.standardised(), atol=1e-12)


@pytest.mark.parametrize("name", FLOORS)
def test_floors_read_the_rows_before_each_window(name):
    period = np.sin(np.arange(400) * 2 * np.pi / 24)[:, None]
    constant = np.full((400, 1), 3.0)
    scored, horizon = range(200, 380), 48
    flat = score_floor(name, constant, scored, horizon)
    assert (flat.mse, flat.mae) == pytest.approx((0.0, 0.0), abs=1e-14)
    squared = score_floor(name, period, scored, horizon).mse
    assert squared == pytest.approx(0.0, abs=1e-14) if name != "repeat_last" else squared > 0.5
    future = period.copy()
    future[380:] = 1e6
    assert score_floor(name, future, scored, horizon) == score_floor(name, period, scored, horizon)


def test_a_missing_row_before_a_window_does_not_spoil_the_floor():
    values = np.sin(np.arange(1000) * 2 * np.pi / 24)[:, None]
    values[680:700] = np.nan
    for name in FLOORS:
        assert np.isfinite(score_floor(name, values, range(700, 900), 24).mse_by_step).all()
    assert score_floor("seasonal_naive_24", values, range(700, 900), 24).mse < 1e-20
