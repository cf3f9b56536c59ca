"""Run a list of commands on the GPUs of one machine within a time limit, several at a time.

Time on a large machine is short and comes in pieces: what ended is not run again, and what was
stopped goes on from where it was, if its command can. Run it from the root of the repository::

    python benchmarks/jobs.py benchmarks/jobs.toml --out FOLDER --limit 560 --set corpus=CORPUS

A job has a ``name`` and a ``command``, in which ``{out}`` is the job's own folder below FOLDER,
``{left}`` the seconds that are left for it, and every ``{NAME}`` a value of ``--set``; perhaps
the ``card`` it must have, ``devices``, how many cards it takes for itself, ``least``, the
seconds below which it does not begin, and ``results``, a folder below ``benchmarks/results``
whose files its own begins with, so that what is committed is not run again. Jobs begin in the
order of the file as slots are free. A job that ends well before the limit is done, and FOLDER
notes it; one that is told by ``{left}`` to end at the limit goes on in the next call.
"""

import argparse
import fnmatch
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

_RESULTS = Path(__file__).parent / "results"
_MARGIN = 12.0
"""Seconds before the limit at which jobs end by themselves."""


def main() -> None:
    """Run the jobs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", type=Path, help="a TOML file of jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds until all is stopped")
    parser.add_argument("--slots", default="1", help="jobs at a time on each card, e.g. 2,1")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="names of jobs")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    with arguments.jobs.open("rb") as file:
        jobs = tomllib.load(file)["jobs"]
    patterns = arguments.only or ["*"]
    chosen = [job for job in jobs if any(fnmatch.fnmatch(job["name"], p) for p in patterns)]
    slots = [int(number) for number in arguments.slots.split(",")]
    values = dict(pair.split("=", 1) for pair in arguments.set)
    _Queue(chosen, slots, values, arguments.out, time.monotonic() + arguments.limit).run()


class _Queue:
    """Jobs that wait and those that run."""

    def __init__(
        self,
        jobs: list[dict[str, Any]],
        slots: list[int],
        values: dict[str, str],
        out: Path,
        end: float,
    ) -> None:
        self.slots, self.values, self.out, self.end = slots, values, out, end
        self.done = out / "done.txt"
        out.mkdir(parents=True, exist_ok=True)
        ended = self.done.read_text().split() if self.done.exists() else []
        self.waiting = [job for job in jobs if job["name"] not in ended]
        self.running: list[tuple[dict[str, Any], list[int], subprocess.Popen[bytes], float]] = []
        self.used = [0] * len(slots)

    @property
    def left(self) -> float:
        """Seconds that a job has."""
        return self.end - _MARGIN - time.monotonic()

    def run(self) -> None:
        """Run until nothing is left to do, or the time is over."""
        while time.monotonic() < self.end:
            for job in list(self.waiting):
                cards = self._cards(job)
                if cards and self.left > job.get("least", 15.0):
                    self.waiting.remove(job)
                    self._start(job, cards)
            if not self.running:
                break
            time.sleep(0.2)
            for entry in list(self.running):
                if entry[2].poll() is not None:
                    self._note(entry)
        for _, _, process, _ in self.running:
            process.kill()

    def _cards(self, job: dict[str, Any]) -> list[int]:
        """Return the cards that a job would have now; none, if it has to wait."""
        allowed = [job["card"]] if "card" in job else range(len(self.slots))
        if (count := job.get("devices", 1)) > 1:
            idle = [card for card in allowed if self.used[card] == 0]
            return idle[:count] if len(idle) >= count else []
        free = [card for card in allowed if self.used[card] < self.slots[card]]
        return sorted(free, key=lambda card: self.used[card])[:1]

    def _start(self, job: dict[str, Any], cards: list[int]) -> None:
        folder = self.out / job["name"]
        if not folder.exists():
            folder.mkdir()
            if "results" in job:
                for file in (_RESULTS / job["results"]).glob("*.csv"):
                    shutil.copy(file, folder)
        whole = len(cards) > 1
        for card in cards:
            self.used[card] += self.slots[card] if whole else 1
        command = job["command"].format(out=folder, left=f"{self.left:.0f}", **self.values)
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        with (folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                words,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards))},
            )
        self.running.append((job, cards, process, time.monotonic()))

    def _note(
        self, entry: tuple[dict[str, Any], list[int], subprocess.Popen[bytes], float]
    ) -> None:
        """Note what came of a job that has ended."""
        job, cards, process, began = entry
        self.running.remove(entry)
        for card in cards:
            self.used[card] -= self.slots[card] if len(cards) > 1 else 1
        stopped = "{left}" in job["command"] and self.left <= 0
        state = "stopped" if stopped else "done" if process.returncode == 0 else "failed"
        if state == "done":
            with self.done.open("a") as file:
                file.write(job["name"] + "\n")
        seconds = time.monotonic() - began
        print(f"{job['name']}: {state}, {seconds:.0f} s, cards {cards}", flush=True)


if __name__ == "__main__":
    main()
