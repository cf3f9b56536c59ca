"""Models, one a file: a frozen configuration and the module it describes."""

from mlrforecast.models.cache import ModelCache
from mlrforecast.models.causal_lm import CausalLM, CausalLMConfig
from mlrforecast.models.counting import (
    FlopCount,
    ParameterCount,
    count_flops,
    count_parameters,
)
from mlrforecast.models.encoder import EncoderConfig, EncoderForecaster
from mlrforecast.models.regressor import Regressor, RegressorConfig

__all__ = [
    "CausalLM",
    "CausalLMConfig",
    "EncoderConfig",
    "EncoderForecaster",
    "FlopCount",
    "ModelCache",
    "ParameterCount",
    "Regressor",
    "RegressorConfig",
    "count_flops",
    "count_parameters",
]
