"""`kbcore scope`: fork, compare, merge, delete and list scopes."""

from __future__ import annotations

from typing import Any

import click

from kbplanner.syntax.printer import print_row
from kbserver.cli.shared import whole as _whole
from kbserver.cli.shared.target import Target, target_options


@click.group("scope")
def command() -> None:
    """Work on whole scopes. A scope that is not named is the base."""


@command.command("fork")
@click.argument("target_scope")
@click.option("--from", "source", help="scope to copy; the base by default")
@click.option("--overwrite", is_flag=True, help="replace a scope of this name")
@target_options
def fork(target: Target, target_scope: str, source: str | None, overwrite: bool) -> None:
    """Copy all facts of a scope, and the rules of its own, to TARGET_SCOPE."""
    click.echo(f"{_whole.fork(target, source, target_scope, overwrite)} facts copied")


@command.command("diff")
@click.option("--from", "source", help="scope to start from; the base by default")
@click.option("--to", "other", help="scope to arrive at; the base by default")
@target_options
def diff(target: Target, source: str | None, other: str | None) -> None:
    """Tell what leads from one scope to another.

    A line starts with - for what only the first has, + for what only the second has; a modified fact has both.
    """
    found = _whole.diff(target, source, other)
    for pair in found["modified"]:
        click.echo(f"- {_line(pair['before'])}\n+ {_line(pair['after'])}")
    for mark, rows in (("-", found["removed"]), ("+", found["added"])):
        for row in rows:
            click.echo(f"{mark} {_line(row)}")


@command.command("merge")
@click.argument("source")
@click.option("--into", "other", help="scope to add to; the base by default")
@click.option("--strategy", default="SOURCE_WINS", show_default=True, help="who decides conflicts")
@target_options
def merge(target: Target, source: str, other: str | None, strategy: str) -> None:
    """Add to a scope what SOURCE has, all of it or nothing."""
    merged, conflicts = _whole.merge(target, source, other, strategy)
    click.echo(f"{merged} facts merged, {conflicts} conflicts resolved")


@command.command("delete")
@click.argument("scope")
@target_options
def delete(target: Target, scope: str) -> None:
    """Delete SCOPE with all its facts and the rules of its own."""
    click.echo(f"{_whole.delete_scope(target, scope)} facts deleted")


@command.command("list")
@target_options
def list_(target: Target) -> None:
    """List the scopes, a line each."""
    for name in _whole.scopes(target):
        click.echo(name)


def _line(row: dict[str, Any]) -> str:
    """A fact with what it carries."""
    notes = [f"{key}={row[key]}" for key in ("confidence", "validUntil") if row[key] is not None]
    notes += [f"metadata={row['metadata']}"] if row["metadata"] else []
    return print_row(row["predicate"], row["args"], row["negated"]) + (
        f" [{', '.join(notes)}]" if notes else ""
    )
