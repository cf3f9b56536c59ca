"""``backtest`` and ``plot``: tables of scores, and pictures."""

import json

import numpy as np
import pandas as pd
import pytest

from mlrforecast import MLRForecaster
from mlrforecast.cli import _evaluate
from tests.cli.conftest import SMALL, long_table, wide_table

BASELINES = {"seasonal naive", "mean of 7 seasons", "repeat last", "linear"}
SIGNS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


def test_the_leaderboard_is_printed(run, tables, wide_model, tmp_path):
    result = run("backtest", wide_model, tables / "wide.csv", "--windows", 3)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    first, header, *rows = result.stdout.splitlines()
    assert first == (
        "3 windows of 6 steps, cutoffs from 2024-01-08 05:00:00 to 2024-01-08 17:00:00:"
    )
    assert header.split()[:5] == ["MSE", "MAE", "RMSE", "MASE", "sMAPE"]
    assert "coverage 80%" in header
    assert {row[:17].strip() for row in rows} == BASELINES | {"MLRForecaster"}
    assert list(tmp_path.iterdir()) == []


def test_json_holds_the_numbers_of_the_library(run, tables, wide_model):
    words = ("--windows", 2, "--step", 3, "--quantile-levels", "0.2,0.8", "--json", "--quiet")
    told = json.loads(run("backtest", wide_model, tables / "wide.csv", *words).stdout)
    levels = [0.2, 0.8]
    table = MLRForecaster.load(wide_model).leaderboard(
        wide_table(), windows=2, step=3, quantile_levels=levels
    )
    scores = {row.pop("model"): row for row in told.pop("leaderboard")}
    assert set(scores) == {*BASELINES, "MLRForecaster"}
    assert scores["MLRForecaster"]["MASE"] == pytest.approx(table.loc["MLRForecaster", "MASE"])
    assert scores["repeat last"]["WQL"] is None
    assert told == {
        "model": str(wide_model),
        "series": 1,
        "windows": 2,
        "prediction_length": 6,
        "first_cutoff": "2024-01-08T14:00:00",
        "last_cutoff": "2024-01-08T17:00:00",
        "left_out": {},
        "out": None,
    }


def test_every_forecast_goes_to_a_file(run, tables, long_model, tmp_path):
    result = run(
        "backtest", long_model, tables / "long.csv", "--windows", 2, "--out", "b.csv",
        *("--quantile-levels", "0.1,0.9"),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == "Wrote 28 rows to b.csv."
    table = pd.read_csv(tmp_path / "b.csv", dtype={"item_id": str}, keep_default_na=False)
    assert table.columns.tolist() == [
        "item_id", "cutoff", "timestamp", "actual", "forecast", "0.1", "0.9",
    ]  # fmt: skip
    assert table["item_id"].unique().tolist() == ["007", "NA"]
    history = long_table().query("shop == 'NA' and day >= '2024-03-27' and day < '2024-04-03'")
    np.testing.assert_allclose(table["actual"].tail(7), history["sold"])


def test_a_baseline_that_is_left_out_is_told(run, tables, wide_model, tmp_path):
    wide_table().head(9).to_csv(tmp_path / "short.csv", index=False)
    result = run("backtest", wide_model, "short.csv", "--windows", 1)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Without linear: ")


def test_refit_reaches_the_library(run, tables, wide_model, monkeypatch):
    calls = []
    backtest = MLRForecaster.backtest

    def caught(self, X, **given):
        calls.append(given["refit"])
        return backtest(self, X, **given | {"refit": False})

    monkeypatch.setattr(MLRForecaster, "backtest", caught)
    run("backtest", wide_model, tables / "wide.csv", "--windows", 1, "--refit", 2)
    run("backtest", wide_model, tables / "wide.csv", "--windows", 1)
    assert calls == [2, False]


def test_a_point_model_is_scored_without_quantiles(run, tables):
    data = tables / "wide.csv"
    run("fit", data, "--prediction-length", 6, "--out", "m", "--loss", "mae", *SMALL)
    result = run("backtest", "m", data, "--windows", 1)
    assert result.exit_code == 0, result.output
    assert "WQL" not in result.stdout
    result = run("backtest", "m", data, "--quantile-levels", "0.5")
    assert result.exit_code == 2
    for kind in ("forecast", "backtest"):
        result = run("plot", "m", data, "--out", f"{kind}.png", "--kind", kind)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["backtest", "nowhere", "d.csv"], "There is no folder 'nowhere'"),
        (["backtest", "{model}"], "Missing argument 'DATA'"),
        (["backtest", "{model}", "d.csv", "--windows", "0"], "0 is not in the range"),
        (["backtest", "{model}", "d.csv", "--out", "d.csv"], "which is read"),
        (["backtest", "{model}", "d.csv"], "prediction_length 6"),
        (["plot", "{model}", "--out", "a.gif"], "must end in .png, .pdf, .svg, got 'a.gif'"),
        (["plot", "{model}", "--out", "a.png", "--kind", "error"], "--kind error needs DATA"),
        (["plot", "{model}", "d.csv", "--out", "a.png", "--kind", "error", "--future", "d.csv"],
         "--future is for --kind forecast"),
        (["plot", "{model}", "--out", "a.png", "--items", "east"], "'east'"),
    ],
)  # fmt: skip
def test_what_is_refused(run, tmp_path, wide_model, words, message):
    wide_table().head(5).to_csv(tmp_path / "d.csv", index=False)
    result = run(*(word.format(model=wide_model) for word in words))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


@pytest.mark.parametrize(
    ("kind", "name"), [("forecast", "a.png"), ("backtest", "b/a.pdf"), ("error", "a.svg")]
)
def test_pictures(run, tables, wide_model, tmp_path, kind, name):
    words = ("--out", name, "--kind", kind)
    result = run("plot", wide_model, tables / "wide.csv", *words)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert result.stderr == f"Drew {name}.\n"
    content = (tmp_path / name).read_bytes()
    assert content.startswith(SIGNS["." + name.split(".")[1]])
    assert len(content) > 5_000
    assert len(list((tmp_path / name).parent.iterdir())) == 1
    told = run("plot", wide_model, tables / "wide.csv", *words, "--json", "--quiet")
    assert (json.loads(told.stdout), told.stderr) == ({"out": name, "kind": kind}, "")


def test_the_items_that_were_named_are_drawn(run, tables, wide_model, long_model, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        _evaluate, "_save", lambda axes, out: drawn.append([axis.get_ylabel() for axis in axes])
    )
    run("plot", wide_model, "--out", "a.png", "--items", "south")
    run("plot", wide_model, "--out", "a.png", "--max-items", 1)
    data, plan = tables / "long.csv", tables / "plan.csv"
    run("plot", long_model, data, "--future", plan, "--out", "a.png", "--items", "NA,007")
    run("plot", long_model, data, "--out", "a.png", "--items", "NA", "--kind", "backtest")
    assert drawn == [["south"], ["north"], ["NA", "007"], ["NA"]]


def test_items_that_are_numbers_are_found_by_what_is_typed(run, tmp_path, monkeypatch):
    table = long_table().assign(item_id=lambda frame: (frame["shop"] == "007").astype(int))
    table = table[["item_id", "day", "sold"]].rename(columns={"day": "ds", "sold": "y"})
    table.to_parquet(tmp_path / "d.parquet")
    run("fit", "d.parquet", "--prediction-length", 3, "--out", "m", "--with-context", *SMALL)
    drawn = []
    monkeypatch.setattr(
        _evaluate, "_save", lambda axes, out: drawn.append([axis.get_ylabel() for axis in axes])
    )
    run("plot", "m", "d.parquet", "--out", "a.png", "--items", "0")
    run("plot", "m", "--out", "a.png", "--items", "1")
    assert drawn == [["0"], ["1"]]


def test_a_picture_that_fails_leaves_no_file(run, wide_model, tmp_path, monkeypatch):
    def full(self, path, **options):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    result = run("plot", wide_model, "--out", "a.png")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert list(tmp_path.iterdir()) == []
