"""The attention module that every model uses, whatever the score."""

from collections.abc import Callable, Sequence
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast._core.registry import Registry
from mlrforecast.ops import check_levels, mlr_attention, newest_whole_offset, standard_attention

Core = Callable[..., Tensor]
"""``core(q, k, v, causal=, key_mask=, dropout_p=)`` on tensors of shape (B, H, T, R)."""

attentions: Registry[Callable[..., Core]] = Registry("attention")
"""Name -> builder of a core. A builder takes ``head_width``, ``ranks``, ``block_sizes``."""


def default_ranks(head_width: int) -> tuple[int, ...]:
    """Return half of the columns for the whole sequence and a quarter for each of two finer levels.

    Parameters
    ----------
    head_width : int
        Columns of a head.

    Returns
    -------
    tuple of int
        Ranks, coarse to fine; they sum to ``head_width``.

    Examples
    --------
    >>> default_ranks(8), default_ranks(2)
    ((4, 2, 2), (1, 1))
    """
    if head_width < 4:
        return (1,) * head_width
    quarter = head_width // 4
    return (head_width - 2 * quarter, quarter, quarter)


def _build_standard(
    head_width: int, ranks: Sequence[int] | None, block_sizes: Sequence[int | None] | None
) -> Core:
    """Return standard attention, which has no levels."""
    if ranks is not None or block_sizes is not None:
        raise ValueError("`ranks` and `block_sizes` belong to attention='mlr', not 'standard'.")
    return standard_attention


def _build_mlr(
    head_width: int, ranks: Sequence[int] | None, block_sizes: Sequence[int | None] | None
) -> Core:
    """Return MLR attention with its levels, checked."""
    ranks = default_ranks(head_width) if ranks is None else tuple(ranks)
    if sum(ranks) != head_width:
        raise ValueError(
            f"`ranks` must sum to the head width {head_width}, got {ranks} (sum {sum(ranks)})."
        )
    check_levels(1, ranks, block_sizes)
    return partial(_mlr_newest_whole, ranks=ranks, block_sizes=block_sizes)


def _mlr_newest_whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    block_sizes: Sequence[int | None] | None,
    causal: bool,
    key_mask: Tensor | None,
    dropout_p: float,
) -> Tensor:
    """MLR attention whose blocks are counted back from the newest step, at unit-variance scale."""
    _, sizes = check_levels(q.shape[-2], ranks, block_sizes)
    return mlr_attention(
        q,
        k,
        v,
        ranks=ranks,
        block_sizes=sizes,
        offset=newest_whole_offset(q.shape[-2], sizes),
        causal=causal,
        key_mask=key_mask,
        level_scale="inverse_sqrt_width",
        dropout_p=dropout_p,
    )


attentions.register("standard", _build_standard)
attentions.register("mlr", _build_mlr)


class StructuredAttention(nn.Module):
    """Multi-head self-attention with a score chosen by name.

    Parameters
    ----------
    width : int
        Model width ``D``.
    num_heads : int
        Heads; must divide ``width``.
    attention : {"mlr", "standard"}
        The score.
    ranks : sequence of int, optional
        Columns of each level of MLR attention, coarse to fine; they sum to ``width // num_heads``.
        Default: half of them on the whole sequence, a quarter on each of two finer levels.
    block_sizes : sequence of int or None, optional
        Block length of each level in steps, coarse to fine, None for the whole sequence.
        Default: each level halves the blocks of the one before.
    causal : bool
        Whether a step sees only itself and the past.
    dropout : float
        Dropout probability of the attention weights.
    bias : bool
        Whether the four linear maps have biases.

    References
    ----------
    Customizing the Inductive Biases of Softmax Attention using Structured Matrices, ICML 2025.

    Examples
    --------
    >>> import torch
    >>> layer = StructuredAttention(16, 2, attention="mlr", ranks=(4, 2, 2))
    >>> layer(torch.zeros(3, 10, 16)).shape
    torch.Size([3, 10, 16])
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        *,
        attention: str = "mlr",
        ranks: Sequence[int] | None = None,
        block_sizes: Sequence[int | None] | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if width % num_heads:
            raise ValueError(f"`num_heads` must divide the width {width}, got {num_heads}.")
        self.num_heads = num_heads
        self.causal = causal
        self.dropout = dropout
        self.core = attentions[attention](width // num_heads, ranks, block_sizes)
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(
        self, x: Float[Tensor, "B T D"], key_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Attend over the steps of ``x``.

        Parameters
        ----------
        x : Tensor of shape (B, T, D)
            Layer input.
        key_mask : Tensor of bool of shape (B, T), optional
            True where a step may be attended.

        Returns
        -------
        Tensor of shape (B, T, D)
            Layer output.
        """
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        out = self.core(
            q,
            k,
            v,
            causal=self.causal,
            key_mask=key_mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        mixed: Tensor = self.output(out.transpose(1, 2).flatten(-2))
        return mixed
