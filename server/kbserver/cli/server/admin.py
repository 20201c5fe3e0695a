"""`kbcore admin`: create, list, empty and delete databases and tenants."""

from __future__ import annotations

from urllib.parse import quote

import click

from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.confirm import confirmed
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.output import Listing, Output, names_listing, output_options
from kbserver.cli.shared.target import CommandTarget, target_options

_confirm = confirmed("This deletes all data. Continue?")


@click.group("admin", cls=CommandGroup)
def admin() -> None:
    """Create, list, empty and delete databases and tenants."""


@admin.command("databases")
@output_options
@target_options
def databases(target: CommandTarget, output: Output) -> None:
    """List the databases with the number of their tenants and facts."""
    output.show(
        Listing(
            target.send("GET", "/admin/databases").json(),
            ("database", "tenants", "facts"),
            lambda row: (row["name"], row["tenants"], row["facts"]),
            lambda row: (
                f"{row['name']}  {counted(row['tenants'], 'tenant')}, {counted(row['facts'], 'fact')}"
            ),
        )
    )


@admin.command("tenants")
@click.argument("name", default="default")
@output_options
@target_options
def tenants(target: CommandTarget, name: str, output: Output) -> None:
    """List the tenants of database NAME."""
    output.show(names_listing(target.send("GET", f"{_path(name)}/tenants").json(), "tenant"))


@admin.command("create-database")
@click.argument("name")
@target_options
def create_database(target: CommandTarget, name: str) -> None:
    """Create database NAME."""
    target.send("POST", "/admin/databases", {"name": name})


@admin.command("create-tenant")
@click.argument("name")
@click.argument("id")
@target_options
def create_tenant(target: CommandTarget, name: str, id: str) -> None:
    """Create tenant ID in database NAME, unless it exists."""
    target.send("POST", f"{_path(name)}/tenants", {"tenantId": id})


@admin.command("delete-database")
@click.argument("name")
@_confirm
@target_options
def delete_database(target: CommandTarget, name: str) -> None:
    """Delete database NAME with all its tenants."""
    target.send("DELETE", _path(name))


@admin.command("delete-tenant")
@click.argument("name")
@click.argument("id")
@_confirm
@target_options
def delete_tenant(target: CommandTarget, name: str, id: str) -> None:
    """Delete tenant ID of database NAME."""
    target.send("DELETE", _path(name, id))


@admin.command("nuke-database")
@click.argument("name")
@_confirm
@target_options
def nuke_database(target: CommandTarget, name: str) -> None:
    """Delete all data of database NAME; keep its tenants."""
    target.send("POST", f"{_path(name)}/nuke")


@admin.command("nuke-tenant")
@click.argument("name")
@click.argument("id")
@_confirm
@target_options
def nuke_tenant(target: CommandTarget, name: str, id: str) -> None:
    """Delete all data of tenant ID of database NAME; keep the tenant."""
    target.send("POST", f"{_path(name, id)}/nuke")


def _path(database: str, tenant: str | None = None) -> str:
    path = f"/admin/databases/{quote(database, safe='')}"
    return path if tenant is None else f"{path}/tenants/{quote(tenant, safe='')}"
