"""One model trained by the workers of a Ray cluster: two nodes of a CPU each."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mlrforecast import MLRForecaster
from mlrforecast.data import FileDataset
from mlrforecast.integrations import RayWorkers
from mlrforecast.integrations.ray._packing import pack, unpack
from mlrforecast.integrations.ray._train import _own_error
from mlrforecast.training import train
from mlrforecast.training.team import Job
from tests.estimators.frames import TINY, long, wide
from tests.training.runs import store_of

ray = pytest.importorskip("ray")

from tests.ray_cluster import RayCluster, ray_cluster  # noqa: E402 - it needs ray

# Ray's own: sockets that its processes close, and news of what it will do one day.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "ignore::DeprecationWarning:ray.data.context",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(workers=2) as running:
        yield running


def weights_of(forecaster: MLRForecaster) -> np.ndarray:
    tensors = forecaster.model_.state_dict().values()
    return np.concatenate([tensor.double().flatten().numpy() for tensor in tensors])


@pytest.mark.slow
def test_workers_train_what_processes_of_one_machine_do(
    cluster: RayCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ), signal.getsignal(signal.SIGINT)
    settings = {"devices": 2, "dropout": 0.3, "early_stopping": True, "ema_decay": 0.9}
    parameters = TINY | settings | {"max_steps": 20}
    frame = wide()
    found = MLRForecaster(**parameters).fit(frame, distributed=RayWorkers(address=cluster.address))
    assert not ray.is_initialized()
    assert capfd.readouterr() == ("", "")
    assert (dict(os.environ), signal.getsignal(signal.SIGINT)) == before
    assert list(tmp_path.iterdir()) == []
    expected = MLRForecaster(**parameters).fit(frame)
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=1e-5)
    np.testing.assert_allclose(found.predict(), expected.predict(), atol=1e-5)
    np.testing.assert_allclose(found.dependence_, expected.dependence_, atol=1e-5)
    assert (found.num_steps_, found.batch_size_) == (expected.num_steps_, expected.batch_size_)
    assert not found.model_.training


@pytest.mark.long
def test_one_worker_trains_what_this_process_does(cluster: RayCluster, seeded: None) -> None:
    """The Ray that the process is connected to is used, and left as it is."""
    parameters = TINY | {"dropout": 0.3}
    ray.init(cluster.address, logging_level="error", log_to_driver=False)
    try:
        found = MLRForecaster(**parameters).fit(long(), distributed="ray")
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    expected = MLRForecaster(**parameters).fit(long())
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=1e-5)


@pytest.mark.slow
def test_a_diverged_run_says_what_to_do(cluster: RayCluster) -> None:
    """It is not tried again, and the bar has shown how far it was."""
    forecaster = MLRForecaster(**TINY | {"devices": 2, "learning_rate": 1e30})
    with pytest.raises(FloatingPointError, match=r"the loss is nan .* Lower `learning_rate`"):
        forecaster.fit(wide(), distributed=RayWorkers(address=cluster.address))
    assert not hasattr(forecaster, "model_")


@pytest.mark.long
def test_a_lost_worker_starts_again_from_the_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parameters = TINY | {"devices": 2, "dropout": 0.3, "max_steps": 300, "progress": True}
    frame = wide(2000)
    with ray_cluster(workers=2) as own:

        def lose() -> None:
            while not list(tmp_path.glob("fit-*")):
                time.sleep(0.02)
            own.kill_worker(0)
            own.add_worker()

        losing = threading.Thread(target=lose, daemon=True)
        losing.start()
        found = MLRForecaster(**parameters, checkpoint_dir=tmp_path).fit(
            frame, distributed=RayWorkers(address=own.address)
        )
        losing.join()
    assert "300/300" in capfd.readouterr().err
    expected = MLRForecaster(**parameters | {"progress": False}).fit(frame)
    np.testing.assert_allclose(weights_of(found), weights_of(expected), atol=1e-5)


SCRIPT = """
import sys
from mlrforecast import MLRForecaster
from tests.estimators.frames import TINY, wide

settings = {"max_steps": 4000, "devices": 2, "checkpoint_dir": sys.argv[1]}
MLRForecaster(**TINY | settings).fit(wide(2000), distributed="ray")
"""


@pytest.mark.long
def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not list(tmp_path.glob("fit-*")):
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        # As a terminal does: to all that belong to it.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert out == ""
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


class LostError(Exception):
    """What Ray says of a worker that does not answer."""

    __module__ = "ray.exceptions"


CLOSED = RuntimeError("Connection closed by peer")
FULL = OSError("No space left on device")


@pytest.mark.parametrize(
    ("failures", "raised"),
    [
        ({0: CLOSED, 1: FULL}, FULL),
        ({0: LostError("node died"), 1: FULL}, FULL),
        ({0: CLOSED}, CLOSED),
        ({0: CLOSED, 1: LostError("node died")}, None),
    ],
    ids=["the cause", "of a worker that lives", "of a user's network", "lost"],
)
def test_the_error_of_a_worker_is_raised(
    failures: dict[int, Exception], raised: Exception | None
) -> None:
    """Workers that lose another one fail too, with errors that say little."""
    error = _own_error(SimpleNamespace(worker_failures=failures))
    if raised is not None:
        assert error is raised
    else:
        assert isinstance(error, RuntimeError)
        assert "a worker of the Ray cluster was lost. With `checkpoint_dir`" in str(error)
        assert str(error).endswith("node died")


def test_a_cluster_without_the_resources_is_refused(cluster: RayCluster) -> None:
    forecaster = MLRForecaster(**TINY | {"devices": 4})
    with pytest.raises(ValueError, match=r"room for 2 of 4 workers: each needs 1 CPU, and 3 nodes"):
        forecaster.fit(wide(), distributed=RayWorkers(address=cluster.address))
    workers = RayWorkers(address=cluster.address, resources={"cpu": 2})
    with pytest.raises(ValueError, match=r"room for 0 of 1 workers: each needs 2 CPU"):
        MLRForecaster(**TINY).fit(wide(), distributed=workers)


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1"):
        MLRForecaster(**TINY).fit(wide(), distributed=RayWorkers(address="127.0.0.1:1"))


@pytest.mark.parametrize("distributed", ["spark", 2, True])
def test_other_ways_to_distribute_are_refused(distributed: object) -> None:
    with pytest.raises(ValueError, match="`distributed` must be None, 'ray' or RayWorkers"):
        MLRForecaster(**TINY).fit(wide(), distributed=distributed)


def test_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    long().to_json(path, orient="records", lines=True, date_format="iso")
    with pytest.raises(ValueError, match="`distributed` must be None for a FileDataset"):
        MLRForecaster(**TINY).fit(FileDataset(path), distributed="ray")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"resources": {"cpu": -1}}, ValueError, "`resources` must be 0 or more, got -1"),
        ({"resources": {"cpu": "1"}}, TypeError, "`resources` must give a number"),
        ({"resources": 2}, TypeError, "`resources` must be a mapping"),
        ({"max_failures": -1}, ValueError, "`max_failures` must be 0 or more, got -1"),
        ({"max_failures": 1.5}, TypeError, "`max_failures` must be a whole number, got 1.5"),
    ],
)
def test_wrong_settings_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        RayWorkers(**settings)


@pytest.mark.parametrize(
    ("accelerator", "resources", "num_gpus", "needed"),
    [
        ("cpu", None, 4, {"CPU": 1}),
        ("auto", None, 1, {"CPU": 1}),
        ("auto", None, 2, {"CPU": 1, "GPU": 1}),
        ("auto", {"gpu": 0, "cpu": 2}, 2, {"CPU": 2}),
        ("gpu", {"gpu": 0.5, "cpu": 0}, 0, {"GPU": 0.5}),
        ("cpu", {"big": 1}, 0, {"CPU": 1, "big": 1}),
    ],
)
def test_what_each_of_two_workers_takes(
    accelerator: str, resources: dict[str, float] | None, num_gpus: int, needed: dict[str, float]
) -> None:
    workers = RayWorkers(resources=resources)
    assert workers.needed(accelerator, num_gpus=num_gpus, workers=2) == needed


def test_accelerators_that_ray_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="`accelerator` must be 'auto', 'cpu' or 'gpu'"):
        RayWorkers().needed("mps")


def test_a_fitted_network_goes_on_by_the_same_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `partial_fit`, and of `fit` with `warm_start`."""
    jobs = []

    def here(workers: RayWorkers, job: Job) -> tuple[int, dict[str, torch.Tensor]]:
        jobs.append(workers)
        steps = train(job.model, job.store, job.options, validation=job.validation)
        return steps, job.model.state_dict()

    monkeypatch.setattr(RayWorkers, "train", here)
    workers = RayWorkers(max_failures=7)
    found = MLRForecaster(**TINY).fit(wide(), distributed=workers)
    found.partial_fit(wide(), distributed=workers)
    found.set_params(warm_start=True).fit(wide(), distributed=workers)
    assert jobs == [workers] * 3
    assert found.num_steps_ == 9
    expected = MLRForecaster(**TINY).fit(wide()).partial_fit(wide()).partial_fit(wide())
    assert np.array_equal(weights_of(found), weights_of(expected))


def test_windows_are_packed_without_copies_and_read_alike() -> None:
    store = store_of(300)
    parts = pack(store)
    # The windows are views of the buffer.
    assert sum(len(part) == store.buffer.nbytes for part in parts[1:]) == 1
    read = unpack(parts)
    for batch, expected in zip(read.sample(8, 3, seed=1), store.sample(8, 3, seed=1), strict=True):
        assert torch.equal(batch.past_target, expected.past_target)
    starts = [np.frombuffer(part, np.uint8).ctypes.data for part in parts[1:]]
    assert read.buffer.data_ptr() in starts
    assert read._windows.data_ptr() == read.buffer.data_ptr()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(6)[2:],
        torch.empty(0),
        torch.tensor([True, False]),
        torch.tensor(3.0),
    ],
    ids=["transposed", "offset", "empty", "bool", "scalar"],
)
def test_tensors_are_packed_as_they_are(tensor: torch.Tensor) -> None:
    read = unpack(pack({"tensor": tensor}))["tensor"]
    assert torch.equal(read, tensor)
    assert (read.dtype, read.stride()) == (tensor.dtype, tensor.stride())
