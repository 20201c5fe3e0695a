"""Quotas of a tenant.

Limits on facts, bytes, rules and scopes, checked before a change is written.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kbcore.config.settings import Config
from kbcore.errors import RateLimited
from kbcore.state.catalog import Catalog
from kbcore.state.changes import (
    AddEpisodes,
    AssertFacts,
    AssertRows,
    AssertRules,
    ChangeSet,
    Declare,
    DeployRuleSet,
    ForkScope,
    MergeScope,
    PurgeMemory,
    PutSubscription,
    RestoreFacts,
    RetractRule,
)
from kbcore.state.episodes.episodes import StoredEpisodes
from kbcore.state.facts import Fact, FactRows
from kbcore.state.partition import located
from kbcore.state.rule_sets import sized
from kbcore.state.rulebook import (
    ParsedDeclaration,
    RuleBook,
    StoredDefinition,
    stored_declaration,
)
from kbcore.state.subscriptions import StoredSubscription, Subscriptions
from kbcore.state.tenant import Tenant
from kbplanner.pacing import paced

RETRY_SECONDS = 60.0
"""Time after which a client may retry: others free capacity by retraction, eviction or expiry."""

FACTS_PER_YIELD = 500
"""Facts or entries looked up between two calls of `yield_now`: about a millisecond."""

_FREE = nullcontext()
_ADDING = (
    AssertFacts
    | AssertRows
    | AssertRules
    | Declare
    | DeployRuleSet
    | ForkScope
    | MergeScope
    | AddEpisodes
    | RestoreFacts
    | PutSubscription
)


@dataclass(slots=True)
class _Growth:
    """Upper bound of what a change set adds.

    Facts, rules and other entries already stored are subtracted only if it matters. `text_bytes` is
    the size of rules, episodes and subscriptions; that of facts is known once they are stored.
    `into` are the facts by scope: what another write copies from there may be they.
    """

    facts: int = 0
    rules: int = 0
    episodes: int = 0
    text_bytes: int = 0
    scopes: set[str] = field(default_factory=set)
    into: Counter[str | None] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Held:
    """Capacity reserved for writes of one tenant that are in progress."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    growths: list[_Growth] = field(default_factory=list)


class Quotas:
    """Enforces the limits of tenants, including writes in progress."""

    def __init__(self, config: Config) -> None:
        self._facts, self._bytes = config.tenant_max_facts, config.tenant_max_bytes
        self._rules, self._scopes = config.tenant_max_rules, config.tenant_max_scopes
        self._episodes = config.tenant_max_episodes
        self.active = any((self._facts, self._bytes, self._rules, self._scopes, self._episodes))
        self._mutex = threading.Lock()
        self._held: dict[tuple[str, str], _Held] = {}

    def room(self, catalog: Catalog, changes: ChangeSet) -> AbstractContextManager[None]:
        """Reserve capacity for a change set while it is written, if any limit is `active`.

        Entering raises RateLimited if a limit is reached.

        Retractions in the same change set do not free capacity for it, apart from the rules that a
        deployment replaces. If concurrent writes come
        near a limit, a write that would just have fitted may be refused; none exceeds the limit.
        """
        if not any(isinstance(change, _ADDING) for change in changes.changes):
            return _FREE
        return self._hold(catalog, changes)

    @contextmanager
    def _hold(self, catalog: Catalog, changes: ChangeSet) -> Iterator[None]:
        with self._mutex:
            held = self._held.setdefault((changes.database, changes.tenant), _Held())
        with held.lock:  # one lock per tenant: reads of one tenant must not delay writes of another
            tenant = catalog.find(changes.database, changes.tenant)
            growth = _growth(tenant, changes, held.growths)
            if self._bytes:
                entries = paced(_entries(tenant, changes), changes.yield_now, FACTS_PER_YIELD)
                growth.text_bytes += sum(each.size for each in entries)
            self._judge(tenant, changes, growth, held.growths)
            held.growths.append(growth)
        try:
            yield
        finally:
            with held.lock:
                held.growths[:] = [other for other in held.growths if other is not growth]

    def _judge(
        self, tenant: Tenant | None, changes: ChangeSet, growth: _Growth, others: list[_Growth]
    ) -> None:
        if tenant is None:
            self._compare(growth, _StoredSizes(0, 0, 0, 0, frozenset()), others)
            return
        with tenant.lock.read():
            stored = _StoredSizes(
                tenant.facts(),
                tenant.stored_bytes,
                len(tenant.rules),
                len(tenant.episodes),
                frozenset(tenant.scopes()),
            )
            try:
                self._compare(growth, stored, others)
            except RateLimited:
                growth.facts -= _there_already(tenant, changes)
                growth.rules -= _taught_already(tenant, changes)
                growth.episodes -= _told_already(tenant, changes)
                if self._bytes:
                    growth.text_bytes -= _bytes_already(tenant, changes)
                self._compare(growth, stored, others)

    def _compare(self, growth: _Growth, stored: _StoredSizes, others: list[_Growth]) -> None:
        new = growth.scopes - stored.scopes
        for setting, max_value, current, added in (
            (
                "TENANT_MAX_FACTS",
                self._facts,
                stored.facts + sum(other.facts for other in others),
                growth.facts,
            ),
            (
                "TENANT_MAX_RULES",
                self._rules,
                stored.rules + sum(other.rules for other in others),
                growth.rules,
            ),
            (
                "TENANT_MAX_EPISODES",
                self._episodes,
                stored.episodes + sum(other.episodes for other in others),
                growth.episodes,
            ),
            (
                "TENANT_MAX_SCOPES",
                self._scopes,
                len(stored.scopes.union(*(other.scopes for other in others))),
                len(new),
            ),
            (
                "TENANT_MAX_BYTES",
                self._bytes,
                stored.bytes + sum(other.text_bytes for other in others),
                growth.text_bytes + (1 if growth.facts > 0 else 0),
            ),
        ):
            if max_value and added > 0 and current + added > max_value:
                raise RateLimited(
                    f"the tenant would exceed its quota: {setting} is {max_value}",
                    RETRY_SECONDS,
                    {"limit": setting, "value": max_value, "has": current, "wanted": added},
                )


@dataclass(frozen=True, slots=True)
class _StoredSizes:
    facts: int
    bytes: int
    rules: int
    episodes: int
    scopes: frozenset[str]


def _growth(tenant: Tenant | None, changes: ChangeSet, others: Sequence[_Growth]) -> _Growth:
    """Return what a change set may add; `others` are writes in progress, which may come first."""
    growth = _Growth()
    purges = any(isinstance(change, PurgeMemory) for change in changes.changes)
    for change in changes.changes:
        if isinstance(change, AssertFacts):
            growth.into.update(fact.scope for fact in paced(change.facts, changes.yield_now))
        elif isinstance(change, AssertRows):
            for rows in change.rows:
                growth.into[rows.scope] += len(rows)
        elif isinstance(change, RestoreFacts):
            if purges:
                continue  # it changes stored facts only
            growth.into.update(fact.scope for fact in paced(change.facts, changes.yield_now))
        elif isinstance(change, AddEpisodes):
            growth.episodes += len(change.episodes)
        elif isinstance(change, AssertRules):
            growth.rules += len(change.rules)
            growth.scopes.update(rule.scope for rule in change.rules if rule.scope is not None)
        elif isinstance(change, Declare):
            growth.rules += len(change.declarations)
            growth.scopes.update(
                each.scope for each in change.declarations if each.scope is not None
            )
        elif isinstance(change, ForkScope | MergeScope):
            _add_copied(growth, tenant, change, others)
    growth.facts = growth.into.total()
    growth.scopes.update(scope for scope in growth.into if scope is not None)
    return growth


def _add_copied(
    growth: _Growth,
    tenant: Tenant | None,
    change: ForkScope | MergeScope,
    others: Sequence[_Growth],
) -> None:
    """Add what the source of a fork or a merge has, and what `others` may add to it before."""
    source = None if tenant is None else tenant.partition(change.source)
    growth.into[change.target] += 0 if source is None else source.live()
    growth.into[change.target] += sum(other.into[change.source] for other in others)
    if isinstance(change, ForkScope) and change.source is not None:
        if tenant is not None:
            growth.rules += len(tenant.rules.of(change.source))
            growth.rules += len(tenant.rules.declarations_of(change.source))
        coming = [other for other in others if change.source in other.scopes]
        growth.rules += sum(other.rules for other in coming)
        growth.text_bytes += sum(other.text_bytes for other in coming)


def _there_already(tenant: Tenant, changes: ChangeSet) -> int:
    """Count the facts of a change set that are stored already or repeated in it."""
    facts: list[Fact] = []
    for change in changes.changes:
        if isinstance(change, AssertFacts):
            facts += change.facts
        elif isinstance(change, AssertRows):
            facts += _each(change.rows)
    yield_now = changes.yield_now
    distinct = {fact.key: fact for fact in paced(facts, yield_now, FACTS_PER_YIELD)}
    return len(facts) - sum(
        not _is_stored(tenant, fact)
        for fact in paced(distinct.values(), yield_now, FACTS_PER_YIELD)
    )


def _each(groups: Iterable[FactRows]) -> list[Fact]:
    return [fact for rows in groups for fact in rows.facts()]


def _is_stored(tenant: Tenant, fact: Fact) -> bool:
    partition = tenant.partition(fact.scope)
    stored = None if partition is None else partition.get(fact.schema)
    if stored is None:
        return False
    symbols = array("I", [tenant.engine.find(arg) for arg in fact.args])
    return 0 not in symbols and bool(len(located(stored.relation, symbols, 1)[1]))


def _told_already(tenant: Tenant, changes: ChangeSet) -> int:
    return sum(
        episode.id in tenant.episodes
        for change in changes.changes
        if isinstance(change, AddEpisodes)
        for episode in change.episodes
    )


class _Entry(NamedTuple):
    """A rule, declaration, episode or subscription of a change set: its size, and that of the
    stored entry that it replaces or repeats, 0 without one.
    """

    key: tuple[object, ...]
    size: int
    stored: int


def _bytes_already(tenant: Tenant, changes: ChangeSet) -> int:
    """Return the size of the entries that are stored already, or that entries of a change set
    replace; one that the change set has twice counts once.
    """
    known: set[tuple[object, ...]] = set()
    size = 0
    for entry in paced(_entries(tenant, changes), changes.yield_now, FACTS_PER_YIELD):
        size += entry.size if entry.key in known else entry.stored
        known.add(entry.key)
    return size


def _entries(tenant: Tenant | None, changes: ChangeSet) -> Iterator[_Entry]:
    """Yield the entries of a change set whose sizes count; a tenant that does not exist has
    none.
    """
    rules = RuleBook() if tenant is None else tenant.rules
    episodes = StoredEpisodes() if tenant is None else tenant.episodes
    goals = Subscriptions() if tenant is None else tenant.subscriptions
    for change in changes.changes:
        if isinstance(change, AddEpisodes):
            for new in change.episodes:
                yield _Entry(("episode", new.id), new.bytes, new.bytes * (new.id in episodes))
        elif isinstance(change, AssertRules):
            for rule in change.rules:
                known = rules.get(rule.scope, rule.id)
                yield _Entry((rule.scope, rule.id), rule.bytes, rule.bytes * (known is not None))
        elif isinstance(change, Declare):
            for declared in map(stored_declaration, change.declarations):
                before = rules.declaration(declared.scope, declared.id)
                yield _Entry((declared.scope, declared.id), declared.bytes, _size(before))
        elif isinstance(change, DeployRuleSet):
            size = sized(change.items, changes.yield_now)
            yield _Entry(("set", change.scope, change.name), 2 * size, 0)
        elif isinstance(change, PutSubscription):
            new_goal = change.subscription
            yield _Entry(("goal", new_goal.id), new_goal.bytes, _size(goals.get(new_goal.id)))
        elif isinstance(change, ForkScope) and change.source is not None:
            own: list[StoredDefinition] = [
                *rules.of(change.source),
                *rules.declarations_of(change.source),
            ]
            for each in own:
                copied = replace(each, scope=change.target)
                yield _Entry((copied.scope, copied.id), copied.bytes, 0)


def _size(stored: ParsedDeclaration | StoredSubscription | None) -> int:
    return 0 if stored is None else stored.bytes


def _taught_already(tenant: Tenant, changes: ChangeSet) -> int:
    """Count the rules and declarations that a change set stores again, and those that a deployment
    replaces, up to the number of those it stores.
    """
    stored: list[tuple[str | None, str]] = []
    removed = set[tuple[str | None, str]]()
    is_deployment = bool(changes.changes) and isinstance(changes.changes[0], DeployRuleSet)
    for change in changes.changes:
        if isinstance(change, AssertRules):
            stored += ((rule.scope, rule.id) for rule in change.rules)
        elif isinstance(change, Declare):
            stored += ((each.scope, stored_declaration(each).id) for each in change.declarations)
        elif isinstance(change, RetractRule) and is_deployment:
            removed.add((change.scope, change.id))
    known = sum(
        tenant.rules.get(*name) is not None or tenant.rules.declaration(*name) is not None
        for name in (*stored, *removed.difference(stored))
    )
    return min(known, len(stored))
