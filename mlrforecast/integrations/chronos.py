"""Fitted forecasters as pipelines of Chronos, and multi-level attention inside its models.

Importing this module makes both known to Chronos, where that is installed: its
``BaseChronosPipeline.from_pretrained`` then reads folders that ``MLRForecaster.save`` wrote, and
those of models whose attention :func:`convert` has changed or that ``mlrforecast pretrain`` wrote.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

from mlrforecast._core.optional import import_optional
from mlrforecast.estimators import MLRForecaster
from mlrforecast.integrations import _chronos_attention
from mlrforecast.integrations._chronos_pipeline import Pipeline
from mlrforecast.integrations._levels import Ranks, Sizes

__all__ = ["convert", "make_pipeline", "register"]

MODEL_TYPE = "mlrforecast"
PIPELINE = "MLRForecasterPipeline"


def make_pipeline(
    forecaster: MLRForecaster,
    *,
    quantile_levels: tuple[float, ...] | None,
    read_entries: Callable[[], MLRForecaster],
    read_columns: Callable[..., MLRForecaster],
) -> Any:
    """Make a pipeline of Chronos of a forecaster.

    Parameters
    ----------
    forecaster : MLRForecaster
        Fitted.
    quantile_levels : tuple of float or None
        Levels that ``predict`` gives; None of a forecaster that has points alone.
    read_entries, read_columns : callable
        Return the same forecaster for entries of GluonTS, and for long frames whose
        ``id_column``, ``timestamp_column`` and ``target`` are named.

    Returns
    -------
    chronos.BaseChronosPipeline
        An ``MLRForecasterPipeline``.

    Raises
    ------
    MissingDependencyError
        If Chronos is not installed.
    """
    register()
    return _pipeline_class()(forecaster, quantile_levels, read_entries, read_columns)


def register() -> None:
    """Make forecasters, and models with multi-level attention, known to Chronos.

    Importing this module does it already; to do it again changes nothing.

    Raises
    ------
    MissingDependencyError
        If Chronos is not installed.
    """
    configuration = _configuration_class()
    auto = import_optional("transformers", extra="chronos", purpose="A pipeline of Chronos")
    auto.AutoConfig.register(MODEL_TYPE, configuration, exist_ok=True)
    _pipeline_class()
    _chronos_attention.register()


def convert(
    pipeline: Any,
    *,
    ranks: Ranks = None,
    block_sizes: Sizes = None,
    level_scale: Any = None,
    divide_by_shared_levels: bool = False,
) -> Any:
    """Return a copy of a Chronos pipeline whose models have multi-level self-attention.

    The weights stay the same, see :func:`mlrforecast.integrations.huggingface.convert`: fine-tune
    the copy, which is a Chronos-T5, Chronos-Bolt or Chronos-2 pipeline as before, saves and loads.
    Cross-attention, and in Chronos-2 the attention between series, stay as they are.

    Parameters
    ----------
    pipeline : ChronosPipeline, ChronosBoltPipeline or Chronos2Pipeline
        A pipeline, which stays as it is.
    ranks : sequence of int, or mapping of ``"encoder"`` and ``"decoder"`` to it, optional
        Columns of each level, coarse to fine, which sum to the width of a head; a stack that a
        mapping leaves out keeps standard attention. Default: half of them, a quarter, a quarter.
    block_sizes : sequence of int or None, or mapping of str to it, optional
        Tokens or patches of a block of each level, coarse to fine, None for all. Default: each
        level halves the blocks of the one before, in the longest context and the longest forecast
        of the pipeline.
    level_scale, divide_by_shared_levels
        As in :func:`mlrforecast.integrations.huggingface.with_mlr`.

    Returns
    -------
    ChronosPipeline, ChronosBoltPipeline or Chronos2Pipeline
        A subclass. ``pipeline.inner_model.save_pretrained(folder)`` writes it, and
        ``BaseChronosPipeline.from_pretrained(folder)`` reads it where this module is imported;
        elsewhere it fails.

    Raises
    ------
    ValueError
        If the levels are not valid or do not fit the heads.
    TypeError
        If it is no such pipeline.
    MissingDependencyError
        If Chronos is not installed.
    """
    return _chronos_attention.convert(
        pipeline,
        ranks=ranks,
        block_sizes=block_sizes,
        level_scale=level_scale,
        divide_by_shared_levels=divide_by_shared_levels,
    )


def __getattr__(name: str) -> Any:
    if name == PIPELINE:
        return _pipeline_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _pipeline_class() -> Any:
    """Return the class of pipelines; making it enters it in the registry of Chronos."""
    chronos = import_optional("chronos", extra="chronos", purpose="A pipeline of Chronos")
    content = {
        "__doc__": "A fitted MLRForecaster as a pipeline of Chronos.",
        "__module__": __name__,
        "forecast_type": chronos.ForecastType.QUANTILES,
    }
    return type(PIPELINE, (Pipeline, chronos.BaseChronosPipeline), content)


@cache
def _configuration_class() -> Any:
    """Return the class by which transformers knows the configuration of a saved forecaster."""
    base = import_optional("transformers", extra="chronos", purpose="A pipeline of Chronos")
    content = {
        "__doc__": "What transformers reads of the configuration of a saved MLRForecaster.",
        "__module__": __name__,
        "model_type": MODEL_TYPE,
        "chronos_pipeline_class": PIPELINE,
    }
    return type("MLRForecasterConfig", (base.PretrainedConfig,), content)


if find_spec("chronos") is not None:
    register()
