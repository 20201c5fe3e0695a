"""`kbcore sql`: a goal as a condition for the tables of a database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kbcore.bulk.job import read_goal
from kbcore.bulk.sql import SqlGoal, sql_condition
from kbcore.config.settings import Config
from kbcore.errors import InvalidInput
from kbcore.language.dump import listed_rule
from kbcore.plug.manager import Plugins
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.printer import print_atom
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import EVERY_SCOPE
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.pages import pages
from kbserver.cli.shared.target import CommandTarget, ask_target, target_options

FALSE_CONDITION = "FALSE"
"""The condition of a goal that holds for no row."""

CHANGED = "the facts changed while they were read; try again"


@command(
    "sql",
    "kbcore sql 'can_read(ann, ?doc)' --table 'documents=document(id, owner, size)'",
)
@click.argument("goal")
@click.option(
    "--table",
    "tables",
    multiple=True,
    required=True,
    metavar="NAME=PREDICATE(COLUMNS)",
    help="Table with the facts of a predicate, its columns by position; repeatable",
)
@click.option(
    "--dialect",
    default="postgres",
    show_default=True,
    help="Dialect: postgres, sqlite or duckdb",
)
@click.option("--scope", help="Scope of the rules and facts; default: the base")
@target_options
def sql(
    target: CommandTarget, goal: str, tables: tuple[str, ...], dialect: str, scope: str | None
) -> None:
    """Print a condition for the rows of your own table that a goal holds for.

    GOAL is an atom with one variable, which stands for the first column of the first --table.
    Append the condition to the WHERE of a query of that table. Facts of predicates without a
    --table are written into the condition as they are now.
    """
    if scope == EVERY_SCOPE:
        raise Failed("--scope '*': a condition is about one scope", 2)
    dialects = Plugins(Config.from_env()).sql_dialects()
    if dialect not in dialects:
        raise Failed(f"--dialect must be one of {', '.join(sorted(dialects))}", 2)
    listed = target.send("GET", "/rules?scope=*").json()
    with errors_in("goal"):
        _refuse_required(read_goal(goal), listed.get("requirements", ()), target)
    rules = [
        listed_rule(row["id"], row["text"], row["scope"])
        for row in listed["rules"]
        if row["scope"] in (None, scope)
    ]
    with errors_in("goal"):
        text = sql_condition(
            SqlGoal(goal, tables), rules, _TargetFacts(target, scope), dialects[dialect]
        )
    if text == FALSE_CONDITION:
        ask_target(target, "/query", {"text": goal, "scope": scope})  # it says what is unknown
    click.echo(text)


def _refuse_required(
    goal: Atom, requirements: Iterable[dict[str, Any]], target: CommandTarget
) -> None:
    """Fail for a goal whose predicate requires a level of labels, without a view of this level."""
    view = json.loads(target.headers.get("X-View", "{}"))
    for row in requirements:
        if (row["predicate"], row["arity"]) != (goal.predicate, goal.arity):
            continue
        if view.get(row["dimension"]) != row["level"]:
            needed = json.dumps({row["dimension"]: row["level"]})
            raise Failed(f"{goal.predicate}/{goal.arity} requires --view '{needed}'")


class _TargetFacts:
    """Facts and conclusions of a target, as `SqlFacts`."""

    def __init__(self, target: CommandTarget, scope: str | None) -> None:
        self._target = target
        self._scope = scope

    def stored(self, atom: Atom) -> list[dict[str, Any]]:
        """Return the stored facts that match."""
        rows = self._rows("/query", Atom(atom.predicate, atom.args))
        return [row for row in rows if row["negated"] is not atom.positive]

    def derived(self, atom: Atom) -> list[tuple[str, ...]]:
        """Return the answers of an atom."""
        return [tuple(row["args"]) for row in self._rows("/ask", atom)]

    def is_provided(self, schema: RelationSchema) -> bool:
        """Return True if a predicate without facts and rules has answers, or needs values."""
        atom = Atom(schema.predicate, (Variable("_"),) * schema.arity)
        if any(not row["negated"] for row in self._each("/query", atom)):
            return False
        try:
            return any(True for _ in self._each("/ask", atom))
        except InvalidInput:  # of a folder that is open here
            return True
        except Failed as error:
            if error.code != InvalidInput.code:
                raise
            return True

    def _rows(self, route: str, atom: Atom) -> list[dict[str, Any]]:
        return list(self._each(route, atom))

    def _each(self, route: str, atom: Atom) -> Iterator[dict[str, Any]]:
        body = {"text": print_atom(atom), "scope": self._scope}
        for page in pages(self._target, route, body, CHANGED):
            yield from page
