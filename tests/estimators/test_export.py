"""Exported programs: they say what predict says, anywhere, and nothing else is touched."""

import json
import os
import subprocess
import sys
from collections.abc import Container, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from mlrforecast import MLRForecaster
from mlrforecast.data.scaling import SCALINGS, Scaling, scale_windows
from mlrforecast.estimators import _export
from mlrforecast.models import EncoderConfig, EncoderForecaster
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide
from tests.estimators.test_covariates import LONG, long_frame, split
from tests.models.scores_by_name import FIELDS, NAMES

LOSSES = ("quantile", "mae", "mse", "normal", "student_t", "negative_binomial")
LEVELS = (0.1, 0.5, 0.9)
WITHOUT_ONNX = [name for name in ("onnxscript", "onnxruntime") if find_spec(name) is None]
NEEDS_ONNX = pytest.mark.skipif(bool(WITHOUT_ONNX), reason=f"{WITHOUT_ONNX} not installed")
ONNX = pytest.param("onnx", marks=[NEEDS_ONNX, pytest.mark.slow])


def forms(names: Iterable[str], often: Container[str]) -> list[Any]:
    """Every name with both formats; ONNX, which takes half a minute, for few of them in CI."""
    rare = [*ONNX.marks, pytest.mark.long]
    return [
        *(pytest.param(name, "torch") for name in names),
        *(
            pytest.param(name, "onnx", marks=ONNX.marks if name in often else rare)
            for name in names
        ),
    ]


def awkward() -> pd.DataFrame:
    """Columns with gaps, of a high level, constant, and observed once at the very end."""
    frame = wide(80, ("gaps", "high", "constant", "late"))
    frame.iloc[60:66, 0] = np.nan
    frame.iloc[-3:, 0] = np.nan
    frame["high"] += 1e9
    frame["constant"] = 7.1
    frame.iloc[:-1, 3] = np.nan
    return frame


def exported(forecaster: MLRForecaster, path: Path, inputs: dict[str, Tensor]) -> list[np.ndarray]:
    """Export to a path, and run what was exported."""
    if path.suffix == ".pt2":
        forecaster.export(path)
        found = torch.export.load(path).module()(**inputs)
        return [tensor.numpy() for tensor in found]
    forecaster.export(path, format="onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == list(inputs)
    found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    return list(found)


def assert_close(found: np.ndarray, wanted: np.ndarray, frame: Any, digits: float = 1e-13) -> None:
    """Compare to a share of the spread of a frame's values, or to the digits of a forecast."""
    spread = np.nanmax(frame.to_numpy(float), axis=0) - np.nanmin(frame.to_numpy(float), axis=0)
    bound = 1e-6 * np.maximum(spread, 1.0) + digits * np.nanmax(np.abs(wanted), axis=0)
    assert found.shape == wanted.shape
    assert (np.abs(found - wanted) <= bound).all()


def path_of(folder: Path, form: str) -> Path:
    return folder / f"forecaster{_export.SUFFIXES[form]}"


@pytest.mark.parametrize("scaling", [*SCALINGS, None])
def test_contexts_are_scaled_as_arrays_are(scaling: Scaling | None) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(6, 24, 3)) * [1.0, 1e-8, 1e8] + [0.0, 1e9, -3.0]
    values[0, :, 0] = 5.1
    values[1, :, 1] = 0.0
    values[2, :20] = np.nan
    values[3, :, 2] = np.nan
    values[4, 5:9] = np.nan
    values[5, 1:, 0] = 1.0
    tensor = torch.from_numpy(values)
    found = _export.scale_contexts(tensor.nan_to_num(0.0), ~tensor.isnan(), scaling)
    wanted = scale_windows(values, scaling)
    scaled = np.nan_to_num(wanted.values)
    np.testing.assert_allclose(found.values.numpy(), scaled, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.loc.numpy(), wanted.loc, rtol=1e-13)
    np.testing.assert_allclose(found.scale.numpy(), wanted.scale, rtol=1e-12)


@pytest.mark.parametrize(("loss", "form"), forms(LOSSES, {"quantile", "negative_binomial"}))
def test_every_loss_forecasts_as_predict_does(loss: str, form: str, tmp_path: Path) -> None:
    frame = awkward()
    if loss == "negative_binomial":
        frame = frame.abs().round()
    forecaster = MLRForecaster(**TINY, loss=loss, quantile_levels=LEVELS).fit(wide().abs().round())
    inputs = forecaster.export_inputs(frame)
    point, *details = exported(forecaster, path_of(tmp_path, form), inputs)
    assert point.dtype == np.float64
    # Counts are not scaled before they are float32.
    digits = 3e-7 if loss == "negative_binomial" else 1e-13
    assert_close(point[0], forecaster.predict(frame).to_numpy(), frame, digits)
    if loss in ("mae", "mse"):
        assert not details
    elif loss == "quantile":
        groups = forecaster.predict(frame, quantile_levels=LEVELS)
        for number, level in enumerate(LEVELS):
            wanted = groups.xs(f"{level}", axis=1, level=1).to_numpy()
            assert_close(details[0][0, ..., number], wanted, frame)
    else:
        made = forecaster._predictor.forecast(windows_of(forecaster, frame))
        for number in range(details[0].shape[-1]):
            assert_close(details[0][..., number], made.details[..., number], frame, digits)


def windows_of(forecaster: MLRForecaster, frame: pd.DataFrame) -> Any:
    panel, _ = forecaster._context(frame)
    extended = forecaster._extend(panel, None, PREDICTION)
    return forecaster._predictor.windows(extended, np.arange(len(panel)), panel.lengths)


@pytest.mark.parametrize(("name", "form"), forms(NAMES, {"standard", "mlr", "bilinear_btt"}))
@pytest.mark.usefixtures("seeded")
def test_every_score_takes_any_batch(name: str, form: str, tmp_path: Path) -> None:
    config = EncoderConfig(
        context_length=CONTEXT,
        prediction_length=PREDICTION,
        attention=name,
        width=8,
        num_heads=2,
        patch_length=4,
        patch_stride=2,
        **FIELDS[name],
    )
    model = EncoderForecaster(config).eval()
    path = path_of(tmp_path, form)
    _export.export(model, path, form)
    program = _export.ForecastProgram(model)
    generator = torch.Generator().manual_seed(0)
    for batch, channels in ((1, 1), (1, 3), (9, 1), (4, 5)):
        context = torch.randn(batch, CONTEXT, channels, generator=generator).double()
        context[:, :5, 0] = torch.nan
        wanted = program(context)
        for one, other in zip(wanted, run_file(path, context), strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def run_file(path: Path, context: Tensor) -> list[Tensor]:
    """Run an exported file on contexts."""
    if path.suffix == ".pt2":
        return list(torch.export.load(path).module()(context=context))
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return [torch.from_numpy(one) for one in session.run(None, {"context": context.numpy()})]


@pytest.mark.parametrize("form", ["torch", ONNX])
def test_covariates_and_short_series_are_read(form: str, tmp_path: Path) -> None:
    rows, future = split(long_frame())
    forecaster = MLRForecaster(**LONG).fit(rows)
    short = pd.concat([rows[rows["item_id"] == "z"].tail(9), rows[rows["item_id"] != "z"]])
    inputs = forecaster.export_inputs(short, future=future)
    names = ["context", "past_covariates", "known_covariates", "static_covariates", "calendar"]
    assert list(inputs) == names
    point, _ = exported(forecaster, path_of(tmp_path, form), inputs)
    wanted = forecaster.predict(short, future=future)["target"].to_numpy()
    assert_close(point.ravel(), wanted, short["target"])
    # They make a difference.
    changed = inputs | {"known_covariates": inputs["known_covariates"].flip(0)}
    assert not np.allclose(exported(forecaster, path_of(tmp_path, form), changed)[0], point)


def test_a_channel_without_values_has_no_forecast(on_wide: MLRForecaster, tmp_path: Path) -> None:
    inputs = on_wide.export_inputs()
    inputs["context"][..., 1] = torch.nan
    point, quantiles = exported(on_wide, tmp_path / "a.pt2", inputs)
    assert np.isnan(point[..., 1]).all()
    assert np.isnan(quantiles[..., 1, :]).all()
    assert_close(point[0, :, 0], on_wide.predict()["a"].to_numpy(), wide()["a"])


READ_TORCH = """
import json, sys, torch
inputs = torch.load(sys.argv[2])
point = torch.export.load(sys.argv[1]).module()(**inputs)[0]
print(json.dumps([point.tolist(), sorted(name for name in sys.modules if "mlrforecast" in name)]))
"""
READ_ONNX = """
import json, sys, numpy, onnxruntime
inputs = dict(numpy.load(sys.argv[2]))
point = onnxruntime.InferenceSession(sys.argv[1]).run(["point"], inputs)[0]
names = sorted(name for name in sys.modules if "mlrforecast" in name or name == "torch")
print(json.dumps([point.tolist(), names]))
"""


@pytest.mark.parametrize(
    ("form", "code"),
    [("torch", READ_TORCH), pytest.param("onnx", READ_ONNX, marks=NEEDS_ONNX)],
)
def test_another_program_needs_no_library_of_ours(
    form: str, code: str, on_wide: MLRForecaster, tmp_path: Path
) -> None:
    path, inputs = path_of(tmp_path, form), on_wide.export_inputs()
    given = tmp_path / ("inputs.pt" if form == "torch" else "inputs.npz")
    if form == "torch":
        torch.save(inputs, given)
    else:
        np.savez(given, **{name: tensor.numpy() for name, tensor in inputs.items()})
    on_wide.export(path, format=form)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(path), str(given)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    point, modules = json.loads(done.stdout)
    assert modules == []
    assert_close(np.array(point)[0], on_wide.predict().to_numpy(), wide())


@pytest.mark.parametrize("form", ["torch", ONNX])
def test_nothing_else_changes(
    form: str, on_wide: MLRForecaster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, forecast = on_wide.model_, on_wide.predict()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    learns = {name: value.requires_grad for name, value in model.named_parameters()}
    state = torch.get_rng_state()
    here = sorted(os.listdir())
    path = path_of(tmp_path, form)
    path.write_text("an older file")
    capfd.readouterr()
    on_wide.export(path, format=form)
    assert capfd.readouterr() == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert sorted(os.listdir()) == here
    assert model.training
    model.eval()
    assert any(learns.values())
    assert {name: value.requires_grad for name, value in model.named_parameters()} == learns
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    pd.testing.assert_frame_equal(on_wide.predict(), forecast)


@pytest.mark.parametrize("form", ["torch", ONNX])
def test_a_file_holds_no_data_and_no_paths(form: str, tmp_path: Path) -> None:
    frame = wide(columns=("sentinel_column", "b")).assign(b=31415.92653589793)
    forecaster = MLRForecaster(**TINY).fit(frame)
    path = path_of(tmp_path, form)
    forecaster.export(path, format=form)
    content = path.read_bytes()
    here = str(Path(_export.__file__).parents[2])
    for hidden in ("sentinel_column", "31415.9", here, Path.home().as_posix() + "/"):
        assert hidden.encode() not in content
    for kind in ("<f4", "<f8"):
        assert np.array(31415.92653589793).astype(kind).tobytes() not in content


@pytest.mark.parametrize(
    ("name", "form", "error", "message"),
    [
        ("a.onnx", "torch", ValueError, r"`path` must end in '.pt2'"),
        ("a.pt2", "onnx", ValueError, r"`path` must end in '.onnx'"),
        ("a.pt2", "tflite", ValueError, r"`format` must be one of torch, onnx, got 'tflite'"),
        ("no/a.pt2", "torch", FileNotFoundError, r"The folder of `path` does not exist"),
        ("folder.pt2", "torch", IsADirectoryError, r"`path` must be a file"),
    ],
)
def test_a_wrong_path_is_named(
    name: str,
    form: str,
    error: type[Exception],
    message: str,
    on_wide: MLRForecaster,
    tmp_path: Path,
) -> None:
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(error, match=message):
        on_wide.export(tmp_path / name, format=form)
    assert [file.name for file in tmp_path.iterdir()] == ["folder.pt2"]


def test_no_path_and_no_fit_are_refused(on_wide: MLRForecaster) -> None:
    with pytest.raises(TypeError, match="`path` must be a path, got None"):
        on_wide.export(None)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        MLRForecaster(**TINY).export("a.pt2")
    with pytest.raises(NotFittedError):
        MLRForecaster(**TINY).export_inputs()


def test_a_calibration_is_not_left_out_silently(tmp_path: Path) -> None:
    forecaster = MLRForecaster(**TINY).fit(wide()).calibrate(wide())
    with pytest.raises(ValueError, match="export before `calibrate`"):
        forecaster.export(tmp_path / "a.pt2")


class Moody(nn.Module):
    """A backbone whose path hangs on the values of its tokens."""

    def forward(self, tokens: Tensor, key_mask: Tensor | None) -> Tensor:
        return tokens if tokens.sum() > 0 else -tokens


def test_a_backbone_that_cannot_be_exported_says_so(tmp_path: Path) -> None:
    forecaster = MLRForecaster(**TINY, backbone=Moody()).fit(long())
    with pytest.raises(ValueError, match=r"cannot be exported with `format`='torch'"):
        forecaster.export(tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())
