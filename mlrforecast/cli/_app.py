"""The group of commands, and how each of them ends."""

import os

import click

from mlrforecast._core.errors import MLRForecastError
from mlrforecast._version import __version__
from mlrforecast.cli._benchmark_commands import benchmark, demo
from mlrforecast.cli._completion import completion
from mlrforecast.cli._datasets_commands import datasets
from mlrforecast.cli._forecast_commands import backtest, fit, plot, predict
from mlrforecast.cli._icl_commands import icl
from mlrforecast.cli._lm_commands import lm
from mlrforecast.cli._options import examples
from mlrforecast.cli._pretrain_commands import pretrain, synthesize
from mlrforecast.cli._tune_commands import tune

# Training that diverged is told by FloatingPointError.
_EXPECTED = (MLRForecastError, ValueError, OSError, FloatingPointError)
_INTERRUPTED = 130


class _Group(click.Group):
    """Commands whose expected errors end as one line and exit code 2, and Ctrl-C as 130."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if ctx.params["traceback"]:
                raise
            click.echo("\nStopped.", err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from error
        except _EXPECTED as error:
            # A reader of the output that has gone is no error; click ends quietly.
            if ctx.params["traceback"] or isinstance(error, BrokenPipeError):
                raise
            raise _Failure(" ".join(str(error).split())) from error


class _Failure(click.ClickException):
    """An expected error, told in one line."""

    exit_code = 2


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "mlrforecast fit sales.csv --prediction-length 28 --out model",
        "mlrforecast predict model sales.csv --out forecast.csv",
    ),
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="MLRFORECAST_TRACEBACK",
    help="Show where an error was raised, not only what it says.",
)
def main(traceback: bool) -> None:
    """Forecast time series with multi-level low-rank (MLR) attention.

    Results go to stdout, messages and progress bars to stderr. The exit code is 0 if all went
    well, 2 for input that cannot be used (told in one line), 130 after Ctrl-C, and 1 for anything
    unforeseen.
    """
    # Read when torch is loaded: threads that wait actively for each other make small fits many
    # times slower where other programs use the cores too.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Pictures are written, never shown: no screen is needed.
    os.environ.setdefault("MPLBACKEND", "Agg")


for _command in (
    *(fit, predict, backtest, plot, tune, synthesize, pretrain),
    *(datasets, demo, benchmark, icl, lm, completion),
):
    main.add_command(_command)
