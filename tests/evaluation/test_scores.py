"""The table of scores against the functions of ``metrics``, group by group."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlrforecast import metrics
from mlrforecast.evaluation._scores import score_table
from tests.evaluation.handmade import LEVELS, NAN, backtest_of, long_frame, wide_frame

POINT = ["MSE", "MAE", "RMSE", "MASE", "sMAPE"]
SPREAD = ["WQL", "CRPS", "coverage 95%", "coverage 80%", "MSIS 95%"]


def expected(backtest, cells):
    """The scores of the cells that a mask (N, F, C) picks, each by its function."""
    actual = np.where(cells, backtest.actual, NAN)
    forecast, spread, scale = backtest.forecast, backtest.quantiles, backtest.scale()
    return [
        metrics.mse(actual, forecast),
        metrics.mae(actual, forecast),
        metrics.rmse(actual, forecast),
        metrics.mase(actual, forecast, scale),
        metrics.smape(actual, forecast),
        metrics.weighted_quantile_loss(actual, spread, LEVELS),
        metrics.quantile_loss(actual, spread, LEVELS),
        metrics.coverage(actual, spread[..., 0], spread[..., 4]),
        metrics.coverage(actual, spread[..., 1], spread[..., 3]),
        metrics.msis(actual, spread[..., 0], spread[..., 4], scale, alpha=0.05),
    ]


@pytest.fixture(params=["wide", "long"])
def backtest(request):
    if request.param == "wide":
        frame = wide_frame()
        frame.iloc[-5:-2, 1] = NAN
    else:
        frame = long_frame([40, 25, 33])
        frame.loc[60:62, "target"] = NAN
    return backtest_of(frame)


def test_all_windows(backtest):
    table = score_table(backtest)
    assert isinstance(table, pd.Series)
    assert table.index.tolist() == POINT + SPREAD
    everything = np.ones(backtest.actual.shape, dtype=bool)
    np.testing.assert_allclose(table, expected(backtest, everything), rtol=1e-12)


def test_each_step(backtest):
    table = score_table(backtest, by="step")
    assert table.index.tolist() == [1, 2, 3, 4]
    assert table.index.name == "step"
    for step, row in table.iterrows():
        cells = np.zeros(backtest.actual.shape, dtype=bool)
        cells[:, step - 1] = True
        np.testing.assert_allclose(row, expected(backtest, cells), rtol=1e-12)


def test_each_cutoff(backtest):
    table = score_table(backtest, by="cutoff")
    assert table.index.equals(backtest.cutoffs.unique().sort_values())
    assert table.index.name == "cutoff"
    for cutoff, row in table.iterrows():
        cells = np.zeros(backtest.actual.shape, dtype=bool)
        cells[backtest.cutoffs == cutoff] = True
        np.testing.assert_allclose(row, expected(backtest, cells), rtol=1e-12)


def test_each_item(backtest):
    table = score_table(backtest, by="item")
    assert table.index.name == "item_id"
    wide = backtest.panel.layout.form == "wide"
    assert table.index.tolist() == (["c0", "c1", "c2"] if wide else ["b0", "a1", "b2"])
    for number, row in enumerate(table.to_numpy()):
        cells = np.zeros(backtest.actual.shape, dtype=bool)
        cells[np.s_[:, :, number] if wide else backtest.series == number] = True
        np.testing.assert_allclose(row, expected(backtest, cells), rtol=1e-12)


def test_items_without_a_window_have_no_row():
    backtest = backtest_of(long_frame([40, 25, 33]), windows=1)
    part = replace(
        backtest,
        **{
            name: getattr(backtest, name)[[0, 2]]
            for name in ("forecast", "actual", "quantiles", "series", "num_rows")
        },
    )
    assert score_table(part, by="item").index.tolist() == ["b0", "b2"]


def test_tuples_as_names_of_columns_and_time_zones_stay():
    frame = wide_frame().tz_localize("Europe/Paris")
    frame.columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    backtest = backtest_of(frame)
    assert score_table(backtest, by="item").index.tolist() == [("a", 1), ("a", 2), ("b", 1)]
    assert str(score_table(backtest, by="cutoff").index.tz) == "Europe/Paris"


def test_without_quantiles_there_are_point_scores():
    assert score_table(backtest_of(wide_frame(), levels=())).index.tolist() == POINT


def test_levels_without_a_mirror_have_no_interval():
    backtest = backtest_of(wide_frame(), levels=(0.1, 0.3, 0.7, 0.8))
    names = ["WQL", "CRPS", "coverage 40%", "MSIS 40%"]
    assert score_table(backtest).index.tolist() == POINT + names
    lonely = backtest_of(wide_frame(), levels=(0.5,))
    assert score_table(lonely).index.tolist() == [*POINT, "WQL", "CRPS"]


def test_undefined_scores_are_missing_in_their_group_only():
    frame = wide_frame()
    frame["c0"] = 0.0  # no scale, no size
    frame.loc[frame.index[-8:], "c1"] = NAN  # nothing observed
    backtest = backtest_of(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = score_table(backtest, by="item")
    assert table.columns[table.loc["c0"].isna()].tolist() == ["MASE", "WQL", "MSIS 95%"]
    assert table.loc["c1"].isna().all()
    assert table.loc["c2"].notna().all()
    whole = score_table(backtest)
    assert whole["MASE"] == pytest.approx(table.loc["c2", "MASE"], rel=1e-12)
    assert whole["MSIS 95%"] == pytest.approx(table.loc["c2", "MSIS 95%"], rel=1e-12)


def test_nothing_observed_gives_missing_scores():
    backtest = backtest_of(wide_frame())
    empty = replace(backtest, actual=np.full_like(backtest.actual, NAN))
    assert score_table(empty).isna().all()


def test_a_missing_forecast_is_seen_in_its_group():
    backtest = backtest_of(wide_frame())
    backtest.forecast[0, 1, 0] = NAN
    backtest.quantiles[0, 2, 0, 0] = NAN
    table = score_table(backtest, by="step")
    assert table.loc[2, POINT].isna().all()
    assert table.loc[[1, 3, 4], POINT].notna().all(axis=None)
    touched = ["WQL", "CRPS", "coverage 95%", "MSIS 95%"]
    assert table.columns[table.loc[3].isna()].tolist() == touched


def test_an_unknown_group_is_named():
    with pytest.raises(ValueError, match=r"`by` must be None, 'item', 'cutoff' or 'step', got 'x'"):
        score_table(backtest_of(wide_frame()), by="x")


@pytest.mark.parametrize("by", ["item", "step"])
def test_many_groups_take_no_long_time(by):
    if by == "item":
        backtest = backtest_of(long_frame([20] * 1000), steps=4)
    else:
        backtest = backtest_of(wide_frame(800), steps=720, windows=20)
    started = time.process_time()
    score_table(backtest, by=by)
    assert time.process_time() - started < 2
