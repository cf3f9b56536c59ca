"""Permutation importance: which covariates a forecast rests on, in numbers that can be told."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import CovariateEncoding, FrameSchema, read_panel
from mlrforecast.estimators._importance import permutation_importance
from mlrforecast.estimators._inference import Predictor
from tests.estimators.frames import TINY

STEPS = 3
SCHEMA = FrameSchema(
    known_covariates=("price", "noise"), past_covariates=("heat",), static_covariates=("size",)
)


def frame(num_items=4, rows=40, seed=0):
    """Targets that are the price plus the size of the item, in units of the item."""
    random = np.random.default_rng(seed)
    parts = []
    for item in range(num_items):
        part = pd.DataFrame({"timestamp": pd.date_range("2024-01-01", periods=rows, freq="D")})
        part.insert(0, "item_id", f"i{item}")
        part["price"] = random.normal(size=rows)
        part["noise"] = random.normal(size=rows)
        part["heat"] = random.normal(size=rows)
        part["size"] = float(item)
        part["target"] = 10.0**item * (part["price"] + 0.5 * part["size"] + 0.1 * part["noise"])
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


class Windows:
    """The rows that windows read."""

    def __init__(self, panel, series, cutoffs):
        self.panel, self.series, self.cutoffs = panel, series, cutoffs
        self.prediction_length = STEPS

    def __len__(self):
        return len(self.series)

    @property
    def rows(self):
        first = self.panel.bounds[self.series] + self.cutoffs
        return first[:, None] + np.arange(STEPS)

    def actual(self, windows):
        return self.panel.values[self.rows[windows]]


class Forecast:
    def __init__(self, point):
        self.point = point


class Oracle:
    """A forecaster that knows the rule, but for the noise, and reads the weekday for nothing."""

    def __init__(self, cycles=()):
        self.encoding = CovariateEncoding(cycles=cycles)
        self.calls = 0

    def windows(self, panel, series, cutoffs):
        return Windows(panel, series, cutoffs)

    def forecast(self, windows):
        self.calls += 1
        price = windows.panel.known[0].values[windows.rows]
        size = windows.panel.static[0].values[windows.series][:, None]
        point = 10.0 ** windows.series[:, None] * (price + 0.5 * size)
        if self.encoding.cycles:
            weekday = windows.panel.index.day_of_week.to_numpy()[windows.rows]
            point = point + 10.0 ** windows.series[:, None] * 0.2 * (weekday == 0)
        return Forecast(point[..., None])


def importance(oracle, panel, **options):
    series = np.repeat(np.arange(len(panel)), 3)
    cutoffs = np.tile([20, 28, 36], len(panel))
    windows = oracle.windows(panel, series, cutoffs)
    return permutation_importance(oracle, panel, windows, **({"n_repeats": 3, "seed": 0} | options))


def test_importance_is_the_rise_of_the_error_of_shuffled_rows():
    panel = read_panel(frame(), SCHEMA)
    table = importance(Oracle(), panel).set_index("covariate")
    windows = Oracle().windows(panel, np.repeat(np.arange(4), 3), np.tile([20, 28, 36], 4))
    deviation = np.array([series.values.std() for series in panel])
    actual = windows.actual(slice(None))[..., 0]

    def error(price, sizes):
        total = 0.0
        for window, (series, rows) in enumerate(zip(windows.series, windows.rows, strict=True)):
            for step, row in enumerate(rows):
                forecast = 10.0**series * (price[row] + 0.5 * sizes[series])
                total += abs(actual[window, step] - forecast) / deviation[series]
        return total / actual.size

    price, sizes = panel.known[0].values, panel.static[0].values
    base = error(price, sizes)
    for name, changed in (
        ("price", lambda order: error(price[order.permutation(len(price))], sizes)),
        ("size", lambda order: error(price, sizes[order.permutation(len(sizes))])),
    ):
        errors = np.array([changed(np.random.default_rng([0, repeat])) for repeat in range(3)])
        rises = errors / base - 1
        assert table.loc[name, "importance"] == pytest.approx(rises.mean(), rel=1e-9)
        assert table.loc[name, "std"] == pytest.approx(rises.std(), rel=1e-9)
    assert (table.loc[["noise", "heat"], ["importance", "std"]] == 0).all(axis=None)


def test_the_table_is_sorted_and_names_roles():
    table = importance(Oracle(), read_panel(frame(), SCHEMA))
    assert list(table.columns) == ["covariate", "role", "importance", "std"]
    assert list(table["covariate"]) == ["price", "size", "noise", "heat"]
    assert list(table["role"]) == ["known", "static", "known", "past"]
    assert table["importance"].is_monotonic_decreasing
    assert (table["std"] >= 0).all()


def test_the_calendar_is_one_entry():
    panel = read_panel(frame(), SCHEMA)
    table = importance(Oracle(("week",)), panel)
    assert list(table["role"]).count("calendar") == 1
    (row,) = table[table["role"] == "calendar"].itertuples()
    assert row.covariate == "calendar"
    assert row.importance != 0


def test_a_seed_gives_the_same_numbers_and_each_repeat_another_order():
    panel = read_panel(frame(), SCHEMA)
    oracle = Oracle()
    one = importance(oracle, panel)
    assert oracle.calls == 1 + 4 * 3
    pd.testing.assert_frame_equal(importance(Oracle(), panel), one)
    other = importance(Oracle(), panel, seed=1)
    assert other["importance"][0] != one["importance"][0]
    assert one["std"][0] > 0
    assert importance(Oracle(), panel, n_repeats=1)["std"][0] == 0


def test_missing_targets_count_for_nothing():
    holes = frame()
    holes.loc[holes.index % 3 == 0, "target"] = np.nan
    table = importance(Oracle(), read_panel(holes, SCHEMA))
    assert table["importance"].notna().all()
    assert table["covariate"][0] == "price"


def test_the_panel_is_left_alone():
    panel = read_panel(frame(), SCHEMA)
    before = [c.values.copy() for c in (*panel.known, *panel.past, *panel.static)]
    stamps = panel.index.copy()
    importance(Oracle(("week",)), panel)
    for covariate, values in zip((*panel.known, *panel.past, *panel.static), before, strict=True):
        np.testing.assert_array_equal(covariate.values, values)
    assert panel.index.equals(stamps)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_repeats": 0}, ValueError, "`n_repeats` must be at least 1, got 0"),
        ({"n_repeats": 2.5}, TypeError, "`n_repeats` must be an integer, got 2.5"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0, got -1"),
    ],
)
def test_wrong_numbers_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        importance(Oracle(), read_panel(frame(), SCHEMA), **options)


def test_without_covariates_or_observed_values_there_is_nothing_to_say():
    plain = read_panel(frame()[["item_id", "timestamp", "target"]])
    with pytest.raises(ValueError, match="There is nothing to shuffle"):
        importance(Oracle(), plain)
    empty = frame()
    empty.loc[empty.groupby("item_id").cumcount() >= 15, "target"] = np.nan
    with pytest.raises(DataError, match="An error needs observed values"):
        importance(Oracle(), read_panel(empty, SCHEMA))


def test_a_trained_network_rests_on_the_covariate_that_decides():
    """What is measured of a real network: price makes the target, noise does not."""
    random = np.random.default_rng(0)
    index = pd.date_range("2024-01-01", periods=1000, freq="h")
    data = pd.DataFrame(random.normal(size=(1000, 2)), index, ["price", "noise"])
    data["load"] = 10 + 3 * data["price"] + random.normal(size=1000)
    forecaster = MLRForecaster(
        **(TINY | {"max_steps": 150, "learning_rate": 0.01, "batch_size": 32}),
        target="load",
        known_covariates=["price", "noise"],
    ).fit(data)
    predictor = Predictor(forecaster.model_, forecaster.encoding_, "cpu")
    panel = read_panel(data, forecaster.schema_, freq=forecaster.freq_)
    cutoffs = np.arange(100, 994, 6)
    windows = predictor.windows(panel, np.zeros_like(cutoffs), cutoffs)
    table = permutation_importance(predictor, panel, windows, n_repeats=5, seed=0)
    assert table["covariate"][0] == "price"
    found = table.set_index("covariate")["importance"]
    assert found["price"] > 0.8
    assert abs(found["noise"]) < 0.1
    assert abs(found["calendar"]) < 0.1
    assert set(table["role"]) == {"known", "calendar"}
