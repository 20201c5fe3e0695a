"""`kbcore explain`: why the answers of a goal hold, or how the goal is evaluated."""

from __future__ import annotations

import click

from kbserver.cli._target import Target, target_options


@click.command("explain")
@click.argument("goal")
@click.option("--scope", help="partition to ask; '*' for every one")
@click.option("--limit", type=click.IntRange(1), help="answers to explain at most")
@click.option("--nodes", type=click.IntRange(1), help="lines of one proof at most; the server's setting by default")
@click.option("--plan", is_flag=True, help="show how the goal is evaluated instead")
@target_options
def command(target: Target, goal: str, scope: str | None, limit: int | None, nodes: int | None, plan: bool) -> None:
    """Tell why the answers of GOAL hold: kbcore explain 'ancestor(ann, ?who)'.

    GOAL may have several literals. Each answer stands above what it rests on.
    """
    click.echo(target.explain(goal, scope, limit, nodes, plan))
