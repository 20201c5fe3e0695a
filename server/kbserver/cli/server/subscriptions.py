"""`kbcore goals`: subscriptions to goals, whose changes a webhook may get."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from kbcore.timestamps import time_text
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import Listing, Output, OutputOption, output_options, print_json
from kbserver.cli.shared.target import CommandTarget, Seconds, target_options


@click.group("goals", cls=CommandGroup)
def goals() -> None:
    """Subscribe to goals, whose changes a server keeps or sends to a webhook."""


@goals.command("subscribe")
@click.argument("goal")
@click.option("--id", help="Name of the subscription; subscribing again with it renews the goal")
@click.option("--scope", help="Scope to ask in; default: the base")
@click.option("--ttl", type=Seconds(), help="Seconds after its last use after which the goal ends")
@click.option("--webhook", metavar="URL", help="Send each change to this address")
@click.option(
    "--secret",
    envvar="KBCORE_WEBHOOK_SECRET",
    show_envvar=True,
    help="Secret that signs what is sent; the environment variable does not show in the list of "
    "processes",
)
@click.option(
    "--json", "as_json", is_flag=True, cls=OutputOption, help="Print the JSON of the HTTP API"
)
@target_options
def subscribe(
    target: CommandTarget,
    goal: str,
    webhook: str | None,
    secret: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Have the server keep the answers of GOAL current, also across restarts.

    Prints the id of the subscription. With --webhook the server sends each change after now to an
    address that its setting WEBHOOK_URLS allows. GOAL is one or more literals, such as
    'ancestor(ann, ?who)'.
    """
    body: dict[str, Any] = {"goal": goal, **options}
    if webhook is not None:
        body["webhook"] = {"url": webhook} | ({} if secret is None else {"secret": secret})
    elif _is_argument("secret"):
        raise click.UsageError("--secret is for a --webhook")
    with errors_in("goal"):
        answer = _server(target).send("POST", "/goals/subscribe", body).json()
    if as_json:
        print_json(answer)
    else:
        click.echo(answer["id"])


@goals.command("list")
@output_options
@target_options
def list_(target: CommandTarget, output: Output) -> None:
    """List the subscriptions, with the number of answers and the webhook."""
    output.show(
        Listing(
            _server(target).send("GET", "/goals").json()["goals"],
            ("id", "goal", "scope", "answers", "ends", "webhook"),
            lambda row: (
                row["id"],
                row["goal"],
                row["scope"],
                str(row["count"]),
                time_text(row["expiresAt"]),
                row["webhook"],
            ),
            _line,
        )
    )


@goals.command("end")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@target_options
def end(target: CommandTarget, ids: tuple[str, ...]) -> None:
    """End subscriptions; what their webhooks did not get yet is not sent any more."""
    server = _server(target)
    unknown = [
        id
        for id in ids
        if not server.send("DELETE", f"/goals/{quote(id, safe='')}").json()["ended"]
    ]
    if unknown:
        raise Failed(f"no subscription has the id {', '.join(unknown)}")


def _server(target: CommandTarget) -> CommandTarget:
    if target.local:
        raise Failed("subscriptions need a running server: use --url, not a storage folder")
    return target


def _is_argument(name: str) -> bool:
    """Return True if an option of this command is on the command line, not in the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def _line(row: dict[str, Any]) -> str:
    scope = "" if row["scope"] is None else f" in {row['scope']}"
    webhook = "" if row["webhook"] is None else f", to {row['webhook']}"
    return f"{row['id']}  {row['goal']}{scope}: {counted(row['count'], 'answer')}{webhook}"
