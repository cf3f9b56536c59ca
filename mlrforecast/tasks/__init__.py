"""Experiments: each is data and a recipe over the models, with no layers of its own."""

__all__: list[str] = []
