"""The `kbcore` command. Each sub-command is a module of a package of `GROUPS`, with a click command named `command`.

A module is imported only when its command is asked for, so that `kbcore serve` starts with little behind it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

import click

GROUPS = ("agents", "knowledge", "server", "storage")


def _modules() -> dict[str, str]:
    """Map the name of each command to its module."""
    packages = [importlib.import_module(f"{__name__}.{group}") for group in GROUPS]
    return {
        module.name.replace("_", "-"): f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
    }


class Modules(click.Group):
    """A group whose commands are the modules of the packages of `GROUPS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands there are."""
        return sorted(_modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        module = _modules().get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command


@click.group(cls=Modules)
def cli() -> None:
    """A knowledge base server: facts, rules and questions over HTTP."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    cli(args=list(args) if args is not None else None, prog_name="kbcore")
