"""`kbcore ask` and `kbcore explain`."""

from __future__ import annotations

import click

from kbserver.cli.shared.target import QueryOptions, Target, query_options, target_options

PLAN, ANALYZE = "plan", "analyze"


@click.command("ask")
@click.argument("goal")
@query_options()
@target_options
def ask(target: Target, goal: str, options: QueryOptions) -> None:
    """Answer a goal from facts and rules.

    Prints one answer per line. Exits with status 1 if there are none.

    Example: kbcore ask 'ancestor(ann, ?who)'
    """
    answers = target.ask(goal, options)
    for line in answers:
        click.echo(line)
    if not answers:
        raise SystemExit(1)


@click.command("explain")
@click.argument("goal")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of answers to explain")
@click.option(
    "--nodes",
    type=click.IntRange(1),
    help="Maximum number of lines per proof; default: the setting of the server",
)
@click.option(
    "--plan", "mode", flag_value=PLAN, help="Show the query plan without running the goal"
)
@click.option(
    "--analyze",
    "mode",
    flag_value=ANALYZE,
    help="Run the goal and show its plan with rows and times",
)
@click.option("--json", "as_json", is_flag=True, help="Show the plan as JSON")
@query_options()
@target_options
def explain(
    target: Target,
    goal: str,
    options: QueryOptions,
    limit: int | None,
    nodes: int | None,
    mode: str | None,
    as_json: bool,
) -> None:
    """Show why the answers of a goal hold, or its plan.

    GOAL may have several literals. Each answer is followed by the facts and rules it is derived
    from. With --plan or --analyze, show how GOAL is evaluated.

    Example: kbcore explain 'ancestor(ann, ?who)'
    """
    if mode is not None or as_json:
        click.echo(target.plan(goal, options, mode == ANALYZE, as_json))
    else:
        click.echo(target.explain(goal, options, limit, nodes))
