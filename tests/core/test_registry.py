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


class Paint: ...


class Oil(Paint): ...


@pytest.mark.parametrize("entry", [dict, int, 3, Oil(), lambda: Oil, None])
def test_an_entry_that_is_no_subclass_is_refused(entry: object) -> None:
    paints = Registry[type[Paint]]("paint", base=Paint)
    with pytest.raises(TypeError, match=r"`entry` of the paint 'x' must be a subclass of Paint, "):
        paints.register("x", entry)
    assert "x" not in paints
    paints.register("oil", Oil)
    assert paints["oil"] is Oil


def test_a_name_that_is_no_text_is_refused(colours: Registry[int]) -> None:
    with pytest.raises(TypeError, match="`name` of the colour must be a text, got 3"):
        colours.register(3, 1)


def test_a_hint_stands_behind_the_choices() -> None:
    table = Registry[int]("colour", hint="Mix your own first.")
    with pytest.raises(
        ValueError, match=r"^Unknown colour 'a'\. Available: \. Mix your own first\.$"
    ):
        _ = table["a"]
