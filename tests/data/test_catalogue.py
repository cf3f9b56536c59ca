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
file = "mine.csv"
sha256 = "{sha}"
size = 10
urls = ["https://example.org/mine.csv"]
licence = "CC0"
citation = "None"
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
    assert card.covariate_columns == ("x",)
    assert dict(card.splits) == {
        "train": range(10),
        "validation": range(10, 20),
        "test": range(20, 30),
    }
    with pytest.raises(TypeError):
        card.splits["train"] = range(30)


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
        ("size = 10", "size = 0", "size must be an integer of at least 1, got 0"),
        ("size = 10", "size = 'ten'", "size must be an integer of at least 1, got 'ten'"),
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


def test_every_card_of_the_catalogue_is_right():
    assert list_datasets() == ["ETTh1", "ETTh2", "synthetic"]
    for name in list_datasets():
        card = load_card(name)
        assert card.name == name
        assert card.licence
        assert card.citation
        assert all(column.unit and column.description for column in card.columns)


def test_ett_cards_hold_the_standard_split_and_the_public_address():
    for name in ("ETTh1", "ETTh2"):
        card = load_card(name)
        assert {key: (rows[0], rows[-1]) for key, rows in card.splits.items()} == {
            "train": (0, 8639),
            "validation": (8640, 11519),
            "test": (11520, 14399),
        }
        assert card.rows == 17420
        assert card.licence == "CC BY-ND 4.0"
        assert card.target_columns == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
        assert card.urls[0] == (
            f"https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/{name}.csv"
        )
    assert load_card("ETTh1").sha256 != load_card("ETTh2").sha256


def test_no_ett_file_is_published_with_the_catalogue():
    folder = Path(str(catalogue_folder()))
    assert [path.name for path in folder.rglob("*.csv*")] == ["synthetic.csv"]


def test_catalogue_never_becomes_a_package():
    """A package named datasets would hide the one of Hugging Face."""
    assert not list(Path(str(catalogue_folder())).rglob("__init__.py"))


def test_readme_lists_every_data_set():
    text = (catalogue_folder() / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    assert sorted(listed) == list_datasets()
    for name in list_datasets():
        assert load_card(name).licence in text


@pytest.mark.parametrize("name", ["etth1", "", "../ETTh1", "tiny/synthetic"])
def test_unknown_name_lists_the_available(name):
    with pytest.raises(ValueError, match=r"Available: \['ETTh1', 'ETTh2', 'synthetic'\]"):
        load_card(name)


def test_a_broken_card_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(CARD.replace("size = 10", "size = -1"))
    (tmp_path / "other.toml").write_text(CARD)
    monkeypatch.setattr(catalogue_module, "catalogue_folder", lambda: tmp_path)

    with pytest.raises(ValueError, match=r"card of data set 'mine' .*mine\.toml.*"):
        load_card("mine")
    with pytest.raises(ValueError, match=r"other\.toml must be named after its data set, 'mine'"):
        load_card("other")


def test_packed_catalogue_is_preferred_to_the_checkout(tmp_path, monkeypatch):
    packed = tmp_path / "_datasets"
    monkeypatch.setattr(catalogue_module, "files", lambda package: tmp_path)
    assert catalogue_folder() == Path(catalogue_module.__file__).parents[2] / "datasets"

    packed.mkdir()
    assert catalogue_folder() == packed
