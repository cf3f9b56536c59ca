"""What ``mlrforecast benchmark`` prints."""

from collections.abc import Iterator
from pathlib import Path

from mlrforecast.benchmark import EttConfig, count_final_runs, ett_table, run_ett


def run_and_report(config: EttConfig, *, out: Path, jobs: int) -> Iterator[str]:
    """Run the ETT benchmark with a progress bar and tell its results, line by line."""
    results = run_ett(config, out=out, jobs=jobs, progress=True)
    yield ett_table(results)
    if config.final:
        windows = results.drop_duplicates("horizon").set_index("horizon")["windows"]
        counts = "/".join(str(windows[horizon]) for horizon in config.horizons)
        yield f"Full test windows, none dropped: {counts}"
    yield f"Final runs on record in {out.resolve().name}: {count_final_runs(out)}"
