"""Completion of the command line by the shell."""

import click
from click.shell_completion import get_completion_class

from mlrforecast.cli._options import examples

_PROGRAM = "mlrforecast"
_VARIABLE = "_MLRFORECAST_COMPLETE"

_INSTALL = {
    "bash": f'add this line to ~/.bashrc:\n#   eval "$({_PROGRAM} completion bash)"',
    "zsh": f'add this line to ~/.zshrc, after compinit:\n#   eval "$({_PROGRAM} completion zsh)"',
    "fish": f"run once:\n#   {_PROGRAM} completion fish > "
    f"~/.config/fish/completions/{_PROGRAM}.fish",
}


@click.command(
    epilog=examples(
        'eval "$(mlrforecast completion bash)"',
    )
)
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands.

    SHELL then completes commands and options. How to install the script stands at its end; bash
    needs version 4.4 or later.
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click knows every shell that may be chosen"
    script = complete(ctx.find_root().command, {}, _PROGRAM, _VARIABLE)
    # Not source(), which starts bash to ask for its version.
    click.echo((script.source_template % script.source_vars()).strip())
    click.echo(f"\n# To install it, {_INSTALL[shell]}")
