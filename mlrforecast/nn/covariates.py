"""Covariates and the calendar: how a network reads them, and what they do to a forecast."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from mlrforecast.nn.cost import Convention, Cost
from mlrforecast.nn.dropout import Dropout
from mlrforecast.nn.linear import InputLinear, OutputLinear
from mlrforecast.nn.mup import MupRule

__all__ = ["CalendarEffect", "CovariateColumns", "FutureEffect"]

CATEGORY_WIDTH = 8
"""Numbers that stand for a category, at most."""

REACH = 4
"""Steps before and after a future step whose known covariates act on it."""

NUM_CURVES = 16
"""Functions of the future that a window weighs; they read few numbers in a model of any width."""

CALENDAR_CURVES = 8
"""Functions of the calendar that a window shifts; each step has all of them, so they are few."""


class CovariateColumns(nn.Module):
    """Turn columns of covariates into features: numbers as they are, categories as learned vectors.

    Parameters
    ----------
    cardinalities : sequence of int
        For each column 0 if it holds numbers, or how many categories it has; their codes are 1 to
        that number, and 0, a missing or an unknown category, becomes a vector of zeros.

    Attributes
    ----------
    num_features : int
        Features of all columns, ``E``: one for each column of numbers, at most 8 for each of
        categories.
    is_learned : bool
        Whether there are categories.

    Examples
    --------
    >>> columns = CovariateColumns((0, 3))
    >>> columns(torch.tensor([[0.5, 2.0], [-0.5, 0.0]])).shape
    torch.Size([2, 4])
    """

    def __init__(self, cardinalities: Sequence[int]) -> None:
        super().__init__()
        self.cardinalities = tuple(cardinalities)
        numbers = [place for place, size in enumerate(self.cardinalities) if size == 0]
        self.register_buffer("numbers", torch.tensor(numbers, dtype=torch.long), persistent=False)
        self.numbers: Tensor
        self.categories = nn.ModuleList(
            nn.Embedding(size + 1, min(CATEGORY_WIDTH, size), padding_idx=0)
            for size in self.cardinalities
            if size > 0
        )
        self.is_learned = len(self.categories) > 0
        widths = (min(CATEGORY_WIDTH, size) for size in self.cardinalities)
        self.num_features = len(numbers) + sum(widths)

    def forward(self, columns: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows E"]:
        """Turn ``columns`` into features, those of numbers first.

        Parameters
        ----------
        columns : Tensor of shape (..., K)
            Numbers, and codes of categories.

        Returns
        -------
        Tensor of shape (..., E)

        Raises
        ------
        ValueError
            If a code is not one of its column.
        """
        if not self.is_learned:
            return columns
        places = [place for place, size in enumerate(self.cardinalities) if size > 0]
        parts = [columns.index_select(-1, self.numbers)]
        for place, embedding in zip(places, self.categories, strict=True):
            codes = columns[..., place].long()
            # A graph for any values cannot ask for them.
            if not torch.compiler.is_compiling():
                self._check_codes(codes, place)
            parts.append(embedding(codes))
        return torch.cat(parts, dim=-1)

    def _check_codes(self, codes: Int[Tensor, "*rows"], place: int) -> None:
        """Refuse codes without a vector: on a GPU they would end the process."""
        size = self.cardinalities[place]
        if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) <= size:
            raise ValueError(
                f"Column {place} of the covariates has {size} categories, so its codes must be "
                f"from 0 to {size}; got {int(codes.min())} to {int(codes.max())}."
            )


class FutureEffect(nn.Module):
    """What known covariates add to each step of a point forecast.

    A step reads the known covariates of the steps around it. These numbers, and curves of them
    that the window shifts, are weighed by what the window itself says: how much a holiday or a
    price does is a matter of the series. All weights and shifts start at zero, so that at first
    nothing is added.

    Parameters
    ----------
    prediction_length, width : int
        Future steps ``F`` and token width ``D``.
    num_known : int
        Features of the known covariates, ``E``.
    is_learned : bool
        Whether these features are learned ones; read by :meth:`cost`.

    Examples
    --------
    >>> effect = FutureEffect(24, 8, num_known=2)
    >>> effect(torch.randn(3, 1, 8), torch.randn(3, 96 + 24, 2)).shape
    torch.Size([3, 1, 24])
    """

    def __init__(
        self,
        prediction_length: int,
        width: int,
        *,
        num_known: int,
        is_learned: bool = False,
    ) -> None:
        super().__init__()
        self.prediction_length = prediction_length
        self.is_learned = is_learned
        self.num_features = (2 * REACH + 1) * num_known
        self.curves = InputLinear(self.num_features, NUM_CURVES)
        self.weights = OutputLinear(width, self.num_features + 2 * NUM_CURVES)
        nn.init.zeros_(self.weights.weight)
        nn.init.zeros_(self.weights.bias)

    def forward(
        self,
        summary: Float[Tensor, "B C D"],
        known: Float[Tensor, "B S E"],
    ) -> Float[Tensor, "B C F"]:
        """Return what is added to the forecast of each channel, in normalised units.

        Parameters
        ----------
        summary : Tensor of shape (B, C, D)
            What each channel of a window says: the mean of its encoded tokens.
        known : Tensor of shape (B, T + F, E)
            Features of the known covariates, those of the context first.

        Returns
        -------
        Tensor of shape (B, C, F)
        """
        features = self._around(known)
        direct, bent, shift = self.weights(summary).split(
            [self.num_features, NUM_CURVES, NUM_CURVES], dim=-1
        )
        curves = functional.silu(self.curves(features).unsqueeze(1) + shift.unsqueeze(2))
        effect: Tensor = direct @ features.mT + (curves @ bent.unsqueeze(-1)).squeeze(-1)
        return effect

    def _around(self, known: Float[Tensor, "B S E"]) -> Float[Tensor, "B F K"]:
        """Put the features of the steps around each future step side by side, 0 past the end."""
        # Negative where the context is longer than the reach: the rest of it is cut off.
        before = REACH + self.prediction_length - known.shape[1]
        padded = functional.pad(known, (0, 0, before, REACH))
        return padded.unfold(1, 2 * REACH + 1, 1).flatten(2)

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count the multiply-adds for one channel of a window.

        Parameters
        ----------
        length : int
            Tokens of the window, of which only the mean is read.
        convention : {"paper", "matmul"}
            How to count; both count the same here.

        Returns
        -------
        Cost
        """
        read = self.prediction_length * self.num_features
        curves = self.prediction_length * NUM_CURVES
        return Cost(
            linear=self.weights.weight.numel() + read * (NUM_CURVES + 1) + curves,
            from_data=0 if self.is_learned else read * (NUM_CURVES + 1),
        )


class CalendarEffect(nn.Module):
    """What the calendar adds to each step of a point forecast.

    A window shows most of its cycles itself. What the calendar knows beyond them is little, so it
    has few weights, dropout, and the start at zero: weights that the window decides on, as in
    :class:`FutureEffect`, are learnt by heart where there are few years.

    Parameters
    ----------
    num_features, width : int
        Features of the calendar, ``K``, and token width ``D``.
    dropout : float
        Dropout probability of what the window says and of the hidden layer.

    Examples
    --------
    >>> CalendarEffect(4, 8)(torch.randn(3, 1, 8), torch.randn(3, 24, 4)).shape
    torch.Size([3, 1, 24])
    """

    def __init__(self, num_features: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.step = InputLinear(num_features, CALENDAR_CURVES)
        self.window = OutputLinear(width, CALENDAR_CURVES, bias=False)
        self.out = nn.Linear(CALENDAR_CURVES, 1)
        self.direct = nn.Linear(num_features, 1, bias=False)
        # They read few numbers in a model of any width, and start at zero.
        kept = ("out.weight", "out.bias", "direct.weight")
        self.mup_rules = {name: MupRule("kept") for name in kept}
        for start in (self.out.weight, self.out.bias, self.direct.weight):
            nn.init.zeros_(start)
        self.dropout = Dropout(dropout)

    def forward(
        self, summary: Float[Tensor, "B C D"], calendar: Float[Tensor, "B F K"]
    ) -> Float[Tensor, "B C F"]:
        """Return what is added to the forecast of each channel, in normalised units.

        Parameters
        ----------
        summary : Tensor of shape (B, C, D)
            What each channel of a window says: the mean of its encoded tokens.
        calendar : Tensor of shape (B, F, K)
            Features of the calendar.

        Returns
        -------
        Tensor of shape (B, C, F)
        """
        window = self.window(self.dropout(summary)).unsqueeze(2)
        hidden = functional.gelu(self.step(calendar).unsqueeze(1) + window)
        effect: Tensor = self.out(self.dropout(hidden)) + self.direct(calendar).unsqueeze(1)
        return effect.squeeze(-1)

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count the multiply-adds for one channel of ``length`` steps, by any ``convention``."""
        from_data = length * (self.step.weight.numel() + self.direct.weight.numel())
        inner = self.window.weight.numel() + length * self.out.weight.numel()
        return Cost(linear=from_data + inner, from_data=from_data)
