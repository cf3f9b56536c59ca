from typing import ClassVar

from tests.contracts.attention_contract import AttentionContract

IDENTITY = ("T65-identity", "T23-ids-batch-zero", "T36-of-37-identity", "T1-to-9-crossing-shared")
WINDOWS = (
    "T31-window-0",
    "T31-window",
    "T31-window-zero",
    "T31-window-beyond",
    "T23-ids-batch-window",
)
NEWEST_WINDOWS = ("T5-of-31-window", "T1-of-23-window")
NEWEST = (
    "T1-of-37",
    "T1-of-37-masked-shared",
    "T5-of-37",
    "T5-of-37-bidirectional",
    "T5-of-37-ids",
    "T7-of-23-ids-batch",
    "T5-of-37-unshared-zero",
    *NEWEST_WINDOWS,
)


class TestReference(AttentionContract):
    backend = "reference"


class TestExpanded(AttentionContract):
    backend = "expanded"
    refuses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(IDENTITY, "softmax attention only"),
        **dict.fromkeys((*WINDOWS, *NEWEST_WINDOWS), "the coarsest has a window"),
        "T127-not-nested-shared": "needs nested blocks",
        "T37-ids-crossing-shared": "needs nested blocks",
        "T257-many-blocks": "one slot per block makes .* columns, more than 256",
    }


class TestHierarchical(AttentionContract):
    backend = "hierarchical"
    refuses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(IDENTITY, "softmax attention only"),
        **dict.fromkeys(WINDOWS, "the coarsest has a window"),
        **dict.fromkeys(NEWEST, "needs as many queries as keys, got T=. and S="),
        "T64-unshared-zero": "without a common block",
        "T31-ids-parted-zero": "without a common block",
        "T127-not-nested": "needs nested blocks",
        "T127-not-nested-shared": "needs nested blocks",
        "T37-ids-crossing": "needs nested blocks",
        "T37-ids-crossing-shared": "needs nested blocks",
        "T37-ids-gaps": "needs blocks without gaps",
        "T37-ids-gaps-shared": "needs blocks without gaps",
        "T23-ids-batch": "one partition for all sequences",
        "T23-ids-batch-shared": "one partition for all sequences",
        "T9-to-23": "`query_block_ids` are those of another",
        "T23-to-23-shared": "`query_block_ids` are those of another",
        "T23-to-9-batch": "`query_block_ids` are those of another",
        "T23-to-9-mixed": "`query_block_ids` are those of another",
    }
