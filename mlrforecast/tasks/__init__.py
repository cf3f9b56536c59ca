"""The paper's other experiments on the same models: data and recipes, no new layers."""

__all__: list[str] = []
