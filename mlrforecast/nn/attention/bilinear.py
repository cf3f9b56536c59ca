"""Bilinear scores ``x^T M x'``: a structured matrix in place of the product of two projections."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mlrforecast.nn.attention.mlr import default_ranks
from mlrforecast.nn.attention.score import Heads, Score, attentions, check_count, check_counts
from mlrforecast.nn.cost import Convention, Cost
from mlrforecast.ops import (
    LogitScale,
    bilinear_keys,
    bilinear_mlr_features,
    logit_factor,
    rms_clamp,
    standard_attention,
)
from mlrforecast.ops.matrices import StructuredMatrix, matrices

__all__ = ["BilinearBTTScore", "BilinearMLRScore", "BilinearScore"]


class BilinearScore(Score):
    """A structured matrix for each head between the raw input of a query and that of a key.

    Queries are the input itself, keys ``M x`` with all ``D`` columns, normalised unless told
    otherwise. Of grouped heads each keeps its own matrix; what reads the key's input first is
    shared within a group, and so are the values.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer; there is no ``qk_norm``, see ``key_norm``.
    structure : str
        Name of a structured matrix, see ``mlrforecast.ops.matrices``.
    structure_options : mapping of str to object, optional
        Its options, such as ``{"rank": 8}``. Where it needs a rank, the default is the head width;
        ranks of levels are then half of it, a quarter, a quarter.
    logit_scale : {"inverse_sqrt_width", "mup"}
        ``1 / sqrt(D)``, or ``1 / D``.
    key_norm : bool
        Whether a LayerNorm without bias is applied to the keys.
    input_norm : bool
        Whether another is applied to the layer input before anything else, values included.
    clamp : bool
        Whether weights are shrunk to the spread of a well-conditioned start.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="bilinear", structure="monarch")
    >>> layer.score.matrix().dense().shape
    torch.Size([2, 16, 16])
    """

    positional: ClassVar[bool] = False

    def __init__(
        self,
        heads: Heads,
        *,
        structure: str = "low_rank",
        structure_options: Mapping[str, Any] | None = None,
        logit_scale: LogitScale = "inverse_sqrt_width",
        key_norm: bool = True,
        input_norm: bool = False,
        clamp: bool = True,
    ) -> None:
        super().__init__(heads)
        width = heads.width
        self.sections = (width,)
        if not isinstance(structure, str):
            raise TypeError(f"`structure` must be one of {', '.join(matrices)}, got {structure!r}.")
        self.structure: type[StructuredMatrix] = matrices[structure]
        self.structure_options = _checked_options(structure, structure_options, heads.head_width)
        factors = {"inverse_sqrt_width": 1 / math.sqrt(width), "mup": 1 / width}
        if logit_scale not in tuple(factors):
            raise ValueError(
                f"`logit_scale` must be one of {', '.join(factors)}; got {logit_scale!r}."
            )
        self.factor = factors[logit_scale]
        self.clamp = clamp
        self.specs = self.structure.parameter_specs(width, width, **self.structure_options)
        # Heads whose every factor is shared would be one head.
        shares = not all(spec.reads_input for spec in self.specs.values())
        self.weights = nn.ParameterDict()
        for name, spec in self.specs.items():
            copies = heads.num_kv_heads if shares and spec.reads_input else heads.num_heads
            draw = torch.randn(copies, *spec.shape) / math.sqrt(spec.fan_in)
            self.weights[name] = nn.Parameter(draw)
        self.key_norm = nn.LayerNorm(width, bias=False) if key_norm else None
        self.input_norm = nn.LayerNorm(width, bias=False) if input_norm else None

    def prepare(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Normalise the layer input, if that is asked for."""
        if self.input_norm is None:
            return x
        normalised: Tensor = self.input_norm(x)
        return normalised

    def matrix(self) -> StructuredMatrix:
        """Return the matrix of every head, its weights clamped."""
        return self.structure.from_parameters(
            {name: self._weight(name) for name in self.specs}, **self.structure_options
        )

    def _weight(self, name: str) -> Tensor:
        """Return one weight for every query head."""
        spec, weight = self.specs[name], self.weights[name]
        if self.clamp:
            # Heads that read one input are one map, whose outputs lie side by side.
            fan_out = spec.fan_out * (len(weight) if spec.reads_input else 1)
            weight = rms_clamp(weight, fan_in=spec.fan_in, fan_out=fan_out)
        repeated: Tensor = weight.repeat_interleave(self.heads.num_heads // len(weight), 0)
        return repeated

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T D"]:
        """Return the input itself, for every head."""
        return x.unsqueeze(1).expand(-1, self.heads.num_heads, -1, -1)

    def keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B H S D"]:
        """Apply each head's matrix, and normalise."""
        norm = None if self.key_norm is None else self.key_norm.weight
        return bilinear_keys(x, self.matrix(), norm)

    def attend(
        self,
        q: Float[Tensor, "B H T D"],
        k: Float[Tensor, "B H S D"],
        v: Float[Tensor, "B G S V"],
        *,
        causal: bool,
        key_mask: Bool[Tensor, "B S"] | None,
        dropout_p: float,
    ) -> Float[Tensor, "B H T V"]:
        """Attend to every step."""
        v = v.repeat_interleave(self.heads.num_heads // v.shape[1], 1)
        return standard_attention(
            q, k, v, causal=causal, key_mask=key_mask, scale=self.factor, dropout_p=dropout_p
        )

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count each head's matrix with each of ``length`` steps, norms, and products of all pairs.

        They are the same for each ``convention``.
        """
        del convention
        # One number stands for all: a matrix knows its cost by the shapes of its tensors.
        blank = {name: torch.zeros(()).expand(spec.shape) for name, spec in self.specs.items()}
        matrix = self.structure.from_parameters(blank, **self.structure_options)
        columns = 0 if self.key_norm is None else self.heads.num_heads * self.heads.width
        columns += 0 if self.input_norm is None else self.heads.width
        structured = length * self.heads.num_heads * matrix.flops()
        maps = Cost(structured=structured, norm_elements=length * columns)
        return maps + self.cost_of_all_pairs(length)


class BilinearBTTScore(BilinearScore):
    """A bilinear score whose matrix is a block tensor train.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer.
    tensor_rank : int
        Rank ``s`` of the tensor train; the matrix has full rank even at 1.
    logit_scale, key_norm, input_norm, clamp
        As in :class:`BilinearScore`.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="bilinear_btt")
    >>> layer.score.matrix().rank(), layer.score.matrix().num_parameters
    (16, 160)
    """

    def __init__(
        self,
        heads: Heads,
        *,
        tensor_rank: int = 1,
        logit_scale: LogitScale = "inverse_sqrt_width",
        key_norm: bool = True,
        input_norm: bool = False,
        clamp: bool = True,
    ) -> None:
        super().__init__(
            heads,
            structure="btt",
            structure_options={"rank": check_count(tensor_rank, "tensor_rank")},
            logit_scale=logit_scale,
            key_norm=key_norm,
            input_norm=input_norm,
            clamp=clamp,
        )


class BilinearMLRScore(Score):
    """A multi-level low-rank matrix over the columns of the input: blocks of features, not steps.

    Parameters
    ----------
    heads : Heads
        Sizes and switches of the layer; with ``qk_norm`` each level of queries and keys has its
        own LayerNorm without bias.
    ranks : sequence of int, optional
        Rank of each level's blocks, coarse to fine. Default: half of the head width, a quarter, a
        quarter.
    num_blocks : sequence of int, optional
        Blocks of features of each level; each divides the model width. Default: 1, 2, 4, ...
    logit_scale : {"inverse_sqrt_width", "mup"}
        Factor of a level of ``r`` columns in each of ``p`` blocks: ``1 / sqrt(r p)``, or
        ``8 / (r p)``.
    divide_by_num_levels : bool
        Whether all scores are divided by the number of levels.
    clamp : bool
        Whether weights are shrunk to the spread of a well-conditioned start.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, attention="bilinear_mlr", ranks=(4, 2))
    >>> layer.score.sections
    (4, 4)
    """

    positional: ClassVar[bool] = False
    takes_qk_norm: ClassVar[bool] = True

    def __init__(
        self,
        heads: Heads,
        *,
        ranks: Sequence[int] | None = None,
        num_blocks: Sequence[int] | None = None,
        logit_scale: LogitScale = "inverse_sqrt_width",
        divide_by_num_levels: bool = False,
        clamp: bool = True,
    ) -> None:
        super().__init__(heads)
        ranks = default_ranks(heads.head_width) if ranks is None else ranks
        self.ranks = check_counts(ranks, "ranks")
        if not self.ranks:
            raise ValueError("`ranks` must hold at least one rank, got none.")
        counts = [2**lvl for lvl in range(len(self.ranks))] if num_blocks is None else num_blocks
        self.num_blocks = _check_blocks(counts, len(self.ranks), heads.width)
        self.sections = tuple(r * p for r, p in zip(self.ranks, self.num_blocks, strict=True))
        self.factors = _level_factors(self.sections, logit_scale, divide_by_num_levels)
        self.clamp = clamp
        self.query_weights = self._weights(heads.num_heads)
        self.key_weights = self._weights(heads.num_kv_heads)
        self.query_norms = self._norms() if heads.qk_norm else None
        self.key_norms = self._norms() if heads.qk_norm else None

    def _weights(self, num_heads: int) -> nn.ParameterList:
        """Draw the weights of each level, (blocks, columns of a block, heads * rank)."""
        levels = zip(self.ranks, self.num_blocks, strict=True)
        shapes = [(p, self.heads.width // p, num_heads * rank) for rank, p in levels]
        return nn.ParameterList(nn.Parameter(torch.randn(s) / math.sqrt(s[1])) for s in shapes)

    def _norms(self) -> nn.ModuleList:
        """Return a LayerNorm for each level."""
        return nn.ModuleList(nn.LayerNorm(columns, bias=False) for columns in self.sections)

    def queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T R"]:
        """Return every level's columns side by side, with the factor of the level."""
        levels = self._features(x, self.query_weights, self.query_norms, self.heads.num_heads)
        return torch.cat([q * s for q, s in zip(levels, self.factors, strict=True)], -1)

    def keys(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B G S R"]:
        """Return every level's columns side by side."""
        levels = self._features(x, self.key_weights, self.key_norms, self.heads.num_kv_heads)
        return torch.cat(levels, -1)

    def _features(
        self, x: Tensor, weights: nn.ParameterList, norms: nn.ModuleList | None, num_heads: int
    ) -> tuple[Tensor, ...]:
        """Apply the clamped weights and the norms of every level."""
        clamped = [
            rms_clamp(w, fan_in=w.shape[1], fan_out=w.shape[2]) if self.clamp else w
            for w in weights
        ]
        scales = None
        if norms is not None:
            scales = [norm.weight for norm in norms if isinstance(norm, nn.LayerNorm)]
        return bilinear_mlr_features(x, clamped, num_heads=num_heads, norms=scales)

    def attend(
        self,
        q: Float[Tensor, "B H T R"],
        k: Float[Tensor, "B G S R"],
        v: Float[Tensor, "B G S V"],
        *,
        causal: bool,
        key_mask: Bool[Tensor, "B S"] | None,
        dropout_p: float,
    ) -> Float[Tensor, "B H T V"]:
        """Attend to every step."""
        return standard_attention(
            q, k, v, causal=causal, key_mask=key_mask, scale=1.0, dropout_p=dropout_p
        )

    def cost(self, length: int, convention: Convention) -> Cost:
        """Count each level's maps and norms of ``length`` steps, and the products of all pairs.

        They are the same for each ``convention``.
        """
        del convention
        heads = self.heads
        weights = sum(w.numel() for w in (*self.query_weights, *self.key_weights))
        columns = (heads.num_heads + heads.num_kv_heads) * sum(self.sections)
        normed = 0 if self.query_norms is None else length * columns
        maps = Cost(structured=length * weights, norm_elements=normed)
        return maps + self.cost_of_all_pairs(length)


def _checked_options(
    structure: str, options: Mapping[str, Any] | None, head_width: int
) -> dict[str, Any]:
    """Check that a structure has the options, and give it the ranks of a head if it needs some."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(
            f"`structure_options` must map names to values, got a {type(options).__name__}."
        )
    parameters = inspect.signature(matrices[structure].parameter_specs).parameters
    known = [name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    given = dict(options or {})
    if unknown := sorted(set(map(str, given)) - set(known)):
        raise ValueError(
            f"`structure_options`: the structure {structure!r} has no option `{unknown[0]}`. Its "
            f"options are {', '.join(known) or 'none'}."
        )
    defaults = {"rank": head_width, "ranks": default_ranks(head_width)}
    for name, value in defaults.items():
        if name in known and parameters[name].default is inspect.Parameter.empty:
            given.setdefault(name, value)
    return given


def _check_blocks(num_blocks: Any, num_levels: int, width: int) -> tuple[int, ...]:
    """Check that there is one number of blocks a level, each a divisor of the width."""
    if not isinstance(num_blocks, Sequence) or isinstance(num_blocks, str):
        raise TypeError(f"`num_blocks` must be a sequence of integers, got {num_blocks!r}.")
    if len(num_blocks) != num_levels:
        raise ValueError(
            f"`num_blocks` must have one entry for each of the {num_levels} ranks, "
            f"got {tuple(num_blocks)}."
        )
    for lvl, count in enumerate(num_blocks):
        if width % check_count(count, f"num_blocks[{lvl}]"):
            raise ValueError(
                f"`num_blocks` must divide the model width {width}, got {tuple(num_blocks)}."
            )
    return tuple(num_blocks)


def _level_factors(
    columns: Sequence[int], logit_scale: LogitScale, divide_by_num_levels: bool
) -> tuple[float, ...]:
    """Return the factor of each level's dot product."""
    divisor = len(columns) if divide_by_num_levels else 1
    return tuple(logit_factor(width, logit_scale) / divisor for width in columns)


attentions.register("bilinear", BilinearScore)
attentions.register("bilinear_btt", BilinearBTTScore)
attentions.register("bilinear_mlr", BilinearMLRScore)
