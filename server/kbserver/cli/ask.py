"""`kbcore ask`: put a goal and print its answers, a line each."""

from __future__ import annotations

import click

from kbserver.cli._target import Target, target_options


@click.command("ask")
@click.argument("goal")
@click.option("--scope", help="partition to ask; '*' for every one")
@target_options
def command(target: Target, goal: str, scope: str | None) -> None:
    """Answer GOAL with facts and rules: kbcore ask 'ancestor(ann, ?who)'.

    Prints one answer a line, in order; nothing where there is none, with exit status 1.
    """
    found = target.ask(goal, scope)
    for line in found:
        click.echo(line)
    if not found:
        raise SystemExit(1)
