"""Name -> object tables."""

import pytest

from mlrforecast._core.registry import Registry


@pytest.fixture
def colours() -> Registry[int]:
    table = Registry[int]("colour")
    table.register("red", 1)
    table.register("blue", 2)
    return table


def test_entries_come_back_and_names_are_sorted(colours: Registry[int]) -> None:
    assert (colours["red"], colours["blue"]) == (1, 2)
    assert list(colours) == ["blue", "red"]
    assert "red" in colours
    assert "green" not in colours


def test_an_unknown_name_lists_the_choices(colours: Registry[int]) -> None:
    with pytest.raises(ValueError, match=r"^Unknown colour 'green'\. Available: blue, red$"):
        _ = colours["green"]


def test_a_name_is_given_once(colours: Registry[int]) -> None:
    with pytest.raises(ValueError, match="The colour 'red' is registered already"):
        colours.register("red", 3)
    assert colours["red"] == 1
