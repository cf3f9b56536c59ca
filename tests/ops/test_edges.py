"""Calls at the edges, each of which once failed or gave a wrong number."""

import pytest
import torch

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import explain_backend, mlr_attention

BACKENDS = ("reference", "expanded", "hierarchical")


def draw(*shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("backend", ["auto", "reference", "expanded"])
def test_a_finer_level_may_cover_all_under_a_coarser_one_that_does_not(backend):
    """Blocks of 3 and 2 from offset 2: the halves of the coarser level meet on the finer one."""
    q, k, v = draw(3, 1, 1, 2, 2)
    out = mlr_attention(
        q, k, v, ranks=(1, 1), block_sizes=(3, 2), offset=2, level_scale=(1.0, 1.0), backend=backend
    )
    scores = torch.empty(2, 2, dtype=torch.float64)
    for i in range(2):
        for j in range(2):
            coarse = q[0, 0, i, 0] * k[0, 0, j, 0] if i == j else 0.0
            scores[i, j] = coarse + q[0, 0, i, 1] * k[0, 0, j, 1]
    torch.testing.assert_close(out[0, 0], scores.softmax(-1) @ v[0, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_scales_far_apart_do_not_overflow_half_precision(backend):
    q, k, v = draw(3, 1, 1, 6, 8, dtype=torch.float16) * 4
    options = {"ranks": (4, 4), "level_scale": (1e-6, 1.0)}
    out = mlr_attention(q, k, v, backend=backend, **options)
    expected = mlr_attention(q.double(), k.double(), v.double(), **options)
    torch.testing.assert_close(out.double(), expected, atol=0.02, rtol=0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_masked_key_is_never_attended_however_low_the_others_score(dtype):
    q = torch.full((1, 1, 2, 1), 200.0, dtype=dtype)
    k = torch.tensor([-200.0, 0.0], dtype=dtype).reshape(1, 1, 2, 1)
    v = torch.tensor([1.0, 3.0], dtype=dtype).reshape(1, 1, 2, 1)
    options = {
        "ranks": (1,),
        "level_scale": (1.0,),
        "key_mask": torch.tensor([[True, False]]),
    }
    for backend in BACKENDS:
        if backend == "hierarchical" and dtype == torch.float16:
            with pytest.raises(BackendError, match="float16"):
                mlr_attention(q, k, v, backend=backend, **options)
            assert explain_backend(q, k, v, **options).name != backend
        else:
            out = mlr_attention(q, k, v, backend=backend, **options)
            assert out.flatten().tolist() == [1.0, 1.0]


@pytest.mark.compile
def test_the_reference_compiles_for_any_length():
    def attend(q, k, v):
        return mlr_attention(q, k, v, ranks=(2, 2), backend="reference")

    compiled = torch.compile(attend, dynamic=True, fullgraph=True, backend="eager")
    for length in (5, 8):
        q, k, v = draw(3, 1, 1, length, 4)
        torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))
