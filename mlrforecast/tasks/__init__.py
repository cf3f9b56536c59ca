"""The paper's other experiments on the same core: data and a recipe each, and no new layers."""

from mlrforecast.tasks._engine import Execution
from mlrforecast.tasks._peaks import peak_flops
from mlrforecast.tasks._records import TaskResult, read_results
from mlrforecast.tasks._settings import TaskRun, read_runs

__all__ = ["Execution", "TaskResult", "TaskRun", "peak_flops", "read_results", "read_runs"]
