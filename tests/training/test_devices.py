"""Several devices share the windows of a step; on a GPU, runs repeat to the bit."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import ProcessRaisedException

from mlrforecast.data import ForecastBatch
from mlrforecast.models import EncoderForecaster
from mlrforecast.training import (
    Checkpoint,
    TrainingOptions,
    estimate_memory,
    isolated_seed,
    train,
)
from tests.training.runs import model_of, store_of, weights

NUM_GPUS = torch.cuda.device_count()


def fit(
    folder: Path | None = None, *, dropout: float = 0.0, **options: Any
) -> tuple[EncoderForecaster, int]:
    given = {"max_steps": 20, "batch_size": 32, "learning_rate": 1e-3, "accelerator": "cpu"}
    settings = TrainingOptions(**{**given, "progress": False, **options})
    validation = store_of(200, seed=1) if settings.early_stopping else None
    model = model_of(dropout=dropout)
    checkpoint = None if folder is None else Checkpoint(folder, "ab" * 32)
    with isolated_seed(0):
        steps = train(model, store_of(), settings, validation=validation, checkpoint=checkpoint)
    return model, steps


def far(one: EncoderForecaster, other: EncoderForecaster) -> float:
    return float((weights(one) - weights(other)).abs().max())


def test_devices_get_shares_of_the_windows_of_one() -> None:
    store = store_of()
    whole = list(store.sample(8, 5, seed=3))
    shares = [list(store.sample(8, 5, seed=3, share=slice(rank, None, 2))) for rank in (0, 1)]
    for number, batch in enumerate(whole):
        both = torch.stack([shares[0][number].past_target, shares[1][number].past_target], dim=1)
        assert torch.equal(both.flatten(0, 1), batch.past_target)


def test_batches_that_were_made_are_left_out() -> None:
    store = store_of()
    rest = list(store.sample(8, 5, seed=3, first=2))
    assert len(rest) == 3
    for batch, expected in zip(rest, list(store.sample(8, 5, seed=3))[2:], strict=True):
        assert torch.equal(batch.past_target, expected.past_target)


@pytest.mark.slow
def test_two_processes_train_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = dict(os.environ)
    one, _ = fit(early_stopping=True)
    two, steps = fit(early_stopping=True, devices=2)
    assert steps == 20
    # Adam magnifies the rounding of small gradients.
    assert far(one, two) < 5e-4 < far(one, model_of())
    assert not two.training
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert dict(os.environ) == environment


@pytest.mark.slow
def test_two_processes_draw_numbers_of_their_own_and_go_on(tmp_path: Path) -> None:
    """With dropout they differ, and a run that was cut short still ends the same."""
    whole, _ = fit(dropout=0.3, devices=2)
    assert not torch.equal(weights(whole), weights(fit(dropout=0.3)[0]))
    with isolated_seed(0), pytest.raises(ProcessRaisedException):
        train(
            model_of(dropout=0.3),
            CutShort(),
            TrainingOptions(
                max_steps=20,
                batch_size=32,
                learning_rate=1e-3,
                accelerator="cpu",
                progress=False,
                devices=2,
            ),
            checkpoint=Checkpoint(tmp_path, "ab" * 32),
        )
    resumed, steps = fit(tmp_path, dropout=0.3, devices=2)
    assert torch.equal(weights(resumed), weights(whole))
    assert steps == 20


class CutShort:
    """Windows that end with an error."""

    def __init__(self) -> None:
        self.store = store_of()

    def sample(self, *args: Any, **options: Any) -> Any:
        for number, batch in enumerate(self.store.sample(*args, **options)):
            if number == 12:
                raise RuntimeError("cut short")
            yield batch


@pytest.mark.slow
def test_a_diverged_run_of_two_processes_says_what_to_do() -> None:
    with pytest.raises(FloatingPointError, match=r"the loss is nan .* Lower `learning_rate`"):
        fit(devices=2, learning_rate=1e30)


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_step_trains_the_same() -> None:
    plain, compiled = fit()[0], fit(compile=True)[0]
    assert 0 < far(plain, compiled) < 1e-3
    assert set(plain.state_dict()) == set(compiled.state_dict())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
class TestGPU:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"precision": "bf16-mixed"},
            {"precision": "16-mixed"},
            {"ema_decay": 0.9, "early_stopping": True},
            {"compile": True},
        ],
        ids=str,
    )
    def test_runs_repeat_and_go_on_to_the_bit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
    ) -> None:
        options = {"accelerator": "gpu", "dropout": 0.3, **options}
        whole, steps = fit(**options)
        assert torch.equal(weights(whole), weights(fit(**options)[0]))

        class StopError(Exception):
            pass

        plain, count = Checkpoint.write, [0]

        def write(self: Checkpoint, progress: Any) -> None:
            plain(self, progress)
            count[0] += 1
            if count[0] == 7:
                raise StopError

        monkeypatch.setattr(Checkpoint, "write", write)
        with pytest.raises(StopError):
            fit(tmp_path, **options)
        resumed, again = fit(tmp_path, **options)
        assert torch.equal(weights(resumed), weights(whole))
        assert again == steps

    @pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
    def test_short_numbers_train_about_the_same(self, precision: str) -> None:
        plain = fit(accelerator="gpu", max_steps=100)[0]
        short = fit(accelerator="gpu", max_steps=100, precision=precision)[0]
        batch = store_of(300, seed=5).gather(torch.arange(200))
        assert 0 < abs(loss(plain, batch) - loss(short, batch)) < 0.05 * loss(plain, batch)

    def test_a_model_is_left_on_the_cpu(self) -> None:
        model = fit(accelerator="gpu", ema_decay=0.9)[0]
        assert {value.device.type for value in model.state_dict().values()} == {"cpu"}

    @pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
    def test_memory_is_estimated(self, precision: str) -> None:
        sizes = {"width": 128, "num_layers": 3, "num_heads": 8, "patch_length": 4}
        model, store = model_of(**sizes, patch_stride=4), store_of(5000)
        options = TrainingOptions(
            max_steps=5,
            batch_size=4096,
            learning_rate=1e-3,
            accelerator="gpu",
            precision=precision,
            progress=False,
        )
        estimate = estimate_memory(model, store, options)
        torch.cuda.reset_peak_memory_stats()
        train(model, store, options)
        needed = torch.cuda.max_memory_allocated()
        assert 0.6 < (estimate.total - estimate.data) / needed < 1.6

    @pytest.mark.skipif(NUM_GPUS < 2, reason="one GPU")
    def test_two_gpus_train_what_one_does(self) -> None:
        one, _ = fit(accelerator="gpu")
        two, steps = fit(accelerator="gpu", devices=2)
        assert steps == 20
        assert far(one, two) < 5e-4 < far(one, model_of())


def loss(model: EncoderForecaster, batch: ForecastBatch) -> float:
    with torch.no_grad():
        return float(model.loss(batch))
