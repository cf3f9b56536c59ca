"""What a forecaster leaves behind: nothing printed, logged or written that was not asked for."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from tests.estimators.frames import TINY, wide
from tests.estimators.lives import whole_life

ROOT = Path(__file__).parents[2]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    folder.chmod(0o755)


def read_only_folder(folder: Path) -> Path:
    """A folder where nobody, not even root, can make a file."""
    if os.geteuid() == 0:
        return Path("/proc")
    folder.chmod(0o555)
    return folder


@pytest.mark.parametrize("read_only", [False, True])
def test_silent_without_progress(
    empty_folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    read_only: bool,
) -> None:
    if read_only:
        monkeypatch.chdir(read_only_folder(empty_folder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole_life(tmp_path, progress=False)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert not [str(warning.message) for warning in caught]
    assert not list(empty_folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "work"]


def test_a_bar_on_the_error_stream_with_progress(
    empty_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole_life(tmp_path, progress=True)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "3/3" in printed.err
    assert "100%" in printed.err
    assert not list(empty_folder.iterdir())


LIFE = """
import hashlib
from pathlib import Path

from tests.estimators.lives import whole_life

whole_life(Path("../{number}"), progress=False)
print(hashlib.sha256(next(Path("../{number}/model").glob("model-*")).read_bytes()).hexdigest())
"""


def test_processes_side_by_side_write_nothing_at_home(empty_folder: Path, tmp_path: Path) -> None:
    """Two lives in one working directory, with a home and a folder for temporary files."""
    folders = {"HOME": tmp_path / "home", "TMPDIR": tmp_path / "temporary"}
    for folder in (*folders.values(), tmp_path / "0", tmp_path / "1"):
        folder.mkdir()
    # The first import of matplotlib lists the fonts of a machine, which is not our doing.
    environment = os.environ | {"MPLCONFIGDIR": str(tmp_path / "fonts")}
    environment |= {name: str(folder) for name, folder in folders.items()}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", LIFE.format(number=number)],
            env=environment | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    printed = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], printed
    assert [err for _, err in printed] == ["", ""]
    assert printed[0] == printed[1]
    assert list(empty_folder.iterdir()) == []
    for folder in folders.values():
        assert list(folder.rglob("*")) == []
    for number in "01":
        assert [path.name for path in (tmp_path / number).iterdir()] == ["model"]


# MLflow's own store uses what SQLAlchemy has deprecated.
STORE = "ignore:The ``noload`` loader strategy is deprecated"
VALUES = ("learning_rate", "train_loss", "validation_loss")


def fit_logged(folder: Path, *loggers: str, **parameters: Any) -> MLRForecaster:
    given = {"logger": loggers, "log_dir": folder, "early_stopping": True, **parameters}
    return MLRForecaster(**TINY | given).fit(wide())


def read_csv(folder: Path) -> dict[str, list[float]]:
    (file,) = folder.rglob("metrics.csv")
    read = pd.read_csv(file)
    return {name: read[name].dropna().tolist() for name in VALUES}


def read_tensorboard(folder: Path) -> dict[str, list[float]]:
    module = import_module("tensorboard.backend.event_processing.event_accumulator")
    (file,) = folder.rglob("events.out.tfevents.*")
    events = module.EventAccumulator(str(file)).Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in VALUES}


def read_mlflow(store: Path) -> dict[str, list[float]]:
    client = import_module("mlflow").MlflowClient(f"sqlite:///{store}")
    (experiment,) = client.search_experiments(filter_string="name = 'mlrforecast'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["max_steps"] == "3"
    number = run.info.run_id
    return {
        name: [entry.value for entry in client.get_metric_history(number, name)] for name in VALUES
    }


@pytest.fixture
def quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that printed, or that logged what would be shown."""
    yield
    assert capfd.readouterr() == ("", "")
    assert [record.message for record in caplog.records if record.levelno > 20] == []


@pytest.mark.filterwarnings(STORE)
@pytest.mark.usefixtures("quiet")
def test_each_logger_writes_the_losses_below_its_folder_alone(
    empty_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("tensorboard")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    logs = tmp_path / "logs"
    fitted = fit_logged(logs, "csv", "tensorboard", "mlflow")
    fitted.backtest(wide(), windows=1, refit=True)
    assert list(empty_folder.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"work", "logs"}
    # One run: the refits of a backtest are not logged.
    written = {path.name for path in logs.iterdir()}
    assert {"csv", "tensorboard", "mlflow.db"} <= written <= {*written, "mlflow"}
    found = [read_csv(logs), read_tensorboard(logs), read_mlflow(logs / "mlflow.db")]
    for values in found:
        assert {name: len(entries) for name, entries in values.items()} == dict.fromkeys(VALUES, 3)
        for name in VALUES:
            assert values[name] == pytest.approx(found[0][name], rel=1e-6)
    assert found[0]["learning_rate"] == pytest.approx([1e-3, 7.5e-4, 2.5e-4])


def test_a_second_run_is_logged_beside_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        fit_logged(tmp_path, "csv")
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == ["version_0", "version_1"]


def test_logging_changes_no_weight(tmp_path: Path) -> None:
    one = fit_logged(tmp_path, "csv").predict()
    other = MLRForecaster(**TINY, early_stopping=True).fit(wide()).predict()
    pd.testing.assert_frame_equal(one, other, check_exact=True)


@pytest.mark.filterwarnings(STORE)
@pytest.mark.usefixtures("quiet")
def test_mlflow_logs_where_the_environment_says(
    empty_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'server.db'}")
    fit_logged(tmp_path / "logs", "mlflow")
    assert [len(entries) for entries in read_mlflow(tmp_path / "server.db").values()] == [3, 3, 3]
    assert list(empty_folder.iterdir()) == []
    assert list((tmp_path / "logs").rglob("*")) == []


def test_checkpoints_are_written_below_their_folder_alone(
    empty_folder: Path, tmp_path: Path
) -> None:
    options = {"checkpoint_dir": tmp_path / "a" / "b"}
    fitted = MLRForecaster(**TINY | options).fit(wide())
    fitted.backtest(wide(), windows=1, refit=True)
    assert list(empty_folder.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"work", "a"}
    assert len(list((tmp_path / "a" / "b").iterdir())) == 2
