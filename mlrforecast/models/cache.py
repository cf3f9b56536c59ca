"""What a whole model remembers between the steps of a generation."""

import copy
from typing import Any

from mlrforecast.nn import Encoder, LayerCache

__all__ = ["ModelCache"]


class ModelCache:
    """What every layer of a model remembers of the tokens seen so far.

    Made by :meth:`CausalLM.new_cache`, for one batch of sequences, and filled by calls of the
    model. Of ``t`` tokens, a layer with ``G`` key and value heads of ``V`` columns keeps, in a
    batch of ``B`` and numbers of ``e`` bytes::

        e * B * G * (sum of r * kept(r) over the runs of columns, + V * most kept(r))

    where the ``r`` columns of MLR attention's level with blocks of ``b`` tokens are kept of the
    ``t mod b`` tokens of the block that is not complete yet; those of a level without blocks, and
    of standard and bilinear scores, of all ``t``; those of a window ``w``, of ``min(t, w)``. With
    padding, one byte is added for each value kept of a sequence. The keys of a level thus never
    exceed ``r * (b - 1)`` between two calls and ``r * b`` within one that adds a single token: with
    the default blocks, the keys of ``T`` tokens take at most ``T * sum(r_l / 2 ** (l - 1))``
    numbers a head.

    A bilinear score (not ``"bilinear_mlr"``) has a matrix for each query head and so keeps keys of
    ``H`` heads, each as wide as the model; ``"bilinear_mlr"`` keeps ``r_l * p_l`` columns a level.

    Parameters
    ----------
    encoder : Encoder
        The blocks of the model.

    Attributes
    ----------
    layers : tuple of LayerCache
        One for each block.

    Examples
    --------
    >>> import torch
    >>> from mlrforecast.models import CausalLM, CausalLMConfig
    >>> model = CausalLM(CausalLMConfig(vocabulary_size=5, context_length=8, width=8, num_heads=1))
    >>> cache = model.new_cache()
    >>> with torch.no_grad():
    ...     logits = model(torch.tensor([[1, 2, 3]]), cache=cache)
    >>> cache.length, cache.num_bytes  # of blocks of 8, 4 and 2; 4, 2 and 2 columns; 6 layers
    (3, 1056)
    >>> 6 * 4 * (4 * 3 + 2 * 3 + 2 * 1 + 8 * 3)
    1056
    """

    def __init__(self, encoder: Encoder) -> None:
        self.layers: tuple[LayerCache, ...] = tuple(encoder.new_cache())
        self._encoder = encoder

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModelCache":
        # The model is the same one, and layers share their tensors until they go on.
        other = copy.copy(self)
        other.layers = tuple(copy.deepcopy(layer, memo) for layer in self.layers)
        return other

    @property
    def length(self) -> int:
        """Tokens seen so far, padding included."""
        return self.layers[0].length

    @property
    def num_bytes(self) -> int:
        """Bytes of all keys, values and masks that are kept."""
        return sum(layer.num_bytes for layer in self.layers)

    def check(self, encoder: Encoder, batch_size: int) -> None:
        """Check that the cache goes with a model and a batch.

        Parameters
        ----------
        encoder : Encoder
            The blocks of the model that is called with it.
        batch_size : int
            Number of sequences of the call.

        Raises
        ------
        ValueError
            If it was made by another model, or holds another number of sequences.
        """
        if encoder is not self._encoder:
            raise ValueError("`cache` was made by another model: call new_cache() of this one.")
        values = self.layers[0].values
        if values is not None and len(values) != batch_size:
            raise ValueError(
                f"`cache` holds {len(values)} sequences, and `tokens` has {batch_size}. Make a new "
                "cache for each batch."
            )
