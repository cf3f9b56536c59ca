"""The ``mlrforecast`` command: fit, forecast, score and draw, a demonstration, the benchmarks."""

from mlrforecast.cli._app import main

__all__ = ["main"]
