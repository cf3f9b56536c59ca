"""Calls at the edges, each of which once failed or gave a wrong number."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from mlrforecast._core.errors import BackendError
from mlrforecast.ops import (
    Levels,
    _layout,
    check_levels,
    explain_backend,
    level_scales,
    mlr_attention,
    mlr_scores,
    standard_attention,
)
from mlrforecast.ops.attention import decode, dispatch, triton
from mlrforecast.ops.attention._fused import _padded

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 4}, "`ranks` must be a sequence with one entry for each level, got 4"),
        ({"block_sizes": 8}, "`block_sizes` must be a sequence .* got 8"),
        ({"num_blocks": 2}, "`num_blocks` must be a sequence .* got 2"),
        ({"level_scale": 0.5}, "`level_scale` must be a sequence .* got 0.5"),
        ({"level_scale": None}, "`level_scale` must be a sequence .* got None"),
        ({"level_scale": (1.0, "2")}, r"`level_scale\[1\]` must be a number, got '2'"),
        ({"level_scale": (1.0, None)}, r"`level_scale\[1\]` must be a number, got None"),
        ({"dropout_p": "0.1"}, "`dropout_p` must be a number, got '0.1'"),
        ({"key_mask": [[True] * 8]}, "`key_mask` must be a torch.Tensor, got a list"),
    ],
)
def test_an_option_of_a_wrong_type_is_named(options, message, own_errors):
    x = draw(1, 1, 8, 4)
    arguments = {"ranks": (2, 2)} | options
    for call in (mlr_attention, explain_backend):
        with pytest.raises(TypeError, match=message):
            call(x, x, x, **arguments)


@pytest.mark.parametrize(
    ("convert", "error", "message"),
    [
        (np.asarray, TypeError, "`{}` must be a torch.Tensor, got a ndarray. Convert it"),
        (lambda x: x.to("meta"), ValueError, "`{}` must be on a device that holds data, got meta"),
    ],
)
def test_what_holds_no_tensor_data_is_named(convert, error, message, own_errors):
    x = draw(1, 1, 8, 4)
    for name in "qkv":
        tensors = {key: convert(x) if key == name else x for key in "qkv"}
        for call in (mlr_attention, explain_backend):
            with pytest.raises(error, match=message.format(name)):
                call(**tensors, ranks=(2, 2))
        with pytest.raises(error, match=message.format(name)):
            standard_attention(**tensors)
    with pytest.raises(error, match=message.format("k")):
        mlr_scores(x, convert(x), ranks=(2, 2))


def test_eight_bit_floats_are_refused(own_errors):
    x = draw(1, 1, 8, 4).to(torch.float8_e4m3fn)
    for call in (lambda: mlr_attention(x, x, x, ranks=(4,)), lambda: standard_attention(x, x, x)):
        with pytest.raises(TypeError, match=r"16 bits or more, got torch\.float8_e4m3fn"):
            call()


def test_levels_that_are_no_sequence_are_named(own_errors):
    for call in (Levels, check_levels):
        with pytest.raises(TypeError, match="`block_sizes` must be a sequence"):
            call(8, (2,), 4)
    with pytest.raises(TypeError, match="`ranks` must be a sequence"):
        level_scales(4)
    with pytest.raises(ValueError, match=r"`ranks\[1\]` must be at least 1, got 0"):
        level_scales((4, 0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_offsets_up_to_the_limit_count_and_larger_ones_are_refused(backend):
    q, k, v = draw(3, 1, 1, 8, 4)
    options = {"ranks": (2, 2), "block_sizes": (10**20, 3), "backend": backend}
    for offset in (0, 2**62):
        out = mlr_attention(q, k, v, offset=offset, **options)
        small = mlr_attention(q, k, v, offset=offset % 3, **options)
        torch.testing.assert_close(out, small, atol=1e-12, rtol=0)
    with pytest.raises(ValueError, match=r"`offset` must be at most 2\*\*62, got 1000000"):
        mlr_attention(q, k, v, offset=10**20, **options)


def test_blocks_beyond_int64_cover_everything():
    levels = Levels(3, (1, 1), (2**63, 2), offset=1)
    assert levels.ids().tolist() == [[0, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scales", [(1e-12, 1.0, 1e12), (1e12, 1.0, 1e-12)])
@pytest.mark.parametrize("shared", [False, True])
def test_scales_far_apart_stay_exact(backend, scales, shared):
    """Small queries on the level with the large factor, so that every level matters."""
    columns = torch.tensor([1 / s for s in scales], dtype=torch.float64).repeat_interleave(2)
    q, k, v = draw(3, 1, 2, 16, 6)
    options = {"ranks": (2, 2, 2), "divide_by_shared_levels": shared}
    out = mlr_attention(q * columns, k, v, level_scale=scales, backend=backend, **options)
    plain = mlr_attention(q, k, v, level_scale=(1.0,) * 3, backend="reference", **options)
    torch.testing.assert_close(out, plain, atol=1e-12, rtol=0)


def double_backward(backend, linear):
    x = draw(1, 1, 8, 4).requires_grad_()
    out = mlr_attention(x, x, x, ranks=(2, 2), backend=backend)
    loss = out.sum() if linear else out.square().sum()
    (grad,) = torch.autograd.grad(loss, x, create_graph=True)
    grad.square().sum().backward()
    return x.grad


@pytest.mark.parametrize("linear", [False, True])
def test_only_the_reference_is_differentiable_twice(linear):
    """The others raise, be the gradient that comes in a constant or not."""
    assert double_backward("reference", linear).isfinite().all()
    for backend in ("expanded", "hierarchical"):
        with pytest.raises(RuntimeError, match=r"not implemented|no autograd formula"):
            double_backward(backend, linear)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_after_inference_mode(backend):
    """What a call keeps for the next ones may be born in inference mode."""
    _layout._kept.cache_clear()
    x = torch.ones(1, 1, 12, 8, requires_grad=True)
    with torch.inference_mode():
        mlr_attention(x, x, x, ranks=(5, 3), backend=backend)
    mlr_attention(x, x, x, ranks=(5, 3), backend=backend).sum().backward()
    assert x.grad is not None


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("backend", ["auto", "hierarchical"])
@pytest.mark.parametrize("argument", range(3))
def test_a_forward_derivative_is_refused_where_it_would_be_zero(backend, argument):
    """PyTorch drops the tangents of an operator that knows none, and says nothing."""
    inputs = [draw(1, 2, 100, 8) + place for place in range(3)]

    def total(x, name):
        others = [*inputs[:argument], x, *inputs[argument + 1 :]]
        return mlr_attention(*others, ranks=(4, 4), backend=name).square().sum()

    point, direction = inputs[argument], torch.ones_like(inputs[argument])
    with pytest.raises(BackendError, match="no derivative in forward mode"):
        torch.func.jvp(lambda x: total(x, backend), (point,), (direction,))
    with pytest.raises(BackendError, match="no derivative in forward mode"):
        torch.func.jacfwd(lambda step: total(point + step * direction, backend))(torch.zeros(()))
    _, slope = torch.func.jvp(lambda x: total(x, "reference"), (point,), (direction,))
    step = 1e-6
    ahead, behind = (total(point + sign * step * direction, "reference") for sign in (1, -1))
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), atol=1e-6, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_kernels_refuse_a_forward_derivative_before_they_run(monkeypatch):
    served = triton.triton_attention, lambda case: None
    monkeypatch.setitem(dispatch._BACKENDS, "triton", served)
    x = draw(1, 2, 20, 8)
    with forward_ad.dual_level():
        moving = forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(BackendError, match=r"'triton' .* no derivative in forward mode"):
            mlr_attention(x, moving, x, ranks=(4, 4), backend="triton")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_fused_step_refuses_a_forward_derivative(monkeypatch):
    monkeypatch.setattr(decode, "AVAILABLE", True)
    monkeypatch.setattr(decode, "INTERPRETED", True)
    q, k, v = draw(3, 1, 2, 1, 4)
    assert decode.decode_refusal(q, [k], v) is None
    with forward_ad.dual_level():
        moving = forward_ad.make_dual(k, torch.ones_like(k))
        assert "no derivative in forward mode" in str(decode.decode_refusal(q, [moving], v))


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("name", ["causal", "divide_by_shared_levels", "divide_by_num_levels"])
def test_a_word_is_no_switch(name, backend, own_errors):
    """The truth of "False" is True, and one backend took it and another did not."""
    q, k, v = draw(3, 1, 2, 100, 8)
    with pytest.raises(TypeError, match=f"`{name}` must be True or False, got 'False'"):
        mlr_attention(q, k, v, ranks=(4, 4), backend=backend, **{name: "False"})
    if name != "causal":
        with pytest.raises(TypeError, match=f"`{name}` must be True or False, got 'False'"):
            mlr_scores(q, k, ranks=(4, 4), **{name: "False"})


def test_a_window_may_be_wider_than_any_number_of_a_tensor():
    q, k, v = draw(3, 1, 2, 20, 8)
    found = [mlr_attention(q, k, v, ranks=(4, 4), window=window) for window in (20, 10**30)]
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_nothing_is_kept_of_block_ids():
    """They differ from batch to batch, and would fill the memory of a long training."""
    q, k, v = draw(3, 1, 2, 12, 8)
    kept = []
    for call in range(3):
        ids = torch.stack([torch.zeros(12, dtype=torch.int64), torch.arange(12) // 4 + 1000 * call])
        mlr_attention(q, k, v, ranks=(4, 4), block_ids=ids, backend="expanded")
        kept.append(_layout._kept.cache_info().currsize)
    assert kept[0] == kept[2]


@pytest.mark.parametrize(
    ("device", "dtype", "widths", "padded"),
    [
        ("cuda", torch.float32, (30, 30, 8), (32, 32, 8)),
        ("cuda", torch.bfloat16, (30, 30, 4), (32, 32, 8)),
        ("cuda", torch.float64, (30, 30, 3), (30, 30, 3)),
        ("cpu", torch.float32, (30, 30, 8), (30, 30, 30)),
    ],
)
def test_rows_end_where_a_fused_kernel_takes_them(device, dtype, widths, padded):
    with FakeTensorMode():
        given = [torch.empty(1, 2, 5, width, dtype=dtype, device=device) for width in widths]
        assert tuple(x.shape[-1] for x in _padded(*given)) == padded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_table_of_scores_is_made_of_odd_widths():
    q, k, v = (draw(1, 2, 4096, width, dtype=torch.float32).cuda() for width in (30, 30, 8))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = standard_attention(q, k, v, causal=True)
    assert torch.cuda.max_memory_allocated() - before < 4096 * 4096
    want = standard_attention(*(x.cpu().double() for x in (q, k, v)), causal=True)
    torch.testing.assert_close(out.cpu().double(), want, rtol=0, atol=1e-4)
