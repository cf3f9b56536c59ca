"""The ``mlrforecast`` command: a demonstration and the benchmarks."""

from mlrforecast.cli._app import main

__all__ = ["main"]
