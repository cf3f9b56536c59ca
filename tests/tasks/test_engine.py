"""Training of runs: the same steps however it is interrupted, what is kept, and what is refused."""

import dataclasses
import json
import math
import signal
import time
import weakref

import pandas as pd
import pytest
import torch
from torch._dynamo.utils import counters

from mlrforecast.tasks import Execution, _loop, read_results
from mlrforecast.tasks._records import Records
from mlrforecast.tasks._seeds import draw_seed
from mlrforecast.tasks._training import Training, _products
from mlrforecast.tasks.in_context_regression import (
    LinearRegression,
    RegressionRun,
    evaluation_episodes,
    load_regressor,
    train,
    zero,
)
from mlrforecast.tasks.in_context_regression import evaluate as evaluate_errors
from mlrforecast.tasks.in_context_regression.recipe import RegressionTrainee
from mlrforecast.training import Checkpoint, Progress, build_optimizer
from tests.tasks.conftest import SMALL


class Graph:
    """Stands in for a CUDA graph where there is none, and notes what is asked of it."""

    def __init__(self, made):
        self.made = made

    def register_generator_state(self, generator):
        assert isinstance(generator, torch.Generator)

    def capture_begin(self, **options):
        assert options["capture_error_mode"] == "thread_local"
        self.made.append("begin")

    def capture_end(self):
        self.made.append("end")

    def replay(self):
        self.made.append("replay")


CURVE = ["step", "tokens", "paper_flops", "training_flops", "train_loss", "score", "mean_error"]


def same_weights(one, other):
    states = one.state_dict(), other.state_dict()
    return all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_curve_counts_what_was_trained(run, cpu):
    [result] = train(run, execution=cpu)
    curve = result.curve
    assert curve["step"].tolist() == [6, 12, 18, 24]
    # Ten steps of 8 points, then 14 of 10 and 12: two tokens a point.
    stages = [run.curriculum.stage(step) for step in range(24)]
    tokens = [2 * run.batch_size * stage.points for stage in stages]
    assert len(set(stages)) > 1
    assert curve["tokens"].tolist() == [sum(tokens[:step]) for step in (6, 12, 18, 24)]
    assert result.row["steps"] == 24
    assert result.row["tokens"] == sum(tokens)
    assert result.score == curve["score"].iloc[-1]


@pytest.mark.usefixtures("seeded")
def test_steps_are_those_of_a_plain_loop(cpu):
    """The same weights, batches, rates and updates, written out."""
    run = RegressionRun(**SMALL | {"curriculum_interval": 0, "gradient_clip": 0.5, "max_steps": 6})
    [result] = train(run, execution=cpu)
    trainee = RegressionTrainee(run)
    optimizer = build_optimizer(
        trainee.model, learning_rate=run.learning_rate, parametrization="mup"
    )
    rates = [group["lr"] for group in optimizer.param_groups]
    losses = []
    for step in range(6):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min((step + 1) / run.warmup_steps, 1)
        generator = torch.Generator().manual_seed(draw_seed(run.seed, step, "training"))
        xs, ys, targets = LinearRegression().draw(8, 12, 2, generator=generator)
        loss = (trainee.model(xs, ys) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainee.model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    assert result.curve["train_loss"].tolist() == pytest.approx([sum(losses) / 6], rel=1e-6)
    assert same_weights(result.model, trainee.model)


def test_the_score_is_the_error_at_the_last_point(run, cpu):
    [result] = train(run, execution=cpu)
    batches = evaluation_episodes(LinearRegression(), 12, 2, num_episodes=16, batch_size=256)
    table = evaluate_errors(lambda episodes: result.model(episodes.xs, episodes.ys), batches)
    assert result.score == pytest.approx(table["error"].iloc[-1], rel=1e-6)
    assert result.scores["mean_error"] == pytest.approx(table["error"].mean(), rel=1e-6)


@pytest.mark.usefixtures("seeded")
def test_a_new_model_predicts_zero(run):
    trainee = RegressionTrainee(run)
    batches = evaluation_episodes(LinearRegression(), 12, 2, num_episodes=16, batch_size=256)
    assert trainee.evaluate()["score"] == pytest.approx(
        evaluate_errors(zero, batches)["error"].iloc[-1], rel=1e-6
    )


@pytest.mark.usefixtures("seeded")
def test_the_loss_is_that_of_the_targets(run):
    """Of nearest neighbours they are not the values that are read."""
    run = dataclasses.replace(run, function="nearest_neighbour", curriculum_interval=0)
    trainee = RegressionTrainee(run)
    batch = trainee.draw(trainee.stage(0), 8, torch.Generator().manual_seed(0))
    # A new model predicts 0.
    assert trainee.loss(*batch).item() == pytest.approx(batch[2].square().mean().item())
    assert not torch.equal(batch[1], batch[2])


@pytest.mark.parametrize("ends", ["interrupt", "time"])
@pytest.mark.parametrize("at", [1, 5, 6, 11, 17])
def test_a_run_goes_on_to_the_same_weights(run, cpu, tmp_path, monkeypatch, ends, at):
    runs = [run, dataclasses.replace(run, seed=1)]
    whole = train(runs, execution=cpu)
    monkeypatch.setattr(_loop, "_CHUNK", 1)
    advance, made = Training.advance, []

    def until_then(self, until):
        made.append(until)
        if len(made) == at and ends == "interrupt":
            signal.raise_signal(signal.SIGINT)
        # The step that is under way is made all the same.
        advance(self, until)

    monkeypatch.setattr(Training, "advance", until_then)
    if ends == "interrupt":
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train(runs, out=tmp_path, execution=cpu)
        assert signal.getsignal(signal.SIGINT) is handler
    else:
        monkeypatch.setattr(_loop._Loop, "_is_over", lambda *_: len(made) >= at)
        assert train(runs, out=tmp_path, execution=cpu) == []
    monkeypatch.undo()
    resumed = []
    monkeypatch.setattr(
        Training, "resume", lambda self, progress, own=Training.resume: (
            resumed.append(progress.numbers["step"]), own(self, progress)
        )[1],
    )  # fmt: skip
    again = train(runs, out=tmp_path, resume=True, execution=cpu)
    assert resumed == [at]
    for one, other in zip(whole, again, strict=True):
        assert same_weights(one.model, other.model)
        pd.testing.assert_frame_equal(one.curve[CURVE], other.curve[CURVE])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.csv", "models", "runs.csv"]


def test_a_run_that_ends_as_it_is_stopped_has_ended(run, cpu, tmp_path, monkeypatch):
    """A checkpoint after its last step would be scored again, with the loss of no step."""
    [whole] = train(run, execution=cpu)
    advance = Training.advance

    def until_the_end(self, until):
        advance(self, until)
        if self.ended:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Training, "advance", until_the_end)
    with pytest.raises(KeyboardInterrupt):
        train(run, out=tmp_path, execution=cpu)
    monkeypatch.undo()
    assert not (tmp_path / "checkpoints").exists()
    [again] = train(run, out=tmp_path, resume=True, execution=cpu)
    pd.testing.assert_frame_equal(again.curve[CURVE], whole.curve[CURVE])


def test_an_ended_run_keeps_no_memory_while_the_next_begins(run, cpu, monkeypatch):
    """On a GPU that of its graphs would be as much as the next one takes."""
    begun, alive = [], []

    def begin(self, one, own=_loop._Loop._begin):
        alive.append([other() is not None for other in begun])
        entry = own(self, one)
        begun.append(weakref.ref(entry.training))
        return entry

    monkeypatch.setattr(_loop._Loop, "_begin", begin)
    train([dataclasses.replace(run, seed=seed) for seed in range(3)], execution=cpu)
    assert alive == [[], [False], [False, False]]


@pytest.mark.parametrize(("free", "emptied"), [(99, 1), (100, 0)])
@pytest.mark.usefixtures("seeded")
def test_a_graph_is_given_room(run, cpu, monkeypatch, free, emptied):
    """Nothing is given back while it is recorded, and eager steps keep as much as it may take."""
    training = Training(RegressionTrainee(run), cpu.fabric())
    made = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 100)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: made.append("room"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(made))
    training._steps_of_stage = 3
    training._replay(training.trainee.stage(0))
    assert made == ["room"] * emptied + ["begin", "end", "replay"]


def test_runs_that_are_done_are_skipped_and_read_back(run, cpu, tmp_path, monkeypatch):
    other = dataclasses.replace(run, seed=1)
    [first] = train(run, out=tmp_path, execution=cpu, command="one")
    began = []
    monkeypatch.setattr(
        _loop._Loop, "_begin", lambda self, one, own=_loop._Loop._begin: (
            began.append(one), own(self, one)
        )[1],
    )  # fmt: skip
    results = train([other, run], out=tmp_path, resume=True, execution=cpu, command="two")
    assert began == [other]
    assert [result.run for result in results] == [other, run]
    assert same_weights(results[1].model, first.model)
    assert results[1].score == first.score
    pd.testing.assert_frame_equal(results[1].curve[CURVE], first.curve[CURVE])
    runs, curves = read_results(tmp_path)
    assert runs["command"].tolist() == ["one", "two"]
    assert runs["seed"].tolist() == [0, 1]
    assert curves.groupby("hash").size().tolist() == [4, 4]
    model, found = load_regressor(tmp_path / "models" / f"{run.name}-{run.hash}")
    assert found == run
    assert same_weights(model, first.model)


def test_results_are_not_trained_twice_unasked(run, cpu, tmp_path):
    train(run, out=tmp_path, execution=cpu)
    with pytest.raises(ValueError, match=r"`out` holds results of 1 of the runs \('mlr-8-0'"):
        train(run, out=tmp_path, execution=cpu)


def test_without_resume_an_unfinished_run_starts_anew(run, cpu, tmp_path, monkeypatch):
    monkeypatch.setattr(_loop._Loop, "_is_over", lambda *_: True)
    assert train(run, out=tmp_path, execution=cpu) == []
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()]
    monkeypatch.undo()
    monkeypatch.setattr(Training, "resume", lambda *_: pytest.fail("it went on"))
    assert len(train(run, out=tmp_path, execution=cpu)) == 1


def test_the_same_run_twice_is_refused(run, cpu):
    with pytest.raises(ValueError, match="`runs` must differ in their settings"):
        train([run, dataclasses.replace(run, name="other")], execution=cpu)


def test_a_run_that_diverges_is_noted_and_the_others_go_on(run, cpu, tmp_path):
    wild = dataclasses.replace(
        run, learning_rate=1e30, warmup_steps=0, parametrization="standard", name="wild"
    )
    results = train([wild, run], out=tmp_path, execution=cpu)
    assert [result.diverged for result in results] == [True, False]
    assert not math.isfinite(results[0].score) or not math.isfinite(results[0].row["train_loss"])
    runs, _ = read_results(tmp_path)
    assert runs["status"].tolist() == ["diverged", "finished"]
    assert [path.name for path in (tmp_path / "models").iterdir()] == [f"{run.name}-{run.hash}"]
    json.dumps(runs.to_dict("records"), default=str)


@pytest.mark.usefixtures("seeded")
def test_parts_of_a_batch_add_up(run, cpu):
    """The mean gradient of two halves is that of the whole, on batches drawn in two parts."""
    parts = RegressionTrainee(dataclasses.replace(run, micro_batches=2, curriculum_interval=0))
    fabric = cpu.fabric()
    training = Training(parts, fabric)
    training.advance(1)
    gradients = [parameter.grad.clone() for parameter in parts.model.parameters()]
    trainee = RegressionTrainee(parts.run)
    generator = torch.Generator().manual_seed(draw_seed(0, 0, "training"))
    drawn = [trainee.draw(trainee.stage(0), 4, generator) for _ in range(2)]
    loss = trainee.loss(*(torch.cat(both) for both in zip(*drawn, strict=True)))
    loss.backward()
    for gradient, parameter in zip(gradients, trainee.model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_nothing_of_the_caller_changes(run, cpu, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = torch.get_rng_state()
    train(run, execution=cpu)
    assert torch.equal(state, torch.get_rng_state())
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accelerator": "mps"}, "`accelerator` must be one of auto, cpu, cuda, gpu, got 'mps'"),
        ({"devices": 0}, "`devices` must be an integer of at least 1, got 0"),
        ({"together": True}, "`together` must be an integer of at least 1, got True"),
        ({"devices": 2, "together": 2}, "`together` must be 1 where several `devices`"),
        ({"max_time": 0}, "`max_time` must be above 0 seconds, got 0"),
        ({"checkpoint_every": -1}, "`checkpoint_every` must be above 0 seconds, got -1"),
    ],
)
def test_what_is_refused_of_computing(settings, message):
    with pytest.raises(ValueError, match=message):
        Execution(**settings)


def test_runs_together_without_a_gpu_are_told_of(run):
    with pytest.warns(UserWarning, match="`together`=2 is for a GPU: on a CPU runs are trained"):
        [result] = train(run, execution=Execution(accelerator="cpu", together=2, progress=False))
    assert result.row["together"] == 1


def test_a_batch_that_cannot_be_shared_out_is_refused(run):
    odd = dataclasses.replace(run, batch_size=6, micro_batches=2)
    with pytest.raises(
        ValueError, match="must divide the `batch_size` of 'mlr-8-0', got 2 times 2"
    ):
        train(odd, execution=Execution(accelerator="cpu", devices=2, progress=False))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_written(run, tmp_path):
    with pytest.raises(ValueError, match="`accelerator`='gpu' with `devices`=1 needs as many GPUs"):
        train(run, out=tmp_path / "out", execution=Execution(accelerator="gpu"))
    assert list(tmp_path.iterdir()) == []


def test_time_is_that_of_training_alone(run, cpu, monkeypatch, tmp_path):
    evaluate, write, written = RegressionTrainee.evaluate, Checkpoint.write, []

    def slowly(self):
        time.sleep(0.05)
        return evaluate(self)

    def slowly_written(self, progress):
        written.append(progress)
        time.sleep(0.05)
        write(self, progress)

    monkeypatch.setattr(RegressionTrainee, "evaluate", slowly)
    monkeypatch.setattr(Checkpoint, "write", slowly_written)
    begin = time.monotonic()
    often = dataclasses.replace(cpu, checkpoint_every=1e-9)
    [result] = train(run, out=tmp_path, execution=often)
    # Evaluations and checkpoints, of the time between its first step and its last.
    assert len(written) == 3
    assert result.curve["seconds"].iloc[-1] < time.monotonic() - begin - (4 + 3) * 0.05
    assert result.curve["seconds"].is_monotonic_increasing


def test_the_end_of_one_run_leaves_the_checkpoints_of_others_a_folder(run, cpu, tmp_path):
    records = Records(tmp_path)
    first, second = (records.checkpoint(dataclasses.replace(run, seed=seed)) for seed in (0, 1))
    first.remove()
    second.write(Progress({}, {"step": 1, "finished": False}))
    assert second.read().numbers["step"] == 1


def test_dropout_of_attention_is_refused():
    with pytest.raises(ValueError, match="must not hold 'attention_dropout'"):
        RegressionRun(**SMALL, attention_options={"attention_dropout": 0.1})


def test_a_second_interrupt_stops_at_once():
    with _loop._deferred_interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_graphs_need_a_gpu(run):
    with pytest.raises(ValueError, match="`graphs` needs a single GPU"):
        train(run, execution=Execution(accelerator="cpu", graphs=True, progress=False))


@pytest.mark.slow
def test_two_processes_share_a_batch(run, tmp_path):
    """Each draws its half; the mean loss of both is what one process has on average.

    The model is too large for the pipe between processes, which nobody reads while they run.
    """
    run = dataclasses.replace(run, width=64)
    two = Execution(accelerator="cpu", devices=2, progress=False)
    [result] = train(run, out=tmp_path, execution=two)
    assert result.row["devices"] == 2
    assert result.row["steps"] == 24
    [alone] = train(run, execution=Execution(accelerator="cpu", progress=False))
    # The first losses are those of predicting 0, of other draws.
    assert result.curve["train_loss"].iloc[0] == pytest.approx(
        alone.curve["train_loss"].iloc[0], rel=0.5
    )
    assert not same_weights(result.model, alone.model)


def calm(run):
    """Under muP, whose epsilon damps nothing, what is rounded otherwise is soon another run."""
    return dataclasses.replace(run, parametrization="standard", learning_rate=1e-3)


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own
def test_a_compiled_run_learns_the_same(run, cpu):
    run = calm(run)
    [plain] = train(run, execution=cpu)
    [compiled] = train(run, execution=dataclasses.replace(cpu, compile=True))
    assert compiled.curve["score"].tolist() == pytest.approx(
        plain.curve["score"].tolist(), rel=1e-3
    )


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own
def test_all_stages_share_what_is_compiled(run, cpu):
    run = dataclasses.replace(run, attention="bilinear_btt", width=24, num_layers=2, max_steps=20)
    assert len({run.curriculum.stage(step).points for step in range(run.max_steps)}) == 2
    torch._dynamo.reset()
    counters.clear()
    train(run, execution=dataclasses.replace(cpu, compile=True))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("attention", ["standard", "bilinear_btt", "bilinear_mlr", "mlr"])
def test_graphs_make_the_steps_that_python_makes(run, attention):
    run = dataclasses.replace(calm(run), attention=attention, width=16, num_heads=2)
    eager, graphs = (
        train(run, execution=Execution(accelerator="cuda", graphs=graphs, progress=False))[0]
        for graphs in (False, True)
    )
    assert graphs.curve["score"].tolist() == pytest.approx(eager.curve["score"].tolist(), rel=1e-4)
    assert graphs.curve["train_loss"].tolist() == pytest.approx(
        eager.curve["train_loss"].tolist(), rel=1e-4
    )


def test_products_are_rounded_for_a_while_only():
    before = torch.get_float32_matmul_precision()
    with _products(rounded=True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    with _products(rounded=False):
        assert torch.get_float32_matmul_precision() == before


def test_a_cpu_rounds_no_products(run, cpu):
    [exact] = train(run, execution=cpu)
    [asked] = train(dataclasses.replace(run, precision="tf32"), execution=cpu)
    assert same_weights(exact.model, asked.model)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_rounded_products_train_as_well(run):
    run = dataclasses.replace(calm(run), width=64)
    exact, rounded = (
        train(dataclasses.replace(run, precision=name), execution=Execution(progress=False))[0]
        for name in ("32-true", "tf32")
    )
    assert not same_weights(exact.model, rounded.model)
    assert rounded.curve["score"].tolist() == pytest.approx(exact.curve["score"].tolist(), rel=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_runs_together_are_the_runs_alone(run):
    runs = [dataclasses.replace(calm(run), seed=seed) for seed in range(4)]
    together = train(runs, execution=Execution(together=4, progress=False))
    for one, result in zip(runs, together, strict=True):
        [alone] = train(one, execution=Execution(progress=False))
        assert result.curve["score"].tolist() == pytest.approx(
            alone.curve["score"].tolist(), rel=1e-4
        )
