"""Write the tables of forecast errors in the README and in ``docs/ett.md`` from result files.

    python benchmarks/ett_report.py

Run from the repository root after new results and ``python docs/make_figures.py ett``; a test
compares both pages with the files. What has no results is left out.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path.insert(0, str(ROOT / "docs"))

# The pictures of the page show the same files in the same order.
import figure_ett  # noqa: E402

# File, what opens the mark that begins a part, and the mark that ends it.
README = (ROOT / "README.md", "<!-- etth1-table:", "<!-- etth1-table-end -->")
PAGE = (ROOT / "docs" / "ett.md", "<!-- ett-results:", "<!-- ett-results-end -->")
# By their names where a row is an hour, and where it is not.
FLOORS = {
    "repeat_last": ("repeat the last value", "repeat the last value"),
    "seasonal_naive_24": ("seasonal naive, a day", "seasonal naive, 24 rows"),
    "seasonal_naive_168": ("seasonal naive, a week", "seasonal naive, 168 rows"),
    "profile_7d": ("mean of the last 7 days", "mean of the last 7 times 24 rows"),
}
HOURLY = {"ETTh1", "ETTh2"}
PICTURES = {
    "ett_error_by_step.png": "Mean squared error by step ahead, of each data set",
    "ett_week.png": "A week of some series of ETTh1, forecast and actual",
}
# Lago et al., Applied Energy 293, 2021: mean absolute errors over the test years.
PUBLISHED_PRICES = {"LEAR, an ensemble": "1.738", "DNN, an ensemble": "1.683"}


def readme_table(results: Path = RESULTS) -> str:
    """Return the table of ETTh1 as Markdown: floors and own models, mean and spread over seeds."""
    own = read_runs(results / "ett" / "ETTh1_M_final.csv")
    horizons = sorted(own["horizon"].unique())
    rows = [[name, *_cells(runs, horizons)] for name, _, runs in own_models(own)]
    return f"{_table(_heads(horizons), rows)}\n\n{_made(own)}"


def page_section(results: Path = RESULTS, images: Path = ROOT / "docs" / "img") -> str:
    """Return the results of the page as Markdown."""
    parts = [
        "## Test windows",
        *(_data_set(path, results) for path in figure_ett.final_files(results / "ett")),
    ]
    for name, title in PICTURES.items():
        if (images / name).is_file():
            parts.append(f"![{title}](img/{name})")
    if (log := results / "ett" / "final_runs.log").is_file():
        parts.append(f"## Every look at the test windows\n\n{_log(log)}")
    if (prices := results / "epf" / "epf.csv").is_file():
        parts.append(f"## Day-ahead prices\n\n{_prices(read_runs(prices))}")
    return "\n\n".join(parts)


def insert(page: str, start: str, end: str, text: str) -> str:
    """Put text between its two marks."""
    head, rest = page.split(start, 1)
    mark, rest = rest.split("-->", 1)
    return f"{head}{start}{mark}-->\n{text}\n{end}{rest.split(end, 1)[1]}"


def read_runs(path: Path) -> pd.DataFrame:
    """Read runs; a digest stays text, whatever number it looks like."""
    runs = pd.read_csv(path, dtype={"seed": str, "config_hash": str})
    return runs.fillna({"attention": "", "seed": "", "config_hash": ""})


def own_models(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield name, origin and runs of each floor, then of each attention and its settings."""
    for floor, (hourly, other) in FLOORS.items():
        if not (rows := runs[runs["model"] == floor]).empty:
            yield hourly if HOURLY.issuperset(rows["dataset"]) else other, "no training", rows
    fits = runs[runs["seed"] != ""]
    names = {"standard": "standard attention", "mlr": "MLR attention"}
    for attention in sorted(fits["attention"].unique(), key=lambda name: (name == "mlr", name)):
        rows = fits[fits["attention"] == attention]
        ours = "**MLRForecaster**" if attention == "mlr" else "MLRForecaster"
        name = f"{ours}, {names.get(attention, attention)}"
        for digest in (digests := rows["config_hash"].unique()):
            of_these = f", settings {digest}" if len(digests) > 1 else ""
            yield f"{name}{of_these}", "this library", rows[rows["config_hash"] == digest]


def _data_set(path: Path, results: Path) -> str:
    """Return the table of one file, with peers and published numbers where there are some."""
    own = read_runs(path)
    dataset, target = own.loc[0, ["dataset", "target"]]
    horizons = sorted(own["horizon"].unique())
    rows = [[name, origin, *_cells(runs, horizons)] for name, origin, runs in own_models(own)]
    notes = [_made(own)]
    peers = results / "peers" / f"{dataset}_{target}_peers.csv"
    if peers.is_file():
        others = read_runs(peers)
        for model, runs in others.groupby("model", sort=False):
            rows.append([str(model), "run again", *_cells(runs, horizons)])
        notes.append(f"Run again by `benchmarks/ett_peers.py`: {_time(others)}.")
    published = read_runs(results / "ett" / "published.csv").assign(seed="")
    published = published[(published["dataset"] == dataset) & (published["target"] == target)]
    sources = []
    for model, runs in published.groupby("model", sort=False):
        rows.append([str(model), "quoted", *_cells(runs, horizons, digits=3)])
        sources.append(f"{model} from {runs['source'].iloc[0]}")
    if sources:
        notes.append(f"Quoted, not measured here: {'; '.join(sources)}.")
    title = f"### {dataset}, {'all series' if target == 'M' else f'the series {target} alone'}"
    heads = _heads(horizons)
    heads.insert(1, "from")
    return f"{title}\n\n{_table(heads, rows)}\n\n{' '.join(notes)}"


def _heads(horizons: Sequence[int]) -> list[str]:
    return ["MSE / MAE at horizon", *map(str, horizons), "mean"]


def _cells(runs: pd.DataFrame, horizons: Sequence[int], digits: int = 4) -> list[str]:
    """Return the errors at each horizon, and their mean over all horizons of each seed."""
    cells = [_cell(runs[runs["horizon"] == horizon], digits) for horizon in horizons]
    seeds = runs.groupby("seed")
    whole = seeds["horizon"].nunique() == len(horizons)
    return [*cells, _cell(seeds[["mse", "mae"]].mean()[whole], digits)]


def _cell(rows: pd.DataFrame, digits: int) -> str:
    if rows.empty:
        return ""
    spread = f" ± {rows['mse'].std():.{digits}f}" if len(rows) > 1 else ""
    absolute = "" if rows["mae"].isna().any() else f" / {rows['mae'].mean():.{digits}f}"
    return f"{rows['mse'].mean():.{digits}f}{spread}{absolute}"


def _made(runs: pd.DataFrame) -> str:
    """Say on what windows and how long the fits of a file were made."""
    windows = "/".join(str(count) for count in runs.groupby("horizon")["windows"].first())
    fits = runs[runs["seed"] != ""]
    jobs = fits["command"].str.extract(r"--jobs (\d+)")[0].fillna("1").astype(int).max()
    shared = f", shared by {jobs} fits" if jobs > 1 else ""
    return (
        f"Full test windows ({windows}), values standardised by the train rows. "
        f"MLRForecaster: {_time(fits)}{shared}."
    )


def _time(fits: pd.DataFrame) -> str:
    """Say how many seeds there are, and how long a fit took on what."""
    seeds = fits["seed"].nunique()
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    hardware = " and ".join(sorted(fits["hardware"].unique()))
    return f"{over}, {fits['train_seconds'].median():.0f} s a fit (median) on {hardware}"


def _log(path: Path) -> str:
    """Return a table of all commands that have scored test windows."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [
        [str(number), entry["time"], f"`{entry['config_hash']}`", f"`{entry['command']}`"]
        for number, entry in enumerate(entries, start=1)
    ]
    return _table(["", "begun", "settings", "command"], rows)


def _prices(runs: pd.DataFrame) -> str:
    """Return the errors over the test years and over those where settings are chosen."""
    rows = []
    for part in ("test", "validation"):
        here = runs[runs["part"] == part]
        keys = ["model", "refit_days", "hours", "config_hash"]
        for (model, days, hours, _), fits in here.groupby(keys, sort=False, dropna=False):
            spread = f" ± {fits['mae'].std():.3f}" if len(fits) > 1 else ""
            rows.append([
                part, model, _days(days), f"{hours // 24}",
                f"{fits['mae'].mean():.3f}{spread}", f"{fits['rmse'].mean():.3f}",
            ])  # fmt: skip
        if part == "test" and not here.empty:
            rows += [
                [part, f"{model} (quoted)", _days(1), "728", error, ""]
                for model, error in PUBLISHED_PRICES.items()
            ]
    heads = ["years", "forecast", "fitted anew every", "days", "MAE, EUR/MWh", "RMSE"]
    fits = runs[runs["seed"] != ""]
    seconds = (fits["seconds"] / fits["fits"]).median()
    hardware = " and ".join(sorted(fits["hardware"].unique()))
    return f"{_table(heads, rows)}\n\nA fit took {seconds:.0f} s (median) on {hardware}."


def _days(count: float) -> str:
    if pd.isna(count):
        return ""
    return "day" if count == 1 else f"{count:g} days"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    for (path, start, end), text in ((README, readme_table()), (PAGE, page_section())):
        path.write_text(insert(path.read_text(encoding="utf-8"), start, end, text), "utf-8")
