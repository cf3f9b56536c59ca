"""Names of a package that are imported when they are first used."""

import importlib
from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module ``__getattr__`` that imports a name's module when the name is first used.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    homes : mapping of str to str
        Public name -> dotted module that defines it.

    Returns
    -------
    callable
        To be bound to ``__getattr__`` in the package (PEP 562).

    Examples
    --------
    >>> getattribute = lazy_names("package", {"sqrt": "math"})
    >>> getattribute("sqrt")(4.0)
    2.0
    >>> getattribute("cbrt")
    Traceback (most recent call last):
    ...
    AttributeError: module 'package' has no attribute 'cbrt'
    """

    def getattribute(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return getattribute
