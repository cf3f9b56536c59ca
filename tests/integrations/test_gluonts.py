"""Forecasters as predictors of GluonTS: forecasts, scores, files."""

import importlib.util
import json
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster, baselines, load_dataset, metrics
from mlrforecast._core.errors import DataError, MissingDependencyError
from mlrforecast.data import FrameSchema, gluonts_to_long_frame
from mlrforecast.data.gluonts import to_train_datasets

SMALL = {
    "prediction_length": 4,
    "context_length": 24,
    "width": 8,
    "num_heads": 2,
    "max_steps": 2,
    "progress": False,
}
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def days(length, **more):
    start = pd.Period("2024-01-01", "D")
    target = np.sin(np.arange(length) / 3) + np.arange(length) % 7
    return {"item_id": f"{length} days", "start": start, "target": target, **more}


ENTRIES = [days(60), days(45), days(52)]


def frame():
    return gluonts_to_long_frame(ENTRIES)


@pytest.fixture(scope="module")
def fitted():
    return MLRForecaster(**SMALL).fit(frame())


@pytest.mark.skipif(importlib.util.find_spec("gluonts") is not None, reason="gluonts is installed")
def test_without_gluonts_the_error_says_how_to_install_it(fitted):
    with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[gluonts\]'"):
        fitted.to_gluonts()


@pytest.fixture
def needs_gluonts():
    pytest.importorskip("gluonts")


@pytest.mark.usefixtures("needs_gluonts")
class TestPredictor:
    def test_quantiles_are_those_of_predict(self, fitted):
        forecasts = list(fitted.to_gluonts().predict(ENTRIES))
        expected = fitted.predict(frame(), quantile_levels=LEVELS)
        assert [each.item_id for each in forecasts] == [entry["item_id"] for entry in ENTRIES]
        for each in forecasts:
            own = expected[expected["item_id"] == each.item_id]
            assert each.start_date.to_timestamp() == own["timestamp"].iloc[0]
            assert each.start_date.freqstr == "D"
            np.testing.assert_allclose(each.mean, own["target"], rtol=1e-6)
            for level in LEVELS:
                np.testing.assert_allclose(each.quantile(level), own[f"{level:g}"], rtol=1e-6)

    def test_levels_can_be_chosen(self, fitted):
        (forecast, *_) = fitted.to_gluonts(quantile_levels=[0.05, 0.95]).predict(ENTRIES)
        assert forecast.forecast_keys == ["mean", "0.05", "0.95"]
        with pytest.raises(ValueError, match=r"`quantile_levels` must be .* in \(0, 1\)"):
            fitted.to_gluonts(quantile_levels=[1.5])

    def test_the_median_is_among_the_default_levels(self):
        outer = MLRForecaster(**SMALL, quantile_levels=(0.1, 0.9)).fit(frame())
        (forecast, *_) = outer.to_gluonts().predict(ENTRIES)
        assert forecast.forecast_keys == ["mean", "0.1", "0.5", "0.9"]

    def test_a_point_is_mean_and_median(self):
        points = MLRForecaster(**SMALL, loss="mse").fit(frame())
        (forecast, *_) = points.to_gluonts().predict(ENTRIES)
        expected = points.predict(frame())["target"][:4]
        np.testing.assert_allclose(forecast.mean, expected, rtol=1e-6)
        np.testing.assert_array_equal(forecast.quantile(0.5), forecast.mean)
        calibrated = points.calibrate(frame(), refit=False).to_gluonts()
        assert len(next(calibrated.predict(ENTRIES)).forecast_keys) == 10

    def test_sample_paths(self, fitted):
        (forecast, *_) = fitted.to_gluonts().predict(ENTRIES, num_samples=7, seed=3)
        expected = fitted.predict_samples(frame(), num_samples=7, seed=3)
        names = [f"sample_{number}" for number in range(7)]
        np.testing.assert_allclose(forecast.samples.T, expected[names][:4], rtol=1e-6)

    def test_entries_are_read_a_batch_at_a_time(self, fitted):
        read = []

        def noted():
            for number in range(10):
                read.append(number)
                yield days(40 + number)

        forecasts = fitted.to_gluonts(batch_size=2).predict(noted())
        assert not read
        first = next(forecasts)
        assert read == [0, 1]
        found = [first, *islice(forecasts, 4)]
        assert read == list(range(6))
        whole = fitted.to_gluonts().predict([days(40 + number) for number in range(10)])
        for one, other in zip(found, whole, strict=False):
            assert one.item_id == other.item_id
            np.testing.assert_allclose(
                one.forecast_array, other.forecast_array, rtol=1e-5, atol=1e-5
            )

    def test_items_may_occur_twice_or_have_no_name(self, fitted):
        first, again = days(60), days(60) | {"target": days(60)["target"][:50]}
        unnamed = {name: first[name] for name in ("start", "target")}
        found = list(fitted.to_gluonts().predict([first, again, unnamed]))
        assert [each.item_id for each in found] == ["60 days", "60 days", None]
        assert [each.start_date.day_of_year for each in found] == [61, 51, 61]
        np.testing.assert_allclose(found[0].mean, found[2].mean, rtol=1e-6)
        assert not np.allclose(found[0].mean, found[1].mean)

    def test_an_entry_that_breaks_a_rule_is_named(self, fitted):
        empty = days(30) | {"target": np.full(30, np.nan)}
        with pytest.raises(DataError, match="series '30 days'"):
            list(fitted.to_gluonts().predict([*ENTRIES, empty]))

    def test_a_multivariate_entry_has_a_forecast_for_each_channel(self, fitted):
        target = np.stack([days(60)["target"], -days(60)["target"], days(60)["target"] * 2])
        entries = [days(60) | {"target": target}, days(45)]
        both, single = fitted.to_gluonts().predict(entries)
        assert both.forecast_array.shape == (10, 4, 3)
        assert single.forecast_array.shape == (10, 4)
        own = next(fitted.to_gluonts().predict([days(60) | {"target": target[1]}]))
        np.testing.assert_allclose(both.mean[:, 1], own.mean, rtol=1e-6)
        other = next(fitted.to_gluonts().predict([days(45)]))
        np.testing.assert_allclose(single.mean, other.mean, rtol=1e-6)
        assert both.start_date == own.start_date
        assert single.start_date == other.start_date
        samples = next(fitted.to_gluonts().predict(entries, num_samples=5))
        assert samples.samples.shape == (5, 4, 3)

    def test_a_model_of_a_wide_frame(self):
        wide = frame().pivot(index="timestamp", columns="item_id", values="target").iloc[:45]
        wide.columns = ["x", "y", "z"]
        model = MLRForecaster(**SMALL, target=["x", "y"]).fit(wide)
        (forecast,) = model.to_gluonts().predict([days(45)])
        assert forecast.mean.shape == (4,)

    def test_covariates_are_taken_by_their_order(self):
        rows = frame().assign(
            price=lambda rows: np.arange(len(rows)) % 5 / 5,
            kind=lambda rows: pd.Categorical(np.arange(len(rows)) % 3),
            promo=lambda rows: np.arange(len(rows)) % 2,
        )
        roles = {"known_covariates": ["price", "kind", "promo"]}
        model = MLRForecaster(**SMALL, **roles).fit(rows)
        part = rows[rows["item_id"] == "45 days"]
        expected = model.predict(part[:41], future=part[41:])["target"]
        entry = days(45) | {
            "target": days(45)["target"][:41],
            "feat_dynamic_real": part[["price", "promo"]].to_numpy().T,
            "feat_dynamic_cat": part[["kind"]].to_numpy(dtype=int).T,
        }
        (forecast,) = model.to_gluonts().predict([entry])
        np.testing.assert_allclose(forecast.mean, expected, rtol=1e-6)

    def test_categories_of_text_are_refused(self):
        rows = frame().assign(kind="red")
        model = MLRForecaster(**SMALL, static_covariates=["kind"]).fit(rows)
        with pytest.raises(ValueError, match=r"'kind' has the category 'red', but .* whole"):
            model.to_gluonts()

    def test_a_rolling_calibration_is_refused(self):
        model = MLRForecaster(**SMALL).fit(frame())
        model.calibrate(frame(), method="rolling", refit=False)
        with pytest.raises(ValueError, match="rolling calibration reads"):
            model.to_gluonts()

    def test_forecasts_of_months_and_of_integer_time(self):
        start = pd.Period("2019-01", "M")
        entry = {"start": start, "target": np.sin(np.arange(60))}
        for freq in ("ME", "MS"):
            model = MLRForecaster(**SMALL, freq=freq).fit([entry])
            (forecast,) = model.to_gluonts().predict([entry])
            assert forecast.start_date == pd.Period("2024-01", "M")
        counted = MLRForecaster(**SMALL).fit([{"start": 5, "target": entry["target"]}])
        (forecast,) = counted.to_gluonts().predict([{"start": 5, "target": entry["target"]}])
        assert forecast.start_date == pd.Period("1970-03-07", "D")

    def test_it_is_written_and_read_the_gluonts_way(self, fitted, tmp_path):
        from gluonts.model.predictor import Predictor

        predictor = fitted.to_gluonts(quantile_levels=[0.1, 0.5], batch_size=2)
        predictor.serialize(tmp_path)
        written = json.loads((tmp_path / "gluonts-config.json").read_text())
        assert written["type"] == "mlrforecast.integrations.gluonts.MLRPredictor"
        loaded = Predictor.deserialize(tmp_path)
        assert type(loaded) is type(predictor)
        assert isinstance(loaded, Predictor)
        assert (loaded.prediction_length, loaded.batch_size) == (4, 2)
        pairs = zip(predictor.predict(ENTRIES), loaded.predict(ENTRIES), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one.forecast_array, other.forecast_array)
        assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pt")]

    def test_the_forecaster_stays_as_it_was(self, fitted):
        before = fitted.predict()
        list(fitted.to_gluonts().predict(ENTRIES))
        assert fitted.id_column is None
        pd.testing.assert_frame_equal(fitted.predict(), before)


def scored(predictor, test_data, season):
    """What GluonTS makes of a predictor."""
    from gluonts.ev import metrics as ev
    from gluonts.model import evaluate_model

    scores = [ev.MASE(), ev.SMAPE(), ev.MSE(), ev.RMSE(), ev.MAE()]
    scores.append(ev.MeanWeightedSumQuantileLoss(LEVELS))
    found = evaluate_model(
        predictor, test_data=test_data, metrics=scores, seasonality=season, axis=None
    )
    names = ["MASE", "sMAPE", "MSE", "RMSE", "MAE", "WQL"]
    return pd.Series(found.to_numpy()[0], index=names)


def windows_of(entries, horizon, count):
    from gluonts.dataset.split import split

    _, template = split(entries, offset=-count * horizon)
    return template.generate_instances(prediction_length=horizon, windows=count)


@pytest.mark.shared
@pytest.mark.usefixtures("needs_gluonts")
@pytest.mark.filterwarnings("ignore:.* windows are left out:UserWarning")
class TestScores:
    """GluonTS scores our forecasts as we do."""

    @pytest.mark.parametrize(
        ("name", "length", "count", "season"),
        [("ETTh1", 24, 5, 24), ("monash:m3_yearly", 6, 1, 1)],
    )
    def test_of_a_backtest(self, name, length, count, season):
        dataset = load_dataset(name)
        options = SMALL | {"prediction_length": length}
        rows = dataset.targets if dataset.is_long else dataset.targets[-2000:]
        model = MLRForecaster(**options, season_length=season).fit(rows)
        made = to_train_datasets(
            rows,
            FrameSchema(),
            freq=dataset.freq,
            prediction_length=length,
            test=slice(-length, None),
        )
        found = scored(model.to_gluonts(), windows_of(made.test, length, count), season)
        backtest = model.backtest(rows, windows=count, quantile_levels=LEVELS)
        assert len(backtest.forecast) == count * (len(made.test) if dataset.is_long else 1)
        pd.testing.assert_series_equal(
            found, backtest.scores()[found.index], check_names=False, rtol=1e-6
        )

    @pytest.mark.parametrize(
        ("name", "season"), [("monash:electricity_weekly", 1), ("monash:m3_monthly", 12)]
    )
    def test_the_seasonal_naive_through_either_path(self, name, season):
        from gluonts.model.seasonal_naive import SeasonalNaivePredictor

        dataset = load_dataset(name)
        length = dataset.prediction_length
        made = to_train_datasets(
            dataset.targets,
            FrameSchema(),
            freq=dataset.freq,
            prediction_length=length,
            test=dataset.splits["test"],
        )
        predictor = SeasonalNaivePredictor(prediction_length=length, season_length=season)
        pasts = [entry["target"] for entry in made.train]
        ours = np.stack(
            [
                baselines.seasonal_naive(past[None, :, None], length, season)[0, :, 0]
                for past in pasts
            ]
        )
        theirs = np.stack([forecast.mean for forecast in predictor.predict(made.train)])
        # GluonTS forecasts in float32.
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

        found = scored(predictor, windows_of(made.test, length, 1), season)
        actual = np.stack([entry["target"][-length:] for entry in made.test])[..., None]
        scale = np.concatenate(
            [metrics.seasonal_error(past[None, :, None], season) for past in pasts]
        )
        forecast = ours[..., None]
        assert found["MASE"] == pytest.approx(metrics.mase(actual, forecast, scale), rel=1e-6)
        # Of a zero that was forecast as zero, GluonTS counts neither the error nor the step.
        counted = np.count_nonzero((actual != 0) | (forecast != 0)) / actual.size
        smape = metrics.smape(actual, forecast) / counted
        assert found["sMAPE"] == pytest.approx(smape, rel=1e-6)
        assert found["MSE"] == pytest.approx(metrics.mse(actual, forecast), rel=1e-6)
