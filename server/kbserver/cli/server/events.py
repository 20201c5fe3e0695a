"""`kbcore events`: print what is committed, as it is committed, a JSON object a line."""

from __future__ import annotations

import click

from kbserver.cli.shared.target import Failed, Server, Target, target_options


@click.command("events")
@click.option(
    "--predicate", help="only of this predicate; with a * at its end, of all that begin so"
)
@click.option("--events", metavar="TYPES", help="only these types, separated by commas")
@click.option("--scope", help="partition to listen to; '*' for every one")
@click.option("--since", help="first what was committed after this event id, or since this time")
@click.option("--count", type=click.IntRange(1), help="stop after this many events")
@target_options
def command(
    target: Target,
    predicate: str | None,
    events: str | None,
    scope: str | None,
    since: str | None,
    count: int | None,
) -> None:
    """Print every committed change as one line of JSON, until interrupted: kbcore events --predicate 'order*'."""
    if not isinstance(target, Server):
        raise Failed("events need a running server; use --url instead of a storage folder")
    asked = {"predicate": predicate, "events": events, "scope": scope, "since": since}
    for line in target.events({name: value for name, value in asked.items() if value is not None}):
        click.echo(line)
        if count is not None and (count := count - 1) == 0:
            return
    raise Failed("the server ended the stream")
