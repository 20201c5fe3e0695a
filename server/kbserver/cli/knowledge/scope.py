"""`kbcore scope`: fork, compare, merge, delete and list scopes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import click

from kbplanner.syntax.printer import print_row
from kbserver.cli.shared.target import Server, Target, folder, target_options


@click.group("scope")
def scope() -> None:
    """Fork, compare, merge, delete and list scopes. The default scope is the base."""


@scope.command("fork")
@click.argument("target_scope")
@click.option("--from", "source", help="Scope to copy; default: the base")
@click.option("--overwrite", is_flag=True, help="Replace TARGET_SCOPE if it exists")
@target_options
def fork(target: Target, target_scope: str, source: str | None, overwrite: bool) -> None:
    """Copy a scope, with its facts and rules, to TARGET_SCOPE."""
    click.echo(f"{_fork(target, source, target_scope, overwrite)} facts copied")


@scope.command("diff")
@click.option("--from", "source", help="First scope; default: the base")
@click.option("--to", "other", help="Second scope; default: the base")
@target_options
def diff(target: Target, source: str | None, other: str | None) -> None:
    """Show the differences between two scopes.

    Lines with - are in the first scope only, lines with + in the second only; a modified fact has
    both.
    """
    difference = _diff(target, source, other)
    for pair in difference["modified"]:
        click.echo(f"- {_line(pair['before'])}\n+ {_line(pair['after'])}")
    for mark, rows in (("-", difference["removed"]), ("+", difference["added"])):
        for row in rows:
            click.echo(f"{mark} {_line(row)}")


@scope.command("merge")
@click.argument("source")
@click.option("--into", "other", help="Scope to merge into; default: the base")
@click.option(
    "--strategy", default="SOURCE_WINS", show_default=True, help="Strategy that resolves conflicts"
)
@target_options
def merge(target: Target, source: str, other: str | None, strategy: str) -> None:
    """Merge scope SOURCE into another scope. Merges everything or nothing."""
    merged, conflicts = _merge(target, source, other, strategy)
    click.echo(f"{merged} facts merged, {conflicts} conflicts resolved")


@scope.command("delete")
@click.argument("name")
@target_options
def delete(target: Target, name: str) -> None:
    """Delete scope NAME with its facts and rules."""
    click.echo(f"{_delete(target, name)} facts deleted")


@scope.command("list")
@target_options
def list_(target: Target) -> None:
    """List the scopes, one per line."""
    for name in _list(target):
        click.echo(name)


def _line(row: dict[str, Any]) -> str:
    """Return a fact with its confidence, validity and metadata as text."""
    notes = [f"{key}={row[key]}" for key in ("confidence", "validUntil") if row[key] is not None]
    notes += [f"metadata={row['metadata']}"] if row["metadata"] else []
    return print_row(row["predicate"], row["args"], row["negated"]) + (
        f" [{', '.join(notes)}]" if notes else ""
    )


def _fork(target: Target, source: str | None, name: str, overwrite: bool) -> int:
    """Copy a scope and return the number of copied facts."""
    if isinstance(target, Server):
        body = {"sourceScope": source, "targetScope": name, "overwrite": overwrite}
        return int(target.send("POST", "/scope/fork", body).json()["copied"])
    return folder(target).kb.fork(name, source, overwrite=overwrite).copied


def _diff(target: Target, source: str | None, other: str | None) -> dict[str, Any]:
    """Return the difference of two scopes: `added`, `removed`, `modified`."""
    if isinstance(target, Server):
        body = {"sourceScope": source, "targetScope": other}
        difference: dict[str, Any] = target.send("POST", "/scope/diff", body).json()
        return difference
    return asdict(folder(target).kb.diff(source, other))


def _merge(target: Target, source: str | None, other: str | None, strategy: str) -> tuple[int, int]:
    """Merge a scope into another; return the numbers of merged facts and of resolved conflicts."""
    if isinstance(target, Server):
        body = {"sourceScope": source, "targetScope": other, "strategy": strategy}
        counts = target.send("POST", "/scope/merge", body).json()
        return counts["merged"], counts["conflictsResolved"]
    outcome = folder(target).kb.merge(source, other, strategy=strategy)
    return outcome.merged, outcome.conflicts


def _delete(target: Target, name: str) -> int:
    """Delete a scope and return the number of deleted facts."""
    if isinstance(target, Server):
        return int(target.send("DELETE", f"/scope/{quote(name, safe='')}").json()["deleted"])
    return folder(target).kb.drop_scope(name)


def _list(target: Target) -> list[str]:
    """Return the names of the scopes."""
    if isinstance(target, Server):
        names: list[str] = target.send("GET", "/scopes").json()["scopes"]
        return names
    return folder(target).kb.scopes()
