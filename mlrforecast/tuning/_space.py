"""Search spaces: what may stand in one, what is drawn from it, and the one taken if none is given.

Ray's domains are known by the module that they come from: a space is checked, drawn and described
without Ray.
"""

import difflib
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats.distributions import rv_frozen

from mlrforecast._core.optional import import_optional
from mlrforecast.data import Panel, default_season_length
from mlrforecast.estimators import MLRForecaster
from mlrforecast.nn import DISTRIBUTIONS
from mlrforecast.training import isolated_seed

GRID = "grid_search"
_RAY = "ray.tune.search.sample"
_EXAMPLES = (
    "a list of values, {'grid_search': [...]}, a distribution such as "
    "scipy.stats.loguniform(1e-4, 1e-2), or a domain of ray.tune"
)

_OF_DATA = "it says how the data are read, which is the same for all trials"
_OF_MACHINE = "it says where and how a trial runs, not what the model is"
_OF_FILES = "each trial has files of its own"
_REFUSED = {
    "target": "it says what is scored",
    "id_column": _OF_DATA,
    "timestamp_column": _OF_DATA,
    "past_covariates": _OF_DATA,
    "known_covariates": _OF_DATA,
    "static_covariates": _OF_DATA,
    "freq": _OF_DATA,
    "season_length": "it is what errors are scaled by",
    "fill": _OF_DATA,
    "resample": _OF_DATA,
    "backbone": "a record of a trial cannot hold a network",
    "accelerator": _OF_MACHINE,
    "devices": _OF_MACHINE,
    "compile": _OF_MACHINE,
    "checkpoint_dir": _OF_FILES,
    "logger": _OF_FILES,
    "log_dir": _OF_FILES,
    "warm_start": "each trial begins anew",
    "progress": "the sweep has a progress of its own",
}

_CONTEXTS = (1, 2, 4, 7, 14)
"""Contexts of the default space, in horizons or seasons: of hours, a day to two weeks."""
_MOST_CONTEXT = 720
_WIDTHS = (16, 32, 64)
_DEPTHS = (1, 2, 3)
_HEAD_WIDTH = 4
"""Least width of a head for which every score has its default ranks."""


def check_space(space: Any, forecaster: MLRForecaster) -> None:
    """Refuse a space that names no parameter, or one that trials must not differ in."""
    if not isinstance(space, Mapping):
        raise TypeError(
            "`space` must be a mapping of names of parameters to what is searched, or the name of "
            f"a preset, got {type(space).__name__}."
        )
    if not space:
        raise ValueError("`space` must name at least one parameter, got an empty mapping.")
    known = list(forecaster.get_params(deep=False))
    for name, value in space.items():
        _check_name(name, known)
        _check_value(name, value)
        if name == "prediction_length" and grid_values(value) is None:
            raise ValueError(
                "`space['prediction_length']` must be a grid such as {'grid_search': [96, 192]}: "
                f"scores of different horizons are not compared; got {value!r}."
            )


def _check_name(name: Any, known: list[str]) -> None:
    """Refuse a name that is no parameter, or not to be searched."""
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`space` must name parameters of MLRForecaster, got {name!r}.{hint}")
    if name in _REFUSED:
        raise ValueError(
            f"`space` must not name {name!r}: {_REFUSED[name]}. Set it on the forecaster."
        )


def _check_value(name: str, value: Any) -> None:
    """Refuse a value from which nothing can be drawn, or only what no record can hold."""
    where = f"`space[{name!r}]`"
    held = _values(value)
    if held is None:
        if _is_ray(value) or isinstance(value, rv_frozen):
            return
        raise TypeError(
            f"{where} must be {_EXAMPLES}, got {value!r}. A value that is the same in all trials "
            "is set on the forecaster."
        )
    if isinstance(held, (str, Mapping)) or not isinstance(held, (list, tuple, np.ndarray)):
        raise TypeError(f"{where} must hold a list of values, got {held!r}.")
    if len(held) == 0:
        raise ValueError(f"{where} must hold at least one value, got none.")
    for entry in held:
        plain(entry, where)


def plain(value: Any, where: str) -> Any:
    """Return a value of a parameter as JSON holds it: no types of numpy, lists for tuples."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry, where) for entry in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(entry, where) for key, entry in value.items()}
    raise TypeError(
        f"{where} must hold numbers, text, True, False, None, or lists and mappings of them, got "
        f"{value!r}."
    )


def draw(space: Mapping[str, Any], num_samples: int, seed: int) -> list[dict[str, Any]]:
    """Draw the configurations of a sweep: ``num_samples`` for each point of the grid, as Ray does.

    Parameters
    ----------
    space : mapping of str to object
        What is searched; the order of its names is part of the seed.
    num_samples : int
        Draws for each point of the grid, or in all if there is none.
    seed : int
        Of all draws.

    Returns
    -------
    list of dict
        Values as JSON holds them. Of the grid, the first name changes fastest.
    """
    state = np.random.RandomState(seed)
    grids = {name: grid_values(value) for name, value in space.items()}
    axes = {name: list(values) for name, values in grids.items() if values is not None}
    # The last axis of a product is the fastest.
    points = [
        dict(zip(axes, reversed(point), strict=True))
        for point in itertools.product(*reversed(axes.values()))
    ]
    return [_draw_one(space, point, state) for _ in range(num_samples) for point in points]


def _draw_one(
    space: Mapping[str, Any], point: Mapping[str, Any], state: np.random.RandomState
) -> dict[str, Any]:
    """Draw one configuration at a point of the grid."""
    config: dict[str, Any] = {}
    for name, value in space.items():
        drawn = point[name] if name in point else _sample(value, config, state)
        config[name] = plain(drawn, f"`space[{name!r}]`")
    return config


def _sample(value: Any, config: dict[str, Any], state: np.random.RandomState) -> Any:
    """Draw one value; a function of Ray is given what was drawn before it."""
    held = _values(value)
    if held is not None:
        return held[int(state.choice(len(held)))]
    if isinstance(value, rv_frozen):
        return value.rvs(random_state=state)
    if value.is_function():
        # It may draw from the random state of the process.
        with isolated_seed(int(state.randint(2**31 - 1))):
            return value.sample(config=config)
    return value.sample(random_state=state)


def _values(value: Any) -> Any:
    """Return the values of a grid or a choice, None if it is a distribution."""
    grid = grid_values(value)
    if grid is not None:
        return grid
    if isinstance(value, (list, tuple, np.ndarray)):
        return value
    return getattr(value, "categories", None) if _is_ray(value) else None


def grid_values(value: Any) -> Any:
    """Return the values of an axis of a grid, None if it is something else."""
    if isinstance(value, Mapping) and set(value) == {GRID}:
        return value[GRID]
    return value.categories if _is_ray(value) and value.is_grid() else None


def _is_ray(value: Any) -> bool:
    """Tell whether a value is a domain of ray.tune."""
    return any(base.__module__ == _RAY for base in type(value).__mro__)


def to_ray(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space in the domains of ray.tune, which its searchers read."""
    tune = import_optional("ray.tune", extra="tune", purpose="A searcher of Ray")
    return {name: _to_domain(name, value, tune) for name, value in space.items()}


def _to_domain(name: str, value: Any, tune: Any) -> Any:
    """Return one entry of a space as a domain of ray.tune."""
    grid = grid_values(value)
    if grid is not None:
        return tune.grid_search([plain(entry, f"`space[{name!r}]`") for entry in grid])
    if _is_ray(value):
        return value
    if not isinstance(value, rv_frozen):
        return tune.choice([plain(entry, f"`space[{name!r}]`") for entry in value])
    low, high = (plain(bound, name) for bound in value.support())
    kind = value.dist.name
    if kind in _LOGUNIFORM:
        return tune.loguniform(low, high)
    if kind == "uniform":
        return tune.uniform(low, high)
    if kind == "randint":
        return tune.randint(int(low), int(high) + 1)
    raise ValueError(
        f"`space[{name!r}]` must be loguniform, uniform or randint of scipy.stats, or a domain of "
        f"ray.tune, for a searcher of Ray; got scipy.stats.{kind}."
    )


_LOGUNIFORM = ("loguniform", "reciprocal")
"""Two names of one distribution."""


def describe(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a space is, as JSON holds it: two that draw alike are told alike."""
    return {name: _describe(name, value) for name, value in space.items()}


def _describe(name: str, value: Any) -> dict[str, Any]:
    """Return what one entry of a space is."""
    where = f"`space[{name!r}]`"
    held = _values(value)
    if held is not None:
        kind = "choice" if grid_values(value) is None else GRID
        return {kind: [plain(entry, where) for entry in held]}
    if isinstance(value, rv_frozen):
        return {
            "scipy": value.dist.name,
            "args": plain(value.args, where),
            "kwds": plain(value.kwds, where),
        }
    if value.is_function():
        return {"ray": "function", "name": f"{value.func.__module__}.{value.func.__qualname__}"}
    return {"ray": type(value).__name__, **dict(_of_domain(value))}


def _of_domain(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the bounds of a domain of ray.tune and how it is drawn from."""
    for name in ("lower", "upper"):
        # The bounds of a normal distribution are infinite, which JSON has no number for.
        yield name, str(getattr(value, name))
    sampler = value.get_sampler()
    if hasattr(sampler, "q"):
        yield "q", plain(sampler.q, "q")
        sampler = sampler.sampler
    yield "sampler", type(sampler).__name__.lstrip("_")
    for name in ("mean", "sd"):
        if hasattr(sampler, name):
            yield name, plain(getattr(sampler, name), name)


def default_space(forecaster: MLRForecaster, panel: Panel | None = None) -> dict[str, Any]:
    """Return the space that :func:`tune` searches if none is given.

    The learning rate, the width and depth of the network, dropout, the part of the loss that
    weighs frequencies, and how far back a forecast reads. A parameter that was given another
    value than its default is left as it is, and so is one that another fixes: the width, if
    ``ranks`` are given, or the context, if ``block_sizes`` are.

    Parameters
    ----------
    forecaster : MLRForecaster
        What is to be tuned.
    panel : Panel, optional
        The series, of which the longest says how far back a forecast can read. Default: the
        context is left as it is.

    Returns
    -------
    dict of str to object
        Lists and distributions of scipy, to change and to give to :func:`tune`.

    Raises
    ------
    ValueError
        If nothing is left to search.

    Examples
    --------
    >>> from mlrforecast import MLRForecaster
    >>> from mlrforecast.tuning import default_space
    >>> space = default_space(MLRForecaster(prediction_length=24, num_layers=3))
    >>> list(space)
    ['learning_rate', 'width', 'dropout', 'frequency_weight']
    >>> space["width"]
    [16, 32, 64]
    """
    values = forecaster.get_params(deep=False)
    parameters = inspect.signature(type(forecaster)).parameters
    space = {
        name: value
        for name, value in _candidates(values, panel).items()
        if _is_default(values[name], parameters[name].default)
    }
    if not space:
        raise ValueError(
            "`space` is needed: every parameter of the default space has a value of its own in "
            f"{forecaster!r}."
        )
    return space


def _is_default(value: Any, default: Any) -> bool:
    """Tell whether a parameter was left at its default."""
    return type(value) is type(default) and bool(value == default)


def _candidates(values: Mapping[str, Any], panel: Panel | None) -> dict[str, Any]:
    """Return the default space of a forecaster whose other parameters are ``values``."""
    # The rate of muP is that of a network of width 768; matrices of small ones have many times it.
    rates = (1e-5, 1e-3) if values["parametrization"] == "mup" else (3e-4, 1e-2)
    space: dict[str, Any] = {"learning_rate": stats.loguniform(*rates)}
    if values["backbone"] is None:
        heads = values["num_heads"]
        widths = [size for size in _WIDTHS if size % heads == 0 and size >= _HEAD_WIDTH * heads]
        if len(widths) > 1 and values["ranks"] is None:
            space["width"] = widths
        pattern = 1 if isinstance(values["attention"], str) else len(values["attention"])
        depths = [depth for depth in _DEPTHS if depth >= pattern]
        if len(depths) > 1:
            space["num_layers"] = depths
        space["dropout"] = stats.uniform(0.0, 0.4)
    if values["loss"] not in DISTRIBUTIONS:
        space["frequency_weight"] = stats.uniform(0.0, 1.0)
    if panel is not None and values["block_sizes"] is None:
        contexts = _contexts(values, panel)
        if len(contexts) > 1:
            space["context_length"] = contexts
    return space


def _contexts(values: Mapping[str, Any], panel: Panel) -> list[int]:
    """Return how far back forecasts may read: at most half of what the longest series has."""
    horizon = values["prediction_length"]
    season = values["season_length"] or default_season_length(panel.freq)
    longest = min(_MOST_CONTEXT, (int(panel.lengths.max()) - horizon) // 2)
    shortest = values["patch_length"] or 1
    contexts = (max(horizon, season) * times for times in _CONTEXTS)
    return [context for context in contexts if shortest <= context <= longest]
