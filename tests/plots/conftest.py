"""No picture is shown or saved by the library."""

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    """Draw without a screen; showing or saving is a failure."""

    def forbidden(*args, **kwargs):
        raise AssertionError("a figure was shown or saved")

    backend = mpl.get_backend()
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", forbidden)
    monkeypatch.setattr(plt.Figure, "show", forbidden)
    monkeypatch.setattr(plt.Figure, "savefig", forbidden)
    yield
    plt.close("all")
    plt.switch_backend(backend)
