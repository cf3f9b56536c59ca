import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from mlrforecast.models import CausalLM, CausalLMConfig
from mlrforecast.ops import nested_block_ids
from mlrforecast.tasks.language_model import (
    document_levels,
    draw_windows,
    validation_batches,
    windows,
)

TOKENS = torch.arange(50, dtype=torch.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_windows_are_those_of_a_loop() -> None:
    starts = torch.tensor([0, 7, 44])
    found = windows(TOKENS, starts, 5)
    for row, start in enumerate(starts.tolist()):
        assert found.tokens[row].tolist() == list(range(start, start + 5))
        assert found.targets[row].tolist() == list(range(start + 1, start + 6))
    assert found.tokens.dtype == found.targets.dtype == torch.uint8
    with pytest.raises(IndexError):
        windows(TOKENS, torch.tensor([45]), 5)


def test_every_place_is_drawn_about_equally_often() -> None:
    starts = draw_windows(TOKENS[:9], 8000, 4, generator()).starts
    counts = starts.bincount(minlength=5)
    assert len(counts) == 5
    # Five standard deviations of 1600.
    assert (counts - 1600).abs().max() < 5 * (8000 * 0.2 * 0.8) ** 0.5


def test_a_seed_draws_the_same_and_no_other_state_is_used() -> None:
    before = torch.get_rng_state()
    one, same, other = (draw_windows(TOKENS, 16, 4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, same.tokens)
    assert not torch.equal(one.starts, other.starts)
    assert torch.equal(before, torch.get_rng_state())


def levels_by_loop(
    start: int, documents: list[int], length: int, sizes: list[int]
) -> list[list[int]]:
    """Count blocks token by token."""
    rows: list[list[int]] = [[] for _ in range(len(sizes) + 1)]
    keys: list[object] = [None] * len(rows)
    place = 0
    for at in range(start, start + length):
        document = max(n for n, edge in enumerate(documents) if edge <= at)
        place = 0 if not rows[0] or keys[0] != (document,) else place + 1
        for lvl, row in enumerate(rows):
            key = (document, *(place // size for size in sizes[:lvl]))
            row.append(0 if not row else row[-1] + (key != keys[lvl]))
            keys[lvl] = key
    return rows


@given(st.data())
def test_levels_are_those_of_a_loop_and_of_the_sorted_ids(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    edges = np.cumsum([0, *lengths])
    length = data.draw(st.integers(1, int(edges[-1])))
    sizes = sorted(data.draw(st.lists(st.integers(1, 6), max_size=3)), reverse=True)
    starts = data.draw(st.lists(st.integers(0, int(edges[-1]) - length), min_size=1, max_size=3))
    documents = torch.from_numpy(edges)
    found = document_levels(torch.tensor(starts), documents, length, sizes)
    assert found.tolist() == [levels_by_loop(s, edges.tolist(), length, sizes) for s in starts]
    only = document_levels(torch.tensor(starts), documents, length)
    assert torch.equal(found[:, :1], only)
    assert torch.equal(found, nested_block_ids(only, block_sizes=sizes))


def test_a_model_reads_no_token_of_another_document() -> None:
    config = CausalLMConfig(
        vocabulary_size=96,
        context_length=12,
        width=16,
        num_heads=2,
        num_layers=2,
        ranks=(4, 4),
        block_sizes=(None, 3),
        positions="none",
        attention_options={"unshared": "mask"},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CausalLM(config).double()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    batch = windows(TOKENS, torch.tensor([0, 3]), 12)
    ids = document_levels(batch.starts, torch.tensor([0, 5, 9, 50]), 12, [3])
    together = model(batch.tokens, block_ids=ids)
    # The second document of the first window, and the last one of the second, on their own.
    alone = model(batch.tokens[:1, 5:9])
    torch.testing.assert_close(together[:1, 5:9], alone)
    torch.testing.assert_close(together[1:, 6:], model(batch.tokens[1:, 6:]))


@pytest.mark.parametrize(
    ("size", "length"), [(2, 1), (3, 1), (10, 1), (10, 3), (11, 3), (10, 9), (12, 9), (50, 9)]
)
@pytest.mark.parametrize("max_tokens", [None, 9, 14])
def test_validation_predicts_no_token_twice(size: int, length: int, max_tokens: int | None) -> None:
    batches = list(validation_batches(TOKENS[:size], length, 4, max_tokens))
    predicted = torch.cat([batch.targets.flatten() for batch in batches]).tolist()
    whole = (size - 1) // length
    count = whole if max_tokens is None else min(whole, max_tokens // length)
    assert len(predicted) == len(set(predicted)) == count * length
    if count == whole:
        assert predicted == list(range(1, whole * length + 1))
    assert all(len(batch.tokens) == 4 for batch in batches[:-1])
    again = list(validation_batches(TOKENS[:size], length, 4, max_tokens))
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(batches, again, strict=True))


def test_a_part_of_the_validation_lies_evenly_over_it() -> None:
    (batch,) = validation_batches(TOKENS, 4, 99, max_tokens=16)
    assert batch.starts.tolist() == [0, 12, 24, 36]


def test_nothing_waits_for_the_device() -> None:
    with FakeTensorMode():
        tokens = torch.zeros(1000, dtype=torch.uint8)
        documents = torch.arange(0, 1001, 10)
        # What the mode is there for: a look at an entry raises.
        with pytest.raises(DataDependentOutputException):
            int(documents[0])
        batch = draw_windows(tokens, 8, 32, generator())
        ids = document_levels(batch.starts, documents, 32, [16, 8])
    assert batch.tokens.shape == batch.targets.shape == (8, 32)
    assert ids.shape == (8, 3, 32)


@pytest.mark.gpu
def test_a_graph_holds_the_batches() -> None:
    tokens = torch.arange(2000, device="cuda").to(torch.uint8)
    documents = torch.arange(0, 2001, 50, device="cuda")
    draws = torch.Generator("cuda").manual_seed(0)

    def make() -> tuple[torch.Tensor, ...]:
        batch = draw_windows(tokens, 8, 64, draws)
        return (*batch, document_levels(batch.starts, documents, 64, [16, 4]))

    make()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(draws)
    with torch.cuda.graph(graph):
        held = make()
    seen = []
    for _ in range(3):
        graph.replay()
        read, targets, starts, ids = (each.clone() for each in held)
        expected = windows(tokens, starts, 64)
        assert torch.equal(read, expected.tokens)
        assert torch.equal(targets, expected.targets)
        assert torch.equal(ids, document_levels(starts, documents, 64, [16, 4]))
        seen.append(starts.tolist())
    assert len({tuple(starts) for starts in seen}) == 3


STARTS, DOCUMENTS = torch.tensor([0]), torch.tensor([0, 50])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: windows(TOKENS, STARTS, 50), ValueError, "`length` must be below the 50 tokens"),
        (lambda: windows(TOKENS, STARTS, 0), ValueError, "`length` must be at least 1, got 0"),
        (lambda: windows(TOKENS, STARTS, 2.0), TypeError, "`length` must be an int, got 2.0"),
        (
            lambda: windows(TOKENS.long(), STARTS, 2),
            TypeError,
            "`tokens` must be a tensor",
        ),
        (lambda: windows(TOKENS[None], STARTS, 2), ValueError, "`tokens` must have one axis"),
        (lambda: windows(TOKENS, STARTS.int(), 2), TypeError, "`starts` must be a tensor"),
        (lambda: windows(TOKENS, STARTS[:0], 2), ValueError, "`starts` must have one axis of at l"),
        (
            lambda: windows(TOKENS, STARTS.to("meta"), 2),
            ValueError,
            "`starts` must be on the device of `tokens`, cpu, got meta",
        ),
        (lambda: draw_windows(TOKENS, 0, 2, generator()), ValueError, "`batch_size` must be at"),
        (lambda: draw_windows(TOKENS, 1, 2, 7), TypeError, "`generator` must be a torch.Gen"),
        (
            lambda: draw_windows(TOKENS.to("meta"), 1, 2, generator()),
            ValueError,
            "`generator` must be on the device of `tokens`",
        ),
        (lambda: document_levels(STARTS, DOCUMENTS, 0), ValueError, "`length` must be at least 1"),
        (
            lambda: document_levels(STARTS, DOCUMENTS, 4, [2, 3]),
            ValueError,
            r"`block_sizes` must never grow, got \(2, 3\)",
        ),
        (
            lambda: document_levels(STARTS, DOCUMENTS, 4, [None]),
            TypeError,
            r"`block_sizes\[0\]` must be an int, got None",
        ),
        (
            lambda: document_levels(STARTS, DOCUMENTS[:1], 4),
            ValueError,
            "`documents` must have one axis of at least 2",
        ),
        (lambda: validation_batches(TOKENS, 50, 1), ValueError, "`length` must be below"),
        (lambda: validation_batches(TOKENS, 4, 0), ValueError, "`batch_size` must be at least 1"),
        (lambda: validation_batches(TOKENS, 4, 1, 3), ValueError, "`max_tokens` must be at least"),
        (lambda: validation_batches([1, 2], 1, 1), TypeError, "got list"),
    ],
)
def test_wrong_arguments_are_refused_at_once(call: object, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
