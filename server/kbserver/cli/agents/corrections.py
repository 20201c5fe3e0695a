"""Commands of `kbcore memory` about episodes, and about correcting, undoing and purging."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import click

from kbcore.timestamps import instant, time_text
from kbplanner.syntax.diagnostics import counted, printable
from kbplanner.syntax.printer import print_row
from kbserver.cli.shared.confirm import confirmed
from kbserver.cli.shared.exits import errors_in
from kbserver.cli.shared.output import (
    Listing,
    Output,
    OutputOption,
    output_options,
    print_json,
)
from kbserver.cli.shared.target import CommandTarget, known_at_option, query_string, target_options

PAGE = 1000
"""Episodes in one request."""

_as_json = click.option(
    "--json", "as_json", is_flag=True, cls=OutputOption, help="Print the JSON of the HTTP API"
)


class InstantParam(click.ParamType[int]):
    """A point in time, as epoch milliseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse epoch milliseconds or an ISO 8601 time."""
        try:
            return instant(int(value) if str(value).lstrip("-").isdecimal() else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("episodes")
@click.option("--session", help="List episodes of this session only")
@click.option("--speaker", help="List episodes of this speaker only")
@known_at_option
@output_options
@target_options
def episodes(
    target: CommandTarget,
    session: str | None,
    speaker: str | None,
    known_at: str | None,
    output: Output,
) -> None:
    """List what was said: the episodes, in the order in which they were stored."""
    query = {"session": session, "speaker": speaker, "knownAt": known_at}
    filters = {name: value for name, value in query.items() if value is not None}
    rows: list[dict[str, Any]] = []
    while True:
        page = {**filters, "limit": str(PAGE), "offset": str(len(rows))}
        answer = target.send("GET", f"/episodes?{urlencode(page)}").json()
        rows += answer["episodes"]
        enough = output.limit is not None and len(rows) >= output.limit
        if enough or not answer["episodes"] or len(rows) >= answer["total"]:
            break
    output.show(
        Listing(
            rows if output.limit is None else rows[: output.limit],
            ("id", "at", "speaker", "session", "text"),
            lambda row: (
                row["id"],
                time_text(row["at"]),
                row["speaker"],
                row["session"],
                row["text"],
            ),
            _episode_line,
        )
    )


@click.command("episode")
@click.argument("id")
@known_at_option
@_as_json
@target_options
def episode(target: CommandTarget, id: str, known_at: str | None, as_json: bool) -> None:
    """Show an episode and the stored facts that it supports."""
    query = query_string(limit=str(PAGE), knownAt=known_at)
    answer = target.send("GET", f"/episodes/{quote(id, safe='')}{query}").json()
    if as_json:
        print_json(answer)
        return
    click.echo(printable(_episode_line(answer)))
    for row in answer["facts"]:
        click.echo(f"  {line_of(row)}")
    more = answer["totalFacts"] - len(answer["facts"])
    if more:
        click.echo(f"  and {counted(more, 'more fact')}")


@click.command("correct")
@click.argument("old")
@click.argument("new")
@click.option("--reason", required=True, help="Why the old fact was wrong")
@click.option("--scope", help="Scope of both facts; default: the base")
@_as_json
@target_options
def correct(
    target: CommandTarget, old: str, new: str, reason: str, scope: str | None, as_json: bool
) -> None:
    """Replace the stored fact OLD by NEW, which gets its evidence."""
    body = {"old": old, "new": new, "reason": reason, "scope": scope}
    with errors_in("fact"):
        answer = target.send("POST", "/memory/correct", body).json()
    if as_json:
        print_json(answer)
        return
    click.echo(f"- {line_of(answer['old'])}")
    click.echo(f"+ {line_of(answer['new'])}")
    click.echo(f"change {answer['commitSeq']}")


@click.command("undo")
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option("--request", help="Idempotency key of the request, or id of the transaction")
@_as_json
@target_options
def undo(target: CommandTarget, seq: int | None, request: str | None, as_json: bool) -> None:
    """Undo the committed change with the number SEQ.

    Later changes of the same facts or rules must be undone first.
    """
    if (seq is None) == (request is None):
        raise click.UsageError("give either SEQ or --request")
    answer = target.send("POST", "/memory/undo", {"commitSeq": seq, "requestId": request}).json()
    if as_json:
        print_json(answer)
        return
    click.echo(
        f"undone: change {answer['undoneSeq']}, by change {answer['commitSeq']}; "
        f"{counted(answer['retracted'], 'fact')} retracted, {answer['restored']} restored, "
        f"{counted(answer['rulesChanged'], 'rule')} changed"
    )


@click.command("purge")
@click.option("--subject", help="Remove facts and episodes that mention this name")
@click.option("--episode", "episode_id", help="Remove this episode and facts only it supports")
@click.option("--speaker", help="Remove all episodes of this speaker, likewise")
@click.option("--before", type=InstantParam(), help="Remove facts and episodes from before a time")
@click.option(
    "--drop-scopes", is_flag=True, help="Also drop scopes whose names mention the subject"
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed")
@confirmed("This removes facts and episodes for good. Continue?", unless="dry_run")
@_as_json
@target_options
def purge(
    target: CommandTarget, drop_scopes: bool, dry_run: bool, as_json: bool, **selectors: Any
) -> None:
    """Remove facts and episodes for good, also from the log and the snapshots.

    Rules that mention the subject are listed, not removed, and so are names of which the subject is
    only a part.
    """
    named = {
        name: selectors[key]
        for name, key in (
            ("subject", "subject"),
            ("episode", "episode_id"),
            ("speaker", "speaker"),
            ("before", "before"),
        )
        if selectors[key] is not None
    }
    if len(named) != 1:
        raise click.UsageError("give one of --subject, --episode, --speaker and --before")
    if drop_scopes and "subject" not in named:
        raise click.UsageError("--drop-scopes needs --subject")
    body = {**named, "dryRun": dry_run, "limit": PAGE, "dropScopes": drop_scopes}
    answer = target.send("POST", "/memory/purge", body).json()
    if as_json:
        print_json(answer)
        return
    for row in answer["facts"]:
        click.echo(f"- {line_of(row)}  [{row['why']}]")
    for each in answer["conclusions"]:
        click.echo(f"- {each['text']}  [conclusion]")
    for each in answer["episodes"]:
        click.echo(printable(f"- episode {each['id']}, said by {each['speaker']}"))
    for row in answer["restored"]:
        click.echo(f"  holds again: {line_of(row)}")
    for each in answer["rules"]:
        click.echo(f"  the rule stays: {each['text']}")
    for each in answer["scopes"]:
        mark, end = ("-", "") if each["dropped"] else (" ", " stays; --drop-scopes drops it")
        click.echo(f"{mark} scope {each['scope']}, {counted(each['factCount'], 'fact')}{end}")
    if answer["similar"]:
        click.echo(printable(f"  similar names, which stay: {', '.join(answer['similar'])}"))
    prefix = "dry run: " if dry_run else ""
    click.echo(
        f"{prefix}{counted(answer['factCount'], 'fact')}, {counted(answer['conclusionCount'], 'conclusion')}, "
        f"{counted(answer['episodeCount'], 'episode')}"
    )
    if not dry_run:
        click.echo("erased from log and snapshots" if answer["erased"] else _LATER)
        click.echo(f"changes before {answer['undoFrom']} can no longer be undone")


_ERASED = {
    None: "erased",
    "work": "not yet erased",
    "followers": "not yet erased: a follower needs the records",
    "retry": "not yet erased: the last attempt failed and is repeated",
    "storage": "not erased: the storage cannot erase",
}
_LATER = "not yet erased from log and snapshots; kbcore memory purges shows when it is"


@click.command("purges")
@output_options
@target_options
def purges(target: CommandTarget, output: Output) -> None:
    """List the purges, and whether their text is erased from the log and the snapshots."""
    rows = target.send("GET", "/memory/purges").json()["purges"]
    output.show(
        Listing(
            rows if output.limit is None else rows[: output.limit],
            ("id", "at", "by", "facts", "episodes", "erased"),
            lambda row: (
                row["purgeId"],
                time_text(row["at"]),
                row["by"],
                str(row["facts"]),
                str(row["episodes"]),
                "yes" if row["erased"] else "no",
            ),
            lambda row: (
                f"{row['purgeId']}  {time_text(row['at'])}  by {row['by']}: {counted(row['facts'], 'fact')}, "
                f"{counted(row['episodes'], 'episode')}, {_ERASED[row['waitsFor']]}"
            ),
        )
    )


@click.command("history")
@click.argument("predicate")
@click.option("--scope", help="Facts of this scope; '*' for all")
@click.option("--oldest-first", is_flag=True, help="List the oldest event first")
@output_options
@target_options
def history(
    target: CommandTarget, predicate: str, scope: str | None, oldest_first: bool, output: Output
) -> None:
    """List what asserted, replaced and removed the facts of a predicate, or of a pattern such as
    'likes(ann, ?x)'.
    """
    query = {"predicate": predicate, "order": "oldest" if oldest_first else "newest"}
    if scope is not None:
        query["scope"] = scope
    rows: list[dict[str, Any]] = []
    while True:
        page = {**query, "limit": str(PAGE), "offset": str(len(rows))}
        answer = target.send("GET", f"/facts/history?{urlencode(page)}").json()
        rows += answer["events"]
        enough = output.limit is not None and len(rows) >= output.limit
        if enough or not answer["events"] or len(rows) >= answer["totalEvents"]:
            break
    output.show(
        Listing(
            rows,
            ("commit", "at", "event", "cause", "fact", "key"),
            lambda row: (
                str(row["commitSeq"]),
                time_text(row["at"]),
                row["event"],
                _event_cause(row),
                _event_fact(row),
                row["key"] or "",
            ),
            lambda row: (
                f"{row['commitSeq']}  {time_text(row['at'])}  {_event_fact(row)}"
                f" {row['event']} ({_event_cause(row)})"
            ),
        )
    )


def _event_fact(event: dict[str, Any]) -> str:
    row = event["after"] or event["before"]
    return counted(event["count"], "fact") if row is None else line_of(row)


def _event_cause(event: dict[str, Any]) -> str:
    if event["undoes"] is not None:
        return f"{event['cause']} of {event['undoes']}"
    return event["cause"] if event["reason"] is None else f"{event['cause']}: {event['reason']}"


COMMANDS = (episodes, episode, correct, undo, purge, purges, history)
"""The commands, for the group `memory`."""


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a fact in the rule language: `p(a, b)` or `~p(a, b)`."""
    sign = "~" if row["negated"] else ""
    return sign + print_row(row["predicate"], row["args"], False)


def _episode_line(row: dict[str, Any]) -> str:
    text = " ".join(row["text"].split())
    return f"{row['id']}  {time_text(row['at'])}  {row['speaker']}: {text}"
