"""Imports of optional extras, with an error that says how to install them."""

import importlib
from types import ModuleType

from mlrforecast._core.errors import MissingDependencyError


def import_optional(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or say which extra brings it.

    Parameters
    ----------
    module : str
        Dotted module name, e.g. ``"gluonts.dataset.repository"``.
    extra : str
        The extra of this package that installs it.
    purpose : str
        What needs it, as the beginning of a sentence.

    Returns
    -------
    module
        The imported module.

    Raises
    ------
    MissingDependencyError
        If the module, or something it imports, is not installed.

    Examples
    --------
    >>> import_optional("no_such_module", extra="tune", purpose="A sweep")
    Traceback (most recent call last):
    ...
    mlrforecast._core.errors.MissingDependencyError: A sweep needs 'no_such_module', which is not \
installed. Install it with: pip install 'mlrforecast[tune]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{purpose} needs {error.name!r}, which is not installed. "
            f"Install it with: pip install 'mlrforecast[{extra}]'"
        ) from error
