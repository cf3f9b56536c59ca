"""Spaces: what may stand in one, what is drawn, and the default one."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mlrforecast import MLRForecaster
from mlrforecast.data import read_panel
from mlrforecast.tuning import _space, default_space
from mlrforecast.tuning._space import check_space, describe, draw, to_ray

FORECASTER = MLRForecaster(prediction_length=24)


@pytest.fixture(scope="module")
def tune():
    """Ray's module of domains, where it is installed."""
    return pytest.importorskip("ray.tune")


@pytest.fixture(scope="module")
def panel():
    """A month and a half of hours."""
    index = pd.date_range("2024-01-01", periods=1000, freq="h")
    return read_panel(pd.DataFrame({"load": np.arange(1000) % 24.0}, index=index))


@pytest.mark.parametrize(
    ("space", "error", "message"),
    [
        ([1, 2], TypeError, "must be a mapping of names of parameters"),
        ({}, ValueError, "must name at least one parameter"),
        ({"widht": [1]}, ValueError, "got 'widht'. Did you mean 'width'?"),
        ({3: [1]}, ValueError, "must name parameters of MLRForecaster, got 3."),
        ({"width": 32}, TypeError, r"`space\['width'\]` must be a list of values, "),
        ({"width": "[8, 16]"}, TypeError, "is set on the forecaster"),
        ({"width": {"grid": [1]}}, TypeError, "must be a list of values, "),
        ({"width": []}, ValueError, "must hold at least one value, got none"),
        ({"width": np.array([])}, ValueError, "must hold at least one value"),
        ({"width": {"grid_search": []}}, ValueError, "must hold at least one value"),
        ({"width": {"grid_search": 8}}, TypeError, "must hold a list of values, got 8"),
        ({"width": {"grid_search": "8"}}, TypeError, "must hold a list of values, got '8'"),
        ({"max_time": [pd.Timedelta("1h")]}, TypeError, "must hold numbers, text, "),
        ({"attention_options": [{3: 1}]}, TypeError, "must hold numbers, text, "),
        ({"prediction_length": [24, 48]}, ValueError, "must be a grid such as"),
    ],
)
def test_what_is_no_space_is_refused(space, error, message):
    with pytest.raises(error, match=message):
        check_space(space, FORECASTER)


@pytest.mark.parametrize("name", sorted(_space._REFUSED))
def test_parameters_in_which_trials_must_not_differ_are_refused(name):
    with pytest.raises(ValueError, match=f"must not name '{name}': .+ Set it on the forecaster"):
        check_space({name: [1, 2]}, FORECASTER)


def test_every_refused_name_is_a_parameter():
    assert set(FORECASTER.get_params(deep=False)) >= _space._REFUSED.keys()


SPACE = {
    "learning_rate": stats.loguniform(1e-4, 1e-2),
    "width": [16, 32],
    "ranks": [(2, 1, 1), None],
    "max_steps": {"grid_search": [1, 2, 3]},
    "batch_size": stats.randint(4, 9),
    "prediction_length": {"grid_search": [24, 48]},
    "dropout": stats.uniform(0.1, 0.3),
}


def test_a_draw_is_what_the_space_says():
    check_space(SPACE, FORECASTER)
    configs = draw(SPACE, 20, seed=0)
    assert len(configs) == 20 * 3 * 2
    assert all([*config] == [*SPACE] for config in configs)
    first = [(config["max_steps"], config["prediction_length"]) for config in configs[:7]]
    assert first == [(1, 24), (2, 24), (3, 24), (1, 48), (2, 48), (3, 48), (1, 24)]
    for config in configs:
        assert 1e-4 <= config["learning_rate"] <= 1e-2
        assert 0.1 <= config["dropout"] <= 0.4
        assert config["width"] in (16, 32)
        assert config["ranks"] in ([2, 1, 1], None)
        assert config["batch_size"] in range(4, 9)
    for name in ("learning_rate", "dropout"):
        assert len({config[name] for config in configs}) == len(configs)
    for name in ("width", "batch_size"):
        assert type(configs[0][name]) is int
    rates = np.log10([config["learning_rate"] for config in configs])
    assert abs(rates.mean() + 3) < 0.15


def test_a_draw_is_repeated_and_is_json():
    configs = draw(SPACE, 3, seed=7)
    assert draw(SPACE, 3, seed=7) == configs
    assert draw(SPACE, 3, seed=8) != configs
    assert json.loads(json.dumps(configs)) == configs


def test_more_samples_begin_with_the_same_ones():
    assert draw(SPACE, 2, seed=0) == draw(SPACE, 4, seed=0)[: 2 * 6]


def test_a_draw_leaves_the_space_as_it_was():
    ranks = [[2, 1, 1]]
    drawn = draw({"ranks": ranks}, 1, seed=0)[0]["ranks"]
    drawn.append(0)
    assert ranks == [[2, 1, 1]]


def test_domains_of_ray_are_drawn_as_ray_does(tune):
    space = {
        "learning_rate": tune.loguniform(1e-4, 1e-2),
        "width": tune.choice([16, 32]),
        "hidden_width": tune.sample_from(lambda config: 2 * config["width"]),
        "batch_size": tune.qrandint(4, 16, 4),
        "weight_decay": tune.quniform(0.0, 0.1, 0.01),
        "seed": tune.grid_search([0, 1]),
        "dropout": tune.randn(0.2, 0.01),
    }
    check_space(space, FORECASTER)
    configs = draw(space, 5, seed=0)
    assert configs == draw(space, 5, seed=0)
    assert json.loads(json.dumps(configs)) == configs
    state = np.random.RandomState(0)
    assert configs[0]["learning_rate"] == space["learning_rate"].sample(random_state=state)
    assert configs[0]["width"] == space["width"].sample(random_state=state)
    assert [config["seed"] for config in configs] == [0, 1] * 5
    for config in configs:
        assert config["hidden_width"] == 2 * config["width"]
        assert config["batch_size"] in (4, 8, 12, 16)


def test_a_list_is_drawn_as_a_choice_of_ray(tune):
    values = [8, 16, 32, 64]
    assert draw({"width": values}, 20, 3) == draw({"width": tune.choice(values)}, 20, 3)
    assert describe({"width": values}) == describe({"width": tune.choice(values)})


def test_functions_that_draw_are_seeded_and_leave_the_process_alone(tune):
    # The random state of the process is what a function of Ray draws from.
    space = {"dropout": tune.sample_from(lambda _: float(np.random.uniform(0, 0.5)))}  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    configs = draw(space, 4, seed=0)
    assert configs == draw(space, 4, seed=0)
    assert len({config["dropout"] for config in configs}) == 4
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_grid_of_ray_is_an_axis(tune):
    from ray.tune.search.sample import Categorical

    grid = Categorical([1, 2]).grid()
    check_space({"prediction_length": grid}, FORECASTER)
    assert draw({"prediction_length": grid}, 1, 0) == [
        {"prediction_length": 1},
        {"prediction_length": 2},
    ]
    with pytest.raises(ValueError, match="must be a grid"):
        check_space({"prediction_length": tune.choice([1, 2])}, FORECASTER)


def test_a_space_becomes_one_of_ray(tune):
    found = to_ray(SPACE)
    assert found["max_steps"] == tune.grid_search([1, 2, 3])
    assert found["ranks"].categories == [[2, 1, 1], None]
    rate, size, dropout = (found[name] for name in ("learning_rate", "batch_size", "dropout"))
    assert (rate.lower, rate.upper) == (1e-4, 1e-2)
    assert type(rate.get_sampler()).__name__ == "_LogUniform"
    assert (size.lower, size.upper) == (4, 9)
    assert (dropout.lower, dropout.upper) == (0.1, 0.4)
    own = tune.uniform(0, 1)
    assert to_ray({"dropout": own})["dropout"] is own
    with pytest.raises(ValueError, match=r"for a searcher of Ray; got scipy.stats.norm"):
        to_ray({"dropout": stats.norm(0, 1)})


def test_spaces_are_told_apart(tune):
    told = [
        describe({"learning_rate": value})
        for value in (
            stats.loguniform(1e-4, 1e-2),
            stats.loguniform(1e-4, 1e-3),
            stats.uniform(1e-4, 1e-2),
            tune.loguniform(1e-4, 1e-2),
            tune.uniform(1e-4, 1e-2),
            tune.quniform(1e-4, 1e-2, 1e-4),
            tune.randn(0.01, 0.001),
            tune.randn(0.01, 0.002),
            [1e-4, 1e-2],
            {"grid_search": [1e-4, 1e-2]},
            tune.sample_from(lambda: 1e-3),
        )
    ]
    texts = [json.dumps(entry, allow_nan=False) for entry in told]
    assert len(set(texts)) == len(texts)


def test_the_default_space_holds_no_invalid_configuration(panel):
    for settings in (
        {},
        {"parametrization": "mup"},
        {"num_heads": 8},
        {"num_heads": 1, "attention": "standard", "positions": "rotary"},
        {"attention": ("mlr_window", "bilinear_mlr"), "attention_options": {"window": 4}},
        {"loss": "student_t"},
        {"patch_length": 16},
        {"max_steps": 5, "learning_rate": 0.1},
    ):
        forecaster = MLRForecaster(prediction_length=24, **settings)
        space = default_space(forecaster, panel)
        check_space(space, forecaster)
        assert not space.keys() & settings.keys()
        for config in draw(space, 20, seed=0):
            MLRForecaster(prediction_length=24, **settings, **config).check_parameters()


def test_the_default_space_follows_the_data(panel):
    space = default_space(FORECASTER, panel)
    assert space["context_length"] == [24, 48, 96, 168, 336]
    assert default_space(MLRForecaster(100), panel)["context_length"] == [100, 200, 400]
    assert "context_length" not in default_space(MLRForecaster(480), panel)
    assert "context_length" not in default_space(FORECASTER)


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({"ranks": (4, 2, 2)}, "width"),
        ({"block_sizes": (16, 8, 4)}, "context_length"),
        ({"loss": "normal"}, "frequency_weight"),
        ({"context_length": 48}, "context_length"),
    ],
)
def test_what_another_parameter_fixes_is_not_searched(panel, settings, left_out):
    assert left_out in default_space(FORECASTER, panel)
    assert left_out not in default_space(MLRForecaster(24, **settings), panel)


def test_a_default_space_of_nothing_is_an_error():
    settings = {"learning_rate": 0.1, "width": 8, "num_layers": 1, "dropout": 0.0}
    with pytest.raises(ValueError, match="`space` is needed"):
        default_space(MLRForecaster(24, **settings, frequency_weight=0.0))
