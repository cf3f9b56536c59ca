"""The commands of language models; what they run is imported when they run."""

from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import FILE, FOLDER, TASK_ACCELERATOR, examples, with_console
from mlrforecast.cli._paths import check_writable
from mlrforecast.cli._task_options import training_options


@click.group(
    epilog=examples(
        "mlrforecast lm prepare texts --out corpus",
        "mlrforecast lm train runs.toml --corpus corpus --out results",
    )
)
def lm() -> None:
    """Train and score language models of characters or bytes."""


@lm.command(
    epilog=examples(
        "mlrforecast lm prepare texts --out corpus",
        "mlrforecast lm prepare --hugging-face roneneldan/TinyStories --out corpus",
    )
)
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--out", type=FOLDER, required=True, help="Folder of the corpus.")
@click.option(
    "--vocabulary",
    type=click.Choice(["characters", "bytes"]),
    default="characters",
    show_default=True,
    help="The paper's 96 characters, the others left out; or plain bytes.",
)
@click.option(
    "--validation-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Of the documents, which are then not trained on.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the shares.")
@click.option("--hugging-face", metavar="NAME", help="A data set of text, in place of SOURCES.")
@click.option("--max-documents", type=click.IntRange(1), help="Most documents of a data set.")
@click.option("--overwrite", is_flag=True, help="Replace a corpus that is there.")
@with_console
def prepare(
    sources: tuple[Path, ...],
    out: Path,
    vocabulary: str,
    validation_share: float,
    seed: int,
    hugging_face: str | None,
    max_documents: int | None,
    overwrite: bool,
    console: Console,
) -> None:
    """Make tokens of text files.

    SOURCES are files and folders; a file is a document, a long one several. Of a folder the files
    *.md, *.rst, *.text and *.txt are read, compressed or not, but for hidden ones.
    """
    check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import make_corpus

    make_corpus(
        sources,
        out=out,
        vocabulary=vocabulary,
        validation_share=validation_share,
        seed=seed,
        hugging_face=hugging_face,
        max_documents=max_documents,
        overwrite=overwrite,
        console=console,
    )


@lm.command(
    "train",
    epilog=examples(
        "mlrforecast lm train --corpus corpus --set attention=mlr --out results",
        "mlrforecast lm train runs.toml --corpus corpus --out results --resume",
    ),
)
@click.argument("runs", type=FILE, required=False)
@click.option("--corpus", type=FOLDER, required=True, help="What `lm prepare` made.")
@training_options
@with_console
def train(
    runs: Path | None,
    corpus: Path,
    out: Path,
    resume: bool,
    settings: dict[str, Any],
    only: tuple[str, ...],
    computing: dict[str, Any],
    console: Console,
) -> None:
    """Train the runs of a file, or one run that --set describes.

    RUNS is a TOML file: a table [common] of settings for all runs, and tables [[runs]], each with
    settings of its own; `each` in one of them holds lists of values, all combinations of which are
    runs. The score is the loss of the validation documents, in nats a token.
    """
    check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import train_language_models

    train_language_models(
        runs,
        corpus=corpus,
        out=out,
        resume=resume,
        settings=settings,
        only=only,
        computing=computing,
        console=console,
    )


@lm.command(
    "eval",
    epilog=examples(
        "mlrforecast lm eval results/models/mlr-256-0-5a3c --corpus corpus",
    ),
)
@click.argument("model", type=FOLDER)
@click.option("--corpus", type=FOLDER, required=True, help="What `lm prepare` made.")
@click.option(
    "--split",
    type=click.Choice(["validation", "train"]),
    default="validation",
    show_default=True,
    help="Which documents.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Predict at most so many.")
@click.option("--accelerator", type=TASK_ACCELERATOR, default="auto", help="Where to compute.")
@with_console
def evaluate(
    model: Path,
    corpus: Path,
    split: str,
    max_tokens: int | None,
    accelerator: str,
    console: Console,
) -> None:
    """Score a trained model on a corpus: nats and bits a token.

    MODEL is one of the folders in models of the results. Unlike the evaluations during training it
    reads all windows, in float32.
    """
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import evaluate_language

    evaluate_language(
        model,
        corpus=corpus,
        split=split,
        max_tokens=max_tokens,
        accelerator=accelerator,
        console=console,
    )


@lm.command(
    epilog=examples(
        "mlrforecast lm generate results/models/mlr-256-0-5a3c --prompt Once",
    )
)
@click.argument("model", type=FOLDER)
@click.option("--prompt", default="\n", help="The beginning of the text. Default: a new line.")
@click.option(
    "--max-new-tokens", type=click.IntRange(1), default=200, show_default=True, help="To write."
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=0.8,
    show_default=True,
    help="Divides the logits; 0 takes the likeliest token.",
)
@click.option("--top-k", type=click.IntRange(1), help="Draw among so many likeliest tokens.")
@click.option("--seed", type=click.IntRange(0), help="Gives the same text again.")
@with_console
def generate(
    model: Path,
    prompt: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int | None,
    console: Console,
) -> None:
    """Let a trained model go on with a text, and say what it kept in memory.

    MODEL is one of the folders in models of the results.
    """
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import write_text

    write_text(
        model,
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        console=console,
    )


@lm.command(
    "plot",
    epilog=examples(
        "mlrforecast lm plot results --out scaling.png",
    ),
)
@click.argument("results", type=FOLDER)
@click.option(
    "--x",
    type=click.Choice(["paper_flops", "training_flops", "tokens", "width", "parameters"]),
    default="paper_flops",
    show_default=True,
    help="What the loss is drawn against.",
)
@click.option(
    "--hue", default="attention", show_default=True, help="Setting that tells lines apart."
)
@click.option("--out", type=FILE, required=True, help="The picture: .png, .svg or .pdf.")
@with_console
def plot(results: Path, x: str, hue: str, out: Path, console: Console) -> None:
    """Draw the validation loss of all runs of a folder.

    RESULTS is what was given to train as --out.
    """
    check_writable(out, "--out")
    # torch takes seconds to import; help must not wait for it.
    from mlrforecast.cli._tasks import plot_results

    plot_results(
        results,
        task="language_model",
        x=x,
        hue=hue,
        out=out,
        ylabel="Nats a token",
        console=console,
    )
