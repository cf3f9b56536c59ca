"""Which column of a frame is what: said by the schema, or plain from the frame."""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import NamedTuple

import pandas as pd
from pandas.api import types as dtypes

from mlrforecast._core.errors import DataError
from mlrforecast.data._columns import is_number
from mlrforecast.data._stamps import begins_like_stamps, holds_time, read_stamps
from mlrforecast.data.panel import Layout
from mlrforecast.data.schema import FrameSchema

ITEM_NAMES = ("item_id", "unique_id")
TIME_NAMES = ("timestamp", "ds")
TARGET_NAMES = ("target", "y")

_CALLED_TIME = {"time", "date", "year", "quarter", "month", "week", "day", "hour", "period", "step"}

_SHOWN = 8

Values = pd.Series | pd.Index


class Roles(NamedTuple):
    """The parts of a frame, each with one entry a row.

    ``items`` is None for a frame that is no long one; ``time_owner`` names the time in messages.
    """

    layout: Layout
    items: Values | None
    time: Values
    time_owner: str
    targets: dict[Hashable, pd.Series]
    past: dict[Hashable, pd.Series]
    known: dict[Hashable, pd.Series]
    static: dict[Hashable, pd.Series]


def find_roles(
    frame: pd.DataFrame, layout: Layout, schema: FrameSchema, argument: str, *, targets: bool = True
) -> Roles:
    """Find the items, the time, the targets and the covariates of a frame.

    Parameters
    ----------
    frame : DataFrame
        A frame with unique columns and at least one row.
    layout : Layout
        How the caller's object looked, as far as that is known.
    schema : FrameSchema
        What the caller said.
    argument : str
        Name of the frame, for messages.
    targets : bool
        Whether targets are looked for. Without them, what the schema says of targets and of past
        covariates is not looked at, and columns without a role are left out.

    Raises
    ------
    DataError
        If a column is absent, has two roles or none, or more than one could have a role.
    """
    finder = _Finder(frame, schema, argument, targets=targets)
    items, item_name, in_index = finder.find_items()
    time, time_name, time_owner, time_in_index = finder.find_time(long=items is not None)
    if items is not None:
        finder.check_long(layout, in_index, time_in_index)
        layout = replace(layout, form="long", id_name=item_name, indexed=in_index)
        time_name = "timestamp" if time_name is None and not in_index else time_name
    else:
        finder.check_wide()
        layout = replace(layout, indexed=time_in_index)
    layout = replace(layout, time_name=time_name)
    found = finder.find_targets(long=items is not None) if targets else []
    if items is not None and found:
        layout = replace(layout, target_name=found[0])
    return Roles(
        layout,
        items,
        time,
        time_owner,
        finder.columns(found),
        finder.columns(schema.past_covariates if targets else ()),
        finder.columns(schema.known_covariates),
        finder.columns(schema.static_covariates),
    )


class _Finder:
    """Keeps what is known of each column while the rest is found."""

    def __init__(
        self, frame: pd.DataFrame, schema: FrameSchema, argument: str, *, targets: bool
    ) -> None:
        self.frame, self.schema, self.argument = frame, schema, argument
        # A partial key would find several columns of a MultiIndex.
        self.places: dict[Hashable, int] = {name: place for place, name in enumerate(frame.columns)}
        self.levels = [name for name in frame.index.names if name is not None]
        self.roles: dict[Hashable, str] = {}
        self._declare("id_column", () if schema.id_column is None else (schema.id_column,))
        self._declare(
            "timestamp_column",
            () if schema.timestamp_column is None else (schema.timestamp_column,),
        )
        if targets:
            self._declare("target", self._declared_targets())
            self._declare("past_covariates", schema.past_covariates)
        self._declare("known_covariates", schema.known_covariates)
        self._declare("static_covariates", schema.static_covariates)

    def column(self, name: Hashable) -> pd.Series:
        column: pd.Series = self.frame.iloc[:, self.places[name]]
        return column

    def columns(self, names: Iterable[Hashable]) -> dict[Hashable, pd.Series]:
        return {name: self.column(name) for name in names}

    def find_items(self) -> tuple[Values | None, Hashable | None, bool]:
        """Return the items of the rows, their name, and whether they stand in the index."""
        index, name = self.frame.index, self.schema.id_column
        if index.nlevels > 2:
            raise DataError(
                f"The index of `{self.argument}` has {index.nlevels} levels ({index.names}); a "
                "long frame has two, item and time. Bring the others into columns with "
                "reset_index."
            )
        if name is None and index.nlevels == 1:
            name = self._known("id_column", ITEM_NAMES)
        if name is not None and name in self.places:
            self.roles[name] = "id_column"
            return self.column(name), name, False
        if index.nlevels == 1:
            return None, None, False
        if name not in (None, index.names[0]) or holds_time(index.get_level_values(0)[:1000]):
            raise DataError(
                f"The levels of the index of `{self.argument}` must be the item and the time, in "
                f"this order, but they are {index.names}. Use swaplevel or reset_index."
            )
        return index.get_level_values(0), index.names[0], True

    def find_time(self, *, long: bool) -> tuple[Values, Hashable | None, str, bool]:
        """Return the time of the rows, its name, its description and if it is in the index."""
        index, name = self.frame.index, self.schema.timestamp_column
        if name is None or name not in self.places:
            if name is not None or index.nlevels == 2:
                return self._time_of_level(index, name)
            in_index = holds_time(index) or self._text_index_is_time()
            name = self._known("timestamp_column", TIME_NAMES) if long or not in_index else None
            if name is None and in_index:
                return self._time_of_level(index, None)
            name = self._only_time_column() if name is None else name
            if name is None and not long and dtypes.is_integer_dtype(index.dtype):
                return self._time_of_level(index, None)
        if name is None:
            raise DataError(self._no_time(long))
        self.roles[name] = "timestamp_column"
        return self.column(name), name, f"Column {name!r} of `{self.argument}`", False

    def find_targets(self, *, long: bool) -> list[Hashable]:
        """Return the names of the targets, and refuse columns that are left without a role."""
        named = [name for name, role in self.roles.items() if role == "target"]
        if named:
            if long and len(named) > 1:
                raise DataError(
                    f"A long frame has one target, but `target` names {_listed(named)}. Put them "
                    "below one another, e.g. with frame.melt, or use a wide frame."
                )
            return named
        if not long:
            return self._wide_targets()
        name = self._known("target", TARGET_NAMES)
        if name is None:
            raise DataError(
                f"`{self.argument}` is a long frame without a column target or y. Name its target "
                f"with target=...; its columns are {_listed(self.places)}."
            )
        self.roles[name] = "target"
        left = self._left()
        if left:
            raise DataError(
                f"`{self.argument}` has columns without a role: {_listed(left)}. Name each in "
                "past_covariates, known_covariates or static_covariates, or name the target with "
                f"target={name!r}, which leaves all others out, or drop them."
            )
        return [name]

    def check_long(self, layout: Layout, items_in_index: bool, time_in_index: bool) -> None:
        """Refuse items and time that do not stand where a forecast could have them too."""
        if layout.form == "series":
            raise DataError(
                f"`{self.argument}` is a Series with the items in its index. Make it a frame, "
                "with .rename('target').to_frame()."
            )
        if items_in_index and not time_in_index:
            raise DataError(
                f"`{self.argument}` has its items in the index and its time in a column. Bring "
                "both into columns, with reset_index."
            )

    def check_wide(self) -> None:
        """Refuse what only a long frame has."""
        if self.schema.static_covariates:
            raise DataError(
                f"`static_covariates` are for long frames, and `{self.argument}` is a wide one: "
                f"{_listed(self.schema.static_covariates)} would be the same for all it holds. "
                "Leave them out, or name the column of the series with id_column."
            )

    def _declared_targets(self) -> tuple[Hashable, ...]:
        target = self.schema.target
        if target is None:
            return ()
        # A tuple may also be the name of one column, where columns have several levels.
        return target if isinstance(target, tuple) and target not in self.places else (target,)

    def _declare(self, role: str, names: Iterable[Hashable]) -> None:
        """Note the role of columns that the caller named."""
        keys = role in ("id_column", "timestamp_column")
        for name in names:
            if name in self.roles:
                raise DataError(
                    f"A column has one role, but {name!r} is named in "
                    + (
                        f"`{role}` twice."
                        if self.roles[name] == role
                        else f"`{self.roles[name]}` and in `{role}`."
                    )
                )
            if name not in self.places and not (keys and name in self.levels):
                raise DataError(
                    f"`{self.argument}` has no column {name!r}, which `{role}` names. Its columns "
                    f"are {_listed(self.places)}."
                )
            self.roles[name] = role

    def _left(self) -> list[Hashable]:
        return [name for name in self.places if name not in self.roles]

    def _known(self, role: str, names: tuple[str, ...]) -> Hashable | None:
        """Return the column that has one of the names that are known for a role."""
        found = [name for name in names if name in self.places and name not in self.roles]
        if len(found) > 1:
            raise DataError(
                f"`{self.argument}` has the columns {_listed(found)}. Say which it is with "
                f"{role}=..., and drop the other or give it a role."
            )
        return found[0] if found else None

    def _time_of_level(
        self, index: pd.Index, name: Hashable | None
    ) -> tuple[Values, Hashable | None, str, bool]:
        """Return the time that stands in the index, in its last level."""
        if name not in (None, index.names[-1]):
            raise DataError(
                f"The time must be the last level of the index of `{self.argument}`, but "
                f"`timestamp_column` names {name!r} of {index.names}. Use swaplevel or reset_index."
            )
        level = index.get_level_values(-1) if index.nlevels == 2 else index
        return level, index.names[-1], f"The index of `{self.argument}`", True

    def _text_index_is_time(self) -> bool:
        return self.frame.index.nlevels == 1 and begins_like_stamps(self.frame.index)

    def _only_time_column(self) -> Hashable | None:
        """Return the only column that holds time, None if there is none."""
        left = self._left()
        found = [name for name in left if holds_time(self.column(name))]
        if not found:
            found = [name for name in left if begins_like_stamps(self.column(name))]
            if len(found) > 1:
                found = [name for name in found if self._reads_as_time(name)] or found
        if len(found) > 1:
            raise DataError(
                f"`{self.argument}` has more than one column that holds time: {_listed(found)}. "
                "Say which it is with timestamp_column=..., and drop the other or give it a role."
            )
        return found[0] if found else None

    def _reads_as_time(self, name: Hashable) -> bool:
        try:
            read_stamps(self.column(name), "")
        except DataError:
            return False
        return True

    def _wide_targets(self) -> list[Hashable]:
        """Return all columns that have no role, which all must be numeric then."""
        left = self._left()
        if not left:
            raise DataError(
                f"`{self.argument}` has no column left to forecast: {_listed(self.places)} have "
                "other roles."
            )
        for name in left:
            if not is_number(self.column(name)):
                column = self.column(name)
                raise DataError(
                    f"Column {name!r} of `{self.argument}` must be numeric, got dtype "
                    f"{column.dtype} (first value {column.iloc[:1].tolist()[0]!r}): all columns of "
                    "a wide frame are forecast unless target=... names some. Convert it, e.g. with "
                    "pd.to_numeric or .astype(float), name it as a covariate, or leave it out. If "
                    "it says which series a row belongs to, name it by id_column=..."
                )
            self._refuse_time_as_target(name)
        return left

    def _refuse_time_as_target(self, name: Hashable) -> None:
        """Refuse a column that is called as time is, and counts, where time is the row number."""
        if not isinstance(self.frame.index, pd.RangeIndex) or str(name).lower() not in _CALLED_TIME:
            return
        if "timestamp_column" in self.roles.values():
            return
        steps = self.column(name).diff().iloc[1:]
        if len(steps) and steps.iloc[0] > 0 and bool((steps == steps.iloc[0]).all()):
            raise DataError(
                f"Column {name!r} of `{self.argument}` counts like time, and would be forecast. "
                f"Say timestamp_column={name!r}, or name what is to be forecast with target=...."
            )

    def _no_time(self, long: bool) -> str:
        form = "long" if long else "wide"
        return (
            f"No time is found in `{self.argument}`, a {form} frame: its index is of type "
            f"{self.frame.index.dtype}, and of its columns {_listed(self.places)} none is named "
            "timestamp or ds or holds time stamps. Name the column with timestamp_column=..., "
            "or set a DatetimeIndex. A long frame without names such as item_id or unique_id "
            "also needs id_column=... and target=...."
        )


def _listed(names: Iterable[Hashable]) -> str:
    """List names for a message."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(map(repr, every[:_SHOWN])) + more
