"""`kbcore memory`: let facts fade, sum them up, rank them, and see what was."""

from __future__ import annotations

import json
from typing import Any

import click

from kbcore.kb.memory import DECAY_THRESHOLD, LEAST_GROUP
from kbcore.timestamps import instant
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_atom
from kbserver.cli.shared import upkeep as _upkeep
from kbserver.cli.shared.target import Target, target_options

_dry_run = click.option("--dry-run", is_flag=True, help="change nothing, tell what would happen")
_as_json = click.option(
    "--json", "as_json", is_flag=True, help="print what the HTTP interface answers"
)
_to_write = click.option("--scope", help="partition to work on; the base by default")
_to_read = click.option("--scope", help="partition to read; '*' for every one")
_Share = click.FloatRange(0, 1)


class Instant(click.ParamType[int]):
    """A moment, as epoch milliseconds."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read what was typed."""
        try:
            return instant(int(value) if str(value).lstrip("-").isdecimal() else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group("memory")
def command() -> None:
    """Look after what is remembered."""


@command.command("decay")
@click.option(
    "--threshold",
    type=_Share,
    default=DECAY_THRESHOLD,
    show_default=True,
    help="salience below which a fact goes",
)
@_to_write
@_dry_run
@_as_json
@target_options
def decay(
    target: Target, threshold: float, scope: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove what has expired, and what matters too little.

    Each fact that goes is a line; with --dry-run it says why it would.
    """
    report = _upkeep.decay(target, threshold, scope, dry_run)
    if as_json:
        _print(report)
        return
    for row in report["removedAtoms"]:
        click.echo(f"- {_line(row)}{_why(row)}")
    would = "would go: " if dry_run else ""
    more = " (not all are listed)" if report.get("truncated") else ""
    click.echo(f"{would}{report['expiredCount']} expired, {report['evictedCount']} faded{more}")


@command.command("consolidate")
@click.option(
    "--min-group-size", "least", type=click.IntRange(2), default=LEAST_GROUP, show_default=True
)
@click.option(
    "--predicate",
    "predicates",
    multiple=True,
    help="sum up this predicate only; may be given again",
)
@_to_write
@_dry_run
@_as_json
@target_options
def consolidate(
    target: Target,
    least: int,
    predicates: tuple[str, ...],
    scope: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Sum up facts that agree in predicate and first argument. Each summary that is new or another one is a line."""
    report = _upkeep.consolidate(target, least, predicates or None, scope, dry_run)
    if as_json:
        _print(report)
        return
    for row in report["newFacts"]:
        click.echo(f"+ {_line(row)}")
    would = "would be: " if dry_run else ""
    click.echo(
        f"{would}{report['factsConsolidated']} facts summed up, {report['summariesRemoved']} summaries removed"
    )


@command.command("priority")
@click.argument("fact")
@click.argument("priority", type=_Share)
@_to_write
@target_options
def priority(target: Target, fact: str, priority: float, scope: str | None) -> None:
    """Say how important a stored FACT is, from 0 to 1."""
    _upkeep.prioritize(target, _upkeep.atom(fact), priority, scope)


@command.command("salient")
@click.argument("pattern", required=False)
@click.option("--predicate", help="facts of this predicate, in place of a PATTERN")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--min", "minimum", type=_Share, default=0.0, help="leave out what has less salience")
@_to_read
@_as_json
@target_options
def salient(
    target: Target,
    pattern: str | None,
    predicate: str | None,
    limit: int,
    minimum: float,
    scope: str | None,
    as_json: bool,
) -> None:
    """List the facts that matter most: all, those of a predicate, or those that match PATTERN, such as 'saw(ann, ?x)'."""
    if pattern is not None and predicate is not None:
        raise click.UsageError("a pattern names its predicate")
    rows = _upkeep.salient(
        target, _upkeep.atom(pattern) if pattern else None, predicate, limit, minimum, scope
    )
    if as_json:
        _print(rows)
        return
    for row in rows:
        click.echo(f"{row['salience']:.3f}  {_line(row)}")


@command.command("recall")
@click.argument("pattern")
@click.argument("moment", type=Instant())
@click.option("--limit", type=click.IntRange(1))
@_to_read
@_as_json
@target_options
def recall(
    target: Target, pattern: str, moment: int, limit: int | None, scope: str | None, as_json: bool
) -> None:
    """List the facts that match PATTERN and were valid at MOMENT: 2026-01-31T12:00:00Z, or epoch milliseconds."""
    rows = _upkeep.recall(target, _upkeep.atom(pattern), moment, limit, scope)
    if as_json:
        _print(rows)
        return
    for row in rows:
        click.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    return print_atom(Atom(row["predicate"], tuple(row["args"]), not row["negated"]))


def _why(row: dict[str, Any]) -> str:
    why = row.get("why")
    if not why:
        return ""
    return (
        f"  [{why['reason']}, salience {why['salience']:.3f}]"
        if "salience" in why
        else f"  [{why['reason']}]"
    )


def _print(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
