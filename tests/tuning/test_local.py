"""Sweeps without Ray: what they find, what they refuse, what survives."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError, TuningError
from mlrforecast.tuning import TuneResult, tune
from mlrforecast.tuning import _local as local_module
from mlrforecast.tuning._records import Records
from tests.tuning.small import HORIZON, SPACE, forecaster, frame


def sweep(space: Any = SPACE, **options: Any) -> TuneResult:
    settings: dict[str, Any] = {
        "num_samples": 2,
        "folds": 2,
        "windows": 3,
        "reports": 2,
        "executor": "local",
        "progress": False,
    }
    settings |= options
    base = settings.pop("base", None) or forecaster()
    return tune(base, settings.pop("X", frame()), space, **settings)


@pytest.fixture(scope="module")
def result() -> TuneResult:
    return sweep()


def test_every_configuration_is_a_row_and_the_best_comes_first(result):
    trials = result.trials
    assert sorted(trials["trial"]) == [0, 1, 2, 3]
    assert sorted(trials["learning_rate"].unique()) == [1e-3, 1e-2]
    assert trials["score"].is_monotonic_increasing
    assert (trials["status"] == "finished").all()
    assert np.allclose(trials["score"], trials[["fold_1", "fold_2"]].mean(axis=1))
    assert (trials["iterations"] == 4).all()
    assert result.best_score == trials["score"].min()
    assert result.best_config == trials.loc[0, ["learning_rate", "dropout"]].to_dict()
    assert result.result_grid is None
    ends = result.curves.groupby("trial").last()["score"]
    assert ends.to_dict() == trials.set_index("trial")["score"].to_dict()


def test_the_best_estimator_is_fitted_on_the_whole_frame(result):
    again = forecaster(**result.best_config).fit(frame())
    found = result.best_estimator
    assert found.predict().equals(again.predict())
    assert found.predict().index[0] == frame().index[-1] + frame().index.freq


def test_a_trial_scores_as_a_backtest_with_refits(result):
    row = result.trials.iloc[0]
    config = {name: row[name] for name in ("learning_rate", "dropout")}
    # The context is derived from the rows before the older fold, and must be the same in both.
    base = forecaster(context_length=20)
    found = sweep({name: [value] for name, value in config.items()}, num_samples=1, base=base)
    fitted = forecaster(context_length=20, **config).fit(frame())
    backtest = fitted.backtest(frame(), windows=6, step=HORIZON, refit=3)
    by_cutoff = backtest.scores(by="cutoff")["MASE"].to_numpy()
    assert found.best_score == pytest.approx(by_cutoff.mean(), rel=1e-6)


def test_the_given_estimator_and_frame_stay_as_they_are():
    base, data = forecaster(), frame()
    before = dict(base.get_params())
    sweep({"learning_rate": [1e-2]}, num_samples=1, base=base, X=data)
    assert base.get_params() == before
    assert not hasattr(base, "model_")
    assert data.equals(frame())


def test_processes_give_the_same_trials_and_scores(result):
    several = sweep(max_concurrent=2)
    columns = ["trial", "score", "fold_1", "fold_2", "learning_rate", "dropout"]
    expected = result.trials[columns].sort_values("trial", ignore_index=True)
    found = several.trials[columns].sort_values("trial", ignore_index=True)
    assert found.drop(columns=["score", "fold_1", "fold_2"]).equals(
        expected.drop(columns=["score", "fold_1", "fold_2"])
    )
    scores = ["score", "fold_1", "fold_2"]
    np.testing.assert_allclose(found[scores], expected[scores], rtol=1e-6)


def test_refit_can_be_declined():
    declined = sweep({"learning_rate": [1e-2]}, num_samples=1, refit=False)
    assert not hasattr(declined.best_estimator, "model_")
    assert declined.best_estimator.learning_rate == 1e-2


def test_horizons_have_a_best_estimator_each():
    space = {"prediction_length": {"grid_search": [2, 5]}, "learning_rate": [1e-3, 1e-2]}
    found = sweep(space)
    assert sorted(found.best_estimators) == [2, 5]
    assert [len(found.best_estimators[length].predict()) for length in (2, 5)] == [2, 5]
    with pytest.raises(ValueError, match=r"prediction lengths \[2, 5\]"):
        _ = found.best_estimator


def test_a_trial_that_fails_is_a_row_with_its_reason():
    space = {"learning_rate": {"grid_search": [1e-3, 1e30]}}
    found = sweep(space, num_samples=1, base=forecaster(max_steps=30, gradient_clip=None))
    failed = found.trials[found.trials["status"] == "failed"]
    assert failed["learning_rate"].tolist() == [1e30]
    assert failed["error"].iloc[0].startswith("FloatingPointError: Training diverged")
    assert failed["score"].isna().all()
    assert repr(found).endswith("finished: 1, stopped: 0, failed: 1, metric: MASE)")


def test_a_sweep_without_a_finished_trial_says_what_happened():
    with pytest.raises(
        TuningError, match=r"No trial finished \(2 failed\); trial 0 with learning_rate=1e\+30: F"
    ):
        sweep({"learning_rate": [1e30]}, base=forecaster(max_steps=30, gradient_clip=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "`num_samples` must be at least 1, got 0"),
        ({"folds": 0}, "`folds` must be at least 1"),
        ({"metric": "RMSSE"}, "`metric` must be one of MASE, .*, got 'RMSSE'"),
        ({"executor": "dask"}, "`executor` must be one of ray, local, got 'dask'"),
        ({"scheduler": "asha"}, r"`scheduler`='asha' needs executor='ray'"),
        ({"searcher": "optuna"}, r"`searcher`='optuna' needs executor='ray'"),
        ({"resources": {"gpu": 1}}, "`resources` of executor='local' must hold 'cpu' alone"),
        ({"resources": {"cpu": -1}}, "`resources` must not be negative"),
        ({"max_time": 0}, "`max_time` must be positive"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"resume": True}, "`resume` needs the `storage_path`"),
        ({"address": "auto"}, "`storage_path` is needed with `address`='auto'"),
        ({"metric": "CRPS", "base": forecaster(loss="mse")}, "`metric`='CRPS' needs quantiles"),
        ({"space": {"num_heads": [3]}}, r"cannot be used, \{'num_heads': 3\}: `num_heads` must"),
        ({"space": {"widht": [8]}}, "Did you mean 'width'"),
        ({"space": "nothing"}, "`space` must be a preset, .*, got 'nothing'"),
        ({"folds": 50}, "folds=50 of 3 windows, 4 rows apart, need a series of"),
    ],
)
def test_bad_arguments_are_refused_before_any_training(monkeypatch, options, message):
    monkeypatch.setattr(local_module, "run_trial", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises((ValueError, DataError), match=message):
        sweep(**options)


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        sweep(storage_path=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_nothing_is_written_that_was_not_asked_for(tmp_path, capfd):
    sweep({"learning_rate": [1e-2]}, num_samples=1, storage_path=tmp_path / "sweep")
    names = sorted(path.name for path in (tmp_path / "sweep").rglob("*"))
    assert names == ["00000.json", "sweep.json", "trials"]
    assert capfd.readouterr() == ("", "")


def test_resume_keeps_what_finished_and_runs_what_failed(tmp_path, monkeypatch):
    calls: list[int] = []
    real = local_module.run_trial

    def failing(task: Any, config: Any, report: Any, *, folder: Path) -> Any:
        calls.append(int(folder.name))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(task, config, report, folder=folder)

    monkeypatch.setattr(local_module, "run_trial", failing)
    path = tmp_path / "sweep"
    with pytest.raises(KeyboardInterrupt, match=r"storage_path=.*sweep', resume=True\) goes on"):
        sweep(storage_path=path)
    assert calls == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"is not empty.*resume=True"):
        sweep(storage_path=path)
    found = sweep(storage_path=path, resume=True)
    assert calls == [0, 1, 2, 3, 1, 3]
    assert (found.trials["status"] == "finished").all()
    whole = sweep()
    columns = ["trial", "score", "learning_rate", "dropout"]
    assert found.trials[columns].equals(whole.trials[columns])
    assert sorted(name.name for name in path.iterdir()) == ["sweep.json", "trials"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "settings.seed was 0 and is 1"),
        ({"num_samples": 1}, "settings.num_samples was 2 and is 1"),
        ({"space": {"dropout": [0.0]}}, "space"),
        ({"base": forecaster(width=16)}, "forecaster.width was '8' and is '16'"),
        ({"X": frame() + 1}, "data was"),
    ],
)
def test_resume_needs_the_same_sweep(tmp_path, changes, message):
    sweep({"dropout": [0.0, 0.1]}, storage_path=tmp_path / "sweep", num_samples=2)
    options = {"space": {"dropout": [0.0, 0.1]}, "num_samples": 2} | changes
    with pytest.raises(
        ValueError, match=f"`resume` needs the sweep as it was begun, but {message}"
    ):
        sweep(**options, storage_path=tmp_path / "sweep", resume=True)


def test_resume_may_ask_for_more_trials(tmp_path, monkeypatch):
    path = tmp_path / "sweep"
    few = sweep(storage_path=path, num_samples=1)
    trained: list[int] = []
    real = local_module.run_trial

    def counting(*args: Any, folder: Path) -> Any:
        trained.append(int(folder.name))
        return real(*args, folder=folder)

    monkeypatch.setattr(local_module, "run_trial", counting)
    more = sweep(storage_path=path, num_samples=2, resume=True)
    assert trained == [2, 3]
    assert len(few.trials) == 2
    columns = ["trial", "score", "learning_rate", "dropout"]
    whole = sweep(num_samples=2)
    assert more.trials[columns].equals(whole.trials[columns])


def test_resume_needs_a_sweep(tmp_path):
    with pytest.raises(ValueError, match=r"has no sweep\.json"):
        sweep(storage_path=tmp_path / "nothing", resume=True)


SCRIPT = """
    import os, signal, sys
    from mlrforecast.tuning import _local
    from tests.tuning.test_local import sweep
    from tests.tuning.small import frame

    real, path, victim = _local.run_trial, sys.argv[1], sys.argv[2]

    def traced(task, config, report, *, folder):
        with open(path + ".log", "a") as log:
            log.write(folder.name + "\\n")
        def report_or_die(found):
            report(found)
            if folder.name == victim and found.iteration == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        return real(task, config, report_or_die, folder=folder)

    _local.run_trial = traced
    sweep(storage_path=path, resume=os.path.exists(path))
"""


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    """The trial that was under way goes on from its last report."""
    path = tmp_path / "sweep"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(victim: str) -> int:
        command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), victim]
        return subprocess.run(command, env=environment, check=False).returncode

    assert run("00002") == -signal.SIGKILL
    assert run("none") == 0
    lines = Path(f"{path}.log").read_text().split()
    assert lines == ["00000", "00001", "00002", "00002", "00003"]
    records = Records(str(path)).all()
    assert [record["status"] for record in records] == ["finished"] * 4
    whole = sweep().trials.set_index("trial")["score"]
    assert {entry["number"]: entry["score"] for entry in records} == whole.to_dict()


@pytest.mark.parametrize("max_concurrent", [1, 2])
def test_no_trial_begins_after_the_longest_time(max_concurrent):
    with pytest.raises(TuningError, match="none was started"):
        sweep(max_time=1e-9, max_concurrent=max_concurrent)


def test_a_process_that_dies_costs_no_other_trial(tmp_path):
    """The trial that kills its process is recorded, and the others finish."""
    code = """
        import os, signal, sys
        from mlrforecast.tuning import _trial
        from mlrforecast.estimators.folds import FoldScorer
        from tests.tuning.small import SPACE
        from tests.tuning.test_local import KillerForecaster, sweep

        result = sweep(SPACE, base=KillerForecaster.small(), max_concurrent=2, num_samples=2)
        dead = result.trials[result.trials["status"] == "failed"]
        assert dead["error"].str.contains("was killed").all(), dead["error"].tolist()
        assert set(dead["learning_rate"]) == {1e-2}, dead
        assert (result.trials["status"] == "finished").sum() == 2
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, env=environment, check=True, cwd=tmp_path)


class KillerForecaster(MLRForecaster):
    """Kills its process where a trial with the larger learning rate begins."""

    @classmethod
    def small(cls) -> "KillerForecaster":
        return cls(**forecaster().get_params())

    def check_parameters(self) -> None:
        super().check_parameters()
        if multiprocessing.parent_process() is not None and self.learning_rate == 1e-2:
            os.kill(os.getpid(), signal.SIGKILL)


def test_distributions_of_scipy_are_drawn_from():
    found = sweep({"learning_rate": stats.loguniform(1e-3, 1e-2)}, num_samples=3)
    assert found.trials["learning_rate"].between(1e-3, 1e-2).all()
    assert found.trials["learning_rate"].nunique() == 3


def test_ray_is_not_imported(tmp_path):
    code = """
        import sys
        sys.modules["ray"] = None
        from tests.tuning.test_local import sweep
        assert len(sweep(None, num_samples=1).trials) == 1
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, env=environment, check=True, cwd=tmp_path)


def test_sweeps_without_ray_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.tune", None)
    with pytest.raises(ImportError, match=r"A sweep on Ray needs .*mlrforecast\[tune\]"):
        sweep(executor="ray")
