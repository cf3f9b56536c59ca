"""Vocabularies of single characters and of bytes: text in, one byte a token out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mlrforecast._core.registry import Registry

__all__ = ["VOCABULARIES", "Vocabulary", "get_vocabulary"]

_DROPPED = 255


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    r"""What the tokens of a corpus stand for: each is one byte of the text in UTF-8.

    Parameters
    ----------
    name : str
        Name in the registry.
    content : bytes
        The byte that each token stands for, in the order of the tokens; none twice. With fewer
        than 256, all must be ASCII: other characters are dropped, and the end of a line that two
        signs mark, ``"\r\n"``, is read as ``"\n"``.

    Raises
    ------
    ValueError
        If ``content`` is empty, holds a byte twice, or is neither all bytes nor ASCII.

    Examples
    --------
    >>> characters = get_vocabulary("characters")
    >>> characters.size
    96
    >>> tokens = characters.encode("Caf\u00e9.\r\n")
    >>> tokens
    array([36, 66, 71, 15,  0], dtype=uint8)
    >>> characters.decode(tokens)
    'Caf.\n'
    """

    name: str
    content: bytes = field(repr=False)
    _token_of: NDArray[np.uint8] = field(init=False, repr=False, compare=False)
    _byte_of: NDArray[np.uint8] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        content = self.content
        if not content or len(set(content)) != len(content):
            raise ValueError(f"`content` must hold each byte once, got {content!r}.")
        if len(content) < 256 and not content.isascii():
            raise ValueError(f"`content` must hold all 256 bytes or be ASCII, got {content!r}.")
        table = np.full(256, _DROPPED, np.uint8)
        table[np.frombuffer(content, np.uint8)] = np.arange(len(content), dtype=np.uint8)
        # The one way to set what is frozen.
        object.__setattr__(self, "_token_of", table)
        object.__setattr__(self, "_byte_of", np.frombuffer(content, np.uint8))

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.content)

    def encode(self, text: str) -> NDArray[np.uint8]:
        """Return the tokens of a text; characters that have none are dropped.

        Parameters
        ----------
        text : str
            Text of any length. What UTF-8 cannot write, half of a surrogate pair, is read as
            ``"?"``.

        Returns
        -------
        array of uint8
            Tokens, 0 to ``size - 1``.

        Raises
        ------
        TypeError
            If ``text`` is not a str.
        """
        return self.encode_counting(text)[0]

    def encode_counting(self, text: str) -> tuple[NDArray[np.uint8], int]:
        r"""Return the tokens of a text, and how many of its characters were dropped.

        Parameters
        ----------
        text : str
            As in :meth:`encode`.

        Returns
        -------
        tuple of array of uint8 and int
            Tokens, and characters without one. The ``"\r"`` of ``"\r\n"`` is not counted.
        """
        if not isinstance(text, str):
            raise TypeError(f"`text` must be a str, got a {type(text).__name__}.")
        values = np.frombuffer(text.encode("utf-8", errors="replace"), np.uint8)
        tokens = self._token_of[values]
        if self.size == 256:
            return tokens, 0
        # Of other characters all bytes are beyond ASCII, so they are dropped whole.
        tokens = tokens[tokens != _DROPPED]
        ends = 0 if b"\r" in self.content else text.count("\r\n")
        return tokens, len(text) - ends - len(tokens)

    def decode(self, tokens: Sequence[int] | NDArray[np.integer[Any]] | Tensor) -> str:
        r"""Return the text of tokens.

        Parameters
        ----------
        tokens : sequence, array or Tensor of int, of one axis
            Tokens, 0 to ``size - 1``.

        Returns
        -------
        str
            Bytes that are no UTF-8 are read as the sign of replacement, ``"\ufffd"``.

        Raises
        ------
        ValueError
            If they have more axes than one, or a token is unknown.
        TypeError
            If they are not integers.
        """
        values = tokens.detach().cpu().numpy() if isinstance(tokens, Tensor) else np.asarray(tokens)
        if values.ndim != 1:
            raise ValueError(f"`tokens` must have one axis, got the shape {values.shape}.")
        if not len(values):
            return ""
        if not np.issubdtype(values.dtype, np.integer):
            raise TypeError(f"`tokens` must be integers, got {values.dtype}.")
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= self.size:
            raise ValueError(
                f"`tokens` must lie in 0 to {self.size - 1}, got {low if low < 0 else high}."
            )
        content: bytes = self._byte_of[values].tobytes()
        return content.decode("utf-8", errors="replace")


VOCABULARIES: Registry[Vocabulary] = Registry("vocabulary")
"""The vocabularies by name."""

# The paper's 96: the end of a line, and what ASCII can print.
for _name, _content in (
    ("characters", b"\n" + bytes(range(32, 127))),
    ("bytes", bytes(range(256))),
):
    VOCABULARIES.register(_name, Vocabulary(name=_name, content=_content))


def get_vocabulary(name: str) -> Vocabulary:
    """Return a vocabulary by its name.

    Parameters
    ----------
    name : {"characters", "bytes"}
        The paper's 96 characters, which are the end of a line and printable ASCII; or the 256
        bytes of UTF-8, which drop nothing.

    Returns
    -------
    Vocabulary

    Raises
    ------
    ValueError
        If the name is unknown.

    Examples
    --------
    >>> get_vocabulary("bytes").encode("\u00e9").tolist()
    [195, 169]
    """
    return VOCABULARIES[name]
