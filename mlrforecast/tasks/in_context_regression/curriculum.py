"""Short sequences of few dimensions first: how the size of the regression task grows."""

import dataclasses
from fractions import Fraction
from typing import NamedTuple

from mlrforecast.tasks._checks import above_zero, count

__all__ = ["Curriculum", "Stage", "baseline_loss"]

_FIRST_DIMS, _FIRST_POINTS = 4, 8


class Stage(NamedTuple):
    """The size of the task at a step.

    Attributes
    ----------
    dims : int
        Active dimensions; all other coordinates are 0.
    points : int
        Points of a sequence.
    """

    dims: int
    points: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curriculum:
    """A task that grows at every ``interval`` steps, until it has its final size.

    Parameters
    ----------
    dims_start, dims_end : int
        Active dimensions at first and at last.
    points_start, points_end : int
        Points of a sequence at first and at last.
    dims_step, points_step : int, default 1
        By how much either grows at a time.
    interval : int, default 2000
        Steps of training between two stages.

    Raises
    ------
    ValueError
        If a field is no integer of at least 1, or an end is less than its start.

    References
    ----------
    What Can Transformers Learn In-Context? A Case Study of Simple Function Classes, NeurIPS 2022,
    arXiv 2208.01066.

    Examples
    --------
    >>> curriculum = Curriculum(dims_start=4, dims_end=6, points_start=8, points_end=12,
    ...                         points_step=2, interval=100)
    >>> curriculum.stage(150)
    Stage(dims=5, points=10)
    >>> curriculum.final_step
    200
    """

    dims_start: int
    dims_end: int
    points_start: int
    points_end: int
    dims_step: int = 1
    points_step: int = 1
    interval: int = 2000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = count(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        for what in ("dims", "points"):
            start, end = getattr(self, f"{what}_start"), getattr(self, f"{what}_end")
            if end < start:
                raise ValueError(
                    f"`{what}_end` must be at least `{what}_start`={start}, got {end}."
                )

    @classmethod
    def paper(
        cls,
        num_dims: int,
        *,
        num_points: int | None = None,
        num_steps: int = 500_001,
        interval: int = 2000,
        warmup_share: float = 0.06,
    ) -> "Curriculum":
        """Return the paper's curriculum: 4 dimensions and 8 points first, all of them at last.

        It grows by the least number of dimensions, and twice as many points, that reach the end
        within a share of the training. A shorter ``interval`` makes the stages finer; those of the
        paper, each of fewer steps, are ``Curriculum.paper(n).with_interval(interval)``.

        Parameters
        ----------
        num_dims : int
            Dimensions ``n`` at last.
        num_points : int, optional
            Points at last. Default: ``2 * num_dims``.
        num_steps : int, default 500_001
            Steps of the whole training.
        interval : int, default 2000
            Steps between two stages.
        warmup_share : float, default 0.06
            Share of the training that the growth may take, in (0, 1]. It takes at least one
            interval, and where the last stage is not a full step further, up to one more.

        Returns
        -------
        Curriculum

        Raises
        ------
        ValueError
            If an argument is out of its range.

        Examples
        --------
        >>> curriculum = Curriculum.paper(64)
        >>> curriculum.stage(0), curriculum.stage(2000), curriculum.final_step
        (Stage(dims=4, points=8), Stage(dims=8, points=16), 30000)
        """
        dims = count("num_dims", num_dims)
        points = 2 * dims if num_points is None else count("num_points", num_points)
        steps, every = count("num_steps", num_steps), count("interval", interval)
        share = above_zero("warmup_share", warmup_share)
        if share > 1:
            raise ValueError(f"`warmup_share` must be in (0, 1], got {warmup_share!r}.")
        # The decimal number that was written: a float just below it could lose a stage.
        updates = max(1, int(Fraction(str(share)) * steps / every))
        dims_step = max(1, _ceil_div(dims - _FIRST_DIMS, updates))
        return cls(
            dims_start=min(_FIRST_DIMS, dims),
            dims_end=dims,
            dims_step=dims_step,
            points_start=min(_FIRST_POINTS, points),
            points_end=points,
            points_step=max(2 * dims_step, _ceil_div(points - _FIRST_POINTS, updates)),
            interval=every,
        )

    @classmethod
    def constant(cls, num_dims: int, num_points: int | None = None) -> "Curriculum":
        """Return a curriculum of one stage.

        Parameters
        ----------
        num_dims : int
            Dimensions ``n``, all active.
        num_points : int, optional
            Points of a sequence. Default: ``2 * num_dims``.

        Returns
        -------
        Curriculum

        Examples
        --------
        >>> Curriculum.constant(8).stages()
        [(0, Stage(dims=8, points=16))]
        """
        dims = count("num_dims", num_dims)
        points = 2 * dims if num_points is None else count("num_points", num_points)
        return cls(dims_start=dims, dims_end=dims, points_start=points, points_end=points)

    def with_interval(self, interval: int) -> "Curriculum":
        """Return the same stages, each of ``interval`` steps."""
        return dataclasses.replace(self, interval=interval)

    def stage(self, step: int) -> Stage:
        """Return the size of the task at a ``step`` of the training, from 0."""
        return self._stage(count("step", step, least=0) // self.interval)

    def stages(self) -> list[tuple[int, Stage]]:
        """Return every stage with its first step."""
        return [(at * self.interval, self._stage(at)) for at in range(self._num_updates() + 1)]

    @property
    def final_step(self) -> int:
        """First step at which dimensions and points are the last ones."""
        return self._num_updates() * self.interval

    def _stage(self, updates: int) -> Stage:
        """Return the size of the task after so many updates."""
        return Stage(
            min(self.dims_start + self.dims_step * updates, self.dims_end),
            min(self.points_start + self.points_step * updates, self.points_end),
        )

    def _num_updates(self) -> int:
        """Return after how many updates nothing grows any more."""
        return max(
            _ceil_div(self.dims_end - self.dims_start, self.dims_step),
            _ceil_div(self.points_end - self.points_start, self.points_step),
        )


def baseline_loss(points: int, dims: int) -> float:
    """Return the mean error of least squares on linear functions, over all points of a sequence.

    With ``k`` points seen, least squares leaves the weights of ``dims - k`` directions at zero.
    Each adds 1 / dims to the expected squared error, the variance of a coordinate here.

    The paper's published code divides losses by a number ``dims`` times as large, which is right
    for coordinates of variance 1 but not for those it draws: its "excess loss" is ``dims`` times
    too small.

    Parameters
    ----------
    points : int
        Points of a sequence ``N``.
    dims : int
        Active dimensions ``d``.

    Returns
    -------
    float
        ``sum(max(1 - k / d, 0) for k in range(N)) / N``.

    Raises
    ------
    ValueError
        If an argument is no integer of at least 1.

    Examples
    --------
    >>> baseline_loss(128, 64)
    0.25390625
    """
    num_points, num_dims = count("points", points), count("dims", dims)
    return sum(max(num_dims - seen, 0) for seen in range(num_points)) / (num_dims * num_points)


def _ceil_div(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)
