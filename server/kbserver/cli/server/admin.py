"""`kbcore admin`: databases and tenants."""

from __future__ import annotations

import click

from kbserver.cli.shared import whole as _whole
from kbserver.cli.shared.target import Target, target_options

_sure = click.confirmation_option(prompt="All data there will be gone. Go on?", help="do not ask")


@click.group("admin")
def command() -> None:
    """Create, list, empty and delete databases and tenants."""


@command.command("databases")
@target_options
def databases(target: Target) -> None:
    """List the databases with their numbers of tenants and facts."""
    for name, tenants, facts in _whole.databases(target):
        click.echo(f"{name}  {tenants} tenants, {facts} facts")


@command.command("tenants")
@click.argument("name", default="default")
@target_options
def tenants(target: Target, name: str) -> None:
    """List the tenants of database NAME."""
    for tenant in _whole.tenants(target, name):
        click.echo(tenant)


@command.command("create-database")
@click.argument("name")
@target_options
def create_database(target: Target, name: str) -> None:
    """Create database NAME."""
    _whole.create(target, name, None)


@command.command("create-tenant")
@click.argument("name")
@click.argument("id")
@target_options
def create_tenant(target: Target, name: str, id: str) -> None:
    """Create tenant ID in database NAME; one that is there is left as it is."""
    _whole.create(target, name, id)


@command.command("delete-database")
@click.argument("name")
@_sure
@target_options
def delete_database(target: Target, name: str) -> None:
    """Delete database NAME with all its tenants."""
    _whole.delete(target, name, None)


@command.command("delete-tenant")
@click.argument("name")
@click.argument("id")
@_sure
@target_options
def delete_tenant(target: Target, name: str, id: str) -> None:
    """Delete tenant ID of database NAME."""
    _whole.delete(target, name, id)


@command.command("nuke-database")
@click.argument("name")
@_sure
@target_options
def nuke_database(target: Target, name: str) -> None:
    """Delete all data of database NAME; its tenants stay, empty."""
    _whole.nuke(target, name, None)


@command.command("nuke-tenant")
@click.argument("name")
@click.argument("id")
@_sure
@target_options
def nuke_tenant(target: Target, name: str, id: str) -> None:
    """Delete all data of tenant ID of database NAME."""
    _whole.nuke(target, name, id)
