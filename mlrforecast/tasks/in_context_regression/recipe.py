"""Models that learn functions from their context: settings, training, and models read back."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlrforecast.models import Regressor, RegressorConfig, count_flops
from mlrforecast.tasks._engine import Execution, train_runs
from mlrforecast.tasks._records import TaskResult, load_model_file
from mlrforecast.tasks._settings import TaskRun
from mlrforecast.tasks._trainee import SequenceCost, Trainee
from mlrforecast.tasks.in_context_regression.curriculum import Curriculum, Stage
from mlrforecast.tasks.in_context_regression.evaluation import evaluate, evaluation_episodes
from mlrforecast.tasks.in_context_regression.functions import Episodes, build_function

__all__ = ["RegressionRun", "load_regressor", "train"]

_EVALUATION_BATCH = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class RegressionRun(TaskRun):
    """One in-context regressor and how it is trained.

    The defaults are the paper's sizes and switches, and a short training.

    Parameters
    ----------
    function : str
        What is learnt in context, see :func:`build_function`.
    function_options : mapping of str to object, optional
        Options of the function class.
    num_dims : int
        Dimensions ``n`` of a point.
    num_points : int, optional
        Points of a sequence. Default: ``2 * num_dims``.
    curriculum_interval : int
        Steps between two stages of :meth:`Curriculum.paper`; 0 for all dimensions and points from
        the start.
    evaluation_episodes : int
        Fresh episodes of an evaluation, the same for all runs of a function and size.
    name, width, num_heads, num_layers, attention, ranks, block_sizes, attention_options
        As in :class:`mlrforecast.tasks.TaskRun`.
    positions, qk_norm, max_steps, batch_size, learning_rate, weight_decay
        As in :class:`mlrforecast.tasks.TaskRun`.
    parametrization, zero_branches, warmup_steps, schedule, gradient_clip, micro_batches
        As in :class:`mlrforecast.tasks.TaskRun`.
    precision, evaluate_every, seed
        As in :class:`mlrforecast.tasks.TaskRun`.

    Raises
    ------
    ValueError
        If a field is out of its range.
    TypeError
        If a field is of the wrong kind.

    Examples
    --------
    >>> run = RegressionRun(num_dims=16, attention="bilinear_btt", width=64, num_heads=8)
    >>> run.curriculum.final_step, run.name
    (24000, 'bilinear_btt-64-0')
    """

    function: str = "linear_regression"
    function_options: Mapping[str, Any] | None = None
    num_dims: int = 16
    num_points: int | None = None
    curriculum_interval: int = 2000
    evaluation_episodes: int = 1024

    task: ClassVar[str] = "in_context_regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_count("num_dims", 1)
        self.check_count("curriculum_interval", 0)
        self.check_count("evaluation_episodes", 2)
        if self.num_points is not None:
            self.check_count("num_points", 1)
        self.check_options("function_options")
        build_function(self.function, **(self.function_options or {}))
        self.model_config  # noqa: B018  # its fields are checked as it is made

    @property
    def points(self) -> int:
        """Points of a sequence at the end of the curriculum."""
        return 2 * self.num_dims if self.num_points is None else self.num_points

    @property
    def curriculum(self) -> Curriculum:
        """How dimensions and points grow."""
        if self.curriculum_interval == 0:
            return Curriculum.constant(self.num_dims, self.points)
        paper = Curriculum.paper(self.num_dims, num_points=self.points)
        return paper.with_interval(self.curriculum_interval)

    @property
    def model_config(self) -> RegressorConfig:
        """What determines the model."""
        return RegressorConfig(
            num_dims=self.num_dims, num_points=self.points, **self.model_options()
        )

    def load_model(self, folder: Path) -> Regressor:
        """Return the trained model in a folder."""
        return load_regressor(folder)[0]


class RegressionTrainee(Trainee):
    """A regressor in training on a class of functions."""

    run: RegressionRun
    model: Regressor

    def __init__(self, run: RegressionRun) -> None:
        model = Regressor(run.model_config)
        super().__init__(run, model)
        self._function = build_function(run.function, **(run.function_options or {}))
        self._curriculum = run.curriculum
        self._costs: dict[int, SequenceCost] = {}

    @property
    def grows(self) -> bool:
        """Whether the curriculum has fewer points at first."""
        return self.stage(0).points < self.run.points

    def stage(self, step: int) -> Stage:
        """Return dimensions and points of a step."""
        return self._curriculum.stage(step)

    def cost(self, stage: Hashable) -> SequenceCost:
        """Return what a sequence of so many points costs."""
        assert isinstance(stage, Stage)
        if stage.points not in self._costs:
            tokens = 2 * stage.points
            paper = count_flops(self.model, tokens, convention="paper")
            matmul = count_flops(self.model, tokens, convention="matmul")
            self._costs[stage.points] = SequenceCost(tokens, paper.total, matmul.training())
        return self._costs[stage.points]

    def draw(
        self, stage: Hashable, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, ...]:
        """Draw episodes."""
        assert isinstance(stage, Stage)
        return self._function.draw(
            batch_size,
            stage.points,
            self.run.num_dims,
            active_dims=stage.dims,
            generator=generator,
        )

    def loss(self, *batch: Tensor) -> Tensor:
        """Return the mean squared error over all points."""
        xs, ys, targets = batch
        error: Tensor = self.model(xs, ys) - targets
        return error.float().square().mean()

    def evaluate(self) -> dict[str, float]:
        """Return the error at the last point, its standard error, and the mean over all points."""
        run = self.run
        table = evaluate(
            self._predict,
            evaluation_episodes(
                self._function,
                run.points,
                run.num_dims,
                num_episodes=run.evaluation_episodes,
                batch_size=_EVALUATION_BATCH,
                device=self.draws_on,
            ),
        )
        last = table.iloc[-1]
        return {
            "score": float(last["error"]),
            "standard_error": float(last["standard_error"]),
            "mean_error": float(table["error"].mean()),
        }

    def _predict(self, episodes: Episodes) -> Tensor:
        predictions: Tensor = self.model(episodes.xs, episodes.ys)
        return predictions

    def conclude(self, scores: dict[str, list[float]]) -> dict[str, float]:
        """Return by which share the error moved in the last quarter of the training.

        It is taken between the means of the scores around three quarters of the way, and of the
        last ones, a tenth of the training each.
        """
        steps, end = torch.tensor(scores["step"]), self.run.max_steps
        errors = torch.tensor(scores["score"], dtype=torch.float64)
        before = errors[(steps >= 0.70 * end) & (steps <= 0.80 * end)].mean()
        after = errors[steps >= 0.90 * end].mean()
        change = (before - after).abs() / before
        return {} if not bool(change.isfinite()) else {"last_quarter_change": float(change)}


def train(
    runs: RegressionRun | Sequence[RegressionRun],
    *,
    out: str | Path | None = None,
    resume: bool = False,
    execution: Execution | None = None,
    command: str = "",
) -> list[TaskResult]:
    """Train in-context regressors.

    Parameters
    ----------
    runs : RegressionRun or sequence of RegressionRun
        What to train.
    out : str or Path, optional
        Folder of the results: ``runs.csv``, ``curves.csv`` and the trained models. Default:
        nothing is written.
    resume : bool
        Whether runs whose results are in ``out`` are skipped, and unfinished ones go on.
    execution : Execution, optional
        How to compute.
    command : str
        What the results say that they were made by.

    Returns
    -------
    list of TaskResult
        One for each run that has ended.

    Raises
    ------
    ValueError
        If ``out`` holds results of a run and ``resume`` is False, or one run is there twice.

    Examples
    --------
    >>> run = RegressionRun(
    ...     num_dims=2, width=16, num_heads=2, num_layers=1, max_steps=3, evaluation_episodes=4
    ... )
    >>> [result] = train(run, execution=Execution(accelerator="cpu", progress=False))
    >>> sorted(result.scores)
    ['mean_error', 'score', 'standard_error']
    """
    listed = [runs] if isinstance(runs, RegressionRun) else list(runs)
    return train_runs(listed, _build, out=out, resume=resume, execution=execution, command=command)


def _build(run: TaskRun) -> RegressionTrainee:
    assert isinstance(run, RegressionRun)
    return RegressionTrainee(run)


def load_regressor(folder: str | Path) -> tuple[Regressor, RegressionRun]:
    """Read a trained model.

    Parameters
    ----------
    folder : str or Path
        One of the folders in ``models`` of the results.

    Returns
    -------
    model : Regressor
        On the CPU, in evaluation mode.
    run : RegressionRun
        How it was trained.

    Raises
    ------
    ModelFileError
        If a file is missing, was altered, or is of another task.

    Examples
    --------
    >>> import tempfile
    >>> from mlrforecast.tasks import Execution
    >>> run = RegressionRun(num_dims=2, width=8, num_heads=1, num_layers=1, max_steps=2)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     _ = train(run, out=out, execution=Execution(accelerator="cpu", progress=False))
    ...     [folder] = (Path(out) / "models").iterdir()
    ...     model, found = load_regressor(folder)
    >>> found == run, model(torch.zeros(1, 3, 2), torch.zeros(1, 3)).shape
    (True, torch.Size([1, 3]))
    """
    return load_model_file(folder, RegressionRun, lambda run: Regressor(run.model_config))
