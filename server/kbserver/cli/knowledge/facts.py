"""`kbcore query`, `predicates`, `rules` and `forget`: what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import click

from kbcore.timestamps import iso_text
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_row
from kbserver.cli.knowledge.differences import difference_lines
from kbserver.cli.knowledge.preview import preview_option, show_preview
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import read_goal
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import Listing, Output, output_options, retraction_text
from kbserver.cli.shared.target import (
    CommandTarget,
    QueryOptions,
    ask_target,
    known_at_option,
    query_options,
    query_string,
    target_options,
)

_FACT = "fact"


@command("query", "kbcore query 'parent(?x, ?y)'")
@click.argument("pattern")
@query_options()
@output_options
@target_options
def query(target: CommandTarget, pattern: str, options: QueryOptions, output: Output) -> None:
    """List stored facts, without applying rules.

    PATTERN is an atom such as 'parent(ann, ?x)', where variables match anything; '~parent(ann, ?x)'
    lists explicit negatives. Prints one fact per line, or a table with a column for each argument.
    Exits with status 1 if no fact matches.
    """
    atom = read_goal(pattern)
    body = {"text": atom.text, "limit": output.limit, **options.body()}
    with errors_in("pattern", before=atom.before):
        rows = ask_target(target, "/query", body).json()
    columns = dict(zip(atom.positions or (), atom.variables, strict=False))
    output.show(fact_listing(rows, columns, atom.arity))
    if not rows:
        raise SystemExit(1)


def fact_listing(
    rows: list[dict[str, Any]], names: Mapping[int, str] = MappingProxyType({}), arity: int = 0
) -> Listing:
    """Return rows as a listing: arguments, and attributes that any row has.

    `names` are headings of arguments by position, from 0; the others are called `arg1` and so on.
    There are at least `arity` columns of arguments.
    """
    arity = max((len(row["args"]) for row in rows), default=arity)
    extra = [name for name in _ATTRIBUTES if any(_is_set(row, name) for row in rows)]

    def cells(row: dict[str, Any]) -> list[object]:
        args = [*row["args"], *[None] * (arity - len(row["args"]))]
        return [*args, *(_attribute(row, name) for name in extra)]

    columns = [names.get(index, f"arg{index + 1}") for index in range(arity)] + extra
    return Listing(rows, columns, cells, fact_line)


_TIMES = ("validFrom", "validUntil")
_ATTRIBUTES = ("negated", "scope", "confidence", *_TIMES, "metadata")


def _is_set(row: dict[str, Any], name: str) -> bool:
    if name == "validFrom" and row.get(name) == row.get("createdAt"):
        return False
    return bool(row.get(name)) or (name == "confidence" and row.get(name) is not None)


def _attribute(row: dict[str, Any], name: str) -> object:
    if not _is_set(row, name):
        return None
    value: object = row[name]
    return time_text(value) if isinstance(value, int) and name in _TIMES else value


def time_text(epoch_ms: int) -> str:
    """Return a point in time as ISO 8601 text, or the milliseconds if a calendar cannot show it."""
    try:
        time = datetime.fromtimestamp(epoch_ms / 1000, timezone.utc)
        return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)


def fact_line(row: dict[str, Any]) -> str:
    """Return a row as text: `p(a, b)` or `not p(a, b)`."""
    return print_row(row["predicate"], row["args"], row["negated"])


@command("predicates")
@click.option("--scope", help="Scope to list; '*' for all; default: the base")
@known_at_option
@output_options
@target_options
def predicates(
    target: CommandTarget, scope: str | None, known_at: str | None, output: Output
) -> None:
    """List the predicates.

    Shows the number of arguments, of stored facts, and of rules that derive the predicate.
    """
    path = f"/predicates{query_string(scope=scope, knownAt=known_at)}"
    rows = target.send("GET", path).json()["predicates"]
    output.show(predicate_listing(rows))


def predicate_listing(rows: list[dict[str, Any]]) -> Listing:
    """Return the predicates of `GET /predicates` as a listing."""
    return Listing(
        rows,
        ("predicate", "arity", "facts", "rules"),
        lambda row: (row["predicate"], row["arity"], row["factCount"], row["ruleCount"]),
        lambda row: (
            f"{row['predicate']}/{row['arity']}  {counted(row['factCount'], 'fact')}, {counted(row['ruleCount'], 'rule')}"
        ),
    )


@command("rules")
@click.option("--scope", help="Scope whose rules to list; default: the rules of all scopes")
@click.option("--set", "set_name", metavar="NAME", help="List the versions of this rule set")
@click.option(
    "--diff",
    "versions",
    metavar="M..N",
    help="With --set: show what is added (+), changed (~) and removed (-) from version M to N",
)
@known_at_option
@output_options
@target_options
def rules(
    target: CommandTarget,
    scope: str | None,
    set_name: str | None,
    versions: str | None,
    known_at: str | None,
    output: Output,
) -> None:
    """List the rules, or the versions of a rule set.

    Prints the text of each rule, or a table with ids; `kbcore forget --rule ID` removes one.
    """
    if set_name is not None:
        if known_at is not None:
            raise Failed("--set shows what is kept now; it takes no --known-at")
        _list_versions(target, f"/rulesets/{quote(set_name, safe='')}", scope, versions, output)
        return
    if versions is not None:
        raise Failed("--diff compares versions of a rule set; name it with --set")
    path = f"/rules{query_string(scope='*' if scope is None else scope, knownAt=known_at)}"
    rows = target.send("GET", path).json()["rules"]
    output.show(rule_listing(rows))


def _list_versions(
    target: CommandTarget, path: str, scope: str | None, versions: str | None, output: Output
) -> None:
    """List the versions of a rule set, or the difference between two of them."""
    if versions is None:
        rows = target.send("GET", f"{path}/versions{query_string(scope=scope)}").json()["versions"]
        output.show(
            Listing(
                rows,
                (
                    "version",
                    "deployed",
                    "added",
                    "changed",
                    "removed",
                    "key",
                    "revision",
                    "message",
                ),
                lambda row: (
                    row["version"],
                    iso_text(row["deployedAt"]),
                    row["added"],
                    row["changed"],
                    row["removed"],
                    row["key"],
                    row["revision"],
                    row["message"],
                ),
                lambda row: (
                    f"{row['version']}  {iso_text(row['deployedAt'])}  {row['added']} added,"
                    f" {row['changed']} changed, {row['removed']} removed"
                    + (f"  {row['message']}" if row["message"] else "")
                ),
            )
        )
        return
    before, dots, after = versions.partition("..")
    if not (dots and before.isdecimal() and after.isdecimal()):
        raise Failed(f"--diff takes two versions, such as 3..5, not {versions!r}")
    query = query_string(**{"from": before, "to": after, "scope": scope})
    for line in difference_lines(target.send("GET", f"{path}/diff{query}").json()):
        click.echo(line)


def rule_listing(rows: list[dict[str, Any]]) -> Listing:
    """Return the rules of `GET /rules` as a listing."""
    return Listing(
        rows,
        ("id", "scope", "rule"),
        lambda row: (row["id"], row["scope"], row["text"]),
        lambda row: row["text"],
    )


@command("forget", "kbcore forget 'parent(ann, bob)' 'age(ann, ?_)'", "kbcore forget --rule r1")
@click.argument("facts", nargs=-1)
@click.option(
    "--rule", "rule_ids", multiple=True, metavar="ID", help="Retract this rule; repeatable"
)
@click.option("--scope", help="Scope of the facts and rules; default: the base")
@preview_option
@target_options
def forget(
    target: CommandTarget,
    facts: tuple[str, ...],
    rule_ids: tuple[str, ...],
    scope: str | None,
    preview: bool,
) -> None:
    """Retract facts or rules.

    Each of FACTS is retracted with both signs, or only the explicit negative if it is '~p(a)'. In a
    pattern such as 'parent(ann, ?x)' a variable matches anything. Prints the number of retracted
    facts, and of conclusions that no longer hold. Ids of rules are in `kbcore rules --table`. With
    --preview, prints what would become true or false, and retracts nothing.
    """
    if not facts and not rule_ids:
        raise click.UsageError("missing argument FACTS or option --rule")
    atoms = [read_goal(fact) for fact in facts]
    if any(atom.positions is None or ":-" in atom.text for atom in atoms):
        raise Failed("each argument is one fact or pattern; remove a rule with --rule ID")
    if preview:
        change = {"forget": [atom.text for atom in atoms], "forgetRules": rule_ids, "scope": scope}
        with errors_in(_FACT):
            show_preview(target, change)
        return
    retracted = cascaded = 0
    for atom in atoms:
        body = {"text": atom.text, "scope": scope}
        with errors_in(_FACT, before=atom.before):
            answer = ask_target(target, "/retract/pattern", body).json()
        retracted += answer["retracted"]
        cascaded += answer["cascaded"]
    if facts:
        click.echo(f"{retracted} retracted{retraction_text(cascaded)}")
    for id in rule_ids:
        body = {"id": id, "scope": scope}
        click.echo(target.send("POST", "/retract/rule", body).text)
