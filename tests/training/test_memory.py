"""Memory counted before a run: against real steps, other settings, and limits of a system."""

import itertools
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mlrforecast.models import EncoderConfig, EncoderForecaster
from mlrforecast.training import TrainingOptions, memory
from mlrforecast.training.memory import (
    MemoryEstimate,
    available_memory,
    check_memory,
    estimate_memory,
    find_batch_size,
)
from tests.models.scores_by_name import FIELDS, NAMES
from tests.training.runs import CONTEXT, FUTURE, model_of, store_of, windows_of

PLENTY = 10**12


def options_of(**given: Any) -> TrainingOptions:
    return TrainingOptions(**{"max_steps": 1, "batch_size": 64, "learning_rate": 1e-3, **given})


def estimate(model: EncoderForecaster, **given: Any) -> MemoryEstimate:
    return estimate_memory(model, store_of(), options_of(**given))


def kept_bytes(model: EncoderForecaster, batch_size: int) -> int:
    """Bytes that a whole batch keeps for its backward pass, counted in another way."""
    copy = deepcopy(model).train()
    store = store_of()
    own = {parameter.untyped_storage().data_ptr() for parameter in copy.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = copy.loss(store.gather(torch.arange(batch_size)))
    assert loss.requires_grad
    return sum(kept.values())


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("name", NAMES)
def test_activations_are_those_of_a_whole_batch(name: str, width: int) -> None:
    fields = {**FIELDS[name], "ranks": None, "patch_length": 4, "patch_stride": 4}
    model = model_of(attention=name, width=width, **fields)
    kept = kept_bytes(model, 64)
    # More than what is kept, by what the backward pass computes with.
    assert kept < estimate(model).activations / memory.KEPT < 1.6 * kept


def test_numbers_of_the_network_are_exact() -> None:
    model = model_of()
    learned = 4 * sum(parameter.numel() for parameter in model.parameters())
    fixed = sum(buffer.nbytes for buffer in model.buffers())
    found = estimate(model)
    assert (found.gradients, found.optimizer) == (learned, 2 * learned)
    assert found.weights == learned + fixed
    assert estimate(model, early_stopping=True).weights == 2 * (learned + fixed)
    assert estimate(model, ema_decay=0.9).weights == 2 * (learned + fixed)
    assert estimate(model, ema_decay=0.9, early_stopping=True).weights == 4 * (learned + fixed)
    assert found.total == sum(vars(found).values())


def test_activations_grow_with_the_windows_of_one_device() -> None:
    model = model_of()
    one, two = (estimate(model, batch_size=size) for size in (512, 1024))
    assert two.activations == pytest.approx(2 * one.activations, rel=0.02)
    assert estimate(model, batch_size=1024, devices=2) == one


def test_short_numbers_need_less() -> None:
    model = model_of(width=64)
    whole = estimate(model, batch_size=512).activations
    for precision in ("bf16-mixed", "16-mixed"):
        short = estimate(model, batch_size=512, precision=precision).activations
        assert 0.4 * whole < short < 0.9 * whole


def test_a_large_network_needs_what_its_optimiser_computes_with() -> None:
    model = model_of(width=256, num_layers=3, hidden_width=1024)
    found = estimate(model, batch_size=1)
    assert found.activations >= found.gradients


def test_forecasts_after_a_small_batch_may_need_the_most() -> None:
    model, store = model_of(patch_length=1, patch_stride=1), store_of()
    alone = estimate_memory(model, store, options_of(batch_size=16))
    few = estimate_memory(model, store, options_of(batch_size=16), forecast_batch=16)
    many = estimate_memory(model, store, options_of(batch_size=16), forecast_batch=512)
    assert few == alone
    assert many.activations > 2 * alone.activations
    large = options_of(batch_size=1024)
    assert estimate_memory(model, store, large, forecast_batch=512) == estimate_memory(
        model, store, large
    )


def test_covariates_and_validation_are_data() -> None:
    columns = {"load": store_of().buffer.numpy(), "price": store_of().buffer.numpy()}
    store = windows_of(columns, calendar=True, target="load", known_covariates=["price"])
    cardinalities = (0,) * store.gather(torch.arange(1)).known_covariates.shape[-1]
    calendar = store.gather(torch.arange(1)).calendar.shape[-1]
    model = model_of(known_cardinalities=cardinalities, num_calendar_features=calendar)
    found = estimate_memory(model, store, options_of())
    assert found.data > estimate(model_of()).data
    more = estimate_memory(model, store, options_of(), validation=store)
    batch = store.gather(torch.arange(1))
    window = sum(tensor.nbytes for tensor in batch if tensor is not None)
    assert more.data - found.data == store.num_bytes + len(store) * window


class Normed(nn.Module):
    """A backbone with numbers that a step changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, tokens: Tensor, key_mask: Tensor | None) -> Tensor:
        return self.norm(tokens.transpose(1, 2)).transpose(1, 2)


@pytest.mark.usefixtures("seeded")
def test_nothing_is_changed() -> None:
    config = EncoderConfig(context_length=CONTEXT, prediction_length=FUTURE, width=16, num_heads=2)
    model = EncoderForecaster(config, Normed(16)).eval()
    before = deepcopy(model.state_dict())
    state = torch.get_rng_state()
    assert estimate(model).total > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_the_largest_batch_that_fits_is_found() -> None:
    model, store = model_of(), store_of(3000)
    sizes = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    for size, larger in itertools.pairwise(sizes):
        # Just enough for this one.
        needed = estimate_memory(model, store, options_of(batch_size=size)).total
        available = int(needed / memory.SHARE) + 8
        assert find_batch_size(model, store, options_of(), available=available) == size
        more = estimate_memory(model, store, options_of(batch_size=larger)).total
        assert more > memory.SHARE * available
    assert find_batch_size(model, store, options_of(), available=0) == 16
    assert find_batch_size(model, store, options_of(), available=PLENTY) == 4096
    few = store_of(130)
    assert len(few) == 71
    assert find_batch_size(model, few, options_of(), available=PLENTY) == 128


def test_a_run_that_does_not_fit_is_refused() -> None:
    found = MemoryEstimate(1_000_000, 1_000_000, 2_000_000, 5_000_000_000, 0)
    check_memory(found, found.total)
    with pytest.raises(MemoryError, match=r"about 5.0 GB: weights 1.0 MB.*3.0 GB are available"):
        check_memory(found, 3_000_000_000)


def group(root: Path, folder: str, **files: str) -> None:
    """Make a control group."""
    place = root / "sys/fs/cgroup" / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (place / name.replace("__", ".")).write_text(f"{content}\n")


def process(root: Path, *lines: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_limits_of_version_two_count_up_to_the_root(tmp_path: Path) -> None:
    process(tmp_path, "0::/a/b")
    stat = "anon 5\ninactive_file 30"
    group(tmp_path, "a/b", memory__max="max", memory__current="70", memory__stat=stat)
    group(tmp_path, "a", memory__max="100", memory__current="90", memory__stat=stat)
    assert memory._group_limits(tmp_path) == [40]


def test_a_group_inside_a_container_lies_at_the_root(tmp_path: Path) -> None:
    process(tmp_path, "0::/", "4:memory:/outside/of/it")
    one = {"memory__limit_in_bytes": "500", "memory__usage_in_bytes": "600"}
    group(tmp_path, "memory", **one, memory__stat="total_inactive_file 20\ninactive_file 10")
    assert memory._group_limits(tmp_path) == [0]


def test_no_control_group_is_no_limit(tmp_path: Path) -> None:
    assert memory._group_limits(tmp_path) == []
    process(tmp_path, "0::/a")
    assert memory._group_limits(tmp_path) == []


def test_the_least_of_all_limits_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = available_memory(torch.device("cpu"))
    assert whole > 10_000_000
    monkeypatch.setattr(memory, "_group_limits", lambda root: [12345, 99999])
    assert available_memory(torch.device("cpu")) == 12345


@pytest.mark.gpu
def test_a_card_has_what_is_free_and_what_torch_holds() -> None:
    device = torch.device("cuda")
    tensor = torch.empty(2**28, device=device)
    filled = available_memory(device)
    del tensor
    assert available_memory(device) - filled == 2**30
