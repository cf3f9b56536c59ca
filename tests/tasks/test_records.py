"""What is kept of runs: models that are read back or refused, tables, and what hardware can do."""

import json

import pytest
import torch

from mlrforecast._core.errors import ModelFileError
from mlrforecast.tasks import peak_flops, read_results
from mlrforecast.tasks.in_context_regression import load_regressor, train
from mlrforecast.tasks.language_model import load_language_model


@pytest.fixture
def folder(run, cpu, tmp_path):
    train(run, out=tmp_path, execution=cpu)
    [found] = (tmp_path / "models").iterdir()
    return found


def test_a_model_of_another_task_is_refused(folder):
    with pytest.raises(ModelFileError, match="is one of 'in_context_regression', not of 'lang"):
        load_language_model(folder)


def test_altered_weights_are_refused(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="was altered, or is of another version"):
        load_regressor(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_model_is_refused(folder, name, damage):
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"[1, 2]")
    with pytest.raises(ModelFileError, match="holds no model of a task that can be read"):
        load_regressor(folder)


def test_a_model_of_a_later_version_is_refused(folder):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": "mlrforecast 9"}))
    with pytest.raises(ModelFileError, match="another version"):
        load_regressor(folder)


@pytest.mark.parametrize("changed", [{"width": 16}, {"depth": 1}, {"qk_norm": 3}])
def test_settings_that_are_not_those_of_the_weights_are_refused(folder, changed):
    path = folder / "config.json"
    document = json.loads(path.read_text())
    document["run"] |= changed
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match="are not those of its weights"):
        load_regressor(folder)


def test_reading_a_model_draws_nothing(folder):
    before = torch.get_rng_state()
    load_regressor(folder)
    assert torch.equal(before, torch.get_rng_state())


def test_a_line_that_was_cut_off_is_trained_again(run, cpu, tmp_path):
    train(run, out=tmp_path, execution=cpu)
    path = tmp_path / "runs.csv"
    path.write_bytes(path.read_bytes()[:-20])
    [result] = train(run, out=tmp_path, execution=cpu, resume=True)
    runs, curves = read_results(tmp_path)
    assert runs["score"].tolist() == [result.score]
    assert len(curves) == 4


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("runs.csv", '""width"": 8', '""width"": 8x', "Line 2 of runs.csv"),
        ("curves.csv", '""mean_error""', '"mean_error""', "A line of curves.csv"),
    ],
)
def test_a_line_that_was_damaged_is_named(run, cpu, tmp_path, name, old, new, where):
    train(run, out=tmp_path, execution=cpu)
    path = tmp_path / name
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=f"{where} is damaged .* hash '{run.hash}'"):
        read_results(tmp_path)


def test_a_folder_without_results_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no results: there is no runs\.csv"):
        read_results(tmp_path)


def test_results_of_something_else_are_not_written_to(run, cpu, tmp_path):
    (tmp_path / "curves.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"curves\.csv is not a result file"):
        train(run, out=tmp_path, execution=cpu)
    assert [path.name for path in tmp_path.iterdir()] == ["curves.csv"]


def test_the_share_of_the_peak_is_that_of_the_card():
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("Intel(R) Xeon(R)") is None
