"""Schedulers of Ray by name, set to the reports of a trial."""

from collections.abc import Mapping
from typing import Any

from mlrforecast.training import isolated_seed
from mlrforecast.tuning import _space
from mlrforecast.tuning._settings import Settings
from mlrforecast.tuning._trial import MUTABLE, Task
from mlrforecast.tuning._worker import ray_tune

PAUSING = ("hyperband", "pbt")
"""Schedulers that have a trial go on from its checkpoint, or from another one's."""
COMPARING = ("asha", "median")
"""Schedulers that compare a trial with all reports of others: they are told those of earlier \
sessions."""


def make_scheduler(task: Task, space: Mapping[str, Any], settings: Settings) -> Any:
    """Return the scheduler of a sweep.

    Parameters
    ----------
    task : Task
        What all trials share.
    space : mapping of str to object
        What is searched.
    settings : Settings
        How the sweep is run; its scheduler is a name, or a scheduler of Ray without metric.

    Returns
    -------
    ray.tune.schedulers.TrialScheduler
        The scheduler.

    Raises
    ------
    ValueError
        If population-based training has no parameter of the space that it may change.
    TypeError
        If the scheduler is neither a name nor one of Ray.
    """
    schedulers = ray_tune().schedulers
    name = settings.scheduler
    if isinstance(name, schedulers.TrialScheduler):
        return name
    if not isinstance(name, str):
        raise TypeError(f"`scheduler` must be a name or a scheduler of Ray, got {name!r}.")
    time = {"time_attr": "iteration"}
    # Half a fold: what is told earlier says little.
    first = max(1, task.reports // 2)
    if name == "asha":
        return schedulers.ASHAScheduler(
            **time, max_t=task.max_iteration, grace_period=first, reduction_factor=2
        )
    if name == "hyperband":
        return schedulers.HyperBandScheduler(**time, max_t=task.max_iteration)
    if name == "median":
        return schedulers.MedianStoppingRule(**time, grace_period=first)
    if name == "pbt":
        # Often: a trial may take over from another one only in the midst of its training.
        interval = max(1, task.reports // 4)
        return _population(space, settings.seed, perturbation_interval=interval, **time)
    return schedulers.FIFOScheduler()


def _population(space: Mapping[str, Any], seed: int, **options: Any) -> Any:
    """Return population-based training of what the space has that may change on the way."""
    changed = {name: space[name] for name in space if name in MUTABLE}
    if not changed:
        raise ValueError(
            f"`scheduler`='pbt' changes {', '.join(sorted(MUTABLE))} in the course of a training, "
            f"and `space` has none of them: {', '.join(space)}."
        )
    mutations = {name: _mutation(entry) for name, entry in _space.to_ray(changed).items()}

    class Seeded(ray_tune().schedulers.PopulationBasedTraining):  # type: ignore[misc]  # no types for ray
        """Draws from generators of its own, not from those of the process."""

        draws = 0

        def on_trial_result(self, *arguments: Any) -> Any:
            """Decide how a trial goes on."""
            self.draws += 1
            with isolated_seed((seed + self.draws) % 2**32):
                return super().on_trial_result(*arguments)

    def within(config: dict[str, Any]) -> dict[str, Any]:
        """Keep what was multiplied inside its bounds."""
        for name, domain in mutations.items():
            if not isinstance(domain, list):
                whole = isinstance(domain.lower, int)
                top = domain.upper - 1 if whole else domain.upper
                config[name] = min(max(config[name], domain.lower), top)
        return config

    return Seeded(hyperparam_mutations=mutations, custom_explore_fn=within, **options)


def _mutation(entry: Any) -> Any:
    """Return a domain, or a sorted list of values, as population-based training takes them."""
    values = entry["grid_search"] if isinstance(entry, dict) else getattr(entry, "categories", None)
    if values is None:
        return entry
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values
