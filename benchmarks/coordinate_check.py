r"""Train models of growing width for a few steps, and measure how large their activations are.

Under muP the sizes do not depend on the width, at any step. Run it from the root of the
repository; it takes minutes on one thread::

    python benchmarks/coordinate_check.py benchmarks/results/mup/coordinate_check.csv
    python benchmarks/coordinate_check.py benchmarks/results/mup/coordinate_check_wide.csv \
        --attention standard --widths 256 512 1024 2048

It writes one row for each score, parametrisation, width, seed and step, next to what ran it.
``docs/figure_coordinate_check.py`` draws the first of the two files.
"""

import argparse
import csv
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlrforecast.benchmark import cpu_model
from mlrforecast.models import CausalLM, CausalLMConfig
from mlrforecast.nn import EncoderBlock, StructuredAttention, attentions, initialise_mup
from mlrforecast.training import Parametrization, build_optimizer

HEAD_WIDTH, LENGTH, BATCH, VOCABULARY = 16, 32, 2, 16
LEARNING_RATE = {"mup": 1e-3, "standard": 1.2e-2}
"""Under muP a matrix of width 64 gets 12 times the rate: the standard one, at that width."""

COMPARES_THE_WHOLE_WIDTH = ("bilinear", "bilinear_btt")
"""Scores whose number of columns grows with the width, although that of a head does not."""

QUANTITIES = ("attention_output", "block_output", "logits", "scores")
COLUMNS = (
    "attention",
    "parametrization",
    "options",
    "width",
    "seed",
    "step",
    *QUANTITIES,
    "loss",
    "learning_rate",
    "heads",
    "layers",
    "length",
    "batch",
    "vocabulary",
    "dtype",
    "threads",
    "hardware",
    "torch",
    "python",
    "command",
)


def main() -> None:
    """Measure every score and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="CSV file to write")
    parser.add_argument("--attention", choices=list(attentions), help="only this score")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--steps", type=int, default=8, help="optimiser steps")
    parser.add_argument("--seeds", type=int, default=2, help="runs that differ in weights and data")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    context = {
        "threads": 1,
        "hardware": cpu_model(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": shlex.join(["python", *sys.argv]),
    }
    with arguments.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for case, width, seed in product(cases(), arguments.widths, range(arguments.seeds)):
            attention, parametrization, options = case
            if arguments.attention not in (None, attention):
                continue
            rows = measure(
                attention,
                width,
                parametrization=parametrization,
                options=options,
                steps=arguments.steps,
                seed=seed,
            )
            writer.writerows(row | context for row in rows)
            file.flush()


def cases() -> Iterator[tuple[str, Parametrization, dict[str, Any]]]:
    """Yield what is measured: a score, a parametrisation, options of attention."""
    for attention in attentions:
        yield attention, "mup", mup_options(attention)
        yield attention, "standard", {}
    for attention in COMPARES_THE_WHOLE_WIDTH:
        yield attention, "mup", {}


def mup_options(attention: str) -> dict[str, Any]:
    """Return the options that muP asks for where the heads keep their width as the model grows."""
    return {"logit_scale": "mup"} if attention in COMPARES_THE_WHOLE_WIDTH else {}


def measure(
    attention: str,
    width: int,
    *,
    parametrization: Parametrization,
    options: Mapping[str, Any],
    steps: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Train one model on one batch; yield the size of its activations before each step."""
    model = build_model(attention, width, options, parametrization, seed)
    rate = LEARNING_RATE[parametrization]
    optimizer = build_optimizer(model, learning_rate=rate, parametrization=parametrization)
    generator = torch.Generator().manual_seed(1000 + seed)
    text = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    for step in range(steps + 1):
        loss, sizes = activations(model, text)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield {
            "attention": attention,
            "parametrization": parametrization,
            "options": ";".join(f"{name}={value}" for name, value in options.items()),
            "width": width,
            "seed": seed,
            "step": step,
            **{quantity: f"{sizes[quantity]:.6g}" for quantity in QUANTITIES},
            "loss": f"{loss.item():.6g}",
            "learning_rate": rate,
            "heads": width // HEAD_WIDTH,
            "layers": model.config.num_layers,
            "length": LENGTH,
            "batch": BATCH,
            "vocabulary": VOCABULARY,
            "dtype": "float32",
        }


def build_model(
    attention: str,
    width: int,
    options: Mapping[str, Any],
    parametrization: Parametrization,
    seed: int,
) -> CausalLM:
    """Return a two-layer model with heads of one width; queries and keys are not normalised.

    Normalising them would hide how large they are.
    """
    config = CausalLMConfig(
        vocabulary_size=VOCABULARY,
        context_length=LENGTH,
        width=width,
        num_heads=width // HEAD_WIDTH,
        num_layers=2,
        attention=attention,
        attention_options=dict(options),
        qk_norm=False,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = CausalLM(config)
    if parametrization == "mup":
        initialise_mup(model, generator=torch.Generator().manual_seed(seed))
    return model


def activations(model: CausalLM, text: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the loss, and the mean absolute activation of each kind, both layers together.

    ``scores`` is how far a query's scores lie apart: the standard deviation of the logarithms of
    its attention weights.
    """
    found: dict[str, list[Tensor]] = {quantity: [] for quantity in QUANTITIES}

    def keep(quantity: str) -> Any:
        return lambda module, args, out: found[quantity].append(out.detach().abs().mean())

    def keep_scores(module: StructuredAttention, args: tuple[Tensor, ...], out: Tensor) -> None:
        found["scores"].append(score_spread(module, args[0].detach()))

    hooks = [model.head.register_forward_hook(keep("logits"))]
    for module in model.modules():
        if isinstance(module, EncoderBlock):
            hooks.append(module.register_forward_hook(keep("block_output")))
        elif isinstance(module, StructuredAttention):
            hooks.append(module.register_forward_hook(keep("attention_output")))
            hooks.append(module.register_forward_hook(keep_scores))
    loss = model.loss(text[:, :-1], text[:, 1:])
    for hook in hooks:
        hook.remove()
    return loss, {name: torch.stack(sizes).mean().item() for name, sizes in found.items()}


@torch.no_grad()
def score_spread(layer: StructuredAttention, x: Tensor) -> Tensor:
    """Return the standard deviation of the log weights of a query, averaged over queries."""
    score, length = layer.score, x.shape[1]
    # One value a step, and only it: the output of attention is then its weights.
    steps = torch.eye(length).expand(len(x), score.heads.num_kv_heads, -1, -1)
    weights = score.attend(
        score.queries(x), score.keys(x), steps, causal=True, key_mask=None, dropout_p=0.0
    )
    allowed = weights > 0
    logs = torch.where(allowed, weights, 1.0).log()
    count = allowed.sum(-1)
    mean = logs.sum(-1, keepdim=True) / count.unsqueeze(-1)
    variance = ((logs - mean).square() * allowed).sum(-1) / count
    return variance.sqrt()[count > 1].mean()


if __name__ == "__main__":
    main()
