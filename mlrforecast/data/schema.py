"""Which column of a frame is what, and how its rows are brought onto one frequency."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Fill: TypeAlias = Literal["missing", "zero"]
Resample: TypeAlias = Literal["mean", "sum", "median", "min", "max", "first", "last"]


@dataclass(frozen=True, kw_only=True)
class FrameSchema:
    """Which column of a frame is what, and how its rows are brought onto one frequency.

    Parameters
    ----------
    id_column : hashable, optional
        Column that names the series of each row; it makes a frame a long one. Default:
        ``item_id`` or ``unique_id``, where the frame has one of them.
    timestamp_column : hashable, optional
        Column of the time stamps. Default: ``timestamp`` or ``ds``, else the index where it holds
        time, else the one column that does; the index of a wide frame comes before those names.
    target : hashable or tuple of hashable, optional
        What is forecast: one column of a long frame, one or more of a wide one. Columns that have
        no role are left out then. Default: ``target`` or ``y`` of a long frame, all columns
        without another role of a wide one.
    past_covariates : tuple of hashable
        Columns that are known up to the present only.
    known_covariates : tuple of hashable
        Columns that are known over the steps to be forecast too.
    static_covariates : tuple of hashable
        Columns of a long frame that hold one value for each series.
    freq : str or int, optional
        Step between the rows: a pandas offset alias, or an integer for integer time. Default:
        what the stamps of the longest series follow.
    fill : {"missing", "zero"}, optional
        What rows that are absent hold. Default: an absent row is an error.
    resample : {"mean", "sum", "median", "min", "max", "first", "last"}, optional
        What becomes of the rows of one step where stamps are irregular. Default: irregular stamps
        are an error.
    """

    id_column: Hashable | None = None
    timestamp_column: Hashable | None = None
    target: Hashable | tuple[Hashable, ...] | None = None
    past_covariates: tuple[Hashable, ...] = ()
    known_covariates: tuple[Hashable, ...] = ()
    static_covariates: tuple[Hashable, ...] = ()
    freq: str | int | None = None
    fill: Fill | None = None
    resample: Resample | None = None
