"""What goes wrong in a sweep on Ray: nothing that has finished is lost, or run twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlrforecast._core.cluster import connected
from mlrforecast.tuning import TuneResult, tune
from mlrforecast.tuning._driver import Recorder
from mlrforecast.tuning._records import Records
from mlrforecast.tuning._worker import Sweep, blank_record
from tests.ray_cluster import REPOSITORY, RayCluster
from tests.tuning.driver_script import TRIALS, sweep
from tests.tuning.faulty import faulty, runs
from tests.tuning.small import frame

PATIENCE = 300.0


def finished(folder: Path) -> set[int]:
    """The trials of a sweep that have finished by now."""
    paths = (folder / "sweep" / "trials").glob("*.json")
    records = [json.loads(path.read_text()) for path in paths]
    return {record["number"] for record in records if record["status"] == "finished"}


def wait_until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited {PATIENCE:g} s until {what}"
        time.sleep(0.05)


def mid_sweep(folder: Path) -> bool:
    """Whether a trial has finished and another has left a checkpoint to go on from."""
    if not finished(folder):
        return False
    paths = (folder / "sweep" / "trials").glob("*.json")
    records = [json.loads(path.read_text()) for path in paths]
    return any(entry["status"] == "unfinished" and entry["checkpoint"] for entry in records)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> TuneResult:
    """The same sweep without a fault, and without Ray."""
    return sweep(None, tmp_path_factory.mktemp("expected"), executor="local")


def check(result: TuneResult, expected: TuneResult) -> None:
    """All trials have finished, with the scores of a sweep that nothing happened to."""
    assert result.trials["status"].eq("finished").all(), result.trials["error"].dropna().tolist()
    found, wanted = (each.trials.set_index("trial").sort_index() for each in (result, expected))
    assert list(found.index) == list(range(TRIALS))
    for name in ("score", "fold_1", "fold_2"):
        assert np.allclose(found[name], wanted[name], rtol=0, atol=1e-6)
    curves = [each.curves.sort_values(["trial", "iteration"]) for each in (result, expected)]
    assert np.allclose(curves[0], curves[1], rtol=0, atol=1e-6)


def test_a_worker_node_is_lost(cluster: RayCluster, tmp_path: Path, expected: TuneResult):
    number = next(n for n, node in enumerate(cluster.workers) if node is not None)
    seen: dict[int, int] = {}

    def kill() -> None:
        wait_until(lambda: mid_sweep(tmp_path), "the sweep was under way")
        seen.update((trial, runs(tmp_path / "notes")[trial]) for trial in finished(tmp_path))
        cluster.kill_worker(number)

    killer = threading.Thread(target=kill)
    killer.start()
    result = sweep(cluster.address, tmp_path)
    killer.join()
    cluster.add_worker()
    cluster.wait_for_workers()
    check(result, expected)
    again = runs(tmp_path / "notes")
    assert seen
    assert {trial: again[trial] for trial in seen} == seen
    # At most the one trial that ran on the lost node was begun twice.
    assert sum(again.values()) <= TRIALS + 1


@pytest.mark.parametrize("how", ["killed", pytest.param("interrupted", marks=pytest.mark.long)])
def test_the_driver_ends_and_the_sweep_goes_on(
    how: str, cluster: RayCluster, tmp_path: Path, expected: TuneResult
):
    address = cluster.address if how == "killed" else "local"
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.tuning.driver_script", address, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: mid_sweep(tmp_path) or driver.poll() is not None, "the sweep was under way")
    if how == "killed":
        driver.kill()
    else:
        # As a terminal does it: all processes of the group are told.
        os.killpg(driver.pid, signal.SIGINT)
    printed = driver.communicate(timeout=PATIENCE)[0]
    if how == "interrupted":
        assert driver.returncode == 1
        assert printed.startswith("interrupted: The sweep was stopped. tune(..., storage_path=")
        assert "resume=True) goes on with it." in printed
    else:
        assert (driver.returncode, printed) == (-signal.SIGKILL, "")
    done, before = finished(tmp_path), runs(tmp_path / "notes")
    assert done
    assert len(done) < TRIALS
    with connected(None if address == "local" else address):
        result = sweep(None, tmp_path, resume=True)
    check(result, expected)
    after = runs(tmp_path / "notes")
    assert all(after[trial] == before[trial] for trial in done)
    assert sorted(os.listdir(tmp_path)) == ["notes", "sweep"]


def test_each_trial_that_fails_says_why_and_runs_again(tmp_path: Path, capfd):
    faults = {1: "raise", 2: "kill", 3: "kill once", 4: "memory", 5: "disk", 6: "nan"}
    notes = tmp_path / "notes"
    options = {
        "num_samples": 1,
        "folds": 1,
        "windows": 3,
        "reports": 2,
        "refit": False,
        "progress": False,
        "max_failures": 1,
        "storage_path": tmp_path / "sweep",
    }
    space = {"seed": {"grid_search": list(range(7))}}
    first = tune(faulty(notes, faults), frame(), space, **options)
    trials = first.trials.set_index("trial").sort_index()
    assert [number for number, row in trials.iterrows() if row["status"] == "finished"] == [0, 3]
    assert (trials["status"].drop([0, 3]) == "failed").all()
    reasons = trials["error"]
    assert reasons[1] == "ArithmeticError: planted"
    assert "It was killed, or the machine had no memory left." in reasons[2]
    assert reasons[4].startswith("MemoryError")
    assert "File too large" in reasons[5]
    assert reasons[6].startswith("FloatingPointError")
    assert len(first.result_grid.errors) == 5
    # Who failed by an error of its own is not tried again; a process that died is, once. On a full
    # disk the trial cannot note its error, and counts as dead.
    counts = {0: 1, 1: 1, 2: 2, 3: 2, 4: 1, 5: 2, 6: 1}
    assert runs(notes) == counts

    again = tune(faulty(notes, {}), frame(), space, **options, resume=True)
    assert again.trials["status"].eq("finished").all()
    assert runs(notes) == {number: n + (number not in (0, 3)) for number, n in counts.items()}
    assert again.result_grid.num_terminated == 7
    assert capfd.readouterr() == ("", "")


def test_records_that_a_full_disk_refuses_are_written_later(tmp_path: Path, monkeypatch):
    records = Records(str(tmp_path))
    given = Sweep(records=records, filesystem=None, root="", session="this", replay=False)
    records.write(0, blank_record(0, {"width": 8}, "this"))
    recorder = Recorder(given)

    stopped = SimpleNamespace(
        trial_id="00000",
        config={"width": 8},
        last_result={"iteration": 1, "fold": 1, "score": 0.5, "time_total_s": 2.0},
    )

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(records, "write", full)
        recorder.record_stop(stopped)
        recorder.write_again()
        assert records.read(0)["status"] == "unfinished"
    recorder.write_again()
    found = records.read(0)
    assert (found["status"], found["score"], found["seconds"]) == ("stopped", 0.5, 2.0)
    assert found["curve"] == [{"iteration": 1, "fold": 1, "score": 0.5}]
