"""Training windows against loops over the series."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mlrforecast._core.errors import DataError
from mlrforecast.data import (
    Covariate,
    CovariateEncoding,
    ForecastBatch,
    Panel,
    WindowStore,
    _storage,
)
from mlrforecast.data.scaling import SCALINGS
from tests.data.panels import (
    columns_by_loop,
    make_panel,
    numbers_of,
    random_panels,
    row_numbers,
    scaler,
)

CONTEXT, FUTURE, MIN_CONTEXT = 5, 3, 2
SIZE = CONTEXT + FUTURE


def store_of(panel: Panel, scaling: str = "standard", *, calendar: bool = False) -> WindowStore:
    return WindowStore(
        panel,
        CovariateEncoding.fit(panel, calendar=calendar),
        context_length=CONTEXT,
        prediction_length=FUTURE,
        min_context=MIN_CONTEXT,
        scaling=scaling,
    )


class Window(NamedTuple):
    """A series, a channel, and the rows before the forecast."""

    series: int
    channel: int
    cutoff: int


def expected_windows(panel: Panel) -> list[Window]:
    windows = []
    for series, rows in enumerate(panel.lengths):
        if rows >= SIZE:
            cutoffs = range(CONTEXT, rows - FUTURE + 1)
        else:
            least = min(MIN_CONTEXT, rows - 1)
            cutoffs = range(least, max(rows - FUTURE, least) + 1)
        for channel in range(panel.num_channels):
            windows += [Window(series, channel, cutoff) for cutoff in cutoffs]
    return windows


def expected_target(panel: Panel, window: Window, scaling: str) -> list[float]:
    """Scaled values of one window, NaN where there are none."""
    column = panel.series(window.series).values[:, window.channel]
    loc, scale = scaler(column, scaling)
    steps = range(window.cutoff - CONTEXT, window.cutoff + FUTURE)
    return [(column[s] - loc) / scale if 0 <= s < len(column) else math.nan for s in steps]


def joined(batch: ForecastBatch) -> np.ndarray:
    """The windows of a batch with NaN where it says that nothing was observed."""
    past, future = batch.past_target.clone(), batch.future_target.clone()
    if batch.past_observed is not None:
        assert (past[~batch.past_observed] == 0).all()
        assert (future[~batch.future_observed] == 0).all()
        past[~batch.past_observed] = torch.nan
        future[~batch.future_observed] = torch.nan
    return torch.cat([past, future], dim=1)[..., 0].numpy()


def everything(store: WindowStore) -> ForecastBatch:
    return store.gather(torch.arange(len(store)))


@given(random_panels(), st.sampled_from(SCALINGS))
@example(make_panel((8, 20, 9)), "standard")
@example(make_panel((2, 5, 20, 7, 8, 6, 3), missing=0.3), "robust")
@example(make_panel((2,)), "standard")
@example(make_panel((4,), channels=2), "mean_abs")
@example(make_panel((8,)), "standard")
def test_every_window_is_the_one_of_a_loop(panel: Panel, scaling: str) -> None:
    store, expected = store_of(panel, scaling), expected_windows(panel)
    assert len(store) == len(expected)
    batch = everything(store)
    targets = np.array([expected_target(panel, window, scaling) for window in expected])
    np.testing.assert_allclose(joined(batch), targets, rtol=2e-6, atol=2e-6)
    for name, covariates, steps in (
        ("past_covariates", panel.past, (-CONTEXT, 0)),
        ("known_covariates", panel.known, (-CONTEXT, FUTURE)),
    ):
        found = getattr(batch, name)
        if not covariates:
            assert found is None
            continue
        for place, window in enumerate(expected):
            own = range(window.cutoff + steps[0], window.cutoff + steps[1])
            columns = columns_by_loop(
                covariates, covariates, panel.bounds, window.series, own, CONTEXT
            )
            np.testing.assert_allclose(found[place], columns, rtol=1e-5, atol=1e-5)
    assert (batch.static_covariates is None) == (not panel.static)
    if batch.static_covariates is not None:
        encoded = CovariateEncoding.fit(panel, calendar=False).encode(panel).static
        series = [window.series for window in expected]
        np.testing.assert_array_equal(batch.static_covariates, encoded[series])


@given(random_panels(), st.integers(0, 99))
def test_a_window_is_the_same_alone_and_in_any_order(panel: Panel, seed: int) -> None:
    store = store_of(panel)
    whole = everything(store)
    numbers = np.random.default_rng(seed).integers(0, len(store), 5)
    some = store.gather(torch.from_numpy(numbers))
    one = store.gather(torch.from_numpy(numbers[:1]))
    for all_of_it, drawn, alone in zip(whole, some, one, strict=True):
        assert (all_of_it is None) == (drawn is None) == (alone is None)
        if all_of_it is not None:
            assert torch.equal(drawn, all_of_it[numbers])
            assert torch.equal(alone, drawn[:1])


@pytest.mark.parametrize("lengths", [(40,), (3, 8, 2, 7, 20)])
def test_covariates_stand_at_the_steps_of_the_target(lengths: tuple[int, ...]) -> None:
    """Where target and covariates count the rows, a window counts the same ones everywhere."""
    rows = row_numbers(lengths)
    panel = make_panel(
        lengths,
        past=(Covariate("p", rows),),
        known=(Covariate("k", rows),),
        static=(Covariate("s", np.arange(len(lengths)) * 10.0),),
    )
    store = store_of(replace(panel, values=rows[:, None]), calendar=False)
    batch, found = everything(store), expected_windows(panel)
    encoding = CovariateEncoding.fit(panel, calendar=False)

    def counted(columns: torch.Tensor) -> np.ndarray:
        number = columns[..., 0].double().numpy()
        return number * encoding.known[0].scale + encoding.known[0].loc

    target = joined(batch)
    for place, window in enumerate(found):
        loc, scale = scaler(np.arange(lengths[window.series]), "standard")
        steps = target[place] * scale + loc
        inside = ~np.isnan(steps)
        expected = np.arange(window.cutoff - CONTEXT, window.cutoff + FUTURE)
        np.testing.assert_allclose(steps[inside], expected[inside], atol=1e-4)
        known = counted(batch.known_covariates[place])
        np.testing.assert_allclose(known[inside], expected[inside], atol=1e-4)
        past = counted(batch.past_covariates[place])
        seen = inside[:CONTEXT]
        np.testing.assert_allclose(past[seen], expected[:CONTEXT][seen], atol=1e-4)
        # Outside of the series: nothing, neither of another series nor of this one.
        assert (batch.known_covariates[place][~inside] == 0).all()
        assert (batch.past_covariates[place][~seen] == 0).all()
        own = encoding.static[0]
        static = batch.static_covariates[place, 0].item() * own.scale + own.loc
        assert static == pytest.approx(10 * window.series, abs=1e-4)


def test_the_calendar_is_that_of_the_steps_to_forecast() -> None:
    lengths = (400, 4, 30)
    panel = make_panel(lengths, start="2024-03-25 05:00", zone="Europe/Berlin")
    store = store_of(panel, calendar=True)
    calendar = everything(store).calendar
    assert calendar.shape == (len(store), FUTURE, 8)
    for place, window in enumerate(expected_windows(panel)):
        stamps = panel.series(window.series).index
        for step in range(FUTURE):
            row = window.cutoff + step
            if row >= len(stamps):
                assert (calendar[place, step] == 0).all()
                continue
            local = stamps[row].tz_localize(None)
            day = (local.hour + local.minute / 60) / 24
            week = (local.weekday() + day) / 7
            sine = [math.sin(2 * math.pi * day), math.sin(2 * math.pi * week)]
            np.testing.assert_allclose(calendar[place, step, [0, 4]], sine, atol=1e-5)


def test_missing_covariates_are_marked_where_training_knew_of_some() -> None:
    count = 12
    values = numbers_of("k", count).values
    values[4] = np.nan
    panel = make_panel((count,), known=(Covariate("k", values), numbers_of("l", count)))
    known = everything(store_of(panel)).known_covariates
    # Two standardised, two relative, one mark.
    assert known.shape == (5, SIZE, 5)
    np.testing.assert_array_equal(known[0, :, 4], np.arange(SIZE) == 4)
    assert (known[0, 4, [0, 2]] == 0).all()
    assert (known[0, 4, [1, 3]] != 0).all()


def test_shapes_and_masks() -> None:
    batch = store_of(make_panel((20,))).gather(torch.tensor([3, 4]))
    assert batch.past_target.shape == (2, CONTEXT, 1)
    assert batch.future_target.shape == (2, FUTURE, 1)
    assert batch.past_target.dtype == torch.float32
    # None where there is nothing to say: covariates, the calendar, and masks of complete series.
    assert batch[2:] == (None,) * 6
    padded = store_of(make_panel((4,))).gather(torch.tensor([0]))
    assert padded.past_observed is not None
    assert padded.future_observed is not None
    assert padded.past_observed[0, :, 0].tolist() == [False, False, False, True, True]
    assert padded.future_observed[0, :, 0].tolist() == [True, True, False]


def test_windows_are_views_of_one_buffer_as_long_as_the_rows() -> None:
    store = store_of(make_panel((50,), channels=3))
    assert store.buffer.shape == (150,)
    assert store.buffer.dtype == torch.float32
    assert store._windows.data_ptr() == store.buffer.data_ptr()
    assert store._windows.untyped_storage().nbytes() == 4 * 150
    # A batch is a copy: what is done to it stays there.
    before = store.buffer.clone()
    store.gather(torch.tensor([0])).past_target.fill_(7)
    assert torch.equal(store.buffer, before)


@pytest.mark.parametrize("block", [1, 25, 60, 10**6])
def test_channels_are_scaled_in_blocks_of_any_size(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = make_panel((20,), channels=7, missing=0.2)
    whole = store_of(panel).buffer
    monkeypatch.setattr(_storage, "BLOCK", block)
    torch.testing.assert_close(store_of(panel).buffer, whole, rtol=0, atol=0, equal_nan=True)


def test_the_panel_is_left_as_it_was() -> None:
    panel = make_panel((20, 5), missing=0.2, known=(numbers_of("k", 25, missing=0.2),))
    values, known = panel.values.copy(), panel.known[0].values.copy()
    everything(store_of(panel, "robust"))
    np.testing.assert_array_equal(panel.values, values)
    np.testing.assert_array_equal(panel.known[0].values, known)


def test_the_sample_depends_on_its_seed_only() -> None:
    store = store_of(make_panel((60,), channels=2))

    def draw(seed: int) -> torch.Tensor:
        return torch.stack([b.past_target for b in store.sample(8, 4, seed=seed)])

    state = torch.get_rng_state()
    first = draw(3)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert torch.equal(draw(3), first)
    assert not torch.equal(draw(4), first)
    assert not torch.equal(first[0], first[1])
    assert first.shape == (4, 8, CONTEXT, 1)


def test_the_sample_reaches_every_window() -> None:
    store = store_of(make_panel((8, 12)))
    seen = np.concatenate([joined(batch) for batch in store.sample(16, 20, seed=0)])
    assert {tuple(window) for window in seen} == {tuple(w) for w in joined(everything(store))}


@pytest.mark.parametrize(("limit", "count"), [(7, 7), (1000, 53)])
def test_evenly_spaced_windows(limit: int, count: int) -> None:
    store = store_of(make_panel((60,)))
    batches = list(store.evenly_spaced(4, limit))
    assert [len(batch.past_target) for batch in batches[:-1]] == [4] * (len(batches) - 1)
    found = np.concatenate([joined(batch) for batch in batches])
    numbers = np.round(np.linspace(0, len(store) - 1, count)).astype(int)
    np.testing.assert_array_equal(found, joined(store.gather(torch.from_numpy(numbers))))


def test_evenly_spaced_numbers_are_exact_beyond_what_float32_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = store_of(make_panel((60,)))
    last = 2**24 + 3
    monkeypatch.setattr(store, "_last_number", torch.tensor([last + 1]))
    monkeypatch.setattr(store, "gather", lambda numbers: numbers)
    assert next(store.evenly_spaced(3, 3)).tolist() == [0, (last + 1) // 2, last]


@pytest.mark.parametrize("lengths", [(1,), (20, 1, 3, 1), (5, 0, 9, 1)])
def test_series_that_are_too_short_are_named(lengths: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        store_of(make_panel(lengths))
    message, first = str(caught.value), int(np.argmax(np.array(lengths) < 2))
    assert "at least 2 rows" in message
    assert f"series {first} has {lengths[first]}" in message
    assert ("2 of 4 series" in message) == (len(lengths) > 1)
    with pytest.raises(DataError, match="the frame has 1"):
        store_of(make_panel((1,), channels=2))


def test_a_constant_is_scaled_to_zero() -> None:
    panel = replace(make_panel((1000,), channels=2), values=np.full((1000, 2), [0.1, 1e299]))
    assert (store_of(panel).buffer == 0).all()
    assert (store_of(panel, "robust").buffer == 0).all()
    assert (store_of(panel, "mean_abs").buffer == 1).all()
