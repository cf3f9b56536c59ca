"""Pictures of forecasts and of what made them: frames in, matplotlib axes out, nothing saved."""

from mlrforecast.plots._attention import plot_attention
from mlrforecast.plots._backtest import plot_backtest
from mlrforecast.plots._coverage import plot_coverage
from mlrforecast.plots._errors import plot_error_by_step
from mlrforecast.plots._forecast import plot_forecast
from mlrforecast.plots._importance import plot_importance
from mlrforecast.plots._series import plot_series
from mlrforecast.plots._sweep import plot_sweep
from mlrforecast.plots._tasks import plot_error_by_point, plot_scaling

__all__ = [
    "plot_attention",
    "plot_backtest",
    "plot_coverage",
    "plot_error_by_point",
    "plot_error_by_step",
    "plot_forecast",
    "plot_importance",
    "plot_scaling",
    "plot_series",
    "plot_sweep",
]
