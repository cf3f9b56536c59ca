"""What the commands of both tasks do."""

import json
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib import pyplot as plt

from mlrforecast._core.provenance import command_line
from mlrforecast.cli._console import Console
from mlrforecast.cli._paths import whole_file
from mlrforecast.cli._task_options import report
from mlrforecast.plots import plot_error_by_point, plot_scaling
from mlrforecast.tasks import Execution, TaskRun, in_context_regression, language_model, read_runs
from mlrforecast.tasks import read_results as read_task_results

_PICTURES = {".pdf", ".png", ".svg"}


def train_regressors(
    path: Path | None,
    *,
    out: Path,
    resume: bool,
    settings: Mapping[str, Any],
    only: Sequence[str],
    computing: Mapping[str, Any],
    console: Console,
) -> None:
    """Train in-context regressors and tell their scores."""
    runs = _runs(path, in_context_regression.RegressionRun, settings, only)
    results = in_context_regression.train(
        runs,
        out=out,
        resume=resume,
        execution=Execution(progress=console.progress, **computing),
        command=_said_command(("icl", "train"), path, settings, only, computing, out=out),
    )
    report(results, len(runs), out, console)


def train_language_models(
    path: Path | None,
    *,
    corpus: Path,
    out: Path,
    resume: bool,
    settings: Mapping[str, Any],
    only: Sequence[str],
    computing: Mapping[str, Any],
    console: Console,
) -> None:
    """Train language models and tell their scores."""
    runs = _runs(path, language_model.LanguageRun, settings, only)
    results = language_model.train(
        runs,
        corpus,
        out=out,
        resume=resume,
        execution=Execution(progress=console.progress, **computing),
        command=_said_command(
            ("lm", "train"), path, settings, only, computing, corpus=corpus, out=out
        ),
    )
    report(results, len(runs), out, console)


def _runs(
    path: Path | None, kind: type[Any], settings: Mapping[str, Any], only: Sequence[str]
) -> list[Any]:
    """Return the runs of a file whose names fit, or the one that settings describe."""
    if path is None and not settings:
        raise ValueError("`RUNS` or `--set` must be given: a file of runs, or settings of one run.")
    found: list[TaskRun]
    try:
        found = [kind.from_dict(settings)] if path is None else read_runs(path, kind, settings)
    except TypeError as error:
        # A value of --set is of whatever kind it looks like: a wrong one is no defect.
        raise ValueError(f"`--set`: {error}") from error
    fitting = [run for run in found if any(fnmatchcase(run.name, pattern) for pattern in only)]
    if only and not fitting:
        raise ValueError(
            f"`--only` must fit the name of a run, such as {found[0].name!r}, got "
            f"{', '.join(map(repr, only))}."
        )
    return fitting or found


def _said_command(
    words: Sequence[str],
    runs: Path | None,
    settings: Mapping[str, Any],
    only: Sequence[str],
    computing: Mapping[str, Any],
    **paths: Path,
) -> str:
    """Return a command that repeats the training, as results tell it."""
    unusual = {
        name.replace("_", "-"): value
        for name, value in computing.items()
        if value is True or value not in (1, "auto", None, False)
    }
    given = tuple(shlex.quote(f"{name}={value}") for name, value in settings.items())
    named = words if runs is None else (*words, runs.name)
    patterns = tuple(map(shlex.quote, only))
    return command_line(named, {**paths, "set": given, "only": patterns, **unusual})


def evaluate_regressor(
    folder: Path, *, episodes: int, seed: int, out: Path | None, console: Console
) -> None:
    """Score a regressor and the comparators on the same episodes, and tell the errors."""
    if out is not None:
        _check_suffix(out, {".csv", *_PICTURES})
    model, run = in_context_regression.load_regressor(folder)
    function = in_context_regression.build_function(run.function, **(run.function_options or {}))
    draw: dict[str, Any] = {"seed": seed, "num_episodes": episodes}
    size = (function, run.points, run.num_dims)
    own = in_context_regression.evaluate(
        lambda some: model(some.xs, some.ys),
        in_context_regression.evaluation_episodes(*size, **draw),
    )
    own.insert(0, "method", run.name)
    others = in_context_regression.comparator_errors(*size, **draw)
    errors = pd.concat([others, own], ignore_index=True)
    if out is not None:
        _write_errors(errors, out)
    shown = sorted({0, run.points // 4, run.points // 2, run.points - 1})
    wide = errors.pivot_table(index="method", columns="point", values="error", sort=False)[shown]
    fields = {"model": folder, "episodes": episodes, "errors": errors.to_dict("records")}
    console.finish(fields, wide.to_string(float_format=lambda value: f"{value:.4f}"))


def _write_errors(errors: pd.DataFrame, out: Path) -> None:
    """Write errors as a table or as a picture."""
    if out.suffix.lower() in _PICTURES:
        _save(plot_error_by_point(errors), out)
        return
    with whole_file(out) as draft:
        errors.to_csv(draft, index=False)


def make_corpus(
    sources: Sequence[Path],
    *,
    out: Path,
    hugging_face: str | None,
    max_documents: int | None,
    console: Console,
    **options: Any,
) -> None:
    """Make a corpus and tell what is in it."""
    if bool(sources) == (hugging_face is not None):
        raise ValueError("`SOURCES` or `--hugging-face` must be given, one of the two.")
    if max_documents is not None and hugging_face is None:
        raise ValueError("`--max-documents` must come with `--hugging-face`, got it with SOURCES.")
    source: Any = list(sources)
    if hugging_face is not None:
        source = language_model.hugging_face_documents(hugging_face, max_documents=max_documents)
    corpus = language_model.prepare_corpus(source, out, progress=console.progress, **options)
    counts = dict(corpus.record["counts"])
    sides = {
        f"{split.name}_{what}": getattr(split, f"num_{what}")
        for split in (corpus.train, corpus.validation)
        for what in ("documents", "tokens")
    }
    fields = {"out": out, "vocabulary": corpus.vocabulary.name, **sides, **counts}
    text = (
        f"{sides['train_tokens']:,} tokens in {sides['train_documents']:,} documents to train on, "
        f"{sides['validation_tokens']:,} in {sides['validation_documents']:,} others; "
        f"{counts['dropped_share']:.2%} of the characters were left out."
    )
    console.finish(fields, text)


def evaluate_language(
    folder: Path,
    *,
    corpus: Path,
    split: str,
    max_tokens: int | None,
    accelerator: str,
    console: Console,
) -> None:
    """Score a language model on a corpus."""
    model, run = language_model.load_language_model(folder)
    on_gpu = torch.cuda.is_available() and accelerator in ("auto", "gpu")
    if accelerator == "gpu" and not on_gpu:
        raise ValueError("`--accelerator` must not be gpu where there is no GPU.")
    opened = language_model.Corpus.open(corpus)
    scores = language_model.evaluate_language_model(
        model.to("cuda") if on_gpu else model,
        opened.train if split == "train" else opened.validation,
        max_tokens=max_tokens,
        documents=run.documents,
    )
    text = f"{scores['nats']:.4f} nats a token ({scores['bits']:.4f} bits)"
    console.finish({"model": folder, "split": split, **scores}, text)


def write_text(
    folder: Path,
    *,
    prompt: str,
    max_new_tokens: int,
    console: Console,
    **options: Any,
) -> None:
    """Let a language model write, and say what it kept meanwhile."""
    model, run = language_model.load_language_model(folder)
    vocabulary = language_model.get_vocabulary(run.vocabulary)
    written = language_model.continue_text(model, vocabulary, prompt, max_new_tokens, **options)
    console.say(
        f"Kept {written.cache_bytes / 1024:.0f} KiB of keys and values; attention that keeps all "
        f"columns would keep {written.full_cache_bytes / 1024:.0f} KiB. "
        f"{max_new_tokens / written.seconds:.0f} tokens a second."
    )
    fields = {
        "prompt": written.prompt,
        "text": written.text,
        "cache_bytes": written.cache_bytes,
        "full_cache_bytes": written.full_cache_bytes,
        "seconds": written.seconds,
    }
    console.finish(fields, written.prompt + written.text)


def plot_results(
    folder: Path, *, task: str, x: str, hue: str, out: Path, ylabel: str, console: Console
) -> None:
    """Draw the scores of all runs of a task in a folder."""
    _check_suffix(out, _PICTURES)
    runs, _ = read_task_results(folder)
    if hue not in runs.columns:
        raise ValueError(f"`--hue` must be one of {', '.join(runs.columns)}, got {hue!r}.")
    finished = runs[(runs["status"] == "finished") & (runs["task"] == task)]
    if finished.empty:
        raise ValueError(f"{str(folder)!r} must hold a finished run of {task!r}, and has none.")
    # A setting that was left at its default may be none.
    told = finished[hue].astype(object)
    named = finished.assign(**{hue: told.where(told.notna(), "default")})
    axes = plot_scaling(named, x, "score", hue)
    axes.set_ylabel(ylabel)
    if task == in_context_regression.RegressionRun.task:
        _draw_comparators(axes, finished)
    _save(axes, out)
    console.finish({"out": out, "runs": len(finished)})


def _draw_comparators(axes: Any, runs: pd.DataFrame) -> None:
    """Draw the errors of comparators at the last point, if all runs are of one task."""
    columns = ["function", "function_options", "num_dims", "num_points"]
    if len(runs[columns].drop_duplicates()) > 1:
        return
    fields = {name: value for name, value in runs.iloc[0][columns].items() if pd.notna(value)}
    if "function_options" in fields:
        fields["function_options"] = json.loads(fields["function_options"])
    run = in_context_regression.RegressionRun.from_dict(
        {str(name): int(value) if "num" in str(name) else value for name, value in fields.items()}
    )
    function = in_context_regression.build_function(run.function, **(run.function_options or {}))
    table = in_context_regression.comparator_errors(
        function, run.points, run.num_dims, num_episodes=run.evaluation_episodes
    )
    last = table[table["point"] == run.points - 1].set_index("method")["error"]
    # Least squares may be exact, which no logarithmic axis can show.
    shown = last[last > runs["score"].min() / 10].sort_values()
    for name, error in shown.items():
        axes.axhline(error, color="#7F7F7F", linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        axes.annotate(
            str(name).replace("_", " "), (1, error), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=7, color="#5F5F5F",
        )  # fmt: skip


def _check_suffix(out: Path, suffixes: set[str]) -> None:
    """Refuse, before any work, a name that does not say what to write."""
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"`--out` must end in {', '.join(sorted(suffixes))}, got {out.name!r}.")


def _save(axes: Any, out: Path) -> None:
    """Write a picture, whole or not at all."""
    try:
        with whole_file(out) as draft:
            axes.figure.savefig(draft, format=out.suffix.lower()[1:], dpi=150)
    finally:
        plt.close(axes.figure)
