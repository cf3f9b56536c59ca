"""What a forecaster leaves behind: nothing printed, logged or written that was not asked for."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlrforecast import MLRForecaster
from tests.estimators.frames import TINY, wide


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    folder.chmod(0o755)


def whole_life(progress: bool, folder: Path) -> None:
    fitted = MLRForecaster(**TINY | {"progress": progress}).fit(wide())
    fitted.predict(), fitted.score(wide()), fitted.backtest(wide(), step=1)
    fitted.save(folder / "model")
    MLRForecaster.load(folder / "model").predict(wide())


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
        whole_life(False, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    assert not [str(warning.message) for warning in caught]
    assert not list(empty_folder.iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "work"]


def test_a_bar_on_the_error_stream_with_progress(
    empty_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole_life(True, tmp_path)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "3/3" in printed.err
    assert "100%" in printed.err
    assert not list(empty_folder.iterdir())
