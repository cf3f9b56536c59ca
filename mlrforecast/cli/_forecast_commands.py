"""Commands on data of one's own; what they run is imported when they run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import (
    FILE,
    FOLDER,
    accelerator_option,
    data_options,
    examples,
    format_option,
    model_options,
    numbers,
    with_console,
    words,
)
from mlrforecast.cli._paths import check_apart, check_model_folder, check_writable

_DATA = click.Path(allow_dash=True)
_STREAM = Path("-")


@click.command(
    epilog=examples(
        "mlrforecast fit load.csv --prediction-length 24 --out model",
        "mlrforecast fit sales.csv --prediction-length 28 --out model \\",
        "  --id-column shop --timestamp-column day --target sold --known-covariates promo",
    )
)
@click.argument("data", type=_DATA)
@click.option(
    "--prediction-length", type=click.IntRange(1), required=True, help="Steps to forecast."
)
@click.option("--out", type=FOLDER, required=True, help="Folder of the model, new or to replace.")
@data_options
@model_options
@click.option(
    "--max-time", type=click.FloatRange(0, min_open=True), help="Longest training, in seconds."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Random seed. Default: 0.")
@click.option(
    "--calibrate",
    type=click.Choice(["none", "split", "rolling"]),
    default="none",
    show_default=True,
    help="Widen or narrow the intervals until as many values lie inside as they say.",
)
@click.option(
    "--with-context/--without-context",
    default=False,
    show_default=True,
    help="Store the newest rows of each series too, so that predict needs no DATA. They are part "
    "of your data.",
)
@format_option
@with_console
def fit(
    data: str,
    out: Path,
    settings: Sequence[tuple[str, object]],
    calibrate: str,
    with_context: bool,
    form: str | None,
    console: Console,
    **options: Any,
) -> None:
    """Train a model on DATA and save it in a folder.

    DATA is a csv (also .gz and .xz) or parquet file, or - for stdin. A wide table has a column of
    time and a column for each series; a long one has columns of items, of time, and of values. See
    --format for files whose name does not say what they are.
    """
    check_model_folder(out, "--out")
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._fit import run_fit

    run_fit(
        data,
        out=out,
        form=form,
        options=options,
        settings=settings,
        calibrate=calibrate,
        with_context=with_context,
        console=console,
    )


@click.command(
    epilog=examples(
        "mlrforecast predict model sales.csv --out forecast.csv",
        "mlrforecast predict model sales.csv --quantile-levels 0.1,0.5,0.9 > forecast.csv",
        "mlrforecast predict model sales.csv --future plan.csv",
    )
)
@click.argument("model", type=FOLDER)
@click.argument("data", type=_DATA, required=False)
@click.option(
    "--future",
    type=_DATA,
    metavar="FILE",
    help="The known covariates of the steps to forecast, if the model has any.",
)
@click.option(
    "--prediction-length",
    type=click.IntRange(1),
    help="Steps to forecast. Default: those of the model.",
)
@click.option(
    "--quantile-levels",
    type=numbers,
    metavar="LEVEL,...",
    help="Levels to forecast too, such as 0.1,0.5,0.9.",
)
@click.option(
    "--num-samples", type=click.IntRange(1), help="Draw that many paths instead of a forecast."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the paths.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=_STREAM,
    metavar="FILE",
    help="A csv or parquet file; - is stdout.  [default: -]",
)
@accelerator_option
@format_option
@with_console
def predict(
    model: Path,
    data: str | None,
    future: str | None,
    prediction_length: int | None,
    quantile_levels: tuple[float, ...] | None,
    num_samples: int | None,
    seed: int,
    out: Path,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Forecast what follows DATA with the MODEL that fit saved.

    DATA is read as in fit: csv, parquet, or - for stdin. It may be left out if the model was saved
    --with-context. The forecast has the columns of DATA, and one for each level or path; stamps are
    written in ISO 8601.
    """
    if num_samples is not None and quantile_levels is not None:
        raise click.UsageError("--num-samples and --quantile-levels do not go together.")
    if data == "-" and future == "-":
        raise click.UsageError("DATA and --future cannot both be '-'.")
    if out != _STREAM:
        check_writable(out, "--out")
        check_apart(out, "--out", data, future)
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._predict import run_predict

    run_predict(
        model,
        data,
        future=future,
        prediction_length=prediction_length,
        quantile_levels=quantile_levels,
        num_samples=num_samples,
        seed=seed,
        out=str(out),
        accelerator=accelerator,
        form=form,
        console=console,
    )


@click.command(
    epilog=examples(
        "mlrforecast backtest model sales.csv --windows 4",
        "mlrforecast backtest model sales.csv --quantile-levels 0.1,0.9 --out backtest.csv",
    )
)
@click.argument("model", type=FOLDER)
@click.argument("data", type=_DATA)
@click.option("--windows", type=click.IntRange(1), help="Of each series. Default: all that fit.")
@click.option(
    "--step",
    type=click.IntRange(1),
    help="Rows from one window to the next. Default: the steps of a forecast.",
)
@click.option(
    "--refit",
    type=click.IntRange(1),
    metavar="N",
    help="Fit again at every N-th cutoff; 1 is each. Default: never.",
)
@click.option(
    "--quantile-levels",
    type=numbers,
    metavar="LEVEL,...",
    help="Levels to forecast and score too, such as 0.1,0.5,0.9.",
)
@click.option("--out", type=FILE, help="A csv or parquet file for every forecast, in one table.")
@accelerator_option
@format_option
@with_console
def backtest(
    model: Path,
    data: str,
    windows: int | None,
    step: int | None,
    refit: int | None,
    quantile_levels: tuple[float, ...] | None,
    out: Path | None,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Score MODEL on DATA beside simple forecasts.

    Forecasts are made from many cutoffs, counted back from the newest row. Rows that the model was
    trained on flatter it: fit it on older rows than those that are scored, or use --refit. The
    table has a row for the model and one for each simple forecast; the lowest MASE comes first.
    The file of --out has the columns item_id, cutoff, timestamp, actual, forecast, and one for each
    level.
    """
    if out is not None:
        check_writable(out, "--out")
        check_apart(out, "--out", data)
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._evaluate import run_backtest

    run_backtest(
        model,
        data,
        windows=windows,
        step=step,
        refit=refit or False,
        quantile_levels=quantile_levels,
        out=None if out is None else str(out),
        accelerator=accelerator,
        form=form,
        console=console,
    )


@click.command(
    epilog=examples(
        "mlrforecast plot model sales.csv --out forecast.png",
        "mlrforecast plot model sales.csv --out backtest.pdf --kind backtest --windows 4",
        "mlrforecast plot model sales.csv --out error.svg --kind error",
    )
)
@click.argument("model", type=FOLDER)
@click.argument("data", type=_DATA, required=False)
@click.option("--out", type=FILE, required=True, help="A .png, .pdf or .svg file.")
@click.option(
    "--kind",
    type=click.Choice(["forecast", "backtest", "error"]),
    default="forecast",
    show_default=True,
    help="What follows DATA; forecasts from many cutoffs; or their error by step ahead.",
)
@click.option("--future", type=_DATA, metavar="FILE", help="As in predict, for a forecast.")
@click.option(
    "--quantile-levels",
    type=numbers,
    metavar="LEVEL,...",
    help="Levels of the fan. Default: all that were trained.",
)
@click.option("--items", type=words, metavar="NAME,...", help="Series or columns to draw.")
@click.option(
    "--max-items",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Most series or columns to draw.",
)
@click.option("--windows", type=click.IntRange(1), help="As in backtest.")
@click.option("--step", type=click.IntRange(1), help="As in backtest.")
@accelerator_option
@format_option
@with_console
def plot(
    model: Path,
    data: str | None,
    out: Path,
    kind: str,
    future: str | None,
    quantile_levels: tuple[float, ...] | None,
    items: tuple[str, ...] | None,
    max_items: int,
    windows: int | None,
    step: int | None,
    accelerator: str | None,
    form: str | None,
    console: Console,
) -> None:
    """Draw what MODEL forecasts after or inside DATA."""
    if kind != "forecast" and data is None:
        raise click.UsageError(f"--kind {kind} needs DATA.")
    if kind != "forecast" and future is not None:
        raise click.UsageError("--future is for --kind forecast.")
    if data == "-" and future == "-":
        raise click.UsageError("DATA and --future cannot both be '-'.")
    check_writable(out, "--out")
    check_apart(out, "--out", data, future)
    # torch and pandas take seconds to import; help must not wait for them.
    from mlrforecast.cli._evaluate import run_plot

    run_plot(
        model,
        data,
        out=out,
        kind=kind,
        future=future,
        quantile_levels=quantile_levels,
        items=items,
        max_items=max_items,
        windows=windows,
        step=step,
        accelerator=accelerator,
        form=form,
        console=console,
    )
