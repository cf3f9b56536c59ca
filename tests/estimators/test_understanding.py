"""Attention, importance, summary and notebook picture through the methods of a forecaster."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from matplotlib import pyplot as plt
from sklearn.exceptions import NotFittedError

from mlrforecast import MLRForecaster
from mlrforecast.plots import plot_attention, plot_importance
from tests.estimators.frames import TINY, long, wide


@pytest.fixture(autouse=True)
def no_figure_left():
    yield
    plt.close("all")


def test_attention_of_the_frame_of_fit_and_of_another(on_wide):
    table = on_wide.attention_by_level()
    assert list(table["level"]) == [1, 2, 3]
    assert table["share"].sum() == pytest.approx(1)
    assert table["block"][0] == on_wide.context_length_
    pd.testing.assert_frame_equal(table, on_wide.attention_by_level(wide()))
    other = on_wide.attention_by_level(wide(seed=3))
    assert not np.array_equal(table["share"], other["share"])
    assert plot_attention(table).get_xlabel() == "share of the attention weights"


def test_attention_needs_rows_after_load(on_long, tmp_path):
    on_long.save(tmp_path / "model")
    loaded = MLRForecaster.load(tmp_path / "model")
    with pytest.raises(ValueError, match="`X` is needed"):
        loaded.attention_by_level()
    pd.testing.assert_frame_equal(loaded.attention_by_level(long()), on_long.attention_by_level())


def test_importance_of_covariates_and_calendar():
    frame = wide(200)
    frame["price"] = np.random.default_rng(0).normal(size=len(frame))
    forecaster = MLRForecaster(**TINY, target=["a", "b"], known_covariates=["price"]).fit(frame)
    table = forecaster.permutation_importance(frame, windows=4, n_repeats=2)
    assert sorted(table["covariate"]) == ["calendar", "price"]
    again = forecaster.permutation_importance(frame, windows=4, n_repeats=2)
    pd.testing.assert_frame_equal(table, again)
    assert plot_importance(table).get_xlabel() == "rise of the error when shuffled"
    more = forecaster.permutation_importance(frame, step=2, n_repeats=2)
    assert not table.equals(more)
    with pytest.raises(ValueError, match="`step` must be at least 1, got 0"):
        forecaster.permutation_importance(frame, step=0)


@pytest.mark.parametrize("name", ["attention_by_level", "permutation_importance", "summary"])
def test_nothing_is_known_before_fit(name):
    arguments = () if name == "summary" else (wide(),)
    with pytest.raises(NotFittedError):
        getattr(MLRForecaster(6), name)(*arguments)


def test_a_notebook_shows_parameters_and_once_fitted_the_summary(on_wide):
    unfitted = MLRForecaster(6)
    assert "blocks of" not in unfitted._repr_html_()
    shown = on_wide._repr_html_()
    assert shown.startswith(unfitted._repr_html_()[:20])
    assert shown.endswith(on_wide.summary()._repr_html_())
    bundle = on_wide._repr_mimebundle_()
    # scikit-learn numbers its pictures.
    assert bundle["text/html"].endswith(on_wide.summary()._repr_html_())
    assert bundle["text/plain"] == repr(on_wide)


def test_scikit_learn_s_switch_for_pictures_is_kept(on_wide):
    with sklearn.config_context(display="text"):
        assert not hasattr(on_wide, "_repr_html_")
        assert set(on_wide._repr_mimebundle_()) == {"text/plain"}
