"""The `kbcore` command."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

COMMANDS = {
    "admin": "server.admin:admin",
    "ask": "knowledge.goals:ask",
    "backup": "storage.rescue:backup",
    "config": "server.config:config",
    "events": "server.events:events",
    "explain": "knowledge.goals:explain",
    "extract": "agents.language:extract",
    "fsck": "storage.rescue:fsck",
    "keys": "server.keys:keys",
    "load": "knowledge.load:load",
    "mcp": "agents.mcp:mcp",
    "memory": "agents.memory:memory",
    "plugins": "server.plugins:plugins",
    "promote": "server.promote:promote",
    "restore": "storage.rescue:restore",
    "run": "knowledge.statements:run",
    "salvage": "storage.rescue:salvage",
    "scope": "knowledge.scope:scope",
    "serve": "server.serve:serve",
    "storage": "storage.storage:storage",
    "synthesize": "agents.language:synthesize",
    "teach": "knowledge.statements:teach",
    "tell": "knowledge.statements:tell",
}
"""Module and attribute of each command, imported when the command runs, so that `kbcore serve`
starts quickly."""


class LazyGroup(click.Group):
    """The group of the commands in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        return command


@click.group(cls=LazyGroup)
def cli() -> None:
    """Knowledge base server: facts, rules and queries over HTTP.

    Commands that read or write a knowledge base use a running server (--url), or open a storage
    folder that no server has open (--storage-dir).
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line."""
    cli(args=list(args) if args is not None else None, prog_name="kbcore")
