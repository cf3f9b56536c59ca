"""Presets: what the names stand for."""

import dataclasses

import numpy as np
import pytest

from mlrforecast.data import load_card, load_dataset
from mlrforecast.tuning import presets
from mlrforecast.tuning._space import check_space, draw


@pytest.mark.parametrize("name", presets)
def test_every_configuration_of_a_preset_can_be_trained(name):
    preset = presets[name]
    forecaster = preset.forecaster()
    check_space(preset.space, forecaster)
    for config in draw(preset.space, preset.options["num_samples"], 0):
        preset.forecaster(**config).check_parameters()
    assert not preset.space.keys() & preset.settings.keys() - {"prediction_length"}
    targets = [column.name for column in load_card(preset.dataset).columns]
    assert set(preset.target or ()) <= set(targets)


def test_the_grid_of_the_paper_is_the_one_of_the_paper():
    preset = presets["paper-etth1"]
    configs = draw(preset.space, preset.options["num_samples"], 0)
    assert len(configs) == 18
    for name, values in {
        "learning_rate": {1e-5, 2e-4, 5e-3},
        "max_steps": {200, 1000},
        "prediction_length": {96, 192, 336},
    }.items():
        assert {config[name] for config in configs} == values
    forecaster = preset.forecaster()
    assert (forecaster.width, forecaster.num_heads, forecaster.num_layers) == (512, 8, 2)
    assert preset.target == ("OT",)


def test_changes_take_the_place_of_the_settings():
    forecaster = presets["paper-etth1"].forecaster(width=64, attention="standard")
    assert (forecaster.width, forecaster.attention, forecaster.num_heads) == (64, "standard", 8)


@pytest.mark.parametrize("name", presets)
def test_presets_cannot_be_changed(name):
    with pytest.raises(TypeError):
        presets[name].space["width"] = [8]
    with pytest.raises(TypeError):
        presets["mine"] = presets[name]


@pytest.mark.parametrize("target", [None, ("load_2",)])
def test_the_rows_of_the_test_are_not_there(target):
    dataset = load_dataset("synthetic")
    preset = dataclasses.replace(presets["etth1"], dataset="synthetic", target=target)
    frame = preset.load()
    assert list(frame.columns) == list(target or dataset.target_columns)
    assert frame.index[-1] == dataset.validation.index[-1] < dataset.test.index[0]
    train = frame.loc[dataset.train.index]
    np.testing.assert_allclose(train.mean(), 0, atol=1e-12)
    np.testing.assert_allclose(train.std(ddof=0), 1)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "columns"), [("etth1", 7), ("paper-etth1", 1)])
def test_the_rows_of_etth1_are_those_before_the_test(name, columns):
    frame = presets[name].load(download=False)
    assert frame.shape == (16 * 30 * 24, columns)
