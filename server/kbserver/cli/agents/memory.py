"""`kbcore memory`: decay, consolidation, priorities and recall; `corrections` has the rest."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import click

from kbplanner.syntax.diagnostics import counted
from kbserver.cli.agents.corrections import COMMANDS, InstantParam, line_of
from kbserver.cli.knowledge.facts import fact_listing
from kbserver.cli.shared.confirm import confirmed
from kbserver.cli.shared.exits import errors_in
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import (
    Listing,
    Output,
    OutputOption,
    output_options,
    print_json,
)
from kbserver.cli.shared.target import CommandTarget, instant_of, known_at_option, target_options

_PARSER = ("parser", "jsonwriter")

_dry_run = click.option("--dry-run", is_flag=True, help="Show the changes without making them")
_as_json = click.option(
    "--json", "as_json", is_flag=True, cls=OutputOption, help="Print the JSON of the HTTP API"
)
_write_scope = click.option("--scope", help="Scope to change; default: the base")
_read_scope = click.option("--scope", help="Scope to read; '*' for all")
_Share = click.FloatRange(0, 1)


@click.group("memory", cls=CommandGroup)
def memory() -> None:
    """Manage memory: episodes, corrections, purges, decay, recall."""


for _command in COMMANDS:
    memory.add_command(_command)


@memory.command("decay")
@click.option(
    "--threshold",
    type=_Share,
    help="Remove facts with a lower salience; default: 0.05",
)
@_write_scope
@_dry_run
@confirmed("This removes facts for good; --dry-run shows them. Continue?", unless="dry_run")
@_as_json
@target_options
def decay(
    target: CommandTarget, threshold: float | None, scope: str | None, dry_run: bool, as_json: bool
) -> None:
    """Remove expired facts and facts of low salience.

    Prints each removed fact; with --dry-run also the reason.
    """
    body = {"threshold": threshold, "scope": scope, "dryRun": dry_run}
    report = target.send("POST", "/memory/decay", body).json()
    if as_json:
        print_json(report)
        return
    for row in report["removedAtoms"]:
        click.echo(f"- {line_of(row)}{_reason(row)}")
    prefix = "dry run: " if dry_run else ""
    suffix = " (list truncated)" if report.get("truncated") else ""
    click.echo(
        f"{prefix}{report['expiredCount']} expired, {report['evictedCount']} of low salience{suffix}"
    )


@memory.command("consolidate")
@click.option(
    "--min-group-size",
    type=click.IntRange(2),
    help="Facts with the same predicate and first argument that make a summary; default: 5",
)
@click.option(
    "--predicate", "predicates", multiple=True, help="Consolidate this predicate only; repeatable"
)
@_write_scope
@_dry_run
@_as_json
@target_options
def consolidate(
    target: CommandTarget,
    min_group_size: int | None,
    predicates: tuple[str, ...],
    scope: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Summarize groups of facts with the same predicate and first argument.

    Prints each new or changed summary.
    """
    body = {
        "minGroupSize": min_group_size,
        "predicates": list(predicates) or None,
        "scope": scope,
        "dryRun": dry_run,
    }
    report = target.send("POST", "/memory/consolidate", body).json()
    if as_json:
        print_json(report)
        return
    for row in report["newFacts"]:
        click.echo(f"+ {line_of(row)}")
    prefix = "dry run: " if dry_run else ""
    click.echo(
        f"{prefix}{counted(report['factsConsolidated'], 'fact')} summarized, "
        f"{report['summariesRemoved']} summaries removed"
    )


@memory.command("priority")
@click.argument("fact")
@click.argument("priority", type=_Share)
@_write_scope
@target_options
def set_priority(target: CommandTarget, fact: str, priority: float, scope: str | None) -> None:
    """Set the priority of a stored FACT, from 0 to 1."""
    body = {**_pattern(fact), "priority": priority, "scope": scope}
    with errors_in("fact"):
        target.send("POST", "/memory/priority", body)


@memory.command("salient")
@click.argument("pattern", required=False)
@click.option("--predicate", help="List facts of this predicate, instead of PATTERN")
@click.option("--min", "minimum", type=_Share, default=0.0, help="Minimum salience")
@_read_scope
@known_at_option
@output_options
@target_options
def salient(
    target: CommandTarget,
    pattern: str | None,
    predicate: str | None,
    minimum: float,
    scope: str | None,
    known_at: str | None,
    output: Output,
) -> None:
    """List facts by salience.

    Lists all facts, those of --predicate, or those that match PATTERN; 50 unless --limit says
    otherwise.
    """
    if pattern is not None and predicate is not None:
        raise click.UsageError("use either PATTERN or --predicate, not both")
    body: dict[str, Any] = {"limit": output.limit, "minSalience": minimum, "scope": scope}
    body["knownAt"] = instant_of(known_at)
    if pattern is not None:
        # The operation takes no text, so the pattern is parsed here.
        parser, writer = (import_module(f"kbplanner.syntax.{name}") for name in _PARSER)
        with errors_in("pattern"):
            atom = writer.atom_to_json(parser.parse_atom(pattern))
        body |= {"predicate": atom["predicate"], "args": atom["args"]}
    elif predicate is not None:
        body["predicate"] = predicate
    rows = target.send("POST", "/memory/query/salient", body).json()
    output.show(
        Listing(
            rows,
            ("salience", "fact", "scope"),
            lambda row: (f"{row['salience']:.3f}", line_of(row), row["scope"]),
            lambda row: f"{row['salience']:.3f}  {line_of(row)}",
        )
    )


@memory.command("recall")
@click.argument("pattern")
@click.argument("time", type=InstantParam())
@_read_scope
@known_at_option
@output_options
@target_options
def recall(
    target: CommandTarget,
    pattern: str,
    time: int,
    scope: str | None,
    known_at: str | None,
    output: Output,
) -> None:
    """List the facts that were valid at a time.

    Lists the facts that match PATTERN. TIME is an ISO 8601 time such as 2026-01-31T12:00:00Z, or
    epoch milliseconds.
    """
    body = {**_pattern(pattern), "timestamp": time, "limit": output.limit, "scope": scope}
    body["knownAt"] = instant_of(known_at)
    with errors_in("pattern"):
        rows = target.send("POST", "/memory/recall", body).json()
    output.show(replace(fact_listing(rows), line=line_of))


def _pattern(text: str) -> dict[str, Any]:
    """Return the members of a body for an atom; one without a sign matches positive facts only."""
    return {"text": text, "negated": False}


def _reason(row: dict[str, Any]) -> str:
    """Return why a fact would be removed; empty if the row has no reason."""
    why = row.get("why")
    if not why:
        return ""
    salience = f", salience {why['salience']:.3f}" if "salience" in why else ""
    return f"  [{why['reason']}{salience}]"
