"""The content of a node in one canonical form, to compare two nodes."""

from __future__ import annotations

import hashlib
from typing import Any

from kbcore.node.runtime import Runtime
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute


def content(node: Runtime) -> dict[str, Any]:
    """Databases, tenants, scopes, rules and facts with every cell; nothing that only the order of
    arrival decides.
    """
    found = {}
    everyone = node.tenants()[1]
    for database in node.system.catalog.databases():
        tenants = {
            tenant.name: tenant_content(tenant)
            for tenant in sorted(everyone, key=lambda tenant: tenant.name)
            if tenant.database == database.name
        }
        found[database.name] = {"created": database.created_at, "tenants": tenants}
    return found


def tenant_content(tenant: Tenant) -> dict[str, Any]:
    facts = []
    for partition, stored in tenant.stored():
        rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
        shown = stored.relation.match([0] * stored.schema.arity)[1]
        columns = [stored.relation.attributes(attribute, ids) for attribute in Attribute]
        for place, row in enumerate(stored.rows(tenant.engine, rows, ids)):
            cells = [repr(column[place]) for column in columns]
            facts.append((partition.name, row, cells, ids[place] in set(shown)))
    return {
        "created": tenant.created_at,
        "generation": tenant.generation,
        "scopes": tenant.scopes(),
        "rules": [(rule.id, rule.text, rule.scope) for rule in tenant.rules.all()],
        "facts": sorted(facts, key=repr),
        "episodes": list(tenant.episodes),
        "purges": tenant.purges.to_json(),
        "erased": tenant.erased.to_json(),
    }


def digest(node: Runtime) -> str:
    return hashlib.sha256(repr(content(node)).encode()).hexdigest()
