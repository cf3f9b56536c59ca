"""What is public is listed in order, imports, and is documented and annotated."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator, Sequence
from types import ModuleType

import click
import pytest

import mlrforecast

TOP_LEVEL = ["MLRForecaster", "TimeSeriesDataset", "__version__", "load_dataset"]

# Public parameters that a docstring need not list: what the framework passes.
FRAMEWORK_METHODS = {
    "configure_optimizers",
    "test_dataloader",
    "train_dataloader",
    "training_step",
    "val_dataloader",
    "validation_step",
}


def public_modules() -> list[str]:
    """Every module of the library without an underscore in its path, the library first."""
    found = [module.name for module in pkgutil.walk_packages(mlrforecast.__path__, "mlrforecast.")]
    return ["mlrforecast", *(n for n in found if not re.search(r"\._", n))]


def packages() -> list[str]:
    return [n for n in public_modules() if hasattr(importlib.import_module(n), "__path__")]


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as ruff's RUF022 sorts."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def own_names(module: ModuleType) -> list[str]:
    """``__all__``, or what a module without one defines under a public name."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    ]


OWNERS: dict[str, type] = {}
"""Qualified name of a method -> its class."""


def public_objects() -> dict[str, object]:
    """Qualified name -> function, class, or method written in a public class, each once."""
    found: dict[str, object] = {}
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        for name in own_names(module):
            value = getattr(module, name, None)  # a missing one fails its own test
            if not _is_ours(value) or isinstance(value, click.Command):
                continue
            home = f"{value.__module__}.{value.__qualname__}"
            found[home] = value
            if inspect.isclass(value):
                found.update(_methods(home, value))
                OWNERS.update({name: value for name, _ in _methods(home, value)})
    return found


def _is_record(value: object) -> bool:
    """Whether it only holds fields; the function that returns one shows it."""
    return dataclasses.is_dataclass(value) or (inspect.isclass(value) and issubclass(value, tuple))


def _is_ours(value: object) -> bool:
    is_code = inspect.isfunction(value) or inspect.isclass(value)
    return is_code and str(value.__module__).startswith("mlrforecast")


def _methods(home: str, owner: type) -> Iterator[tuple[str, object]]:
    for name, value in vars(owner).items():
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        if inspect.isfunction(value) and not name.startswith("_"):
            yield f"{home}.{name}", value


def told_by_a_base(owner: type, name: str) -> list[str]:
    """Parameters of a method that one of our base classes documents already."""
    bases = [base for base in owner.__mro__[1:] if base.__module__.startswith("mlrforecast")]
    methods = [vars(base)[name] for base in bases if inspect.isfunction(vars(base).get(name))]
    return [name for method in methods for name in parameters_of(method)]


def complaints(value: object, *, exported: bool = True, told: Sequence[str] = ()) -> list[str]:
    """What the documentation and the annotations of one public object lack.

    What a package exports has a Parameters section; a method, or a function that only its own
    package uses, may name its parameters in a sentence instead, and a method that overrides
    another need not repeat those that are ``told`` there.
    """
    doc = inspect.getdoc(value) if not inspect.isclass(value) else value.__doc__
    if not doc or (inspect.isclass(value) and _is_generated(value, doc)):
        return ["no docstring"]
    found = []
    if isinstance(value, type) and issubclass(value, Exception):
        return found
    names = [name for name in parameters_of(value) if name not in told]
    has_section = re.search(r"^\s*(Parameters|Attributes)\n\s*-{4,}$", doc, re.MULTILINE)
    if not has_section and not exported:
        names = [name for name in names if f"``{name}" not in doc]
    if names and not has_section:
        found.append(f"takes {', '.join(names)} and has no Parameters section")
    else:
        found += [f"parameter {n!r} is not described" for n in names if not _described(n, doc)]
    return found + [f"{name!r} is not annotated" for name in unannotated(value)]


def _is_generated(owner: type, doc: str) -> bool:
    """Whether a dataclass or named tuple wrote its own docstring."""
    return doc.startswith((f"{owner.__name__}(", "Create and return a new"))


def _described(name: str, doc: str) -> bool:
    return bool(re.search(rf"^\s*([\w*]+, )*\*{{0,2}}{name}(, [\w*]+)*( :.*)?$", doc, re.MULTILINE))


def parameters_of(value: object) -> list[str]:
    """Names that a caller may pass, for a class those of its constructor."""
    if inspect.isclass(value):
        if "__init__" not in vars(value) or getattr(value, "_is_protocol", False):
            return []
        value = vars(value)["__init__"]
    return [name for name in inspect.signature(value).parameters if name not in ("self", "cls")]


def unannotated(value: object) -> list[str]:
    if inspect.isclass(value):
        value = vars(value).get("__init__")
        if not inspect.isfunction(value):
            return []
    signature = inspect.signature(value)
    names = [
        name
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls") and parameter.annotation is inspect.Parameter.empty
    ]
    return names + ["return"] * (signature.return_annotation is inspect.Signature.empty)


OBJECTS = public_objects()
EXPORTED = {
    f"{value.__module__}.{value.__qualname__}"
    for package in packages()
    for name in importlib.import_module(package).__all__
    if _is_ours(value := getattr(importlib.import_module(package), name, None))
}


def test_top_level_names_are_frozen() -> None:
    assert mlrforecast.__all__ == TOP_LEVEL
    assert dir(mlrforecast) == sorted(TOP_LEVEL)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = mlrforecast.nothing


@pytest.mark.parametrize("name", packages())
def test_each_package_lists_what_it_offers(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert module.__all__ == sorted(set(module.__all__), key=order)
    for listed in module.__all__:
        assert getattr(module, listed) is not None


@pytest.mark.parametrize("name", [n for n in public_modules() if n != "mlrforecast"])
def test_each_list_of_a_module_is_sorted(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    listed = getattr(module, "__all__", [])
    assert list(listed) == sorted(set(listed), key=order)


@pytest.mark.parametrize("name", OBJECTS)
def test_each_public_object_is_documented_and_annotated(name: str) -> None:
    value = OBJECTS[name]
    if name.rsplit(".", 1)[-1] in FRAMEWORK_METHODS:
        assert inspect.getdoc(value)
    else:
        told = told_by_a_base(OWNERS[name], name.rsplit(".", 1)[-1]) if name in OWNERS else []
        assert complaints(value, exported=name in EXPORTED, told=told) == []


@pytest.mark.parametrize("name", [n for n in packages() if n != "mlrforecast"])
def test_each_exported_function_and_class_shows_an_example(name: str) -> None:
    module = importlib.import_module(name)
    listed = {n: getattr(module, n) for n in module.__all__}
    without = [
        n
        for n, value in listed.items()
        if _is_ours(value)
        and not (isinstance(value, type) and issubclass(value, Exception))
        and not _is_record(value)
        and not getattr(value, "_is_protocol", False)
        and ">>> " not in (value.__doc__ or "")
    ]
    assert without == []


def test_annotations_resolve() -> None:
    for value in OBJECTS.values():
        if inspect.isfunction(value) and not isinstance(value, type):
            typing.get_type_hints(value, include_extras=True)


def test_enough_is_public_for_these_tests_to_mean_something() -> None:
    assert len(OBJECTS) > 40


def bare(width: int) -> int:
    """Double it."""
    return width


def told(width: int, height: int) -> int:
    """Double ``width`` only."""
    return width + height


def loose(width, height: int):
    """Double it.

    Parameters
    ----------
    width : int
        A width.
    """
    return width, height


def silent() -> None:
    return


def good(width: int, *others: int) -> int:
    """Double it.

    Parameters
    ----------
    width : int
        A width.
    *others : int
        More widths.
    """
    return width + sum(others)


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        (bare, ["takes width and has no Parameters section"]),
        (
            loose,
            [
                "parameter 'height' is not described",
                "'width' is not annotated",
                "'return' is not annotated",
            ],
        ),
        (silent, ["no docstring"]),
        (good, []),
    ],
)
def test_planted_gaps_are_caught(planted: object, wrong: list[str]) -> None:
    assert complaints(planted) == wrong


def test_a_method_may_name_its_parameters_in_a_sentence() -> None:
    assert complaints(bare, exported=False) == ["takes width and has no Parameters section"]
    assert complaints(told, exported=False) == ["takes height and has no Parameters section"]
    assert complaints(told) == ["takes width, height and has no Parameters section"]


def test_order_is_the_one_of_ruff() -> None:
    assert sorted(["b", "A_B", "Zeta", "Alpha", "__v__"], key=order) == [
        "A_B",
        "Alpha",
        "Zeta",
        "__v__",
        "b",
    ]


def test_an_override_need_not_repeat_its_base() -> None:
    class Base:
        def run(self, width: int) -> int:
            """Run at some ``width``."""
            return width

    class Child(Base):
        def run(self, width: int, height: int = 0) -> int:
            """Run."""
            return width + height

    Base.__module__ = Child.__module__ = "mlrforecast.example"
    told = told_by_a_base(Child, "run")
    assert told == ["width"]
    lacking = complaints(Child.run, exported=False, told=told)
    assert lacking == ["takes height and has no Parameters section"]
    assert told_by_a_base(Base, "run") == []
