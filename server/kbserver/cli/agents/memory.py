"""`kbcore memory`: decay, consolidation, priorities and recall."""

from __future__ import annotations

import json
from typing import Any

import click

from kbcore.errors import InvalidInput
from kbcore.kb.memory import DECAY_THRESHOLD, LEAST_GROUP
from kbcore.reason.ask import terms_of
from kbcore.timestamps import instant
from kbplanner.ir.terms import Atom
from kbplanner.syntax.jsonwriter import atom_to_json
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_atom
from kbserver.cli.shared.target import Server, Target, folder, target_options
from kbserver.schemas.memory import Consolidated, Decayed, with_truth_values

Rows = list[dict[str, Any]]

_dry_run = click.option("--dry-run", is_flag=True, help="Show the changes without making them")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print the JSON of the HTTP API")
_write_scope = click.option("--scope", help="Scope to change; default: the base")
_read_scope = click.option("--scope", help="Scope to read; '*' for all")
_Share = click.FloatRange(0, 1)


class Instant(click.ParamType[int]):
    """A point in time, as epoch milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse epoch milliseconds or an ISO 8601 time."""
        try:
            return instant(int(value) if str(value).lstrip("-").isdecimal() else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group("memory")
def memory() -> None:
    """Manage memory: decay, consolidation, priorities, recall."""


@memory.command("decay")
@click.option(
    "--threshold",
    type=_Share,
    default=DECAY_THRESHOLD,
    show_default=True,
    help="Remove facts with a lower salience",
)
@_write_scope
@_dry_run
@_as_json
@target_options
def decay(
    target: Target, threshold: float, scope: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove expired facts and facts of low salience.

    Prints each removed fact; with --dry-run also the reason.
    """
    report = _decay(target, threshold, scope, dry_run)
    if as_json:
        _print(report)
        return
    for row in report["removedAtoms"]:
        click.echo(f"- {_line(row)}{_reason(row)}")
    prefix = "dry run: " if dry_run else ""
    suffix = " (list truncated)" if report.get("truncated") else ""
    click.echo(
        f"{prefix}{report['expiredCount']} expired, {report['evictedCount']} of low salience{suffix}"
    )


@memory.command("consolidate")
@click.option(
    "--min-group-size",
    type=click.IntRange(2),
    default=LEAST_GROUP,
    show_default=True,
    help="Facts with the same predicate and first argument that make a summary",
)
@click.option(
    "--predicate", "predicates", multiple=True, help="Consolidate this predicate only; repeatable"
)
@_write_scope
@_dry_run
@_as_json
@target_options
def consolidate(
    target: Target,
    min_group_size: int,
    predicates: tuple[str, ...],
    scope: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Summarize groups of facts with the same predicate and first argument.

    Prints each new or changed summary.
    """
    report = _consolidate(target, min_group_size, list(predicates) or None, scope, dry_run)
    if as_json:
        _print(report)
        return
    for row in report["newFacts"]:
        click.echo(f"+ {_line(row)}")
    prefix = "dry run: " if dry_run else ""
    click.echo(
        f"{prefix}{report['factsConsolidated']} facts summarized, "
        f"{report['summariesRemoved']} summaries removed"
    )


@memory.command("priority")
@click.argument("fact")
@click.argument("priority", type=_Share)
@_write_scope
@target_options
def set_priority(target: Target, fact: str, priority: float, scope: str | None) -> None:
    """Set the priority of a stored FACT, from 0 to 1."""
    _prioritize(target, _atom(fact), priority, scope)


@memory.command("salient")
@click.argument("pattern", required=False)
@click.option("--predicate", help="List facts of this predicate, instead of PATTERN")
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum number of facts"
)
@click.option("--min", "minimum", type=_Share, default=0.0, help="Minimum salience")
@_read_scope
@_as_json
@target_options
def salient(
    target: Target, pattern: str | None, predicate: str | None, as_json: bool, **options: Any
) -> None:
    """List facts by salience.

    Lists all facts, those of --predicate, or those that match PATTERN.

    Example: kbcore memory salient 'saw(ann, ?x)'
    """
    if pattern is not None and predicate is not None:
        raise click.UsageError("use either PATTERN or --predicate, not both")
    rows = _salient(target, _atom(pattern) if pattern else None, predicate, **options)
    if as_json:
        _print(rows)
        return
    for row in rows:
        click.echo(f"{row['salience']:.3f}  {_line(row)}")


@memory.command("recall")
@click.argument("pattern")
@click.argument("time", type=Instant())
@click.option("--limit", type=click.IntRange(1), help="Maximum number of facts")
@_read_scope
@_as_json
@target_options
def recall(
    target: Target, pattern: str, time: int, limit: int | None, scope: str | None, as_json: bool
) -> None:
    """List the facts that were valid at a time.

    Lists the facts that match PATTERN. TIME is an ISO 8601 time such as 2026-01-31T12:00:00Z, or
    epoch milliseconds.
    """
    rows = _recall(target, _atom(pattern), time, limit, scope)
    if as_json:
        _print(rows)
        return
    for row in rows:
        click.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    return print_atom(Atom(row["predicate"], tuple(row["args"]), not row["negated"]))


def _reason(row: dict[str, Any]) -> str:
    """Return why a fact would be removed; empty if the row has no reason."""
    why = row.get("why")
    if not why:
        return ""
    salience = f", salience {why['salience']:.3f}" if "salience" in why else ""
    return f"  [{why['reason']}{salience}]"


def _print(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def _decay(target: Target, threshold: float, scope: str | None, dry_run: bool) -> dict[str, Any]:
    """Return the answer of POST /memory/decay."""
    if isinstance(target, Server):
        body = {"threshold": threshold, "scope": scope, "dryRun": dry_run}
        report: dict[str, Any] = target.send("POST", "/memory/decay", body).json()
        return report
    outcome = folder(target).kb.decay(threshold, scope=scope, dry_run=dry_run)
    evicted: dict[str, Any] = Decayed.write(outcome)
    return evicted


def _consolidate(
    target: Target,
    min_group_size: int,
    predicates: list[str] | None,
    scope: str | None,
    dry_run: bool,
) -> dict[str, Any]:
    """Return the answer of POST /memory/consolidate."""
    if isinstance(target, Server):
        body = {
            "minGroupSize": min_group_size,
            "predicates": predicates,
            "scope": scope,
            "dryRun": dry_run,
        }
        report: dict[str, Any] = target.send("POST", "/memory/consolidate", body).json()
        return report
    kb = folder(target).kb
    outcome = kb.consolidate(
        min_group_size=min_group_size, predicates=predicates, scope=scope, dry_run=dry_run
    )
    summaries: dict[str, Any] = Consolidated.write(outcome)
    return summaries


def _prioritize(target: Target, fact: Atom, priority: float, scope: str | None) -> None:
    """Set the priority of a stored fact; raises InvalidInput for a pattern."""
    args = [arg for arg in fact.args if isinstance(arg, str)]
    if len(args) != fact.arity:
        raise InvalidInput("a variable in a fact: priority takes one stored fact")
    if isinstance(target, Server):
        target.send(
            "POST", "/memory/priority", {**_atom_body(fact), "priority": priority, "scope": scope}
        )
    else:
        folder(target).kb.kb.prioritize(
            fact.predicate, args, priority, positive=fact.positive, scope=scope
        )


def _salient(
    target: Target,
    pattern: Atom | None,
    predicate: str | None,
    limit: int,
    minimum: float,
    scope: str | None,
) -> Rows:
    """Return facts by salience: those that match a pattern with either sign, of a predicate, or
    all.
    """
    if isinstance(target, Server):
        body = _atom_body(pattern) if pattern else {"predicate": predicate}
        body.pop("negated", None)
        body |= {"limit": limit, "minSalience": minimum, "scope": scope}
        rows: Rows = target.send("POST", "/memory/query/salient", body).json()
        return rows
    name, args = (pattern.predicate, terms_of(pattern)) if pattern else (predicate, None)
    return folder(target).kb.kb.salient(name, args, limit=limit, minimum=minimum, scope=scope)


def _recall(target: Target, pattern: Atom, at: int, limit: int | None, scope: str | None) -> Rows:
    """Return the facts that match a pattern and were valid at a time in epoch milliseconds."""
    if isinstance(target, Server):
        body = {**_atom_body(pattern), "timestamp": at, "limit": limit, "scope": scope}
        rows: Rows = target.send("POST", "/memory/recall", body).json()
        return rows
    kb, args = folder(target).kb.kb, terms_of(pattern)
    return with_truth_values(
        kb.recall(pattern.predicate, args, at, positive=pattern.positive, limit=limit, scope=scope)
    )


def _atom(text: str) -> Atom:
    """Read one atom, `p(...)` or `~p(...)`; raises RuleSyntaxError and InvalidInput."""
    literal = parse_goal(text).literal
    if literal.negated:
        raise InvalidInput("'not' is for goals; write a stored negative fact as ~p(...)")
    return literal.atom


def _atom_body(pattern: Atom) -> dict[str, Any]:
    return {
        "predicate": pattern.predicate,
        "args": atom_to_json(pattern)["args"],
        "negated": not pattern.positive,
    }
