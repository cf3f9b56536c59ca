"""A forecaster that was trained on one device forecasts on another."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mlrforecast import MLRForecaster
from tests.estimators.frames import TINY, wide


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_saved_model_forecasts_on_any_device(tmp_path: Path, device: str, precision: str) -> None:
    """Tensors are equal to the bit wherever they load, forecasts nearly."""
    fitted = MLRForecaster(**TINY | {"accelerator": device, "precision": precision}).fit(wide())
    fitted.save(tmp_path / "model")
    for other in ("cpu", "gpu"):
        loaded = MLRForecaster.load(tmp_path / "model").set_params(accelerator=other)
        for name, value in fitted.model_.state_dict().items():
            assert torch.equal(value.cpu(), loaded.model_.state_dict()[name].cpu())
        np.testing.assert_allclose(loaded.predict(wide()), fitted.predict(), rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_fits_on_a_gpu_repeat_to_the_bit() -> None:
    first, second = (
        MLRForecaster(**TINY | {"accelerator": "gpu", "batch_size": "auto"}).fit(wide())
        for _ in range(2)
    )
    assert first.predict().equals(second.predict())
    assert first.batch_size_ == second.batch_size_
