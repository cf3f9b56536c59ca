"""MLRForecaster keeps the contract of forecasters, whatever its loss and attention."""

from typing import Any, ClassVar

from mlrforecast import MLRForecaster
from tests.contracts.forecaster_contract import ForecasterContract
from tests.estimators.frames import TINY


class TestMLRForecaster(ForecasterContract):
    grid: ClassVar[dict[str, list[Any]]] = {"learning_rate": [1e-3, 1e-2]}

    def build(self, **parameters: Any) -> MLRForecaster:
        return MLRForecaster(**TINY | parameters)


class TestPatchesOfSquaredError(TestMLRForecaster):
    def build(self, **parameters: Any) -> MLRForecaster:
        mine = {"loss": "mse", "attention": "standard", "patch_length": 5, "patch_stride": 3}
        return MLRForecaster(**TINY | mine | parameters)


class TestMixOfLayersUnderMup(TestMLRForecaster):
    grid: ClassVar[dict[str, list[Any]]] = {"attention": ["mlr", ("bilinear_btt", "mlr_window")]}

    def build(self, **parameters: Any) -> MLRForecaster:
        mine = {
            "attention": ("mlr", "bilinear_mlr"),
            "attention_options": {"num_kv_heads": 1, "qk_norm": True},
            "positions": "rotary",
            "parametrization": "mup",
            "num_layers": 2,
        }
        return MLRForecaster(**TINY | mine | parameters)
