"""The printed table by hand."""

import pandas as pd
import pytest

from mlrforecast.benchmark import ett_table

NAMES = ["dataset", "target", "split", "horizon", "model", "attention", "seed", "mse", "mae"]


def frame(rows, windows=100):
    full = [("ETTh1", "M", *row) for row in rows]
    return pd.DataFrame(full, columns=NAMES).assign(windows=windows)


def test_seeds_are_averaged_with_their_sample_spread():
    rows = [("test", 96, "MLRForecaster", "mlr", seed, seed / 10, 0.5) for seed in (1, 2, 3)]
    rows += [("test", 192, "MLRForecaster", "mlr", seed, 0.4, 0.5) for seed in (1, 2, 3)]
    lines = ett_table(frame(rows)).splitlines()
    assert lines[1].split() == ["96", "192", "mean"]
    assert lines[2].split() == [
        "MLRForecaster",
        "mlr",
        "0.2000±0.1000/0.5000±0.0000",
        "0.4000±0.0000/0.5000±0.0000",
        "0.3000±0.0500/0.5000±0.0000",
    ]


def test_folds_are_averaged_for_each_seed_before_the_spread():
    rows = [
        (fold, 96, "MLRForecaster", "mlr", seed, mse, 1.0)
        for fold, seed, mse in [
            ("fold1", 0, 0.1),
            ("fold2", 0, 0.5),
            ("fold1", 1, 0.2),
            ("fold2", 1, 0.6),
        ]
    ]
    text = ett_table(frame(rows))
    assert "mean of fold1, fold2" in text
    assert "0.3500±0.0707/1.0000±0.0000" in text


def test_floors_stand_first_and_a_missing_horizon_is_seen():
    rows = [
        ("test", 96, "MLRForecaster", "standard", 0, 0.1, 0.1),
        ("test", 96, "profile_7d", "", "", 0.4, 0.5),
        ("test", 192, "profile_7d", "", "", 0.6, 0.7),
        ("test", 96, "repeat_last", "", "", 1.4, 0.5),
    ]
    lines = ett_table(frame(rows)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == [
        "repeat_last",
        "profile_7d",
        "MLRForecaster",
        "windows",
    ]
    assert lines[3].split()[1:] == ["0.4000/0.5000", "0.6000/0.7000", "0.5000/0.6000"]
    assert lines[4].split()[2:] == ["0.1000/0.1000", "-", "-"]


def test_one_table_is_about_one_target():
    mixed = pd.concat([frame([("test", 96, "a", "", "", 1.0, 1.0)])] * 2)
    mixed["target"] = ["M", "OT"]
    with pytest.raises(ValueError, match="`results` must hold rows of one data set"):
        ett_table(mixed)
