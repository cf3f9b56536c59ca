"""Training runs: they learn, stop when they should, and leave nothing behind."""

import gc
import logging
import os
import random
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from mlrforecast.data import WindowStore
from mlrforecast.models import EncoderForecaster
from mlrforecast.training import ForecastModule, TrainingOptions, isolated_seed, train
from mlrforecast.training.watch import Watch
from tests.training.runs import model_of, store_of, weights, windows_of

LOGGERS = ("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning")


@pytest.fixture
def odd_levels() -> Iterator[dict[str, int]]:
    """Levels of Lightning's loggers that nothing else would set."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    odd = {name: 11 + number for number, name in enumerate(LOGGERS)}
    for name, level in odd.items():
        logging.getLogger(name).setLevel(level)
    yield odd
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def levels_now() -> dict[str, int]:
    return {name: logging.getLogger(name).level for name in LOGGERS}


def run(model: EncoderForecaster, store: WindowStore | None = None, **options: Any) -> int:
    validation = options.pop("validation", None)
    given = {"max_steps": 20, "batch_size": 32, "learning_rate": 1e-2, "accelerator": "cpu"}
    with isolated_seed(0):
        return train(
            model,
            store_of() if store is None else store,
            TrainingOptions(**{**given, "progress": False, **options}),
            validation=validation,
        )


def loss_on(model: EncoderForecaster, store: WindowStore) -> float:
    """Mean loss over the windows that validation takes, each batch weighed by its size."""
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in store.evenly_spaced(32, 2048):
            total += model.loss(batch).item() * len(batch.past_target)
            count += len(batch.past_target)
    return total / count


def test_training_learns_a_wave() -> None:
    model, test = model_of(frequency_weight=0.0), store_of(seed=1)
    untrained = loss_on(model.eval(), test)
    assert run(model, max_steps=150) == 150
    batch = test.gather(torch.arange(len(test)))
    mean = batch.past_target.mean(dim=1, keepdim=True).expand_as(batch.future_target)
    of_mean = (mean - batch.future_target).square().mean().item()
    trained = loss_on(model, test)
    # The wave has the variance 0.98 of the standardised series, the noise 0.02.
    assert of_mean > 0.9
    assert trained < 0.1 * of_mean
    assert trained < 0.1 * untrained
    assert not model.training
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())


def test_runs_of_one_seed_are_equal_to_the_bit() -> None:
    first, again, other = model_of(), model_of(), model_of()
    for model, seed in ((first, 1), (again, 1), (other, 2)):
        run(model, seed=seed)
    assert torch.equal(weights(first), weights(again))
    assert not torch.equal(weights(first), weights(other))
    assert not torch.equal(weights(first), weights(model_of()))


def test_early_stopping_gives_back_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate so high that the last weights are not the best."""
    model, held_back = model_of(), store_of(200, seed=1)
    seen = []
    plain = ForecastModule.on_validation_epoch_end

    def note(module: ForecastModule) -> None:
        plain(module)
        seen.append(loss_on(model, held_back))

    monkeypatch.setattr(ForecastModule, "on_validation_epoch_end", note)
    options = {"early_stopping": True, "patience": 3, "max_steps": 400, "learning_rate": 0.1}
    steps = run(model, validation=held_back, **options)
    best = int(np.argmin(seen))
    assert loss_on(model, held_back) == pytest.approx(seen[best], rel=1e-5)
    assert seen[best] < seen[-1]
    # Stopped after three validations, one every twentieth of the run, without a better loss.
    assert len(seen) == best + 4
    assert steps == 20 * len(seen) < 400


def test_without_early_stopping_the_last_weights_stay() -> None:
    held_back = store_of(200, seed=1)
    plain, validated = model_of(), model_of()
    run(plain)
    run(validated, validation=held_back)
    assert torch.equal(weights(plain), weights(validated))


def test_early_stopping_needs_validation_windows() -> None:
    with pytest.raises(AssertionError):
        run(model_of(), early_stopping=True)


def test_the_time_limit_ends_training() -> None:
    begin = time.perf_counter()
    steps = run(model_of(), max_steps=1_000_000, max_time=timedelta(seconds=0.5))
    assert 0 < steps < 1_000_000
    assert time.perf_counter() - begin < 10


@pytest.mark.parametrize(
    ("rate", "words"), [(1e30, "the loss is nan in step"), (1e4, "the loss went from 1.* to .*e+")]
)
def test_a_diverged_run_says_what_to_do(rate: float, words: str) -> None:
    words = words.replace("e+", r"e\+")
    with pytest.raises(FloatingPointError, match=words) as caught:
        run(model_of(), learning_rate=rate)
    assert "Lower `learning_rate`" in str(caught.value)
    assert f"{rate:g}" in str(caught.value)


def test_a_weight_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()

    def spoil(module: ForecastModule) -> None:
        with torch.no_grad():
            model.head.point.bias[0] = torch.nan

    monkeypatch.setattr(ForecastModule, "on_train_end", spoil)
    with pytest.raises(FloatingPointError, match=r"'head.point.bias' is not finite. Lower"):
        run(model)


def test_missing_values_are_learned_around() -> None:
    hours = np.arange(600)
    values = np.sin(2 * np.pi * hours / 24)
    values[np.random.default_rng(0).random(600) < 0.3] = np.nan
    store = windows_of({"load": values})
    model = model_of(frequency_weight=0.0)
    run(model, store, max_steps=150)
    assert loss_on(model, store) < 0.2


@pytest.mark.parametrize("early_stopping", [False, True])
def test_covariates_and_the_calendar_are_learned_from(early_stopping: bool) -> None:
    """Noise that a covariate explains, doubled where a category says so."""
    draw = np.random.default_rng(0)
    noise, doubled = draw.normal(size=600), draw.random(600) < 0.5
    noise[100:120] = np.nan
    columns = {
        "load": np.nan_to_num(noise) * np.where(doubled, 2.0, 1.0) + np.arange(600) % 24 / 12,
        "noise": noise,
        "doubled": np.where(doubled, "yes", "no"),
        "other": draw.normal(size=600),
    }
    roles = {"known_covariates": ("noise", "doubled"), "past_covariates": ("other",)}
    store = windows_of(columns, calendar=True, **roles)
    batch = store.gather(torch.arange(len(store)))
    assert batch.calendar is not None
    model = model_of(
        past_cardinalities=(0, 0),
        known_cardinalities=(0, 0, 0, 2),
        num_calendar_features=batch.calendar.shape[-1],
        frequency_weight=0.0,
    )
    held_back = store if early_stopping else None
    run(model, store, max_steps=400, early_stopping=early_stopping, validation=held_back)
    # The noise is most of a variance of 1.
    assert loss_on(model, store) < 0.1


@pytest.mark.parametrize("early_stopping", [False, True])
def test_nothing_is_printed_written_or_left_changed(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    odd_levels: dict[str, int],
    early_stopping: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    filters = list(warnings.filters)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    environment = dict(os.environ)
    # Warnings of a user's session are shown, not raised.
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        run(model_of(), early_stopping=early_stopping, validation=store_of(200))
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert warnings.filters == filters
    assert levels_now() == odd_levels
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert dict(os.environ) == environment


def test_levels_and_filters_come_back_after_an_error(odd_levels: dict[str, int]) -> None:
    filters = list(warnings.filters)
    with pytest.raises(FloatingPointError):
        run(model_of(), learning_rate=1e30)
    assert levels_now() == odd_levels
    assert warnings.filters == filters


@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_progress_bar_is_shown_on_request(
    capfd: pytest.CaptureFixture[str], early_stopping: bool
) -> None:
    held_back = store_of(200) if early_stopping else None
    run(model_of(), progress=True, early_stopping=early_stopping, validation=held_back)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "20/20" in captured.err
    assert "train_loss" in captured.err
    assert ("validation_loss" in captured.err) == early_stopping


def test_ctrl_c_reaches_the_caller_and_works_again() -> None:
    """Lightning alone would end the interpreter, with SystemExit, and then ignore the signal."""
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(module: ForecastModule, *_: Any) -> None:
        if module.global_step == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    model = model_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForecastModule, "on_train_batch_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(model, max_steps=10_000)
    assert signal.getsignal(signal.SIGINT) is handler
    assert run(model) == 20


def test_ctrl_c_works_again_even_if_it_came_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(module: ForecastModule) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ForecastModule, "configure_callbacks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(model_of())
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_exit_that_is_none_of_lightning_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any, **__: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(pl.Trainer, "fit", leave)
    with pytest.raises(SystemExit, match="3"):
        run(model_of())


def test_runs_in_threads_take_turns_and_leave_nothing_behind(odd_levels: dict[str, int]) -> None:
    def weights(seed: int) -> torch.Tensor:
        with isolated_seed(seed):
            model = model_of(seed, dropout=0.5)
            run(model, seed=seed)
        return torch.cat([value.flatten() for value in model.state_dict().values()])

    alone = [weights(seed) for seed in range(4)]
    filters = list(warnings.filters)
    states = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    drawn = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(weights, range(4)))
        # Runs that nobody seeded change the levels of loggers and the filters all the same.
        list(pool.map(lambda seed: run(model_of(seed)), range(4)))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert warnings.filters == filters
    assert levels_now() == odd_levels
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), drawn)


def test_training_works_in_a_thread() -> None:
    """Signals can only be set in the main thread."""
    steps: list[int] = []
    thread = threading.Thread(target=lambda: steps.append(run(model_of())))
    thread.start()
    thread.join()
    assert steps == [20]


@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_data_goes_with_the_last_who_holds_it_and_waits_for_no_collector(
    early_stopping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[weakref.ref[Any]] = []
    drawn = WindowStore.evenly_spaced

    def spied(self: WindowStore, *arguments: Any) -> Iterator[Any]:
        for batch in drawn(self, *arguments):
            batches.append(weakref.ref(batch.past_target))
            yield batch

    monkeypatch.setattr(WindowStore, "evenly_spaced", spied)
    store = store_of()
    known = weakref.ref(store)
    looks: list[type] = []
    fast = {"max_steps": 20, "batch_size": 32, "learning_rate": 1e-2, "accelerator": "cpu"}
    options = TrainingOptions(**fast, progress=False, early_stopping=early_stopping)
    gc.disable()
    try:
        with isolated_seed(0):
            train(
                model_of(),
                store,
                options,
                validation=store if early_stopping else None,
                watch=Watch(2, lambda model, store=store: looks.append(type(model))),
            )
        del store
        assert known() is None
        assert looks == [EncoderForecaster]
        assert bool(batches) == early_stopping
        assert [batch for batch in batches if batch() is not None] == []
    finally:
        gc.enable()
