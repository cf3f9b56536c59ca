"""The error tree: one base, built-in kinds kept, the drawing true."""

import inspect
import re

import pytest

from mlrforecast._core import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and value is not errors.MLRForecastError
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_error_has_the_base_and_one_built_in_kind(name: str) -> None:
    cls = CLASSES[name]
    assert cls.__bases__[0] is errors.MLRForecastError
    assert issubclass(cls.__bases__[1], ValueError | OSError | ImportError | RuntimeError)
    with pytest.raises(cls.__bases__[1], match="which rule"):
        raise cls("which rule")


def test_the_drawing_names_every_error_with_its_kind() -> None:
    drawn = dict(re.findall(r"── (\w+) \((\w+)\)", errors.__doc__ or ""))
    assert drawn == {name: cls.__bases__[1].__name__ for name, cls in CLASSES.items()}
