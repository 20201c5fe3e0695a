"""Database and tenant administration: list, create, delete and empty.

No tenant header is needed.
"""

from __future__ import annotations

from typing import Any

from flask import Response

from kbcore.state.keys import ADMIN
from kbserver.answers import as_json, text
from kbserver.http.request_context import named, runtime
from kbserver.operations import Method, as_object, as_text, operation
from kbserver.schemas.requests import Nothing, load
from kbserver.schemas.scopes import Database, NewDatabaseBody, NewTenantBody
from kbserver.security.permissions import About

_CREATED = 201

_NODE: dict[str, Any] = {"role": ADMIN, "about": About.NODE, "tenant": False}
_DATABASE = {"database": "name"}
_NAMED: dict[str, Any] = {"role": ADMIN, "about": About.NAMED, "tenant": False}


@operation(
    "GET /admin/databases",
    replies=(as_object("The databases, by name.", {"type": "array", "items": Database}),),
    methods=(Method(signature="databases() -> list[DatabaseInfo]"),),
    **_NODE,
)
def databases() -> Response:
    """List the databases."""
    return as_json(Database.write_all(runtime().admin().databases()))


@operation(
    "POST /admin/databases",
    replies=(as_text("The database is created.", status=_CREATED),),
    body=NewDatabaseBody,
    methods=(Method(signature="create_database(name: str) -> None"),),
    writes=True,
    **_NODE,
)
def create_database() -> Response:
    """Create a database."""
    name = load(NewDatabaseBody)["name"]
    runtime().admin().create_database(name)
    return text(f"Database '{name}' created", status=_CREATED)


@operation(
    "DELETE /admin/databases/<name>",
    replies=(as_text("The database is deleted."),),
    methods=(Method(signature="delete_database(name: str) -> None"),),
    writes=True,
    errors=(404,),
    **_NODE,
)
def drop_database(name: str) -> Response:
    """Delete a database with all its tenants."""
    runtime().admin().drop_database(named("database", name))
    return text(f"Database '{name}' deleted")


@operation(
    "POST /admin/databases/<name>/nuke",
    replies=(as_text("The database is empty."),),
    methods=(Method(signature="empty_database(name: str) -> None"),),
    body=Nothing,
    writes=True,
    errors=(404,),
    **_NAMED,
)
def nuke_database(name: str) -> Response:
    """Delete all data of a database."""
    load(Nothing)
    runtime().admin().nuke_database(named("database", name))
    return text(f"Database '{name}' nuked")


@operation(
    "GET /admin/databases/<name>/tenants",
    replies=(as_object("The ids of the tenants.", {"type": "array", "items": {"type": "string"}}),),
    methods=(Method(signature="tenants(database: str = 'default') -> list[str]", keys=_DATABASE),),
    errors=(404,),
    **_NAMED,
)
def tenants(name: str) -> Response:
    """List the tenants of a database."""
    return as_json(runtime().admin().tenants(named("database", name)))


@operation(
    "POST /admin/databases/<name>/tenants",
    replies=(
        as_text("The tenant is created.", status=_CREATED),
        as_text("The tenant existed before."),
    ),
    body=NewTenantBody,
    methods=(
        Method(
            signature="create_tenant(tenant: str, database: str = 'default') -> None",
            keys={"tenant": "tenantId", **_DATABASE},
        ),
    ),
    writes=True,
    errors=(404,),
    **_NAMED,
)
def create_tenant(name: str) -> Response:
    """Create a tenant; an existing tenant is unchanged."""
    tenant = load(NewTenantBody)["tenant"]
    created = runtime().admin().create_tenant(named("database", name), tenant)
    return text(f"Tenant '{tenant}' created", status=_CREATED if created else 200)


@operation(
    "DELETE /admin/databases/<name>/tenants/<tenant>",
    replies=(as_text("The tenant is deleted."),),
    methods=(
        Method(
            signature="delete_tenant(tenant: str, database: str = 'default') -> None",
            keys=_DATABASE,
        ),
    ),
    writes=True,
    errors=(404,),
    **_NAMED,
)
def drop_tenant(name: str, tenant: str) -> Response:
    """Delete a tenant with all its data."""
    runtime().admin().drop_tenant(named("database", name), named("tenant", tenant))
    return text(f"Tenant '{tenant}' deleted")


@operation(
    "POST /admin/databases/<name>/tenants/<tenant>/nuke",
    replies=(as_text("The tenant is empty."),),
    methods=(
        Method(
            signature="empty_tenant(tenant: str, database: str = 'default') -> None",
            keys=_DATABASE,
        ),
    ),
    body=Nothing,
    writes=True,
    errors=(404,),
    **_NAMED,
)
def nuke_tenant(name: str, tenant: str) -> Response:
    """Delete all data of a tenant."""
    load(Nothing)
    runtime().admin().nuke_tenant(named("database", name), named("tenant", tenant))
    return text(f"Tenant '{tenant}' nuked")
