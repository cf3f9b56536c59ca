"""The shares of attention weights against a loop over them in float64."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from mlrforecast.data import CovariateEncoding, read_panel
from mlrforecast.estimators import _attention
from mlrforecast.estimators._attention import (
    attention_by_level,
    attention_layers,
    attention_weights,
    finest_levels,
)
from mlrforecast.estimators._inference import Predictor
from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.nn import StructuredAttention, attentions
from mlrforecast.ops import mlr_scores, rotate
from tests.estimators.frames import long, wide

CONTEXT, PATCH = 24, 2
COLUMNS = ["layer", "level", "block", "share", "even_share", "distance"]


def predictor(panel, backbone=None, **changes):
    """An untrained network whose queries and keys are large, so that its weights differ."""
    fields = {
        "context_length": CONTEXT,
        "prediction_length": 6,
        "patch_length": PATCH,
        "patch_stride": PATCH,
        "width": 8,
        "num_heads": 2,
        "num_layers": 2,
        "hidden_width": 8,
        "ranks": (2, 1, 1),
        "block_sizes": (None, 6, 3),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = EncoderForecaster(EncoderConfig(**(fields | changes)), backbone).eval()
    for layer in model.modules():
        if isinstance(layer, StructuredAttention) and hasattr(layer.score, "query"):
            layer.score.query.weight.data *= 4
    return Predictor(model, CovariateEncoding.fit(panel, calendar=False), "cpu")


def gappy():
    """Two whole series with gaps, and one of seven rows."""
    frame = long(rows=(80, 7, 60))
    frame.loc[[60, 61, 62, 63, 70, 140], "target"] = np.nan
    return read_panel(frame)


def inputs_of_layers(found, panel):
    """What each attention layer is called with, for all series at once."""
    seen = []
    handles = [
        layer.register_forward_pre_hook(lambda _, args: seen.append(args))
        for layer in attention_layers(found.model)
    ]
    found.forecast(found.windows(panel, np.arange(len(panel)), panel.lengths))
    for handle in handles:
        handle.remove()
    return seen


@torch.inference_mode()
def naive(layer, x, key_mask, sizes, offset):
    """Weight and weighted distance of each level, by loops over softmax weights in float64."""
    score = layer.score
    q, k = score.queries(x).double(), score.keys(x).double()
    if layer.rotary:
        q, k = (rotate(part, sections=score.sections) for part in (q, k))
    logits = mlr_scores(
        q,
        k,
        ranks=score.ranks,
        block_sizes=sizes,
        offset=offset,
        level_scale=score.level_scale,
    )
    batch, heads, length, _ = logits.shape
    weight, distance = np.zeros(len(sizes)), np.zeros(len(sizes))
    for b in range(batch):
        real = [j for j in range(length) if key_mask is None or key_mask[b, j]]
        for h in range(heads):
            for i in real:
                powers = {j: math.exp(float(logits[b, h, i, j])) for j in real}
                for j, power in powers.items():
                    level = max(
                        lvl
                        for lvl, size in enumerate(sizes)
                        if size is None or (i + offset) // size == (j + offset) // size
                    )
                    weight[level] += power / sum(powers.values())
                    distance[level] += abs(i - j) * PATCH * power / sum(powers.values())
    return weight / weight.sum(), distance / weight


@pytest.mark.parametrize(
    ("sizes", "offset"), [((None, 6, 3), 0), ((None, 5, 2), 8), ((None, 8, 4), 4)]
)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_shares_are_those_of_a_loop_over_the_weights(sizes, offset, positions):
    panel = gappy()
    found = predictor(panel, block_sizes=sizes, positions=positions)
    table = attention_by_level(found, panel)
    assert list(table.columns) == COLUMNS
    assert list(table["layer"]) == [1, 1, 1, 2, 2, 2]
    assert list(table["level"]) == [1, 2, 3] * 2
    assert list(table["block"]) == [CONTEXT, sizes[1] * PATCH, sizes[2] * PATCH] * 2
    calls = inputs_of_layers(found, panel)
    for number, (layer, (x, mask)) in enumerate(
        zip(attention_layers(found.model), calls, strict=True), start=1
    ):
        assert mask is not None
        assert not mask.all()
        weight, distance = naive(layer, x, mask, sizes, offset)
        rows = table[table["layer"] == number]
        np.testing.assert_allclose(rows["share"], weight, rtol=1e-5)
        np.testing.assert_allclose(rows["distance"], distance, rtol=1e-5)
        assert rows["share"].sum() == pytest.approx(1)
        assert np.abs(rows["share"] - rows["even_share"]).max() > 0.01


def test_even_weights_have_the_shares_of_pairs():
    panel = read_panel(wide(40))
    found = predictor(
        panel, context_length=4, patch_length=1, patch_stride=1, ranks=(3, 1), block_sizes=(None, 2)
    )
    for layer in attention_layers(found.model):
        layer.score.query.weight.data.zero_()
        layer.score.query.bias.data.zero_()
    table = attention_by_level(found, panel)
    np.testing.assert_allclose(table["share"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(table["even_share"], 0.5, rtol=1e-12)
    # Apart are 2, 3, 1 and 2 steps; in a block 0, 1, 1 and 0.
    np.testing.assert_allclose(table["distance"], [2, 0.5] * 2, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(attentions))
@pytest.mark.parametrize("masked", [False, True])
def test_weights_are_those_that_the_layer_uses(name, masked):
    options = {"num_kv_heads": 1}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer = StructuredAttention(8, 2, attention=name, rotary=True, **options).eval()
        x = torch.randn(3, 10, 8)
    mask = torch.arange(10) >= torch.tensor([[0], [3], [6]]) if masked else None
    weights = attention_weights(layer, x, mask)
    # A padded step may have no key in its window.
    real = torch.ones(3, 10, dtype=torch.bool) if mask is None else mask
    sums = weights.sum(-1)[real[:, None].expand(-1, 2, -1)]
    torch.testing.assert_close(sums, torch.ones(2 * int(real.sum())))
    values = layer.value(layer.score.prepare(x)).unflatten(-1, (1, -1)).transpose(1, 2)
    mixed = layer.output((weights @ values).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(mixed[real], layer(x, mask)[real])


@pytest.mark.parametrize("length", [7, 12])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"attention": "mlr", "ranks": (2, 1, 1)},
        {"attention": "mlr", "ranks": (3, 1), "block_sizes": (None, 5)},
        {"attention": "mlr", "ranks": (3, 1), "block_sizes": (None, 5), "newest_whole": False},
        {"attention": "mlr_window", "ranks": (2, 1, 1), "window": 2},
        {"attention": "mlr_window", "ranks": (2, 2)},
    ],
    ids=str,
)
@pytest.mark.usefixtures("seeded")
def test_levels_are_those_that_the_score_counts(options, causal, length):
    layer = StructuredAttention(8, 2, causal=causal, **options)
    finest = finest_levels(layer, length)
    seen = torch.zeros(length, length, dtype=torch.int64)
    unit = torch.eye(length).expand(1, 2, -1, -1)
    first = 0
    layer.score.unshared = "zero"
    for number, rank in enumerate(layer.score.ranks, start=1):
        # Only the columns of one level hold anything: its pairs have more weight.
        q = torch.zeros(1, 2, length, 4)
        q[..., first : first + rank] = 3.0
        first += rank
        weights = layer.score.attend(q, q, unit, causal=causal, key_mask=None, dropout_p=0.0)[0, 0]
        seen[weights > weights.diagonal()[:, None] - 1e-6] = number
    if causal:
        finest, seen = finest.tril(), seen.tril()
    assert torch.equal(finest, seen)


def test_scores_without_levels_have_one_row():
    panel = read_panel(wide())
    found = predictor(
        panel, attention=("standard", "mlr"), num_layers=3, ranks=(2, 2), block_sizes=(None, 6)
    )
    table = attention_by_level(found, panel)
    assert list(table["layer"]) == [1, 2, 2, 3]
    assert list(table["level"]) == [0, 1, 2, 0]
    assert list(table["block"]) == [24, 24, 12, 24]
    for _, rows in table.groupby("layer"):
        np.testing.assert_allclose(rows[["share", "even_share"]].sum(), 1, rtol=1e-9)
    assert table["distance"].between(0, CONTEXT).all()


def test_the_coarsest_level_of_a_window_is_the_window():
    panel = read_panel(wide())
    found = predictor(panel, attention="mlr_window", attention_options={"window": 2}, num_layers=1)
    table = attention_by_level(found, panel)
    assert list(table["block"]) == [10, 12, 6]
    assert table["share"].sum() == pytest.approx(1)
    assert table["distance"][0] <= 2 * PATCH


def test_overlapping_patches_are_counted_in_steps():
    panel = read_panel(wide())
    found = predictor(panel, patch_length=4, patch_stride=2, block_sizes=(None, 6, 3))
    assert list(attention_by_level(found, panel)["block"][:3]) == [24, 14, 8]


def test_batches_and_channels_make_no_difference(monkeypatch):
    panel = read_panel(wide(columns=("a", "b", "c")))
    found = predictor(panel)
    table = attention_by_level(found, panel)
    monkeypatch.setattr(_attention, "MOST_WEIGHTS", 1)
    pd.testing.assert_frame_equal(attention_by_level(found, panel), table, rtol=1e-6)


def test_nothing_is_left_on_the_network():
    panel = gappy()
    found = predictor(panel)
    windows = found.windows(panel, np.arange(len(panel)), panel.lengths)
    before = found.forecast(windows).point
    attention_by_level(found, panel)
    assert not any(module._forward_pre_hooks for module in found.model.modules())
    np.testing.assert_array_equal(found.forecast(windows).point, before)


class Plain(nn.Module):
    """A backbone without attention."""

    def forward(self, tokens, key_mask):
        return tokens


class Crossed(nn.Module):
    """A backbone whose attention layer has a context."""

    def __init__(self):
        super().__init__()
        self.layer = StructuredAttention(8, 2, attention="standard")

    def forward(self, tokens, key_mask):
        return self.layer(tokens, context=tokens)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [(Plain(), "the network has none"), (Crossed(), "gives a layer a `context`")],
)
@pytest.mark.usefixtures("seeded")
def test_a_backbone_without_such_layers_is_refused(backbone, message):
    panel = read_panel(wide())
    with pytest.raises(ValueError, match=message):
        attention_by_level(predictor(panel, backbone, ranks=None, block_sizes=None), panel)
