"""Fitted forecasters as pipelines of Chronos: the same numbers through every door."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast import MLRForecaster, baselines, metrics
from mlrforecast._core.errors import DataError, MissingDependencyError, ModelFileError
from mlrforecast.data import read_tsf

# Here, for its import draws random numbers.
from mlrforecast.integrations import chronos as ours

SMALL = {
    "prediction_length": 4,
    "context_length": 24,
    "width": 8,
    "num_heads": 2,
    "max_steps": 2,
    "progress": False,
}
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
NAMES = ["zeta", "alpha", "mid"]


def frame(lengths=(60, 45, 52), **columns):
    parts = []
    for name, length in zip(NAMES, lengths, strict=True):
        steps = np.arange(length)
        parts.append(
            pd.DataFrame(
                {
                    "item_id": name,
                    "timestamp": pd.date_range("2024-01-01", periods=length, freq="D"),
                    "target": np.sin(steps / 3) * len(name) + steps % 7,
                }
            )
        )
    return pd.concat(parts, ignore_index=True).assign(**columns)


def rows(table):
    return [group.to_numpy() for _, group in table.groupby("item_id", sort=False)["target"]]


@pytest.fixture(scope="module")
def fitted():
    return MLRForecaster(**SMALL, calendar=False).fit(frame())


@pytest.mark.skipif(importlib.util.find_spec("chronos") is not None, reason="it is installed")
def test_without_chronos_the_error_says_how_to_install_it(fitted):
    with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[chronos\]'"):
        fitted.to_chronos()


@pytest.fixture
def chronos():
    return pytest.importorskip("chronos")


@pytest.fixture
def pipeline(chronos, fitted):
    return fitted.to_chronos()


class TestContexts:
    def test_every_form_has_the_numbers_of_predict(self, fitted, pipeline):
        expected = fitted.predict(frame(), quantile_levels=LEVELS)
        values = expected[[f"{level:g}" for level in LEVELS]].to_numpy().reshape(3, 4, 9)
        tensors = [torch.tensor(row) for row in rows(frame())]
        padded = torch.full((3, 70), torch.nan, dtype=torch.float64)
        for line, row in zip(padded, tensors, strict=True):
            line[70 - len(row) :] = row
        forms = [tensors, tuple(rows(frame())), padded, padded[:, 10:].numpy()]
        forms.append([row.tolist() for row in tensors])
        for form in forms:
            quantiles, mean = pipeline.predict_quantiles(form)
            assert quantiles.dtype == mean.dtype == torch.float32
            np.testing.assert_allclose(quantiles, values, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(
                mean, expected["target"].to_numpy().reshape(3, 4), rtol=1e-5, atol=1e-5
            )
        np.testing.assert_array_equal(pipeline.predict(padded), quantiles.swapaxes(1, 2))
        one = pipeline.predict(tensors[1])
        np.testing.assert_allclose(one[0].T, values[1], rtol=1e-5, atol=1e-5)
        assert pipeline.predict(padded.to(torch.float32)).shape == (3, 9, 4)

    def test_inner_gaps_and_short_series_are_read_as_in_a_frame(self, fitted, pipeline):
        table = frame((60, 9, 30))
        table.loc[[40, 41, 65], "target"] = np.nan
        expected = fitted.predict(table)["target"].to_numpy().reshape(3, 4)
        _, mean = pipeline.predict_quantiles(rows(table))
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("horizon", [1, 3, 4, 5, 11])
    def test_any_horizon(self, fitted, pipeline, horizon):
        expected = fitted.predict(
            frame(), prediction_length=horizon, quantile_levels=[0.2, 0.75, 0.05]
        )
        quantiles, mean = pipeline.predict_quantiles(rows(frame()), horizon, [0.2, 0.75, 0.05])
        columns = ["0.2", "0.75", "0.05"]
        np.testing.assert_allclose(
            quantiles.reshape(-1, 3), expected[columns], rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(mean.flatten(), expected["target"], rtol=1e-5, atol=1e-5)
        limited = {"prediction_length": horizon, "limit_prediction_length": True}
        if horizon <= 4:
            assert pipeline.predict(rows(frame()), **limited).shape == (3, 9, horizon)
        else:
            with pytest.raises(ValueError, match=f"must be at most 4, .*; got {horizon}"):
                pipeline.predict(rows(frame()), **limited)

    def test_what_a_pipeline_says_of_itself(self, chronos, fitted, pipeline):
        assert isinstance(pipeline, chronos.BaseChronosPipeline)
        assert pipeline.forecast_type is chronos.ForecastType.QUANTILES
        assert pipeline.model_context_length == 24
        assert pipeline.model_prediction_length == 4
        assert pipeline.quantiles == LEVELS
        assert pipeline.inner_model is fitted.model_

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            (torch.zeros(2, 3, 4), ValueError, r"`inputs` must have the shape \(B, T\)"),
            ([], ValueError, "`inputs` must hold at least one context"),
            ([np.ones((2, 2))], ValueError, r"`inputs\[0\]` must have the shape \(T,\)"),
            ([np.ones(0)], ValueError, r"`inputs\[0\]` must have the shape \(T,\)"),
            ("text", TypeError, "`inputs` must be a tensor or a list of tensors"),
            (
                [np.ones(5), np.full(5, np.nan)],
                DataError,
                r"`inputs\[1\]` must hold a value in the newest 5 steps, got NaN alone",
            ),
            (
                [np.ones(5), np.r_[np.ones(29), np.inf]],
                DataError,
                r"`inputs\[1\]` must be finite or NaN, got inf at step 29",
            ),
            ([["a"]], TypeError, r"`inputs\[0\]` must be a series of real numbers, got \['a'\]"),
            ([{"target": 1}], TypeError, r"`inputs\[0\]` must be a series of real numbers"),
            (torch.ones(3) * 1j, TypeError, r"`inputs\[0\]` must be a series of real numbers"),
        ],
    )
    def test_bad_contexts(self, pipeline, given, error, message):
        with pytest.raises(error, match=message):
            pipeline.predict(given)

    def test_bad_levels(self, pipeline):
        with pytest.raises(ValueError, match=r"`quantile_levels` must be .* in \(0, 1\)"):
            pipeline.predict_quantiles(rows(frame()), quantile_levels=[1.5])
        for levels in (0.5, "0.5", None):
            with pytest.raises(TypeError, match="`quantile_levels` must be a sequence such as"):
                pipeline.predict_quantiles(rows(frame()), quantile_levels=levels)

    def test_a_horizon_that_is_no_number(self, pipeline):
        with pytest.raises(TypeError, match="`prediction_length` must be an integer, got '3'"):
            pipeline.predict(rows(frame()), "3", limit_prediction_length=True)

    def test_contexts_without_time_are_not_guessed_for_a_model_that_reads_it(self, chronos):
        dated = MLRForecaster(**SMALL).fit(frame())
        assert dated.encoding_.cycles == ("week",)
        with pytest.raises(ValueError, match=r"reads the calendar \(week\).*calendar=False"):
            dated.to_chronos().predict(rows(frame()))
        found = dated.to_chronos().predict_df(frame())["predictions"]
        np.testing.assert_allclose(found, dated.predict(frame())["target"])

    def test_a_point_is_the_median(self, chronos):
        points = MLRForecaster(**SMALL, calendar=False, loss="mse").fit(frame())
        pipeline = points.to_chronos()
        assert pipeline.quantiles == [0.5]
        found = pipeline.predict(rows(frame()))
        expected = points.predict(frame())["target"].to_numpy().reshape(3, 4)
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5, atol=1e-5)
        with pytest.raises(ValueError, match="forecasts a point only"):
            pipeline.predict_quantiles(rows(frame()))
        calibrated = points.calibrate(frame(), refit=False).to_chronos()
        assert calibrated.quantiles == LEVELS
        assert calibrated.predict(rows(frame())).shape == (3, 9, 4)

    def test_other_steps_of_time(self, chronos):
        for freq in ("ME", "W-WED", "15min", "YS"):
            table = frame((40, 40, 40))
            stamps = pd.date_range("1950-01-31", periods=40, freq=freq)
            table["timestamp"] = np.tile(stamps, 3)
            model = MLRForecaster(**SMALL, calendar=False).fit(table)
            _, mean = model.to_chronos().predict_quantiles(rows(table))
            expected = model.predict(table)["target"].to_numpy().reshape(3, 4)
            np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-5)
        numbered = MLRForecaster(**SMALL).fit(rows(frame())[0])
        _, mean = numbered.to_chronos().predict_quantiles(rows(frame())[:1])
        expected = numbered.predict(rows(frame())[0])
        np.testing.assert_allclose(mean[0], expected, rtol=1e-5, atol=1e-5)


class TestFrames:
    def test_a_frame_has_the_columns_of_chronos(self, fitted, pipeline):
        found = pipeline.predict_df(frame(), quantile_levels=[0.1, 0.5], prediction_length=6)
        expected = fitted.predict(frame(), prediction_length=6, quantile_levels=[0.1, 0.5])
        columns = ["item_id", "timestamp", "target_name", "predictions", "0.1", "0.5"]
        assert list(found.columns) == columns
        assert (found["target_name"] == "target").all()
        renamed = expected.rename(columns={"target": "predictions"})
        pd.testing.assert_frame_equal(found.drop(columns="target_name"), renamed)

    def test_its_traps_are_not_ours(self, fitted, pipeline):
        """Chronos forecasts wrongly for category ids out of order, and fails on time zones."""
        expected = pipeline.predict_df(frame())
        categories = frame()
        categories["item_id"] = pd.Categorical(categories["item_id"], categories=NAMES[::-1])
        found = pipeline.predict_df(categories)
        for name in NAMES:
            one = found.loc[found["item_id"] == name, "predictions"]
            other = expected.loc[expected["item_id"] == name, "predictions"]
            np.testing.assert_allclose(one, other)
        zoned = frame()
        zoned["timestamp"] = zoned["timestamp"].dt.tz_localize("Europe/Berlin")
        found = pipeline.predict_df(zoned)
        assert str(found["timestamp"].dt.tz) == "Europe/Berlin"
        np.testing.assert_allclose(found["predictions"], expected["predictions"])
        shuffled = pipeline.predict_df(frame().sample(frac=1, random_state=0))
        merged = shuffled.merge(expected, on=["item_id", "timestamp"])
        np.testing.assert_allclose(merged["predictions_x"], merged["predictions_y"])

    def test_columns_may_have_other_names(self, pipeline):
        names = {"item_id": "shop", "timestamp": "day", "target": "sold"}
        found = pipeline.predict_df(
            frame().rename(columns=names).assign(other=1),
            id_column="shop",
            timestamp_column="day",
            target="sold",
            batch_size=2,
            validate_inputs=False,
            freq="D",
        )
        assert list(found.columns[:4]) == ["shop", "day", "target_name", "predictions"]
        expected = pipeline.predict_df(frame())
        np.testing.assert_allclose(found["predictions"], expected["predictions"])
        assert (found["target_name"] == "sold").all()
        with pytest.raises(ValueError, match="`freq` must be that of the forecaster, 'D', got 'h'"):
            pipeline.predict_df(frame(), freq="h")
        with pytest.raises(TypeError, match=r"`target` must name one column, got \['sold'\]"):
            pipeline.predict_df(frame(), target=["sold"])

    def test_covariates_are_read_from_frames(self, chronos):
        table = frame()
        table["promo"] = table.groupby("item_id").cumcount() % 5 == 0
        model = MLRForecaster(**SMALL, known_covariates=["promo"]).fit(table)
        ahead = model.predict(table, future=self._ahead())["target"]
        found = model.to_chronos().predict_df(table, self._ahead())["predictions"]
        np.testing.assert_allclose(found, ahead)
        with pytest.raises(ValueError, match=r"reads known covariates.*predict_df"):
            model.to_chronos().predict(rows(table))

    @staticmethod
    def _ahead():
        ends = [60, 45, 52]
        stamps = [pd.date_range("2024-01-01", periods=end + 4, freq="D")[-4:] for end in ends]
        parts = [
            pd.DataFrame({"item_id": name, "timestamp": days, "promo": [True, False, False, True]})
            for name, days in zip(NAMES, stamps, strict=True)
        ]
        return pd.concat(parts)


class TestFolders:
    def test_a_saved_forecaster_is_found_by_chronos(self, chronos, fitted, pipeline, tmp_path):
        fitted.save(tmp_path / "model")
        loaded = chronos.BaseChronosPipeline.from_pretrained(
            tmp_path / "model", device_map="cpu", dtype=torch.float32
        )
        assert type(loaded) is type(pipeline) is ours.MLRForecasterPipeline
        assert loaded.forecaster.accelerator == "cpu"
        expected = pipeline.predict(rows(frame()))
        assert torch.equal(loaded.predict(rows(frame())), expected)
        loaded.save_pretrained(tmp_path / "again")
        again = ours.MLRForecasterPipeline.from_pretrained(str(tmp_path / "again"))
        assert torch.equal(again.predict(rows(frame())), expected)
        assert MLRForecaster.load(tmp_path / "again").prediction_length == 4

    def test_what_cannot_be_had_is_told(self, chronos, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        load = chronos.BaseChronosPipeline.from_pretrained
        with pytest.raises(ValueError, match="`dtype` must be 'auto' or float32"):
            load(tmp_path / "model", dtype="bfloat16")
        with pytest.raises(ValueError, match="`device_map` must be one of"):
            load(tmp_path / "model", device_map="tpu")
        with pytest.raises(ValueError, match="A forecaster is read without `quantization`"):
            load(tmp_path / "model", quantization=4)
        (weights,) = (tmp_path / "model").glob("*.safetensors")
        weights.write_bytes(b"short")
        with pytest.raises(ModelFileError):
            load(tmp_path / "model")


def evaluated(pipeline, entries, horizon, season):
    """What the evaluation script of Chronos does: batches of tensors in, scores of GluonTS out."""
    from gluonts.ev.metrics import MASE, MeanWeightedSumQuantileLoss
    from gluonts.itertools import batcher
    from gluonts.model.evaluation import evaluate_forecasts
    from gluonts.model.forecast import QuantileForecast

    made = []
    for batch in batcher(entries.input, batch_size=64):
        context = [torch.tensor(entry["target"]) for entry in batch]
        quantiles, _ = pipeline.predict_quantiles(context, horizon, LEVELS)
        made += [
            QuantileForecast(
                item.numpy().T,
                forecast_keys=[str(level) for level in LEVELS],
                start_date=entry["start"] + len(entry["target"]),
            )
            for item, entry in zip(quantiles, batch, strict=True)
        ]
    scores = evaluate_forecasts(
        made,
        test_data=entries,
        metrics=[MASE("0.5"), MeanWeightedSumQuantileLoss(LEVELS)],
        batch_size=64,
        seasonality=season,
    )
    return scores["MASE[0.5]"].item(), scores["mean_weighted_sum_quantile_loss"].item()


@pytest.fixture(scope="module")
def monthly(request):
    """Sixty series of the M1 competition, and a forecaster of them."""
    find = request.getfixturevalue("shared_file")
    table = read_tsf(find("m1_monthly_dataset.tsf")).frame
    table = table[table["item_id"].isin(table["item_id"].unique()[:60])]
    train = table.groupby("item_id", sort=False).apply(
        lambda group: group.iloc[:-18], include_groups=False
    )
    train = train.reset_index(level=0).reset_index(drop=True)
    settings = {"prediction_length": 18, "context_length": 24, "max_steps": 20}
    model = MLRForecaster(**settings, calendar=False, progress=False).fit(train)
    return table, train, model


@pytest.mark.shared
class TestEvaluation:
    def test_the_script_of_chronos_gives_the_scores_of_a_forecast(self, chronos, monthly):
        pytest.importorskip("gluonts")
        from gluonts.dataset.split import split

        table, train, model = monthly
        entries = [
            {
                "start": pd.Period(group["timestamp"].iloc[0], "M"),
                "target": group["target"].to_numpy(),
            }
            for _, group in table.groupby("item_id", sort=False)
        ]
        _, template = split(entries, offset=-18)
        windows = template.generate_instances(18)
        mase, wql = evaluated(model.to_chronos(), windows, 18, 12)
        forecast = model.predict(train, quantile_levels=LEVELS)
        columns = [f"{level:g}" for level in LEVELS]
        quantiles = forecast[columns].to_numpy().reshape(60, 18, 1, 9)
        actual = np.stack([row[-18:] for row in rows(table)])[..., None]
        assert wql == pytest.approx(
            metrics.weighted_quantile_loss(actual, quantiles, LEVELS), rel=1e-4
        )
        scale = [metrics.seasonal_error(row[None, :-18, None], 12).item() for row in rows(table)]
        errors = np.abs(actual - quantiles[..., 4])[..., 0].mean(axis=1)
        assert mase == pytest.approx((errors / scale).mean(), rel=1e-4)
        naive = [baselines.seasonal_naive(row[None, :-18, None], 18, 12) for row in rows(table)]
        floor = np.abs(actual - np.concatenate(naive))[..., 0].mean(axis=1) / scale
        assert mase < 2 * floor.mean()

    def test_a_task_of_fev(self, chronos, monthly, tmp_path, monkeypatch):
        fev, datasets = pytest.importorskip("fev"), pytest.importorskip("datasets")
        table, train, model = monthly
        nested = table.groupby("item_id", sort=False).agg(list).reset_index()
        datasets.Dataset.from_pandas(nested).to_parquet(tmp_path / "m1.parquet")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        task = fev.Task(
            dataset_path=str(tmp_path / "m1.parquet"),
            id_column="item_id",
            horizon=18,
            seasonality=12,
            eval_metric="WQL",
            quantile_levels=LEVELS,
            extra_metrics=["MASE"],
        )
        predictions, seconds = model.to_chronos().predict_fev(task)
        summary = task.evaluation_summary(
            predictions, model_name="MLRForecaster", inference_time_s=seconds
        )
        forecast = model.predict(train, quantile_levels=LEVELS)
        quantiles = forecast[[f"{q:g}" for q in LEVELS]].to_numpy().reshape(60, 18, 1, 9)
        actual = np.stack([row[-18:] for row in rows(table)])[..., None]
        expected = metrics.weighted_quantile_loss(actual, quantiles, LEVELS)
        assert summary["WQL"] == pytest.approx(expected, rel=1e-4)
        assert summary["MASE"] > 0
