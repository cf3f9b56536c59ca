"""The kernels compile for a GPU, with the Triton that is installed."""

import pytest

from tests.ops.interpreter import run_alone

pytest.importorskip("triton")


def test_the_kernels_compile(tmp_path) -> None:
    # Nothing compiled by an earlier run, and no choice of floating point that others might make.
    compiled = run_alone("tests.ops.compile_cases", TRITON_CACHE_DIR=str(tmp_path))
    attention = ["forward", "backward_queries", "backward_keys"]
    assert compiled == {
        "by-the-copy-engine": attention,
        "flat": attention,
        "all-options": attention,
        "hopper": ["forward"],
        "decode-1": ["attend"],
        "decode-4": ["attend", "merge"],
    }
