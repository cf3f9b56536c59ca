"""Join the results of jobs, see jobs.py, into the committed files of both tasks.

::

    python benchmarks/collect_runs.py FOLDER [FOLDER ...]

FOLDER is the ``--out`` of ``jobs.py``; a job named ``lm-scaling-mlr-512`` has runs of
``lm/scaling.toml``. The committed file has them in the order of that file, with its names; what is
in no file of runs is left out and told, as is what has no results yet.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import pandas as pd

from mlrforecast.tasks import TaskRun, read_runs
from mlrforecast.tasks.in_context_regression import RegressionRun
from mlrforecast.tasks.language_model import LanguageRun

HERE = Path(__file__).parent
TASKS: dict[str, tuple[type[TaskRun], str]] = {
    "icl": (RegressionRun, "--resume --compile --together 28"),
    "lm": (LanguageRun, "--corpus CORPUS --resume --compile"),
}
_FILLED_IN = ("name", "corpus", "vocabulary")
"""Settings that say nothing of what a file of runs asks for."""


def main() -> None:
    """Join what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    for task in TASKS:
        for file in sorted((HERE / task).glob("*.toml")):
            jobs = f"{task}-{file.stem}"
            found = [
                folder
                for top in arguments.folders
                for folder in [*sorted(top.glob(f"{jobs}-*")), *sorted(top.glob(jobs))]
            ]
            join(task, file, [arguments.results / task / file.stem, *found], arguments.results)


def join(task: str, file: Path, folders: list[Path], results: Path) -> None:
    """Write the results of one file of runs."""
    folders = [folder for folder in folders if (folder / "runs.csv").is_file()]
    if not folders:
        return
    kind, options = TASKS[task]
    # As text: numbers are to stay as they were written.
    read = [
        [pd.read_csv(folder / name, dtype=str, keep_default_na=False) for folder in folders]
        for name in ("runs.csv", "curves.csv")
    ]
    lines, curves = map(pd.concat, read)
    # Of a run that was made twice, the first one counts.
    curves = curves.drop_duplicates(["hash", "step"])
    lines = lines.drop_duplicates("hash").assign(key=lambda frame: frame["settings"].map(_key))
    runs = read_runs(file, kind)
    names = {_key(json.dumps(run.to_dict())): run.name for run in runs}
    keyed = lines.set_index("key")
    mine = keyed.loc[[key for key in names if key in keyed.index]]
    mine = mine.assign(name=mine.index.map(names))
    mine["settings"] = [
        json.dumps(json.loads(settings) | {"name": name})
        for settings, name in zip(mine["settings"], mine["name"], strict=True)
    ]
    mine["command"] = (
        f"mlrforecast {task} train benchmarks/{task}/{file.name} "
        f"--out benchmarks/results/{task}/{file.stem} {options}"
    )
    curves = curves.set_index("hash").loc[mine["hash"]].reset_index()
    out = results / task / file.stem
    out.mkdir(parents=True, exist_ok=True)
    mine.to_csv(out / "runs.csv", index=False, lineterminator="\n")
    curves.to_csv(out / "curves.csv", index=False, lineterminator="\n")
    missing = sorted(set(names.values()) - set(mine["name"]))
    unknown = sorted(keyed.loc[~keyed.index.isin(names), "name"])
    print(f"{task}/{file.stem}: {len(mine)} runs; missing {missing}; in no file {unknown}")


def _key(settings: str) -> str:
    """Return settings as text by which runs are the same."""
    fields: dict[str, Any] = json.loads(settings)
    return json.dumps({k: v for k, v in fields.items() if k not in _FILLED_IN}, sort_keys=True)


if __name__ == "__main__":
    main()
