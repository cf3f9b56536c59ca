"""Sweeps on Ray: the trials of the local executor, on this machine and on a cluster."""

import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from ray import tune as ray_tune

from mlrforecast._core import cluster as cluster_module
from mlrforecast._core.cluster import connected
from mlrforecast._core.errors import MissingDependencyError, TuningError
from mlrforecast.tuning import TuneResult, tune
from mlrforecast.tuning._driver import _shortened, make_trials
from mlrforecast.tuning._records import Records
from mlrforecast.tuning._trial import Task
from mlrforecast.tuning._worker import Sweep, blank_record
from tests.ray_cluster import RayCluster, free_port
from tests.tuning.faulty import faulty, runs
from tests.tuning.small import SPACE, forecaster, frame


def sweep(space: Any = SPACE, **options: Any) -> TuneResult:
    settings: dict[str, Any] = {
        "num_samples": 2,
        "folds": 2,
        "windows": 3,
        "reports": 2,
        "refit": False,
        "progress": False,
    }
    settings |= options
    base = settings.pop("base", None) or forecaster()
    return tune(base, frame(), space, **settings)


def trials_of(result: TuneResult) -> pd.DataFrame:
    """What is the same wherever a sweep is run."""
    varying = ["seconds", "host", "started"]
    return result.trials.drop(columns=varying).sort_values("trial").reset_index(drop=True)


def check_same(result: TuneResult, expected: TuneResult) -> None:
    pd.testing.assert_frame_equal(trials_of(result), trials_of(expected), rtol=0, atol=1e-6)
    curves = [each.curves.sort_values(["trial", "iteration"]) for each in (result, expected)]
    assert np.allclose(curves[0], curves[1], rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def expected() -> TuneResult:
    return sweep(executor="local")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"searcher": "nothing"}, ValueError, "`searcher` must be one of random"),
        ({"searcher": 3}, TypeError, "a searcher of Ray, got 3"),
        ({"searcher": "optuna"}, ValueError, r"cannot search a grid, and `space\['learning_rate"),
        ({"searcher": "bayesopt"}, MissingDependencyError, "is not installed"),
        ({"scheduler": 3}, TypeError, "a scheduler of Ray, got 3"),
        ({"address": "nowhere", "storage_path": "x"}, ValueError, '"host:port"'),
    ],
)
def test_what_cannot_be_run_is_refused_before_ray_starts(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
):
    if "storage_path" in options:
        options = options | {"storage_path": tmp_path}
    with pytest.raises(error, match=message):
        sweep(**options)
    assert not ray.is_initialized()


def test_a_cluster_that_does_not_answer_is_named():
    address = f"127.0.0.1:{free_port()}"
    with (
        pytest.raises(ConnectionError, match=f"No Ray cluster could be joined at '{address}'"),
        connected(address),
    ):
        pass


@pytest.mark.parametrize(
    ("failure", "failures", "attempts"),
    [
        ("RuntimeError: Starting Ray client server failed. See a log.", 2, 3),
        ("RuntimeError: Starting Ray client server failed. See a log.", 9, 3),
        ("RuntimeError: Failed to create runtime_env", 9, 1),
    ],
)
def test_a_client_whose_server_died_at_its_start_gets_another(
    failure: str, failures: int, attempts: int, monkeypatch
):
    made: list[str] = []

    def init(address: str, **options: Any) -> None:
        made.append(address)
        if len(made) <= failures:
            raise ConnectionAbortedError(f"Initialization failure from server:\n{failure}")

    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as head, ExitStack() as stack:
        address = f"ray://127.0.0.1:{head.getsockname()[1]}"
        if failures >= attempts:
            stack.enter_context(pytest.raises(ConnectionError, match=failure.rstrip(".")))
        stack.enter_context(connected(address))
    assert made == [address] * attempts


def test_rays_own_threads_do_not_reach_the_output(capsys):
    def speak(text: str) -> None:
        thread = threading.Thread(target=lambda: sys.stdout.write(text), name="ray_listener")
        thread.start()
        thread.join()

    for quiet in (True, False):
        with cluster_module._hushed(quiet):
            speak(f"{quiet} ")
            sys.stdout.write("mine ")
    assert capsys.readouterr() == ("mine mine ", "False ")


def test_the_generators_of_the_process_are_put_back():
    # The guard of all tests fails this one if they are not.
    with cluster_module.random_state_kept():
        random.random()
        np.random.rand()  # noqa: NPY002 - as Ray does


def test_an_account_of_a_dead_process_fits_a_line():
    told = (
        "ActorDiedError: The actor died unexpectedly before finishing this task. class_name: A "
        "actor_id: 1 pid: 2 namespace: b ip: 10.0.0.1 The actor is dead because its worker process "
        "has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits. "
        "Some common causes include: (1) and more."
    )
    assert _shortened(told) == (
        "ActorDiedError: The actor died unexpectedly before finishing this task. The actor is dead "
        "because its worker process has died. Worker unexpectedly exits. It was killed, or the "
        "machine had no memory left."
    )


def test_a_local_ray_runs_the_same_trials_and_leaves_no_trace(
    expected: TuneResult, tmp_path: Path, capfd, monkeypatch
):
    # Ray's sockets do not fit below the folder of a test.
    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as temporary,
        monkeypatch.context() as patched,
    ):
        patched.setenv("HOME", str(tmp_path / "home"))
        patched.setenv("TMPDIR", temporary)
        patched.setattr(tempfile, "tempdir", temporary)
        _check_no_trace(expected, tmp_path, capfd)
        assert os.listdir(temporary) == []


def _check_no_trace(expected: TuneResult, tmp_path: Path, capfd: Any) -> None:
    before = (dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    result = sweep(storage_path=tmp_path / "sweep")
    check_same(result, expected)
    assert result.best_config == expected.best_config
    assert capfd.readouterr() == ("", "")
    after = (dict(os.environ), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert after == before
    assert not ray.is_initialized()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("ray_")]
    assert not (tmp_path / "home" / ".ray").exists()
    assert sorted(os.listdir(tmp_path / "sweep")) == ["ray", "sweep.json", "trials"]

    grid = result.result_grid
    assert len(grid) == 4
    assert not grid.errors
    best = grid.get_best_result()
    assert best.config == result.best_config
    assert best.metrics["score"] == pytest.approx(result.best_score)
    assert len(best.metrics_dataframe) == 4


@pytest.mark.parametrize("through", ["address", pytest.param("client", marks=pytest.mark.long)])
def test_a_cluster_runs_the_same_trials(
    through: str, cluster: RayCluster, expected: TuneResult, tmp_path: Path, capfd
):
    address = cluster.address if through == "address" else cluster.client_address
    result = sweep(address=address, storage_path=tmp_path / "sweep")
    check_same(result, expected)
    assert len(result.result_grid) == 4
    assert capfd.readouterr() == ("", "")


def test_a_sweep_that_is_done_is_told_and_not_run(local_ray, tmp_path: Path, monkeypatch):
    """What Ray remembers is not needed: its folder may be lost."""
    notes, space = tmp_path / "notes", {"seed": {"grid_search": [0, 1, 2]}}
    options = {"base": faulty(notes, {}), "num_samples": 1, "storage_path": tmp_path / "sweep"}
    first = sweep(space, **options)
    assert runs(notes) == {0: 1, 1: 1, 2: 1}
    for path in (tmp_path / "sweep" / "ray").rglob("*.json"):
        path.unlink()
    (tmp_path / "sweep" / "trials" / "00001.json").unlink()
    again = sweep(space, **options, resume=True)
    assert runs(notes) == {0: 1, 1: 2, 2: 1}
    check_same(again, first)
    found = again.result_grid.get_dataframe()
    assert dict(zip(found["trial_id"].astype(int), found["score"], strict=True)) == (
        again.trials.set_index("trial")["score"].to_dict()
    )


@pytest.mark.long
def test_a_sweep_that_ran_out_of_time_goes_on(local_ray, expected: TuneResult, tmp_path: Path):
    with pytest.raises(TuningError, match="No trial finished"):
        sweep(max_time=1e-3, storage_path=tmp_path / "sweep")
    check_same(sweep(storage_path=tmp_path / "sweep", resume=True), expected)


class Killer(ray_tune.schedulers.FIFOScheduler):
    """Kills the process of the first trial that ends, which Ray is to give the next one."""

    pid: int | None = None

    def on_trial_complete(self, controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if self.pid is None:
            self.pid = result["pid"]
            os.kill(self.pid, signal.SIGKILL)


@pytest.mark.parametrize("fault", ["death", pytest.param("haste", marks=pytest.mark.long)])
def test_a_process_that_is_lost_between_two_trials_costs_neither(
    fault: str, local_ray, tmp_path: Path
):
    """Ray took the death twice, or a process that was not ready, for failures of the next trial."""
    notes = tmp_path / "notes"
    result = sweep(
        {"seed": {"grid_search": [0, 1, 2, 3]}},
        base=faulty(notes, {0: "haste"} if fault == "haste" else {}),
        scheduler=Killer() if fault == "death" else "fifo",
        num_samples=1,
        max_failures=1,
        storage_path=tmp_path / "sweep",
    )
    assert result.trials["status"].eq("finished").all(), result.trials["error"].dropna().tolist()
    assert runs(notes) == dict.fromkeys(range(4), 1)
    # Ray did give a trial up.
    assert len(result.result_grid.errors) == 1


def test_the_data_are_put_once_and_no_trial_carries_them(local_ray, monkeypatch):
    puts, carried = [], []
    put, with_resources = ray.put, ray_tune.with_resources

    def counted(value: Any, **options: Any) -> Any:
        puts.append(value)
        return put(value, **options)

    def weighed(trainable: Any, resources: Any) -> Any:
        carried.append(len(ray.cloudpickle.dumps(trainable)))
        return with_resources(trainable, resources)

    monkeypatch.setattr(ray, "put", counted)
    monkeypatch.setattr(ray_tune, "with_resources", weighed)
    sweep({"learning_rate": [1e-3, 1e-2]}, num_samples=3, folds=1, reports=1)
    tasks = [value for value in puts if isinstance(value, Task)]
    assert len(tasks) == 1
    assert sum(len(pickle.dumps(value)) for value in puts if not isinstance(value, Task)) < 10_000
    assert carried[0] < 20_000


def test_progress_is_a_table_on_the_error_stream(local_ray, capsys):
    space = {"learning_rate": [1e-3, 1e-2]}
    sweep(space, num_samples=1, folds=1, reports=1, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Number of trials: 1/1" in printed.err
    assert "MASE" in printed.err
    assert "learning_rate" in printed.err


@pytest.mark.parametrize("searcher", ["optuna", pytest.param("hyperopt", marks=pytest.mark.long)])
def test_a_searcher_of_ray_chooses_the_configurations(local_ray, searcher: str, tmp_path: Path):
    space = {"learning_rate": ray_tune.loguniform(1e-4, 1e-1), "dropout": [0.0, 0.1]}
    options = {"folds": 1, "reports": 1, "searcher": searcher, "max_concurrent": 1}
    storage = tmp_path / "sweep"
    result = sweep(space, num_samples=3, storage_path=storage, **options)
    trials = result.trials.sort_values("trial")
    assert list(trials["trial"]) == [0, 1, 2]
    assert trials["learning_rate"].between(1e-4, 1e-1).all()
    assert trials["learning_rate"].nunique() == 3
    assert set(trials["dropout"]) <= {0.0, 0.1}
    again = sweep(space, num_samples=3, storage_path=storage, resume=True, **options)
    pd.testing.assert_frame_equal(trials_of(again), trials_of(result))


class FakeSearcher:
    """Gives numbers, and notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.given = 0

    def suggest(self, trial_id: str) -> dict[str, int]:
        self.given += 1
        return {"width": 10 * self.given}

    def on_trial_complete(self, trial_id: str, result: Any, error: bool) -> None:
        self.told.append((trial_id, None if result is None else result["score"], error))

    def add_evaluated_point(self, config: Any, value: float) -> None:
        self.told.append((config, value))


def made_of(searcher: FakeSearcher, records: Records, *, max_failures: int, **limits: Any) -> Any:
    """What makes the trials of a sweep, told how they are run."""
    given = Sweep(records=records, filesystem=None, root="", session="this", replay=False)
    made = make_trials(given, None, searcher, **limits)
    ray_tune.register_trainable("trial", lambda config: None)
    storage = SimpleNamespace(trial_driver_staging_path=records.storage_path)
    spec = {"run": "trial", "stop": {}, "max_failures": max_failures, "storage": storage}
    made.add_configurations([type("E", (), {"spec": spec | {"checkpoint_config": None}})])
    return made


def test_trials_are_numbered_limited_and_those_known_keep_their_parameters(
    local_ray, tmp_path: Path
):
    records = Records(str(tmp_path))
    known = blank_record(0, {"width": 7}, "before") | {"status": "finished", "score": 0.5}
    records.write(0, known)
    searcher = FakeSearcher()
    made = made_of(searcher, records, total=3, max_concurrent=2, max_failures=0)
    first, second = made.next_trial(), made.next_trial()
    assert [str(first), str(second)] == ["00000", "00001"]
    assert [first.config, second.config] == [{"width": 7}, {"width": 10}]
    assert made.next_trial() is None
    made.on_trial_complete("00000", {"score": 0.5})
    made.on_trial_complete("00001", error=True)
    third = made.next_trial()
    assert third.config == {"width": 20}
    assert made.is_finished()
    assert searcher.told == [({"width": 7}, 0.5), ("00001", None, True)]
    assert records.read(1)["status"] == "failed"


def test_a_trial_lost_before_it_began_is_made_anew_as_often_as_it_may_fail(
    local_ray, tmp_path: Path
):
    records, searcher = Records(str(tmp_path)), FakeSearcher()
    made = made_of(searcher, records, total=1, max_concurrent=1, max_failures=1)
    first = made.next_trial()
    assert made.is_finished()
    made.on_trial_complete("00000", error=True)
    first.set_status(first.ERROR)
    assert not made.is_finished()
    second = made.next_trial()
    assert (str(second), second.config, second.max_failures) == ("00000-1", {"width": 10}, 0)
    assert made.is_finished()
    second.set_status(second.ERROR)
    assert (searcher.told, records.read(0)) == ([], None)
    assert made.next_trial() is None
    assert made.is_finished()
    assert searcher.told == [("00000", None, True)]
    assert records.read(0)["status"] == "failed"


def test_a_trial_that_would_never_start_is_refused(local_ray):
    with pytest.raises(ValueError, match=r"`resources` ask for 3 'cpu' for a trial.*has 2"):
        sweep(resources={"cpu": 3})


def test_settings_that_a_running_ray_cannot_take_are_refused(local_ray):
    with pytest.raises(ValueError, match="`num_cpus` must be None for a Ray that is already"):
        connected(num_cpus=2).__enter__()
    with connected() as again:
        assert again is local_ray
    assert ray.is_initialized()
