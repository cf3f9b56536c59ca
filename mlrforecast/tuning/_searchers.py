"""Searchers of Ray by name."""

import logging
from collections.abc import Mapping
from typing import Any

from mlrforecast._core.errors import MissingDependencyError
from mlrforecast.tuning import _space
from mlrforecast.tuning._settings import Settings
from mlrforecast.tuning._worker import ray_tune


def make_searcher(space: Mapping[str, Any], settings: Settings, *, known: int) -> Any:
    """Return the searcher of a sweep.

    Parameters
    ----------
    space : mapping of str to object
        What is searched.
    settings : Settings
        How the sweep is run; its searcher is a name that ``ray.tune.search.create_searcher``
        knows, or a searcher of Ray without space and metric.
    known : int
        Trials of earlier sessions; the seed is another one then, so that they are not drawn again.

    Returns
    -------
    ray.tune.search.Searcher
        The searcher.

    Raises
    ------
    ValueError
        If the name is unknown, or the searcher cannot search the space.
    TypeError
        If the searcher is neither a name nor one of Ray.
    MissingDependencyError
        If its package is not installed.
    """
    search = ray_tune().search
    searcher = settings.searcher
    if isinstance(searcher, str):
        searcher = _by_name(searcher, (settings.seed + known) % 2**32)
    if not isinstance(searcher, search.Searcher):
        raise TypeError(f"`searcher` must be a name or a searcher of Ray, got {searcher!r}.")
    if grids := [name for name in space if _space.grid_values(space[name]) is not None]:
        raise ValueError(
            f"`searcher`={settings.searcher!r} cannot search a grid, and `space[{grids[0]!r}]` is "
            "one. Give a list, which is a choice, or searcher='random'."
        )
    # Optuna tells of each study that it makes.
    optuna = logging.getLogger("optuna")
    level = optuna.level
    try:
        optuna.setLevel(logging.WARNING)
        accepted = searcher.set_search_properties("score", "min", _space.to_ray(space))
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ValueError(
            f"`searcher`={settings.searcher!r} cannot search `space`: {error}"
        ) from error
    finally:
        optuna.setLevel(level)
    if not accepted:
        raise ValueError(
            f"`searcher`={settings.searcher!r} has a metric or a space of its own already: give "
            "one without."
        )
    return searcher


def _by_name(name: str, seed: int) -> Any:
    """Return a searcher that Ray knows by name."""
    search = ray_tune().search
    known = sorted(set(search.SEARCH_ALG_IMPORT) - {"random", "variant_generator"})
    if name not in known:
        raise ValueError(
            f"`searcher` must be one of random, {', '.join(known)}, or a searcher of Ray, got "
            f"{name!r}."
        )
    try:
        # Each takes the seed under one of these names, and leaves the others out.
        return search.create_searcher(name, seed=seed, random_state_seed=seed, random_state=seed)
    except (ImportError, AssertionError) as error:
        raise MissingDependencyError(
            f"`searcher`={name!r} needs a package that is not installed: {error}"
        ) from error
