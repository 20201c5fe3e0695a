"""The state of a node at one moment of the log, without a copy of it being made at that moment.

`capture` only leaves word with each tenant. What a tenant holds is noted (`TenantState`) when the snapshot comes to it, or
before the first change after that moment, whichever is earlier. Its relations are frozen then, which copies nothing yet, and
metadata that change are remembered as they were. So nobody ever waits for a copy of everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbcore.errors import KBError, SnapshotFailed
from kbcore.state.catalog import Catalog
from kbcore.state.keys import StoredKey
from kbcore.state.partition import MetadataThen
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine, Relation
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Rule


@dataclass(frozen=True, slots=True)
class RelationState:
    """The facts of a stored relation: `then` is a frozen relation, to be settled before it is read."""

    schema: RelationSchema
    scope: str | None
    then: Relation
    metadata: MetadataThen | None


@dataclass(frozen=True, slots=True)
class TenantState:
    """What a tenant held; whoever has worked through a relation drops it and takes it off the list."""

    database: str
    name: str
    created_at: int
    generation: int
    seq: int
    now: int
    scopes: list[str]
    rules: list[Rule]
    transactions: Mapping[str, int]
    answered: list[list[object]]
    engine: Engine
    relations: list[RelationState]


class TenantCapture:
    """A tenant at the moment this was made, by somebody who saw to it that nobody was writing."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._noted: TenantState | KBError | None = None
        self._dropped = False
        tenant.lock.before.append(self._note)

    def state(self) -> TenantState:
        """What the tenant held then; raises what kept it from being noted, such as BudgetExceeded."""
        if self._noted is None:
            with self._tenant.lock.read():  # no writer is in, who would do it
                if self._withdraw():
                    self._note()
        if isinstance(self._noted, TenantState):
            return self._noted
        raise self._noted or SnapshotFailed("what was captured of a tenant is used up")

    def _note(self) -> None:
        # A writer may be here, who must not fail for it.
        try:
            self._tenant.accesses.settle()
            self._noted = _state(self._tenant)
        except KBError as error:
            self._noted = error
        except Exception as error:  # noqa: BLE001 - as above; the snapshot fails instead
            self._noted = SnapshotFailed(f"a tenant could not be captured: {type(error).__name__}: {error}")
        if self._dropped:  # meanwhile, by one who found nothing to give back
            self._give_back()

    def drop(self) -> None:
        """Give back what nobody is going to read."""
        self._dropped = True
        self._withdraw()
        self._give_back()

    def _withdraw(self) -> bool:
        """Take back the word that was left with the tenant; False where a writer has taken it."""
        try:
            self._tenant.lock.before.remove(self._note)
        except ValueError:
            return False
        return True

    def _give_back(self) -> None:
        noted, self._noted = self._noted, None
        while isinstance(noted, TenantState) and noted.relations:
            noted.relations.pop().then.drop()


@dataclass(frozen=True, slots=True)
class Capture:
    """The state of a node at one moment of the log."""

    databases: list[dict[str, object]]
    keys_used: bool
    keys: list[StoredKey]
    tenants: list[TenantCapture]


def capture(catalog: Catalog) -> Capture:
    """Begin to capture the state of a node; the caller sees to it that nobody writes meanwhile.

    Raises SnapshotFailed where a tenant lacks a durable change: only the log has that.
    """
    for tenant in catalog.tenants():
        if tenant.failed is not None:
            raise SnapshotFailed(f"{tenant.database}/{tenant.name} has to be recovered first: {tenant.failed}")
    databases: list[dict[str, object]] = [
        {"name": database.name, "createdAt": database.created_at} for database in catalog.databases()
    ]
    ring = catalog.keys
    return Capture(databases, ring.used, list(ring.all()), [TenantCapture(tenant) for tenant in catalog.tenants()])


def _state(tenant: Tenant) -> TenantState:
    stored = [relation for _, relation in tenant.stored()]
    stored.reverse()  # they are taken off the end
    frozen = tenant.engine.freeze([relation.relation for relation in stored])
    relations = [
        RelationState(relation.schema, relation.scope, then, relation.metadata_then())
        for relation, then in zip(stored, frozen, strict=True)
    ]
    return TenantState(
        tenant.database,
        tenant.name,
        tenant.created_at,
        tenant.generation,
        tenant.seq,
        tenant.at(0),
        [partition.name for partition in tenant.partitions() if partition.name is not None],
        [known.rule for known in tenant.rules.all()],
        tenant.committed.all(),
        tenant.answered.all(),
        tenant.engine,
        relations,
    )
