"""The state of a node at one point of the log, captured without copying it at that point.

`capture` only registers with each tenant. The state of a tenant (`TenantState`) is captured when
the snapshot reaches the tenant, or before the first later change, whichever is earlier; with
durable changes that wait for readers, after the last of these. Its relations are frozen then, which
copies nothing yet, and metadata that change later are saved as they were. So no writer waits for a
copy of everything, and none of another tenant for readers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from kbcore.durable.commit import drain
from kbcore.errors import KBError, SnapshotFailed
from kbcore.state.catalog import Catalog
from kbcore.state.keys import KeyRing, StoredKey
from kbcore.state.labels import Labels
from kbcore.state.partition import MetadataThen, RowKey, StoredRelation
from kbcore.state.record_chain import ChainState
from kbcore.state.rule_sets import ItemKey, StoredRuleSet
from kbcore.state.rulebook import ParsedRule
from kbcore.state.subscriptions import StoredSubscription
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Engine, Relation
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.schema import RelationSchema
from kbtypes.episodes import Episode


@dataclass(frozen=True, slots=True)
class RelationState:
    """The facts of a stored relation.

    `then` is a frozen relation, to be settled before it is read.
    """

    schema: RelationSchema
    scope: str | None
    then: Relation
    metadata: MetadataThen | None
    labels: Sequence[Labels]
    """The sets of labels by the numbers in the column LABELS; empty if no fact has any."""
    stacked: Mapping[RowKey, tuple[Labels, ...]]
    """All labels of the facts that are stored with several."""
    layer: Labels | None = None
    """In place of these, the labels of a relation that holds details of such facts."""


@dataclass(frozen=True, slots=True)
class TenantState:
    """The captured state of a tenant.

    The reader drops each relation and removes it from the list when done.
    """

    database: str
    name: str
    created_at: int
    generation: int
    seq: int
    now: int
    scopes: list[str]
    rules: list[ParsedRule]
    declarations: list[Declaration]
    transactions: Mapping[str, int]
    answered: list[list[object]]
    engine: Engine
    relations: list[RelationState]
    episodes: list[Episode]
    purges: list[list[object]]
    erased: Mapping[str, object] | None
    subscriptions: list[StoredSubscription]
    rule_sets: list[StoredRuleSet]
    by_hand: list[tuple[str | None, ItemKey, Labels]]
    """Scope, key and labels of the items of rule sets that were also stored by hand."""
    rule_labels: Mapping[tuple[str | None, str], tuple[Labels, ...]]
    rule_forms: list[tuple[Labels, ParsedRule]]
    episode_labels: Mapping[str, Labels]
    chain: ChainState
    drop_unused_labels: Callable[[Collection[Labels]], None]


class TenantCapture:
    """A tenant with the changes that were durable at the time this object was created.

    The creator made sure that no change became durable at the same time.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._noted: TenantState | KBError | None = None
        self._dropped = False
        if tenant.backlog or tenant.lock.written:
            tenant.backlog.append(self._note)
        else:
            tenant.lock.before.append(self._note)

    def state(self) -> TenantState:
        """Return the captured state.

        Raise the error that prevented the capture, such as BudgetExceeded.
        """
        if self._noted is None and self._note in self._tenant.backlog:
            drain(self._tenant)
        if self._noted is None:
            with self._tenant.lock.read():  # no writer is active, which would capture the state
                if self._withdraw():
                    self._note()
        if isinstance(self._noted, TenantState):
            return self._noted
        raise self._noted or SnapshotFailed("the captured state of a tenant was already used")

    def _note(self) -> None:
        # This may run in a writer, which must not fail because of it.
        try:
            _check_complete(self._tenant)
            self._tenant.accesses.settle()
            self._noted = _state(self._tenant)
        except KBError as error:
            self._noted = error
        except Exception as error:  # noqa: BLE001 - as above; the snapshot fails instead
            self._noted = SnapshotFailed(
                f"a tenant could not be captured: {type(error).__name__}: {error}"
            )
        if self._dropped:  # dropped in the meantime, before there was a state to release
            self._give_back()

    def drop(self) -> None:
        """Release a state that will not be read."""
        self._dropped = True
        self._withdraw()
        self._give_back()

    def _withdraw(self) -> bool:
        """Unregister from the tenant; return False if a writer has already run the capture."""
        for waiting in self._tenant.lock.before, self._tenant.backlog:
            with suppress(ValueError):
                waiting.remove(self._note)
                return True
        return False

    def _give_back(self) -> None:
        noted, self._noted = self._noted, None
        while isinstance(noted, TenantState) and noted.relations:
            noted.relations.pop().then.drop()


@dataclass(frozen=True, slots=True)
class Capture:
    """The state of a node at one point of the log.

    `purged`, `deleted` and `drops` are those of the catalog.
    """

    databases: list[dict[str, object]]
    keys_used: bool
    keys: list[StoredKey]
    tenants: list[TenantCapture]
    purged: int = 0
    deleted: int = 0
    drops: Mapping[str, int] = field(default_factory=dict)


def capture(catalog: Catalog) -> Capture:
    """Begin to capture the state of a node; the caller makes sure that no change becomes durable.

    Raises SnapshotFailed if a tenant lacks a durable change: only the log has that change.
    """
    return capture_tenants(catalog, catalog.tenants())


def capture_tenants(catalog: Catalog, tenants: Iterable[Tenant], *, keys: bool = True) -> Capture:
    """Begin to capture some tenants, which may be of other catalogs, with the databases of a
    catalog and, with `keys`, its API keys; otherwise like `capture`.
    """
    tenants = list(tenants)
    for tenant in tenants:
        _check_complete(tenant)
    databases: list[dict[str, object]] = []
    for database in catalog.databases():
        databases.append({"name": database.name, "createdAt": database.created_at})
        if database.emptied_at:
            databases[-1]["emptiedAt"] = database.emptied_at
    ring = catalog.keys if keys else KeyRing()
    return Capture(
        databases,
        ring.used,
        list(ring.all()),
        [TenantCapture(tenant) for tenant in tenants],
        catalog.purged,
        catalog.deleted,
        catalog.drops,
    )


def _check_complete(tenant: Tenant) -> None:
    """Raise SnapshotFailed if a tenant lacks a durable change."""
    if tenant.failed is not None:
        raise SnapshotFailed(
            f"{tenant.database}/{tenant.name} must be recovered first: {tenant.failed}"
        )


def _state(tenant: Tenant) -> TenantState:
    stored: list[tuple[StoredRelation, Labels | None]] = []
    for _, relation in tenant.stored():
        stored.append((relation, None))
        stored += ((each, labels) for labels, each in relation.layers.items())
    stored.reverse()  # relations are popped from the end
    frozen = tenant.engine.freeze([relation.relation for relation, _ in stored])
    relations = [
        RelationState(
            relation.schema,
            relation.scope,
            then,
            relation.metadata_then(),
            relation.labels.sets() if relation.labels else [],
            dict(relation.stacked),
            layer,
        )
        for (relation, layer), then in zip(stored, frozen, strict=True)
    ]
    return TenantState(
        tenant.database,
        tenant.name,
        tenant.created_at,
        tenant.generation,
        tenant.seq,
        tenant.at(0),
        [partition.name for partition in tenant.partitions() if partition.name is not None],
        tenant.rules.all(),
        [known.declaration for known in tenant.rules.declarations()],
        tenant.committed.all(),
        tenant.answered.all(),
        tenant.engine,
        relations,
        list(tenant.episodes),
        tenant.purges.to_json(),
        tenant.erased.to_json() if tenant.erased else None,
        list(tenant.subscriptions),
        tenant.rule_sets.all(),
        tenant.rule_sets.by_hand(),
        dict(tenant.rules.labels),
        [item for forms in tenant.rules.forms.values() for item in forms.items()],
        dict(tenant.episode_labels),
        tenant.chain.state(),
        partial(tenant.drop_unused_labels, tenant.generation),
    )
