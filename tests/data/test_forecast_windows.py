"""Windows to forecast from against loops, and what may not reach them."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mlrforecast.data import (
    Covariate,
    CovariateEncoding,
    ForecastWindows,
    Panel,
    WindowStore,
    clock_seconds,
)
from mlrforecast.data.calendar import calendar_features
from mlrforecast.data.scaling import SCALINGS
from tests.data.panels import (
    columns_by_loop,
    make_panel,
    numbers_of,
    random_panels,
    row_numbers,
    scaler,
)

CONTEXT, FUTURE = 5, 3


def windows_of(
    panel: Panel,
    series: list[int],
    cutoffs: list[int],
    *,
    encoding: CovariateEncoding | None = None,
    scaling: str = "standard",
) -> ForecastWindows:
    return ForecastWindows(
        panel,
        encoding or CovariateEncoding.fit(panel, calendar=False),
        series=np.array(series),
        cutoffs=np.array(cutoffs),
        context_length=CONTEXT,
        prediction_length=FUTURE,
        scaling=scaling,
    )


def every_window(panel: Panel) -> tuple[list[int], list[int]]:
    """All cutoffs from one row on, in an order that mixes the series."""
    pairs = [(s, c) for s, rows in enumerate(panel.lengths) for c in range(1, rows + 1)]
    order = np.random.default_rng(0).permutation(len(pairs))
    return [pairs[n][0] for n in order], [pairs[n][1] for n in order]


def rows_by_loop(panel: Panel, series: int, first: int, end: int) -> np.ndarray:
    own = panel.series(series).values
    nothing = np.full(panel.num_channels, np.nan)
    return np.array([own[r] if 0 <= r < len(own) else nothing for r in range(first, end)])


@given(random_panels(), st.sampled_from(SCALINGS))
@example(make_panel((2, 19, 5), missing=0.6), "robust")
def test_every_window_is_the_one_of_a_loop(panel: Panel, scaling: str) -> None:
    series, cutoffs = every_window(panel)
    windows = windows_of(panel, series, cutoffs, scaling=scaling)
    assert len(windows) == len(series)
    whole = slice(0, len(windows))
    found, contexts, actual = windows.gather(whole), windows.contexts(whole), windows.actual(whole)
    assert contexts.dtype == actual.dtype == np.float64
    assert found.batch.future_target.shape == actual.shape
    assert (found.batch.past_observed is None) == (not np.isnan(contexts).any())
    for place, (number, cutoff) in enumerate(zip(series, cutoffs, strict=True)):
        past = rows_by_loop(panel, number, cutoff - CONTEXT, cutoff)
        np.testing.assert_array_equal(contexts[place], past)
        np.testing.assert_array_equal(
            actual[place], rows_by_loop(panel, number, cutoff, cutoff + FUTURE)
        )
        for channel in range(panel.num_channels):
            loc, scale = scaler(past[:, channel], scaling)
            np.testing.assert_allclose(found.loc[place, 0, channel], loc, rtol=1e-12)
            np.testing.assert_allclose(found.scale[place, 0, channel], scale, rtol=1e-12)
            seen = ~np.isnan(past[:, channel])
            assert found.observed[place, 0, channel] == seen.any()
            expected = np.where(seen, (past[:, channel] - loc) / scale, 0.0)
            own = found.batch.past_target[place, :, channel]
            np.testing.assert_allclose(own, expected, rtol=2e-6, atol=2e-6)
            if found.batch.past_observed is not None:
                mask = found.batch.past_observed[place, :, channel]
                np.testing.assert_array_equal(mask, seen)
        for name, covariates, end in (
            ("past_covariates", panel.past, 0),
            ("known_covariates", panel.known, FUTURE),
        ):
            columns = getattr(found.batch, name)
            assert (columns is None) == (not covariates)
            if covariates:
                steps = range(cutoff - CONTEXT, cutoff + end)
                expected = columns_by_loop(
                    covariates, covariates, panel.bounds, number, steps, CONTEXT
                )
                np.testing.assert_allclose(columns[place], expected, rtol=1e-5, atol=1e-5)


@given(random_panels(), st.sampled_from(SCALINGS))
def test_a_window_is_the_same_alone_in_any_batch_and_beside_any_series(
    panel: Panel, scaling: str
) -> None:
    encoding = CovariateEncoding.fit(panel, calendar=False)
    series, cutoffs = every_window(panel)
    windows = windows_of(panel, series, cutoffs, encoding=encoding, scaling=scaling)
    whole = windows.gather(slice(0, len(windows)))
    for place in range(0, len(windows), 3):
        number = series[place]
        alone = windows_of(
            panel.select(np.array([number])),
            [0],
            [cutoffs[place]],
            encoding=encoding,
            scaling=scaling,
        ).gather(slice(0, 1))
        chunk = windows.gather(slice(place, place + 4))
        for found in (alone, chunk):
            np.testing.assert_array_equal(found.loc[0], whole.loc[place])
            np.testing.assert_array_equal(found.scale[0], whole.scale[place])
            for name, tensor in whole.batch._asdict().items():
                own = getattr(found.batch, name)
                # A mask says that all is observed, or there is none.
                if name in ("past_observed", "future_observed"):
                    assert own is None or torch.equal(own[0], tensor[place])
                else:
                    assert (own is None) == (tensor is None)
                    assert own is None or torch.equal(own[0], tensor[place])


def spoilt(panel: Panel, series: list[int], cutoffs: list[int]) -> Panel:
    """Other targets and past covariates from the cutoffs on, missing ones too."""
    values, past = panel.values.copy(), panel.past[0].values.copy()
    for number, cutoff in zip(series, cutoffs, strict=True):
        rows = slice(panel.bounds[number] + cutoff, panel.bounds[number + 1])
        values[rows] = np.resize([1e9, np.nan, -3.0], values[rows].shape)
        past[rows] = np.resize([np.nan, 1e200], past[rows].shape)
    return replace(panel, values=values, past=(Covariate("p", past),))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_nothing_after_a_cutoff_reaches_a_window(scaling: str) -> None:
    lengths = (30, 8, 12)
    count = sum(lengths)
    panel = make_panel(
        lengths,
        missing=0.1,
        past=(numbers_of("p", count, missing=0.2),),
        known=(numbers_of("k", count),),
    )
    encoding = CovariateEncoding.fit(panel, calendar=False)
    series, cutoffs = [2, 0, 1, 2, 0], [12, 17, 1, 12, 30]
    true, other = (
        windows_of(p, series, cutoffs, encoding=encoding, scaling=scaling).gather(slice(0, 5))
        for p in (panel, spoilt(panel, [0, 1, 2], [30, 1, 12]))
    )
    assert not np.array_equal(panel.values, spoilt(panel, [0, 1, 2], [30, 1, 12]).values)
    one_by_one = windows_of(
        spoilt(panel, [0], [17]), series, cutoffs, encoding=encoding, scaling=scaling
    ).gather(slice(1, 2))
    for found, places in ((other, range(5)), (one_by_one, [1])):
        for own, place in enumerate(places):
            np.testing.assert_array_equal(found.loc[own], true.loc[place])
            np.testing.assert_array_equal(found.scale[own], true.scale[place])
            for mine, theirs in zip(found.batch, true.batch, strict=True):
                if mine is not None:
                    assert torch.equal(mine[own], theirs[place])


def test_known_covariates_stand_at_the_steps_to_forecast() -> None:
    """Where target and covariate count the rows, the steps ahead count on."""
    lengths = (20, 4)
    rows = row_numbers(lengths)
    panel = make_panel(lengths, past=(Covariate("p", rows),), known=(Covariate("k", rows),))
    panel = replace(panel, values=rows[:, None])
    encoding = CovariateEncoding.fit(panel, calendar=False)
    series, cutoffs = [0, 0, 1, 1, 0], [17, 5, 1, 3, 20]
    windows = windows_of(panel, series, cutoffs, encoding=encoding)
    found = windows.gather(slice(0, 5))
    batch, column = found.batch, encoding.known[0]
    known = batch.known_covariates[..., 0].double().numpy() * column.scale + column.loc
    past = batch.past_covariates[..., 0].double().numpy() * column.scale + column.loc
    target = batch.past_target.double().numpy() * found.scale + found.loc
    for place, (number, cutoff) in enumerate(zip(series, cutoffs, strict=True)):
        for step in range(-CONTEXT, FUTURE):
            row, column_place = cutoff + step, CONTEXT + step
            if not 0 <= row < lengths[number]:
                assert batch.known_covariates[place, column_place, 0] == 0
                continue
            assert known[place, column_place] == pytest.approx(row, abs=1e-4)
            if step < 0:
                assert past[place, column_place] == pytest.approx(row, abs=1e-4)
                assert target[place, column_place, 0] == pytest.approx(row, abs=1e-4)


def test_a_relative_number_ahead_is_relative_to_the_context() -> None:
    rows = row_numbers((20,))
    panel = make_panel((20,), known=(Covariate("k", rows),))
    known = windows_of(panel, [0], [9]).gather(slice(0, 1)).batch.known_covariates
    mean, deviation = 6.0, math.sqrt(2.0)
    expected = (np.arange(4, 12) - mean) / deviation
    np.testing.assert_allclose(known[0, :, 1], expected, atol=1e-6)


@pytest.mark.parametrize("change", ["2024-03-31", "2024-10-27"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", None])
def test_the_calendar_ahead_is_that_of_its_own_stamps(change: str, zone: str | None) -> None:
    """Across a change of the clocks, each step has the hour that the clock shows."""
    start = str(pd.Timestamp(change) - pd.Timedelta(hours=500))
    panel = make_panel((520, 499), start=start, zone=zone)
    encoding = CovariateEncoding.fit(panel, calendar=True)
    assert encoding.cycles == ("day", "week")
    cutoffs = list(range(495, 515))
    windows = windows_of(panel, [0] * len(cutoffs), cutoffs, encoding=encoding)
    calendar = windows.gather(slice(0, len(cutoffs))).batch.calendar
    for place, cutoff in enumerate(cutoffs):
        stamps = panel.series(0).index[cutoff : cutoff + FUTURE]
        hours = np.array([stamp.hour for stamp in stamps])
        np.testing.assert_allclose(calendar[place, :, 0], np.sin(2 * np.pi * hours / 24), atol=1e-5)
        expected = calendar_features(clock_seconds(stamps), encoding.cycles)
        np.testing.assert_array_equal(calendar[place], expected)
    # The series that ends at its cutoff has no calendar there.
    ends = windows_of(panel, [1], [499], encoding=encoding).gather(slice(0, 1))
    assert (ends.batch.calendar == 0).all()


def test_a_context_without_any_value_is_marked() -> None:
    panel = make_panel((12,), channels=2)
    values = panel.values.copy()
    values[:6, 1] = np.nan
    found = windows_of(replace(panel, values=values), [0, 0], [6, 7]).gather(slice(0, 2))
    assert found.observed[:, 0].tolist() == [[True, False], [True, True]]
    assert (found.loc[0, 0, 1], found.scale[0, 0, 1]) == (0.0, 1.0)
    assert (found.batch.past_target[0, :, 1] == 0).all()


def test_a_window_of_training_is_read_the_same_way() -> None:
    """What a network reads beside the target is the same in training and forecasting."""
    lengths = (30, 6)
    panel = make_panel(
        lengths,
        past=(numbers_of("p", 36, missing=0.2),),
        known=(numbers_of("k", 36),),
        static=(numbers_of("s", 2),),
        freq="12h",
    )
    encoding = CovariateEncoding.fit(panel, calendar=True)
    assert encoding.cycles
    store = WindowStore(
        panel, encoding, context_length=CONTEXT, prediction_length=FUTURE, min_context=2
    )
    series, cutoffs = [0] * 23 + [1] * 2, [*range(5, 28), 2, 3]
    trained = store.gather(torch.arange(len(store)))
    windows = windows_of(panel, series, cutoffs, encoding=encoding)
    read = windows.gather(slice(0, len(windows))).batch
    for name in ("past_covariates", "known_covariates", "static_covariates", "calendar"):
        assert torch.equal(getattr(trained, name), getattr(read, name))


def test_reading_leaves_the_panel_as_it_was() -> None:
    panel = make_panel((9,), missing=0.3, known=(numbers_of("k", 9, missing=0.3),))
    values, known = panel.values.copy(), panel.known[0].values.copy()
    windows = windows_of(panel, [0], [9])
    windows.gather(slice(0, 1)).batch.past_target.fill_(3)
    windows.contexts(slice(0, 1)).fill(3)
    windows.actual(slice(0, 1)).fill(3)
    np.testing.assert_array_equal(panel.values, values)
    np.testing.assert_array_equal(panel.known[0].values, known)
