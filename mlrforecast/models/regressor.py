"""The in-context regressor: points of an unknown function in, predictions of their values out."""

import dataclasses
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mlrforecast.models._config import CausalFields, Positions, count
from mlrforecast.nn import Dropout, InputLinear, OutputLinear

__all__ = ["Regressor", "RegressorConfig"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressorConfig(CausalFields):
    """Everything that determines a :class:`Regressor` but its weights.

    The defaults are the sizes and switches of the paper's regression models.

    Parameters
    ----------
    num_dims : int
        Dimensions ``n`` of a point.
    num_points : int, optional
        Most points of a sequence, of two tokens each. Default blocks and windows are made for it,
        however many points a sequence has. Default: ``2 * num_dims``.
    width, num_heads, num_layers : int
        Model width ``D``, heads and blocks.
    hidden_width : int, optional
        Width of the feed-forward networks. Default: ``4 * width``.
    attention : str or tuple of str
        Score of every block, or a pattern of scores that is repeated over the blocks; the names
        are those of :class:`mlrforecast.nn.StructuredAttention`.
    ranks, block_sizes : tuple of int, optional
        Levels of MLR attention, coarse to fine, in tokens.
    attention_options : mapping of str to object, optional
        Further keyword arguments of :class:`mlrforecast.nn.StructuredAttention`.
    positions : {"learned", "rotary", "none"}
        How a token knows its place. Learned positions end at ``num_points``.
    qk_norm : bool, optional
        Whether queries and keys are normalised. Default: they are, where a block's score has that
        switch (``"bilinear"`` and ``"bilinear_btt"`` have the option ``key_norm`` instead).
    bias : bool
        Whether linear maps and norms have biases; the read-in and the read-out have none.
    dropout : float
        Dropout probability.

    Raises
    ------
    ValueError
        If a field is out of its range, or no block's score has an option that is given.
    TypeError
        If a switch is not True or False, or an option cannot be saved as JSON.

    Examples
    --------
    >>> RegressorConfig(num_dims=16, attention="bilinear_btt").width
    256
    """

    num_dims: int
    num_points: int | None = None
    width: int = 256
    num_heads: int = 8
    num_layers: int = 6
    hidden_width: int | None = None
    attention: str | tuple[str, ...] = "mlr"
    ranks: tuple[int, ...] | None = None
    block_sizes: tuple[int | None, ...] | None = None
    attention_options: dict[str, Any] | None = None
    positions: Positions = "learned"
    qk_norm: bool | None = None
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        self._set("num_dims", count("num_dims", self.num_dims))
        if self.num_points is not None:
            self._set("num_points", count("num_points", self.num_points))
        super().__post_init__()


class Regressor(nn.Module):
    """Predict the value of each point from the points and values before it.

    Point ``k`` and its value are the tokens ``2 k`` and ``2 k + 1``: the coordinates, and the
    value followed by zeros. The prediction is read at the point's own token, which sees no value
    but the earlier ones.

    Parameters
    ----------
    config : RegressorConfig
        Sizes and settings.

    Attributes
    ----------
    max_points : int
        Points that default blocks, windows and learned positions are made for.

    Raises
    ------
    ValueError
        If the heads do not divide the width, or the levels do not fit a head.

    References
    ----------
    What Can Transformers Learn In-Context? A Case Study of Simple Function Classes, NeurIPS 2022,
    arXiv 2208.01066. Customizing the Inductive Biases of Softmax Attention using Structured
    Matrices, ICML 2025, arXiv 2509.07963.

    Examples
    --------
    >>> model = Regressor(RegressorConfig(num_dims=4, width=32, num_layers=2))
    >>> xs, ys = torch.zeros(3, 8, 4), torch.zeros(3, 8)
    >>> model(xs, ys).shape, model(xs, ys, indices=[-1]).shape
    (torch.Size([3, 8]), torch.Size([3, 1]))
    """

    def __init__(self, config: RegressorConfig) -> None:
        super().__init__()
        if not isinstance(config, RegressorConfig):
            raise TypeError(
                f"`config` must be a RegressorConfig, got a {type(config).__name__}. "
                "RegressorConfig.from_dict makes one of a mapping."
            )
        self.config = config
        default = 2 * config.num_dims
        self.max_points = default if config.num_points is None else config.num_points
        self.read_in = InputLinear(config.num_dims, config.width, bias=False)
        self.positions = config.build_positions(2 * self.max_points)
        self.dropout = Dropout(config.dropout)
        self.encoder = config.build_encoder(
            context_length=2 * self.max_points, causal=True, bias=config.bias
        )
        self.read_out = OutputLinear(config.width, 1, bias=False)

    def forward(
        self,
        xs: Float[Tensor, "B N num_dims"],
        ys: Float[Tensor, "B N"],
        *,
        indices: Sequence[int] | None = None,
    ) -> Float[Tensor, "B num_read"]:
        """Predict the values of points.

        Parameters
        ----------
        xs : Tensor of shape (B, N, num_dims)
            ``N`` points, at least one.
        ys : Tensor of shape (B, N)
            Their values; the prediction of each is made without it and those after it.
        indices : sequence of int, optional
            Points whose prediction is returned, -1 for the last. Default: all.

        Returns
        -------
        Tensor of shape (B, N), or (B, len(indices))
            Predictions.

        Raises
        ------
        ValueError
            If a shape is wrong, there are more points than learned positions, or an index is
            beyond the points.
        """
        self._check_points(xs, ys)
        chosen = _check_indices(indices, xs.shape[1])
        tokens: Tensor = self.read_in(interleave(xs, ys))
        if self.positions is not None:
            tokens = self.positions(tokens)
        encoded = self.encoder(self.dropout(tokens))[:, ::2]
        if chosen is not None:
            encoded = encoded[:, chosen]
        predictions: Tensor = self.read_out(encoded).squeeze(-1)
        return predictions

    def loss(
        self, xs: Float[Tensor, "B N num_dims"], ys: Float[Tensor, "B N"]
    ) -> Float[Tensor, ""]:
        """Return the mean squared error over all points.

        Parameters
        ----------
        xs : Tensor of shape (B, N, num_dims)
            Points.
        ys : Tensor of shape (B, N)
            Their values.

        Returns
        -------
        Tensor
            The loss, one number.
        """
        error: Tensor = self(xs, ys) - ys
        return error.square().mean()

    def _check_points(self, xs: Tensor, ys: Tensor) -> None:
        """Check the shapes of points and values."""
        if xs.ndim != 3 or xs.shape[1] < 1 or xs.shape[2] != self.config.num_dims:
            raise ValueError(
                f"`xs` must have a shape (B, N, {self.config.num_dims}) with at least one point, "
                f"got {tuple(xs.shape)}."
            )
        if ys.shape != xs.shape[:2]:
            raise ValueError(
                f"`ys` must have one value for each point, the shape {tuple(xs.shape[:2])}, got "
                f"{tuple(ys.shape)}."
            )
        if self.positions is not None and xs.shape[1] > self.max_points:
            raise ValueError(
                f"`xs` must have at most {self.max_points} points, for which positions are "
                f"learned, got {xs.shape[1]}. Raise `num_points`, or build the model with "
                "positions='rotary' or 'none'."
            )


def interleave(
    xs: Float[Tensor, "B N num_dims"], ys: Float[Tensor, "B N"]
) -> Float[Tensor, "B twice_N num_dims"]:
    """Return the tokens ``x_0, (y_0, 0, ...), x_1, (y_1, 0, ...), ...``.

    Parameters
    ----------
    xs : Tensor of shape (B, N, num_dims)
        Points.
    ys : Tensor of shape (B, N)
        Their values.

    Returns
    -------
    Tensor of shape (B, 2 * N, num_dims)

    Examples
    --------
    >>> interleave(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[5.0, 6.0]]))
    tensor([[[1., 2.],
             [5., 0.],
             [3., 4.],
             [6., 0.]]])
    """
    values = torch.zeros_like(xs)
    values[..., 0] = ys
    return torch.stack([xs, values], 2).flatten(1, 2)


def _check_indices(indices: Sequence[Any] | None, num_points: int) -> list[int] | None:
    """Return the points that are read as a list."""
    if indices is None:
        return None
    for at, entry in enumerate(indices):
        if isinstance(entry, bool) or not isinstance(entry, Integral):
            raise TypeError(f"`indices[{at}]` must be an integer, got {entry!r}.")
        index = int(entry)
        if not -num_points <= index < num_points:
            raise ValueError(
                f"`indices` must lie within the {num_points} points, -{num_points} to "
                f"{num_points - 1}, got {index}."
            )
    return [int(index) for index in indices]
