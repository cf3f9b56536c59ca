"""muP as a parameter of the forecaster: the start of every weight, and its learning rate."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mlrforecast import MLRForecaster
from mlrforecast.estimators import _fitting as module
from mlrforecast.nn import attentions, mup_table
from mlrforecast.training import TrainingOptions
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, wide

# Two tokens of 16 columns: muP's rate of the head is 24 times the one that was asked for.
# The linear map starts at a regression, whatever the parametrisation.
MUP = {**TINY, "parametrization": "mup", "width": 16, "patch_length": 12, "linear_share": 0.0}
STILL = {"learning_rate": 1e-30, "max_steps": 1}


@pytest.mark.parametrize("name", list(attentions))
def test_every_score_starts_and_trains_by_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    heads = []
    train = module.train

    def record(model: Any, store: Any, options: TrainingOptions, **kwargs: Any) -> int:
        heads.append(model.head.point.weight.detach().clone())
        for row in mup_table(model, learning_rate=1.0):
            value = model.get_parameter(row.name).detach()
            if row.init == "zeros":
                assert not value.any(), row.name
            elif row.init == "normal" and value.numel() > 60:
                assert float(value.std()) == pytest.approx(row.init_std, rel=0.5), row.name
        return train(model, store, options, **kwargs)

    monkeypatch.setattr(module, "train", record)
    fitted = MLRForecaster(**MUP, attention=name).fit(wide())
    assert np.isfinite(fitted.predict().to_numpy()).all()
    # Adam's first step is the rate itself; the factors of the three steps sum to less than 3.
    moved = float((fitted.model_.head.point.weight.detach() - heads[0]).abs().max())
    assert 0.5 * 24e-3 < moved < 3.5 * 24e-3


def test_before_training_the_forecast_is_the_centre() -> None:
    frame = wide()
    fitted = MLRForecaster(**MUP | STILL).fit(frame)
    expected = frame.tail(CONTEXT).mean().to_numpy()
    np.testing.assert_allclose(fitted.predict(), np.tile(expected, (PREDICTION, 1)), rtol=1e-4)


def test_the_seed_decides_the_start() -> None:
    first, again, other = (
        MLRForecaster(**MUP | STILL | {"seed": seed}).fit(wide()).model_.embedding.values.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


class Scale(nn.Module):
    """A backbone with a parameter of its own kind."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, tokens: torch.Tensor, key_mask: torch.Tensor | None) -> torch.Tensor:
        return tokens * self.scale


def test_a_backbone_of_unknown_parameters_is_refused(no_training: None) -> None:
    forecaster = MLRForecaster(**MUP, backbone=Scale())
    for call in (forecaster.check_parameters, lambda: forecaster.fit(wide())):
        with pytest.raises(ValueError, match=r"`parametrization`='mup' .*`backbone.scale`"):
            call()


def test_it_comes_back_from_a_file(tmp_path: Path) -> None:
    fitted = MLRForecaster(**MUP).fit(wide())
    fitted.save(tmp_path / "model")
    loaded = MLRForecaster.load(tmp_path / "model")
    assert loaded.parametrization == "mup"
    assert loaded.predict(wide()).equals(fitted.predict())
