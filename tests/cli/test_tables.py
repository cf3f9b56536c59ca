"""Files and pipes become frames, and frames become files, whole or not at all."""

import gzip
import lzma
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlrforecast._core.errors import DataError, MissingDependencyError
from mlrforecast.cli import _tables
from mlrforecast.cli._paths import check_apart, check_model_folder, whole_file
from mlrforecast.cli._tables import (
    flatten,
    form_of,
    naming,
    read_table,
    with_text_stamps,
    write_table,
)


@pytest.fixture
def read(tmp_path):
    """Write text to a file and read it as a table."""

    def write_and_read(text, **options):
        (tmp_path / "data.csv").write_bytes(text.encode() if isinstance(text, str) else text)
        return read_table(str(tmp_path / "data.csv"), form="csv", **options)

    return write_and_read


@pytest.mark.parametrize(
    ("name", "given", "form"),
    [
        ("a.csv", None, "csv"),
        ("a.CSV.gz", None, "csv"),
        ("a.csv.xz", None, "csv"),
        ("a.parquet", "csv", "parquet"),
        ("-", None, "csv"),
        ("-", "parquet", "parquet"),
        ("a.txt", "csv", "csv"),
    ],
)
def test_the_format_follows_the_name_then_what_was_said(name, given, form):
    assert form_of(name, given, "DATA") == form


def test_an_unknown_end_of_a_name_is_refused():
    with pytest.raises(ValueError, match=r"`DATA` must end in \.csv, .* got 'a.xlsx'. .*--format"):
        form_of("a.xlsx", None, "DATA")


def test_items_stay_text_and_everything_else_is_read(read):
    frame = read("item_id,timestamp,y,n\n007,2024-01-01,1.5,1\nNA,2024-01-02,,2\n")
    assert frame["item_id"].tolist() == ["007", "NA"]
    assert frame["y"].isna().tolist() == [False, True]
    assert frame["n"].dtype == np.int64
    named = read("shop,y\n007,1\n08,2\n", items=("shop",))
    assert named["shop"].tolist() == ["007", "08"]
    assert read("item_id,y\n,1\n")["item_id"].isna().all()


def test_numbers_come_back(read):
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    text = "y\n" + "\n".join(map(repr, values.tolist()))
    np.testing.assert_allclose(read(text)["y"], values, rtol=1e-12)


def test_a_first_column_without_a_name_is_the_index(read):
    table = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.date_range("2024-01-01", periods=2))
    frame = read(table.to_csv())
    assert frame.columns.tolist() == ["a"]
    assert frame.index.tolist() == ["2024-01-01", "2024-01-02"]
    assert frame.index.name is None


def test_a_mark_of_the_encoding_is_no_part_of_a_name(read):
    assert read(b"\xef\xbb\xbfa,b\n1,2\n").columns.tolist() == ["a", "b"]


def test_stamps_of_several_offsets_become_utc(read):
    frame = read(
        "time,y\n2024-03-31T01:00:00+01:00,1\n2024-03-31T03:00:00+02:00,2\n"
        "2024-03-31T04:00:00+02:00,3\n"
    )
    assert str(frame["time"].dt.tz) == "UTC"
    assert frame["time"].dt.hour.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "stamps",
    [
        ["2024-03-31T01:00:00+01:00", "2024-03-31T02:00:00+01:00"],
        ["2024-03-31T01:00:00+01:00", "2024-03-31T02:00:00"],
        ["2024-03-31 01:00+01:00", "2024-13-31 02:00+02:00"],
        ["2024-03-31", "2024-04-01"],
    ],
)
def test_other_stamps_are_left_to_the_library(read, stamps):
    assert read("time,y\n" + "".join(f"{s},1\n" for s in stamps))["time"].tolist() == stamps


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("a;b\n1;2\n", "commas between them, the first line is a;b"),
        ("a,b,a\n1,2,3\n", "more than one column named 'a'"),
        ("a,\n1,2\n", "column 2 has no name"),
        ("a,b\n1,2\n1,2,3\n", "line 3"),
        (b"a,b\n\xff\xfe,2\n", "can't decode byte 0xff"),
    ],
)
def test_what_is_no_csv_is_refused_by_name(read, tmp_path, text, reason):
    with pytest.raises(DataError, match=reason) as caught:
        read(text)
    assert str(caught.value).startswith(f"'{tmp_path / 'data.csv'}' cannot be read as csv: ")


def test_rows_that_are_all_too_long_are_refused(read):
    with pytest.raises(DataError, match="cannot be read as csv"):
        read("a,b\n1,2,3\n1,2,3\n")


@pytest.mark.parametrize(("end", "pack"), [("gz", gzip.compress), ("xz", lzma.compress)])
def test_packed_files(tmp_path, end, pack):
    path = tmp_path / f"data.csv.{end}"
    path.write_bytes(pack(b"a,b\n1,2\n"))
    assert read_table(str(path), form="csv").to_dict("list") == {"a": [1], "b": [2]}
    for broken in (b"a,b\n1,2\n", pack(b"a,b\n" + bytes(range(48, 122)) * 9)[:-12]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="cannot be read as csv: "):
            read_table(str(path), form="csv")


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file 'nowhere.csv'"):
        read_table("nowhere.csv", form="csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_table(str(tmp_path), form="csv")


def test_parquet_keeps_types_and_index(tmp_path):
    stamps = pd.date_range("2024-01-01", periods=3, freq="h", tz="Europe/Berlin", name="time")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=stamps)
    frame.to_parquet(tmp_path / "a.parquet")
    back = read_table(str(tmp_path / "a.parquet"), form="parquet")
    pd.testing.assert_frame_equal(back, frame, check_freq=False)
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"'.*b.parquet' cannot be read as parquet: "):
        read_table(str(tmp_path / "b.parquet"), form="parquet")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[parquet\]'"):
        read_table(str(tmp_path / "a.parquet"), form="parquet")
    with pytest.raises(MissingDependencyError, match=r"pip install 'mlrforecast\[parquet\]'"):
        write_table(pd.DataFrame({"a": [1]}), str(tmp_path / "b.parquet"), form="parquet")
    assert not (tmp_path / "b.parquet").exists()


def test_stamps_are_written_in_iso_8601():
    hours = pd.date_range("2024-03-31", periods=3, freq="h")
    frame = pd.DataFrame(
        {
            "local": hours.tz_localize("UTC").tz_convert("Europe/Berlin"),
            "plain": hours,
            "day": pd.date_range("2024-03-31", periods=3),
            "y": [1.0, 2.0, 3.0],
        }
    )
    text = with_text_stamps(frame)
    assert text["local"].tolist() == [
        "2024-03-31T01:00:00+01:00",
        "2024-03-31T03:00:00+02:00",
        "2024-03-31T04:00:00+02:00",
    ]
    assert text["plain"].tolist()[1] == "2024-03-31T01:00:00"
    assert text["day"].tolist()[1] == "2024-04-01"
    assert text["y"].tolist() == [1.0, 2.0, 3.0]


def test_forecasts_become_flat():
    index = pd.date_range("2024-01-01", periods=2)
    columns = pd.MultiIndex.from_product([["a", "b"], ["point", "0.9"]])
    wide = flatten(pd.DataFrame(np.zeros((2, 4)), index=index, columns=columns))
    assert wide.columns.tolist() == ["timestamp", "a", "a_0.9", "b", "b_0.9"]
    named = flatten(pd.DataFrame({"a": [1, 2]}, index=index.rename("time")))
    assert named.columns.tolist() == ["time", "a"]
    both = pd.MultiIndex.from_product([["x"], index])
    long = flatten(pd.DataFrame({"y": [1, 2]}, index=both))
    assert long.columns.tolist() == ["item_id", "timestamp", "y"]
    flat = pd.DataFrame({"time": index, "a": [1, 2]})
    pd.testing.assert_frame_equal(flatten(flat), flat)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.csv.xz", "new/out.parquet"])
def test_a_table_is_written_and_read_back(tmp_path, name):
    frame = pd.DataFrame({"item_id": ["007", "08"], "y": [0.1, 1 / 3]})
    form = form_of(name, None, "--out")
    write_table(frame, str(tmp_path / name), form=form)
    back = read_table(str(tmp_path / name), form=form)
    assert back.to_dict("list") == frame.to_dict("list")
    assert [path.name for path in (tmp_path / name).parent.iterdir()] == [name.split("/")[-1]]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def cut_short(frame, file, form):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(_tables, "_write", cut_short)
    with pytest.raises(KeyboardInterrupt):
        write_table(pd.DataFrame({"a": [1]}), str(path), form="csv")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    with whole_file(tmp_path / "link.txt") as draft:
        draft.write_text("new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    with whole_file(Path(os.devnull)) as draft:
        draft.write_text("gone")


def test_errors_name_files_and_options():
    with pytest.raises(DataError) as caught, naming(X="a.csv", future="-"):
        raise DataError("`future` lacks rows of `X`: say timestamp_column=... or target='y'.")
    assert str(caught.value) == (
        "stdin lacks rows of 'a.csv': say --timestamp-column or --target 'y'."
    )
    with pytest.raises(DataError, match=r"^`--future` is needed"), naming(X="a.csv", future=None):
        raise DataError("`future` is needed.")
    with pytest.raises(DataError, match=r"^'a.csv': series 'b' is empty\.$"), naming(X="a.csv"):
        raise DataError("series 'b' is empty.")


def test_what_is_read_is_not_written_over(tmp_path):
    (tmp_path / "a.csv").write_text("x")
    check_apart(tmp_path / "b.csv", "--out", str(tmp_path / "a.csv"), "-", None)
    with pytest.raises(ValueError, match=r"`--out` cannot be .* which is read"):
        check_apart(tmp_path / "a.csv", "--out", None, str(tmp_path / "." / "a.csv"))


def test_only_a_model_is_replaced(tmp_path):
    check_model_folder(tmp_path / "new", "--out")
    check_model_folder(tmp_path, "--out")
    (tmp_path / "README.md").touch()
    with pytest.raises(ValueError, match=r"it holds 'README.md', which is no part"):
        check_model_folder(tmp_path, "--out")
    for name in ("config.json", "model-0123456789ab.safetensors", ".gitattributes"):
        (tmp_path / name).touch()
    check_model_folder(tmp_path, "--out")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match=r"it holds 'model.safetensors', which is no part"):
        check_model_folder(tmp_path, "--out")
