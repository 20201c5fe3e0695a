"""`kbcore status`: if a server is ready, and what the knowledge base contains."""

from __future__ import annotations

from typing import Any

import click

from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import UNAVAILABLE
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import OutputOption, print_json, text_of
from kbserver.cli.shared.target import CommandTarget, note, target_options

_NOT_READY = 503
_STANDALONE = "this node does not replicate"


@command("status")
@click.option("--json", "as_json", is_flag=True, cls=OutputOption, help="Print a JSON object")
@target_options
def status(target: CommandTarget, as_json: bool) -> None:
    """Show if the server is ready, and its contents.

    Exits with status 69 if no server answers, or if it is not ready. Counts facts and rules in the
    base of the tenant.
    """
    ready = target.send("GET", "/health/ready", also=_NOT_READY)
    health = ready.json()
    report: dict[str, Any] = {}
    if isinstance(target, ServerClient):
        report = {"url": target.url, "version": ready.headers.get("x-kb-version")}
    report |= {"status": health["status"], "writable": health["writable"]}
    if (replication := health["checks"]["replication"]["message"]) != _STANDALONE:
        report["replication"] = replication
    is_ready = health["status"] != "unhealthy"
    if is_ready:
        contents = target.send("GET", "/predicates").json()
        report |= {
            "predicates": contents["totalPredicates"],
            "facts": contents["totalFacts"],
            "rules": contents["totalRules"],
            "scopes": target.send("GET", "/scopes").json()["count"],
        }
    if as_json:
        print_json(report)
    else:
        for name, value in report.items():
            click.echo(f"{click.style(name.ljust(11), bold=True)} {text_of(value)}")
    for name, check in health["checks"].items():
        if check["status"] != "pass":
            note(f"{name}: {check['message']}")
    if not is_ready:
        raise SystemExit(UNAVAILABLE)
