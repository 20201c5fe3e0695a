"""`kbcore explain`: why the answers of a goal hold, or how the goal is evaluated."""

from __future__ import annotations

import click

from kbserver.cli.shared.target import Target, target_options, timeout_option


@click.command("explain")
@click.argument("goal")
@click.option("--scope", help="partition to ask; '*' for every one")
@click.option("--limit", type=click.IntRange(1), help="answers to explain at most")
@click.option(
    "--nodes",
    type=click.IntRange(1),
    help="lines of one proof at most; the server's setting by default",
)
@click.option(
    "--plan", is_flag=True, help="show how the goal would be evaluated instead, without running it"
)
@click.option(
    "--analyze", is_flag=True, help="run the goal and show its plan with the rows and times it took"
)
@click.option("--json", "as_json", is_flag=True, help="show the plan as JSON, for programs")
@timeout_option
@target_options
def command(
    target: Target,
    goal: str,
    scope: str | None,
    limit: int | None,
    nodes: int | None,
    plan: bool,
    analyze: bool,
    as_json: bool,
    timeout_ms: int | None,
) -> None:
    """Tell why the answers of GOAL hold: kbcore explain 'ancestor(ann, ?who)'.

    GOAL may have several literals. Each answer stands above what it rests on. With --plan or --analyze, tell how GOAL is
    evaluated.
    """
    if plan or analyze or as_json:
        click.echo(target.plan(goal, scope, analyze, as_json, timeout_ms))
    else:
        click.echo(target.explain(goal, scope, limit, nodes, timeout_ms))
