"""One model trained by a Ray cluster, and forecasts of more series than memory holds."""

__all__: list[str] = []
