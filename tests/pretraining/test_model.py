"""Models of the Chronos family: what they compute is what Chronos and transformers compute."""

import logging
import os

import numpy as np
import pytest
import torch

from mlrforecast._core.atomic import DRAFT
from mlrforecast._core.errors import ModelFileError
from mlrforecast.pretraining import PretrainConfig, PretrainedModel, _files, build_model
from mlrforecast.pretraining._network import MAX_DISTANCE, Attention, Cache, _buckets

SMALL = {
    "context_length": 31,
    "prediction_length": 12,
    "width": 24,
    "num_heads": 2,
    "head_width": 8,
    "hidden_width": 32,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_tokens": 64,
    "patch_length": 8,
}
KINDS = {
    "standard": {"attention": "standard"},
    "mlr": {"attention": "mlr", "ranks": (4, 2, 2)},
    "encoder only": {"attention": "mlr", "decoder_attention": "standard"},
    "published scale": {
        "ranks": (4, 4),
        "block_sizes": (None, 4),
        "decoder_ranks": (5, 3),
        "level_scale": "inverse_rank",
        "divide_by_shared_levels": True,
    },
}


@pytest.fixture
def quiet_transformers():
    """Chronos imports half of transformers, which has something to say about each part."""
    pytest.importorskip("chronos")
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def made(head="tokens", *, noise=0.3, **options):
    """A model whose scores differ enough for its attention to matter."""
    model = build_model(PretrainConfig(head=head, initial_factor=0.05, **SMALL | options))
    for parameter in model.parameters():
        parameter.data += noise * torch.randn(parameter.shape)
    return model.eval()


def contexts():
    noise = torch.rand(3, 31, generator=torch.Generator().manual_seed(1))
    first = torch.arange(3 * 31.0).reshape(3, 31) % 7 + noise
    first[0, :9] = first[1, 20] = torch.nan
    return first


@pytest.fixture
def loaded(tmp_path, quiet_transformers):
    """Save a model, and load it as a pipeline of Chronos."""
    from chronos import BaseChronosPipeline

    import mlrforecast.integrations.chronos  # noqa: F401 - it registers

    def load(model):
        PretrainedModel(model).save(tmp_path / "model")
        return BaseChronosPipeline.from_pretrained(tmp_path / "model")

    return load


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_have_the_loss_and_the_logits_of_chronos(loaded, kind):
    model = made(**KINDS[kind])
    pipeline = loaded(model)
    mlr = kind != "standard"
    assert type(pipeline).__name__ == ("MLR" * mlr) + "ChronosPipeline"
    assert pipeline.inner_model.config._attn_implementation == ("mlr" if mlr else "sdpa")
    context, future = contexts(), torch.rand(3, 12) * 8
    future[2, 3] = torch.nan
    ids, mask, scale = pipeline.tokenizer.context_input_transform(context)
    labels, seen = pipeline.tokenizer.label_input_transform(future, scale)
    own_ids, own_mask, own_scale = model.tokens(context)
    assert torch.equal(own_ids, ids)
    assert torch.equal(own_mask, mask)
    torch.testing.assert_close(own_scale[:, 0], scale)
    shifted = pipeline.inner_model._shift_right(labels)
    logits = pipeline.inner_model(
        input_ids=ids, attention_mask=mask, decoder_input_ids=shifted
    ).logits
    expected = torch.nn.functional.cross_entropy(logits[seen], labels[seen])
    torch.testing.assert_close(model(context, future), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("kind", KINDS)
def test_patches_have_the_quantiles_of_chronos_bolt(loaded, kind):
    model = made("quantiles", **KINDS[kind])
    pipeline = loaded(model)
    expected = pipeline.predict(contexts())
    torch.testing.assert_close(model.quantiles(contexts()), expected, rtol=1e-4, atol=1e-4)
    own, median = PretrainedModel(model).predict_quantiles(list(contexts().numpy()))
    ordered = expected.sort(1).values.swapaxes(1, 2)
    np.testing.assert_allclose(own, ordered, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(median, own[..., 4])


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
@pytest.mark.parametrize("factor", [0.05, 1.0])
def test_first_weights_have_the_spread_of_those_of_chronos(loaded, head, factor):
    config = PretrainConfig(head=head, attention="standard", initial_factor=factor, **SMALL)
    pipeline = loaded(build_model(config))
    assert pipeline.inner_model.config.initializer_factor == factor
    theirs = type(pipeline.inner_model)(pipeline.inner_model.config).state_dict()
    for name, weight in pipeline.inner_model.state_dict().items():
        # Of patches, transformers 5 leaves out what Chronos-Bolt says.
        if "patch_embedding" not in name:
            own, other = (x.square().mean().sqrt().item() for x in (weight, theirs[name]))
            assert own == pytest.approx(other, rel=0.4), name


def test_models_of_before_the_factor_was_a_field_had_that_of_chronos():
    values = PretrainConfig(**SMALL).to_dict()
    assert values.pop("initial_factor") == 1
    assert PretrainConfig.from_dict(values).initial_factor == 0.05


@pytest.mark.usefixtures("seeded")
def test_what_is_far_shares_a_bucket():
    model = made()
    distances = torch.arange(-300, 301)
    near = distances.clamp(-MAX_DISTANCE, MAX_DISTANCE)
    for stack in (model.encoder, model.decoder):
        kept = stack.buckets[near + MAX_DISTANCE]
        assert torch.equal(kept, _buckets(distances, directed=not stack.decodes))


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("kind", ["standard", "mlr"])
def test_steps_of_a_generation_are_those_of_the_whole_sequence(kind):
    model = made(**KINDS[kind])
    ids, mask, _ = model.tokens(contexts())
    source = model.encoder(model.shared(ids), key_mask=mask)
    given = model.shared(torch.randint(2, 64, (3, 12)))
    whole = model.decoder(given, source=source, source_mask=mask)
    cache = Cache()
    steps = [
        model.decoder(given[:, n : n + 1], source=source, source_mask=mask, cache=cache, first=n)
        for n in range(12)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("seeded")
def test_paths_are_values_of_the_bins_of_each_series():
    model = made()
    context = torch.stack([torch.ones(31), torch.full((31,), 100.0)])
    paths = model.sample(context, 5, num_samples=4, generator=torch.Generator().manual_seed(0))
    assert paths.shape == (2, 4, 5)
    bins = paths / torch.tensor([1.0, 100.0])[:, None, None]
    assert torch.isin(bins.round(decimals=3), model.centers.round(decimals=3)).all()
    assert len(paths[0].unique()) > 3


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
@pytest.mark.parametrize("kind", ["standard", "mlr"])
def test_every_weight_learns_and_the_context_is_read(head, kind):
    model = made(head, **KINDS[kind])
    future = torch.rand(3, 12)
    model(contexts(), future).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # One query of a decoder has nothing to choose between.
    alone = {"decoder.blocks.0.attention.q.weight", "decoder.blocks.0.attention.k.weight"}
    assert set(still) <= (alone | {"decoder.positions.weight"} if head == "quantiles" else set())
    other = contexts()
    other[:, -1] *= -5
    assert abs(model(other, future) - model(contexts(), future)) > 1e-3


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
def test_padding_on_the_left_changes_nothing(head):
    model = made(head, **KINDS["mlr"])
    short = contexts()[2:, 7:]
    padded = torch.nn.functional.pad(short, (7, 0), value=torch.nan)
    future = torch.rand(1, 12)
    torch.testing.assert_close(model(short, future), model(padded, future), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("seeded")
def test_one_level_is_standard_attention_and_more_are_not():
    models = [
        made(noise=0, **KINDS["standard"]),
        made(noise=0, attention="mlr", ranks=(8,)),
        made(noise=0, attention="mlr", ranks=(4, 4)),
    ]
    state = {k: v + 0.5 * torch.randn(v.shape) for k, v in models[0].state_dict().items()}
    future = torch.rand(3, 12)
    losses = []
    for model in models:
        model.load_state_dict(state)
        losses.append(model(contexts(), future))
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-6)
    assert abs(losses[2] - losses[0]) > 1e-3
    chosen = [part.levels is None for part in models[2].modules() if isinstance(part, Attention)]
    assert chosen == [False, False, False, True], "cross-attention stays standard"


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
def test_nothing_and_constants_are_forecast_without_a_nan(head):
    given = torch.full((2, 31), torch.nan)
    given[1] = 3.0
    model = PretrainedModel(made(head))
    quantiles, median = model.predict_quantiles(list(given.numpy()), num_samples=3)
    assert np.isfinite(quantiles).all()
    assert np.isfinite(median).all()


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
def test_forecasts_follow_seed_levels_and_horizon(head):
    model = PretrainedModel(made(head))
    rows = [np.arange(40.0), np.arange(9.0)]
    options = {"num_samples": 9, "quantile_levels": (0.25, 0.5, 0.99)}
    found, median = model.predict_quantiles(rows, prediction_length=30, **options)
    assert found.shape == (2, 30, 3)
    np.testing.assert_array_equal(found[..., 1], median)
    assert (np.diff(found, axis=-1) >= 0).all()
    first, _ = model.predict_quantiles(rows, prediction_length=5, **options)
    np.testing.assert_array_equal(found[:, :5], first)
    again, _ = model.predict_quantiles(rows, prediction_length=30, **options)
    np.testing.assert_array_equal(found, again)


@pytest.mark.usefixtures("seeded")
def test_saved_models_come_back_and_foreign_folders_stay(tmp_path):
    model = PretrainedModel(made(**KINDS["mlr"]))
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    back = PretrainedModel.load(tmp_path / "model")
    assert back.config == model.config
    for name, value in model.network.state_dict().items():
        assert torch.equal(back.network.state_dict()[name], value)
    assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "model.safetensors"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds something else"):
        model.save(other)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        PretrainedModel.load(tmp_path / "none")
    with pytest.raises(ModelFileError, match="holds no pretrained model"):
        PretrainedModel.load(other)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelFileError, match="holds no pretrained model"):
        PretrainedModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": (4, 2)}, r"`ranks` must sum to `head_width`=8, got \(4, 2\) \(sum 6\)"),
        ({"decoder_ranks": (9,)}, r"`decoder_ranks` must sum to `head_width`=8"),
        ({"head": "points"}, "`head` must be one of tokens, quantiles; got 'points'"),
        ({"attention": "linear"}, "`attention` must be one of mlr, standard; got 'linear'"),
        ({"limit": float("inf")}, "`limit` must be finite, got inf"),
        ({"dropout": 1.0}, r"`dropout` must lie in \[0, 1\), got 1.0"),
        ({"limit": 0}, "`limit` must be above 0, got 0"),
        ({"width": 0}, "`width` must be at least 1, got 0"),
        ({"quantile_levels": (0.1, 0.9)}, "hold 0.5"),
        ({"block_sizes": (None, 4, 8)}, "block_sizes"),
        ({"level_scale": "loud"}, "`level_scale` must be"),
    ],
)
def test_bad_configurations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PretrainConfig(**SMALL | options)
    with pytest.raises(TypeError, match=r"`width` must be a whole number, got 1\.5"):
        PretrainConfig(width=1.5)
    for name, value, kind in (
        ("dropout", "a", "a number"),
        ("ranks", 5, "a sequence"),
        ("quantile_levels", 0.5, "a sequence"),
        ("divide_by_shared_levels", "no", "True or False"),
    ):
        with pytest.raises(TypeError, match=f"`{name}` must be {kind}, got {value!r}"):
            PretrainConfig(**SMALL | {name: value})


@pytest.mark.usefixtures("seeded")
def test_bad_requests_are_refused():
    model = PretrainedModel(made())
    with pytest.raises(ValueError, match=r"`contexts\[0\]` must be a series of shape \(T,\)"):
        model.predict_quantiles([np.ones((2, 2))])
    with pytest.raises(ValueError, match="`contexts` must hold at least one series"):
        model.predict_quantiles([])
    with pytest.raises(ValueError, match=r"`quantile_levels` must lie in \(0, 1\)"):
        model.predict_quantiles([np.ones(3)], quantile_levels=(0.5, 1.0))
    with pytest.raises(ValueError, match="`num_samples` must be at least 1, got 0"):
        model.predict_quantiles([np.ones(3)], num_samples=0)
    with pytest.raises(ValueError, match=r"`contexts\[0\]` must be finite or NaN"):
        model.predict_quantiles([[1.0, np.inf]])
    with pytest.raises(ValueError, match="`quantile_levels` must lie"):
        model.predict_quantiles([np.ones(3)], quantile_levels=["a"])


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("at", ["model.safetensors", "config.json"])
def test_a_writer_that_was_killed_leaves_no_mixture_and_its_folder_can_be_used(
    tmp_path, monkeypatch, at
):
    """The weights were replaced first: with the earlier configuration, they were another model."""
    earlier, model = PretrainedModel(made()), PretrainedModel(made(ranks=(4, 4)))
    earlier.save(tmp_path / "model")
    write = _files.write_whole

    def killing(path, content):
        if path.name.endswith(at):
            raise _KilledError
        write(path, content)

    monkeypatch.setattr(_files, "write_whole", killing)
    for folder in ("model", "new"):
        with pytest.raises(_KilledError):
            model.save(tmp_path / folder)
    monkeypatch.setattr(_files, "write_whole", write)
    if at == "config.json":
        with pytest.raises(ModelFileError, match=r"config\.json"):
            PretrainedModel.load(tmp_path / "model")
    else:
        assert PretrainedModel.load(tmp_path / "model").config == earlier.config
    (tmp_path / "new" / f"{DRAFT}model.safetensors").write_bytes(b"half")
    for folder in ("model", "new"):
        model.save(tmp_path / folder)
        assert PretrainedModel.load(tmp_path / folder).config == model.config
        assert len(os.listdir(tmp_path / folder)) == 2


class _KilledError(Exception):
    pass
