"""Optional extras are imported, or named with the command that installs them."""

import json
import sys
from pathlib import Path

import pytest

from mlrforecast._core.errors import MissingDependencyError
from mlrforecast._core.optional import import_optional


def test_an_installed_module_is_given() -> None:
    assert import_optional("json", extra="tune", purpose="A test") is json


def test_a_missing_module_is_told_with_the_install_line() -> None:
    with pytest.raises(MissingDependencyError) as caught:
        import_optional("no_such_module.inner", extra="gluonts", purpose="A data set of GluonTS")
    assert str(caught.value) == (
        "A data set of GluonTS needs 'no_such_module', which is not installed. "
        "Install it with: pip install 'mlrforecast[gluonts]'"
    )
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_error_inside_the_module_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_broken.py").write_text("from json import no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="no_such_name") as caught:
        import_optional("planted_broken", extra="tune", purpose="A test")
    assert not isinstance(caught.value, MissingDependencyError)
    assert "planted_broken" not in sys.modules
