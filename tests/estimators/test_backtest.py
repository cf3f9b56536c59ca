"""Rolling forecasts and the score made of them, against loops written out here."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import ForecastWindows
from mlrforecast.estimators import _inference
from tests.estimators.frames import CONTEXT, PREDICTION, TINY, long, wide

SIZE = CONTEXT + PREDICTION


@pytest.mark.parametrize("step", [1, 7, np.int64(60), 1000])
def test_windows_are_counted_back_from_the_newest_row(on_wide: MLRForecaster, step: int) -> None:
    frame = wide(90)
    rolled = on_wide.backtest(frame, step=step, quantile_levels=(0.3, 0.75))
    cutoffs = [frame.index[n - 1] for n in range(CONTEXT, 90 - PREDICTION + 1)][::-step][::-1]
    assert list(rolled.cutoffs) == cutoffs
    assert rolled.forecast.shape == rolled.actual.shape == (len(cutoffs), PREDICTION, 2)
    assert rolled.quantiles.shape == (len(cutoffs), PREDICTION, 2, 2)
    assert list(rolled.item_ids) == [None] * len(cutoffs)
    for number, cutoff in enumerate(cutoffs):
        one = on_wide.predict(frame[:cutoff], quantile_levels=(0.3, 0.75))
        for channel, name in enumerate("ab"):
            expected = one[name].to_numpy()
            np.testing.assert_allclose(
                rolled.forecast[number, :, channel], expected[:, 0], rtol=1e-5, atol=1e-5
            )
            np.testing.assert_allclose(
                rolled.quantiles[number, :, channel], expected[:, 1:], rtol=1e-5, atol=1e-5
            )


def test_series_of_a_long_frame_follow_each_other(on_long: MLRForecaster) -> None:
    frame = long()
    rolled = on_long.backtest(frame, step=5)
    number = 0
    for item in ("z", "b", "m"):
        rows = frame[frame["item_id"] == item].reset_index(drop=True)
        for end in range(CONTEXT + (len(rows) - SIZE) % 5, len(rows) - PREDICTION + 1, 5):
            expected = on_long.predict(rows[:end])["target"]
            assert rolled.item_ids[number] == item
            assert rolled.cutoffs[number] == rows["timestamp"][end - 1]
            np.testing.assert_allclose(
                rolled.forecast[number, :, 0], expected, rtol=1e-5, atol=1e-5
            )
            actual = rows["target"][end : end + PREDICTION]
            np.testing.assert_array_equal(rolled.actual[number, :, 0], actual)
            number += 1
    assert number == len(rolled.forecast) == len(rolled.cutoffs)
    assert rolled.quantiles is None


def test_series_share_forward_passes_of_a_bounded_size(
    on_long: MLRForecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    gather = ForecastWindows.gather

    def record(self: ForecastWindows, windows: slice) -> Any:
        sizes.append(windows.stop - windows.start)
        return gather(self, windows)

    monkeypatch.setattr(ForecastWindows, "gather", record)
    rolled = on_long.backtest(long(range(9), [30, 31, 700, 29 + 400, 30, 30, 45, 99, 30]), step=1)
    *whole, last = sizes
    assert set(whole) == {_inference.BATCH}
    assert 0 < last <= _inference.BATCH
    assert sum(sizes) == len(rolled.forecast)


def test_windows_without_any_context_are_missing(on_wide: MLRForecaster) -> None:
    frame = wide(80)
    frame.iloc[10:50, 0] = np.nan
    rolled = on_wide.backtest(frame, quantile_levels=[0.5], step=1)
    contexts = np.lib.stride_tricks.sliding_window_view(frame["a"], CONTEXT)[:-PREDICTION]
    empty = np.isnan(contexts).all(axis=1)
    assert empty.any()
    np.testing.assert_array_equal(np.isnan(rolled.forecast[:, :, 0]).all(axis=1), empty)
    np.testing.assert_array_equal(np.isnan(rolled.quantiles[:, :, 0]).any(axis=(1, 2)), empty)
    assert np.isfinite(rolled.forecast[:, :, 1]).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"step": 0}, ValueError, "`step` must be at least 1, got 0"),
        ({"step": 1.5}, TypeError, "`step` must be an integer, got 1.5"),
        ({"step": True}, TypeError, "`step` must be an integer, got True"),
    ],
)
def test_wrong_steps(
    on_wide: MLRForecaster, options: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        on_wide.backtest(wide(), **options)


def test_a_series_shorter_than_a_window_has_one_from_what_there_is(
    on_long: MLRForecaster,
) -> None:
    rows = (80, SIZE - 1, PREDICTION + 1)
    frame = long(rows=rows)
    rolled = on_long.backtest(frame, step=PREDICTION)
    counts = [(80 - SIZE) // PREDICTION + 1, 1, 1]
    assert list(rolled.item_ids) == list(np.repeat(list("zbm"), counts))
    for number, item in ((-2, "b"), (-1, "m")):
        history = frame[frame["item_id"] == item][:-PREDICTION]
        assert rolled.cutoffs[number] == history["timestamp"].iloc[-1]
        expected = on_long.predict(history)["target"]
        np.testing.assert_allclose(rolled.forecast[number, :, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", ["backtest", "score"])
def test_series_without_a_row_of_context_are_left_out(on_wide: MLRForecaster, call: str) -> None:
    with pytest.raises(DataError, match=r"needs 7 rows .*, but the frame has 6\. Pass"):
        getattr(on_wide, call)(wide(PREDICTION))
    message = r"but series 'b' has 6\. It is left out, .* 2 of 3 series"
    frame = long(rows=(80, PREDICTION, 3))
    with pytest.warns(UserWarning, match=message):
        found = getattr(on_wide, call)(frame)
    alone = getattr(on_wide, call)(frame[frame["item_id"] == "z"])
    if call == "score":
        assert found == pytest.approx(alone, rel=1e-6)
    else:
        assert set(found.item_ids) == {"z"}
        np.testing.assert_allclose(found.forecast, alone.forecast, rtol=1e-6)
    with pytest.raises(DataError, match=r"no other series has enough \(2 in all\)"):
        getattr(on_wide, call)(long("bz", rows=(PREDICTION, 3)))
    assert len(on_wide.backtest(wide(PREDICTION + 1)).forecast) == 1


def loop_mase(fitted: MLRForecaster, values: pd.Series, season: int) -> list[float]:
    """Scaled errors of the windows of one series, newest first."""
    ratios = []
    end = len(values)
    while end >= SIZE:
        past = values[: end - PREDICTION]
        actual = values[end - PREDICTION : end].to_numpy()
        forecast = fitted.predict(past[-CONTEXT:].to_frame("y"))["y"].to_numpy()
        lag = season if len(past) > season else 1
        steps = [abs(past.iloc[n] - past.iloc[n - lag]) for n in range(lag, len(past))]
        error = abs(forecast - actual) / np.nanmean(steps)
        ratios += list(error[~np.isnan(error)])
        end -= PREDICTION
    return ratios


def test_score_is_minus_the_scaled_error(on_wide: MLRForecaster) -> None:
    frame = wide(100)
    frame.iloc[40:43, 1] = np.nan
    ratios = [ratio for name in "ab" for ratio in loop_mase(on_wide, frame[name], 24)]
    assert on_wide.score(frame) == pytest.approx(-np.mean(ratios), rel=1e-5)


def test_score_uses_the_season_of_the_frequency_or_the_one_that_is_given() -> None:
    frame = wide(100, freq="MS")
    fitted = MLRForecaster(**TINY).fit(frame)
    assert fitted.season_length_ == 12
    ratios = [ratio for name in "ab" for ratio in loop_mase(fitted, frame[name], 12)]
    assert fitted.score(frame) == pytest.approx(-np.mean(ratios), rel=1e-5)
    # Parameters set after fit are for the next fit.
    fitted.set_params(prediction_length=2, season_length=3)
    assert fitted.score(frame) == pytest.approx(-np.mean(ratios), rel=1e-5)
    again = MLRForecaster(**TINY, season_length=3).fit(frame)
    ratios = [ratio for name in "ab" for ratio in loop_mase(again, frame[name], 3)]
    assert again.score(frame) == pytest.approx(-np.mean(ratios), rel=1e-5)


def test_score_of_a_long_frame_weighs_windows_alike(on_long: MLRForecaster) -> None:
    frame = long()
    ratios = []
    for item in ("z", "b", "m"):
        rows = frame[frame["item_id"] == item].set_index("timestamp")["target"]
        ratios += loop_mase(on_long, rows, on_long.season_length_)
    assert on_long.score(frame) == pytest.approx(-np.mean(ratios), rel=1e-5)


def test_score_warns_of_constant_windows_and_refuses_if_there_are_no_others(
    on_wide: MLRForecaster,
) -> None:
    with pytest.warns(UserWarning, match="left out of MASE"):
        on_wide.score(wide().assign(a=1.0))
    with pytest.raises(ValueError, match="constant or missing"):
        on_wide.score(wide().assign(a=1.0, b=2.0))


def test_a_backtest_shows_its_shapes(on_wide: MLRForecaster) -> None:
    assert repr(on_wide.backtest(wide(40), step=1)) == (
        "Backtest(windows: 11, prediction_length: 6, channels: 2, quantile_levels: ())"
    )
