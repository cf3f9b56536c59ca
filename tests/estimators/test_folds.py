"""Folds: cut without overlap of what is learnt and what is scored, scored as a backtest is."""

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast._core.errors import DataError
from mlrforecast.data import Panel, read_panel
from mlrforecast.estimators.folds import METRICS, FoldScorer, plan_folds, read_training_panel
from mlrforecast.training import Checkpoint

HORIZON = 4


def small(**parameters: object) -> MLRForecaster:
    settings = {"max_steps": 8, "width": 8, "num_heads": 2, "hidden_width": 8, "num_layers": 1}
    return MLRForecaster(HORIZON, **(settings | {"progress": False} | parameters))


def long_frame(*lengths: int) -> pd.DataFrame:
    parts = []
    for number, length in enumerate(lengths):
        values = np.random.default_rng(number).normal(size=length) + np.arange(length) % 7
        stamps = pd.date_range("2024-01-01", periods=length, freq="D")
        parts.append(pd.DataFrame({"item_id": number, "timestamp": stamps, "target": values}))
    return pd.concat(parts, ignore_index=True)


def panel_of(*lengths: int) -> Panel:
    return read_panel(long_frame(*lengths))


def scorer(panel: Panel, metric: str = "MAE", **options: object) -> FoldScorer:
    settings = {"quantile_levels": (0.1, 0.5, 0.9), "season_length": 7}
    return FoldScorer(panel=panel, metric=metric, **(settings | options))


@pytest.mark.parametrize("windows", [None, 1, 3])
@pytest.mark.parametrize("step", [None, 1, 5])
def test_no_network_learns_from_a_row_that_it_forecasts(windows, step):
    panel = panel_of(90, 70, 41)
    folds = plan_folds(panel, HORIZON, folds=3, windows=windows, step=step)
    assert len(folds) == 3
    before = np.zeros(3)
    for fold in folds:
        first = np.full(3, 10**6)
        np.minimum.at(first, fold.cutoffs.series, fold.cutoffs.num_rows)
        assert (fold.num_rows <= first).all()
        # From old to new, and every forecast ends inside its series.
        assert (fold.num_rows >= before).all()
        assert (fold.cutoffs.num_rows + HORIZON <= panel.lengths[fold.cutoffs.series]).all()
        before = fold.num_rows
    newest = folds[-1].cutoffs
    assert newest.num_rows.max() == 90 - HORIZON


def test_windows_are_counted_and_spaced_as_asked():
    (older, newer) = plan_folds(panel_of(60), HORIZON, folds=2, windows=3, step=2)
    assert older.cutoffs.num_rows.tolist() == [46, 48, 50]
    assert newer.cutoffs.num_rows.tolist() == [52, 54, 56]
    assert [int(fold.num_rows[0]) for fold in (older, newer)] == [46, 52]


def test_the_default_holds_back_a_quarter_of_the_longest_series():
    folds = plan_folds(panel_of(400, 50), HORIZON, folds=2)
    assert 300 <= folds[0].num_rows[0] <= 330
    assert len(folds[0].cutoffs.series) <= 2 * 20


def test_series_too_short_for_all_folds_say_so():
    with pytest.raises(DataError, match=r"folds=3 of 5 windows, 4 rows apart.* series 0 has 30"):
        plan_folds(panel_of(30), HORIZON, folds=3, windows=5)
    with pytest.raises(DataError, match="A window needs 5 rows"):
        plan_folds(panel_of(4), HORIZON, folds=1)


@pytest.mark.parametrize("metric", METRICS)
def test_a_fold_is_scored_as_a_refitted_backtest(metric):
    frame = long_frame(60, 45)
    forecaster = small().fit(frame)
    panel, _ = read_training_panel(forecaster, frame)
    (fold,) = plan_folds(panel, HORIZON, folds=1, windows=3, step=2, season_length=7)
    found = scorer(panel, metric, season_length=forecaster.season_length_).score(forecaster, fold)
    # The backtest keeps the lengths that it was fitted with, the fold derives them anew.
    fixed = small(context_length=forecaster.context_length_).fit(frame)
    backtest = fixed.backtest(frame, windows=3, step=2, refit=3, quantile_levels=[0.1, 0.5, 0.9])
    scores = backtest.scores(scale=fold.scale)
    again = scorer(panel, metric, season_length=forecaster.season_length_).score(fixed, fold)
    assert again == pytest.approx(scores[metric], rel=1e-9)
    assert found == pytest.approx(again, rel=0.5)


def test_a_fold_does_not_depend_on_later_rows():
    frame = long_frame(60)
    panel = read_panel(frame)
    older, _ = plan_folds(panel, HORIZON, folds=2, windows=2, step=1)
    last = int(older.cutoffs.num_rows.max()) + HORIZON
    changed = frame.copy()
    changed.loc[last:, "target"] = 1e6
    scores = [scorer(read_panel(each)).score(small(), older) for each in (frame, changed)]
    assert scores[0] == scores[1]
    changed.loc[last - 1, "target"] += 1
    assert scorer(read_panel(changed)).score(small(), older) != scores[0]


def test_looks_come_at_equal_parts_and_change_nothing(tmp_path):
    panel = panel_of(60)
    (fold,) = plan_folds(panel, HORIZON, folds=1)
    seen: list[float] = []
    watched = scorer(panel, times=4)
    score = watched.score(
        small(dropout=0.3), fold, checkpoint=Checkpoint(tmp_path, "0" * 12), look=seen.append
    )
    assert len(seen) == 3
    assert len({*seen, score}) == 4
    assert scorer(panel).score(small(dropout=0.3), fold) == score


def test_an_ended_fold_goes_on_to_the_same_score(tmp_path):
    panel = panel_of(60)
    (fold,) = plan_folds(panel, HORIZON, folds=1)
    watched = scorer(panel, times=4)
    whole: list[float] = []
    expected = watched.score(
        small(dropout=0.3),
        fold,
        checkpoint=Checkpoint(tmp_path / "a", "0" * 12),
        look=whole.append,
    )
    seen: list[float] = []

    def stop_at_second(score: float) -> None:
        seen.append(score)
        if len(seen) == 2:
            raise InterruptedError

    checkpoint = Checkpoint(tmp_path / "b", "0" * 12)
    with pytest.raises(InterruptedError):
        watched.score(small(dropout=0.3), fold, checkpoint=checkpoint, look=stop_at_second)
    score = watched.score(small(dropout=0.3), fold, checkpoint=checkpoint, look=seen.append)
    assert score == expected
    assert seen == whole


def test_a_metric_of_quantiles_needs_them():
    with pytest.raises(ValueError, match=r"`metric`='CRPS' needs quantiles.*loss='mse'"):
        scorer(panel_of(60), "CRPS").check(small(loss="mse"))


def test_a_score_that_is_no_number_is_an_error():
    frame = long_frame(60)
    frame.loc[50:, "target"] = np.nan
    panel = read_panel(frame)
    (fold,) = plan_folds(panel, HORIZON, folds=1, windows=1)
    with pytest.raises(FloatingPointError, match="The MAE of a fold is nan"):
        scorer(panel).score(small(), fold)


def test_rows_of_a_single_series_are_not_copied():
    panel = panel_of(60)
    cropped = panel.head(np.array([50]))
    assert np.shares_memory(cropped.values, panel.values)
    assert cropped.index.equals(panel.index[:50])
    assert len(cropped.values) == 50
