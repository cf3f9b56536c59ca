"""FLOPs and parameters of a model, in closed form: nothing is run."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from torch import nn

from mlrforecast.models._config import choice, count
from mlrforecast.models.causal_lm import CausalLM
from mlrforecast.models.encoder import EncoderForecaster
from mlrforecast.models.regressor import Regressor
from mlrforecast.nn import (
    Convention,
    Cost,
    Encoder,
    EncoderBlock,
    InputLinear,
    LearnedPositions,
    StructuredAttention,
)

__all__ = ["FlopCount", "ParameterCount", "count_flops", "count_parameters"]

# The children of these are applied in turn to every token, and cost what there is.
_CONTAINERS = (Encoder, EncoderBlock, StructuredAttention, nn.ModuleList, nn.Sequential)
# Without a product of matrices. Activations are free in both conventions.
_FREE = (
    LearnedPositions,
    nn.Dropout,
    nn.Embedding,
    nn.GELU,
    nn.Identity,
    nn.ReLU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
)
# What the paper counts for each element that a LayerNorm normalises.
_NORM_FLOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopCount:
    """FLOPs of the forward pass of one sequence, by kind.

    Parameters
    ----------
    convention : {"paper", "matmul"}
        How they were counted, see :func:`count_flops`.
    tokens : int
        Tokens of the sequence inside the model.
    linear : int
        Of linear maps.
    structured : int
        Of maps by structured weights, those of bilinear scores.
    scores : int
        Of queries with keys.
    values : int
        Of attention weights with values.
    layer_norm : int
        Of LayerNorms; 0 if ``convention`` is ``"matmul"``.
    head : int
        Those of ``linear`` that make the output of the model from its encoded tokens.
    from_data : int
        Those of ``linear`` that read raw data.
    sparse_scores : int
        ``scores`` if every level of MLR attention computed its blocks only, and every window the
        window: what the structure needs, as the paper counts it.

    Attributes
    ----------
    matmul : int
        ``structured + scores + values``, all products that are no linear map.
    total : int
        ``linear + matmul + layer_norm``.
    per_token : float
        ``total / tokens``.
    per_token_without_head : float
        The same without ``head``, the horizontal axis of the paper's language models.
    """

    convention: Convention
    tokens: int
    linear: int
    structured: int
    scores: int
    values: int
    layer_norm: int
    head: int
    from_data: int
    sparse_scores: int

    @property
    def matmul(self) -> int:
        """FLOPs of all products that are no linear map."""
        return self.structured + self.scores + self.values

    @property
    def total(self) -> int:
        """FLOPs of the forward pass."""
        return self.linear + self.matmul + self.layer_norm

    @property
    def per_token(self) -> float:
        """FLOPs of the forward pass for each token."""
        return self.total / self.tokens

    @property
    def per_token_without_head(self) -> float:
        """FLOPs of the forward pass without the head, for each token."""
        return (self.total - self.head) / self.tokens

    def training(self) -> int:
        """Return the FLOPs of a forward and a backward pass.

        The backward pass has two products for each of the forward pass, one for each factor, but
        only one where a map reads raw data, which needs no gradient.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If ``convention`` is ``"paper"``, which counts forward passes only.
        """
        if self.convention == "paper":
            raise ValueError(
                "The convention 'paper' counts forward passes only; count with "
                "convention='matmul' for training."
            )
        return 3 * self.total - self.from_data


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Numbers of parameters of a model.

    Parameters
    ----------
    total : int
        All of them; shared ones count once.
    embedding : int
        Of what makes tokens: embeddings, learned positions, maps of raw data.
    head : int
        Of what makes the output of a model of this library from its encoded tokens; 0 if it
        shares them with the embedding.
    attention : int
        Of attention layers, scores and their norms included.

    Attributes
    ----------
    non_embedding : int
        ``total - embedding - head``, the number that the paper's code reports.
    """

    total: int
    embedding: int
    head: int
    attention: int

    @property
    def non_embedding(self) -> int:
        """Parameters of the encoder alone."""
        return self.total - self.embedding - self.head


def count_flops(
    model: nn.Module, length: int | None = None, *, convention: Convention = "paper"
) -> FlopCount:
    """Count the FLOPs of the forward pass of one sequence, in closed form.

    ``"paper"`` counts as the published code does: 1 for each multiply-add, 5 for each element of a
    LayerNorm, nothing for softmax, activations, masks and embeddings. Causality is not exploited.
    MLR scores are counted level by level, those in a window over twice the window (clipped at the
    ends), weights with values always over all pairs, and the read-out of a :class:`Regressor` at
    every token.

    ``"matmul"`` counts 2 for each multiply-add of the matrix products that the model does with
    dense attention, and nothing else: what ``torch.utils.flop_counter.FlopCounterMode`` sees where
    blocks and windows are masks over all pairs. That is so on a CPU up to 96 tokens with PyTorch's
    plain attention (``sdpa_kernel(SDPBackend.MATH)``); the counter is blind to the fused kernels of
    a CPU, and faster backends do less.

    A batch costs as much for each of its sequences, and each channel of an
    :class:`EncoderForecaster` is one. Its context is taken as complete, without missing values.

    Parameters
    ----------
    model : Module
        A model, an encoder, or any part of one that is applied to every token. Of a module of
        another kind, such as the backbone of an :class:`EncoderForecaster`, its method
        ``cost(length, convention)`` is asked for a :class:`mlrforecast.nn.Cost`. It may lie on
        the ``"meta"`` device.
    length : int, optional
        Tokens of the sequence (a :class:`Regressor` has two for each point); of an
        :class:`EncoderForecaster` the steps of its context. Default: those that the model is
        configured for, if it is one.
    convention : {"paper", "matmul"}
        How to count.

    Returns
    -------
    FlopCount

    Raises
    ------
    ValueError
        If ``length`` is missing or one that the model cannot read.
    TypeError
        If ``model`` is no module, or contains one that does not say what it costs.

    Examples
    --------
    With half of its columns on two levels of finer blocks, MLR attention saves nearly a third of
    the products of queries with keys:

    >>> from mlrforecast.nn import Encoder
    >>> sizes = {"num_layers": 2, "hidden_width": 64}
    >>> count_flops(Encoder(16, 2, attention="standard", **sizes), 96).scores
    294912
    >>> count_flops(Encoder(16, 2, attention="mlr", **sizes), 96).scores
    202752
    """
    choice("convention", convention, get_args(Convention))
    tokens = _tokens(model, length)
    body, head = _parts(model, tokens, convention)
    cost = body + head
    sparse = sum(part.scores for part in _parts(model, tokens, "paper"))
    each = 1 if convention == "paper" else 2
    return FlopCount(
        convention=convention,
        tokens=tokens,
        linear=each * cost.linear,
        structured=each * cost.structured,
        scores=each * cost.scores,
        values=each * cost.values,
        layer_norm=_NORM_FLOPS * cost.norm_elements if convention == "paper" else 0,
        head=each * head.linear,
        from_data=each * cost.from_data,
        sparse_scores=each * sparse,
    )


def count_parameters(model: nn.Module) -> ParameterCount:
    """Count the parameters of a model.

    Parameters
    ----------
    model : Module
        Any module; it may lie on the ``"meta"`` device.

    Returns
    -------
    ParameterCount

    Raises
    ------
    TypeError
        If ``model`` is no module.

    Examples
    --------
    >>> from mlrforecast.models import CausalLMConfig
    >>> config = CausalLMConfig(vocabulary_size=96, context_length=256, ranks=(32, 16, 16))
    >>> counted = count_parameters(CausalLM(config))
    >>> counted.total, counted.non_embedding
    (4837376, 4722688)
    """
    _check_module(model)
    makes_tokens = (nn.Embedding, LearnedPositions, InputLinear)
    inputs = [module for module in model.modules() if isinstance(module, makes_tokens)]
    layers = [module for module in model.modules() if isinstance(module, StructuredAttention)]
    return ParameterCount(
        total=_size([model]),
        embedding=_size(inputs),
        head=_size([*inputs, *_head(model)]) - _size(inputs),
        attention=_size(layers),
    )


def _size(modules: Iterable[nn.Module]) -> int:
    """Count the parameters of modules, shared ones once."""
    distinct = {id(p): p.numel() for module in modules for p in module.parameters()}
    return sum(distinct.values())


def _head(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return what makes the output of a model of this library from its encoded tokens."""
    match model:
        case CausalLM():
            return (model.head,)
        case EncoderForecaster():
            effects = (model.known_effect, model.calendar_effect, model.linear)
            return (model.head, *(effect for effect in effects if effect is not None))
        case Regressor():
            return (model.read_out,)
    return ()


def _check_module(model: nn.Module) -> None:
    """Check that there is a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got a {type(model).__name__}.")


def _tokens(model: nn.Module, length: int | None) -> int:
    """Return the number of tokens inside a model, after a check of the length."""
    _check_module(model)
    length = None if length is None else count("length", length)
    match model:
        case EncoderForecaster():
            configured = model.config.context_length
            if length not in (None, configured):
                raise ValueError(
                    f"`length` must be the context of the model, {configured} steps, got {length}."
                )
            return model.embedding.num_tokens
        case CausalLM():
            configured = model.config.context_length
        case Regressor():
            configured = 2 * model.max_points
        case _:
            if length is None:
                raise ValueError(
                    f"`length` must be given: {type(model).__name__} has none of its own."
                )
            return length
    length = configured if length is None else length
    if model.positions is not None and length > configured:
        raise ValueError(
            f"`length` must be at most {configured}, where the learned positions of the model end, "
            f"got {length}."
        )
    if isinstance(model, Regressor) and length % 2:
        raise ValueError(f"`length` must be two tokens for each point, got {length}.")
    return length


def _parts(model: nn.Module, tokens: int, convention: Convention) -> tuple[Cost, Cost]:
    """Return what a model costs up to its encoded tokens, and from there."""
    match model:
        case CausalLM():
            body = _cost(model.encoder, tokens, convention)
            return body, _cost(model.head, tokens, convention)
        case Regressor():
            body = _cost(model.read_in, tokens, convention)
            body += _cost(model.encoder, tokens, convention)
            read = tokens if convention == "paper" else tokens // 2
            return body, _cost(model.read_out, read, convention)
        case EncoderForecaster():
            body = _of_embedding(model, tokens, convention)
            body += _cost(model.backbone, tokens, convention)
            # Its maps read all tokens at once, or their mean.
            head = _of_children(model.head, 1, convention)
            steps = model.config.prediction_length
            for effect in (model.known_effect, model.calendar_effect, model.linear):
                if effect is not None:
                    head += _cost(effect, steps, convention)
            return body, head
    return _cost(model, tokens, convention), Cost()


def _of_embedding(model: EncoderForecaster, tokens: int, convention: Convention) -> Cost:
    """Return what the tokens of an encoder forecaster cost, without missing values."""
    embedding = model.embedding
    cost = _cost(embedding.values, tokens, convention)
    for layer, times, columns in (
        (embedding.covariates, tokens, (model.past_columns, model.known_columns)),
        (embedding.static, 1, (model.static_columns,)),
    ):
        if layer is None:
            continue
        products = times * layer.weight.numel()
        # Vectors of categories are no data: they have a gradient.
        learned = any(part is not None and part.is_learned for part in columns)
        cost += Cost(linear=products, from_data=0 if learned else products)
    return cost


def _cost(module: nn.Module, tokens: int, convention: Convention) -> Cost:
    """Return what a module costs that is applied to every token."""
    own = getattr(module, "cost", None)
    if callable(own):
        cost = own(tokens, convention)
        if not isinstance(cost, Cost):
            raise TypeError(
                f"`cost` of {type(module).__name__} must return a mlrforecast.nn.Cost, got a "
                f"{type(cost).__name__}."
            )
        return cost
    match module:
        case nn.Linear():
            products = tokens * module.weight.numel()
            from_data = products if isinstance(module, InputLinear) else 0
            return Cost(linear=products, from_data=from_data)
        case nn.LayerNorm():
            return Cost(norm_elements=tokens * math.prod(module.normalized_shape))
    if isinstance(module, _FREE):
        return Cost()
    if isinstance(module, _CONTAINERS):
        return _of_children(module, tokens, convention)
    raise TypeError(
        f"`model` contains a {type(module).__name__}, whose cost is unknown: give it a method "
        "`cost(length, convention)` that returns a mlrforecast.nn.Cost, or measure the model with "
        "torch.utils.flop_counter.FlopCounterMode."
    )


def _of_children(module: nn.Module, tokens: int, convention: Convention) -> Cost:
    """Return what all children cost, each of them applied to every token."""
    costs = (_cost(child, tokens, convention) for child in module.children())
    return sum(costs, start=Cost())
