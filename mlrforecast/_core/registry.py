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
    base : type, optional
        Class that every entry must be a subclass of. Default: entries are not classes, and are
        not checked.
    hint : str
        What the error about an unknown name says beside the names that there are.

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

    def __init__(self, kind: str, *, base: type | None = None, hint: str = "") -> None:
        self.kind = kind
        self.hint = hint
        self._base = base
        self._entries: dict[str, T] = {}

    def register(self, name: str, entry: T) -> None:
        """Add ``entry`` under ``name``; a name is given once."""
        if not isinstance(name, str):
            raise TypeError(f"`name` of the {self.kind} must be a text, got {name!r}.")
        if self._base is not None and not _is_subclass(entry, self._base):
            raise TypeError(
                f"`entry` of the {self.kind} {name!r} must be a subclass of "
                f"{self._base.__name__}, got {entry!r}."
            )
        if name in self._entries:
            raise ValueError(f"The {self.kind} {name!r} is registered already.")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            hint = f". {self.hint}" if self.hint else ""
            raise ValueError(f"Unknown {self.kind} {name!r}. Available: {', '.join(self)}{hint}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def _is_subclass(entry: object, base: type) -> bool:
    return isinstance(entry, type) and issubclass(entry, base)
