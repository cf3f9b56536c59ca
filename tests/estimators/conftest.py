"""Fitted forecasters that many tests read and none changes."""

from typing import Any

import pytest

from mlrforecast import MLRForecaster
from mlrforecast.estimators import _fitting as module
from tests.estimators.frames import TINY, long, wide


@pytest.fixture(scope="session")
def on_wide() -> MLRForecaster:
    return MLRForecaster(**TINY).fit(wide())


@pytest.fixture(scope="session")
def on_long() -> MLRForecaster:
    return MLRForecaster(**TINY).fit(long())


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if training is reached."""

    def forbidden(*args: Any, **kwargs: Any) -> None:
        pytest.fail("training was reached")

    monkeypatch.setattr(module, "train", forbidden)
