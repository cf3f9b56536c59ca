"""The scikit-learn contract: its own checks, pipelines, searches, copies."""

import functools
import pickle
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from mlrforecast import MLRForecaster
from tests.frames.tiny import PREDICTION, TINY


class IgnoresTargets(MLRForecaster):
    """The forecaster as a step that is handed a ``y`` apart from ``X``.

    The checks of scikit-learn pass one to every ``fit``, and ours refuses it: the targets are
    columns of ``X``.
    """

    def __str__(self) -> str:
        """The name in the list of tests."""
        return "forecaster"

    def fit(self, X: Any, y: Any = None) -> Self:
        return super().fit(X)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        return super().partial_fit(X)

    def score(self, X: Any, y: Any = None) -> float:
        return super().score(X)


# Series of these checks have 10 to 30 rows.
CHECKED = IgnoresTargets(**TINY | {"prediction_length": 1, "context_length": 4})

# Checks that do not make sense here, and why.
EXPECTED_FAILURES = {
    "check_complex_data": "complex numbers are refused, in words of our own",
    "check_dtype_object": "numbers in object columns are refused: they are not converted unasked",
    "check_estimators_empty_data_messages": "an empty frame is refused, in words of our own",
    "check_fit1d": "an array with one axis is one series",
    "check_fit2d_1sample": "a single row is refused, in words of our own",
    "check_fit2d_predict1d": "an array with one axis is one series",
    "check_methods_sample_order_invariance": "rows are steps in time: their order is the data",
    "check_methods_subset_invariance": "a forecast has its own rows, not one for each of X",
    "check_n_features_in_after_fitting": "columns are series, and new ones can be forecast",
}

Check = Callable[[Any], None]


# Some checks draw from the global generators.
@pytest.mark.usefixtures("seeded")
@parametrize_with_checks([CHECKED], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_checks_of_scikit_learn(estimator: Any, check: Check) -> None:
    check(estimator)


@functools.cache
def checks_by_name() -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    for _, check in estimator_checks_generator(CHECKED):
        inner = check
        while isinstance(inner, functools.partial):
            inner = inner.func
        found.setdefault(inner.__name__, []).append(check)
    return found


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("name", EXPECTED_FAILURES)
def test_an_excused_check_exists_and_fails(name: str) -> None:
    for check in checks_by_name()[name]:
        with pytest.raises(Exception):  # noqa: B017, PT011 - each check has an error of its own
            check(clone(CHECKED))


def test_most_checks_are_not_excused() -> None:
    assert len(checks_by_name()) > 3 * len(EXPECTED_FAILURES)


def wide(rows: int = 60) -> pd.DataFrame:
    index = pd.date_range("2024-01-01", periods=rows, freq="h", name="date")
    wave = np.sin(np.arange(rows)[:, None] + np.arange(2))
    return pd.DataFrame(5 + wave, index=index, columns=["a", "b"])


def test_nothing_happens_in_the_constructor() -> None:
    names = MLRForecaster(prediction_length=1).get_params()
    sentinels = {name: object() for name in names}
    built = MLRForecaster(**sentinels)
    assert vars(built) == sentinels
    assert built.get_params(deep=False) == sentinels
    other = {name: object() for name in names}
    assert vars(built.set_params(**other)) == other


def test_a_clone_is_unfitted_and_fits_the_same() -> None:
    said = {"scaling": "robust", "known_covariates": ["b"], "calendar": False, "target": "a"}
    fitted = MLRForecaster(**TINY | said).fit(wide())
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    future = wide(60 + PREDICTION)[-PREDICTION:]
    expected = fitted.predict(future=future)
    pd.testing.assert_frame_equal(copy.fit(wide()).predict(future=future), expected)
    again = fitted.fit(wide()).predict(future=future)
    pd.testing.assert_frame_equal(again, expected)


@pytest.mark.parametrize("form", ["wide", "long", "array"])
def test_a_pickle_forecasts_the_same(form: str) -> None:
    frame: Any = wide()
    if form == "long":
        frame = frame["a"].rename("target").reset_index().rename(columns={"date": "timestamp"})
        frame = frame.assign(item_id=pd.Categorical(["z"] * 30 + ["b"] * 30, ["b", "c", "z"]))
    elif form == "array":
        frame = frame.to_numpy()
    fitted = MLRForecaster(**TINY).fit(frame)
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy.get_params() == fitted.get_params()
    for X in (None, frame):
        expected, found = fitted.predict(X), copy.predict(X)
        assert type(expected) is type(found) is type(frame)
        if form == "array":
            np.testing.assert_array_equal(found, expected)
        else:
            pd.testing.assert_frame_equal(found, expected)


def test_a_pipeline_of_frames() -> None:
    scaler = StandardScaler().set_output(transform="pandas")
    pipeline = make_pipeline(scaler, MLRForecaster(**TINY)).fit(wide())
    forecast = pipeline.predict(wide())
    index = pd.date_range("2024-01-03 12:00", periods=PREDICTION, freq="h", name="date")
    assert list(forecast.index) == list(index)
    assert forecast.index.name == "date"
    plain = MLRForecaster(**TINY).fit(wide()).predict()
    back = pd.DataFrame(pipeline[0].inverse_transform(forecast), index, ["a", "b"])
    pd.testing.assert_frame_equal(back, plain, rtol=1e-3)
    assert np.isfinite(pipeline.score(wide()))


def test_a_pipeline_of_arrays() -> None:
    pipeline = make_pipeline(StandardScaler(), MLRForecaster(**TINY)).fit(wide().to_numpy())
    forecast = pipeline.predict(wide().to_numpy())
    assert isinstance(forecast, np.ndarray)
    plain = MLRForecaster(**TINY).fit(wide().to_numpy()).predict()
    np.testing.assert_allclose(pipeline[0].inverse_transform(forecast), plain, rtol=1e-3)


@pytest.mark.parametrize("form", ["frame", "array"])
@pytest.mark.parametrize(
    "grid",
    [
        {"scaling": ["standard", "robust", "mean_abs"]},
        {"attention": ["mlr", "standard"], "calendar": [True, False]},
    ],
    ids=["scaling", "attention"],
)
def test_a_search_over_splits_in_time(grid: dict[str, list[Any]], form: str) -> None:
    X: Any = wide() if form == "frame" else wide().to_numpy()
    splits = TimeSeriesSplit(n_splits=2, test_size=20)
    search = GridSearchCV(MLRForecaster(**TINY), grid, cv=splits, error_score="raise").fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1, "no parameter of the grid changes anything"
    assert search.best_params_.keys() == grid.keys()
    best = MLRForecaster(**TINY | search.best_params_).fit(X)
    np.testing.assert_array_equal(search.predict(X), best.predict(X))


def test_a_search_of_a_pipeline() -> None:
    pipeline = Pipeline(
        [
            ("scale", StandardScaler().set_output(transform="pandas")),
            ("forecast", MLRForecaster(**TINY)),
        ]
    )
    grid = {"forecast__scaling": ["standard", "robust"], "scale__with_std": [True, False]}
    splits = TimeSeriesSplit(n_splits=2, test_size=20)
    search = GridSearchCV(pipeline, grid, cv=splits, error_score="raise").fit(wide())
    assert search.best_params_.keys() == grid.keys()
    assert np.isfinite(cross_val_score(pipeline, wide(), cv=splits, error_score="raise")).all()
