"""Data sets of the GluonTS repository, in folders as GluonTS writes them."""

import gzip
import importlib.util
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError, DatasetNotFoundError, MissingDependencyError
from mlrforecast.data import _repository
from mlrforecast.data.gluonts import read_repository, repository_names

HAS_GLUONTS = importlib.util.find_spec("gluonts") is not None
START = "2024-01-03 05:00:00"


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path, monkeypatch):
    """No folder but those that a test makes."""
    for name in ("MLRFORECAST_DATA", "MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def entry(item, values, **more):
    return {"start": START, "target": values, "item_id": item, **more}


def write(folder, test, train=(), *, freq="H", horizon=2, nested=False, zipped=False):
    """Write a folder as GluonTS does."""
    about = folder / "metadata" if nested else folder
    about.mkdir(parents=True)
    metadata = {"freq": freq, "prediction_length": horizon, "feat_static_cat": []}
    (about / "metadata.json").write_text(json.dumps(metadata))
    for name, entries in (("train", train), ("test", test)):
        lines = "".join(json.dumps(each) + "\n" for each in entries).encode()
        (folder / name).mkdir()
        if zipped:
            (folder / name / "data.json.gz").write_bytes(gzip.compress(lines))
        else:
            (folder / name / "data.json").write_bytes(lines)
    return folder


WHOLE = [entry("a", [1.5, None, 3.0, 4.0]), entry("b", [7.0, 8.0, 9.0])]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_folder_below_the_root(tmp_path, nested, zipped):
    write(tmp_path / "deep" / "tiny", WHOLE, nested=nested, zipped=zipped)
    found = read_repository("tiny", root=tmp_path, download=False)
    assert found[1:] == ("h", 2, 1, (), (), ())
    assert list(found.frame["item_id"]) == ["a"] * 4 + ["b"] * 3
    assert found.frame["timestamp"][1] == pd.Timestamp("2024-01-03 06:00")
    np.testing.assert_array_equal(found.frame["target"], [1.5, np.nan, 3, 4, 7, 8, 9])


def test_a_folder_of_the_variable_and_one_in_the_cache_of_gluonts(tmp_path, monkeypatch):
    write(tmp_path / "home" / ".gluonts" / "datasets" / "tiny", WHOLE[:1])
    assert len(read_repository("tiny", download=False).frame) == 4
    write(tmp_path / "mine" / "tiny", WHOLE)
    monkeypatch.setenv("MLRFORECAST_DATA", str(tmp_path / "mine"))
    assert len(read_repository("tiny", download=False).frame) == 7


@pytest.mark.parametrize(
    ("written", "first", "step"),
    [
        ("M", "2024-01-01", "MS"),
        ("1M", "2024-01-01", "MS"),
        ("Q-DEC", "2024-01-01", "QS-JAN"),
        ("Y", "2024-01-01", "YS-JAN"),
        ("A-DEC", "2024-01-01", "YS-JAN"),
        ("W", "2024-01-01", "W-MON"),
        ("W-WED", "2023-12-28", "W-THU"),
        ("30min", "2024-01-03 05:00", "30min"),
        ("0.5H", "2024-01-03 05:00", "30min"),
    ],
)
def test_frequencies_of_any_pandas(tmp_path, written, first, step):
    write(tmp_path / "tiny", WHOLE, freq=written)
    found = read_repository("tiny", root=tmp_path)
    assert found.freq == step
    assert found.frame["timestamp"][0] == pd.Timestamp(first)


def test_features_have_their_roles(tmp_path):
    entries = [
        entry(
            number,
            [1.0, 2.0],
            feat_static_cat=[number, 3],
            feat_dynamic_real=[[4.0, 5.0]],
            past_feat_dynamic_real=[[6.0, 7.0]],
        )
        for number in range(2)
    ]
    write(tmp_path / "tiny", entries)
    found = read_repository("tiny", root=tmp_path)
    assert found.static == ("feat_static_cat_0", "feat_static_cat_1")
    assert found.known == ("feat_dynamic_real_0",)
    assert found.past == ("past_feat_dynamic_real_0",)
    assert found.frame["feat_static_cat_0"].astype(int).tolist() == [0, 0, 1, 1]


SERIES = {"a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "b": [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]}
# Windows as lstnet writes them, with one name a series, and as gp_copula does, numbered through.
BY_NAME = [entry(item, SERIES[item][:end]) for end in (4, 5, 6) for item in SERIES]
NUMBERED = [each | {"item_id": number} for number, each in enumerate(BY_NAME)]


@pytest.mark.parametrize(("test", "items"), [(BY_NAME, ["a", "b"]), (NUMBERED, ["0", "1"])])
def test_windows_of_a_rolling_test_are_the_longest_of_each_series(tmp_path, test, items):
    train = [entry(item, values[:3]) for item, values in SERIES.items()]
    write(tmp_path / "tiny", test, train, horizon=1)
    found = read_repository("tiny", root=tmp_path)
    assert found.num_windows == 3
    assert list(found.frame["item_id"].unique()) == items
    assert found.frame["target"].tolist() == SERIES["a"] + SERIES["b"]


def test_windows_that_are_not_of_one_series_are_refused(tmp_path):
    test = [entry("a", [1.0, 2.0]), entry("a", [1.0, 3.0, 4.0])]
    write(tmp_path / "tiny", test)
    with pytest.raises(DataError, match=r"windows of item_id 'a' .* they differ before the end"):
        read_repository("tiny", root=tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"freq": "h"}'])
def test_metadata_that_lack_something_are_named(tmp_path, content):
    write(tmp_path / "tiny", WHOLE)
    (tmp_path / "tiny" / "metadata.json").write_text(content)
    with pytest.raises(DataError, match=r"metadata.json' (is no JSON|must hold freq and pred)"):
        read_repository("tiny", root=tmp_path)


@pytest.mark.parametrize("name", ["MLRFORECAST_OFFLINE", "HF_HUB_OFFLINE"])
def test_what_may_not_be_downloaded_is_not(monkeypatch, name):
    with pytest.raises(DatasetNotFoundError, match=r"'tiny'.*switched off by download=False"):
        read_repository("tiny", download=False)
    monkeypatch.setenv(name, "1")
    with pytest.raises(DatasetNotFoundError, match=f"switched off by {name}=1"):
        read_repository("tiny")


@pytest.mark.skipif(HAS_GLUONTS, reason="gluonts is installed")
def test_without_gluonts_the_error_says_how_to_install_it():
    needed = r"GluonTS.* needs 'gluonts.*pip install 'mlrforecast\[gluonts\]'"
    with pytest.raises(MissingDependencyError, match=needed):
        read_repository("m4_hourly")
    with pytest.raises(MissingDependencyError, match=needed):
        repository_names()


def stand_in(monkeypatch, get_dataset):
    """Put something in the place of GluonTS's repository."""
    repository = SimpleNamespace(get_dataset=get_dataset, dataset_names=["tiny", "other"])
    monkeypatch.setattr(_repository, "import_optional", lambda *_, **__: repository)


def test_gluonts_downloads_what_is_not_there_or_not_complete(tmp_path, monkeypatch):
    def get_dataset(name, path, regenerate):
        assert regenerate
        write(path / name, WHOLE)

    stand_in(monkeypatch, get_dataset)
    half = tmp_path / "home" / ".gluonts" / "datasets" / "other"
    half.mkdir(parents=True)
    (half / "metadata.json").write_text("{}")
    assert len(read_repository("tiny").frame) == 7
    assert repository_names() == ["other", "tiny"]
    with pytest.raises(ValueError, match=r"got 'huge'. Available: other, tiny"):
        read_repository("huge")


def test_a_download_that_fails_is_told(monkeypatch):
    def get_dataset(name, path, regenerate):
        raise ConnectionError("no route")

    stand_in(monkeypatch, get_dataset)
    with pytest.raises(DatasetNotFoundError, match=r"download by GluonTS \(no route\)"):
        read_repository("tiny")


@pytest.mark.skipif(not HAS_GLUONTS, reason="gluonts is not installed")
class TestWithGluonTS:
    """What GluonTS itself makes and writes."""

    def test_names(self):
        assert {"m4_hourly", "electricity_nips", "ett_small_1h"} < set(repository_names())

    @pytest.mark.parametrize("kind", ["jsonl", "arrow", "parquet"])
    def test_a_data_set_that_gluonts_saved(self, tmp_path, kind):
        from gluonts.dataset import arrow, jsonl
        from gluonts.dataset.common import ListDataset, MetaData, TrainDatasets

        writer = {
            "jsonl": jsonl.JsonLinesWriter(),
            "arrow": arrow.ArrowWriter(),
            "parquet": arrow.ParquetWriter(),
        }[kind]
        rows = [
            entry("a", [1.5, np.nan, 3.0], feat_dynamic_real=[[1, 2, 3], [4, 5, 6]]),
            entry("b", [7.0, 8.0, 9.0], feat_dynamic_real=[[1, 2, 3], [7, 8, 9]]),
        ]
        listed = ListDataset(rows, freq="h")
        meta = MetaData(freq="h", prediction_length=1)
        TrainDatasets(meta, listed, listed).save(str(tmp_path / "tiny"), writer=writer)
        found = read_repository("tiny", root=tmp_path, download=False)
        assert found.known == ("feat_dynamic_real_0", "feat_dynamic_real_1")
        assert found.frame["feat_dynamic_real_1"].tolist() == [4, 5, 6, 7, 8, 9]
        np.testing.assert_array_equal(found.frame["target"], [1.5, np.nan, 3, 7, 8, 9])
        assert found.frame["timestamp"].iloc[-1] == pd.Timestamp("2024-01-03 07:00")

    def test_a_recipe_of_gluonts_that_needs_no_internet(self):
        found = read_repository("constant")
        assert found.num_windows == 1
        assert found.prediction_length > 0
        assert found.frame.groupby("item_id")["target"].nunique().eq(1).all()
