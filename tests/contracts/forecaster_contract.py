"""What every estimator that forecasts frames must do; an estimator subclasses the contract."""

import inspect
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import Pipeline

from mlrforecast._core.errors import DataError
from tests.estimators.frames import PREDICTION, long, wide

FRAMES = {"wide": wide, "long": long}


class ForecasterContract:
    """Give ``build``: an unfitted forecaster of ``PREDICTION`` steps that fits in a blink.

    ``grid`` holds two values of one parameter for a search.
    """

    grid: dict[str, list[Any]]

    def build(self, **parameters: Any) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def fitted(self) -> Any:
        """Fitted on the wide frame."""
        return self.build().fit(wide())

    @pytest.mark.parametrize("make", [object, list, lambda: [0.5], lambda: np.int64(0)])
    def test_parameters_are_stored_as_they_are(self, make: Any) -> None:
        given = {name: make() for name in inspect.signature(type(self.build())).parameters}
        built = type(self.build())(**given)
        assert vars(built) == given
        assert all(vars(built)[name] is value for name, value in given.items())

    def test_clone_get_and_set_parameters(self, fitted: Any) -> None:
        copy = clone(fitted)
        assert copy.get_params() == fitted.get_params()
        assert not [name for name in vars(copy) if name.endswith("_")]
        assert copy.set_params(seed=7) is copy
        assert copy.get_params()["seed"] == 7
        assert fitted.get_params()["seed"] != 7

    def test_fit_returns_the_forecaster_and_learned_names_end_in_an_underscore(self) -> None:
        built = self.build()
        before = dict(vars(built))
        assert built.fit(wide()) is built
        assert {name: vars(built)[name] for name in before} == before
        learned = set(vars(built)) - set(before)
        assert {"model_", "freq_", "context_length_", "num_parameters_"} <= learned
        assert all(name.endswith("_") and not name.startswith("_") for name in learned)

    @pytest.mark.parametrize("call", ["predict", "score", "backtest", "plot", "save"])
    def test_nothing_works_before_fit(self, call: str, tmp_path: Path) -> None:
        argument = tmp_path / "model" if call == "save" else wide()
        with pytest.raises(NotFittedError):
            getattr(self.build(), call)(argument)
        assert not list(tmp_path.iterdir())

    def test_targets_apart_from_the_frame_are_refused(self) -> None:
        with pytest.raises(ValueError, match="`y` must be None"):
            self.build().fit(wide(), wide()["a"])

    def test_fits_are_equal_whatever_the_global_random_state(self, seeded: None) -> None:
        first = self.build().fit(wide()).model_.state_dict()
        random.random(), np.random.rand(), torch.rand(3)  # noqa: NPY002
        states = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
        again = self.build().fit(wide())
        second = again.model_.state_dict()
        third = again.fit(wide()).model_.state_dict()
        assert random.getstate() == states[0]
        assert np.random.get_state()[1].tobytes() == states[1]  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), states[2])
        for name, value in first.items():
            assert torch.equal(value, second[name])
            assert torch.equal(value, third[name])
        other = self.build(seed=1).fit(wide()).model_.state_dict()
        assert any(not torch.equal(value, other[name]) for name, value in first.items())

    @pytest.mark.parametrize("form", FRAMES)
    def test_frames_of_the_caller_are_left_alone(self, form: str) -> None:
        frame = FRAMES[form]().sample(frac=1, random_state=0)
        copy = frame.copy(deep=True)
        built = self.build().fit(frame)
        built.predict(frame), built.backtest(frame, step=1), built.score(frame)
        assert_frame_equal(frame, copy)

    def test_later_changes_of_the_frame_change_no_forecast(self) -> None:
        frame = wide()
        built = self.build().fit(frame)
        before = built.predict()
        frame.iloc[:] = 1e6
        assert_frame_equal(built.predict(), before)

    @pytest.mark.parametrize("form", FRAMES)
    def test_the_tail_is_all_that_a_forecast_reads(self, form: str) -> None:
        frame = FRAMES[form]()
        built = self.build().fit(frame)
        rows = built.context_length_
        tail = frame.tail(rows) if form == "wide" else frame.groupby("item_id").tail(rows)
        assert_frame_equal(built.predict(), built.predict(frame))
        assert_frame_equal(built.predict(), built.predict(tail))
        scrambled = frame.copy()
        if form == "wide":
            scrambled.iloc[:-rows] = 1e6
        else:
            scrambled.loc[~scrambled.index.isin(tail.index), "target"] = 1e6
        assert_frame_equal(built.predict(scrambled), built.predict())
        nearer = frame.copy()
        nearer.iloc[-1, -1] += 3.0
        assert not np.allclose(built.predict(nearer).iloc[:, -1], built.predict().iloc[:, -1])

    def test_a_wide_forecast_follows_the_frame(self, fitted: Any) -> None:
        forecast = fitted.predict()
        index = pd.date_range("2024-01-06", periods=PREDICTION, freq="h", name="date")
        pd.testing.assert_index_equal(forecast.index, index)
        assert forecast.index.freq == index.freq
        assert list(forecast.columns) == ["a", "b"]
        assert np.isfinite(forecast.to_numpy()).all()
        assert set(forecast.dtypes) == {np.dtype(float)}

    @pytest.mark.parametrize("names", [None, ("unique_id", "ds", "y")])
    def test_a_long_forecast_follows_each_series(self, fitted: Any, names: Any) -> None:
        frame = long() if names is None else long(names=names)
        forecast = fitted.predict(frame)
        assert list(forecast.columns) == list(frame.columns)
        assert list(forecast.dtypes) == list(frame.dtypes)
        expected = []
        for item in ("z", "b", "m"):
            last = frame[frame.iloc[:, 0] == item].iloc[:, 1].max()
            expected += [(item, last + pd.Timedelta(hours=n)) for n in range(1, PREDICTION + 1)]
        assert list(zip(forecast.iloc[:, 0], forecast.iloc[:, 1], strict=True)) == expected

    @pytest.mark.parametrize("form", FRAMES)
    def test_order_of_rows_does_not_matter(self, fitted: Any, form: str) -> None:
        frame = FRAMES[form]()
        shuffled = frame.sample(frac=1, random_state=1)
        if form == "long":
            first_seen = list(dict.fromkeys(shuffled["item_id"]))
            expected = pd.concat(
                [fitted.predict(frame).query("item_id == @item") for item in first_seen]
            ).reset_index(drop=True)
        else:
            expected = fitted.predict(frame)
        assert_frame_equal(fitted.predict(shuffled), expected, rtol=1e-5)

    def test_new_columns_and_series_are_forecast(self, fitted: Any) -> None:
        forecast = fitted.predict(wide(columns=("new", "a", "c")))
        assert list(forecast.columns) == ["new", "a", "c"]

    @pytest.mark.parametrize("form", FRAMES)
    def test_a_series_is_forecast_alike_alone_and_among_others(
        self, fitted: Any, form: str
    ) -> None:
        frame = FRAMES[form]()
        frame.iloc[-10, -1] = np.nan
        together = fitted.predict(frame)
        if form == "wide":
            alone = pd.concat([fitted.predict(frame[[name]]) for name in frame], axis=1)
        else:
            items = [frame[frame["item_id"] == item] for item in ("z", "b", "m")]
            alone = pd.concat([fitted.predict(item) for item in items], ignore_index=True)
        assert_frame_equal(together, alone, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(("size", "level"), [(1e12, 3e12), (1e-9, -2e-9), (1.0, 1e5)])
    def test_units_do_not_matter(self, size: float, level: float) -> None:
        plain = self.build().fit(wide())
        scaled = self.build().fit(wide() * size + level)
        expected = plain.predict() * size + level
        spread = size * wide().std().to_numpy()
        assert (abs(plain.predict(wide() * size + level) - expected) / spread).max().max() < 1e-4
        assert (abs(scaled.predict() - expected) / spread).max().max() < 1e-3

    @pytest.mark.parametrize("value", [0.0, 0.1, -7e11])
    def test_a_constant_stays_constant(self, fitted: Any, value: float) -> None:
        forecast = fitted.predict(wide().assign(a=value))
        np.testing.assert_allclose(forecast["a"], value, rtol=1e-12)
        assert_frame_equal(forecast[["b"]], fitted.predict()[["b"]], rtol=1e-5)

    @pytest.mark.parametrize("rows", [1, 2, 5])
    def test_series_shorter_than_the_context(self, fitted: Any, rows: int) -> None:
        forecast = fitted.predict(wide(rows))
        assert np.isfinite(forecast.to_numpy()).all()
        assert forecast.index[0] == wide(rows).index[-1] + pd.Timedelta(hours=1)

    def test_missing_values_are_allowed_but_not_a_context_without_any(self, fitted: Any) -> None:
        frame = wide()
        frame.iloc[-7:-2, 0] = np.nan
        assert np.isfinite(fitted.predict(frame).to_numpy()).all()
        frame.iloc[-fitted.context_length_ :, 0] = np.nan
        with pytest.raises(DataError, match=r"at least one observed value.*column 'a'"):
            fitted.predict(frame)

    def test_another_frequency_is_refused(self, fitted: Any) -> None:
        with pytest.raises(DataError, match=r"'2h'.*'h'"):
            fitted.predict(wide(freq="2h"))

    def test_rolling_windows_are_forecasts_of_truncated_frames(self, fitted: Any) -> None:
        frame = wide(70)
        frame.iloc[20:30, 1] = np.nan
        rolled = fitted.backtest(frame, step=4)
        size = fitted.context_length_ + PREDICTION
        assert len(rolled.cutoffs) == (70 - size) // 4 + 1
        assert rolled.cutoffs[-1] == frame.index[-1 - PREDICTION]
        for number, cutoff in enumerate(rolled.cutoffs):
            forecast = fitted.predict(frame[:cutoff])
            np.testing.assert_allclose(rolled.forecast[number], forecast, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(rolled.actual[number], frame.loc[forecast.index])

    def test_pickle_in_memory(self, fitted: Any) -> None:
        assert_frame_equal(pickle.loads(pickle.dumps(fitted)).predict(), fitted.predict())

    def test_search_and_cross_validation(self) -> None:
        splits = TimeSeriesSplit(n_splits=2, test_size=40)
        scores = cross_val_score(self.build(), wide(), cv=splits, error_score="raise")
        assert scores.shape == (2,)
        assert np.isfinite(scores).all()
        search = GridSearchCV(self.build(), self.grid, cv=splits, error_score="raise").fit(wide())
        assert search.best_params_.keys() == self.grid.keys()
        assert_frame_equal(search.predict(wide()), search.best_estimator_.predict())

    def test_last_step_of_a_pipeline(self, fitted: Any) -> None:
        pipeline = Pipeline([("as it is", "passthrough"), ("forecaster", self.build())])
        assert_frame_equal(pipeline.fit(wide()).predict(wide()), fitted.predict())
        assert pipeline.score(wide()) == fitted.score(wide())

    def test_a_loaded_forecaster_forecasts_the_same(self, fitted: Any, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        loaded = type(fitted).load(tmp_path / "model")
        assert loaded.get_params() == fitted.get_params()
        assert clone(loaded).get_params() == fitted.get_params()
        assert_frame_equal(loaded.predict(wide()), fitted.predict())
        learned = {name for name in vars(fitted) if name.endswith("_")}
        # What scikit-learn wants to know of the frame of fit is not stored.
        of_the_frame = {"n_features_in_", "feature_names_in_"}
        assert {name for name in vars(loaded) if name.endswith("_")} == learned - of_the_frame
        with pytest.raises(ValueError, match="`X` is needed"):
            loaded.predict()
