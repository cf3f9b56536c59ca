"""The group "save" of ``failures.py``: savers that are killed, starved, locked out or many."""

import os
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from _failures_lab import (
    End,
    Row,
    Workshop,
    attempt,
    contents,
    kill_before,
    limit_files,
    told,
    weights,
)

from mlrforecast import MLRForecaster

NOBODY = 65534


def saves(shop: Workshop) -> Iterator[Row]:
    """Kill and starve savers."""
    for earlier in (None, "old"):
        over = "into a new folder" if earlier is None else "over an older model"
        for number in range(1, 100):
            target = shop.fresh(earlier)
            end = attempt(lambda n=number, t=target: (kill_before(n), shop.new.save(t)))
            if end.kind == "returned":
                break
            yield _after_save(shop, target, earlier, f"{over}, before disk operation {number}", end)
        for size, which in _sizes(shop):
            target = shop.fresh(earlier)
            end = attempt(partial(_save_limited, shop, target, size, deadly=True))
            yield _after_save(shop, target, earlier, f"{over}, inside {which}", end)
    yield from _full_disk(shop)
    yield _read_only(shop)
    yield _two_savers(shop)


def _after_save(shop: Workshop, target: Path, earlier: str | None, where: str, end: End) -> Row:
    """Say what is there after a killed save, and after the next one."""
    found = shop.which(target)
    allowed = ["the new model", "the old model" if earlier else "holds no config.json"]
    attempt(lambda: shop.new.save(target, with_context=True))
    clean = contents(target) == contents(shop.folder / "new")
    expected = "the old model or the new one loads" if earlier else "nothing loads, or the new one"
    return Row(
        "save",
        where,
        f"process killed ({end.value})",
        f"{expected}; the next save leaves its files only",
        f"{found}; next save {'left its files only' if clean else 'left other files'}",
        end.kind == "killed" and any(text in found for text in allowed) and clean,
    )


def _save_limited(shop: Workshop, target: Path, size: int, *, deadly: bool = False) -> None:
    limit_files(size, deadly=deadly)
    shop.new.save(target)


def _sizes(shop: Workshop) -> list[tuple[int, str]]:
    """Return sizes at which a save stops, and in which file it does."""
    sizes = [len(content) for content in contents(shop.folder / "new").values()]
    return [(min(sizes) // 2, "its first file"), (max(sizes) - 1, "its largest file")]


def _full_disk(shop: Workshop) -> Iterator[Row]:
    for size, which in _sizes(shop):
        for earlier in (None, "old"):
            target = shop.fresh(earlier)
            end = attempt(partial(_save_limited, shop, target, size))
            there = contents(target) if target.exists() else {}
            kept = there == (contents(shop.folder / "old") if earlier else {})
            yield Row(
                "save",
                "over an older model" if earlier else "into a new folder",
                f"no room for all of {which}",
                "OSError that names `path`; the folder is as it was",
                f"{told(end, target.parent)}; folder {'as it was' if kept else 'changed'}",
                end.kind == "raised" and "`path` cannot be written" in end.value and kept,
            )


def _read_only(shop: Workshop) -> Row:
    target = shop.fresh("old")
    for path in (target, target.parent, shop.folder):
        path.chmod(0o755)
    target.chmod(0o555)

    def act() -> None:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        shop.new.save(target)

    end = attempt(act)
    target.chmod(0o755)
    kept = contents(target) == contents(shop.folder / "old")
    return Row(
        "save",
        "over an older model",
        "folder that may not be written to",
        "PermissionError that names `path`; the folder is as it was",
        f"{told(end, target.parent)}; folder {'as it was' if kept else 'changed'}",
        end.kind == "raised" and end.value.startswith("PermissionError") and kept,
    )


def _two_savers(shop: Workshop) -> Row:
    target = shop.fresh("old")

    def save_often(model: MLRForecaster) -> None:
        for _ in range(30):
            model.save(target)

    fork = get_context("fork")
    savers = [fork.Process(target=save_often, args=(model,)) for model in (shop.old, shop.new)]
    for saver in savers:
        saver.start()
    known = {weights(shop.old), weights(shop.new)}

    def load_often() -> int:
        return sum(weights(MLRForecaster.load(target)) in known for _ in range(30))

    end = attempt(load_often)
    for saver in savers:
        saver.join()
    left = [name for name in contents(target) if name.startswith(".")]
    return Row(
        "save",
        "30 times each into one folder",
        "two processes save while a third one loads",
        "every load gives one of the models; no draft is left",
        f"{end.value} of 30 loads gave one of them; drafts left: {len(left)}",
        end.value == 30 and not left and all(saver.exitcode == 0 for saver in savers),
    )
