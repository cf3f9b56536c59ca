"""What a layer remembers between the steps of a generation."""

import copy
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mlrforecast.nn.attention._run import Run
from mlrforecast.nn.attention.score import Score, Step

__all__ = ["LayerCache"]


class LayerCache:
    """Keys and values of the steps seen so far, as far back as any later step reads them.

    Each run of columns is kept as far back as its score reaches: a level of MLR attention keeps the
    keys of its newest block, a window its window. Make one for each layer and each batch of
    sequences, see :meth:`mlrforecast.models.CausalLM.new_cache`.

    Parameters
    ----------
    score : Score
        The score of the layer.

    Attributes
    ----------
    length : int
        Steps seen so far.
    score : Score
        The score it was made for.

    Examples
    --------
    >>> from mlrforecast.nn import StructuredAttention
    >>> layer = StructuredAttention(16, 2, ranks=(4, 4), block_sizes=(None, 4), causal=True)
    >>> cache = LayerCache(layer.score)
    >>> with torch.no_grad():
    ...     out = layer(torch.zeros(1, 10, 16), cache=cache)
    >>> cache.length, [tuple(keys.shape) for keys in cache.keys]
    (10, [(1, 2, 10, 4), (1, 2, 2, 4)])
    >>> cache.num_bytes == 4 * 2 * (10 * 4 + 2 * 4 + 10 * 8)
    True
    """

    def __init__(self, score: Score) -> None:
        self.length = 0
        self.score = score
        self._reaches = score.reaches()
        self._keys: list[Run] = []
        self._values: Run | None = None
        self._key_mask: Run | None = None

    @property
    def keys(self) -> tuple[Tensor, ...]:
        """The keys of each run of columns, (B, G, S_i, R_i), those of the newest ``S_i`` steps."""
        return tuple(run.steps for run in self._keys)

    @property
    def values(self) -> Tensor | None:
        """The values, (B, G, S, V), of the newest ``S`` steps; None before the first step."""
        return None if self._values is None else self._values.steps

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is kept, without the room for coming steps."""
        runs = [*self._keys, self._values, self._key_mask]
        kept = [run.steps for run in runs if run is not None]
        return sum(x.numel() * x.element_size() for x in kept)

    def __deepcopy__(self, memo: dict[int, Any]) -> "LayerCache":
        # Runs are replaced and never changed, so that branches of a text may share them.
        return copy.copy(self)

    def attend(
        self,
        q: Float[Tensor, "B H T R"],
        k: Float[Tensor, "B key_heads T R"],
        v: Float[Tensor, "B G T V"],
        key_mask: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B H T V"]:
        """Take in new steps, attend causally from them, and drop what no later step reads.

        Parameters
        ----------
        q, k, v : Tensor
            Queries, keys and values of the new steps. A bilinear score has keys for each query
            head, more than there are of values.
        key_mask : bool Tensor of shape (B, T), optional
            True where a new step is real and not padding.

        Returns
        -------
        Tensor of shape (B, H, T, V)
        """
        self._check_batch(q)
        mask = self._extended_mask(key_mask, v)
        new = k.split([reach.columns for reach in self._reaches], -1)
        if self._values is None:
            keys, values = [Run.of(x, 2) for x in new], Run.of(v, 2)
        else:
            keys = [run.extended(x) for run, x in zip(self._keys, new, strict=True)]
            values = self._values.extended(v)
        length = self.length + q.shape[2]
        step = Step(
            q=q,
            keys=tuple(run.steps for run in keys),
            v=values.steps,
            key_mask=None if mask is None else mask.steps,
            length=length,
        )
        out = self.score.attend_step(step)
        # Only now: a call that fails leaves the cache as it was.
        self._keep(keys, values, mask, length)
        return out

    def _check_batch(self, q: Tensor) -> None:
        """Check that new steps continue the sequences that are kept."""
        if self.values is not None and self.values.shape[0] != q.shape[0]:
            raise ValueError(
                f"`cache` holds {self.values.shape[0]} sequences, and the new steps are those of "
                f"{q.shape[0]}. Make a new cache for each batch."
            )

    def _extended_mask(self, key_mask: Tensor | None, v: Tensor) -> Run | None:
        """Return the mask with that of the new steps, once any step is padding."""
        if key_mask is None and self._key_mask is None:
            return None
        num_new = v.shape[2]
        if key_mask is None:
            key_mask = torch.ones(len(v), num_new, dtype=torch.bool, device=v.device)
        if key_mask.dtype != torch.bool or tuple(key_mask.shape) != (len(v), num_new):
            raise ValueError(
                f"`key_mask` must be a bool tensor of shape (B, T) = {(len(v), num_new)}, for the "
                f"new steps; got {key_mask.dtype} of shape {tuple(key_mask.shape)}."
            )
        earlier = self._key_mask
        if earlier is None:
            kept = 0 if self._values is None else len(self._values)
            earlier = Run.of(torch.ones(len(v), kept, dtype=torch.bool, device=v.device), 1)
        return earlier.extended(key_mask)

    def _keep(self, keys: list[Run], values: Run, mask: Run | None, length: int) -> None:
        """Keep what the next step may read, and drop the rest."""
        firsts = [reach.first(length) for reach in self._reaches]
        kept = length - self.score.first_value(length)
        self._keys = [x.newest(length - first) for x, first in zip(keys, firsts, strict=True)]
        self._values = values.newest(kept)
        self._key_mask = None if mask is None else mask.newest(kept)
        self.length = length
