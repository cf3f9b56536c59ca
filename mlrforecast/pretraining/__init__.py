"""Pretraining of models of the Chronos family on synthetic and real series.

Neither Chronos nor GluonTS nor transformers is needed; what is written loads in Chronos.
"""

from mlrforecast.pretraining.arrow import read_arrow, write_arrow
from mlrforecast.pretraining.config import PretrainConfig
from mlrforecast.pretraining.kernel_synth import kernel_synth
from mlrforecast.pretraining.model import QuantileModel, TokenModel, build_model
from mlrforecast.pretraining.pretrained import PretrainedModel
from mlrforecast.pretraining.run import PretrainOptions, PretrainRun, pretrain
from mlrforecast.pretraining.tsmixup import tsmixup
from mlrforecast.pretraining.windows import Windows

__all__ = [
    "PretrainConfig",
    "PretrainOptions",
    "PretrainRun",
    "PretrainedModel",
    "QuantileModel",
    "TokenModel",
    "Windows",
    "build_model",
    "kernel_synth",
    "pretrain",
    "read_arrow",
    "tsmixup",
    "write_arrow",
]
