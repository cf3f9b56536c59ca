"""Search of parameters, on this machine or on a Ray cluster; Ray is loaded when it is used."""

from mlrforecast.tuning._space import default_space
from mlrforecast.tuning.presets import Preset, presets
from mlrforecast.tuning.result import TuneResult
from mlrforecast.tuning.tuner import tune

__all__ = ["Preset", "TuneResult", "default_space", "presets", "tune"]
