"""Operations of commands on whole scopes, databases and tenants, on a server or on a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from kbserver.cli.shared.target import Server, Target, folder


def fork(target: Target, source: str | None, name: str, overwrite: bool) -> int:
    """Copy a scope and return the number of copied facts."""
    if isinstance(target, Server):
        body = {"sourceScope": source, "targetScope": name, "overwrite": overwrite}
        return int(target.send("POST", "/scope/fork", body).json()["copied"])
    return folder(target).kb.fork(name, source, overwrite=overwrite).copied


def diff(target: Target, source: str | None, other: str | None) -> dict[str, Any]:
    """Return the difference of two scopes: `added`, `removed`, `modified`."""
    if isinstance(target, Server):
        counts: dict[str, Any] = target.send(
            "POST", "/scope/diff", {"sourceScope": source, "targetScope": other}
        ).json()
        return counts
    return asdict(folder(target).kb.diff(source, other))


def merge(target: Target, source: str | None, other: str | None, strategy: str) -> tuple[int, int]:
    """Merge a scope into another; how many facts came or changed, and how many conflicts were resolved."""
    if isinstance(target, Server):
        body = {"sourceScope": source, "targetScope": other, "strategy": strategy}
        counts = target.send("POST", "/scope/merge", body).json()
        return counts["merged"], counts["conflictsResolved"]
    outcome = folder(target).kb.merge(source, other, strategy=strategy)
    return outcome.merged, outcome.conflicts


def delete_scope(target: Target, name: str) -> int:
    """Delete a scope; how many facts went."""
    if isinstance(target, Server):
        return int(target.send("DELETE", f"/scope/{quote(name, safe='')}").json()["deleted"])
    return folder(target).kb.drop_scope(name)


def scopes(target: Target) -> list[str]:
    """The scopes there are."""
    if isinstance(target, Server):
        counts: list[str] = target.send("GET", "/scopes").json()["scopes"]
        return counts
    return folder(target).kb.scopes()


def databases(target: Target) -> Sequence[tuple[str, int, int]]:
    """Name, tenants and facts of every database."""
    if isinstance(target, Server):
        return [
            (row["name"], row["tenants"], row["facts"])
            for row in target.send("GET", "/admin/databases").json()
        ]
    return [(row.name, row.tenants, row.facts) for row in folder(target).kb.admin().databases()]


def tenants(target: Target, database: str) -> list[str]:
    """The tenants of a database."""
    if isinstance(target, Server):
        counts: list[str] = target.send("GET", f"{_path(database)}/tenants").json()
        return counts
    return folder(target).kb.admin().tenants(database)


def create(target: Target, database: str, tenant: str | None) -> None:
    """Create a database, or a tenant of one."""
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


def delete(target: Target, database: str, tenant: str | None) -> None:
    """Delete a database, or a tenant of one."""
    if isinstance(target, Server):
        target.send("DELETE", _path(database, tenant))
        return
    admin = folder(target).kb.admin()
    if tenant is None:
        admin.drop_database(database)
    else:
        admin.drop_tenant(database, tenant)


def nuke(target: Target, database: str, tenant: str | None) -> None:
    """Delete all data of a database, or of a tenant of one."""
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
