"""How the next token is drawn from logits, and checks of what is asked for."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

import torch
from torch import Tensor, nn

from mlrforecast.models._config import count


class Sampler:
    """Draw tokens from logits of shape (B, vocabulary_size)."""

    def __init__(
        self,
        vocabulary_size: int,
        *,
        temperature: float,
        top_k: int | None,
        generator: torch.Generator | None,
    ) -> None:
        if not (isinstance(temperature, Real | float) and 0 <= temperature < math.inf):
            raise ValueError(
                f"`temperature` must be a finite number of at least 0, got {temperature!r}. "
                "At 0 the likeliest token is taken."
            )
        if top_k is not None and count("top_k", top_k) > vocabulary_size:
            raise ValueError(
                f"`top_k` must be at most the vocabulary of {vocabulary_size} tokens, got {top_k}."
            )
        if generator is not None and not isinstance(generator, torch.Generator):
            raise TypeError(
                f"`generator` must be a torch.Generator, got {generator!r}. For a seed, give "
                "torch.Generator().manual_seed(seed)."
            )
        self.temperature = temperature
        self.top_k = vocabulary_size if top_k is None else top_k
        self.generator = generator
        if generator is None and temperature > 0:
            self.generator = torch.Generator()
            self.generator.seed()

    def __call__(self, logits: Tensor) -> Tensor:
        """Return one token for each row, (B, 1)."""
        if not logits.isfinite().all():
            raise FloatingPointError("The logits are not finite: the model has diverged.")
        if self.temperature == 0:
            return logits.argmax(-1, keepdim=True)
        assert self.generator is not None
        likeliest, tokens = logits.topk(self.top_k)
        precise = torch.promote_types(logits.dtype, torch.float32)
        # Below the largest, so that no temperature makes a logit infinite.
        below = likeliest.to(precise) - likeliest[..., :1].to(precise)
        weights = (below / self.temperature).softmax(-1)
        # On the device of the generator, so that one seed gives one text on any other.
        weights = weights.to(self.generator.device)
        chosen = torch.multinomial(weights, 1, generator=self.generator)
        return tokens.gather(-1, chosen.to(tokens.device))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch dropout off, and put every part back as it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
