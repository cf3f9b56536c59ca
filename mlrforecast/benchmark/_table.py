"""The table that a benchmark prints."""

from collections.abc import Sequence

import pandas as pd

from mlrforecast.benchmark._floors import FLOORS


def ett_table(results: pd.DataFrame) -> str:
    """Lay out results as text: one line per model, one column per horizon.

    A field reads ``MSE/MAE``. Folds are averaged for each seed; what follows ``±`` is the sample
    standard deviation over seeds, absent where there is one.

    Parameters
    ----------
    results : DataFrame
        Rows of one data set and target, as :func:`run_ett` returns them.

    Returns
    -------
    str
        The table with its heading and the number of windows of each horizon.

    Raises
    ------
    ValueError
        If there is no row, or rows of several data sets or targets.

    Examples
    --------
    >>> rows = [("ETTh1", "M", "test", 96, "repeat_last", "", "", 1.2944, 0.7132, 2785)]
    >>> names = ["dataset", "target", "split", "horizon", "model", "attention", "seed"]
    >>> print(ett_table(pd.DataFrame(rows, columns=[*names, "mse", "mae", "windows"])))
    ETTh1, target M, test windows: MSE/MAE on values standardised by the train rows
                            96           mean
    repeat_last  1.2944/0.7132  1.2944/0.7132
    windows               2785
    """
    if len(results[["dataset", "target"]].drop_duplicates()) != 1:
        raise ValueError(
            "`results` must hold rows of one data set and one target, got "
            f"{results[['dataset', 'target']].drop_duplicates().to_numpy().tolist()}."
        )
    horizons = sorted(results["horizon"].unique())
    lines = [["", *map(str, horizons), "mean"]]
    for name, rows in _by_model(results):
        fields = [_field(rows[rows["horizon"] == horizon]) for horizon in horizons]
        complete = set(rows["horizon"]) == set(horizons)
        lines.append([name, *fields, _field(rows) if complete else "-"])
    windows = results.groupby("horizon")["windows"].unique()
    lines.append(["windows", *("/".join(map(str, windows[h])) for h in horizons), ""])
    return "\n".join([_heading(results), *_align(lines)])


def _heading(results: pd.DataFrame) -> str:
    first = results.iloc[0]
    folds = sorted(results["split"].unique())
    where = "test windows" if folds == ["test"] else f"mean of {', '.join(folds)}"
    return (
        f"{first['dataset']}, target {first['target']}, {where}: "
        "MSE/MAE on values standardised by the train rows"
    )


def _by_model(results: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Split rows by model, floors first, the rest in order of appearance."""
    labels = (results["model"] + " " + results["attention"].astype(str)).str.strip()
    names = list(dict.fromkeys(labels))
    ordered = [name for name in FLOORS if name in names]
    ordered += [name for name in names if name not in FLOORS]
    return [(name, results[labels == name]) for name in ordered]


def _field(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "-"
    return "/".join(_mean_and_spread(rows, score) for score in ("mse", "mae"))


def _mean_and_spread(rows: pd.DataFrame, score: str) -> str:
    """Average horizons and folds for each seed, then tell mean and spread over the seeds."""
    of_seed = rows.groupby("seed")[score].mean()
    spread = f"±{of_seed.std(ddof=1):.4f}" if len(of_seed) > 1 else ""
    return f"{of_seed.mean():.4f}{spread}"


def _align(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            [line[0].ljust(widths[0])]
            + [field.rjust(width) for field, width in zip(line[1:], widths[1:], strict=True)]
        ).rstrip()
        for line in lines
    ]
