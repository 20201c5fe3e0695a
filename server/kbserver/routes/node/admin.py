"""Database and tenant administration: list, create, delete and empty.

No tenant header is needed.
"""

from __future__ import annotations

from flask import Blueprint, Response

from kbserver.answers import as_json, text
from kbserver.http.request_context import DEFAULT, named, outside, runtime
from kbserver.operations import as_object, as_text, operation
from kbserver.schemas.answers.resources import DATABASES
from kbserver.schemas.base import load, nothing
from kbserver.schemas.jsonschema import TEXTS
from kbserver.schemas.scopes import new_database, new_tenant

bp = Blueprint("admin", __name__, url_prefix="/admin/databases")

_CREATED = 201


@bp.before_request
def _headers() -> None:
    outside(DEFAULT)


@bp.get("")
@operation(as_object("The databases, by name.", DATABASES), tenant=False)
def databases() -> Response:
    """List the databases."""
    databases = runtime().admin().databases()
    return as_json(
        [
            {
                "name": d.name,
                "isMultiTenant": True,
                "tenants": d.tenants,
                "facts": d.facts,
                "createdAt": d.created_at,
            }
            for d in databases
        ]
    )


@bp.post("")
@operation(
    as_text("That it is there.", status=_CREATED), body=new_database, tenant=False, writes=True
)
def create_database() -> Response:
    """Create a database."""
    name = load(new_database)
    runtime().admin().create_database(name)
    return text(f"Database '{name}' created", status=_CREATED)


@bp.delete("/<name>")
@operation(as_text("That it is gone."), tenant=False, writes=True, errors=(404,))
def drop_database(name: str) -> Response:
    """Delete a database with all its tenants."""
    runtime().admin().drop_database(named("database", name))
    return text(f"Database '{name}' deleted")


@bp.post("/<name>/nuke")
@operation(as_text("That it is empty."), body=nothing, tenant=False, writes=True, errors=(404,))
def nuke_database(name: str) -> Response:
    """Delete all data of a database."""
    load(nothing)
    runtime().admin().nuke_database(named("database", name))
    return text(f"Database '{name}' nuked")


@bp.get("/<name>/tenants")
@operation(as_object("The ids of its tenants.", TEXTS), tenant=False, errors=(404,))
def tenants(name: str) -> Response:
    """List the tenants of a database."""
    return as_json(runtime().admin().tenants(named("database", name)))


@bp.post("/<name>/tenants")
@operation(
    as_text("That it is there.", status=_CREATED),
    as_text("That it was there before."),
    body=new_tenant,
    tenant=False,
    writes=True,
    errors=(404,),
)
def create_tenant(name: str) -> Response:
    """Create a tenant; an existing tenant is unchanged."""
    tenant = load(new_tenant)
    created = runtime().admin().create_tenant(named("database", name), tenant)
    return text(f"Tenant '{tenant}' created", status=_CREATED if created else 200)


@bp.delete("/<name>/tenants/<tenant>")
@operation(as_text("That it is gone."), tenant=False, writes=True, errors=(404,))
def drop_tenant(name: str, tenant: str) -> Response:
    """Delete a tenant with all its data."""
    runtime().admin().drop_tenant(named("database", name), named("tenant", tenant))
    return text(f"Tenant '{tenant}' deleted")


@bp.post("/<name>/tenants/<tenant>/nuke")
@operation(as_text("That it is empty."), body=nothing, tenant=False, writes=True, errors=(404,))
def nuke_tenant(name: str, tenant: str) -> Response:
    """Delete all data of a tenant."""
    load(nothing)
    runtime().admin().nuke_tenant(named("database", name), named("tenant", tenant))
    return text(f"Tenant '{tenant}' nuked")
