"""Folders of pretrained models: the files and names that Chronos and transformers read."""

import json
import re
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from mlrforecast._core.atomic import DRAFT, locked_folder, remove_drafts, write_whole
from mlrforecast._core.errors import ModelFileError
from mlrforecast.pretraining._network import MAX_DISTANCE, NUM_BUCKETS
from mlrforecast.pretraining.config import END, NUM_SPECIAL_TOKENS, PAD, PretrainConfig
from mlrforecast.pretraining.model import QuantileModel, TokenModel, build_model
from mlrforecast.training import isolated_seed

CONFIG, WEIGHTS = "config.json", "model.safetensors"
OWN = "mlrforecast"
"""Field of the configuration that holds ours."""

_NAMES = (
    (r"\.blocks\.", ".block."),
    (r"\.attention\.", ".layer.0.SelfAttention."),
    (r"\.attention_norm\.", ".layer.0.layer_norm."),
    (r"\.cross\.", ".layer.1.EncDecAttention."),
    (r"\.cross_norm\.", ".layer.1.layer_norm."),
    (r"^(encoder.*)\.feed\.", r"\1.layer.1.DenseReluDense."),
    (r"^(encoder.*)\.feed_norm\.", r"\1.layer.1.layer_norm."),
    (r"^(decoder.*)\.feed\.", r"\1.layer.2.DenseReluDense."),
    (r"^(decoder.*)\.feed_norm\.", r"\1.layer.2.layer_norm."),
    (r"^(encoder|decoder)\.norm\.", r"\1.final_layer_norm."),
    (
        r"^(encoder|decoder)\.positions\.",
        r"\1.block.0.layer.0.SelfAttention.relative_attention_bias.",
    ),
    (r"^patches\.", "input_patch_embedding."),
    (r"^steps\.", "output_patch_embedding."),
)
"""Our names of parameters, and those of transformers and Chronos."""


def save(network: TokenModel | QuantileModel, folder: Path) -> None:
    """Write a model to a folder, replacing an earlier one there."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        theirs(name): value.detach().cpu().contiguous()
        for name, value in network.state_dict().items()
    }
    text = json.dumps(describe(network.config), indent=2) + "\n"
    draft = folder / f"{DRAFT}{WEIGHTS}"
    with locked_folder(folder):
        for name in (CONFIG, WEIGHTS, draft.name):
            remove_drafts(folder / name)
        write_whole(draft, safetensors.torch.save(tensors, {"format": "pt"}))
        # Until the new one is there, no configuration reads the weights of another model.
        (folder / CONFIG).unlink(missing_ok=True)
        draft.replace(folder / WEIGHTS)
        write_whole(folder / CONFIG, text.encode())


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than a model, or what is left of writing one."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{str(folder)!r} is no folder to write a pretrained model to.")
    names = {file.name for file in folder.iterdir()}
    others = {name for name in names if name != WEIGHTS and not name.startswith(DRAFT)}
    if others and not _is_ours(folder):
        raise FileExistsError(
            f"{str(folder)!r} holds something else than a pretrained model: {min(others)!r}. Name "
            "a new folder."
        )


def load(folder: Path) -> TokenModel | QuantileModel:
    """Read a folder that :func:`save` wrote."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to load a model from.")
    try:
        document = json.loads((folder / CONFIG).read_bytes())
        config = PretrainConfig.from_dict(document[OWN])
        found = safetensors.torch.load((folder / WEIGHTS).read_bytes())
        with isolated_seed(0):
            network = build_model(config)
        own = {theirs(name): name for name in network.state_dict()}
        network.load_state_dict({own.get(name, name): value for name, value in found.items()})
    except (
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        safetensors.SafetensorError,
    ) as e:
        reason = " ".join(str(e).split())[:200]
        raise ModelFileError(
            f"{str(folder)!r} holds no pretrained model that can be read: {reason}"
        ) from e
    return network


def theirs(name: str) -> str:
    """Return the name of a parameter in transformers and Chronos."""
    for ours, other in _NAMES:
        name = re.sub(ours, other, name)
    return name


def describe(config: PretrainConfig) -> dict[str, Any]:
    """Return the configuration as transformers and Chronos read it, and as it is read here."""
    tokens = config.head == "tokens"
    document: dict[str, Any] = {
        "architectures": [
            "T5ForConditionalGeneration" if tokens else "ChronosBoltModelForForecasting"
        ],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "d_model": config.width,
        "d_kv": config.head_width,
        "d_ff": config.hidden_width,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "num_heads": config.num_heads,
        "dropout_rate": config.dropout,
        "feed_forward_proj": "relu",
        "layer_norm_epsilon": 1e-6,
        "initializer_factor": config.initial_factor,
        "relative_attention_num_buckets": NUM_BUCKETS,
        "relative_attention_max_distance": MAX_DISTANCE,
        "n_positions": max(config.encoder_length, config.decoder_length),
        "vocab_size": config.num_tokens if tokens else 2,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "decoder_start_token_id": PAD,
        "use_cache": True,
        "torch_dtype": "float32",
        "chronos_pipeline_class": "ChronosPipeline" if tokens else "ChronosBoltPipeline",
        "chronos_config": _of_tokens(config) if tokens else _of_patches(config),
    }
    stacks = {"encoder": config.encoder_levels, "decoder": config.decoder_levels}
    levels = {name: found for name, found in stacks.items() if found is not None}
    if levels:
        document |= {
            "chronos_pipeline_class": f"MLR{document['chronos_pipeline_class']}",
            "attn_implementation": "mlr",
            "ranks": {name: list(found[0]) for name, found in levels.items()},
            "block_sizes": {name: list(found[1]) for name, found in levels.items()},
            "level_scale": config.to_dict()["level_scale"],
            "divide_by_shared_levels": config.divide_by_shared_levels,
        }
    return document | {OWN: config.to_dict()}


def _of_tokens(config: PretrainConfig) -> dict[str, Any]:
    """Return what Chronos-T5 knows of tokens."""
    return {
        "tokenizer_class": "MeanScaleUniformBins",
        "tokenizer_kwargs": {"low_limit": -config.limit, "high_limit": config.limit},
        "n_tokens": config.num_tokens,
        "n_special_tokens": NUM_SPECIAL_TOKENS,
        "pad_token_id": PAD,
        "eos_token_id": END,
        "use_eos_token": True,
        "model_type": "seq2seq",
        "context_length": config.context_length,
        "prediction_length": config.prediction_length,
        "num_samples": 20,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }


def _of_patches(config: PretrainConfig) -> dict[str, Any]:
    """Return what Chronos-Bolt knows of patches."""
    return {
        "context_length": config.context_length,
        "prediction_length": config.prediction_length,
        "input_patch_size": config.patch_length,
        "input_patch_stride": config.patch_length,
        "quantiles": list(config.quantile_levels),
        "use_reg_token": True,
    }


def _is_ours(folder: Path) -> bool:
    """Tell whether a folder holds a model that was written here."""
    try:
        return OWN in json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, TypeError):
        return False
