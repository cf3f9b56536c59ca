"""Real files as a user would fit them: straight from ``read_csv``, or by the advice of an error."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.frames.real_files import (
    STEPS,
    check_long,
    check_wide,
    forecaster,
    read_tsf,
    refusal,
)

pytestmark = pytest.mark.shared

Find = Callable[[str], Path]


def after(last: str | pd.Timestamp, freq: str, steps: int = 12) -> pd.DatetimeIndex:
    """Return the ``steps`` stamps that follow one."""
    return pd.date_range(last, periods=steps + 1, freq=freq)[1:]


# File, column of the time, last stamp, frequency.
PLAIN = [
    ("AirPassengers.csv", "Month", "1960-12-01", "MS"),
    ("ausbeer.csv", "date", "2008-07-01", "QS"),
    ("ice_cream_heater.csv", "Month", "2020-06-01", "MS"),
    ("monthly-milk.csv", "Month", "1975-12-01", "MS"),
    ("monthly-sunspots.csv", "Month", "1983-12-01", "MS"),
    ("wineind.csv", "date", "1994-08-01", "MS"),
    # The newest row comes first; some days have one digit.
    ("us_gasoline.csv", "Week", "2021-04-30", "W-FRI"),
    # Values are missing.
    ("example_yosemite_temps.csv", "ds", "2017-07-05", "5min"),
    # Month first, which only the whole column tells.
    ("WTH_weather.csv", "date", "2013-12-31 23:00", "h"),
]


@pytest.mark.parametrize(("name", "time", "last", "freq"), PLAIN, ids=[case[0] for case in PLAIN])
def test_files_that_need_no_word(
    shared_file: Find, name: str, time: str, last: str, freq: str
) -> None:
    frame = pd.read_csv(shared_file(name))
    columns = [column for column in frame if column != time]
    fitted = forecaster().fit(frame)
    check_wide(fitted.predict(), columns, after(last, freq), time)
    tail = frame.tail(60)
    newest = pd.to_datetime(tail[time]).max()
    one = forecaster(target=columns[-1]).fit(frame)
    check_wide(one.predict(tail), columns[-1:], after(newest, freq), time)


def test_a_file_without_time_counts_its_rows(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("australian_tourism.csv"))
    fitted = forecaster(prediction_length=4, context_length=12).fit(frame)
    check_wide(fitted.predict(), list(frame.columns), pd.RangeIndex(36, 40))
    assert fitted.freq_ == 1


def test_a_gas_furnace_with_its_input_as_past_covariate(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("gasrate_co2.csv"))
    fitted = forecaster(target="CO2%", past_covariates=["GasRate(ft3/min)"]).fit(frame)
    check_wide(fitted.predict(), ["CO2%"], pd.RangeIndex(296, 308))
    other = frame.assign(**{"GasRate(ft3/min)": frame["GasRate(ft3/min)"].to_numpy()[::-1]})
    assert not np.allclose(fitted.predict(other), fitted.predict())


# File, column of the time, target, the first absent step, last stamp, frequency.
WITH_GAPS = [
    ("temps.csv", "Date", "Daily minimum temperatures", "1984-12-31", "1990-12-31", "D"),
    ("ILINet.csv", "DATE", "% WEIGHTED ILI", "2002-01-06", "2022-10-09", "W-SUN"),
    (
        "ambient_temperature_system_failure.csv",
        "timestamp",
        "value",
        "2013-07-28 02:00",
        "2014-05-28 15:00",
        "h",
    ),
    ("monthly-milk-incomplete.csv", "Month", "Pounds per cow", "1963-09", "1975-12-01", "MS"),
]


@pytest.mark.parametrize(
    ("name", "time", "target", "absent", "last", "freq"),
    WITH_GAPS,
    ids=[case[0] for case in WITH_GAPS],
)
def test_gaps_are_named_and_can_be_filled(
    shared_file: Find, name: str, time: str, target: str, absent: str, last: str, freq: str
) -> None:
    frame = pd.read_csv(shared_file(name))
    others = [column for column in frame if column not in (time, target)]
    said: dict[str, Any] = {"target": target, "past_covariates": others}
    before = {str(stamp.date()) for stamp in pd.date_range(end=absent, periods=2, freq=freq)}
    message = refusal(frame, "fill='missing'", **said)
    assert any(day in message for day in before), message
    fitted = forecaster(**said, fill="missing").fit(frame)
    assert fitted.freq_ == freq
    check_wide(fitted.predict(), [target], after(last, freq), time)


def test_a_column_that_ends_early_is_named(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("ILINet.csv"))
    fitted = forecaster(fill="missing").fit(frame)
    with pytest.raises(ValueError, match="column 'AGE 25-64'"):
        fitted.predict()


def test_irregular_stamps_are_resampled_as_the_error_says(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("TravelTime_387.csv"))
    message = refusal(frame, "resample=", "2015-07-10 14:")
    freq = re.search(r"freq=['\"](\w+)['\"]", message)
    assert freq is not None, message
    fitted = forecaster(resample="mean", freq=freq[1], fill="missing").fit(frame)
    check_wide(fitted.predict(), ["value"], after("2015-09-17 17:10", "10min"), "timestamp")
    assert fitted.freq_ == freq[1] == "10min"


def test_bike_hours_with_weather_and_absent_hours(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("bike_sharing_hour.csv"))
    frame["stamp"] = pd.to_datetime(frame["dteday"]) + pd.to_timedelta(frame["hr"], unit="h")
    frame["weathersit"] = frame["weathersit"].astype("category")
    known = ["holiday", "workingday", "weathersit", "temp", "hum", "windspeed"]
    said = {"target": "cnt", "timestamp_column": "stamp", "known_covariates": known}
    history, future = frame[:-12], frame[-12:].drop(columns=["cnt", "casual", "registered"])
    assert "2011-01-02" in refusal(history, "fill='missing'", **said)
    fitted = forecaster(**said, fill="missing").fit(history)
    expected = pd.DatetimeIndex(future["stamp"])
    check_wide(fitted.predict(future=future), ["cnt"], expected, "stamp")
    with pytest.raises(ValueError, match=r"future.*'holiday'"):
        fitted.predict()
    with pytest.raises(ValueError, match="windspeed"):
        fitted.predict(future=future.drop(columns="windspeed"))
    with pytest.raises(ValueError, match="2012-12-31 23:00"):
        fitted.predict(future=future[:-1])
    # What `fill` says of the history holds for the weather of tomorrow too.
    with_gap = fitted.predict(future=future.drop(index=future.index[8]))
    check_wide(with_gap, ["cnt"], expected, "stamp")


def test_day_ahead_prices_with_forecasts_of_load_and_wind(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("epf_NP.csv"), skipinitialspace=True)
    known = ["Grid load forecast", "Wind power forecast"]
    history, tomorrow = frame[:-24], frame[-24:].drop(columns="Price")
    fitted = forecaster(prediction_length=24, target="Price", known_covariates=known).fit(history)
    forecast = fitted.predict(future=tomorrow, quantile_levels=[0.1, 0.9])
    assert np.isfinite(forecast["Price"].to_numpy()).all()
    check_wide(
        fitted.predict(future=tomorrow), ["Price"], after("2018-12-23 23:00", "h", 24), "Date"
    )
    # Without names, the text of the header would have given the columns a blank in front.
    with pytest.raises(ValueError, match="' Grid load forecast'"):
        forecaster(target="Price").fit(pd.read_csv(shared_file("epf_NP.csv")))


def test_four_markets_with_a_file_of_the_future(shared_file: Find) -> None:
    history = pd.read_csv(shared_file("electricity-short-with-ex-vars.csv"))
    future = pd.read_csv(shared_file("electricity-short-future-ex-vars.csv"))
    known = [column for column in future if column not in ("unique_id", "ds")]
    fitted = forecaster(prediction_length=24, known_covariates=known).fit(history)
    forecast = fitted.predict(future=future)
    check_long(forecast, history, "h", 24)
    shuffled = future.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(fitted.predict(future=shuffled), forecast)
    with pytest.raises(ValueError, match="'DE'"):
        fitted.predict(future=future[future["unique_id"] != "DE"])
    with pytest.raises(ValueError, match=r"'Exogenous1'.*'Exogenous2'"):
        fitted.predict()
    with pytest.raises(ValueError, match="without a role"):
        forecaster().fit(history)


def test_shop_items_with_price_and_events(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("m5_sales_exog_small.csv"))
    # Those that were launched later have no price before.
    early = frame.groupby("unique_id")["sell_price"].transform("first").notna()
    frame["launched"] = np.where(early, "from the start", "later")
    known = [column for column in frame if column.startswith(("sell_price", "event_type"))]
    is_last = frame.groupby("unique_id").cumcount(ascending=False) < 28
    history, future = frame[~is_last], frame[is_last].drop(columns="y")
    fitted = forecaster(
        prediction_length=28, known_covariates=known, static_covariates=["launched"]
    ).fit(history)
    check_long(fitted.predict(future=future), history, "D", 28)
    with pytest.raises(ValueError, match=r"static.*'sell_price'"):
        forecaster(known_covariates=known[1:], static_covariates=["sell_price", "launched"]).fit(
            history
        )


def test_zones_of_a_grid_in_utc(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("pjm_in_zone.csv"))
    fitted = forecaster().fit(frame)
    forecast = fitted.predict()
    check_long(forecast, frame, "h", 12)
    assert str(forecast["ds"].dt.tz) == "UTC"
    parsed = frame.assign(ds=pd.to_datetime(frame["ds"]))
    pd.testing.assert_frame_equal(forecaster().fit(parsed).predict(), forecast, check_dtype=False)


def test_half_hours_of_a_local_zone_across_the_change_of_the_clock(shared_file: Find) -> None:
    frame = pd.read_csv(shared_file("vic_electricity.csv"), parse_dates=["Time"])
    frame["Time"] = frame["Time"].dt.tz_convert("Australia/Melbourne")
    said = {"target": "Demand", "known_covariates": ["Temperature", "Holiday"]}
    # The clock goes forward at 2 o'clock of 5 October 2014.
    rows = frame["Time"] < pd.Timestamp("2014-10-04 18:00", tz="Australia/Melbourne")
    history, future = frame[rows], frame[~rows].head(48)
    fitted = forecaster(prediction_length=48, **said).fit(history)
    forecast = fitted.predict(future=future)
    check_wide(forecast, ["Demand"], pd.DatetimeIndex(future["Time"]), "Time")
    assert forecast["Time"].dtype == frame["Time"].dtype
    assert {str(stamp)[-6:] for stamp in forecast["Time"]} == {"+10:00", "+11:00"}
    daily = frame.resample("D", on="Time")[["Demand"]].sum()
    by_day = forecaster().fit(daily["2014-01":"2014-09"])
    check_wide(by_day.predict(), ["Demand"], daily["2014-10-01":"2014-10-12"].index)


MONASH = [
    "electricity_weekly_dataset",
    "m1_monthly_dataset",
    "m1_quarterly_dataset",
    "m1_yearly_dataset",
    "m3_monthly_dataset",
    "m3_yearly_dataset",
    "solar_weekly_dataset",
    "us_births_dataset",
    "vehicle_trips_dataset_without_missing_values",
]


@pytest.mark.parametrize("name", MONASH)
def test_monash_panels(shared_file: Find, name: str) -> None:
    frame, frequency, horizon = read_tsf(shared_file(f"{name}.tsf"))
    steps = horizon or 14
    static = [column for column in frame if column not in ("item_id", "timestamp", "target")]
    fitted = forecaster(prediction_length=steps, static_covariates=static).fit(frame)
    names = ("item_id", "timestamp", "target")
    check_long(fitted.predict(), frame, STEPS[frequency], steps, names)


def test_every_file_has_a_test(shared_file: Find) -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    root = shared_file("AirPassengers.csv").parents[1]
    for folder in ("classics", "messy", "covariates", "monash"):
        for path in sorted((root / folder).iterdir()):
            assert path.name.removesuffix(".xz").removesuffix(".tsf") in here, path.name
