"""The loss of a language model over fixed windows, and the blocks that keep documents apart."""

import torch
from torch import Tensor

from mlrforecast.models import CausalLM
from mlrforecast.nn import EncoderBlock, MLRScore
from mlrforecast.tasks.language_model.batches import document_levels, validation_batches


def document_blocks(model: CausalLM, starts: Tensor, documents: Tensor, length: int) -> Tensor:
    """Return blocks of the model's own sizes, with documents in place of the coarsest ones."""
    block = model.encoder.blocks[0]
    assert isinstance(block, EncoderBlock)
    score = block.attention.score
    if not isinstance(score, MLRScore):
        raise ValueError(
            "`documents` needs a model of attention='mlr', whose coarsest level they are, got "
            f"{model.config.attention!r}."
        )
    sizes = [length if size is None else size for size in score.sizes(length)[1:]]
    return document_levels(starts, documents, length, sizes)


def mean_loss(
    model: CausalLM,
    tokens: Tensor,
    length: int,
    batch_size: int,
    *,
    max_tokens: int | None,
    documents: Tensor | None,
    half: bool = False,
) -> tuple[float, int]:
    """Return the mean cross-entropy of fixed windows, in nats a token, and their tokens.

    It is computed without gradients, where the model is; ``half`` under bfloat16 autocast.
    """
    device = next(model.parameters()).device
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    for windows in validation_batches(tokens, length, batch_size, max_tokens=max_tokens):
        blocks = None
        if documents is not None:
            blocks = document_blocks(model, windows.starts, documents, length).to(device)
        read, targets = windows.tokens.to(device), windows.targets.to(device)
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            total += model.loss(read, targets, block_ids=blocks) * targets.numel()
        count += targets.numel()
    return float(total) / count, count
