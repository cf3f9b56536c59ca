import hashlib
import lzma
import os
import re
from pathlib import Path

import pytest

from mlrforecast.data import DatasetCard, list_datasets, load_card
from mlrforecast.data import catalogue as catalogue_module
from mlrforecast.data.catalogue import catalogue_folder

CARD = """
name = "mine"
title = "A title"
description = "A description"
source = "https://example.org"
licence = "CC0"
citation = "None"
format = "csv"
freq = "h"
season_length = 24
prediction_length = 24
timestamp_column = "date"
timestamp_format = "%Y"
rows = 30

[splits]
train = [0, 10]
validation = [10, 20]
test = [20, 30]

[[files]]
name = "mine.csv"
sha256 = "{sha}"
size = 10
urls = ["https://example.org/mine.csv"]

[[columns]]
name = "y"
role = "target"
unit = "kW"
description = "Load"

[[columns]]
name = "x"
role = "known_covariate"
unit = "1"
description = "Flag"
""".replace("{sha}", "0a" * 32)


def test_card_is_read_whole():
    card = DatasetCard.from_toml(CARD)

    assert card.target_columns == ("y",)
    assert card.columns_of("known_covariate") == ("x",)
    assert card.files[0].urls == ("https://example.org/mine.csv",)
    assert card.verified
    assert card.splits_of(30) == {
        "train": slice(0, 10),
        "validation": slice(10, 20),
        "test": slice(20, 30),
    }
    with pytest.raises(TypeError):
        card.splits["train"] = slice(30)


def test_shares_cut_rows_as_the_long_horizon_benchmarks_do():
    shares = "split_shares = [0.7, 0.1, 0.2]\n"
    start, end = CARD.index("[splits]"), CARD.index("[[files]]")
    card = DatasetCard.from_toml(CARD[:start] + shares + CARD[end:])
    # Train and test rows are rounded down; validation has what is left.
    assert card.splits_of(966) == {
        "train": slice(0, 676),
        "validation": slice(676, 773),
        "test": slice(773, 966),
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mine"', 'nmae = "mine"', "unknown field 'nmae' in a DatasetCard"),
        ('unit = "kW"', 'units = "kW"', "unknown field 'units' in a ColumnCard"),
        ('licence = "CC0"\n', "", "a DatasetCard lacks the fields licence"),
        ('licence = "CC0"', 'licence = ""', "licence must be a text that is not empty"),
        ('role = "target"', 'role = "goal"', "role of column 'y' must be one of"),
        ('role = "target"', 'role = "known_covariate"', "hold a target"),
        ('name = "x"', 'name = "y"', "columns must be distinct"),
        ("size = 10", "size = -1", "size must be an integer of at least 0, got -1"),
        ("size = 10", "size = 'ten'", "size must be an integer of at least 0, got 'ten'"),
        ("size = 10", "sise = 10", "unknown field 'sise' in a FileCard"),
        ('name = "mine.csv"', 'name = "../mine.csv"', "must be a name without folders"),
        ('format = "csv"', 'format = "xls"', "format must be one of .* got 'xls'"),
        ('format = "csv"', 'format = "gluonts"', "files must be named for every format but"),
        ('freq = "h"', 'freq = ""', "freq must be a text that is not empty"),
        ("rows = 30", "rows = 30\nsplit_shares = [0.7, 0.1, 0.2]", "and not both"),
        ("rows = 30", "rows = -1", "rows must be an integer of at least 0"),
        ('title = "A title"', "title = 3", "title must be a text that is not empty, got 3"),
        ("prediction_length = 24", "prediction_length = 0", "prediction_length must be an"),
        ("0a0a", "0A0A", "64 lower-case hex digits"),
        ('sha256 = "0a', 'sha256 = "', "64 lower-case hex digits"),
        ('urls = ["https://example.org/mine.csv"]\n', "", "urls must name an address"),
        ("validation = [10, 20]", "validation = [9, 20]", "split 'validation' .* from 10 or later"),
        ("test = [20, 30]", "test = [20, 31]", "split 'test' .* up to 30 at most"),
        ("test = [20, 30]", "test = [20, 20]", "split 'test'"),
        ("test = [20, 30]", "test = [20, 30, 2]", "split 'test' must be a .start, stop. pair"),
        ("test = [20, 30]", "test = 20", "split 'test' must be a .start, stop. pair, got 20"),
        ("test = [20, 30]\n", "", "splits must be"),
        ("size = 10", "size = ", "Invalid value"),
    ],
)
def test_a_wrong_card_is_refused(old, new, message):
    assert old in CARD
    with pytest.raises(ValueError, match=message):
        DatasetCard.from_toml(CARD.replace(old, new, 1))


@pytest.mark.parametrize(
    "shares", ["[0.7, 0.3]", "[0.7, 0.2, 0.2]", "[1.0, 0.0, 0.0]", "[1, 2, 3]"]
)
def test_shares_must_add_up(shares):
    start, end = CARD.index("[splits]"), CARD.index("[[files]]")
    with pytest.raises(ValueError, match="split_shares must be three numbers that add up to 1"):
        DatasetCard.from_toml(CARD[:start] + f"split_shares = {shares}\n" + CARD[end:])


def test_every_card_of_the_catalogue_is_right():
    names = list_datasets()
    assert len(set(names)) == len(names)
    for name in names:
        card = load_card(name)
        assert card.name == name
        assert all(column.unit and column.description for column in card.columns)
        assert all(url.startswith("https://") for file in card.files for url in file.urls)
        archives = [url.endswith(".zip") for file in card.files for url in file.urls[:1]]
        assert all(
            file.member for file, packed in zip(card.files, archives, strict=False) if packed
        )


def test_what_the_benchmarks_of_the_field_use_is_there():
    names = set(list_datasets())
    ett = {"ETTh1", "ETTh2", "ETTm1", "ETTm2"}
    assert ett | {"exchange_rate", "national_illness", "weather", "electricity", "traffic"} <= names
    for frequency in ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly"):
        assert {f"m4:{frequency}", f"monash:m4_{frequency}", f"gluonts:m4_{frequency}"} <= names


def test_gluonts_knows_no_name_that_is_not_listed():
    repository = pytest.importorskip("gluonts.dataset.repository")
    listed = {name.removeprefix("gluonts:") for name in list_datasets() if "gluonts:" in name}
    assert listed == set(repository.dataset_names)


@pytest.mark.shared
def test_hashes_are_those_of_the_files_that_are_at_hand():
    seen = []
    for name in list_datasets():
        for file in load_card(name).files:
            for path in sorted(Path(os.environ["MLRFORECAST_DATA"]).rglob(f"{file.name}*")):
                if path.name in (file.name, f"{file.name}.xz"):
                    content = path.read_bytes()
                    content = lzma.decompress(content) if path.suffix == ".xz" else content
                    assert (len(content), hashlib.sha256(content).hexdigest()) == (
                        file.size,
                        file.sha256,
                    ), file.name
                    seen.append(file.name)
    assert len(seen) >= 14


def test_ett_cards_hold_the_standard_split_and_the_public_address():
    for name in ("ETTh1", "ETTh2", "ETTm1", "ETTm2"):
        card = load_card(name)
        rows = 1 if "h" in name else 4
        assert card.splits_of(17420 * rows) == {
            "train": slice(0, 8640 * rows),
            "validation": slice(8640 * rows, 11520 * rows),
            "test": slice(11520 * rows, 14400 * rows),
        }
        assert card.season_length == 24 * rows
        assert card.licence == "CC BY-ND 4.0"
        assert card.target_columns == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
        assert card.files[0].urls[0] == (
            f"https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/{name}.csv"
        )
    assert len({load_card(name).files[0].sha256 for name in list_datasets() if "ETT" in name}) == 4


def test_no_ett_file_is_published_with_the_catalogue():
    folder = Path(str(catalogue_folder()))
    assert [path.name for path in folder.rglob("*.csv*")] == ["synthetic.csv"]


def test_catalogue_never_becomes_a_package():
    """A package named datasets would hide the one of Hugging Face."""
    assert not list(Path(str(catalogue_folder())).rglob("__init__.py"))


def test_readme_lists_every_data_set():
    text = (catalogue_folder() / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w:]+)` \|", text, flags=re.MULTILINE)
    names = list_datasets()
    singles = [name for name in names if ":" not in name]
    collections = {f"{name.partition(':')[0]}:NAME" for name in names if ":" in name}
    assert sorted(listed) == sorted([*singles, *collections])
    for collection in collections:
        members = [name for name in names if name.startswith(collection.removesuffix("NAME"))]
        assert re.search(rf"`{collection}` \| {len(members)} ", text)


@pytest.mark.parametrize("name", ["", "../ETTh1", "tiny/synthetic", "collections/m4"])
def test_unknown_name_lists_the_available(name):
    with pytest.raises(ValueError, match=r"Available: ETTh1, ETTh2, .*, m4:daily, \.\.\."):
        load_card(name)


def test_what_was_meant_is_guessed():
    with pytest.raises(ValueError, match=r"Unknown data set 'etth1'\. Did you mean .*'ETTh1'"):
        load_card("etth1")
    with pytest.raises(ValueError, match=r"Did you mean 'm4:hourly'.* Available: m4:daily, m4:hou"):
        load_card("m4:hurly")
    with pytest.raises(
        ValueError, match=r"Unknown data set 'm4'\..* Available: m4:daily, m4:hourly"
    ):
        load_card("m4")
    with pytest.raises(TypeError, match="`name` must be a text such as 'ETTh1', got None"):
        load_card(None)


def test_a_broken_card_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(CARD.replace("size = 10", "size = -1"))
    (tmp_path / "other.toml").write_text(CARD)
    (tmp_path / "collections").mkdir()
    (tmp_path / "collections" / "many.toml").write_text("datasets = [{ title = 'nameless' }]")
    monkeypatch.setattr(catalogue_module, "catalogue_folder", lambda: tmp_path)

    with pytest.raises(ValueError, match=r"card of data set 'mine' .*mine\.toml.*"):
        load_card("mine")
    with pytest.raises(ValueError, match=r"other\.toml must be named after its data set, 'mine'"):
        load_card("other")
    with pytest.raises(
        ValueError, match=r"Every one of the datasets in .*many\.toml must have a name"
    ):
        load_card("many:one")


def test_packed_catalogue_is_preferred_to_the_checkout(tmp_path, monkeypatch):
    packed = tmp_path / "_datasets"
    monkeypatch.setattr(catalogue_module, "files", lambda package: tmp_path)
    assert catalogue_folder() == Path(catalogue_module.__file__).parents[2] / "datasets"

    packed.mkdir()
    assert catalogue_folder() == packed
