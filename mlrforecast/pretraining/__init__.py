"""Pretraining of models of the Chronos family on synthetic and real series.

Neither Chronos nor GluonTS nor transformers is needed; what is written loads in Chronos.
"""

from typing import TYPE_CHECKING

from mlrforecast._core.lazy import lazy_names
from mlrforecast.pretraining.arrow import read_arrow, write_arrow
from mlrforecast.pretraining.kernel_synth import kernel_synth
from mlrforecast.pretraining.tsmixup import tsmixup

if TYPE_CHECKING:
    from mlrforecast.pretraining.config import PretrainConfig
    from mlrforecast.pretraining.model import QuantileModel, TokenModel, build_model
    from mlrforecast.pretraining.pretrained import PretrainedModel
    from mlrforecast.pretraining.run import PretrainOptions, PretrainRun, pretrain
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

# Processes that draw series need no torch, nor the seconds that its import takes.
__getattr__ = lazy_names(
    __name__,
    {
        "PretrainConfig": "mlrforecast.pretraining.config",
        "PretrainOptions": "mlrforecast.pretraining.run",
        "PretrainRun": "mlrforecast.pretraining.run",
        "PretrainedModel": "mlrforecast.pretraining.pretrained",
        "QuantileModel": "mlrforecast.pretraining.model",
        "TokenModel": "mlrforecast.pretraining.model",
        "Windows": "mlrforecast.pretraining.windows",
        "build_model": "mlrforecast.pretraining.model",
        "pretrain": "mlrforecast.pretraining.run",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
