"""Write the results of the pages on the two tasks from the committed result files.

    python benchmarks/task_pages.py

Run from the repository root after new results and ``python docs/make_figures.py tasks``; a test
compares the pages with the files. What has no results is left out.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

# They lie beside the pages.
from figure_tasks import BOTTLENECKS, RESULTS, runs_of  # noqa: E402

_SCALING = """\
Losses in nats a token, of as many tokens each. What is said beside standard attention is said of
its learning rate of the lowest mean loss at the smallest width. The difference at equal tokens is
that of runs of the same width, seed and batches, with its 95% interval by Student's t. At equal
paper FLOPs the loss of standard attention is taken from the line through the means of its two
nearest widths, logarithms of both: learning rates fall to 0 at the end of a run, so a longer one
cut short would be no fair comparison.""".replace("\n", " ")
PAGES = {"icl": "in-context-regression.md", "lm": "language-model.md"}
START, END = "<!-- results -->", "<!-- results-end -->"


def section(task: str, results: Path = RESULTS, images: Path = ROOT / "docs" / "img") -> str:
    """Return the results of a task as Markdown, which is empty if there are none."""
    parts = []
    names = {
        "icl": (*BOTTLENECKS, "rates-16"),
        "lm": ("scaling", "rates", "levels", "mup", "long"),
    }[task]
    for name in names:
        if (found := runs_of(task, name, results)) is None:
            continue
        runs, curves = found
        parts.append(
            f"### {name}\n\n{_TABLES[name](runs, curves)}\n\n{_made(runs, f'{task}/{name}')}"
        )
        parts += [
            f"![{runs['task'].iloc[0].replace('_', ' ')}, {name}](img/{picture})"
            for picture in (f"{task}_{name}.png", f"{task}_{name}_points.png")
            if (images / picture).is_file()
        ]
    return "".join(f"\n{part}\n" for part in ["## Results", *parts]) if parts else ""


def insert(page: str, text: str) -> str:
    """Put a section between its two marks."""
    head, rest = page.split(START, 1)
    return f"{head}{START}\n{text}{END}{rest.split(END, 1)[1]}"


def _made(runs: pd.DataFrame, folder: str) -> str:
    """Say how the runs were made."""
    hardware = ", ".join(sorted(runs["hardware"].unique()))
    together = int(runs["together"].max())
    beside = f", up to {together} at a time" if together > 1 else ""
    steps = ", ".join(f"{int(count):,}" for count in sorted(runs["steps"].unique()))
    return (
        f"{len(runs)} runs of {steps} steps on {hardware}{beside}; mean ± standard deviation where "
        f"there are several seeds. Settings and commands: `benchmarks/results/{folder}/runs.csv`."
    )


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(values: pd.Series) -> str:
    if values.empty:
        return ""
    spread = f" ± {values.std():.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"


def _bottleneck(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
    """Error at the last point by score and width, and how far it still moved."""
    del curves
    widths = sorted(runs["width"].unique())
    rows = []
    for kind in runs["kind"].unique():
        here = runs[runs["kind"] == kind]
        cells = [_cell(here[here["width"] == width]["score"]) for width in widths]
        moved = here["last_quarter_change"].max() if "last_quarter_change" in here else np.nan
        rows.append([kind, *cells, "" if np.isnan(moved) else f"{moved:.1%}"])
    heads = [f"width {int(width)}" for width in widths]
    return _table(["score", *heads, "moved in the last quarter, at most"], rows)


def _scaling(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
    """Loss at equal tokens, and what it is beside standard attention at equal tokens and FLOPs."""
    del curves
    rows = []
    standard = _best_rates(runs[runs["kind"] == "standard"])
    for (width, kind, rate), here in runs.groupby(["width", "kind", "learning_rate"]):
        row = [str(int(width)), str(kind), f"{rate:g}", _cell(here["score"])]
        if kind == "standard":
            rows.append([*row, "", ""])
            continue
        beside = standard[standard["width"] == width].set_index("seed")["score"]
        difference = (here.set_index("seed")["score"] - beside).dropna()
        equal = here["score"].mean() - _loss_at(standard, here["paper_flops"].mean())
        rows.append([*row, _interval(difference), "" if np.isnan(equal) else f"{equal:+.4f}"])
    columns = [
        "width", "score", "learning rate", "loss",
        "minus standard, equal tokens", "minus standard, equal FLOPs",
    ]  # fmt: skip
    return f"{_table(columns, rows)}\n\n{_SCALING}"


def _best_rates(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs of each kind that have its learning rate of the lowest mean score.

    It is the mean over seeds at the smallest width, from where muP carries it to the others.
    """
    smallest = runs[runs["width"] == runs["width"].min()]
    means = smallest.groupby(["kind", "learning_rate"], as_index=False)["score"].mean()
    best = means.loc[means.groupby("kind")["score"].idxmin(), ["kind", "learning_rate"]]
    return runs.merge(best, on=["kind", "learning_rate"])


def _loss_at(standard: pd.DataFrame, flops: float) -> float:
    """Return the loss of standard attention of the width that uses so many FLOPs."""
    means = standard.groupby("width")[["paper_flops", "score"]].mean().sort_values("paper_flops")
    if len(means) < 2:
        return np.nan
    x, y = np.log(means.to_numpy().T)
    at = int(np.clip(np.searchsorted(x, np.log(flops)), 1, len(x) - 1))
    slope = (y[at] - y[at - 1]) / (x[at] - x[at - 1])
    return float(np.exp(y[at] + slope * (np.log(flops) - x[at])))


def _interval(differences: pd.Series) -> str:
    mean, count = differences.mean(), len(differences)
    if count == 0:
        return ""
    if count == 1:
        return f"{mean:+.4f} (1 seed)"
    reach = student.ppf(0.975, count - 1) * differences.std() / np.sqrt(count)
    return f"{mean:+.4f} ({mean - reach:+.4f} to {mean + reach:+.4f}, {count} seeds)"


def _plain(column: str, title: str):  # noqa: ANN202  # a function of the two frames
    def table(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
        del curves
        # Lists of ranks stand as text: those of few levels come first.
        runs = runs.assign(levels=runs[column].astype(str).str.count(","))
        runs = runs.sort_values(["width", "levels", column, "kind"])
        rows = [
            [str(row["kind"]), _setting(row[column]), str(int(row["width"])), f"{row['score']:.4f}"]
            for _, row in runs.iterrows()
        ]
        return _table(["score", title, "width", "loss, nats a token"], rows)

    return table


def _setting(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value).strip("[]")


def _by_rate(*columns: str):  # noqa: ANN202  # a function of the two frames
    def table(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
        """Score by learning rate, a row for each value of the columns."""
        del curves
        rates = sorted(runs["learning_rate"].unique())
        rows = [
            [
                *(_setting(value) for value in values),
                *(_cell(here[here["learning_rate"] == rate]["score"]) for rate in rates),
            ]
            for values, here in runs.groupby(list(columns))
        ]
        titles = ["score" if name == "kind" else name.replace("_", " ") for name in columns]
        return _table([*titles, *(f"{rate:g}" for rate in rates)], rows)

    return table


_TABLES = {
    **dict.fromkeys(BOTTLENECKS, _bottleneck),
    "rates-16": _by_rate("kind", "schedule"),
    "scaling": _scaling,
    "rates": _by_rate("kind"),
    "levels": _plain("ranks", "ranks"),
    "mup": _by_rate("parametrization", "width"),
    "long": _by_rate("kind", "context_length"),
}


if __name__ == "__main__":
    for task, name in PAGES.items():
        path = ROOT / "docs" / name
        path.write_text(insert(path.read_text(encoding="utf-8"), section(task)), "utf-8")
