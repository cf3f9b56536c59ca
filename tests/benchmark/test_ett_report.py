"""The README and the page on forecast errors quote the committed results, and nothing else."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from mlrforecast.benchmark._floors import FLOORS
from mlrforecast.benchmark._splits import (
    future_windows,
    make_splits,
    mean_errors,
    past_windows,
    standardise,
)
from mlrforecast.data import load_dataset

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "ett_report", ROOT / "benchmarks" / "ett_report.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(script, tmp_path):
    """A copy of the committed results, with peers and another final file of made-up numbers."""
    for name in ("ett", "epf"):
        shutil.copytree(script.RESULTS / name, tmp_path / name)
    shared = {"seed": [0, 0, 1, 1], "horizon": [96, 192] * 2, "mse": [0.3, 0.5, 0.2, 0.6]}
    fits = pd.DataFrame(shared | {"mae": 0.4, "windows": 9, "train_seconds": 50.0}).assign(
        dataset="ETTh2", target="M", attention="mlr", hardware="a card", command="--jobs 4"
    )
    own = fits.assign(model="MLRForecaster", config_hash="123456789012")
    own.to_csv(tmp_path / "ett" / "ETTh2_M_final.csv", index=False)
    (tmp_path / "peers").mkdir()
    peers = fits.assign(model="NLinear", hardware="another card").drop(columns="attention")
    peers.to_csv(tmp_path / "peers" / "ETTh2_M_peers.csv", index=False)
    return tmp_path


def test_both_pages_hold_the_committed_results(script):
    for (path, start, end), text in (
        (script.README, script.readme_table()),
        (script.PAGE, script.page_section()),
    ):
        assert "MLRForecaster" in text
        page = path.read_text(encoding="utf-8")
        assert script.insert(page, start, end, text) == page


@pytest.mark.parametrize(
    ("file", "column", "pages"),
    [
        ("ett/ETTh1_M_final.csv", "mse", 2),
        ("ett/ETTh1_M_final.csv", "mae", 2),
        ("ett/ETTh2_M_final.csv", "mse", 1),
        ("ett/published.csv", "mae", 1),
        ("peers/ETTh2_M_peers.csv", "mse", 1),
        ("epf/epf.csv", "mae", 1),
    ],
)
def test_another_number_in_a_file_would_be_seen(script, results, file, column, pages):
    before = script.readme_table(results), script.page_section(results)
    runs = pd.read_csv(results / file, dtype={"config_hash": str})
    runs.loc[0, column] += 0.01
    runs.to_csv(results / file, index=False)
    after = script.readme_table(results), script.page_section(results)
    assert sum(one != other for one, other in zip(before, after, strict=True)) == pages


def test_the_spread_of_a_mean_is_that_of_the_means_of_the_seeds(script, results):
    lines = script.page_section(results).splitlines()
    cells = ["0.2500 ± 0.0707 / 0.4000", "0.5500 ± 0.0707 / 0.4000", "0.4000 ± 0.0000 / 0.4000"]
    for name in ("**MLRForecaster**, MLR attention | this library", "NLinear | run again"):
        assert f"| {name} | {' | '.join(cells)} |" in lines
    [note] = [line for line in lines if "a card" in line]
    assert "Full test windows (9/9)" in note
    assert "over 2 seeds, 50 s a fit (median) on a card, shared by 4 fits." in note
    assert "`benchmarks/ett_peers.py`: mean ± standard deviation over 2 seeds, 50 s" in note
    assert "Quoted, not measured here: DUET from table 3" in note


def test_settings_are_not_averaged_with_others_and_a_part_has_no_mean(script, results):
    path = results / "ett" / "ETTh2_M_final.csv"
    runs = pd.read_csv(path, dtype={"config_hash": str})
    runs.loc[runs.index[-1], "config_hash"] = "12e456789012"
    runs.to_csv(path, index=False)
    assert {
        "| **MLRForecaster**, MLR attention, settings 123456789012 | this library "
        "| 0.2500 ± 0.0707 / 0.4000 | 0.5000 / 0.4000 | 0.4000 / 0.4000 |",
        "| **MLRForecaster**, MLR attention, settings 12e456789012 | this library "
        "|  | 0.6000 / 0.4000 |  |",
    } <= set(script.page_section(results).splitlines())


def test_published_forecasts_of_prices_stand_beside_those_of_the_same_years(script, results):
    path = results / "epf" / "epf.csv"
    runs = pd.read_csv(path, dtype={"config_hash": str}).assign(part="validation")
    runs.to_csv(path, index=False)
    assert "(quoted)" not in script.page_section(results)
    pd.concat([runs, runs.assign(part="test")]).to_csv(path, index=False)
    section = script.page_section(results)
    assert "| test | LEAR, an ensemble (quoted) | day | 728 | 1.738 |  |" in section
    assert "| test | same hour of the day before |  |" in section


def test_each_final_run_is_told(script, results):
    log = results / "ett" / "final_runs.log"
    count = len(log.read_text(encoding="utf-8").splitlines())
    entry = {"time": "2030-01-01", "config_hash": "abc", "command": "mlrforecast x"}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
    line = f"| {count + 1} | 2030-01-01 | `abc` | `mlrforecast x` |"
    assert line in script.page_section(results).splitlines()


def test_files_stand_in_their_order(script, tmp_path):
    names = ["ETTm1_M", "exchange_rate_M", "ETTh1_OT", "ETTh2_M", "ETTh1_M", "ETTh1_M_folds"]
    for name in names:
        kind = "" if name.endswith("folds") else "_final"
        (tmp_path / f"{name}{kind}.csv").touch()
    found = [path.stem.removesuffix("_final") for path in script.figure_ett.final_files(tmp_path)]
    assert found == ["ETTh1_M", "ETTh2_M", "ETTh1_OT", "exchange_rate_M", "ETTm1_M"]


def test_pictures_are_drawn_of_the_files_that_are_there(script, tmp_path, monkeypatch):
    results, images = tmp_path / "results", tmp_path / "img"
    for folder in (results / "ett", images):
        folder.mkdir(parents=True)
    script.figure_ett.draw(images, results / "ett")
    assert list(images.iterdir()) == []
    seen = []
    monkeypatch.setattr(
        Axes, "plot", lambda axis, x, y, **options: seen.append((options["label"], y))
    )
    fits = {"dataset": "ETTh2", "target": "M", "attention": "mlr", "model": "MLRForecaster"}
    runs = pd.DataFrame(
        {"horizon": [2, 3, 3], "mse_by_step": ["9 9", "0.1 0.2 0.3", "0.3 0.4 0.3"]}
    )
    runs.assign(**fits).to_csv(results / "ett" / "ETTh2_M_final.csv", index=False)
    script.figure_ett.draw(images, results / "ett")
    assert [path.name for path in images.iterdir()] == ["ett_error_by_step.png"]
    [(label, errors)] = seen
    assert label == "MLRForecaster, MLR attention"
    np.testing.assert_allclose(errors, [0.2, 0.3, 0.3])


def test_the_page_shows_the_pictures_that_are_there(script, results, tmp_path):
    (tmp_path / "img").mkdir()
    assert "](img/" not in script.page_section(results, tmp_path / "img")
    (tmp_path / "img" / "ett_week.png").touch()
    assert script.page_section(results, tmp_path / "img").count("](img/ett_week.png)") == 1


def test_seasons_are_days_only_where_rows_are_hours(script):
    runs = pd.DataFrame({"dataset": ["ETTh1", "exchange_rate"], "model": "profile_7d"})
    runs = runs.assign(attention="", seed="", config_hash="")
    for row, name in enumerate(("mean of the last 7 days", "mean of the last 7 times 24 rows")):
        assert [found for found, _, _ in script.own_models(runs.iloc[[row]])] == [name]


@pytest.mark.shared
def test_what_dropped_batches_do_is_as_the_page_says(script):
    loaded = load_dataset("ETTh2", download=False)
    (split,) = make_splits(loaded.splits, final=True)
    values = standardise(loaded.targets, split.train).to_numpy()
    actual = future_windows(values, split.scored, 96)
    past = past_windows(values, split.scored, 96, 168)
    profile = FLOORS["profile_7d"].forecast
    page = " ".join(script.PAGE[0].read_text(encoding="utf-8").split())
    for batch, words in ((1, "{} over all windows"), (128, "{} where"), (2048, "{} with batches")):
        kept = len(actual) // batch * batch
        found = mean_errors(actual[:kept], lambda rows: profile(np.array(past[rows]), 96))
        assert words.format(f"{found.mse:.3f}") in page
