"""`kbcore admin`: create, list, empty and delete databases and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import click

from kbserver.cli.shared.target import Server, Target, folder, target_options

_confirm = click.confirmation_option(
    prompt="This deletes all data. Continue?", help="Do not ask for confirmation"
)


@click.group("admin")
def admin() -> None:
    """Create, list, empty and delete databases and tenants."""


@admin.command("databases")
@target_options
def databases(target: Target) -> None:
    """List the databases with the number of their tenants and facts."""
    for name, tenants, facts in _databases(target):
        click.echo(f"{name}  {tenants} tenants, {facts} facts")


@admin.command("tenants")
@click.argument("name", default="default")
@target_options
def tenants(target: Target, name: str) -> None:
    """List the tenants of database NAME."""
    for tenant in _tenants(target, name):
        click.echo(tenant)


@admin.command("create-database")
@click.argument("name")
@target_options
def create_database(target: Target, name: str) -> None:
    """Create database NAME."""
    _create(target, name, None)


@admin.command("create-tenant")
@click.argument("name")
@click.argument("id")
@target_options
def create_tenant(target: Target, name: str, id: str) -> None:
    """Create tenant ID in database NAME, unless it exists."""
    _create(target, name, id)


@admin.command("delete-database")
@click.argument("name")
@_confirm
@target_options
def delete_database(target: Target, name: str) -> None:
    """Delete database NAME with all its tenants."""
    _delete(target, name, None)


@admin.command("delete-tenant")
@click.argument("name")
@click.argument("id")
@_confirm
@target_options
def delete_tenant(target: Target, name: str, id: str) -> None:
    """Delete tenant ID of database NAME."""
    _delete(target, name, id)


@admin.command("nuke-database")
@click.argument("name")
@_confirm
@target_options
def nuke_database(target: Target, name: str) -> None:
    """Delete all data of database NAME; keep its tenants."""
    _nuke(target, name, None)


@admin.command("nuke-tenant")
@click.argument("name")
@click.argument("id")
@_confirm
@target_options
def nuke_tenant(target: Target, name: str, id: str) -> None:
    """Delete all data of tenant ID of database NAME; keep the tenant."""
    _nuke(target, name, id)


def _databases(target: Target) -> Sequence[tuple[str, int, int]]:
    """Return the name, number of tenants and number of facts of each database."""
    if isinstance(target, Server):
        return [
            (row["name"], row["tenants"], row["facts"])
            for row in target.send("GET", "/admin/databases").json()
        ]
    return [(row.name, row.tenants, row.facts) for row in folder(target).kb.admin().databases()]


def _tenants(target: Target, database: str) -> list[str]:
    """Return the names of the tenants of a database."""
    if isinstance(target, Server):
        names: list[str] = target.send("GET", f"{_path(database)}/tenants").json()
        return names
    return folder(target).kb.admin().tenants(database)


def _create(target: Target, database: str, tenant: str | None) -> None:
    """Create a database or tenant."""
    if isinstance(target, Server):
        if tenant is None:
            target.send("POST", "/admin/databases", {"name": database})
        else:
            target.send("POST", f"{_path(database)}/tenants", {"tenantId": tenant})
        return
    admin = folder(target).kb.admin()
    if tenant is None:
        admin.create_database(database)
    else:
        admin.create_tenant(database, tenant)


def _delete(target: Target, database: str, tenant: str | None) -> None:
    """Delete a database or tenant."""
    if isinstance(target, Server):
        target.send("DELETE", _path(database, tenant))
        return
    admin = folder(target).kb.admin()
    if tenant is None:
        admin.drop_database(database)
    else:
        admin.drop_tenant(database, tenant)


def _nuke(target: Target, database: str, tenant: str | None) -> None:
    """Delete all data of a database or tenant."""
    if isinstance(target, Server):
        target.send("POST", f"{_path(database, tenant)}/nuke")
        return
    admin = folder(target).kb.admin()
    if tenant is None:
        admin.nuke_database(database)
    else:
        admin.nuke_tenant(database, tenant)


def _path(database: str, tenant: str | None = None) -> str:
    path = f"/admin/databases/{quote(database, safe='')}"
    return path if tenant is None else f"{path}/tenants/{quote(tenant, safe='')}"
