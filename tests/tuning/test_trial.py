"""A trial: its reports, and going on from any of them."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlrforecast.data import Panel
from mlrforecast.estimators.folds import plan_folds, read_training_panel
from mlrforecast.tuning._trial import MUTABLE, Report, Task, run_trial
from tests.tuning.small import HORIZON, forecaster, frame


def make_task(panel: Panel | None = None, **parameters: Any) -> Task:
    base = forecaster(**parameters)
    panel = panel or read_training_panel(base, frame())[0]
    return Task(
        panel=panel,
        forecaster=base,
        plans={HORIZON: plan_folds(panel, HORIZON, folds=2, windows=3, season_length=7)},
        metric="MASE",
        quantile_levels=(0.1, 0.5, 0.9),
        season_length=7,
        reports=3,
        threads=1,
    )


def no_report(report: Report) -> None:
    """Do nothing with a report."""


def test_reports_are_numbered_and_average_the_folds(tmp_path):
    reports: list[Report] = []
    outcome = run_trial(make_task(), {}, reports.append, folder=tmp_path / "trial")
    assert [report.iteration for report in reports] == [1, 2, 3, 4, 5, 6]
    assert [report.fold for report in reports] == [1, 1, 1, 2, 2, 2]
    assert reports[2].score == outcome.fold_scores[0]
    assert reports[-1].score == outcome.score == pytest.approx(np.mean(outcome.fold_scores))
    assert [point["score"] for point in outcome.curve] == [report.score for report in reports]
    assert len({report.score for report in reports}) == 6


def test_early_stopping_skips_reports_but_keeps_their_numbers(tmp_path):
    reports: list[Report] = []
    task = make_task(early_stopping=True, patience=1, learning_rate=1e-9, max_steps=60)
    run_trial(task, {}, reports.append, folder=tmp_path / "trial")
    numbers = [report.iteration for report in reports]
    assert numbers[-1] == 6
    assert 3 in numbers
    assert len(numbers) < 6


class StoppedError(Exception):
    """Ends a trial."""


def interrupt_at(iteration: int, kept: Path) -> Any:
    """Keep a copy of the trial's folder at a report, and end the trial."""

    def report(report: Report) -> None:
        if report.iteration == iteration:
            shutil.copytree(report.folder, kept)
            raise StoppedError

    return report


@pytest.mark.parametrize("iteration", [1, 2, 3, 4, 6])
def test_a_trial_goes_on_from_any_report_to_the_same_scores(tmp_path, iteration):
    task, config = make_task(), {"dropout": 0.3, "learning_rate": 0.01}
    whole = run_trial(task, config, no_report, folder=tmp_path / "whole")
    with pytest.raises(StoppedError):
        run_trial(
            task, config, interrupt_at(iteration, tmp_path / "kept"), folder=tmp_path / "first"
        )
    later: list[int] = []
    resumed = run_trial(
        task,
        config,
        lambda report: later.append(report.iteration),
        folder=tmp_path / "second",
        start=tmp_path / "kept",
    )
    assert later == list(range(iteration + 1, 7))
    assert resumed.fold_scores == whole.fold_scores
    assert resumed.curve == whole.curve
    # In the folder where it was interrupted too.
    assert run_trial(task, config, no_report, folder=tmp_path / "first").curve == whole.curve


def test_training_parameters_may_change_on_the_way(tmp_path):
    task = make_task()
    changed = {
        "batch_size": 8,
        "dropout": 0.4,
        "frequency_weight": 0.1,
        "gradient_clip": 0.1,
        "head_dropout": 0.1,
        "learning_rate": 0.5,
        "weight_decay": 0.5,
    }
    assert set(changed) == MUTABLE
    whole = run_trial(task, {}, no_report, folder=tmp_path / "whole")
    with pytest.raises(StoppedError):
        run_trial(task, {}, interrupt_at(2, tmp_path / "kept"), folder=tmp_path / "first")
    for name, value in changed.items():
        resumed = run_trial(
            task, {name: value}, no_report, folder=tmp_path / name, start=tmp_path / "kept"
        )
        assert resumed.curve[:2] == whole.curve[:2]
        assert resumed.score != whole.score


def test_trials_never_write_to_what_they_share(tmp_path):
    task = make_task()
    expected = run_trial(task, {}, no_report, folder=tmp_path / "a").score
    panel = task.panel
    values = panel.values.copy()
    values.setflags(write=False)
    bounds = panel.bounds.copy()
    bounds.setflags(write=False)
    frozen = make_task(dataclasses.replace(panel, values=values, bounds=bounds))
    assert run_trial(frozen, {}, no_report, folder=tmp_path / "b").score == expected


def test_the_number_of_threads_is_put_back(tmp_path):
    import torch

    before = torch.get_num_threads()
    seen: list[int] = []
    task = dataclasses.replace(make_task(), threads=before + 1)
    run_trial(
        task, {}, lambda report: seen.append(torch.get_num_threads()), folder=tmp_path / "trial"
    )
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
