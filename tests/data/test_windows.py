"""Windows against loops over the series."""

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast._core.errors import DataError
from mlrforecast.data import ForecastBatch, Panel, WindowStore, context_batch, read_panel

CONTEXT, FUTURE, MIN_CONTEXT = 5, 3, 2
SIZE = CONTEXT + FUTURE


def long_panel(lengths: tuple[int, ...], missing: float = 0.0) -> Panel:
    rng = np.random.default_rng(0)
    parts = []
    for item, rows in enumerate(lengths):
        target = 10.0 ** rng.integers(-2, 3) * (5 + rng.standard_normal(rows))
        target[rng.random(rows) < missing] = np.nan
        target[rows // 2] = 1.0
        stamps = pd.date_range("2024", periods=rows, freq="h")
        parts.append(pd.DataFrame({"item_id": item, "timestamp": stamps, "target": target}))
    return read_panel(pd.concat(parts), freq="h")


def wide_panel(rows: int, columns: int) -> Panel:
    rng = np.random.default_rng(1)
    index = pd.date_range("2024", periods=rows, freq="D")
    values = rng.standard_normal((rows, columns))
    return read_panel(pd.DataFrame(values, index=index, columns=list("abcdef")[:columns]))


def store_of(panel: Panel) -> WindowStore:
    return WindowStore(
        panel, context_length=CONTEXT, prediction_length=FUTURE, min_context=MIN_CONTEXT
    )


def expected_windows(panel: Panel) -> list[np.ndarray]:
    """Every window, series by series and channel by channel, in one plain loop."""
    windows = []
    for item in panel.series:
        for channel in range(item.values.shape[1]):
            column = list(item.values[:, channel])
            seen = [x for x in column if not np.isnan(x)]
            mean = sum(seen) / len(seen)
            deviation = (sum((x - mean) ** 2 for x in seen) / len(seen)) ** 0.5 or 1.0
            column = [(x - mean) / deviation for x in column]
            if len(column) < SIZE:
                column = [np.nan] * (CONTEXT - MIN_CONTEXT) + column
            windows += [
                np.array(column[start : start + SIZE]) for start in range(len(column) - SIZE + 1)
            ]
    return windows


def joined(batch: ForecastBatch) -> np.ndarray:
    """The windows of a batch with NaN where it says that nothing was observed."""
    past, future = batch.past_target.clone(), batch.future_target.clone()
    if batch.past_observed is not None:
        assert (past[~batch.past_observed] == 0).all()
        assert (future[~batch.future_observed] == 0).all()
        past[~batch.past_observed] = torch.nan
        future[~batch.future_observed] = torch.nan
    return torch.cat([past, future], dim=1)[..., 0].numpy()


@pytest.mark.parametrize(
    "panel",
    [
        long_panel((8, 20, 9)),
        long_panel((5, 20, 7, 8, 6), missing=0.3),
        long_panel((5,)),
        wide_panel(11, 3),
        wide_panel(8, 1),
    ],
    ids=["long", "short and missing", "shortest", "wide", "one window"],
)
def test_every_window_is_the_one_of_a_loop(panel: Panel) -> None:
    store, expected = store_of(panel), expected_windows(panel)
    assert len(store) == len(expected)
    found = joined(store.gather(torch.arange(len(store))))
    np.testing.assert_allclose(found, np.stack(expected), rtol=2e-6, atol=2e-6)
    # One by one, in any order, and more than once.
    numbers = torch.tensor([len(store) - 1, 0, len(store) // 2, 0])
    np.testing.assert_array_equal(joined(store.gather(numbers)), found[numbers])


def test_shapes_and_masks() -> None:
    batch = store_of(long_panel((20,))).gather(torch.tensor([3, 4]))
    assert batch.past_target.shape == (2, CONTEXT, 1)
    assert batch.future_target.shape == (2, FUTURE, 1)
    assert batch.past_target.dtype == torch.float32
    assert batch.past_observed is None
    assert batch.future_observed is None
    padded = store_of(long_panel((5,))).gather(torch.tensor([0]))
    assert padded.past_observed is not None
    assert padded.past_observed[0, :, 0].tolist() == [False, False, False, True, True]


def test_windows_are_views_of_one_buffer_as_long_as_the_rows() -> None:
    panel = wide_panel(50, 3)
    store = store_of(panel)
    assert store.buffer.shape == (150,)
    assert store.buffer.dtype == torch.float32
    assert store._windows.data_ptr() == store.buffer.data_ptr()
    assert store._windows.untyped_storage().nbytes() == 4 * 150
    # A batch is a copy: what is done to it stays there.
    before = store.buffer.clone()
    store.gather(torch.tensor([0])).past_target.fill_(7)
    assert torch.equal(store.buffer, before)


def test_the_sample_depends_on_its_seed_only() -> None:
    store = store_of(wide_panel(60, 2))

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
    store = store_of(long_panel((8, 12)))
    seen = np.concatenate([joined(batch) for batch in store.sample(16, 20, seed=0)])
    everything = joined(store.gather(torch.arange(len(store))))
    assert {tuple(window) for window in seen} == {tuple(window) for window in everything}


@pytest.mark.parametrize(("limit", "count"), [(7, 7), (1000, 53)])
def test_evenly_spaced_windows(limit: int, count: int) -> None:
    store = store_of(wide_panel(60, 1))
    batches = list(store.evenly_spaced(4, limit))
    assert [len(batch.past_target) for batch in batches[:-1]] == [4] * (len(batches) - 1)
    found = np.concatenate([joined(batch) for batch in batches])
    numbers = np.round(np.linspace(0, len(store) - 1, count)).astype(int)
    np.testing.assert_array_equal(found, joined(store.gather(torch.from_numpy(numbers))))


def test_evenly_spaced_numbers_are_exact_beyond_what_float32_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = store_of(wide_panel(60, 1))
    last = 2**24 + 3
    monkeypatch.setattr(store, "_last_number", torch.tensor([last + 1]))
    monkeypatch.setattr(store, "gather", lambda numbers: numbers)
    assert next(store.evenly_spaced(3, 3)).tolist() == [0, (last + 1) // 2, last]


@pytest.mark.parametrize("lengths", [(4,), (20, 4, 3, 9)])
def test_series_that_are_too_short_are_named(lengths: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        store_of(long_panel(lengths))
    message = str(caught.value)
    assert f"at least {MIN_CONTEXT + FUTURE} rows" in message
    assert f"series {int(np.argmin(lengths))} has {min(lengths)}" in message
    assert ("2 of 4 series" in message) == (len(lengths) > 1)
    with pytest.raises(DataError, match="the frame has 4"):
        store_of(wide_panel(4, 2))


def test_a_constant_is_standardised_to_zero() -> None:
    index = pd.date_range("2024", periods=1000, freq="h")
    store = store_of(read_panel(pd.DataFrame({"a": 0.1, "b": 1e299}, index=index)))
    assert (store.buffer == 0).all()


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1.0, 1e12, 1e293])
@pytest.mark.parametrize("level", [0.0, 1.0, 1e6])
def test_values_of_any_size_are_standardised(size: float, level: float) -> None:
    rng = np.random.default_rng(0)
    shape = level + rng.standard_normal(200)
    index = pd.date_range("2024", periods=200, freq="h")
    store = store_of(read_panel(pd.DataFrame({"a": size * shape}, index=index)))
    expected = (shape - shape.mean()) / shape.std()
    np.testing.assert_allclose(store.buffer.numpy(), expected, rtol=1e-5, atol=1e-6)


def contexts() -> np.ndarray:
    values = np.random.default_rng(2).standard_normal((3, 40, 2)) + 4
    values[0, :7, 0] = np.nan
    values[2, ::3, 1] = np.nan
    return values


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_contexts_are_standardised_one_by_one(size: float) -> None:
    values = size * contexts()
    batch, loc, scale = context_batch(values, 6)
    np.testing.assert_allclose(loc, np.nanmean(values, axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(scale, np.nanstd(values, axis=1, keepdims=True), rtol=1e-12)
    missing = np.isnan(values)
    assert batch.past_observed is not None
    np.testing.assert_array_equal(batch.past_observed.numpy(), ~missing)
    assert batch.future_target.shape == (3, 6, 2)
    back = batch.past_target.double().numpy() * scale + loc
    np.testing.assert_allclose(back[~missing], values[~missing], rtol=1e-6)
    # The same numbers at any size, shift and sign of the units.
    plain, _, _ = context_batch(contexts(), 6)
    np.testing.assert_allclose(batch.past_target, plain.past_target, atol=1e-6)
    shifted, _, _ = context_batch(-3 * contexts() + 1000, 6)
    np.testing.assert_allclose(shifted.past_target, -plain.past_target, atol=1e-5)


def test_contexts_do_not_mix() -> None:
    values = contexts()
    whole, loc, scale = context_batch(values, 6)
    one, one_loc, one_scale = context_batch(values[1:2, :, :1], 6)
    assert torch.equal(one.past_target, whole.past_target[1:2, :, :1])
    np.testing.assert_allclose(loc[1, 0, 0], one_loc.item(), rtol=1e-14)
    np.testing.assert_allclose(scale[1, 0, 0], one_scale.item(), rtol=1e-14)
    # Complete on its own, so no mask.
    assert one.past_observed is None


@pytest.mark.parametrize(
    ("context", "loc", "scale"),
    [
        ([0.1] * 9, 0.1, 1.0),
        ([1e12] * 9, 1e12, 1.0),
        ([np.nan] * 9, 0.0, 1.0),
        ([np.nan] * 4 + [7.5] + [np.nan] * 4, 7.5, 1.0),
        ([np.nan, 2.0, 2.0, np.nan], 2.0, 1.0),
    ],
    ids=["constant", "large constant", "nothing", "one value", "constant with gaps"],
)
def test_contexts_without_spread(context: list[float], loc: float, scale: float) -> None:
    values = np.array(context)[None, :, None]
    before = values.copy()
    batch, found_loc, found_scale = context_batch(values, 2)
    assert (found_loc.item(), found_scale.item()) == (loc, scale)
    assert (batch.past_target == 0).all()
    np.testing.assert_array_equal(values, before)


def test_the_largest_values_are_standardised() -> None:
    values = np.resize([1e300, -1e300], 12)[None, :, None]
    batch, loc, scale = context_batch(values, 2)
    assert np.isfinite([loc.item(), scale.item()]).all()
    np.testing.assert_allclose(batch.past_target.abs(), 1.0, rtol=1e-6)
