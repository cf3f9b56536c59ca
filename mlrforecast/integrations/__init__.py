"""Other libraries and services; each module is imported only when it is used."""

__all__: list[str] = []
