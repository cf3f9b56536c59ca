"""Schedulers of Ray by name: they stop trials, or have them go on with other parameters."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from ray import tune as ray_tune
from ray.tune import schedulers

from mlrforecast.tuning import TuneResult, tune
from mlrforecast.tuning._schedulers import make_scheduler
from tests.tuning.faulty import faulty, runs
from tests.tuning.small import forecaster, frame

RATES = {"learning_rate": {"grid_search": [3e-2, 1e-2, 1e-5, 1e-6]}}


def sweep(space: Any, **options: Any) -> TuneResult:
    settings: dict[str, Any] = {
        "num_samples": 1,
        "folds": 2,
        "windows": 3,
        "reports": 2,
        "refit": False,
        "progress": False,
    }
    settings |= options
    base = settings.pop("base", None) or forecaster(max_steps=20)
    return tune(base, frame(), space, **settings)


def task(**changes: Any) -> Any:
    return SimpleNamespace(**({"reports": 4, "max_iteration": 12} | changes))


def settings(scheduler: Any) -> Any:
    return SimpleNamespace(scheduler=scheduler, seed=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fifo", schedulers.FIFOScheduler),
        ("asha", schedulers.ASHAScheduler),
        ("hyperband", schedulers.HyperBandScheduler),
        ("median", schedulers.MedianStoppingRule),
        ("pbt", schedulers.PopulationBasedTraining),
    ],
)
def test_each_name_is_a_scheduler_of_ray(name: str, kind: type):
    made = make_scheduler(task(), {"dropout": [0.0, 0.1]}, settings(name))
    assert isinstance(made, kind)


def test_a_scheduler_of_ray_is_taken_as_it_is():
    own = schedulers.ASHAScheduler(time_attr="iteration", max_t=12)
    assert make_scheduler(task(), {}, settings(own)) is own


def test_population_based_training_needs_something_to_change():
    with pytest.raises(ValueError, match="`space` has none of them: width"):
        make_scheduler(task(), {"width": [8, 16]}, settings("pbt"))


def test_what_population_based_training_changes_stays_in_bounds_and_leaves_the_rest():
    space = {
        "dropout": ray_tune.uniform(0.0, 0.5),
        "batch_size": ray_tune.randint(8, 17),
        "learning_rate": [1e-2, 1e-3],
        "width": [8, 16],
    }
    made = make_scheduler(task(), space, settings("pbt"))
    assert set(made._hyperparam_mutations) == {"dropout", "batch_size", "learning_rate"}
    assert made._hyperparam_mutations["learning_rate"] == [1e-3, 1e-2]
    config = {"dropout": 0.6, "batch_size": 20, "learning_rate": 1e-3, "width": 8}
    expected = {"dropout": 0.5, "batch_size": 16, "learning_rate": 1e-3, "width": 8}
    assert made._custom_explore_fn(config) == expected


def test_asha_stops_bad_trials_of_the_same_draw_and_they_stay_stopped(local_ray, tmp_path: Path):
    notes = tmp_path / "notes"
    base = faulty(notes, {}, max_steps=20)
    space = RATES | {"seed": {"grid_search": [0]}}
    options = {"scheduler": "asha", "max_concurrent": 1, "storage_path": tmp_path / "sweep"}
    result = sweep(space, base=base, **options)
    trials = result.trials.set_index("trial").sort_index()
    assert list(trials["learning_rate"]) == RATES["learning_rate"]["grid_search"]
    assert trials["status"][0] == "finished"
    assert trials["status"][3] == "stopped"
    stopped = trials[trials["status"] == "stopped"]
    assert (stopped["iterations"] < 4).all()
    assert stopped["score"].notna().all()
    assert stopped["seconds"].gt(0).all()
    assert stopped["error"].isna().all()
    # All were told with one seed, so the file counts every trial that was run.
    assert runs(notes) == {0: 4}
    again = sweep(space, base=base, resume=True, **options)
    assert runs(notes) == {0: 4}
    pd.testing.assert_frame_equal(again.trials, result.trials)


@pytest.mark.parametrize("scheduler", ["hyperband", pytest.param("median", marks=pytest.mark.long)])
def test_trials_are_stopped_or_finish_with_the_scores_of_any_sweep(local_ray, scheduler: str):
    space = {"learning_rate": {"grid_search": [3e-2, 1e-6]}}
    result = sweep(space, scheduler=scheduler)
    expected = sweep(space, executor="local")
    points = result.curves.merge(expected.curves, on=["trial", "iteration", "fold"])
    assert len(points) == len(result.curves) > 0
    assert (points["score_x"] - points["score_y"]).abs().max() < 1e-6
    assert set(result.trials["status"]) <= {"finished", "stopped"}
    assert "finished" in set(result.trials["status"])


def test_population_based_training_goes_on_from_better_weights_with_other_parameters(local_ray):
    space = {"learning_rate": ray_tune.loguniform(1e-6, 3e-2)}
    options = {"num_samples": 4, "folds": 1, "reports": 8, "scheduler": "pbt"}
    base = forecaster(max_steps=40)
    result = sweep(space, base=base, **options)
    plain = sweep(space, base=base, **options | {"scheduler": "fifo", "executor": "local"})
    assert (result.trials["status"] == "finished").all()
    before, after = (set(each.trials["learning_rate"]) for each in (plain, result))
    assert after != before
    assert all(1e-6 <= rate <= 3e-2 for rate in after)
    # The worst took over weights of better ones.
    assert result.trials["score"].max() < plain.trials["score"].max()
