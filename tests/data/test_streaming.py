"""Panels that are read from files block by block, against those of the same frame in memory."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from mlrforecast._core.errors import DataError
from mlrforecast.data import (
    CovariateEncoding,
    FileDataset,
    FrameSchema,
    Panel,
    WindowStore,
    _pieces,
    _storage,
    read_panel,
)
from mlrforecast.data.scaling import SCALINGS

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = FrameSchema(
    past_covariates=("wind",),
    known_covariates=("price", "promo"),
    static_covariates=("region", "size"),
)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pieces, "ROWS", 70)
    monkeypatch.setattr(_storage, "BLOCK", 130)


def rows_of(num_series: int = 12, seed: int = 0) -> pd.DataFrame:
    """Series of 20 to 90 rows with all kinds of covariates, categories that come late included."""
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(num_series):
        count = int(rng.integers(20, 90))
        values = rng.integers(0, 999, size=count) / 8
        values[rng.random(count) < 0.1] = np.nan
        parts.append(
            pd.DataFrame(
                {
                    "item_id": f"s{(5 * number) % num_series}",
                    "timestamp": pd.date_range("2024-03-01", periods=count, freq="h")
                    + pd.Timedelta(hours=number),
                    "target": values,
                    "wind": rng.integers(0, 99, size=count) / 4,
                    "price": np.where(rng.random(count) < 0.1, np.nan, rng.integers(9, size=count)),
                    "promo": rng.choice(["z", "b", None, "a"][: 1 + number % 4], size=count),
                    "region": f"r{(7 * number) % 5}" if number else None,
                    "size": float(number),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def to_jsonl(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", lines=True, date_format="iso", date_unit="us")


def to_stream(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=33)


def to_one_batch(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "x.parquet": lambda frame, path: frame.to_parquet(path),
    "groups.parquet": lambda frame, path: frame.to_parquet(path, row_group_size=31),
    "x.feather": lambda frame, path: frame.to_feather(path),
    "one.arrow": to_one_batch,
    "stream.arrow": to_stream,
    "x.jsonl": to_jsonl,
    "x.jsonl.gz": to_jsonl,
}


def written(frame: pd.DataFrame, folder: Path, name: str = "x.parquet") -> FileDataset:
    WRITERS[name](frame, folder / name)
    return FileDataset(folder / name, scratch_dir=folder)


def assert_same(found: Panel, expected: Panel) -> None:
    for field in fields(Panel):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        if field.name in ("past", "known", "static"):
            assert [(each.name, each.categories) for each in one] == [
                (each.name, each.categories) for each in other
            ]
            for column, twin in zip(one, other, strict=True):
                assert column.values.dtype == twin.values.dtype
                np.testing.assert_array_equal(column.values, twin.values)
        elif isinstance(other, pd.Index):
            pd.testing.assert_index_equal(one, other, exact="equiv")
        elif isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        elif field.name != "storage":
            assert one == other


@pytest.mark.parametrize("name", WRITERS)
def test_a_panel_of_files_is_that_of_the_frame(name: str, tmp_path: Path) -> None:
    frame = rows_of()
    if name.startswith("x.jsonl"):
        # JSON keeps no unit: it is what pandas makes of text.
        frame["timestamp"] = frame["timestamp"].astype(pd.to_datetime(["2024-03-01"]).dtype)
    dataset = written(frame, tmp_path, name)
    found, expected = read_panel(dataset, SCHEMA), read_panel(frame, SCHEMA)
    assert not found.storage.in_memory
    assert isinstance(found.index, pd.DatetimeIndex)
    assert_same(found, expected)
    assert_same(read_panel(dataset, SCHEMA, newest=25), expected.tail(25))
    assert os.listdir(tmp_path) == [name], "scratch files have no names"


def test_blocks_hold_whole_series_and_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = rows_of()
    seen: list[int] = []
    tail = Panel.tail

    def counted(panel: Panel, rows: int) -> Panel:
        seen.append(len(panel))
        return tail(panel, rows)

    monkeypatch.setattr(Panel, "tail", counted)
    read_panel(written(frame, tmp_path), SCHEMA, newest=1)
    assert len(seen) > 4
    assert sum(seen) == frame["item_id"].nunique()


@pytest.mark.parametrize("rows", [1, 7, 90, 10_000])
def test_a_series_longer_than_a_piece_is_one_block(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pieces, "ROWS", rows)
    frame = rows_of(4)
    assert_same(read_panel(written(frame, tmp_path), SCHEMA), read_panel(frame, SCHEMA))


def test_a_series_may_go_on_in_the_next_file(tmp_path: Path) -> None:
    frame = rows_of()
    for number in range(7):
        frame[100 * number : 100 * (number + 1)].to_parquet(tmp_path / f"part-{number}.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "notes.txt").touch()
    expected = read_panel(frame[:700], SCHEMA)
    for path in (tmp_path, f"{tmp_path}/part-*.parquet", sorted(tmp_path.glob("*.parquet"))):
        dataset = FileDataset(path, scratch_dir=tmp_path)
        assert len(dataset.files) == 7
        assert_same(read_panel(dataset, SCHEMA), expected)
    assert repr(dataset).startswith("FileDataset(7 files, parquet: part-0.parquet, part-1.parquet")


def test_zones_categories_and_integer_time_stay_what_they_are(tmp_path: Path) -> None:
    frame = rows_of()
    zoned = frame.assign(
        timestamp=frame["timestamp"].dt.tz_localize("UTC").dt.tz_convert("Europe/Paris"),
        item_id=frame["item_id"].astype("category"),
    )
    counted = frame.assign(timestamp=frame.groupby("item_id").cumcount() * 3)
    indexed = frame.set_index(["item_id", "timestamp"])
    numbered = frame.assign(item_id=frame["item_id"].str[1:].astype(int))
    for number, each in enumerate((zoned, counted, indexed, numbered)):
        path = tmp_path / f"{number}.parquet"
        each.to_parquet(path)
        whole = pd.read_parquet(path)
        found = read_panel(FileDataset(path), SCHEMA)
        assert_same(found, read_panel(whole, SCHEMA))
        assert found.labels.tolist() == list(dict.fromkeys(whole.reset_index()["item_id"]))


def test_gaps_and_irregular_rows_are_treated_as_in_a_frame(tmp_path: Path) -> None:
    frame = rows_of()
    holes = frame.drop(index=frame.index[5::9])
    for schema in (
        FrameSchema(target="target", fill="missing"),
        FrameSchema(target="target", fill="zero", freq="h"),
        FrameSchema(target="target", resample="mean", freq="6h"),
    ):
        assert_same(read_panel(written(holes, tmp_path), schema), read_panel(holes, schema))


def test_a_column_without_values_at_first_takes_the_kind_of_later_rows(tmp_path: Path) -> None:
    frame = rows_of()
    first = frame["item_id"].isin(frame["item_id"].unique()[:5])
    frame = frame.assign(price=frame["price"].where(~first), promo=frame["promo"].where(~first))
    found = read_panel(written(frame, tmp_path, "x.jsonl"), SCHEMA)
    for one, other in zip(found.known, read_panel(frame, SCHEMA).known, strict=True):
        assert one.categories == other.categories
        np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize("scaling", [None, *SCALINGS])
def test_windows_of_files_are_those_of_a_frame(scaling: Any, tmp_path: Path) -> None:
    frame = rows_of()
    stores = []
    for given in (frame, written(frame, tmp_path)):
        panel = read_panel(given, SCHEMA)
        encoding = CovariateEncoding.fit(panel, calendar=True)
        lengths = {"context_length": 24, "prediction_length": 6, "min_context": 4}
        stores.append((encoding, WindowStore(panel, encoding, **lengths, scaling=scaling)))
    assert stores[0][0] == stores[1][0]
    in_memory, on_disk = (store for _, store in stores)
    assert len(in_memory) == len(on_disk) > 300
    assert on_disk.num_bytes < in_memory.num_bytes / 2
    for one, other in zip(
        in_memory.gather(torch.arange(len(in_memory))),
        on_disk.gather(torch.arange(len(in_memory))),
        strict=True,
    ):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def test_rows_are_copied_in_files_as_in_memory(tmp_path: Path) -> None:
    frame = rows_of()
    panels = [read_panel(given, SCHEMA) for given in (written(frame, tmp_path), frame)]
    lengths = panels[0].lengths
    for make in (
        lambda panel: panel.crop(lengths // 3, lengths - 2),
        lambda panel: panel.select(np.array([7, 2, 3])),
        lambda panel: panel.tail(0),
    ):
        found, expected = (make(panel) for panel in panels)
        assert not found.storage.in_memory
        assert_same(found, expected)


def test_memory_that_is_given_back_keeps_what_was_written(tmp_path: Path) -> None:
    disk = _storage.Disk(tmp_path)
    array = disk.allocate((5000, 3), np.float64)
    array[:] = np.arange(15_000.0).reshape(5000, 3)
    disk.release()
    assert array.sum() == 15_000 * 14_999 / 2
    assert disk.allocate((0, 3), np.float64).shape == (0, 3)
    copied = array[:7].copy()
    del array
    disk.release()
    assert copied[-1, -1] == 20


def test_a_cut_series_is_refused_by_name(tmp_path: Path) -> None:
    frame = rows_of()
    near = frame.loc[[*range(10), *range(30, 80), *range(10, 30), *range(80, len(frame))]]
    far = pd.concat([frame[20:], frame[:20]])
    names = {frame["item_id"].iloc[0], frame["item_id"].iloc[-1]}
    for cut in (near, far):
        with pytest.raises(DataError, match="must stand together") as caught:
            read_panel(written(cut, tmp_path), SCHEMA)
        assert any(repr(name) in str(caught.value) for name in names)


def test_a_cut_series_inside_a_block_is_refused_though_a_frame_may_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = rows_of(3)
    cut = pd.concat([frame[:5], frame[-5:], frame[5:-5]])
    monkeypatch.setattr(_pieces, "ROWS", 10_000)
    item = frame["item_id"].iloc[0]
    with pytest.raises(DataError, match=f"rows of others between those of series '{item}'"):
        read_panel(written(cut, tmp_path), SCHEMA)
    assert_same(read_panel(cut, SCHEMA).select(np.array([0, 2, 1])), read_panel(frame, SCHEMA))


def test_messages_are_those_of_a_frame_and_say_where(tmp_path: Path) -> None:
    frame = rows_of()
    frame.loc[400, "target"] = np.inf
    with pytest.raises(DataError) as expected:
        read_panel(frame, SCHEMA)
    with pytest.raises(DataError) as caught:
        read_panel(written(frame, tmp_path), SCHEMA)
    assert str(caught.value).startswith(str(expected.value).split(" (")[0])
    assert "FileDataset(1 file, parquet: x.parquet)" in str(caught.value)


def test_kinds_that_change_between_blocks_are_refused(tmp_path: Path) -> None:
    frame = rows_of().drop(columns=["wind", "price", "promo", "region", "size"])
    half = len(frame) // 2
    one, other = frame[:half], frame[half:]
    item = one["item_id"].iloc[-1]
    other = other[other["item_id"] != item]
    cases = {
        "integers": other.assign(timestamp=np.arange(len(other))),
        "one kind": other.assign(timestamp=other["timestamp"].dt.tz_localize("UTC")),
        "one type": other.assign(item_id=other["item_id"].str[1:].astype(int)),
        "frequency": other[other.groupby("item_id").cumcount() % 2 == 0],
    }
    for words, changed in cases.items():
        one.to_parquet(tmp_path / "1.parquet")
        changed.to_parquet(tmp_path / "2.parquet")
        files = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
        with pytest.raises(DataError, match=words if words != "integers" else "time"):
            read_panel(FileDataset(files, scratch_dir=tmp_path))


def test_a_wide_frame_and_empty_files_are_refused(tmp_path: Path) -> None:
    wide = pd.DataFrame({"timestamp": pd.date_range("2024", periods=9), "load": 1.0})
    with pytest.raises(DataError, match="id_column"):
        read_panel(written(wide, tmp_path))
    with pytest.raises(DataError, match="no rows"):
        read_panel(written(rows_of()[:0], tmp_path), SCHEMA)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match="no rows"):
        read_panel(FileDataset(tmp_path / "empty.jsonl"), SCHEMA)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name in ("x.parquet", "one.arrow", "stream.arrow", "x.jsonl", "x.jsonl.gz"):
        dataset = written(rows_of(), tmp_path, name)
        content = dataset.files[0].read_bytes()
        dataset.files[0].write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=name):
            read_panel(dataset, SCHEMA)
    (tmp_path / "list.jsonl").write_text('{"item_id": 1}\n[1]\n')
    with pytest.raises(DataError, match=r"Line 2 of '.*list.jsonl' must be a JSON object"):
        read_panel(FileDataset(tmp_path / "list.jsonl"))


def test_names_of_files_are_checked_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    (tmp_path / "b.jsonl").touch()
    (tmp_path / "c.csv").touch()
    (tmp_path / "sub").mkdir()
    for path in ("no.parquet", str(tmp_path / "*.arrow"), tmp_path / "sub", []):
        with pytest.raises(FileNotFoundError, match="`path` names no file"):
            FileDataset(path)
    with pytest.raises(ValueError, match=r"one format, but `path` names 'a.parquet' and 'b.jsonl'"):
        FileDataset(tmp_path)
    with pytest.raises(ValueError, match=r"`format` must be given for 'c.csv'"):
        FileDataset(tmp_path / "c.csv")
    with pytest.raises(ValueError, match="`format` must be one of parquet, arrow, jsonl"):
        FileDataset(tmp_path / "c.csv", format="csv")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="`scratch_dir`"):
        FileDataset(tmp_path / "a.parquet", scratch_dir=tmp_path / "none")
    assert FileDataset(tmp_path / "c.csv", format="jsonl").format == "jsonl"


def test_a_series_in_each_record_is_read_too(tmp_path: Path) -> None:
    frame = rows_of()[["item_id", "timestamp", "target"]]
    frame["timestamp"] = frame["timestamp"].astype("M8[ns]")
    records = [
        {
            "item_id": str(item),
            "start": str(rows["timestamp"].iloc[0]),
            "target": rows["target"].tolist(),
        }
        for item, rows in frame.groupby("item_id", sort=False)
    ]
    with gzip.open(tmp_path / "x.json.gz", "wt") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "x.parquet")
    expected = read_panel(frame, freq="h")
    for name in ("x.json.gz", "x.parquet"):
        found = read_panel(FileDataset(tmp_path / name), freq="h")
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.labels.tolist() == expected.labels.tolist()
        assert (found.index == expected.index).all()
    for record in records:
        del record["item_id"]
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    found = read_panel(FileDataset(tmp_path / "x.jsonl"), FrameSchema(freq="h"))
    assert found.labels.tolist() == [str(number) for number in range(len(records))]
    np.testing.assert_array_equal(found.values, expected.values)


def test_too_small_a_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = written(rows_of(), tmp_path)
    needed = dataset.num_rows * (28 + 3 * 16)
    usage = type("Usage", (), {"free": needed - 1})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    monkeypatch.setattr(_storage.Disk, "file", lambda self: pytest.fail("a file was opened"))
    with pytest.raises(OSError, match=r"scratch folder .* Set `scratch_dir`"):
        read_panel(dataset, SCHEMA)
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": needed}))
    assert len(read_panel(dataset, SCHEMA).values) == dataset.num_rows


FULL = """
import resource, sys
from pathlib import Path
from mlrforecast.data import _storage
import numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
disk = _storage.Disk(Path(sys.argv[1]))
def collect():
    collector = disk.collect()
    # The last one finds room for a part of it.
    for _ in range(7):
        collector.add(np.zeros(2000))
for make in (collect, lambda: disk.allocate((20_000,), np.float64)):
    try:
        make()
    except OSError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files")
def test_a_disk_that_fills_up_is_an_error_that_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("has no room for") == 2
    assert "Exception ignored" not in done.stderr
    assert not os.listdir(tmp_path)


def test_columns_and_numbers_of_rows_are_those_of_the_files(tmp_path: Path) -> None:
    frame = rows_of()
    counts = {name: written(frame, tmp_path, name).num_rows for name in WRITERS}
    unknown = ["stream.arrow", "x.jsonl", "x.jsonl.gz"]
    assert counts == {name: None if name in unknown else len(frame) for name in WRITERS}
    for name in WRITERS:
        assert written(frame, tmp_path, name).columns == list(frame.columns)


def test_blocks_and_groups_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_storage, "BLOCK", 10)
    assert [(part.start, part.stop) for part in _storage.blocks(21)] == [
        (0, 10),
        (10, 20),
        (20, 21),
    ]
    lengths = np.array([4, 6, 1, 25, 0, 3, 7, 1])
    found = [(part.start, part.stop) for part in _storage.groups(lengths)]
    assert found == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 8)]
    assert not list(_storage.groups(np.array([], dtype=int)))


def test_memory_file_systems_are_avoided_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_storage.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(_storage, "_is_memory", lambda folder: folder == tmp_path)
    lasting = Path("/var/tmp")
    assert _storage.scratch_folder() == (lasting if os.access(lasting, os.W_OK) else tmp_path)
    monkeypatch.setattr(_storage, "_is_memory", lambda folder: False)
    assert _storage.scratch_folder() == tmp_path


def test_covariates_are_summarised_alike_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = read_panel(rows_of(), SCHEMA)
    cut = CovariateEncoding.fit(panel, calendar=True)
    monkeypatch.setattr(_storage, "BLOCK", 10**6)
    whole = CovariateEncoding.fit(panel, calendar=True)
    assert cut.known[1] == whole.known[1]
    assert cut.past[0].loc == pytest.approx(whole.past[0].loc, rel=1e-14)
    assert cut.past[0].scale == pytest.approx(whole.past[0].scale, rel=1e-13)


def test_the_committed_measurement_keeps_the_promise() -> None:
    """Memory stays flat, and the weights are those of the frame; see benchmarks/streaming.py."""
    path = Path(__file__).parents[2] / "benchmarks/results/streaming/streaming.csv"
    table = pd.read_csv(path)
    on_files = table[table["data"] == "files"]
    assert (on_files["outcome"] == "trained").all()
    assert (table.dropna(subset="weights").groupby("rows")["weights"].nunique() == 1).all()
    peaks = on_files[on_files["format"] != "jsonl"].groupby("rows")["peak_anonymous_mb"].max()
    assert peaks.index.max() >= 16 * peaks.index.min()
    assert peaks.max() < 1.3 * peaks.min()
    limited = table[table["limit_mb"].notna()].set_index("data")["outcome"]
    assert limited["files"] == "trained"
    assert "MemoryError" in limited["frame"]
    command = f"python benchmarks/streaming.py benchmarks/results/streaming/{path.name}"
    assert (table["command"] == command).all()
