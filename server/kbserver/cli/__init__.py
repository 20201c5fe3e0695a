"""The `kbcore` command. Each sub-command is a module of this package with a click command named `command`.

A module is imported only when its command is asked for, so that `kbcore serve` starts with little behind it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

import click


class Modules(click.Group):
    """A group whose commands are the modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands there are."""
        return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if module.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command


@click.group(cls=Modules)
def cli() -> None:
    """A knowledge base server: facts, rules and questions over HTTP."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    cli(args=list(args) if args is not None else None, prog_name="kbcore")
