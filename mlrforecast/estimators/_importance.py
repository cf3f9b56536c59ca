"""How much a forecast rests on each covariate: its error when the rows of one are shuffled."""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from mlrforecast._core.errors import DataError
from mlrforecast.data import Covariate, ForecastWindows, Panel
from mlrforecast.data.scaling import deviations
from mlrforecast.estimators._backtest import actual_values, check_count
from mlrforecast.estimators._inference import Predictor

Role: TypeAlias = Literal["known", "past", "static", "calendar"]


def permutation_importance(
    predictor: Predictor, panel: Panel, windows: ForecastWindows, *, n_repeats: int, seed: int
) -> pd.DataFrame:
    """Forecast again with each covariate shuffled, and compare the errors.

    Parameters
    ----------
    predictor : Predictor
        The network.
    panel : Panel
        All rows, from which windows read.
    windows : ForecastWindows
        Windows of ``panel`` that are forecast.
    n_repeats : int
        Times that each covariate is shuffled.
    seed : int
        Seed of the order of rows, which is the same for each covariate.

    Returns
    -------
    DataFrame
        See :meth:`MLRForecaster.permutation_importance`.
    """
    check_count("n_repeats", n_repeats)
    check_count("seed", seed, least=0)
    entries = list(_entries(predictor, panel))
    if not entries:
        raise ValueError(
            "There is nothing to shuffle: the forecaster reads no covariates and no calendar."
        )
    score = _Score(predictor, windows)
    base = score.of(panel)
    rows = []
    for name, role in entries:
        shuffled = (_shuffled(panel, name, role, seed, repeat) for repeat in range(n_repeats))
        errors = np.array([score.of(changed) for changed in shuffled])
        # A perfect forecast has no rise to speak of, or one without bound.
        with np.errstate(divide="ignore", invalid="ignore"):
            rises = (errors - base) / np.float64(base)
        rows.append((role, rises.mean(), rises.std()))
    table = pd.DataFrame(rows, columns=["role", "importance", "std"])
    names = pd.Series([name for name, _ in entries], dtype=object)
    table.insert(0, "covariate", names)
    return table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)


def _entries(predictor: Predictor, panel: Panel) -> Iterator[tuple[Hashable, Role]]:
    """Yield the name and the role of all that can be shuffled."""
    for covariate in panel.known:
        yield covariate.name, "known"
    for covariate in panel.past:
        yield covariate.name, "past"
    for covariate in panel.static:
        yield covariate.name, "static"
    if predictor.encoding.cycles:
        yield "calendar", "calendar"


def _shuffled(panel: Panel, name: Hashable, role: Role, seed: int, repeat: int) -> Panel:
    """Return a panel with the rows, or for a static one the series, of one covariate shuffled."""
    generator = np.random.default_rng([seed, repeat])
    if role == "calendar":
        # Only the calendar reads stamps: windows count rows.
        return replace(panel, index=panel.index[generator.permutation(len(panel.index))])
    covariates: dict[Role, tuple[Covariate, ...]]
    covariates = {"known": panel.known, "past": panel.past, "static": panel.static}
    covariates[role] = tuple(
        c.take(generator.permutation(len(c.values))) if c.name == name else c
        for c in covariates[role]
    )
    known, past, static = (covariates[of] for of in ("known", "past", "static"))
    return replace(panel, known=known, past=past, static=static)


class _Score:
    """The error of forecasts from some windows, whatever the covariates in their panel."""

    def __init__(self, predictor: Predictor, windows: ForecastWindows) -> None:
        self.predictor = predictor
        self.windows = windows
        self.actual = actual_values(windows)
        # In units of each series, so that large numbers do not decide for all.
        panel = windows.panel
        self.scale = deviations(panel.values, panel.bounds)[windows.series, None]

    def of(self, panel: Panel) -> float:
        """Return the mean absolute error, in units of each series, over all observed values."""
        windows = self.predictor.windows(panel, self.windows.series, self.windows.cutoffs)
        errors = np.abs(self.actual - self.predictor.forecast(windows).point) / self.scale
        # NaN where nothing was observed, and where a context has no value to forecast from.
        seen = ~np.isnan(errors)
        if not seen.any():
            raise DataError(
                "An error needs observed values before and after a cutoff, but `X` has none."
            )
        return float(errors[seen].mean())
