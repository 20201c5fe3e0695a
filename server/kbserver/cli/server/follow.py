"""`kbcore follow`: the answers of a goal as they change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from kbplanner.syntax.printer import print_constant, print_row
from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import Failed
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import escaped_json
from kbserver.cli.shared.target import CommandTarget, target_options

NEW, GONE = "+", "-"


@command("follow")
@click.argument("goal")
@click.option("--scope", help="Scope to ask in")
@click.option("--json", "as_json", is_flag=True, help="Print each change as a line of JSON")
@click.option("--count", type=click.IntRange(1), help="Stop after this number of changes")
@target_options
def follow(
    target: CommandTarget, goal: str, scope: str | None, as_json: bool, count: int | None
) -> None:
    """Print the answers of a goal as they change.

    First those of now, then each answer that appears (+) or disappears (-).

    GOAL is one or more literals, such as 'ancestor(ann, ?who)'.
    """
    if not isinstance(target, ServerClient):
        raise Failed("following a goal needs a running server: use --url, not a storage folder")
    body = {"goal": goal} | ({} if scope is None else {"scope": scope})
    id = target.send("POST", "/goals/subscribe", body).json()["id"]
    try:
        for data in target.events(f"/goals/{id}/events", {}):
            change = json.loads(data)
            if "code" in change:
                raise Failed(change["message"])
            for line in [escaped_json(data)] if as_json else _lines(change):
                click.echo(line)
            if "answers" not in change and count is not None and (count := count - 1) == 0:
                return
        raise Failed("the server ended the stream")
    finally:
        target.close()  # the stream, which has no end
        with suppress(Failed):  # the server may be gone; it ends the goal later by itself
            target.send("DELETE", f"/goals/{id}")


def _lines(change: dict[str, Any]) -> Iterator[str]:
    for sign, key in ((NEW, "answers"), (GONE, "disappeared"), (NEW, "appeared")):
        for row in change.get(key, ()):
            yield f"{sign} {_text(row)}"


def _text(row: dict[str, Any]) -> str:
    if "args" in row:
        return print_row(row["predicate"], row["args"], row["negated"])
    bindings = row["bindings"].items()
    return ", ".join(f"{name} = {print_constant(value)}" for name, value in bindings) or "yes"
