"""Multi-level attention inside models of transformers, under the name ``"mlr"``.

Importing this module registers it, where transformers is installed. A model then takes it by
``from_pretrained(..., attn_implementation="mlr")`` and reads its levels from its configuration:

``ranks``
    Columns of each level, coarse to fine. Default: half of the columns of a head, a quarter, a
    quarter. A mapping such as ``{"encoder": (4, 2, 2)}`` is for one stack of an encoder and a
    decoder; the other one keeps standard attention.
``block_sizes``
    Steps of a block of each level, coarse to fine, None for the whole sequence; or a mapping as
    above. Default: each level halves the blocks of the one before, in a sequence of the length
    that the configuration names (``max_position_embeddings``, ``n_positions``).
``level_scale``
    As in :func:`mlrforecast.ops.mlr_attention`. Default: the factor of the model itself.
``divide_by_shared_levels``
    As in :func:`mlrforecast.ops.mlr_attention`.

Cross-attention stays standard: its two sequences share no blocks. Without a causal mask blocks are
counted back from the newest step, so that padding on the left changes nothing; with one they are
counted from the first step, as a sequence that grows needs it. Rotary positions turn column ``i``
with column ``i + R / 2`` of a head, as in Llama: each level has whole such pairs, the coarse ones
those that turn slowly, so ranks must be even. A model that turns neighbouring columns together, or
a part of them, is refused.
"""

import copy
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from mlrforecast._core.errors import MissingDependencyError
from mlrforecast._core.optional import import_optional
from mlrforecast.integrations._levels import (
    Levels,
    Ranks,
    Sizes,
    check_modules,
    levels_of,
    with_levels,
)
from mlrforecast.ops import biased_mlr_attention, mlr_attention, newest_whole_offset

__all__ = ["convert", "register", "with_mlr"]

NAME = "mlr"
OLDEST = (5, 16)
"""The first release whose T5 asks for the attention that its configuration names."""


def register() -> None:
    """Make multi-level attention known to transformers under the name ``"mlr"``.

    Importing this module does it already; to do it again changes nothing.

    Raises
    ------
    MissingDependencyError
        If transformers is not installed, or is too old.

    Examples
    --------
    >>> register()  # doctest: +SKIP
    """
    transformers = _transformers("transformers")
    if not _is_new_enough(transformers.__version__):
        raise MissingDependencyError(
            f"MLR attention in models of transformers needs transformers>={OLDEST[0]}.{OLDEST[1]}, "
            f"and {transformers.__version__} is installed. "
            "Install it with: pip install 'mlrforecast[huggingface]'"
        )
    transformers.AttentionInterface.register(NAME, _attend)
    # Without a mask of its own a model would get none, and lose padding and causality.
    transformers.AttentionMaskInterface.register(NAME, _mask)


def with_mlr(
    config: Any,
    *,
    ranks: Ranks = None,
    block_sizes: Sizes = None,
    level_scale: Any = None,
    divide_by_shared_levels: bool = False,
) -> Any:
    """Return a copy of a configuration of transformers that asks for multi-level attention.

    Parameters
    ----------
    config : PreTrainedConfig
        Configuration of a model.
    ranks : sequence of int, or mapping of str to it, optional
        Columns of each level, coarse to fine, which sum to the width of a head; of ``"encoder"``
        and ``"decoder"`` apart if it is a mapping. Default: half of them, a quarter, a quarter.
    block_sizes : sequence of int or None, or mapping of str to it, optional
        Steps of a block of each level, coarse to fine, None for the whole sequence. Default: each
        level halves the blocks of the one before.
    level_scale : str or sequence of float, optional
        Factor of each level. Default: the factor of the model itself, the same for all.
    divide_by_shared_levels : bool
        Whether a score is divided by the number of levels that count for the pair.

    Returns
    -------
    PreTrainedConfig
        Of the class of ``config``. It is saved with the name of the attention, so that a model
        that is loaded where this library is not imported fails instead of computing another one.

    Raises
    ------
    ValueError
        If the levels are not valid, or do not fit the heads or the rotary positions of the model.
    TypeError
        If it is not the configuration of one model.
    MissingDependencyError
        If transformers is not installed, or is too old.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM, GPT2Config  # doctest: +SKIP
    >>> config = with_mlr(GPT2Config(), ranks=(32, 16, 16))  # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_config(config)  # doctest: +SKIP
    """
    register()
    made = with_levels(
        config,
        ranks=ranks,
        block_sizes=block_sizes,
        level_scale=level_scale,
        divide_by_shared_levels=divide_by_shared_levels,
    )
    made._attn_implementation = NAME
    # What is saved; the private one is not.
    made.attn_implementation = NAME
    return made


def convert(model: Any, **levels: Any) -> Any:
    """Return a copy of a model of transformers with multi-level self-attention.

    Its weights are the same: the columns of each head are shared out among the levels, so that
    near pairs keep their scores and far ones lose those of the finer levels. Fine-tuning adapts the
    model to it.

    Parameters
    ----------
    model : PreTrainedModel
        A model whose attention goes by the name in its configuration, such as T5, GPT-2, Llama or
        ViT.
    **levels
        The keyword arguments of :func:`with_mlr`.

    Returns
    -------
    PreTrainedModel
        The copy.

    Raises
    ------
    TypeError
        If it is no model of transformers, or does not ask for the attention that is named.
    ValueError, MissingDependencyError
        As :func:`with_mlr`.

    Examples
    --------
    >>> from transformers import ViTConfig, ViTModel  # doctest: +SKIP
    >>> model = convert(ViTModel(ViTConfig()), ranks=(32, 16, 16))  # doctest: +SKIP
    """
    config = with_mlr(_config_of(model), **levels)
    check_modules(model, config)
    made = copy.deepcopy(model)
    # The stacks of a model have copies of its configuration.
    for each in {id(m.config): m.config for m in made.modules() if hasattr(m, "config")}.values():
        for name, value in levels_of(config).items():
            setattr(each, name, value)
    made.set_attn_implementation(NAME)
    made.config.attn_implementation = NAME
    return made


def _config_of(model: Any) -> Any:
    """Return the configuration of a model whose attention goes by its name."""
    base = _transformers("transformers").PreTrainedModel
    if not isinstance(model, base):
        raise TypeError(
            f"`model` must be a PreTrainedModel of transformers, got a {type(model).__name__}."
        )
    for part in model.modules():
        # transformers only logs it, and the model would stay what it is.
        if isinstance(part, base) and not part._can_set_attn_implementation():
            raise TypeError(
                "`model` must ask for the attention that its configuration names, which "
                f"{type(part).__name__} does not."
            )
    return model.config


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as a module of transformers asks for it; the result is of shape (B, T, H, V)."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    levels = None
    if not _crosses(module) and (causal or query.shape[2] == key.shape[2]):
        levels = Levels.of(module, query.shape[-1], key.shape[2], causal=causal)
    if levels is None:
        standard = _transformers("transformers.integrations.sdpa_attention")
        found, _ = standard.sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            position_bias=position_bias,
            **options,
        )
        return found, None
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise ValueError(f"MLR attention has no `{name}`, got {options[name]}.")
    query, key = levels.arranged(query), levels.arranged(key)
    given: dict[str, Any] = {
        "ranks": levels.ranks,
        "block_sizes": levels.block_sizes,
        "offset": 0 if causal else newest_whole_offset(key.shape[2], levels.block_sizes),
        "level_scale": levels.scale(query.shape[-1] ** -0.5 if scaling is None else scaling),
        "divide_by_shared_levels": levels.divide_by_shared_levels,
        "dropout_p": dropout,
    }
    if attention_mask is None and position_bias is None:
        found = mlr_attention(query, key, value, causal=causal, **given)
    else:
        bias = _bias(query, key, attention_mask, position_bias, causal=causal)
        found = biased_mlr_attention(query, key, value, bias, **given)
    return found.transpose(1, 2).contiguous(), None


def _bias(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    position_bias: Tensor | None,
    *,
    causal: bool,
) -> Tensor:
    """Return the position bias with the lowest number where a pair is hidden."""
    bias = query.new_zeros(1, 1, 1, 1) if position_bias is None else position_bias
    if mask is None and causal:
        num_queries, num_keys = query.shape[2], key.shape[2]
        pairs = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device)
        mask = pairs.tril(num_keys - num_queries)[None, None]
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        # As in transformers: rows without any key are not NaN.
        return torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return bias + mask


def _mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any,
    **options: Any,
) -> Tensor | None:
    """Return the pairs that are seen, of shape (B, 1, T, S), or None where causality says it."""
    masks = _transformers("transformers.masking_utils")
    bidirectional = mask_function is masks.bidirectional_mask_function
    grows = not isinstance(q_offset, Tensor) and q_offset + q_length == kv_length
    if not bidirectional and (kv_offset or not grows):
        raise ValueError(
            "MLR attention needs a cache that grows with the sequence, since blocks are places in "
            "it; this one holds a fixed number of steps. Generate with "
            "cache_implementation='dynamic'."
        )
    found: Tensor | None = masks.sdpa_mask(
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        **options,
    )
    return found


def _crosses(module: nn.Module) -> bool:
    """Whether a module attends to another sequence."""
    if getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__:
        return True
    # In a decoder of T5 or BART, self-attention alone is causal.
    return bool(getattr(module, "is_decoder", False)) and not getattr(module, "is_causal", True)


def _transformers(module: str) -> Any:
    purpose = "MLR attention in models of transformers"
    return import_optional(module, extra="huggingface", purpose=purpose)


def _is_new_enough(version: str) -> bool:
    """Whether a version has all that is needed here."""
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


if find_spec("transformers") is not None and _is_new_enough(
    _transformers("transformers").__version__
):
    register()
