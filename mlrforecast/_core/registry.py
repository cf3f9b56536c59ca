"""Name -> object tables whose errors list the choices."""

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of named things of one kind.

    Parameters
    ----------
    kind : str
        What the table holds, as it should stand in an error message.

    Examples
    --------
    >>> losses = Registry[int]("loss")
    >>> losses.register("mse", 1)
    >>> losses["mse"]
    1
    >>> losses["mze"]
    Traceback (most recent call last):
    ...
    ValueError: Unknown loss 'mze'. Available: mse
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T) -> None:
        """Add ``entry`` under ``name``; a name is given once."""
        if name in self._entries:
            raise ValueError(f"The {self.kind} {name!r} is registered already.")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise ValueError(f"Unknown {self.kind} {name!r}. Available: {', '.join(self)}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries
