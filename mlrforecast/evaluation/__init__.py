"""Backtests."""

from mlrforecast.evaluation._backtest import Backtest
from mlrforecast.evaluation._leaderboard import leaderboard

__all__ = ["Backtest", "leaderboard"]
