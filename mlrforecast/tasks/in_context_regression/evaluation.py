"""How well a rule predicts each point, on episodes that nothing was trained on."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from mlrforecast.tasks._checks import count
from mlrforecast.tasks._seeds import draw_seed
from mlrforecast.tasks.in_context_regression.comparators import comparators
from mlrforecast.tasks.in_context_regression.functions import Episodes, FunctionClass

__all__ = ["comparator_errors", "evaluate", "evaluation_episodes"]


def evaluation_episodes(
    function: FunctionClass,
    num_points: int,
    num_dims: int,
    *,
    active_dims: int | None = None,
    seed: int = 0,
    num_episodes: int = 3200,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
) -> Iterator[Episodes]:
    """Draw fresh episodes, batch by batch.

    Their seeds are none of those that draws for training have, of any run. The same arguments give
    the same episodes again on the same kind of device, so that models and comparators can be
    evaluated on the same ones.

    Parameters
    ----------
    function : FunctionClass
        Where functions are drawn from.
    num_points, num_dims : int
        Points of an episode, and their dimensions.
    active_dims : int, optional
        Dimensions that are not 0. Default: all.
    seed : int, default 0
        At least 0.
    num_episodes : int, default 3200
        Episodes in all.
    batch_size : int, default 64
        Episodes of a batch; the last batch may have fewer.
    device : device, default "cpu"
        Where they are drawn.

    Yields
    ------
    Episodes
        The next batch.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> from mlrforecast.tasks.in_context_regression import LinearRegression
    >>> batches = evaluation_episodes(LinearRegression(), 8, 4, num_episodes=100)
    >>> [batch.xs.shape for batch in batches]
    [torch.Size([64, 8, 4]), torch.Size([36, 8, 4])]
    """
    episodes, size = count("num_episodes", num_episodes), count("batch_size", batch_size)
    # Checked here, and not when the first batch is asked for.
    first_seed = draw_seed(seed, 0, "evaluation")

    def batches() -> Iterator[Episodes]:
        generator = torch.Generator(device).manual_seed(first_seed)
        for at in range(0, episodes, size):
            generator.manual_seed(draw_seed(seed, at // size, "evaluation"))
            yield function.draw(
                min(size, episodes - at),
                num_points,
                num_dims,
                active_dims=active_dims,
                generator=generator,
                device=device,
            )

    return batches()


def evaluate(predict: Callable[[Episodes], Tensor], batches: Iterable[Episodes]) -> pd.DataFrame:
    """Return the mean squared error at each point.

    Parameters
    ----------
    predict : callable
        Takes :class:`Episodes` and returns a prediction of every target, of the shape (B, N): a
        comparator, or ``lambda episodes: model(episodes.xs, episodes.ys)``. It is called without
        gradients.
    batches : iterable of Episodes
        Episodes of as many points each, at least two in all.

    Returns
    -------
    DataFrame
        A row a point, with the columns ``point`` (how many points came before), ``error`` (mean
        squared error) and ``standard_error`` (of that mean, over episodes).

    Raises
    ------
    ValueError
        If there are fewer than two episodes, their numbers of points differ, or predictions have
        another shape than targets.

    Examples
    --------
    >>> from mlrforecast.tasks.in_context_regression import LinearRegression, zero
    >>> table = evaluate(zero, evaluation_episodes(LinearRegression(), 3, 2))
    >>> list(table.columns), table["error"].round(1).tolist()
    (['point', 'error', 'standard_error'], [1.0, 1.0, 1.0])
    """
    errors: list[Tensor] = []
    for episodes in batches:
        with torch.no_grad():
            predictions = predict(episodes)
        targets = episodes.targets
        if predictions.shape != targets.shape:
            raise ValueError(
                f"`predict` must return a prediction of every target, the shape "
                f"{tuple(targets.shape)}, got {tuple(predictions.shape)}."
            )
        if errors and targets.shape[1] != errors[0].shape[1]:
            raise ValueError(
                f"`batches` must have {errors[0].shape[1]} points each, as the first one, got "
                f"{targets.shape[1]}."
            )
        exact = (part.to("cpu", torch.float64) for part in (predictions, targets))
        errors.append((next(exact) - next(exact)).square())
    if (num_episodes := sum(map(len, errors))) < 2:
        raise ValueError(f"`batches` must hold at least two episodes, got {num_episodes}.")
    squared = torch.cat(errors)
    return pd.DataFrame(
        {
            "point": range(squared.shape[1]),
            "error": squared.mean(0).numpy(),
            "standard_error": (squared.std(0) / num_episodes**0.5).numpy(),
        }
    )


def comparator_errors(
    function: FunctionClass, num_points: int, num_dims: int, **options: Any
) -> pd.DataFrame:
    """Return the mean squared error of every comparator at each point, on the same episodes.

    Parameters
    ----------
    function : FunctionClass
        Where functions are drawn from.
    num_points, num_dims : int
        Points of an episode, and their dimensions.
    **options : object
        Further arguments of :func:`evaluation_episodes`.

    Returns
    -------
    DataFrame
        Rows as of :func:`evaluate`, behind a column ``method``.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> from mlrforecast.tasks.in_context_regression import LinearRegression
    >>> errors = comparator_errors(LinearRegression(), 6, 2, num_episodes=64)
    >>> last = errors[errors["point"] == 5].set_index("method")["error"]
    >>> bool(last["least_squares"] < 1e-9 < last["ridge"] < last["zero"])
    True
    """
    tables = []
    for name in comparators:
        batches = evaluation_episodes(function, num_points, num_dims, **options)
        table = evaluate(comparators[name], batches)
        table.insert(0, "method", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)
