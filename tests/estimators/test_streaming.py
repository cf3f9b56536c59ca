"""A forecaster on files does to the bit what it does on the frame that they hold."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import FileDataset, _pieces, _storage
from mlrforecast.estimators import _training
from tests.estimators.frames import CONTEXT, PREDICTION, TINY

pytest.importorskip("pyarrow")

COVARIATES: dict[str, Any] = {
    "past_covariates": ["wind"],
    "known_covariates": ["price", "promo"],
    "static_covariates": ["size"],
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pieces, "ROWS", 150)
    monkeypatch.setattr(_storage, "BLOCK", 200)


def rows_of(num_series: int = 9, rows: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for number in range(num_series):
        count = rows or int(rng.integers(50, 120))
        wave = np.sin(np.arange(count) / 4 + number) + rng.normal(size=count) / 8
        wave[rng.random(count) < 0.05] = np.nan
        parts.append(
            pd.DataFrame(
                {
                    "item_id": f"s{number}",
                    "timestamp": pd.date_range("2024-03-01", periods=count, freq="h"),
                    "target": 10 * number + wave,
                    "wind": rng.normal(size=count),
                    "price": rng.normal(size=count),
                    "promo": rng.choice(["z", "b", "a"][: 1 + number % 3], size=count),
                    "size": float(number),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def plain_rows(**options: Any) -> pd.DataFrame:
    return rows_of(**options)[["item_id", "timestamp", "target"]]


def written(frame: pd.DataFrame, folder: Path, name: str = "x.parquet") -> FileDataset:
    folder.mkdir(exist_ok=True)
    frame.to_parquet(folder / name)
    return FileDataset(folder / name, scratch_dir=folder)


def assert_same_fit(one: MLRForecaster, other: MLRForecaster) -> None:
    weights = one.model_.state_dict(), other.model_.state_dict()
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert one.encoding_ == other.encoding_
    assert one.config_ == other.config_
    assert (one.freq_, one.num_steps_) == (other.freq_, other.num_steps_)
    np.testing.assert_array_equal(one.dependence_, other.dependence_)
    assert one.feature_names_in_.tolist() == other.feature_names_in_.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        COVARIATES,
        COVARIATES | {"early_stopping": True, "scaling": "robust"},
        {"target": "target", "loss": "student_t", "fill": "missing", "batch_size": "auto"},
    ],
    ids=["plain", "covariates", "early stopping", "filled"],
)
def test_a_fit_on_files_ends_with_the_same_weights(options: dict[str, Any], tmp_path: Path) -> None:
    frame = rows_of() if len(options) > 1 else plain_rows()
    if "fill" in options:
        frame = frame.drop(index=frame.index[7::11])
    forecasters = [
        MLRForecaster(**TINY | options).fit(X) for X in (frame, written(frame, tmp_path))
    ]
    assert_same_fit(*forecasters)
    assert os.listdir(tmp_path) == ["x.parquet"]


def test_a_fit_goes_on_on_files(tmp_path: Path) -> None:
    frame = plain_rows()
    one, other = (MLRForecaster(**TINY).fit(frame) for _ in range(2))
    newer = plain_rows(num_series=4)
    assert_same_fit(one.partial_fit(newer), other.partial_fit(written(newer, tmp_path)))


def test_forecasts_from_files_are_those_from_the_frame(tmp_path: Path) -> None:
    frame = rows_of()
    places = frame.groupby("item_id").cumcount(ascending=False)
    history, future = frame[places >= PREDICTION], frame[places < PREDICTION]
    dataset = written(history, tmp_path)
    forecaster = MLRForecaster(**TINY | COVARIATES).fit(dataset)
    for call in (forecaster.predict, forecaster.predict_samples):
        options = {"quantile_levels": [0.1, 0.9]} if call == forecaster.predict else {}
        expected = call(history, future=future, **options)
        pd.testing.assert_frame_equal(call(dataset, future=future, **options), expected)
    backtest = forecaster.backtest(dataset, windows=2, step=3)
    pd.testing.assert_series_equal(
        backtest.scores(), forecaster.backtest(history, windows=2, step=3).scores()
    )


@pytest.mark.parametrize("method", ["split", "rolling"])
def test_a_calibration_on_files_is_that_of_the_frame(method: str, tmp_path: Path) -> None:
    frame = plain_rows(rows=100)
    older = frame[frame.groupby("item_id").cumcount() < 90]
    made = []
    for number, (past, now) in enumerate(
        [(older, frame), (written(older, tmp_path / "a"), written(frame, tmp_path / "b"))]
    ):
        forecaster = MLRForecaster(**TINY).fit(older).calibrate(past, method=method, windows=3)
        made.append(forecaster.predict(now, quantile_levels=[0.1, 0.9]))
        assert forecaster.calibration_.num_windows == 3, number
    pd.testing.assert_frame_equal(*made)


def test_a_forecast_reads_the_newest_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = written(plain_rows(), tmp_path)
    forecaster = MLRForecaster(**TINY).fit(dataset)
    monkeypatch.setattr(_storage.Disk, "file", lambda self: pytest.fail("a scratch file"))
    assert len(forecaster.predict(dataset)) == 9 * PREDICTION


def test_no_context_is_kept_of_files_and_messages_say_so(tmp_path: Path) -> None:
    frame = plain_rows()
    forecaster = MLRForecaster(**TINY).fit(written(frame, tmp_path))
    assert forecaster.context_ is None
    with pytest.raises(ValueError, match="fitted on a FileDataset"):
        forecaster.predict()
    with pytest.raises(ValueError, match="fitted on a FileDataset"):
        forecaster.save(tmp_path / "model", with_context=True)
    forecaster.save(tmp_path / "model")
    loaded = MLRForecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    assert "FileDataset" not in repr(loaded)


def test_a_checkpoint_of_a_frame_serves_the_files_that_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = rows_of()
    parameters = TINY | COVARIATES | {"checkpoint_dir": tmp_path / "kept"}
    first = MLRForecaster(**parameters).fit(frame)
    monkeypatch.setattr("mlrforecast.training.run._run", lambda *given: pytest.fail("trained anew"))
    assert_same_fit(MLRForecaster(**parameters).fit(written(frame, tmp_path)), first)


def test_scratch_files_count_as_no_memory(tmp_path: Path) -> None:
    frame = plain_rows(rows=400)
    forecaster = MLRForecaster(**TINY)
    of_frame, of_files = (forecaster.estimate_memory(X) for X in (frame, written(frame, tmp_path)))
    assert of_frame.activations == of_files.activations
    assert of_frame.data - of_files.data == 4 * len(frame) + _calendar_bytes(forecaster, frame)


def _calendar_bytes(forecaster: MLRForecaster, frame: pd.DataFrame) -> int:
    """The seconds of the clock of each row, if there are features of the calendar."""
    return 8 * len(frame) * bool(forecaster.fit(frame).encoding_.cycles)


def test_several_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`devices` must be 1 for a FileDataset, got 2"):
        MLRForecaster(**TINY | {"devices": 2}).fit(written(plain_rows(), tmp_path))


def test_counts_are_checked_in_every_block(tmp_path: Path) -> None:
    frame = plain_rows()
    frame["target"] = frame["target"].fillna(0).abs().round()
    frame.loc[600, "target"] = 0.5
    messages = []
    for X in (frame, written(frame, tmp_path)):
        with pytest.raises(DataError, match="needs counts") as caught:
            MLRForecaster(**TINY | {"loss": "negative_binomial"}).fit(X)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "0.5" in messages[0]


def test_an_interrupted_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = written(plain_rows(), tmp_path)
    forecaster = MLRForecaster(**TINY)

    def interrupt(*given: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    for place, name in ((_storage._InFile, "add"), (_training, "fit_panel")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                forecaster.fit(dataset)
        assert os.listdir(tmp_path) == ["x.parquet"]
        assert not hasattr(forecaster, "model_")


def test_reading_is_shown_where_a_terminal_watches(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = written(plain_rows(), tmp_path)
    forecaster = MLRForecaster(**TINY).fit(dataset)
    assert capfd.readouterr() == ("", "")
    forecaster.set_params(progress=True).predict(dataset)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    forecaster.predict(dataset)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert re.search(rf"Reading: 100%.* {len(plain_rows())}/{len(plain_rows())} ", shown.err)
    forecaster.set_params(progress=False).predict(dataset)
    assert capfd.readouterr() == ("", "")
    assert forecaster.context_length_ == CONTEXT
