"""Seeded synthetic panels: hourly series whose noiseless signal is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.tseries.frequencies import to_offset
from pandas.tseries.offsets import Tick

__all__ = ["SyntheticData", "make_synthetic"]

_Array = npt.NDArray[np.float64]

_DAYS_PER_HOLIDAY = 14
_MEAN_TEMPERATURE = 12.0
_LONGEST_MISSING_SPAN_HOURS = 12

# One stream per purpose, so that switching noise or gaps off leaves everything else as it was.
_WEATHER, _CALENDAR, _SIGNAL, _SHIFTS, _NOISE, _MISSING = range(6)


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticData:
    """A synthetic panel with its truth.

    Attributes
    ----------
    frame : DataFrame of shape (T, C + 2)
        The ``C`` targets (``load_1``, ``load_2``, ...), noisy and with NaN in the missing spans,
        followed by the covariates; the index holds the ``T`` time stamps.
    truth : DataFrame of shape (T, C)
        The noiseless targets, without a gap: the sum of all ``components``.
    covariates : DataFrame of shape (T, 2)
        ``temperature`` in degrees Celsius and ``holiday`` (1 on holidays, else 0), no gaps.
    components : mapping of str to DataFrame of shape (T, C)
        ``level``, ``trend``, ``shift``, ``daily``, ``weekly``, ``temperature`` and ``holiday``:
        what each adds to the targets.
    """

    frame: pd.DataFrame
    truth: pd.DataFrame
    covariates: pd.DataFrame
    components: Mapping[str, pd.DataFrame]

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Names of the target columns, in the order of the frame."""
        return tuple(str(column) for column in self.truth.columns)

    def __repr__(self) -> str:
        targets, index = ", ".join(self.target_columns), self.frame.index
        return f"SyntheticData({len(index)} rows from {index[0]}; targets {targets})"


def make_synthetic(
    *,
    num_series: int = 3,
    length: int = 1344,
    start: str | pd.Timestamp = "2024-01-01",
    freq: str = "h",
    noise: float = 0.15,
    missing_rate: float = 0.02,
    level_shifts: int = 1,
    seed: int = 0,
) -> SyntheticData:
    """Draw a panel of load-like series from a seed.

    Each target is the sum of a level, a linear trend, steps in the level, a daily and a weekly
    cycle, and the effects of temperature and holidays, to which white noise is added and in
    which spans are then lost. The generator has its own random state: the same arguments give
    the same panel on every machine, up to float rounding, and nothing else is disturbed.
    Noise, gaps and steps come from streams of their own, and so does each series: changing one
    of these arguments leaves the rest of the panel as it was.

    Parameters
    ----------
    num_series : int, default 3
        Number of targets ``C``, at least 1.
    length : int, default 1344
        Number of rows ``T``, at least 1; the default is 8 weeks of hours.
    start : str or Timestamp, default "2024-01-01"
        First time stamp. The cycles follow its wall clock, so it may carry a time zone.
    freq : str, default "h"
        A fixed step in hours, minutes or seconds, at most one day (``"24h"``).
    noise : float, default 0.15
        Standard deviation of the noise as a share of each series' daily amplitude, at least 0.
    missing_rate : float, default 0.02
        Share of the values lost in each target, in spans of at most 12 hours; from 0 to 0.5.
    level_shifts : int, default 1
        Steps in the level of each target, at least 0. They fall between 10 and 70 percent of
        the rows, so that the last rows follow a level that can be learned.
    seed : int, default 0
        At least 0.

    Returns
    -------
    SyntheticData
        Frame, truth, covariates and components.

    Raises
    ------
    ValueError
        If an argument is outside its range or ``freq`` is no fixed step.

    Examples
    --------
    >>> data = make_synthetic(num_series=2, length=48, seed=1)
    >>> list(data.frame.columns)
    ['load_1', 'load_2', 'temperature', 'holiday']
    >>> int(data.frame["load_1"].isna().sum()), int(data.truth["load_1"].isna().sum())
    (1, 0)
    """
    _check_at_least("num_series", num_series, 1)
    _check_at_least("length", length, 1)
    _check_at_least("level_shifts", level_shifts, 0)
    _check_at_least("noise", noise, 0)
    _check_at_least("seed", seed, 0)
    if not 0 <= missing_rate <= 0.5:
        raise ValueError(f"missing_rate must lie between 0 and 0.5, got {missing_rate!r}")
    step_hours = _step_hours(freq)
    index = pd.date_range(start, periods=length, freq=freq, name="timestamp")
    covariates = pd.DataFrame(
        {"temperature": _temperature(index, step_hours, seed), "holiday": _holiday(index, seed)},
        index=index,
    )
    longest_span = max(1, round(_LONGEST_MISSING_SPAN_HOURS / step_hours))
    observed: dict[str, _Array] = {}
    truth: dict[str, _Array] = {}
    components: dict[str, dict[str, _Array]] = {}
    for number in range(num_series):
        name = f"load_{number + 1}"
        amplitude, parts = _components(covariates, level_shifts, (seed, number))
        truth[name] = sum(parts.values(), start=np.zeros(length))
        noisy = truth[name] + noise * amplitude * _rng(seed, _NOISE, number).standard_normal(length)
        lost = _missing(length, missing_rate, longest_span, _rng(seed, _MISSING, number))
        observed[name] = np.where(lost, np.nan, noisy)
        for kind, part in parts.items():
            components.setdefault(kind, {})[name] = part
    return SyntheticData(
        frame=pd.concat([pd.DataFrame(observed, index=index), covariates], axis=1),
        truth=pd.DataFrame(truth, index=index),
        covariates=covariates,
        components=MappingProxyType(
            {kind: pd.DataFrame(part, index=index) for kind, part in components.items()}
        ),
    )


def _check_at_least(argument: str, value: float, smallest: int) -> None:
    """Refuse a number below its smallest legal value, and NaN."""
    if not value >= smallest:
        raise ValueError(f"{argument} must be at least {smallest}, got {value!r}")


def _step_hours(freq: str) -> float:
    """Hours of one step of ``freq``; refuses calendar steps and steps beyond a day."""
    try:
        offset = to_offset(freq)
    except ValueError as error:
        raise ValueError(f"freq {freq!r} is no frequency that pandas knows") from error
    hours = offset.nanos / 3.6e12 if isinstance(offset, Tick) else 0.0
    if not 0 < hours <= 24:
        raise ValueError(
            f"freq must be a fixed step of hours, minutes or seconds, at most '24h', got {freq!r}"
        )
    return hours


def _rng(seed: int, stream: int, series: int = 0) -> np.random.Generator:
    """Make the generator of one stream of one series."""
    return np.random.default_rng([seed, stream, series])


def _hour_of_day(index: pd.DatetimeIndex) -> _Array:
    """Wall clock hour of each stamp, with its fraction."""
    hours = index.hour + index.minute / 60 + index.second / 3600
    return np.asarray(hours, dtype=np.float64)


def _temperature(index: pd.DatetimeIndex, step_hours: float, seed: int) -> _Array:
    """Yearly and daily waves plus a slowly wandering anomaly, in degrees Celsius."""
    day_of_year = np.asarray(index.day_of_year, dtype=np.float64)
    yearly = 8.0 * np.cos(2 * np.pi * (day_of_year - 200) / 365.25)
    daily = 4.0 * np.cos(2 * np.pi * (_hour_of_day(index) - 15) / 24)
    memory = float(np.exp(-step_hours / 24))
    shocks = 2.5 * _rng(seed, _WEATHER).standard_normal(len(index))
    shocks[1:] *= np.sqrt(1 - memory**2)
    anomaly = np.empty(len(index))
    value = 0.0
    for position, shock in enumerate(shocks):
        value = memory * value + shock
        anomaly[position] = value
    return np.asarray(_MEAN_TEMPERATURE + yearly + daily + anomaly, dtype=np.float64)


def _holiday(index: pd.DatetimeIndex, seed: int) -> npt.NDArray[np.int64]:
    """Flag one whole day in each fortnight."""
    day = np.asarray((index.normalize() - index[0].normalize()).round("D").days, dtype=np.int64)
    fortnight = day // _DAYS_PER_HOLIDAY
    chosen = _rng(seed, _CALENDAR).integers(0, _DAYS_PER_HOLIDAY, size=int(fortnight[-1]) + 1)
    return np.asarray(day % _DAYS_PER_HOLIDAY == chosen[fortnight], dtype=np.int64)


def _components(
    covariates: pd.DataFrame, level_shifts: int, key: tuple[int, int]
) -> tuple[float, dict[str, _Array]]:
    """Draw one target: its daily amplitude, and what each component adds to it."""
    seed, number = key
    index = pd.DatetimeIndex(covariates.index)
    rng = _rng(seed, _SIGNAL, number)
    amplitude = rng.uniform(6.0, 10.0)
    level = rng.uniform(40.0, 55.0)
    slope_per_day = rng.uniform(-0.02, 0.02) * amplitude
    heating = rng.uniform(0.4, 0.8)
    holiday_drop = rng.uniform(0.5, 1.0) * amplitude
    hour = _hour_of_day(index)
    weekday = np.asarray(index.day_of_week, dtype=np.float64)
    elapsed_days = np.asarray((index - index[0]) / pd.Timedelta(days=1), dtype=np.float64)
    temperature = covariates["temperature"].to_numpy()
    return amplitude, {
        "level": np.full(len(index), level),
        "trend": slope_per_day * elapsed_days,
        "shift": _shift(len(index), level_shifts, amplitude, _rng(seed, _SHIFTS, number)),
        "daily": amplitude * _wave(hour / 24, rng),
        "weekly": 0.5 * amplitude * _wave((24 * weekday + hour) / 168, rng),
        "temperature": heating * (_MEAN_TEMPERATURE - temperature),
        "holiday": -holiday_drop * covariates["holiday"].to_numpy(),
    }


def _wave(phase: _Array, rng: np.random.Generator) -> _Array:
    """Two harmonics of a cycle, ``phase`` in turns, each with a random start."""
    first, second = rng.uniform(0.0, 1.0, size=2)
    return np.asarray(
        np.sin(2 * np.pi * (phase + first)) + 0.4 * np.sin(4 * np.pi * (phase + second))
    )


def _shift(length: int, count: int, amplitude: float, rng: np.random.Generator) -> _Array:
    """Sum of ``count`` steps up or down, each 0.75 to 1.5 daily amplitudes high."""
    shift = np.zeros(length)
    for _ in range(count):
        where = int(length * rng.uniform(0.1, 0.7))
        shift[where:] += rng.choice([-1.0, 1.0]) * rng.uniform(0.75, 1.5) * amplitude
    return shift


def _missing(
    length: int, rate: float, longest_span: int, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Mark exactly ``round(rate * length)`` positions, in spans."""
    lost = np.zeros(length, dtype=bool)
    left = round(rate * length)
    while left:
        where = int(rng.integers(0, length))
        span = np.flatnonzero(~lost[where : where + int(rng.integers(1, longest_span + 1))])[:left]
        lost[where + span] = True
        left -= len(span)
    return lost
