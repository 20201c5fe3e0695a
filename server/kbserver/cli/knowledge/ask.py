"""`kbcore ask`: put a goal and print its answers, a line each."""

from __future__ import annotations

import click

from kbserver.cli.shared.target import Target, target_options, timeout_option


@click.command("ask")
@click.argument("goal")
@click.option("--scope", help="partition to ask; '*' for every one")
@timeout_option
@target_options
def command(target: Target, goal: str, scope: str | None, timeout_ms: int | None) -> None:
    """Answer GOAL with facts and rules: kbcore ask 'ancestor(ann, ?who)'.

    Prints one answer a line, in order; nothing where there is none, with exit status 1.
    """
    found = target.ask(goal, scope, timeout_ms)
    for line in found:
        click.echo(line)
    if not found:
        raise SystemExit(1)
