"""Backtests."""

from mlrforecast.evaluation._backtest import Backtest, seasonal_scale
from mlrforecast.evaluation._leaderboard import leaderboard

__all__ = ["Backtest", "leaderboard", "seasonal_scale"]
