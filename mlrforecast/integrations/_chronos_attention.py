"""Pipelines of Chronos whose models have multi-level attention."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor

from mlrforecast._core.optional import import_optional
from mlrforecast.integrations import huggingface
from mlrforecast.integrations._levels import Levels, head_width, with_levels
from mlrforecast.nn.attention.mlr import default_ranks
from mlrforecast.ops import (
    biased_mlr_attention,
    check_levels,
    halving_block_sizes,
    newest_whole_offset,
)

BOLT, TWO, T5 = "MLRChronosBoltPipeline", "MLRChronos2Pipeline", "MLRChronosPipeline"
_MODULE = __name__


class _Loading:
    """Load a model of transformers with multi-level attention, whatever the class of pipeline."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as Chronos does; the levels are those of the configuration."""
        _check_attention(kwargs)
        options = kwargs | {"attn_implementation": huggingface.NAME}
        return super().from_pretrained(*args, **options)  # type: ignore[misc]


class _TimeAttention:
    """Attention over time of Chronos-2, which knows no attention by its name."""

    config: Any
    dropout: float
    training: bool

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
    ) -> tuple[Tensor, None]:
        """Attend over the patches of a series; the result is of shape (B, H, T, V)."""
        length = key.shape[2]
        levels = Levels.of(self, query.shape[-1], length, causal=False)  # type: ignore[arg-type]
        assert levels is not None
        found = biased_mlr_attention(
            levels.arranged(query),
            levels.arranged(key),
            value,
            mask,
            ranks=levels.ranks,
            block_sizes=levels.block_sizes,
            offset=newest_whole_offset(length, levels.block_sizes),
            level_scale=levels.scale(1.0),
            divide_by_shared_levels=levels.divide_by_shared_levels,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return found, None

    _sdpa_attention = _eager_attention = _attend


class _ChronosTwo:
    """A Chronos-2 model that is made with multi-level attention over time."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        for block in self.encoder.block:  # type: ignore[attr-defined]
            # The same parameters under the same names, and another function of them.
            block.layer[0].self_attention.__class__ = _time_attention_class()


class _ChronosTwoLoading:
    """Load a Chronos-2 model with multi-level attention."""

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load from a folder, or from the hub."""
        _check_attention(kwargs)
        return cls(model=_chronos_two_class().from_pretrained(*args, **kwargs))  # type: ignore[call-arg]


def _check_attention(options: dict[str, Any]) -> None:
    """Check that no other attention is asked for than the one that was saved."""
    given = options.get("attn_implementation", huggingface.NAME)
    if given != huggingface.NAME:
        raise ValueError(
            f"`attn_implementation` must be {huggingface.NAME!r} or left out, since the model was "
            f"saved with it; got {given!r}."
        )


def register() -> None:
    """Enter the classes in the registry of Chronos."""
    for name in _BASES:
        _pipeline_class(name)


def convert(pipeline: Any, **levels: Any) -> Any:
    """Return a copy of a pipeline with multi-level attention."""
    chronos = _chronos()
    if isinstance(pipeline, chronos.ChronosPipeline):
        inner = _converted(pipeline.inner_model, T5, _token_lengths(pipeline.model.config), levels)
        model = chronos.ChronosModel(config=pipeline.model.config, model=inner)
        return _pipeline_class(T5)(tokenizer=pipeline.tokenizer, model=model)
    if isinstance(pipeline, chronos.ChronosBoltPipeline):
        model = _converted(pipeline.model, BOLT, _patch_lengths(pipeline.model), levels)
        return _pipeline_class(BOLT)(model=model)
    if isinstance(pipeline, chronos.Chronos2Pipeline):
        return _pipeline_class(TWO)(model=_converted_two(pipeline.model, levels))
    raise TypeError(
        "`pipeline` must be a ChronosPipeline, ChronosBoltPipeline or Chronos2Pipeline, got a "
        f"{type(pipeline).__name__}."
    )


def _converted(model: Any, pipeline: str, lengths: dict[str, int], levels: dict[str, Any]) -> Any:
    """Return a copy of a T5, or of another model of transformers, with multi-level attention."""
    made = huggingface.convert(model, **_with_sizes(model.config, lengths, levels))
    made.config.chronos_pipeline_class = pipeline
    return made


def _converted_two(model: Any, levels: dict[str, Any]) -> Any:
    """Return a copy of a Chronos-2 model with multi-level attention over time."""
    own = model.chronos_config
    patches = -(-own.context_length // own.input_patch_size)
    length = patches + own.use_reg_token + own.max_output_patches
    if any(isinstance(levels[name], Mapping) for name in ("ranks", "block_sizes")):
        raise ValueError("Chronos-2 has one stack: give `ranks` and `block_sizes` as sequences.")
    config = with_levels(model.config, **_with_sizes(model.config, {"encoder": length}, levels))
    config.chronos_pipeline_class = TWO
    made = _chronos_two_class()(config)
    made.load_state_dict(model.state_dict())
    return made.to(device=model.device, dtype=model.dtype).train(model.training)


def _with_sizes(config: Any, lengths: dict[str, int], levels: dict[str, Any]) -> dict[str, Any]:
    """Return levels with the block sizes that halve sequences of ``lengths``, if there are none."""
    if levels["block_sizes"] is not None:
        return levels
    ranks = levels["ranks"]
    sizes = {}
    for stack, length in lengths.items():
        own = ranks.get(stack, ()) if isinstance(ranks, Mapping) else ranks
        own = default_ranks(head_width(config)) if own is None else own
        if own:
            sizes[stack] = halving_block_sizes(length, len(check_levels(1, own)[0]))
    return levels | {"block_sizes": sizes if len(lengths) > 1 else next(iter(sizes.values()), None)}


def _token_lengths(config: Any) -> dict[str, int]:
    """Return the longest sequences of a model of tokens."""
    if config.model_type == "causal":
        return {"decoder": config.context_length + config.prediction_length}
    end = int(config.use_eos_token)
    return {"encoder": config.context_length + end, "decoder": config.prediction_length + end}


def _patch_lengths(model: Any) -> dict[str, int]:
    """Return the longest sequences of a model of patches, whose decoder has one token."""
    own = model.chronos_config
    patches = -(-own.context_length // own.input_patch_stride)
    return {"encoder": patches + own.use_reg_token, "decoder": 1}


_BASES = {
    T5: ("ChronosPipeline", _Loading),
    BOLT: ("ChronosBoltPipeline", _Loading),
    TWO: ("Chronos2Pipeline", _ChronosTwoLoading),
}


@cache
def _pipeline_class(name: str) -> Any:
    """Return a class of pipelines; making it enters it in the registry of Chronos."""
    base, mixin = _BASES[name]
    content = {"__doc__": f"A {base} with multi-level attention.", "__module__": _MODULE}
    return type(name, (mixin, getattr(_chronos(), base)), content)


@cache
def _chronos_two_class() -> Any:
    """Return the class of Chronos-2 models with multi-level attention."""
    base = _chronos("chronos.chronos2").Chronos2Model
    return type("MLRChronos2Model", (_ChronosTwo, base), {"__module__": _MODULE})


@cache
def _time_attention_class() -> Any:
    """Return the class of their attention over time."""
    base = _chronos("chronos.chronos2.layers").MHA
    return type("MLRTimeAttention", (_TimeAttention, base), {"__module__": _MODULE})


def _chronos(module: str = "chronos") -> Any:
    return import_optional(module, extra="chronos", purpose="MLR attention in models of Chronos")


def __getattr__(name: str) -> Any:
    # Copies of models and pipelines are made by the names of their classes.
    if name in _BASES:
        return _pipeline_class(name)
    if name in ("MLRChronos2Model", "MLRTimeAttention"):
        return {"MLRChronos2Model": _chronos_two_class, "MLRTimeAttention": _time_attention_class}[
            name
        ]()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
