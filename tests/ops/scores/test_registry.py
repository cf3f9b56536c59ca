"""Every op has a test class on the contract."""

import pytest

from mlrforecast.ops import attention_ops, standard_attention
from tests.ops.scores import test_bilinear_ops, test_dot_ops, test_mlr_ops
from tests.ops.scores.attention_op_contract import AttentionOpContract

MODULES = (test_bilinear_ops, test_dot_ops, test_mlr_ops)


def untested_ops() -> set[str]:
    """Names in ``attention_ops`` for which no test class stands on the contract."""
    classes = [
        entry
        for module in MODULES
        for name, entry in vars(module).items()
        if name.startswith("Test") and issubclass(entry, AttentionOpContract)
    ]
    return set(attention_ops) - {entry.name for entry in classes}


def test_every_op_is_tested() -> None:
    assert untested_ops() == set()


def test_an_op_without_a_test_class_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attention_ops._entries, "unheard_of", standard_attention)
    assert untested_ops() == {"unheard_of"}
