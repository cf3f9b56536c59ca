"""Compute the small golden vectors of whole models beside this file, with the plain loops.

They pin the models down where the vectors of the published code are not at hand. Run it from the
root of the repository, and only when the definition itself changes::

    python -m tests.models.golden.make
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlrforecast.models import CausalLM, CausalLMConfig, Regressor, RegressorConfig
from tests.models import oracle

FILE = Path(__file__).with_name("models_small.json")

LM = CausalLMConfig(
    vocabulary_size=5,
    context_length=8,
    width=8,
    num_heads=2,
    num_layers=2,
    ranks=(2, 1, 1),
    attention_options={"level_scale": "inverse_rank", "divide_by_shared_levels": True},
)
LM_ATTEND = oracle.mlr_attend(2, ranks=(2, 1, 1), block_sizes=(8, 4, 2))
ICL = RegressorConfig(
    num_dims=3,
    num_points=5,
    width=8,
    num_heads=2,
    num_layers=1,
    attention="bilinear_btt",
    attention_options={"tensor_rank": 2},
)
ICL_ATTEND = oracle.btt_attend(2, rank=2)


def grid(*shape: int, shift: int = 0) -> Tensor:
    """Return numbers from -9/8 to 9/8 that look drawn, exact in every precision."""
    steps = torch.arange(torch.Size(shape).numel()) + 7 * shift
    return (((steps * steps * 5 + steps * 13) % 37 - 18) / 16).double().reshape(shape)


def filled(model: nn.Module) -> nn.Module:
    """Return the model in float64 with weights that need no random numbers."""
    model = model.double()
    with torch.no_grad():
        for at, parameter in enumerate(model.parameters()):
            parameter.copy_(grid(*parameter.shape, shift=at) + (parameter.ndim == 1))
    return model


def language_case() -> tuple[CausalLM, Tensor, Tensor]:
    """Return the language model, tokens and targets of an odd length."""
    with torch.random.fork_rng():
        model = filled(CausalLM(LM))
    text = torch.tensor([[0, 3, 1, 4, 4, 2, 0, 1], [2, 2, 4, 0, 1, 3, 3, 0]])
    return model, text[:, :7], text[:, 1:]


def regression_case() -> tuple[Regressor, Tensor, Tensor]:
    """Return the regressor, points and values."""
    with torch.random.fork_rng():
        model = filled(Regressor(ICL))
    return model, grid(2, 5, 3, shift=3), grid(2, 5, shift=5)


def checksums(loss: Tensor, weights: dict[str, Tensor]) -> dict[str, float]:
    """Return a weighted sum of the gradient of each weight."""
    gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    return {
        name: (gradient * grid(*gradient.shape, shift=11)).sum().item()
        for name, gradient in zip(weights, gradients, strict=True)
    }


def leaves(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}


def case(outputs: Tensor, loss: Tensor, weights: dict[str, Tensor]) -> dict[str, Any]:
    """Return what is stored of a model."""
    return {
        "outputs": outputs.tolist(),
        "loss": loss.item(),
        "gradients": checksums(loss, weights),
    }


def main() -> None:
    """Write the file."""
    model, tokens, targets = language_case()
    weights = leaves(model)
    logits = oracle.language_model(tokens, weights, LM_ATTEND)
    cases = {"lm": case(logits, oracle.cross_entropy(logits, targets), weights)}
    regressor, xs, ys = regression_case()
    weights = leaves(regressor)
    predictions = oracle.regression(xs, ys, weights, ICL_ATTEND)
    cases["icl"] = case(predictions, ((predictions - ys) ** 2).sum() / ys.numel(), weights)
    FILE.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
