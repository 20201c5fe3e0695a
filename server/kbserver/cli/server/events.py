"""`kbcore events`: follow the change events of a server."""

from __future__ import annotations

import click

from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import Failed
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import escaped_json
from kbserver.cli.shared.target import CommandTarget, target_options


@command("events")
@click.option(
    "--predicate", help="Only events of this predicate; 'order*' matches all that start with order"
)
@click.option(
    "--events", "types", metavar="TYPES", help="Only events of these types, separated by commas"
)
@click.option("--scope", help="Scope to follow; '*' for all")
@click.option("--since", help="Start after this event id, or at this time")
@click.option("--count", type=click.IntRange(1), help="Stop after this number of events")
@target_options
def events(
    target: CommandTarget,
    predicate: str | None,
    types: str | None,
    scope: str | None,
    since: str | None,
    count: int | None,
) -> None:
    """Print committed changes as lines of JSON."""
    if not isinstance(target, ServerClient):
        raise Failed("events need a running server: use --url instead of a storage folder")
    query = {"predicate": predicate, "events": types, "scope": scope, "since": since}
    fields = {name: value for name, value in query.items() if value is not None}
    for line in target.events("/memory/events", fields):
        click.echo(escaped_json(line))
        if count is not None and (count := count - 1) == 0:
            return
    raise Failed("the server ended the stream")
