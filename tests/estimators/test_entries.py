"""Entries of GluonTS in the place of frames; GluonTS itself is not needed."""

import json

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import FileDataset, gluonts_to_long_frame
from mlrforecast.data.gluonts import unfold_entries

SMALL = {
    "prediction_length": 4,
    "context_length": 24,
    "width": 8,
    "num_heads": 2,
    "max_steps": 2,
    "progress": False,
}
ROLES = {
    "past_covariates": ("past_feat_dynamic_real_0",),
    "known_covariates": ("feat_dynamic_real_0", "feat_dynamic_real_1", "feat_dynamic_cat_0"),
    "static_covariates": ("feat_static_real_0", "feat_static_cat_0"),
}


def entries(ahead=4):
    """Series with features that go on after them for some steps, at most 9."""
    rng = np.random.default_rng(0)
    made = []
    for number, length in enumerate((60, 70, 65)):
        target = rng.normal(size=length)
        target[5] = np.nan
        made.append(
            {
                "item_id": f"shop {number}",
                "start": pd.Period("2024-01-01", "D") + number,
                "target": target,
                "feat_dynamic_real": rng.normal(size=(2, length + 9))[:, : length + ahead],
                "feat_dynamic_cat": rng.integers(0, 3, size=(1, length + 9))[:, : length + ahead],
                "past_feat_dynamic_real": rng.normal(size=(1, length)),
                "feat_static_real": [0.5 * number],
                "feat_static_cat": [number],
            }
        )
    return made


def without(given, *fields):
    return [{name: entry[name] for name in entry if name not in fields} for entry in given]


@pytest.fixture(scope="module")
def fitted():
    return MLRForecaster(**SMALL).fit(entries())


@pytest.fixture(scope="module")
def forecast(fitted):
    return fitted.predict(entries())


@pytest.fixture(scope="module")
def on_frames():
    """The same fit, of the frame that entries stand for."""
    return MLRForecaster(**SMALL, **ROLES).fit(gluonts_to_long_frame(entries()))


def test_features_have_their_roles(fitted):
    assert {name: getattr(fitted.schema_, name) for name in ROLES} == ROLES
    assert fitted.get_params()["known_covariates"] == ()
    assert fitted.freq_ == "D"
    assert "feat_static_cat_0" in fitted.feature_names_in_


def test_a_fit_equals_that_of_the_frame(fitted, on_frames, forecast):
    future = unfold_entries(entries(), on_frames.schema_)[1]
    expected = on_frames.predict(gluonts_to_long_frame(entries()), future=future)
    pd.testing.assert_frame_equal(forecast, expected)
    assert list(forecast.columns) == ["item_id", "timestamp", "target"]
    assert forecast["timestamp"][0] == pd.Timestamp("2024-03-01")


def test_the_context_of_fit_is_forecast_from_too(fitted, forecast):
    future = unfold_entries(entries(), fitted.schema_)[1]
    pd.testing.assert_frame_equal(fitted.predict(future=future), forecast)


def test_entries_that_can_be_read_once(fitted, forecast):
    pd.testing.assert_frame_equal(fitted.predict(iter(entries())), forecast)
    again = MLRForecaster(**SMALL).fit(iter(entries()))
    pd.testing.assert_frame_equal(again.predict(entries()), forecast)


def test_a_future_that_is_given_takes_the_place_of_that_of_the_entries(fitted, forecast):
    future = unfold_entries(entries(), fitted.schema_)[1]
    future["feat_dynamic_real_0"] += 5
    changed = fitted.predict(entries(), future=future)
    assert not np.allclose(changed["target"], forecast["target"])
    pd.testing.assert_frame_equal(fitted.predict(entries(ahead=0), future=future), changed)


def test_a_future_that_is_too_short_or_absent_is_told_by_series(fitted):
    given = entries()
    given[1]["feat_dynamic_real"] = given[1]["feat_dynamic_real"][:, :-2]
    with pytest.raises(DataError, match=r"lacks 2 of the 12 rows .* of series 'shop 1'"):
        fitted.predict(given)
    with pytest.raises(DataError, match=r"`future` is needed.*of series 'shop 0'"):
        fitted.predict(entries(ahead=0))


def test_what_lies_after_the_targets_is_not_learnt():
    longer = MLRForecaster(**SMALL).fit(entries(ahead=9))
    shorter = MLRForecaster(**SMALL).fit(entries(ahead=0))
    pd.testing.assert_frame_equal(longer.predict(entries()), shorter.predict(entries()))


def test_covariates_that_are_named_are_the_only_ones():
    named = MLRForecaster(**SMALL, known_covariates=["feat_dynamic_real_1"]).fit(entries())
    assert named.schema_.past_covariates == named.schema_.static_covariates == ()
    plain = without(entries(), "feat_static_cat", "feat_static_real", "past_feat_dynamic_real")
    pd.testing.assert_frame_equal(named.predict(entries()), named.predict(plain))
    with pytest.raises(DataError, match="no column 'promo', which `known_covariates` names"):
        MLRForecaster(**SMALL, known_covariates=["promo"]).fit(entries())


def test_features_that_were_not_fitted_are_left_out():
    fields = [name for name in entries()[0] if "feat" in name]
    plain = MLRForecaster(**SMALL).fit(without(entries(), *fields))
    assert plain.schema_.known_covariates == ()
    pd.testing.assert_frame_equal(
        plain.predict(entries()), plain.predict(without(entries(), *fields))
    )


def test_saved_and_loaded(fitted, forecast, tmp_path):
    fitted.save(tmp_path / "model", with_context=True)
    loaded = MLRForecaster.load(tmp_path / "model")
    assert loaded.schema_ == fitted.schema_
    assert loaded.known_covariates == ROLES["known_covariates"]
    pd.testing.assert_frame_equal(loaded.predict(entries()), forecast)
    assert loaded.partial_fit(entries()).num_steps_ == 4


def test_training_goes_on_with_entries_or_frames():
    parts = []
    for given in (entries(), gluonts_to_long_frame(entries())):
        forecaster = MLRForecaster(**SMALL).fit(entries()).partial_fit(given)
        parts.append(forecaster.predict(entries()))
    pd.testing.assert_frame_equal(*parts)
    changed = MLRForecaster(**SMALL).fit(entries()).set_params(known_covariates=["promo"])
    with pytest.raises(ValueError, match="but the network was fitted with"):
        changed.partial_fit(entries())


def test_everything_else_that_takes_a_frame(fitted):
    frame = gluonts_to_long_frame(entries())
    of_entries = fitted.backtest(entries(), windows=2)
    pd.testing.assert_frame_equal(of_entries.frame, fitted.backtest(frame, windows=2).frame)
    assert fitted.score(entries()) == fitted.score(frame)
    assert MLRForecaster(**SMALL).estimate_memory(entries()).data > 0
    samples = fitted.predict_samples(entries(), num_samples=3)
    assert samples.shape == (12, 6)
    assert len(fitted.plot(entries(), max_items=2)) == 2
    assert fitted.export_inputs(frame, future=unfold_entries(entries(), fitted.schema_)[1])
    calibrated = MLRForecaster(**SMALL).fit(entries()).calibrate(entries(), refit=False)
    assert calibrated.calibration_ is not None


def test_files_with_a_series_in_each_line_have_the_same_roles(fitted, forecast, tmp_path):
    lines = [
        {name: np.asarray(value).tolist() for name, value in entry.items() if name != "start"}
        | {"start": str(entry["start"])}
        for entry in entries()
    ]
    path = tmp_path / "shops.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    streamed = MLRForecaster(**SMALL, freq="D").fit(FileDataset(path))
    assert {name: getattr(streamed.schema_, name) for name in ROLES} == ROLES
    pd.testing.assert_frame_equal(streamed.predict(entries()), forecast)


WIDE = [{"start": pd.Period("2024-01", "M"), "target": np.sin(np.arange(240)).reshape(3, 80)}]


def test_one_multivariate_entry_is_forecast_as_a_wide_frame():
    fitted = MLRForecaster(**SMALL).fit(WIDE)
    forecast = fitted.predict(WIDE, quantile_levels=[0.1])
    assert list(forecast.columns) == [(c, name) for c in range(3) for name in ("point", "0.1")]
    assert forecast.index[0] == pd.Timestamp("2030-09-01")
    several = fitted.predict([WIDE[0] | {"item_id": item} for item in "xy"])
    assert list(several["item_id"].unique()) == ["x.0", "x.1", "x.2", "y.0", "y.1", "y.2"]
    np.testing.assert_allclose(
        several["target"].to_numpy().reshape(6, 4)[:3].T,
        forecast.xs("point", axis=1, level=1),
        atol=1e-5,
    )


@pytest.mark.parametrize("freq", ["ME", "M", "MS", None])
def test_the_frequency_of_the_estimator_says_where_a_month_is_stamped(freq):
    fitted = MLRForecaster(**SMALL, freq=freq).fit(WIDE)
    day = 30 if fitted.freq_ == "ME" else 1
    assert fitted.predict(WIDE).index[0] == pd.Timestamp(f"2030-09-{day:02}")
    # What is no period has the frequency that was fitted.
    plain = [WIDE[0] | {"start": "2024-01-01"}]
    pd.testing.assert_frame_equal(fitted.predict(plain), fitted.predict(WIDE))
    assert fitted.score(plain) == fitted.score(WIDE)


def test_a_model_of_frames_with_other_names_reads_entries():
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    frame = pd.DataFrame({"shop": "a", "day": days, "sold": np.sin(np.arange(60))})
    names = {"id_column": "shop", "timestamp_column": "day", "target": "sold"}
    fitted = MLRForecaster(**SMALL, **names).fit(frame)
    entry = {
        "item_id": "a",
        "start": pd.Period("2024-01-01", "D"),
        "target": frame["sold"].to_numpy(),
    }
    pd.testing.assert_frame_equal(fitted.predict([entry]), fitted.predict())
