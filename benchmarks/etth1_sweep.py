"""Run the sweep of the preset ``etth1``, and keep its trials and the best configuration as files.

Run it from the root of the repository; the data file is found, or fetched, by ``load_dataset``::

    python benchmarks/etth1_sweep.py benchmarks/results/sweeps/etth1 --jobs 15

It has 32 trials of three folds, one thread each; ``--jobs`` run at a time. It goes on where it was
stopped if ``--storage`` names a folder.
"""

import argparse
import json
import tempfile
from pathlib import Path

from mlrforecast.tuning import presets, tune


def main() -> None:
    """Run the sweep and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--storage", type=Path)
    arguments = parser.parse_args()
    preset = presets["etth1"]
    with tempfile.TemporaryDirectory() as folder:
        storage = arguments.storage or Path(folder, "sweep")
        result = tune(
            preset.forecaster(accelerator="cpu"),
            preset.load(),
            preset.space,
            executor="local",
            max_concurrent=arguments.jobs,
            storage_path=storage,
            resume=(storage / "sweep.json").exists(),
            refit=False,
            **preset.options,
        )
    arguments.output.mkdir(parents=True, exist_ok=True)
    result.trials.to_csv(arguments.output / "trials.csv", index=False)
    result.curves.to_csv(arguments.output / "curves.csv", index=False)
    best = {"score": result.best_score, "metric": result.metric, "config": result.best_config}
    (arguments.output / "best.json").write_text(json.dumps(best, indent=1) + "\n")
    result.plot(arguments.output / "report.png")


if __name__ == "__main__":
    main()
