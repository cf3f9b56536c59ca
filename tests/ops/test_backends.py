from typing import ClassVar

from tests.contracts.attention_contract import AttentionContract


class TestReference(AttentionContract):
    backend = "reference"


class TestExpanded(AttentionContract):
    backend = "expanded"
    refuses: ClassVar[dict[str, str]] = {
        "T65-identity": "softmax attention only",
        "T127-not-nested-shared": "needs nested blocks",
        "T257-many-blocks": "one slot per block makes .* columns, more than 256",
    }


class TestHierarchical(AttentionContract):
    backend = "hierarchical"
    refuses: ClassVar[dict[str, str]] = {
        "T64-unshared-zero": "without a common block",
        "T65-identity": "softmax attention only",
        "T127-not-nested": "needs nested blocks",
        "T127-not-nested-shared": "needs nested blocks",
    }
