"""`kbcore scope`: fork, compare, merge, delete and list scopes."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_row
from kbserver.cli.shared.confirm import confirmed
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import Listing, Output, names_listing, output_options
from kbserver.cli.shared.target import (
    CommandTarget,
    instant_of,
    known_at_option,
    query_string,
    target_options,
)


@click.group("scope", cls=CommandGroup)
def scope() -> None:
    """Fork, compare, merge, delete and list scopes. The default scope is the base."""


@scope.command("fork")
@click.argument("target_scope")
@click.option("--from", "source", help="Scope to copy; default: the base")
@click.option("--overwrite", is_flag=True, help="Replace TARGET_SCOPE if it exists")
@target_options
def fork(target: CommandTarget, target_scope: str, source: str | None, overwrite: bool) -> None:
    """Copy a scope, with its facts and rules, to TARGET_SCOPE."""
    body = {"sourceScope": source, "targetScope": target_scope, "overwrite": overwrite}
    copied = target.send("POST", "/scope/fork", body).json()["copied"]
    click.echo(f"{counted(copied, 'fact')} copied")


@scope.command("diff")
@click.option("--from", "source", help="First scope; default: the base")
@click.option("--to", "other", help="Second scope; default: the base")
@known_at_option
@output_options
@target_options
def diff(
    target: CommandTarget,
    source: str | None,
    other: str | None,
    known_at: str | None,
    output: Output,
) -> None:
    """Show the differences between two scopes.

    Lines with - are in the first scope only, lines with + in the second only; a modified fact has
    both.
    """
    body = {"sourceScope": source, "targetScope": other, "knownAt": instant_of(known_at)}
    difference = target.send("POST", "/scope/diff", body).json()
    records = [
        {"change": mark, **row}
        for pair in difference["modified"]
        for mark, row in (("-", pair["before"]), ("+", pair["after"]))
    ]
    for mark, rows in (("-", difference["removed"]), ("+", difference["added"])):
        records += ({"change": mark, **row} for row in rows)
    output.show(
        Listing(
            records,
            ("change", "fact"),
            lambda row: (row["change"], _line(row)),
            lambda row: f"{row['change']} {_line(row)}",
        )
    )


@scope.command("merge")
@click.argument("source")
@click.option("--into", "other", help="Scope to merge into; default: the base")
@click.option(
    "--strategy", default="SOURCE_WINS", show_default=True, help="Strategy that resolves conflicts"
)
@target_options
def merge(target: CommandTarget, source: str, other: str | None, strategy: str) -> None:
    """Merge scope SOURCE into another scope. Merges everything or nothing."""
    body = {"sourceScope": source, "targetScope": other, "strategy": strategy}
    counts = target.send("POST", "/scope/merge", body).json()
    facts = counted(counts["merged"], "fact")
    click.echo(f"{facts} merged, {counted(counts['conflictsResolved'], 'conflict')} resolved")


@scope.command("delete")
@click.argument("name")
@confirmed("This deletes scope {name} with its facts and rules. Continue?")
@target_options
def delete(target: CommandTarget, name: str) -> None:
    """Delete scope NAME with its facts and rules."""
    deleted = target.send("DELETE", f"/scope/{quote(name, safe='')}").json()["deleted"]
    click.echo(f"{counted(deleted, 'fact')} deleted")


@scope.command("list")
@known_at_option
@output_options
@target_options
def list_(target: CommandTarget, known_at: str | None, output: Output) -> None:
    """List the scopes, one per line."""
    path = f"/scopes{query_string(knownAt=known_at)}"
    output.show(names_listing(target.send("GET", path).json()["scopes"], "scope"))


def _line(row: dict[str, Any]) -> str:
    """Return a fact with its confidence, validity and metadata as text."""
    notes = [f"{key}={row[key]}" for key in ("confidence", "validUntil") if row[key] is not None]
    notes += [f"metadata={row['metadata']}"] if row["metadata"] else []
    return print_row(row["predicate"], row["args"], row["negated"]) + (
        f" [{', '.join(notes)}]" if notes else ""
    )
