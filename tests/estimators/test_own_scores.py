"""Scores and structures of one's own: fitted, saved, and loaded where they are registered."""

from pathlib import Path

import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import ModelFileError
from mlrforecast.nn import StandardScore, attentions
from mlrforecast.ops.matrices import Dense, matrices
from tests.estimators.frames import TINY, wide


class OwnScore(StandardScore):
    """Another name for the standard score."""


class OwnMatrix(Dense):
    """Another name for the dense matrix."""


@pytest.mark.parametrize(
    ("registry", "name", "entry", "parameters"),
    [
        (attentions, "my_score", OwnScore, {"attention": "my_score"}),
        (
            matrices,
            "my_matrix",
            OwnMatrix,
            {"attention": "bilinear", "attention_options": {"structure": "my_matrix"}},
        ),
    ],
    ids=["score", "matrix"],
)
def test_a_model_is_loaded_once_its_own_part_is_registered(
    registry, name, entry, parameters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_entries", dict(registry._entries))
        registry.register(name, entry)
        fitted = MLRForecaster(**TINY | parameters).fit(wide())
        fitted.save(tmp_path / "model")
        loaded = MLRForecaster.load(tmp_path / "model")
        pd.testing.assert_frame_equal(loaded.predict(wide()), fitted.predict(wide()))

    with pytest.raises(ModelFileError, match=rf"got '{name}'|Unknown .* '{name}'") as caught:
        MLRForecaster.load(tmp_path / "model")
    assert "Register your own before a model of it is built or loaded" in str(caught.value)
