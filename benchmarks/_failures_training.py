"""The groups "fit" and "backtest" of ``failures.py``: killed, and started again."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _failures_lab import (
    Row,
    Workshop,
    attempt,
    count_steps,
    fit,
    frame,
    kill_before,
    kill_in_step,
    limit_files,
    told,
    weights,
)


def steps_of(act: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a call returns, and the optimiser steps that it made; once in a process."""
    count = count_steps()
    return act(), count.number


class Run(NamedTuple):
    """Something that trains, and what must come out of it.

    Parameters
    ----------
    what : str
        In words.
    act : callable
        Trains with some folder of checkpoints, or None, and returns a digest of the outcome.
    """

    what: str
    act: Callable[[Path | None], str]

    def unbroken(self) -> tuple[str, int]:
        """Return the digest of a run without checkpoints, and its optimiser steps."""
        end = attempt(lambda: steps_of(lambda: self.act(None)))
        if end.kind != "returned":
            raise RuntimeError(f"{self.what}: {end.kind} {end.value}")
        digest, steps = end.value
        return digest, steps

    def again(self, folder: Path, expected: tuple[str, int]) -> tuple[str, bool]:
        """Start a run again; return what happened and whether it ended with the same outcome."""
        end = attempt(lambda: steps_of(lambda: self.act(folder)))
        if end.kind != "returned":
            return told(end, folder), False
        digest, steps = end.value
        same = digest == expected[0]
        happened = f"{'same' if same else 'OTHER'} outcome, after {steps} of {expected[1]} steps"
        return happened, same


def fitted(folder: Path | None, **parameters: Any) -> str:
    """Fit a small model, with checkpoints if a folder is named; return the digest of it."""
    return weights(fit(checkpoint_dir=folder, **parameters))


def _backtested(folder: Path | None) -> str:
    forecaster = fit(max_steps=2).set_params(max_steps=6, checkpoint_dir=folder)
    result = forecaster.backtest(frame(), windows=3, refit=True)
    return hashlib.sha256(result.forecast.tobytes()).hexdigest()


FITS = {
    "fit": {},
    "fit with early stopping": {"early_stopping": True},
    "fit with averaged weights and clipping": {"ema_decay": 0.5, "gradient_clip": 0.1},
}


def fits(shop: Workshop) -> Iterator[Row]:
    """Kill fits in steps and in the writing of checkpoints."""
    for what, parameters in FITS.items():
        run = Run(what, partial(fitted, **parameters))
        expected = run.unbroken()
        for number in (1, 2, 7, expected[1]):
            yield _killed(shop, run, expected, f"in step {number}", partial(kill_in_step, number))
        yield from _killed_writing(shop, run, expected, most=12 if what == "fit" else 4)
    run = Run("fit", fitted)
    expected = run.unbroken()
    yield _killed(shop, run, expected, "a checkpoint ends in its middle", _die_in_mid_write)
    yield _twice_killed(shop, run, expected)
    yield _finished(shop, run, expected)


def backtests(shop: Workshop) -> Iterator[Row]:
    """Kill a backtest inside a fit, between two, and in the writing of a checkpoint."""
    run = Run("backtest with 3 fits of 6 steps", _backtested)
    expected = run.unbroken()
    # The first two steps are those of the fit before the backtest.
    for number, where in (
        (3, "in the first step of the first fit"),
        (6, "inside the first fit"),
        (9, "between two fits"),
        (12, "inside the second fit"),
        (20, "in the last step of all"),
    ):
        yield _killed(shop, run, expected, where, partial(kill_in_step, number))
    yield from _killed_writing(shop, run, expected, most=6)


def _die_in_mid_write() -> None:
    limit_files(4000, deadly=True)


def _killed(
    shop: Workshop, run: Run, expected: tuple[str, int], where: str, fatal: Callable[[], None]
) -> Row:
    """Kill a run and start it again."""
    folder = shop.fresh()
    end = attempt(lambda: (fatal(), run.act(folder)))
    happened, same = run.again(folder, expected)
    return Row(
        run.what,
        where,
        f"process killed ({end.value})" if end.kind == "killed" else told(end, folder),
        "started again, it ends with the same outcome to the bit",
        happened,
        end.kind == "killed" and same,
    )


def _killed_writing(
    shop: Workshop, run: Run, expected: tuple[str, int], most: int
) -> Iterator[Row]:
    """Kill before each of the first operations on the disk; those of a checkpoint are three."""
    for number in range(1, most + 1):
        folder = shop.fresh()
        end = attempt(lambda n=number, f=folder: (kill_before(n), run.act(f)))
        if end.kind == "returned":
            return
        happened, same = run.again(folder, expected)
        left = [file.name for file in folder.glob(".*")] if folder.exists() else []
        yield Row(
            run.what,
            f"before disk operation {number} of its checkpoints",
            f"process killed ({end.value})",
            "started again, it ends with the same outcome to the bit; no draft is left",
            f"{happened}; drafts left: {len(left)}",
            end.kind == "killed" and same and not left,
        )


def _twice_killed(shop: Workshop, run: Run, expected: tuple[str, int]) -> Row:
    folder = shop.fresh()
    for number in (5, 3):
        attempt(lambda n=number: (kill_in_step(n), run.act(folder)))
    happened, same = run.again(folder, expected)
    how = "process killed (SIGKILL), twice"
    return Row(run.what, "in step 5, then 3 steps on", how, "same weights", happened, same)


def _finished(shop: Workshop, run: Run, expected: tuple[str, int]) -> Row:
    folder = shop.fresh()
    run.again(folder, expected)
    happened, same = run.again(folder, expected)
    at_once = "after 0 of" in happened
    return Row(run.what, "after its end", "none", "done at once", happened, same and at_once)
