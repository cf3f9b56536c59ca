"""Which seed each draw of data has, so that no evaluation ever sees what a model was trained on."""

import hashlib

from mlrforecast.tasks._checks import count

PURPOSES = ("training", "evaluation", "weights")
_PURPOSE_BITS = 2


def draw_seed(seed: int, step: int, purpose: str, *, rank: int = 0) -> int:
    """Return the seed of one draw: what a process of a run draws at a step.

    The seed is a hash of all arguments, but for its two lowest bits, which number the purpose.
    Draws for training and for evaluation hence never have a seed in common, whatever the run, the
    step or the process. They are the lowest because torch's generator on the CPU reads no more
    than the lowest 32 bits of a seed.

    Parameters
    ----------
    seed : int
        Seed of the run, at least 0.
    step : int
        Step of the training, or number of the batch of an evaluation, from 0.
    purpose : {"training", "evaluation", "weights"}
        What the draw is for.
    rank : int, default 0
        Number of the process, where several train one model.

    Returns
    -------
    int
        A seed for ``torch.Generator.manual_seed``, 0 to 2**63 - 1.

    Raises
    ------
    ValueError
        If a number is no integer of at least 0, or the purpose is unknown.

    Examples
    --------
    >>> draw_seed(0, 0, "training") % 4, draw_seed(0, 0, "evaluation") % 4
    (0, 1)
    >>> draw_seed(0, 0, "training") == draw_seed(0, 0, "training", rank=1)
    False
    """
    numbers = {"seed": seed, "step": step, "rank": rank}
    counts = [count(name, value, least=0) for name, value in numbers.items()]
    if purpose not in PURPOSES:
        raise ValueError(f"`purpose` must be one of {', '.join(PURPOSES)}, got {purpose!r}.")
    text = "/".join(map(str, (purpose, *counts)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    hashed = int.from_bytes(digest, "big") >> (1 + _PURPOSE_BITS)
    return hashed << _PURPOSE_BITS | PURPOSES.index(purpose)
