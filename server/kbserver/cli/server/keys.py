"""`kbcore keys`: manage the API keys of a server, or of its storage folder while it is stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from kbcore.config.settings import Config
from kbcore.errors import KBError
from kbcore.state.keys import ROLES, StoredKey
from kbcore.state.labels import to_json
from kbcore.system_calls import sync_file
from kbserver.cli.shared.exits import Failed, reports_errors
from kbserver.cli.shared.folder import open_folder
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import Listing, Output, output_options
from kbserver.cli.shared.target import CommandTarget, folder, labels_given, whole_target_options

DEFAULT = "default"
"""The tenant and the database that a storage is opened with; keys belong to the node."""


@click.group("keys", cls=CommandGroup)
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
@click.option(
    "--view",
    metavar="JSON",
    callback=labels_given,
    help='What the key may see at most, such as \'{"team": ["eng"]}\'; default: everything',
)
@click.option(
    "--labels",
    metavar="JSON",
    callback=labels_given,
    help='Labels of what the key stores, such as \'{"trust": "web"}\'; default: none',
)
@whole_target_options
def create(target: CommandTarget, name: str, **options: Any) -> None:
    """Create a key called NAME and print it. The key cannot be shown again."""
    view, labels = (json.loads(options[each] or "{}") for each in ("view", "labels"))
    databases, tenants = _names(options["databases"]), _names(options["tenants"])
    if target.local:
        request = import_module("kbcore.node.api_keys").KeyWanted(
            name,
            options["role"],
            databases,
            tenants,
            options["expires_in_days"],
            options["description"],
            view,
            labels,
        )
        click.echo(folder(target).keys().create(request).secret)
        return
    body = {
        "name": name,
        "role": options["role"],
        "databases": databases,
        "tenants": tenants,
        "expiresInDays": options["expires_in_days"],
        "description": options["description"],
        **({"view": view} if view else {}),
        **({"labels": labels} if labels else {}),
    }
    click.echo(target.send("POST", "/auth/keys", body).json()["key"])


@keys.command("first")
@click.argument("file", type=click.Path(path_type=Path))
@reports_errors
def first(file: Path) -> None:
    """Create the first admin key before the first start of a server, and write it to FILE.

    For service managers, before each start. FILE is created and only its owner can read it. Nothing
    is done if FILE exists, if STORAGE_DIR has data, or if the settings of the environment need no
    managed keys of this node: without AUTH_ENABLED, on a follower and in a cluster.
    """
    config = Config.from_env()
    if reason := _needs_no_first_key(config, file):
        click.echo(f"no key created: {reason}", err=True)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Failed(f"{file} cannot be created: {error.strerror}") from None
    try:
        # The file comes first: a key that cannot be written to it is never created.
        with os.fdopen(descriptor, "w", encoding="utf-8") as output:
            storage = open_folder(None, config.storage_dir, DEFAULT, DEFAULT)
            try:
                request = import_module("kbcore.node.api_keys").first_admin("first")
                output.write(storage.keys().create(request, first=True).secret + "\n")
                output.flush()
                sync_file(output.fileno())
            finally:
                storage.close()
    except KBError:
        file.unlink()
        raise
    click.echo(f"the first admin key is in {file}; copy it to a safe place and delete the file")


def _needs_no_first_key(config: Config, file: Path) -> str | None:
    """Return why no first key is needed, None if one is."""
    if not config.auth_enabled:
        return "AUTH_ENABLED is not set"
    if config.replication_mode == "FOLLOWER" or config.cluster_url:
        return "the keys come from the leader or the cluster"
    if config.storage_backend != "wal" or config.storage_url:
        return "the storage is not a folder (STORAGE_DIR)"
    if file.exists():
        return f"{file} exists"
    folder = Path(config.storage_dir)
    if folder.is_dir() and any(each.name != "lost+found" for each in folder.iterdir()):
        return f"{folder} has data; create keys with kbcore keys create"
    return None


@keys.command("list")
@output_options
@whole_target_options
def list_(target: CommandTarget, output: Output) -> None:
    """List the keys: id, role, name, databases, tenants and expiry.

    Expired keys are listed until they are revoked.
    """
    rows = (
        [_row(key) for key in folder(target).keys().all()]
        if target.local
        else target.send("GET", "/auth/keys").json()
    )
    output.show(
        Listing(
            rows,
            ("id", "role", "name", "databases", "tenants", "expires"),
            lambda row: (row["id"], row["role"], row["name"], *_limits(row), _expiry(row)),
            _line,
        )
    )


def _row(key: StoredKey) -> dict[str, Any]:
    """Return a key as the HTTP interface lists it."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "role": key.role,
        "databases": list(key.databases),
        "tenants": list(key.tenants),
        "description": key.description,
        **({"view": to_json(key.view)} if key.view else {}),
        **({"labels": to_json(key.labels)} if key.labels else {}),
        "createdAt": key.created_at,
        "expiresAt": key.expires_at,
    }


def _limits(row: dict[str, Any]) -> tuple[str, str]:
    """Return the databases and the tenants that a key may access; `*` means all."""
    return ",".join(row["databases"]) or "*", ",".join(row["tenants"]) or "*"


def _expiry(row: dict[str, Any]) -> str | None:
    """Return when a key expires; None if it never does."""
    if row["expiresAt"] is None:
        return None
    return datetime.fromtimestamp(row["expiresAt"] / 1000, timezone.utc).isoformat()


def _line(row: dict[str, Any]) -> str:
    databases, tenants = _limits(row)
    expiry = "never expires" if row["expiresAt"] is None else f"expires {_expiry(row)}"
    return (
        f"{row['id']}  {row['role']}  {row['name']}  "
        f"databases {databases}, tenants {tenants}, {expiry}{''.join(_bounds(row))}"
    )


def _bounds(row: dict[str, Any]) -> Iterator[str]:
    """Yield what a key may see at most, and the labels that it writes, where it has any."""
    for name in ("view", "labels"):
        if row.get(name):
            yield f", {name} {json.dumps(row[name])}"


@keys.command("revoke")
@click.argument("id")
@whole_target_options
def revoke(target: CommandTarget, id: str) -> None:
    """Revoke the key ID immediately."""
    if target.local:
        click.echo(f"Key '{folder(target).keys().revoke(id).name}' revoked")
    else:
        click.echo(target.send("DELETE", f"/auth/keys/{quote(id, safe='')}").json()["message"])


@keys.command("rotate")
@click.argument("id")
@click.option(
    "--overlap",
    type=float,
    metavar="SECONDS",
    help="Time the old key stays valid; default: 3600",
)
@whole_target_options
def rotate(target: CommandTarget, id: str, overlap: float | None) -> None:
    """Replace the key ID: create a key with the same permissions and print it.

    The old key expires after the overlap.
    """
    if target.local:
        keys = folder(target).keys()
        new = keys.rotate(id) if overlap is None else keys.rotate(id, overlap)
        click.echo(new.secret)
        return
    path = f"/auth/keys/{quote(id, safe='')}/rotate"
    click.echo(target.send("POST", path, {"overlapSeconds": overlap}).json()["key"])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
