"""`ureplicator completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "ureplicator"
VARIABLE = "_UREPLICATOR_COMPLETE"
"""Set by the script when it asks the command for the words that fit; click reads it."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    In ~/.bashrc: eval "$(ureplicator completion bash)". In ~/.zshrc: eval "$(ureplicator completion
    zsh)". In ~/.config/fish/config.fish: ureplicator completion fish | source.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all shells of SHELLS"
    click.echo(kind(context.find_root().command, {}, PROGRAM, VARIABLE).source())
