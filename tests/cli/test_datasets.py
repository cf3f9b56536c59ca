"""``mlrforecast datasets``: list, info, fetch, verify."""

import dataclasses
import hashlib
import json

import pytest

from mlrforecast.cli import _datasets
from mlrforecast.data import FileCard, catalogue, datasets, fetching, list_datasets
from tests.data.http_server import serving

CONTENT = b"date," + b",".join(b"%d" % n for n in range(500)) + b"\n"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """A cache of its own, and nothing that says where else to look or not to."""
    for name in ("MLRFORECAST_DATA", "MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def site():
    with serving() as running:
        yield running


@pytest.fixture
def toy(site, monkeypatch):
    """A data set of the catalogue that a local server serves."""
    real = catalogue.load_card
    file = FileCard(
        name="toy.csv",
        urls=(site.put("toy.csv", CONTENT),),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
    )
    card = dataclasses.replace(real("ETTh1"), name="toy", files=(file,))
    for module in (_datasets, fetching, datasets):
        monkeypatch.setattr(module, "load_card", lambda name: card if name == "toy" else real(name))
    return card


def test_list_has_a_row_for_every_data_set(run):
    lines = run("datasets", "list").stdout.splitlines()
    assert lines[0].split() == ["name", "step", "horizon", "hash", "at", "hand", "licence", "title"]
    assert [line.split()[0] for line in lines[1:]] == list_datasets()
    rows = {line.split()[0]: line.split()[1:5] for line in lines[1:]}
    assert rows["synthetic"] == ["h", "24", "verified", "yes"]
    assert rows["ETTh1"] == ["h", "96", "verified", "-"]
    assert rows["weather"] == ["10min", "96", "unverified", "-"]
    assert rows["gluonts:m4_hourly"] == ["-", "-", "unverified", "-"]


@pytest.mark.parametrize("place", ["MLRFORECAST_DATA", "cache"])
def test_list_tells_what_is_at_hand(run, tmp_path, monkeypatch, place):
    folder = tmp_path / "cache" / "mlrforecast" / "deep"
    if place != "cache":
        folder = tmp_path / "data"
        monkeypatch.setenv(place, str(folder))
    folder.mkdir(parents=True)
    (folder / "ETTh1.csv.xz").touch()
    (folder / "Hourly-train.csv").touch()
    rows = json.loads(run("datasets", "list", "--json").stdout)["datasets"]
    assert [row["name"] for row in rows if row["at_hand"]] == ["ETTh1", "synthetic"]
    (folder / "Hourly-test.csv").touch()
    rows = json.loads(run("datasets", "list", "--json").stdout)["datasets"]
    assert [row["name"] for row in rows if row["at_hand"]] == ["ETTh1", "synthetic", "m4:hourly"]


def test_match_reads_name_and_title_in_any_case(run):
    def names(text):
        rows = json.loads(run("datasets", "list", "--match", text, "--json").stdout)["datasets"]
        return [row["name"] for row in rows]

    assert names("ETTM") == ["ETTm1", "ETTm2"]
    assert names("san francisco")[0] == "traffic"
    result = run("datasets", "list", "--match", "nothing of this")
    assert result.exit_code == 2
    assert "`--match` 'nothing of this'" in result.stderr


def test_info_tells_the_card_and_what_is_at_hand(run):
    text = run("datasets", "info", "synthetic").stdout
    assert text.startswith("synthetic: Three synthetic hourly loads with known truth\n")
    assert text.count("Three synthetic hourly loads") == 1
    assert "comes with the package" in text
    assert "1344 rows, 2024" in text
    text = run("datasets", "info", "ETTh1").stdout
    for part in ("licence: CC BY-ND 4.0", "Informer", "sha256 f18de3ad", "/ETTh1.csv\n"):
        assert part in text
    assert text.endswith("Not at hand: mlrforecast datasets fetch ETTh1\n")
    assert "unverified" in run("datasets", "info", "weather").stdout


def test_info_as_json_holds_the_card(run):
    fields = json.loads(run("datasets", "info", "synthetic", "--json").stdout)
    assert fields["at_hand"] is True
    assert fields["splits"]["train"] == [0, 1008]
    assert fields["columns"][0]["name"] == "load_1"
    assert fields["files"][0]["size"] == 47049
    assert json.loads(run("datasets", "info", "ETTh1", "--json").stdout)["at_hand"] is False


@pytest.mark.parametrize("command", ["info", "fetch", "verify"])
def test_an_unknown_name_is_one_line_and_code_2(run, site, toy, command):
    names = ("ETTh9",) if command == "info" else ("toy", "ETTh9")
    result = run("datasets", command, *names)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: Unknown data set 'ETTh9'. Did you mean")
    assert result.stderr.count("\n") == 1
    assert site.log == [], "nothing is downloaded before all names are known"


def test_fetch_prints_the_paths_and_verify_is_content(run, site, toy, tmp_path):
    path = tmp_path / "cache" / "mlrforecast" / "toy.csv"
    for _ in range(2):
        result = run("datasets", "fetch", "toy", "synthetic")
        assert result.exit_code == 0
        assert result.stdout == f"{path}\n"
        assert result.stderr == "synthetic comes with the package.\n"
    assert len(site.log) == 1
    assert path.read_bytes() == CONTENT
    result = run("datasets", "fetch", "toy", "--force", "--json", "--quiet")
    assert json.loads(result.stdout) == {"datasets": [{"name": "toy", "files": [str(path)]}]}
    assert result.stderr == ""
    assert len(site.log) == 2

    result = run("datasets", "verify", "toy", "synthetic")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["name", "file", "state", "size", "where"]
    assert lines[1] == ["toy", "toy.csv", "ok", str(len(CONTENT)), str(path)]
    assert lines[2][:3] == ["synthetic", "synthetic.csv", "ok"]


def test_verify_tells_altered_and_absent_files_with_code_2(run, toy, tmp_path):
    result = run("datasets", "verify", "synthetic", "toy")
    assert result.exit_code == 2
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:3] for line in lines[1:]] == [
        ["synthetic", "synthetic.csv", "ok"],
        ["toy", "toy.csv", "absent"],
    ]
    assert "toy.csv of toy is nowhere. To get it: mlrforecast datasets fetch toy" in result.stderr

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy.csv").write_bytes(CONTENT[:-1])
    result = run("datasets", "verify", "toy", "--root", "data", "--json")
    assert result.exit_code == 2
    (row,) = json.loads(result.stdout)["files"]
    assert (row["state"], row["size"]) == ("altered", len(CONTENT) - 1)
    for part in (row["sha256"], row["expected"], "toy.csv was altered or cut short"):
        assert part in result.stderr
    assert row["expected"] == toy.files[0].sha256


def test_a_failed_download_is_one_line_and_code_2(run, site, toy):
    site.pages.clear()
    result = run("datasets", "fetch", "toy")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "404" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_switch_is_named(run, site, toy, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = run("datasets", "fetch", "toy")
    assert result.exit_code == 2
    assert "switched off by HF_HUB_OFFLINE=1" in result.stderr
    assert site.log == []


def test_what_gluonts_keeps_is_not_fetched_here(run):
    result = run("datasets", "fetch", "gluonts:m4_hourly")
    assert result.exit_code == 2
    assert "load_dataset('gluonts:m4_hourly')" in result.stderr
