"""Sweeps as pictures: parallel coordinates, curves, importance of parameters."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import PathPatch

from mlrforecast.plots import plot_sweep
from mlrforecast.plots._parallel import scale_of, score_scale

PARAMETERS = ["learning_rate", "width", "attention"]


def trials(number=30):
    """Trials whose score rests on the learning rate alone; the last two have failed."""
    rng = np.random.default_rng(0)
    rates = np.exp(rng.uniform(np.log(1e-4), np.log(1e-1), number))
    frame = pd.DataFrame(
        {
            "trial": np.arange(number),
            "status": "finished",
            "score": 1 + 0.1 * np.log(rates / 3e-3) ** 2,
            "learning_rate": rates,
            "width": rng.choice([8, 16], number),
            "attention": rng.choice(["mlr", "standard"], number),
        }
    )
    frame.loc[frame.index[-2:], ["status", "score"]] = ["failed", np.nan]
    return frame


def curves(frame):
    """Three reports of each of two folds."""
    rows = [
        {
            "trial": row.trial,
            "iteration": step,
            "fold": 1 + (step > 3),
            "score": row.score + 1 / step,
        }
        for row in frame.itertuples()
        for step in range(1, 7)
        if row.status != "failed"
    ]
    return pd.DataFrame(rows, columns=["trial", "iteration", "fold", "score"])


def texts(axis):
    return [text.get_text() for text in axis.texts]


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def drawn(frame, reports=None, parameters=PARAMETERS, metric="MASE"):
    reports = curves(frame) if reports is None else reports
    return plot_sweep(frame, reports, metric=metric, parameters=parameters).axes


def test_each_trial_is_a_line_and_a_curve():
    frame = trials()
    above, left, _ = drawn(frame)
    lines = [patch for patch in above.patches if isinstance(patch, PathPatch)]
    assert len(lines) == 30
    assert {"learning_rate", "width", "attention", "MASE", "mlr", "standard"} <= set(texts(above))
    best = int(frame["score"].idxmin())
    assert legend(above) == [f"best: trial {best}", "finished (28)", "failed (2)"]
    assert "no score" in texts(above)
    curve = max(left.get_lines(), key=lambda line: line.get_linewidth())
    np.testing.assert_allclose(
        curve.get_ydata(), frame["score"][best] + 1 / np.arange(1, 7), rtol=1e-12
    )
    assert texts(left) == ["fold 1", "fold 2"]
    assert left.get_ylabel() == "MASE"


def test_importance_finds_the_parameter_that_the_score_rests_on():
    right = drawn(trials())[2]
    names = [label.get_text() for label in right.get_yticklabels()]
    assert names[0] == "learning_rate"
    assert sorted(names) == sorted(PARAMETERS)
    shares = [bar.get_width() for bar in right.patches]
    assert shares[0] > 0.8
    assert abs(sum(shares) - 1) < 1e-9
    assert "of 28 trials" in right.get_xlabel()


def test_few_trials_say_so():
    frame = trials(8)
    right = drawn(frame)[2]
    assert texts(right) == ["Only 6 trials have finished:\n10 are the least to tell."]


def test_a_parameter_that_never_changed_has_no_importance():
    frame = trials().assign(width=8)
    assert len(drawn(frame)[2].get_yticklabels()) == 2


def test_a_sweep_without_reports_or_results_is_drawn():
    frame = trials(3).assign(status="failed", score=np.nan)
    above, left, right = drawn(frame)
    assert legend(above) == ["failed (3)"]
    assert texts(left) == ["No trial has reported a score."]
    assert "Only 0 trials" in texts(right)[0]


def test_reports_that_are_no_numbers_are_no_curve():
    frame = trials()
    left = drawn(frame, curves(frame).assign(score=np.nan))[1]
    assert texts(left) == ["No trial has reported a score."]


def test_a_trial_that_went_astray_does_not_flatten_the_others():
    frame = trials()
    frame.loc[0, "score"] = 1e6
    above, left, _ = drawn(frame)
    assert any(text.startswith("> ") for text in texts(above))
    assert left.get_ylim()[1] < 10


def test_stopped_trials_are_told_apart():
    frame = trials()
    frame.loc[:4, "status"] = "stopped"
    assert "stopped (5)" in legend(drawn(frame)[0])


def test_horizons_are_not_compared():
    frame = trials().assign(prediction_length=[24, 48, 96] * 10)
    frame["score"] += frame["prediction_length"]
    above, left, right = drawn(frame, parameters=[*PARAMETERS, "prediction_length"])
    finished = frame[frame["status"] == "finished"]
    best = finished.loc[finished.groupby("prediction_length")["score"].idxmin(), "trial"]
    assert legend(above)[0] == "best: trials " + ", ".join(map(str, best))
    assert left.get_ylabel() == "MASE above the best of the horizon"
    thick = [line for line in left.get_lines() if line.get_linewidth() > 2]
    assert len(thick) == 3
    for line in thick:
        np.testing.assert_allclose(line.get_ydata(), 1 / np.arange(1, 7), rtol=1e-9)
    names = [label.get_text() for label in right.get_yticklabels()]
    assert "prediction_length" not in names


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([8, 16, 16, 32], ["8", "16", "32"]),
        ([0.1, None, 0.1], ["None", "0.1"]),
        ([None, 1.0, None, 2.0, 1.0], ["None", "1", "2"]),
        ([True, False], ["False", "True"]),
        (["b", "a"], ["a", "b"]),
        ([[2, 1, 1], None], ["None", "[2, 1, 1]"]),
        ([{"window": 8, "qk_norm": True}], ["{'window': 8, '…"]),
        ([None, None], ["None"]),
        ([0.0, 0.1, 0.25, 0.4], ["0", "0.1", "0.2", "0.3", "0.4"]),
        ([1e-4, 1e-3, 1e-2, 1e-1], ["0.0001", "0.001", "0.01", "0.1"]),
        ([5.0], ["5"]),
    ],
)
def test_the_ticks_of_a_scale_are_what_fits_its_values(values, ticks):
    scale = scale_of(pd.Series(values))
    assert [text for _, text in scale.ticks] == ticks
    assert len(scale.positions) == len(values)
    assert np.isfinite(scale.positions).all()


def test_values_stand_where_their_ticks_do():
    scale = scale_of(pd.Series([1e-4, 3e-4, 1e-2, 1e-1, 2e-3]))
    assert scale.positions[0] == 0
    assert scale.positions[3] == 1
    np.testing.assert_allclose(scale.positions[2], 2 / 3)
    linear = scale_of(pd.Series([0.001, 0.5, 0.9, 1.0, 0.3]))
    np.testing.assert_allclose(linear.positions[1], 0.499 / 0.999)


def test_a_score_that_is_missing_stands_beside_the_scale():
    scale = score_scale(np.array([1.0, np.nan, 2.0]), np.inf)
    assert scale.positions[1] > 1
    assert scale.ticks[-1][1] == "no score"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"trials": pd.DataFrame()}, ValueError, "`trials` must not be empty"),
        ({"trials": [1]}, TypeError, "`trials` must be a DataFrame"),
        ({"curves": [1]}, TypeError, "`curves` must be a DataFrame"),
        ({"curves": pd.DataFrame({"trial": [1]})}, ValueError, "`curves` must have the columns"),
        ({"parameters": []}, ValueError, "`parameters` must name at least one column"),
        ({"parameters": ["depth"]}, ValueError, "depth is missing"),
    ],
)
def test_what_cannot_be_drawn_is_refused(change, error, message):
    frame = trials()
    given = {"trials": frame, "curves": curves(frame), "parameters": PARAMETERS} | change
    with pytest.raises(error, match=message):
        plot_sweep(given["trials"], given["curves"], metric="MASE", parameters=given["parameters"])


def test_a_picture_changes_nothing():
    frame = trials()
    reports = curves(frame)
    before = frame.copy(), reports.copy(), dict(mpl.rcParams)
    drawn(frame, reports)
    pd.testing.assert_frame_equal(frame, before[0])
    pd.testing.assert_frame_equal(reports, before[1])
    assert dict(mpl.rcParams) == before[2]
