"""Write the ETTh1 table of the README from the committed result files.

    python benchmarks/readme_table.py

Run from the repository root after new results; a test compares the README with the files.
"""

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
START = "<!-- etth1-table:"
END = "<!-- etth1-table-end -->"
ROWS = {
    ("repeat_last", ""): "repeat the last value",
    ("seasonal_naive_24", ""): "seasonal naive, a day",
    ("seasonal_naive_168", ""): "seasonal naive, a week",
    ("profile_7d", ""): "mean of the last 7 days",
    ("MLRForecaster", "standard"): "MLRForecaster, standard attention",
    ("MLRForecaster", "mlr"): "**MLRForecaster** (MLR attention)",
}


def make_table(results: pd.DataFrame) -> str:
    """Return the table as Markdown: MSE / MAE, mean and spread over seeds."""
    horizons = sorted(results["horizon"].unique())
    lines = [
        "| MSE / MAE at horizon | " + " | ".join(map(str, horizons)) + " |",
        "|---|" + "---|" * len(horizons),
    ]
    for (model, attention), name in ROWS.items():
        rows = results[(results["model"] == model) & (results["attention"].fillna("") == attention)]
        cells = [_cell(rows[rows["horizon"] == horizon]) for horizon in horizons]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    fits = results[results["seed"].notna()]
    windows = "/".join(
        str(results[results["horizon"] == horizon]["windows"].iloc[0]) for horizon in horizons
    )
    hardware = ", ".join(sorted(fits["hardware"].unique()))
    jobs = fits["command"].str.extract(r"--jobs (\d+)")[0].fillna("1").astype(int).max()
    shared = f", shared by {jobs} fits" if jobs > 1 else ""
    lines += [
        "",
        f"Full test windows ({windows}), values standardised by the train rows; mean ± standard "
        f"deviation over {fits['seed'].nunique()} seeds. Short training: "
        f"{fits['train_seconds'].median():.0f} s a fit (median) on one {hardware}"
        f"{shared}.",
    ]
    return "\n".join(lines)


def _cell(rows: pd.DataFrame) -> str:
    mse, mae = rows["mse"].mean(), rows["mae"].mean()
    if len(rows) == 1:
        return f"{mse:.4f} / {mae:.4f}"
    return f"{mse:.4f} ± {rows['mse'].std():.4f} / {mae:.4f}"


def insert(readme: str, table: str) -> str:
    """Put the table between its two marks."""
    head, rest = readme.split(START, 1)
    mark, _ = rest.split("-->", 1)
    _, tail = rest.split(END, 1)
    return f"{head}{START}{mark}-->\n{table}\n{END}{tail}"


def read_results() -> pd.DataFrame:
    """Read the committed runs on the test windows."""
    return pd.read_csv(ROOT / "benchmarks" / "results" / "ett" / "ETTh1_M_final.csv")


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(insert(path.read_text(encoding="utf-8"), make_table(read_results())), "utf-8")
