"""What stands on the axes of a picture of levels; nothing is shown and nothing is saved."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlrforecast.ops import Levels, document_block_ids, nested_block_ids


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("a figure was shown or saved")

    monkeypatch.setattr(plt, "show", forbidden)
    monkeypatch.setattr(Figure, "show", forbidden)
    monkeypatch.setattr(Figure, "savefig", forbidden)
    yield
    plt.close("all")


def strip(axes: Axes, lvl: int) -> np.ndarray:
    """The colours of one level, (S, 3)."""
    return np.asarray(axes.images[lvl].get_array())[0]


def ranks_of(axes: Axes) -> np.ndarray:
    """The ranks that the map and its colour bar show, pair by pair."""
    image = axes.images[0]
    labels = [int(text.get_text()) for text in image.colorbar.ax.get_yticklabels()]
    return np.array(labels)[np.asarray(image.get_array())]


def lightness(colours: np.ndarray) -> np.ndarray:
    return colours[..., :3] @ [0.2126, 0.7152, 0.0722]


RAGGED = nested_block_ids(document_block_ids([30, 50, 20]), block_sizes=(16, 5))


def test_the_map_is_the_effective_rank() -> None:
    for levels in (Levels(64, (4, 2, 2)), Levels(100, (4, 2, 3), block_ids=RAGGED)):
        axes = levels.plot()
        assert len(axes) == 2
        np.testing.assert_array_equal(ranks_of(axes[1]), levels.effective_rank().numpy())


def test_darker_is_a_higher_rank_and_unshared_pairs_are_white() -> None:
    axes = Levels(100, (4, 2, 3), block_ids=RAGGED).plot()
    image = axes[1].images[0]
    colours = image.cmap(image.norm(np.arange(4)))
    assert np.all(np.diff(lightness(colours)) < -0.05)
    assert colours[0].tolist() == [1, 1, 1, 1]
    least = Levels(8, (4, 2)).plot()[1].images[0]
    assert least.cmap(least.norm(0))[:3] != (1, 1, 1)


def test_a_block_has_one_colour_and_its_neighbours_have_others() -> None:
    scattered = torch.tensor([[0, 7, 0, 7, 5, 5], [1, 1, 2, 2, 3, 3]])
    for levels in (
        Levels(100, (4, 2, 3), block_ids=RAGGED),
        Levels(6, (1, 1), block_ids=scattered),
    ):
        axes = levels.plot()
        for lvl, row in enumerate(levels.ids().numpy()):
            colours = strip(axes[0], lvl)
            for block in np.unique(row):
                assert len(np.unique(colours[row == block], axis=0)) == 1
            apart = np.flatnonzero(np.diff(row))
            dark = lightness(colours)
            # Apart in grey, so for every kind of colour blindness.
            assert np.all(np.abs(dark[apart] - dark[apart + 1]) > 0.1)


def test_each_level_is_named_with_its_blocks_and_rank() -> None:
    axes = Levels(100, (4, 2, 3), block_ids=RAGGED).plot()
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels[0] == "level 1: 3 blocks\nrank 4"
    assert [label.split("\n")[1] for label in labels] == ["rank 4", "rank 2", "rank 3"]
    assert Levels(9, (1,)).plot()[0].get_yticklabels()[0].get_text() == "level 1: 1 block\nrank 1"
    low, high = axes[0].get_ylim()
    assert low > high, "the coarsest level is on top"


def test_scores_are_drawn_beside_them() -> None:
    scores = torch.arange(64.0).view(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
    axes = Levels(8, (4, 2)).plot(scores.requires_grad_())
    assert len(axes) == 3
    shown = axes[2].images[0].get_array()
    np.testing.assert_array_equal(shown.mask, ~np.isfinite(scores.detach().numpy()))
    np.testing.assert_array_equal(shown.filled(-np.inf), scores.detach().numpy())
    assert axes[2].images[0].get_clim() == (0, 63)


def test_signed_scores_are_centred_and_rows_are_the_newest() -> None:
    axes = Levels(8, (4, 2)).plot(np.array([[-1.0] * 7 + [3.0], [0.0] * 8]))
    image = axes[2].images[0]
    assert image.get_clim() == (-3, 3)
    assert image.get_extent() == [-0.5, 7.5, 7.5, 5.5]


@pytest.mark.parametrize("fill", [0.0, -torch.inf])
def test_scores_without_any_contrast(fill: float) -> None:
    assert len(Levels(4, (1,)).plot(torch.full((4, 4), fill))) == 3


def test_a_sequence_of_a_batch() -> None:
    ids = document_block_ids([[30, 50, 20], [60, 40]])
    levels = Levels(100, (4,), block_ids=ids)
    axes = levels.plot(sequence=1)
    np.testing.assert_array_equal(ranks_of(axes[1]), levels.effective_rank()[1].numpy())


def test_long_sequences_are_thinned_out() -> None:
    levels = Levels(30_000, (32, 8, 6, 4, 4, 4, 4, 2))
    axes = levels.plot(torch.zeros(1, 30_000))
    found = ranks_of(axes[1])
    assert found.shape == (1024, 1024)
    kept = np.linspace(0, 29_999, 1024).round().astype(int)
    starts = [np.searchsorted(edges, kept, side="right") for edges in levels.starts()]
    expected = sum(
        rank * (row[:, None] == row) for rank, row in zip(levels.ranks, starts, strict=True)
    )
    np.testing.assert_array_equal(found, expected)
    assert axes[1].images[0].get_extent() == [-0.5, 29_999.5, 29_999.5, -0.5]


def test_many_ranks_are_named_in_part() -> None:
    ids = torch.randint(0, 2, (7, 60), generator=torch.Generator().manual_seed(0))
    axes = Levels(60, (1, 2, 4, 8, 16, 32, 64), block_ids=ids).plot()
    labels = [t.get_text() for t in axes[1].images[0].colorbar.ax.get_yticklabels()]
    assert 2 < len(labels) <= 12
    assert labels == sorted(labels, key=int)
    assert labels[-1] == "127"


@pytest.mark.parametrize(
    ("batched", "arguments", "message"),
    [
        (True, {}, "one for each sequence: say which, such as sequence=0"),
        (False, {"sequence": 0}, "one for all sequences: leave `sequence` out"),
        (True, {"sequence": 2}, r"`sequence` must lie in \[0, 2\), got 2"),
        (True, {"sequence": -1}, r"`sequence` must lie in \[0, 2\), got -1"),
        (False, {"scores": torch.zeros(1, 1, 4, 4)}, r"S = 4 .* draw one head: scores\[0, 0\]"),
        (False, {"scores": torch.zeros(4, 5)}, r"`scores` must have the shape \(T, S\) with S = 4"),
        (False, {"scores": torch.zeros(5, 4)}, r"`scores` must have the shape \(T, S\) with S = 4"),
    ],
)
def test_what_cannot_be_drawn(batched: bool, arguments: dict, message: str) -> None:
    ids = document_block_ids([[1, 3], [2, 2]])
    with pytest.raises(ValueError, match=message):
        Levels(4, (3,), block_ids=ids if batched else ids[0]).plot(**arguments)
    assert plt.get_fignums() == []
