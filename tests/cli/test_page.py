"""The commands of the page on the command line do what it says."""

import json
import re
import shlex
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from mlrforecast.cli import main
from tests.cli.conftest import ROOT, SMALL

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
# For a shell, and for the internet or a file that is no part of the package.
LEFT_OUT = ("eval", "mlrforecast datasets fetch", "mlrforecast datasets verify ETTh1")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run_line(line):
    """Run one line of a shell: a command, perhaps behind `cat FILE |` or before `> FILE`."""
    line, _, out = line.partition(" > ")
    source, _, command = line.rpartition(" | ")
    words = shlex.split(command)
    assert words.pop(0) == "mlrforecast"
    # Small networks, trained for a moment.
    words += SMALL if words[0] in ("fit", "tune") and "--resume" not in words else ()
    text = Path(source.removeprefix("cat ")).read_text() if source else None
    result = CliRunner().invoke(main, words, prog_name="mlrforecast", input=text)
    assert result.exit_code == 0, f"{line}: {result.output}"
    if out:
        Path(out).write_text(result.stdout)
    return words, result


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The folder in which the whole page was run, and what each line gave."""
    folder = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        namespace: dict[str, object] = {}
        for code in blocks("python"):
            exec(code, namespace)
        lines = [line for block in blocks("bash") for line in block.splitlines()]
        found = [run_line(line) for line in lines if not line.startswith(LEFT_OUT)]
    return folder, found


def test_every_command_of_the_page_runs(results):
    folder, found = results
    commands = {"fit", "predict", "backtest", "plot", "tune", "datasets"}
    commands |= {"synthesize", "pretrain"}
    assert {words[0] for words, _ in found} == commands
    assert len(found) == 21
    written = {path.name for path in folder.iterdir()}
    named = {words[words.index("--out") + 1] for words, _ in found if "--out" in words}
    assert written == named | {"sales.csv", "plan.csv", "scores.json", "losses.csv"}


def test_the_table_is_the_one_that_is_shown(results):
    head = "".join((results[0] / "sales.csv").read_text().splitlines(keepends=True)[:3])
    assert head in blocks("text")


def test_the_files_hold_what_the_page_says(results):
    folder = results[0]
    items = {"dtype": {"shop": str}, "keep_default_na": False}
    forecast = pd.read_csv(folder / "forecast.csv", **items)
    assert forecast.columns.tolist() == ["shop", "day", "sold"]
    assert forecast.groupby("shop").size().to_dict() == {"007": 7, "012": 7, "NA": 7}
    assert forecast["day"].iloc[0] == "2024-06-24"
    pd.testing.assert_series_equal(
        pd.read_parquet(folder / "forecast.parquet")["sold"], forecast["sold"]
    )
    assert len(pd.read_csv(folder / "longer.csv")) == 3 * 14
    paths = pd.read_csv(folder / "paths.csv").columns
    assert sum(name.startswith("sample_") for name in paths) == 50
    backtest = pd.read_csv(folder / "backtest.csv")
    assert backtest.columns[:5].tolist() == ["item_id", "cutoff", "timestamp", "actual", "forecast"]


def test_the_fields_of_json_are_those_that_are_listed(results, monkeypatch):
    folder, found = results
    monkeypatch.chdir(folder)
    fields = dict(re.findall(r"^\| `([a-z -]+)` \| `([a-z_ ]+)`", PAGE, re.MULTILINE))
    # Those of data sets have a test below, and those of tasks a file of tests.
    others = ("datasets", "icl", "lm")
    fields = {name: text for name, text in fields.items() if not name.startswith(others)}
    lines = {words[0]: words for words, _ in found}
    for command, words in (
        ("fit", lines["fit"]),
        ("plot", lines["plot"]),
        ("predict", ["predict", "calibrated"]),
        ("predict --out", lines["predict"]),
        ("pretrain", lines["pretrain"]),
        ("synthesize", lines["synthesize"]),
        ("tune", lines["tune"]),
    ):
        result = CliRunner().invoke(main, [*words, "--json", "--quiet"])
        assert result.exit_code == 0, result.output
        assert " ".join(json.loads(result.stdout)) == fields.pop(command), command
    assert " ".join(json.loads((folder / "scores.json").read_text())) == fields.pop("backtest")
    assert fields == {}


def test_the_fields_of_json_of_data_sets_are_those_that_are_listed():
    rows = re.findall(r"^\| `datasets (\w+)` \| `(\w+)`, a list of `([a-z0-9_ ]+)`", PAGE, re.M)
    given = {"list": (), "fetch": ("synthetic",), "verify": ("synthetic",)}
    assert {command for command, _, _ in rows} == given.keys()
    for command, field, names in rows:
        result = CliRunner().invoke(main, ["datasets", command, *given[command], "--json"])
        found = json.loads(result.stdout)
        assert [*found] == [field]
        assert " ".join(found[field][0]) == names


def commands(group):
    """Every command below a group."""
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


def test_every_command_and_option_of_the_page_exists():
    options = {
        name
        for command in commands(main)
        for parameter in command.params
        for name in parameter.opts + parameter.secondary_opts
    } | {"--help", "--traceback"}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= options
    listed = re.findall(r"^\| `mlrforecast (\w+)", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(main.commands)
