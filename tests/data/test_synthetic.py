import hashlib

import numpy as np
import pandas as pd
import pytest

from mlrforecast.data import load_card, load_dataset, make_synthetic
from mlrforecast.data._write_embedded import embedded_csv
from mlrforecast.data.catalogue import catalogue_folder


def test_same_seed_same_panel_other_seed_other_panel():
    first, again, other = (make_synthetic(seed=seed) for seed in (3, 3, 4))

    pd.testing.assert_frame_equal(first.frame, again.frame)
    pd.testing.assert_frame_equal(first.truth, again.truth)
    assert not np.allclose(first.truth, other.truth)
    assert not np.allclose(first.covariates["temperature"], other.covariates["temperature"])


def test_truth_is_the_sum_of_components_and_noise_has_the_promised_size():
    noise = 0.2
    data = make_synthetic(length=20_000, noise=noise, missing_rate=0.0, seed=5)

    total = sum(frame.to_numpy() for frame in data.components.values())
    np.testing.assert_allclose(data.truth, total, rtol=1e-12)
    residual = data.frame[list(data.target_columns)] - data.truth
    # The daily wave is amplitude * (sin + 0.4 sin): its mean square is amplitude^2 * 1.16 / 2.
    amplitude = np.sqrt((data.components["daily"] ** 2).mean() * 2 / 1.16)
    np.testing.assert_allclose(residual.std() / amplitude, noise, rtol=0.03)
    np.testing.assert_allclose(residual.mean() / amplitude, 0.0, atol=0.01)
    assert abs(residual.corr().to_numpy()[np.triu_indices(3, 1)]).max() < 0.05


def test_without_noise_and_gaps_the_frame_is_the_truth():
    data = make_synthetic(noise=0.0, missing_rate=0.0)

    pd.testing.assert_frame_equal(data.frame[list(data.target_columns)], data.truth)
    pd.testing.assert_frame_equal(data.frame[["temperature", "holiday"]], data.covariates)


def test_each_argument_leaves_the_rest_of_the_panel_alone():
    base = make_synthetic(num_series=2)

    for changed in (
        make_synthetic(num_series=3),
        make_synthetic(num_series=2, noise=1.0, missing_rate=0.4),
    ):
        pd.testing.assert_frame_equal(changed.truth[["load_1", "load_2"]], base.truth)
        pd.testing.assert_frame_equal(changed.covariates, base.covariates)
    steps = make_synthetic(num_series=2, level_shifts=3)
    pd.testing.assert_frame_equal(
        steps.truth - steps.components["shift"], base.truth - base.components["shift"]
    )


@pytest.mark.parametrize("freq", ["h", "15min", "6h"])
def test_cycles_have_the_periods_of_the_clock(freq):
    data = make_synthetic(length=2000, freq=freq, start="2024-03-06 05:00", level_shifts=0)
    per_day = pd.Timedelta(days=1) // pd.Timedelta(pd.tseries.frequencies.to_offset(freq))

    for kind, period in (("daily", per_day), ("weekly", 7 * per_day)):
        wave = data.components[kind].to_numpy()
        np.testing.assert_allclose(wave[period:], wave[:-period], atol=1e-9)
        assert not np.allclose(wave[period // 2 :], wave[: -(period // 2)], atol=1.0)
        np.testing.assert_allclose(wave[:period].mean(axis=0), 0.0, atol=1e-9)
        assert np.diff(wave, axis=0).all(), "the wave moves at every step, also within an hour"
    trend = data.components["trend"].to_numpy()
    np.testing.assert_allclose(np.diff(trend, n=2, axis=0), 0, atol=1e-9)


def test_daylight_saving_moves_the_cycle_with_the_wall_clock():
    data = make_synthetic(length=24 * 14, start=pd.Timestamp("2024-03-25", tz="Europe/Berlin"))

    daily = data.components["daily"]["load_1"]
    by_hour = daily.groupby(pd.DatetimeIndex(daily.index).hour)
    assert by_hour.nunique(dropna=False).max() == 1
    holidays = data.covariates["holiday"].groupby(data.covariates.index.date).nunique()
    assert holidays.max() == 1


@pytest.mark.parametrize(("rate", "length"), [(0.0, 500), (0.02, 1344), (0.5, 777)])
def test_missing_spans_have_the_promised_share_and_length(rate, length):
    data = make_synthetic(length=length, missing_rate=rate)

    lost = data.frame[list(data.target_columns)].isna()
    assert (lost.sum() == round(rate * length)).all()
    assert not data.frame[["temperature", "holiday"]].isna().to_numpy().any()
    assert not data.truth.isna().to_numpy().any()
    if rate == 0.02:
        for column in lost:
            run = lost[column].groupby((~lost[column]).cumsum()).sum()
            assert 2 <= run.max() <= 24
        assert not lost["load_1"].equals(lost["load_2"])


@pytest.mark.parametrize("count", [0, 1, 4])
def test_level_shifts_are_steps_and_spare_the_end(count):
    data = make_synthetic(length=1000, level_shifts=count)

    shift = data.components["shift"]
    where = np.flatnonzero(shift["load_1"].diff().fillna(0.0))
    assert len(where) == count
    assert ((where >= 100) & (where < 700)).all()


def test_covariates_act_on_the_targets():
    data = make_synthetic(length=24 * 70)

    holiday = data.covariates["holiday"]
    assert holiday.sum() == 24 * 5
    assert holiday.groupby(holiday.index.date).nunique().max() == 1
    assert (data.components["holiday"][holiday == 1] < -2).all().all()
    assert (data.components["holiday"][holiday == 0] == 0).all().all()
    slope = data.components["temperature"].iloc[0] / (12 - data.covariates["temperature"].iloc[0])
    assert slope.between(0.4, 0.8).all()
    np.testing.assert_allclose(
        data.components["temperature"],
        np.outer(12 - data.covariates["temperature"], slope),
        atol=1e-9,
    )


def test_temperature_anomaly_wanders_slowly():
    """One day apart the anomaly keeps exp(-1) of its size, whatever the step."""
    for freq, per_day in (("h", 24), ("30min", 48)):
        temperature = make_synthetic(length=60_000, freq=freq, seed=2).covariates["temperature"]
        stamps = pd.DatetimeIndex(temperature.index)
        hours = stamps.hour + stamps.minute / 60
        anomaly = (
            temperature
            - 12
            - 8 * np.cos(2 * np.pi * (stamps.day_of_year - 200) / 365.25)
            - 4 * np.cos(2 * np.pi * (hours - 15) / 24)
        )
        assert anomaly.std() == pytest.approx(2.5, rel=0.1)
        assert anomaly.autocorr(per_day) == pytest.approx(np.exp(-1), abs=0.06)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("num_series", 0, "num_series must be at least 1, got 0"),
        ("length", 0, "length must be at least 1, got 0"),
        ("noise", -0.1, "noise must be at least 0"),
        ("noise", float("nan"), "noise must be at least 0, got nan"),
        ("missing_rate", 0.6, "missing_rate must lie between 0 and 0.5"),
        ("missing_rate", float("nan"), "missing_rate must lie between 0 and 0.5"),
        ("level_shifts", -1, "level_shifts must be at least 0"),
        ("seed", -1, "seed must be at least 0"),
        ("freq", "MS", "freq must be a fixed step .* got 'MS'"),
        ("freq", "48h", "at most '24h', got '48h'"),
        ("freq", "fortnightly", "freq 'fortnightly' is no frequency"),
    ],
)
def test_arguments_outside_their_range_are_named(argument, value, message):
    with pytest.raises(ValueError, match=message):
        make_synthetic(**{argument: value})


def test_one_row_is_enough():
    assert make_synthetic(length=1, missing_rate=0.5).frame.shape == (1, 5)


def test_repr_is_short():
    text = repr(make_synthetic(num_series=2))
    assert text == "SyntheticData(1344 rows from 2024-01-01 00:00:00; targets load_1, load_2)"


def test_embedded_file_is_what_the_generator_draws():
    """Within rounding: a cosine may differ by its last bit between machines."""
    drawn = make_synthetic(**load_card("synthetic").generator)
    dataset = load_dataset("synthetic")

    pd.testing.assert_index_equal(
        pd.DatetimeIndex(dataset.frame.index).as_unit("ns"),
        pd.DatetimeIndex(drawn.frame.index).as_unit("ns"),
    )
    assert list(dataset.frame.columns) == list(drawn.frame.columns)
    np.testing.assert_allclose(dataset.frame, drawn.frame, rtol=0, atol=0.05 + 1e-9, equal_nan=True)


def test_embedded_file_is_small_and_written_by_the_committed_command():
    stored = (catalogue_folder() / "tiny" / "synthetic.csv").read_bytes()

    assert len(stored) <= 50_000
    written = embedded_csv()
    assert written.count(b"\n") == stored.count(b"\n") == 1345
    assert b",-0.0," not in written
    assert hashlib.sha256(stored).hexdigest() == load_card("synthetic").files[0].sha256
    assert len(stored) == load_card("synthetic").files[0].size
