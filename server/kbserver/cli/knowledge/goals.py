"""`kbcore ask`, `kbcore explain`, `kbcore whynot` and `kbcore how-to`."""

from __future__ import annotations

from typing import Any

import click

from kbplanner.syntax.printer import print_constant, print_row
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import EVERY_SCOPE, Goal, read_goal
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import Listing, Output, output_options, print_json
from kbserver.cli.shared.target import (
    CommandTarget,
    QueryOptions,
    ask_target,
    query_options,
    target_options,
)

PLAN, ANALYZE = "plan", "analyze"

SOURCE = "goal"
"""Name of the text that errors about a goal are in."""


@command(
    "ask",
    "kbcore ask 'ancestor(ann, ?who)'",
    "kbcore ask --csv 'parent(?x, ?y), age(?y, ?age), ?age < 18'",
)
@click.argument("goal")
@query_options()
@output_options
@target_options
def ask(target: CommandTarget, goal: str, options: QueryOptions, output: Output) -> None:
    """Answer a goal from facts and rules.

    GOAL is one literal, or several separated by commas. Prints one answer per line, or a table with
    a column for each variable. Exits with status 1 if there are no answers.
    """
    question = read_goal(goal)
    with errors_in(SOURCE, before=question.before):
        listing = answers_of(target, question, options, output.limit)
    output.show(listing)
    if not listing.records:
        raise SystemExit(1)


def answers_of(
    target: CommandTarget, goal: Goal, options: QueryOptions, limit: int | None = None
) -> Listing:
    """Return the answers of a goal; raises Failed and KBError."""
    if goal.positions is None:
        if options.scope == EVERY_SCOPE:
            raise Failed("--scope '*' takes a goal of one literal; name one scope")
        return _ask_several(target, goal, options, limit)
    return _ask_one(target, goal, options, limit)


def _ask_one(
    target: CommandTarget, goal: Goal, options: QueryOptions, limit: int | None
) -> Listing:
    """Return the answers of a goal of one literal."""
    body = {"text": goal.text, "limit": limit, **options.body()}
    rows = ask_target(target, "/ask", body).json()
    columns = dict(zip(goal.variables, goal.positions or (), strict=True))
    records = [
        {"bindings": {f"?{name}": row["args"][at] for name, at in columns.items()}, **row}
        for row in rows
    ]
    return _listing(goal, records)


def _ask_several(
    target: CommandTarget, goal: Goal, options: QueryOptions, limit: int | None
) -> Listing:
    """Return the answers of a goal of several literals."""
    body = {"text": goal.text, "limit": limit, **options.body()}
    return _listing(goal, ask_target(target, "/ask", body).json())


def _listing(goal: Goal, records: list[dict[str, Any]]) -> Listing:
    if goal.variables:
        names = [f"?{name}" for name in goal.variables]
        return Listing(
            records,
            goal.variables,
            lambda record: [record["bindings"][name] for name in names],
            _line,
        )
    return Listing(records, ("answer",), lambda record: [_line(record)], _line)


def _line(record: dict[str, Any]) -> str:
    """Return an answer as text: the atom of a goal of one literal, or the values of variables."""
    if "predicate" in record:
        return print_row(record["predicate"], record["args"], record["negated"])
    bindings = record["bindings"].items()
    return ", ".join(f"{name} = {print_constant(value)}" for name, value in bindings) or "yes"


@command("explain", "kbcore explain 'ancestor(ann, ?who)'")
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
    target: CommandTarget,
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
    """
    question = read_goal(goal)
    body: dict[str, Any] = {"text": question.text, **options.body()}
    if mode is None and not as_json:
        body |= {"limit": limit, "proofNodes": nodes}
    else:
        format = "json" if as_json else "text"
        body |= {"plan": True, "analyze": mode == ANALYZE, "format": format}
    with errors_in(SOURCE, before=question.before):
        answer = ask_target(target, "/explain", body)
    if as_json:
        print_json(answer.json())
    else:
        click.echo(answer.text.rstrip("\n"))


@command("whynot", "kbcore whynot 'ancestor(ann, zoe)'")
@click.argument("goal")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of candidates; default: 5")
@click.option(
    "--depth", type=click.IntRange(1), help="Levels of missing premises to follow; default: 1"
)
@click.option(
    "--min-confidence", type=click.FloatRange(0, 1), help="Least confidence of an answer, 0 to 1"
)
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON")
@query_options()
@target_options
def whynot(
    target: CommandTarget,
    goal: str,
    options: QueryOptions,
    limit: int | None,
    depth: int | None,
    min_confidence: float | None,
    as_json: bool,
) -> None:
    """Show why a goal has no answer.

    For each rule that could conclude GOAL, show how far its nearest instances get: the premises
    that hold, and the first one that is missing. GOAL may have several literals.
    """
    question = read_goal(goal)
    body: dict[str, Any] = {"text": question.text, "whyNot": True, **options.body()}
    body |= {"limit": limit, "depth": depth, "minConfidence": min_confidence}
    body["format"] = "json" if as_json else "text"
    with errors_in(SOURCE, before=question.before):
        answer = ask_target(target, "/explain", body)
    if as_json:
        print_json(answer.json())
    else:
        click.echo(answer.text.rstrip("\n"))


@command("how-to", "kbcore how-to 'can_read(zed, plan)'")
@click.argument("goal")
@click.option(
    "--make",
    type=click.Choice(["true", "false"]),
    default="true",
    help="Truth value that GOAL is to get; default: true",
)
@click.option(
    "--changing",
    multiple=True,
    metavar="PREDICATE",
    help="Predicate with rules whose facts may change too; repeatable",
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of proposals; default: 5")
@click.option("--json", "as_json", is_flag=True, help="Show the result as JSON")
@query_options("Scope of GOAL and of the changes")
@target_options
def how_to(
    target: CommandTarget,
    goal: str,
    make: str,
    changing: tuple[str, ...],
    options: QueryOptions,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the facts to add or remove that would make a goal true.

    The smallest changes come first, each of at most three facts of predicates without rules. GOAL
    may have several literals. Nothing is stored.
    """
    question = read_goal(goal)
    body: dict[str, Any] = {"text": question.text, "howTo": True, **options.body()}
    body |= {"make": make, "changing": list(changing), "limit": limit}
    body["format"] = "json" if as_json else "text"
    with errors_in(SOURCE, before=question.before):
        answer = ask_target(target, "/explain", body)
    if as_json:
        print_json(answer.json())
    else:
        click.echo(answer.text.rstrip("\n"))
