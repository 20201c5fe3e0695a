"""`kbcore keys`: manage the API keys of a server, or of its storage folder while it is stopped."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import click

from kbcore.node.api_keys import OVERLAP_S, KeyWanted
from kbcore.state.keys import ROLES
from kbserver.cli.shared.target import Server, Target, folder, target_options


@click.group("keys")
def keys() -> None:
    """Create, list, revoke and rotate API keys.

    Create the first key before the server starts: kbcore keys create NAME --role admin
    --storage-dir FOLDER. Create later keys the same way, or over HTTP with an admin key in
    KBCORE_API_KEY.
    """


@keys.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the key may do")
@click.option(
    "--databases",
    default="",
    metavar="NAMES",
    help="Databases the key may access, separated by commas; default: all",
)
@click.option(
    "--tenants",
    default="",
    metavar="NAMES",
    help="Tenants the key may access, separated by commas; default: all",
)
@click.option(
    "--expires-in-days",
    type=float,
    metavar="DAYS",
    help="Days until the key expires; default: never",
)
@click.option("--description", default="", help="Purpose of the key")
@target_options
def create(target: Target, name: str, **options: Any) -> None:
    """Create a key called NAME and print it. The key cannot be shown again."""
    key_request = KeyWanted(
        name,
        options["role"],
        _names(options["databases"]),
        _names(options["tenants"]),
        options["expires_in_days"],
        options["description"],
    )
    if not isinstance(target, Server):
        click.echo(folder(target).kb.keys().create(key_request).secret)
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


@keys.command("list")
@target_options
def list_(target: Target) -> None:
    """List the keys: id, role, name, databases, tenants and expiry.

    Expired keys are listed until they are revoked.
    """
    if isinstance(target, Server):
        rows = target.send("GET", "/auth/keys").json()["keys"]
    else:
        rows = [
            {**asdict(key), "expiresAt": key.expires_at} for key in folder(target).kb.keys().all()
        ]
    for row in rows:
        expiry = "never expires"
        if row["expiresAt"] is not None:
            expires_at = datetime.fromtimestamp(row["expiresAt"] / 1000, timezone.utc)
            expiry = f"expires {expires_at.isoformat()}"
        databases, tenants = (",".join(row[name]) or "*" for name in ("databases", "tenants"))
        click.echo(
            f"{row['id']}  {row['role']}  {row['name']}  "
            f"databases {databases}, tenants {tenants}, {expiry}"
        )


@keys.command("revoke")
@click.argument("id")
@target_options
def revoke(target: Target, id: str) -> None:
    """Revoke the key ID immediately."""
    if isinstance(target, Server):
        click.echo(target.send("DELETE", f"/auth/keys/{quote(id, safe='')}").json()["message"])
    else:
        click.echo(f"Key '{folder(target).kb.keys().revoke(id).name}' revoked")


@keys.command("rotate")
@click.argument("id")
@click.option(
    "--overlap",
    type=float,
    default=OVERLAP_S,
    show_default=True,
    metavar="SECONDS",
    help="Time the old key stays valid",
)
@target_options
def rotate(target: Target, id: str, overlap: float) -> None:
    """Replace the key ID: create a key with the same permissions and print it.

    The old key expires after the overlap.
    """
    if isinstance(target, Server):
        path = f"/auth/keys/{quote(id, safe='')}/rotate"
        click.echo(target.send("POST", path, {"overlapSeconds": overlap}).json()["key"])
    else:
        click.echo(folder(target).kb.keys().rotate(id, overlap).secret)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
