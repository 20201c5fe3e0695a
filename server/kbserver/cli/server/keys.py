"""`kbcore keys`: who may use a server; on the server itself, or on its folder while it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import click

from kbcore.node.api_keys import OVERLAP_S, KeyWanted, NewKey
from kbcore.state.keys import ROLES, StoredKey
from kbserver.cli.shared.target import Server, Target, folder, target_options


@click.group("keys")
def command() -> None:
    """Create, list, revoke and rotate keys.

    The first key of a server is made on its machine, before it starts: kbcore keys create NAME --role admin --storage-dir
    FOLDER. Later ones over HTTP too, with an admin key in KBCORE_API_KEY.
    """


@command.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="what it may do")
@click.option(
    "--databases",
    default="",
    metavar="NAMES",
    help="where it holds, separated by commas; else everywhere",
)
@click.option("--tenants", default="", metavar="NAMES", help="the same for tenants")
@click.option("--expires-in-days", type=float, metavar="DAYS", help="when it ends; else never")
@click.option("--description", default="", help="what it is for")
@target_options
def create(target: Target, name: str, **asked: Any) -> None:
    """Make a key for NAME and print it: it is shown this once."""
    key_request = KeyWanted(
        name,
        asked["role"],
        _names(asked["databases"]),
        _names(asked["tenants"]),
        asked["expires_in_days"],
        asked["description"],
    )
    if not isinstance(target, Server):
        _print(folder(target).kb.keys().create(key_request))
        return
    body = {
        "name": name,
        "role": key_request.role,
        "databases": key_request.databases,
        "tenants": key_request.tenants,
        "expiresInDays": key_request.expires_in_days,
        "description": key_request.description,
    }
    click.echo(target.send("POST", "/auth/keys", body).json()["key"])


@command.command("list")
@target_options
def listed(target: Target) -> None:
    """List the keys: id, role, name, where they hold and until when; expired ones stay until they are revoked."""
    if isinstance(target, Server):
        for row in target.send("GET", "/auth/keys").json()["keys"]:
            _line(
                row["id"],
                row["role"],
                row["name"],
                row["databases"],
                row["tenants"],
                row["expiresAt"],
            )
    else:
        for key in folder(target).kb.keys().all():
            _line_of(key)


@command.command("revoke")
@click.argument("id")
@target_options
def revoke(target: Target, id: str) -> None:
    """Revoke the key with this ID, at once."""
    if isinstance(target, Server):
        click.echo(target.send("DELETE", f"/auth/keys/{quote(id, safe='')}").json()["message"])
    else:
        click.echo(f"Key '{folder(target).kb.keys().revoke(id).name}' revoked")


@command.command("rotate")
@click.argument("id")
@click.option(
    "--overlap",
    type=float,
    default=OVERLAP_S,
    show_default=True,
    metavar="SECONDS",
    help="how long the old one goes on",
)
@target_options
def rotate(target: Target, id: str, overlap: float) -> None:
    """Make a key that may do what the one with this ID may, and print it; the old one ends soon."""
    if isinstance(target, Server):
        path = f"/auth/keys/{quote(id, safe='')}/rotate"
        click.echo(target.send("POST", path, {"overlapSeconds": overlap}).json()["key"])
    else:
        _print(folder(target).kb.keys().rotate(id, overlap))


def _print(made: NewKey) -> None:
    click.echo(made.secret)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _line_of(key: StoredKey) -> None:
    _line(key.id, key.role, key.name, key.databases, key.tenants, key.expires_at)


def _line(
    id: str,
    role: str,
    name: str,
    databases: Sequence[str],
    tenants: Sequence[str],
    expires_at: int | None,
) -> None:
    where = f"databases {','.join(databases) or '*'}, tenants {','.join(tenants) or '*'}"
    until = (
        "no end"
        if expires_at is None
        else datetime.fromtimestamp(expires_at / 1000, timezone.utc).isoformat()
    )
    click.echo(f"{id}  {role}  {name}  {where}, {until}")
