"""Pretraining: repeatable, resumed to the same weights, shared by devices, and it learns."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from mlrforecast._core.errors import ModelFileError
from mlrforecast.pretraining import (
    PretrainConfig,
    PretrainOptions,
    Windows,
    kernel_synth,
    pretrain,
    run,
    write_arrow,
)

CONFIG = PretrainConfig(
    context_length=32,
    prediction_length=8,
    width=16,
    num_heads=2,
    head_width=8,
    hidden_width=32,
    num_layers=1,
    num_decoder_layers=1,
    num_tokens=64,
)
OPTIONS = {
    "max_steps": 20,
    "batch_size": 4,
    "min_past": 20,
    "drop_rate": 0.2,
    "accelerator": "cpu",
    "progress": False,
}


@pytest.fixture(scope="module")
def series():
    return list(kernel_synth(5, length=80))


@pytest.fixture(scope="module")
def whole(series):
    return pretrain(CONFIG, [series], PretrainOptions(**OPTIONS))


def same(one, other):
    first, second = one.model.network.state_dict(), other.model.network.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_run_gives_the_same_weights_and_another_seed_others(series, whole):
    assert same(whole, pretrain(CONFIG, [series], PretrainOptions(**OPTIONS)))
    other = pretrain(CONFIG, [series], PretrainOptions(**OPTIONS, seed=1))
    assert not same(whole, other)
    assert whole.losses.shape == (20,)
    assert (whole.losses > 0).all()


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("at", [1, 7, 20])
def test_an_interrupted_run_ends_with_the_same_weights(series, whole, tmp_path, monkeypatch, at):
    write = run.Checkpoint.write
    written = []

    def killing(self, progress):
        write(self, progress)
        written.append(progress.numbers["num_steps"])
        if len(written) == at:
            raise _KilledError

    monkeypatch.setattr(run.Checkpoint, "write", killing)
    options = PretrainOptions(**OPTIONS)
    with pytest.raises(_KilledError):
        pretrain(CONFIG, [series], options, checkpoint_dir=tmp_path)
    monkeypatch.setattr(run.Checkpoint, "write", write)
    resumed = pretrain(CONFIG, [series], options, checkpoint_dir=tmp_path)
    assert same(whole, resumed)
    np.testing.assert_array_equal(whole.losses, resumed.losses)
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    done = pretrain(CONFIG, [series], options, checkpoint_dir=tmp_path)
    assert same(whole, done)
    assert file.stat().st_mtime_ns == before
    other = pretrain(CONFIG, [series[:3]], options, checkpoint_dir=tmp_path)
    assert not same(whole, other)
    assert len(list(tmp_path.iterdir())) == 2
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match="cannot be used"):
        pretrain(CONFIG, [series], options, checkpoint_dir=tmp_path)


@pytest.mark.parametrize("head", ["tokens", "quantiles"])
@pytest.mark.parametrize("attention", ["mlr", "standard"])
def test_it_learns_to_go_on_with_a_cycle(head, attention):
    config = PretrainConfig(
        **CONFIG.to_dict() | {"head": head, "attention": attention, "dropout": 0.0, "width": 32}
    )
    cycle = [np.tile([0.0, 1.0, 3.0, 1.0], 50) + 1]
    options = PretrainOptions(
        **OPTIONS | {"max_steps": 150, "drop_rate": 0.0, "learning_rate": 5e-2}
    )
    trained = pretrain(config, [cycle], options)
    assert trained.losses[-10:].mean() < 0.5 * trained.losses[:10].mean()
    if head == "quantiles":
        _, median = trained.model.predict_quantiles([cycle[0][:41]])
        np.testing.assert_allclose(median[0], cycle[0][41:49], atol=0.3)


@pytest.mark.parametrize("attention", ["mlr", "standard"])
def test_a_short_training_reads_the_past(attention):
    """Decoders learnt how series go on from what was forced on them, and ignored the encoder."""
    config = PretrainConfig(**CONFIG.to_dict() | {"attention": attention, "width": 32})
    levels = [np.full(80, 1.0), np.full(80, -1.0)]
    options = PretrainOptions(
        **OPTIONS | {"max_steps": 100, "batch_size": 16, "drop_rate": 0.0, "learning_rate": 5e-3}
    )
    model = pretrain(config, [levels], options).model
    _, median = model.predict_quantiles([level[:32] for level in levels])
    np.testing.assert_allclose(median[:, 0], [1, -1], atol=0.5)


def test_sources_are_files_too_and_weights_choose_between_them(series, tmp_path):
    write_arrow(tmp_path / "a.arrow", series)
    lengths = {"context_length": 8, "prediction_length": 4, "min_past": 4}
    windows = Windows([tmp_path / "a.arrow", [np.full(50, 1e6)]], [0.9, 0.1], **lengths)
    _, future = windows.draw(2000, seed=0, step=0)
    share = float((future[:, 0] == 1e6).float().mean())
    assert 0.07 < share < 0.13
    own = Windows([series, [np.full(50, 1e6)]], [0.9, 0.1], **lengths)
    assert own.digest() == windows.digest()
    assert torch.equal(own.draw(8, seed=0, step=3)[1], windows.draw(8, seed=0, step=3)[1])
    shares = [windows.draw(8, seed=0, step=3, share=slice(r, None, 2))[1] for r in range(2)]
    assert torch.equal(torch.stack(shares, 1).flatten(0, 1), windows.draw(8, seed=0, step=3)[1])


def test_windows_are_padded_on_the_left_and_steps_are_dropped():
    ramp = [[np.arange(30.0)]]
    windows = Windows(ramp, context_length=20, prediction_length=5, min_past=4)
    context, future = windows.draw(300, seed=0, step=0)
    first = future[:, 0].long()
    assert set(first.tolist()) == set(range(4, 26))
    lengths = (~context.isnan()).sum(1)
    assert torch.equal(lengths, first.clamp(max=20))
    assert (context[:, -1] == first - 1).all()
    dropped = Windows(ramp, context_length=20, prediction_length=5, min_past=20, drop_rate=0.5)
    share = dropped.draw(300, seed=0, step=0)[0].isnan().float().mean()
    assert 0.2 < share < 0.3


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ([[np.ones(9)]], {}, r"`sources\[0\]` must hold a series of at least 28 .* at most 9"),
        ([], {}, "`sources` must hold at least one source"),
        ([[np.ones((40, 2))]], {}, r"`sources\[0\]\[0\]` must be a series of shape \(T,\)"),
        (np.ones((2, 40)), {}, r"`sources\[0\]\[0\]` must be a series of shape \(T,\)"),
        ([[np.full(40, 1e39)]], {}, r"`sources\[0\]\[0\]` must be finite .* float32, got 1e\+39"),
        ([[np.ones(40)]], {"weights": ["a"]}, "`weights` must be a positive number for each"),
        ([[np.ones(40)]], {"weights": [1, 2]}, "`weights` must be a positive number for each"),
        ([[np.ones(40)]], {"weights": [0]}, "`weights` must be a positive number for each"),
    ],
)
def test_bad_sources_are_refused(sources, options, message):
    with pytest.raises(ValueError, match=message):
        pretrain(CONFIG, sources, PretrainOptions(**OPTIONS), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "`max_steps` must be at least 1, got 0"),
        ({"learning_rate": -1.0}, r"`learning_rate` must be at least 0, got -1\.0"),
        ({"gradient_clip": -1}, "`gradient_clip` must be above 0, got -1"),
        ({"drop_rate": 1}, r"`drop_rate` must lie in \[0, 1\), got 1"),
        ({"seed": 2**32}, r"`seed` must be below 2\*\*32"),
        ({"batch_size": 5, "devices": 2}, "`batch_size` must be a multiple of `devices`=2, got 5"),
        ({"schedule": "steps"}, "`schedule` must be one of linear, cosine, constant; got 'steps'"),
        ({"precision": "8"}, "`precision` must be one of"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PretrainOptions(**options)


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="`compile` must be True or False, got 'no'"):
        PretrainOptions(compile="no")
    with pytest.raises(TypeError, match="`learning_rate` must be a number, got 'fast'"):
        PretrainOptions(learning_rate="fast")
    with pytest.raises(TypeError, match="`config` must be a PretrainConfig, got a dict"):
        pretrain({}, [[np.ones(40)]])
    with pytest.raises(TypeError, match=r"`sources` must be a sequence, got 'k\.arrow'"):
        pretrain(CONFIG, "k.arrow")


def test_divergence_is_told(series):
    options = PretrainOptions(**OPTIONS | {"learning_rate": 1e30, "gradient_clip": None})
    with pytest.raises(FloatingPointError, match=r"Lower `learning_rate` \(it is 1e\+30\)"):
        pretrain(CONFIG, [series], options)


def test_a_run_that_diverges_stops_and_keeps_nothing_of_it(series, tmp_path, monkeypatch):
    """It went on to its last step, and was kept as a finished run that could not be repaired."""
    drawn = []
    draw = Windows.draw
    monkeypatch.setattr(Windows, "draw", lambda *a, **k: drawn.append(1) or draw(*a, **k))
    options = {"learning_rate": 1e30, "gradient_clip": None, "max_steps": 400}
    with pytest.raises(FloatingPointError, match=r"the loss of step \d+ is nan"):
        pretrain(CONFIG, [series], PretrainOptions(**OPTIONS | options), checkpoint_dir=tmp_path)
    assert len(drawn) < 25
    assert list(tmp_path.iterdir()) == []


def test_short_numbers_train_too(series, whole):
    short = pretrain(CONFIG, [series], PretrainOptions(**OPTIONS, precision="bf16-mixed"))
    assert not same(whole, short)
    np.testing.assert_allclose(short.losses, whole.losses, rtol=0.05)
    assert all(p.dtype == torch.float32 for p in short.model.network.parameters())


@pytest.mark.compile
@pytest.mark.parametrize("head", ["tokens", "quantiles"])
@pytest.mark.parametrize("attention", ["mlr", "standard"])
def test_all_blocks_of_a_stack_are_one_graph(monkeypatch, series, head, attention):
    """A compiler for machine code takes minutes, so the graphs alone are made and run."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def compiled(call, **options):
        return torch_compile(call, fullgraph=True, backend=backend, **options)

    torch_compile = torch.compile
    monkeypatch.setattr(torch, "compile", compiled)
    torch.compiler.reset()
    layers = {"num_layers": 3, "num_decoder_layers": 3, "dropout": 0.0}
    config = PretrainConfig(**CONFIG.to_dict() | layers | {"head": head, "attention": attention})
    settings = OPTIONS | {"max_steps": 3, "precision": "bf16-mixed"}
    plain, made = (
        pretrain(config, [series], PretrainOptions(**settings, compile=flag))
        for flag in (False, True)
    )
    np.testing.assert_allclose(made.losses, plain.losses, rtol=1e-4)
    # What is forecast has other shapes, and is not worth a graph of each.
    made.model.predict_quantiles([series[0][:30]])
    assert len(graphs) == 2


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_gradients_are_clipped(series, precision):
    """Lightning refuses to in mixed precision, where an optimiser step is one kernel."""
    options = OPTIONS | {"max_steps": 2, "precision": precision}

    def weights(**other):
        trained = pretrain(CONFIG, [series], PretrainOptions(**options | other))
        return torch.cat([p.detach().flatten() for p in trained.model.network.parameters()])

    start = weights(learning_rate=0.0)
    # AdamW sees the scale of gradients only beside its epsilon.
    clipped, whole = (weights(gradient_clip=norm) - start for norm in (1e-12, None))
    assert 0 < clipped.norm() < 1e-2 * whole.norm()


@pytest.mark.slow
def test_two_processes_share_the_windows_of_a_step(series, capfd):
    config = PretrainConfig(**CONFIG.to_dict() | {"dropout": 0.0})
    one, two = (
        pretrain(config, [series], PretrainOptions(**OPTIONS | {"max_steps": 4, "devices": n}))
        for n in (1, 2)
    )
    sums = [sum(p.double().sum().item() for p in r.model.network.parameters()) for r in (one, two)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)
    assert two.losses[-1] > 0
    assert capfd.readouterr().err == ""


def test_neither_chronos_nor_gluonts_is_needed():
    code = """
import sys
sys.modules.update(dict.fromkeys(["chronos", "gluonts", "pyarrow", "ray"]))
from mlrforecast.pretraining import *
config = PretrainConfig(context_length=16, prediction_length=4, width=8, num_layers=1)
options = PretrainOptions(max_steps=1, batch_size=2, min_past=8, accelerator="cpu", progress=False)
print(pretrain(config, [kernel_synth(2, length=32)], options).losses.shape)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("(1,)\n", "")
