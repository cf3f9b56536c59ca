"""The commands on data sets; what they do is imported when they run."""

from pathlib import Path

import click

from mlrforecast.cli._console import Console
from mlrforecast.cli._options import FOLDER, examples, json_option, with_console

_NAMES = click.argument("names", nargs=-1, required=True)


@click.group(
    epilog=examples(
        "mlrforecast datasets list --match hourly",
        "mlrforecast datasets fetch ETTh1 exchange_rate",
    )
)
def datasets() -> None:
    """List, fetch and check public data sets."""


@datasets.command(
    "list",
    epilog=examples(
        "mlrforecast datasets list",
        "mlrforecast datasets list --match m4",
    ),
)
@click.option("--match", metavar="TEXT", default="", help="Only those with it in name or title.")
@json_option
def list_(match: str, as_json: bool) -> None:
    """List the data sets that are known.

    Step and horizon are left open where they stand in the files. A data set is verified if the
    catalogue knows the hash of every file; else the first download is recorded, and later ones
    must match it.
    """
    # pandas takes a second to import; help must not wait for it.
    from mlrforecast.cli._datasets import run_list

    run_list(match, console=Console(as_json=as_json))


@datasets.command(
    epilog=examples(
        "mlrforecast datasets info ETTh1",
    )
)
@click.argument("name")
@click.option("--root", type=FOLDER, help="Folder to look for the files in first.")
@json_option
def info(name: str, root: Path | None, as_json: bool) -> None:
    """Tell what is known of a data set.

    NAME is one of those that are listed by mlrforecast datasets list. Told are its source, licence,
    citation and files, and what it holds if they are at hand; nothing is downloaded.
    """
    # pandas takes a second to import; help must not wait for it.
    from mlrforecast.cli._datasets import run_info

    run_info(name, root=root, console=Console(as_json=as_json))


@datasets.command(
    epilog=examples(
        "mlrforecast datasets fetch ETTh1 exchange_rate",
        "mlrforecast datasets fetch weather --force",
    )
)
@_NAMES
@click.option(
    "--force",
    is_flag=True,
    help="Download again what is there, and accept a new version where the catalogue has no hash.",
)
@with_console
def fetch(names: tuple[str, ...], force: bool, console: Console) -> None:
    """Download data sets into the cache.

    NAMES are those that mlrforecast datasets list lists. Where their files are is printed. A file
    that is there and intact is not downloaded again; a download that was interrupted goes on where
    it stopped. Proxies are taken from the usual environment variables, and MLRFORECAST_OFFLINE=1
    forbids downloads.
    """
    # pandas takes a second to import; help must not wait for it.
    from mlrforecast.cli._datasets import run_fetch

    run_fetch(names, force=force, console=console)


@datasets.command(
    epilog=examples(
        "mlrforecast datasets verify ETTh1",
        "mlrforecast datasets verify ETTh1 exchange_rate --root data",
    )
)
@_NAMES
@click.option("--root", type=FOLDER, help="Folder to look for the files in first.")
@json_option
def verify(names: tuple[str, ...], root: Path | None, as_json: bool) -> None:
    """Compare files with what they must be.

    NAMES are data sets; nothing is downloaded. The exit code is 2 if a file is absent or altered.
    """
    # pandas takes a second to import; help must not wait for it.
    from mlrforecast.cli._datasets import run_verify

    run_verify(names, root=root, console=Console(as_json=as_json))
