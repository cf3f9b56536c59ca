"""Benchmarks with their floors in the same run; results are files that say how they were made."""

from mlrforecast._core.provenance import cpu_model
from mlrforecast.benchmark._results import count_final_runs
from mlrforecast.benchmark._table import ett_table
from mlrforecast.benchmark.ett import EttConfig, run_ett

__all__ = ["EttConfig", "count_final_runs", "cpu_model", "ett_table", "run_ett"]
