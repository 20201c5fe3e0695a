"""States of views: for each view in use a tenant that holds only what the view admits.

Every read of a view is a read of such a tenant, so that its answers, counts, proofs and windows are
those of a knowledge base without anything else. A state is copied from the tenant when its view is
first used, and follows the changes of the tenant before it is used again: changed facts are copied
again, and after changes of whole scopes the state is. A state with an observer follows each change
at once unless it is being read, so that the observer sees the state after each commit. The memory
of the states of a tenant is limited; the least recently used ones without an observer go first.
"""

from __future__ import annotations

import logging
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from kbcore.state.changes import (
    BESIDES_CONTENT,
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    Declare,
    Delta,
    DeployRuleSet,
    EndFacts,
    EvictFacts,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
    UseLabels,
)
from kbcore.state.episodes.evidence import evidence_of, with_evidence
from kbcore.state.labelling import copy_row
from kbcore.state.labels import NO_LABELS, Dimensions, Labels, admits
from kbcore.state.partition import RowKey, StoredRelation, located
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import DETAILS, Attribute
from kbplanner.ir.dimensions import Dimension
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, paced

MAX_STATES = 128
"""Maximum number of states of views that a tenant keeps, if the memory for them suffices."""

MAX_OBSERVED = 8
"""Maximum number of views of a tenant whose states are observed, and are therefore kept."""

MAX_AT_ONCE = 1000
"""Changed facts that an observed state follows within a write: about twenty milliseconds."""

MAX_COPIES = 4
"""Attempts to copy a tenant; during the last one it cannot be written."""

MAX_CHANGES = 10_000
"""Changed facts beyond which a state is copied as a whole."""

ROWS_PER_YIELD = 500
"""Facts copied between two calls of `yield_now`: about a millisecond."""

ROWS_PER_LOCK = 5000
"""Facts copied before writers of the tenant may go on: about ten milliseconds."""

_COPIED = tuple(each for each in DETAILS if each not in (Attribute.LAST_ACCESS, Attribute.ACCESSES))
"""Attributes of the facts of a view: reads by others change nothing in it."""

_log = logging.getLogger("kbcore.views")

_USES = count(1)

Atom = tuple[str | None, RelationSchema, tuple[str, ...]]
"""Scope, schema and arguments of a fact."""


@dataclass(slots=True)
class ViewState:
    """The state of a view, and what changed in the tenant since it was current.

    `source` is that tenant. `dimensions` are those that decide what the view admits; None for those
    of the tenant. `is_stale` is True if it must be copied as a whole. `used` grows with each use.
    """

    view: Labels
    tenant: Tenant
    source: Tenant
    dimensions: Dimensions | None = None
    atoms: dict[Atom, None] = field(default_factory=dict)
    episodes: list[str] = field(default_factory=list)
    rules_changed: bool = False
    is_stale: bool = False
    used: int = 0

    @property
    def is_current(self) -> bool:
        """True if the state can be read as it is."""
        return not (self.is_stale or self.atoms or self.episodes or self.rules_changed)

    def use(self) -> None:
        """Note that the state is used: the others are removed before it."""
        self.used = next(_USES)

    @property
    def is_observed(self) -> bool:
        """True if somebody follows the state."""
        return self.tenant.observer is not None

    @property
    def is_behind(self) -> bool:
        """True if something of the tenant is to be copied."""
        return bool(self.atoms or self.episodes) or self.rules_changed


class ViewStates:
    """The states of the views of one tenant.

    `make` returns an empty tenant of the same name; the states take at most `max_bytes` together,
    except for the one that was used last, and those with observers. `when_behind` is called with
    the view of an observed state that could not follow a change at once, under the write lock of
    the tenant. `dimensions` are those of now if the tenant is an earlier state of itself, where the
    levels of a view may not be declared yet.
    """

    def __init__(
        self,
        tenant: Tenant,
        make: Callable[[], Tenant],
        max_bytes: int,
        dimensions: Dimensions | None = None,
    ) -> None:
        self._tenant = tenant
        self._make = make
        self._max_bytes = max_bytes
        self._dimensions = dimensions
        self.when_behind: Callable[[Labels], None] = lambda view: None
        self._copying = threading.Lock()
        self._states: dict[Labels, ViewState] = {}
        self._new: ViewState | None = None
        """The state that is being copied; it follows the changes already."""

    def close(self) -> None:
        """Forget all states."""
        for each in self._states.values():
            each.is_stale = True
        self._states.clear()
        self._tenant.views = None

    def __len__(self) -> int:
        """Return the number of states."""
        return len(self._states)

    @property
    def bytes(self) -> int:
        """Approximate memory of the states in bytes."""
        return sum(each.tenant.stored_bytes for each in list(self._states.values()))

    def observed(self) -> set[Labels]:
        """Return the views whose states have observers."""
        return {view for view, each in list(self._states.items()) if each.is_observed}

    @property
    def is_full(self) -> bool:
        """True if the states with observers take more memory than all may."""
        observed = (each for each in list(self._states.values()) if each.is_observed)
        return sum(each.tenant.stored_bytes for each in observed) > self._max_bytes

    def current(self, view: Labels) -> ViewState | None:
        """Return the state of a view, if that needs no copying; else None."""
        known = self._states.get(view)
        if known is None or not known.is_current:
            return None
        known.use()
        return known

    def known(self, view: Labels) -> Tenant | None:
        """Return the state of a view, also one that is behind; None if it must be copied."""
        known = self._states.get(view)
        return None if known is None or known.is_stale else known.tenant

    def state(self, view: Labels, yield_now: YieldNow) -> Tenant:
        """Return the tenant as a view shows it, as `state_of` does."""
        return self.state_of(view, yield_now).tenant

    def state_of(self, view: Labels, yield_now: YieldNow) -> ViewState:
        """Return the state of a view, up to date.

        The caller holds no lock of either. Raises what `yield_now` raises.
        """
        while (seen := self.current(view)) is None:
            known = self._states.get(view)
            if known is None or known.is_stale:
                self._copy(view, yield_now)
            elif self._update(known, yield_now):
                return known
            else:
                with known.tenant.lock.write():
                    pass  # waits for its readers without a lock that others wait for
        return seen

    def _update(self, known: ViewState, yield_now: YieldNow) -> bool:
        """Copy what has changed; return False if the state has readers or must be copied again."""
        with self._tenant.lock.read():
            if known.is_stale or not known.tenant.lock.acquire_unless_read():
                return False
            try:
                if known.is_behind:
                    _Copy(self._tenant, known, yield_now).changes()
            finally:
                known.tenant.lock.release()
        return True

    def _copy(self, view: Labels, yield_now: YieldNow) -> None:
        """Make the state of a view, unless another reader has made it.

        The tenant can be written between two parts of the copy. One that changes as a whole again
        and again is copied without that.
        """
        with self._copying:
            for attempt in range(MAX_COPIES):
                known = self._states.get(view)
                if known is not None and not known.is_stale:
                    return
                state = self._new = ViewState(view, self._make(), self._tenant, self._dimensions)
                state.tenant.rules.view = view
                copy = _Copy(self._tenant, state, yield_now)
                try:
                    if attempt + 1 < MAX_COPIES and not copy.in_parts():
                        continue
                    with self._tenant.lock.read():
                        if attempt + 1 == MAX_COPIES:
                            copy.whole()
                        elif state.is_stale:
                            continue
                        else:
                            copy.changes()
                        state.use()
                        self._states[view] = state
                finally:
                    self._new = None
                self._shrink()
                return

    def bring(self, view: Labels, tenant: Tenant, yield_now: YieldNow) -> bool:
        """Bring a state up to date without waiting for its readers; return True if that worked.

        The caller makes sure that the tenant itself does not change.
        """
        known = self._states.get(view)
        if known is None or known.tenant is not tenant or known.is_stale:
            return False
        if not known.is_behind:
            return True
        if not tenant.lock.acquire_unless_read():
            return False
        try:
            _Copy(self._tenant, known, yield_now).changes()
        finally:
            tenant.lock.release()
        return True

    def _shrink(self) -> None:
        """Remove the least recently used states beyond the limits, but not the observed ones."""
        by_use = sorted(self._states.values(), key=lambda each: each.used)
        for state in by_use[:-1]:
            if len(self._states) <= MAX_STATES and self.bytes <= self._max_bytes:
                return
            if not state.is_observed and self._states.get(state.view) is state:
                del self._states[state.view]
                state.is_stale = True

    def follow(self, changes: ChangeSet, delta: Delta, yield_now: YieldNow = go_on) -> None:
        """Note what a change set has changed in the tenant, and let observed states follow it; the
        caller holds its write lock.
        """
        new = self._new
        for state in (*self._states.values(), *(() if new is None else (new,))):
            if not state.is_stale:
                _note(state, changes.changes, delta, MAX_CHANGES)
                if state.is_stale or len(state.atoms) + len(state.episodes) > MAX_CHANGES:
                    state.is_stale = True
                    state.atoms.clear()
                    state.episodes.clear()
        for state in list(self._states.values()):
            if state.is_observed and not self._follow_at_once(state, yield_now):
                self.when_behind(state.view)

    def _follow_at_once(self, state: ViewState, yield_now: YieldNow) -> bool:
        """Bring a state up to date within a write; return False if it has readers, or that is much
        work.
        """
        if state.is_stale or len(state.atoms) + len(state.episodes) > MAX_AT_ONCE:
            return False
        if not state.tenant.lock.acquire_unless_read():
            return False
        try:
            _Copy(self._tenant, state, yield_now).changes()
        except Exception:  # noqa: BLE001 - the change itself is valid: it must not fail
            _log.exception("the state of a view could not follow a change, and is copied again")
            state.is_stale = True
        finally:
            state.tenant.lock.release()
        return not state.is_stale


def copy_changes(
    tenant: Tenant,
    target: Tenant,
    view: Labels,
    effects: Sequence[tuple[Sequence[Change], Delta]],
    yield_now: YieldNow,
) -> None:
    """Bring what a view shows of a tenant, `target`, up to date after changes with these effects.

    The caller holds the read lock of the tenant and the write lock of the target.
    """
    state = ViewState(view, target, tenant)
    for changes, delta in effects:
        _note(state, changes, delta, sys.maxsize)
    _Copy(tenant, state, yield_now).changes()


def _note(state: ViewState, changes: Sequence[Change], delta: Delta, limit: int) -> None:
    """Note what changes have changed; a state is stale after more than `limit` facts."""
    state.atoms.update(dict.fromkeys(_removed(state, delta, limit)))
    for change in changes:
        if isinstance(change, AssertFacts | AddEvidence):
            state.atoms.update(
                ((each.scope, each.schema, each.args), None) for each in change.facts
            )
        elif isinstance(change, AssertRows | EvictFacts):
            if sum(map(len, change.rows)) > limit:
                state.is_stale = True
                return
            for rows in change.rows:
                for fact in rows.facts():
                    state.atoms[rows.scope, rows.schema, fact.args] = None
        elif isinstance(change, RetractFact | SetPriority):
            for positive in (True, False) if change.positive is None else (change.positive,):
                schema = RelationSchema(change.predicate, len(change.args), positive)
                state.atoms[change.scope, schema, change.args] = None
        elif isinstance(change, EndFacts):
            for ended in change.facts:
                schema = RelationSchema(ended.predicate, len(ended.args), ended.positive)
                state.atoms[ended.scope, schema, ended.args] = None
        elif isinstance(change, RestoreFacts):
            for restored in change.facts:
                schema = RelationSchema(
                    restored.predicate, len(restored.args), restored.standing.positive
                )
                state.atoms[restored.scope, schema, restored.args] = None
        elif isinstance(change, AddEpisodes):
            state.episodes += (each.id for each in change.episodes)
        elif isinstance(change, AssertRules | RetractRule):
            state.rules_changed = True
        elif isinstance(change, Declare):
            state.rules_changed = True
            if any(isinstance(each, Dimension) for each in change.declarations):
                state.is_stale = True
        elif not isinstance(change, (DeployRuleSet, RetractPattern, UseLabels, *BESIDES_CONTENT)):
            state.is_stale = True


def _removed(state: ViewState, delta: Delta, limit: int) -> Iterator[Atom]:
    for removed in delta.removed:
        if len(removed.rows) > limit:
            state.is_stale = True
            return
        for row in removed.rows:
            yield removed.scope, removed.schema, tuple(row["args"])


class _Copy:
    """Copies what a view admits from a tenant to the state of the view.

    The caller holds the read lock of the tenant, unless a method says otherwise, and no read uses
    the state.
    """

    def __init__(self, tenant: Tenant, state: ViewState, yield_now: YieldNow) -> None:
        self._tenant = tenant
        self._state = state
        self._target = state.tenant
        self._yield_now = yield_now
        own = state.dimensions
        self._dimensions: Dimensions = tenant.rules.dimensions() if own is None else own
        self._known: dict[Labels, bool] = {}

    def whole(self) -> None:
        """Copy everything to a new state; the caller holds the read lock."""
        self._besides_facts()
        for partition, stored in self._tenant.stored():
            self._target.need_partition(partition.name)
            for part in self._parts(stored):
                self._located(stored, *part)
        self._done()

    def in_parts(self) -> bool:
        """Copy everything to a new state, except for the changes that it notes during the copy;
        return False if it must be copied again.

        The caller does not hold the read lock, so that the tenant can be written between two parts.
        """
        lock = self._tenant.lock
        with lock.read():
            self._besides_facts()
            every = [(partition.name, stored) for partition, stored in self._tenant.stored()]
        for name, stored in every:
            self._target.need_partition(name)
            with lock.read():
                parts = self._parts(stored)
            for part in parts:
                with lock.read():
                    if self._state.is_stale:
                        return False
                    self._located(stored, *part)
        return True

    def _besides_facts(self) -> None:
        self._target.advance(self._tenant.at(0))
        for episode in paced(self._tenant.episodes, self._yield_now, ROWS_PER_YIELD):
            if self._admits(self._tenant.episode_labels.get(episode.id, NO_LABELS)):
                self._target.episodes.add(episode)
        self._rules()
        self._rule_sets()

    def changes(self) -> None:
        """Copy what has changed."""
        self._target.advance(self._tenant.at(0))
        state = self._state
        for id in paced(state.episodes, self._yield_now, ROWS_PER_YIELD):
            episode = self._tenant.episodes.get(id)
            if episode and self._admits(self._tenant.episode_labels.get(id, NO_LABELS)):
                self._target.episodes.add(episode)
        if state.rules_changed:
            self._rules()
        self._rule_sets()
        changed: dict[tuple[str | None, RelationSchema], list[tuple[str, ...]]] = {}
        for scope, schema, args in paced(state.atoms, self._yield_now, ROWS_PER_YIELD):
            changed.setdefault((scope, schema), []).append(args)
        for (scope, schema), facts in changed.items():
            for start in paced(range(0, len(facts), ROWS_PER_YIELD), self._yield_now, 1):
                self._facts(scope, schema, facts[start : start + ROWS_PER_YIELD])
        self._done()
        if self._target.observer is not None:
            self._target.observer()

    def _done(self) -> None:
        state = self._state
        state.atoms.clear()
        state.episodes.clear()
        state.rules_changed = False
        self._target.generation = self._tenant.generation
        self._target.seq = self._tenant.seq
        self._target.version += 1

    def _admits(self, labels: Labels) -> bool:
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = admits(self._state.view, labels, self._dimensions)
        return known

    def _rules(self) -> None:
        """Give the state the rules and declarations that the view admits."""
        source, target = self._tenant.rules, self._target.writable_rules()
        admitted = {}
        for each in paced(source.all(), self._yield_now, ROWS_PER_YIELD):
            seen = next(filter(self._admits, source.labels_of(each)), None)
            if seen is not None:
                admitted[each.scope, each.id] = source.form(each, seen)
        for known in paced(target.all(), self._yield_now, ROWS_PER_YIELD):
            if admitted.get((known.scope, known.id)) != known:
                target.remove(known.scope, known.id)
        for rule in paced(admitted.values(), self._yield_now, ROWS_PER_YIELD):
            target.add(rule)
        declared = {(each.scope, each.id): each for each in source.declarations()}
        for old in target.declarations():
            if (old.scope, old.id) not in declared:
                target.withdraw(old.scope, old.id)
        for new in declared.values():
            if target.declaration(new.scope, new.id) != new:
                target.declare(new.declaration)
        self._target.plan_version += 1

    def _rule_sets(self) -> None:
        """Give the state the rule sets that the view admits."""
        source = self._tenant.rule_sets
        if source.version or self._target.rule_sets.version:
            self._target.writable_rule_sets().show(source, self._admits, self._yield_now)

    def _parts(self, stored: StoredRelation) -> list[tuple[array[int], int]]:
        """Return the symbols of the facts of a relation in parts, with their numbers."""
        arity = stored.schema.arity
        if stored.gone:
            return []
        rows, ids = stored.relation.match([0] * arity, hidden=True, yield_now=self._yield_now)
        return [
            (
                rows[start * arity : (start + ROWS_PER_LOCK) * arity],
                min(ROWS_PER_LOCK, len(ids) - start),
            )
            for start in range(0, len(ids), ROWS_PER_LOCK)
        ]

    def _located(self, stored: StoredRelation, symbols: array[int], count: int) -> None:
        """Copy those of some facts that are stored to the state, which has none of them."""
        if stored.gone:
            return
        arity = stored.schema.arity
        rows, ids = located(stored.relation, symbols, count)
        target = self._target.need_partition(stored.scope).writable(stored.schema)
        for start in paced(range(0, len(ids), ROWS_PER_YIELD), self._yield_now, 1):
            part = ids[start : start + ROWS_PER_YIELD]
            self._rows(stored, target, rows[start * arity : (start + len(part)) * arity], part)

    def _rows(
        self, stored: StoredRelation, target: StoredRelation, symbols: array[int], ids: array[int]
    ) -> None:
        arity = stored.schema.arity
        keys = [tuple(symbols[i * arity : (i + 1) * arity]) for i in range(len(ids))]
        if stored.labels or stored.stacked:
            for key in stored.stacked.keys() & set(keys):
                self._stack(stored, target, key)
            plain = [
                i
                for i, (key, labels) in enumerate(zip(keys, stored.labels.of(ids), strict=True))
                if key not in stored.stacked and self._admits(labels)
            ]
            keys = [keys[i] for i in plain]
            ids = array("I", [ids[i] for i in plain])
            symbols = array("I", [symbol for key in keys for symbol in key])
        if not keys:
            return
        own = self._target.engine.intern_many(self._tenant.engine.texts(symbols))
        new, added = target.insert(own, len(keys))
        for attribute in _COPIED:
            if stored.relation.uses(attribute) or target.relation.uses(attribute):
                cells = stored.relation.attributes(attribute, ids)
                target.relation.set_attribute(attribute, new, cells)
        rows = [tuple(own[i * arity : (i + 1) * arity]) for i in range(len(keys))]
        if stored.metadata:
            for key, row in zip(keys, rows, strict=True):
                if key in stored.metadata:
                    target.describe(row, stored.metadata[key])
                    self._leave_out_evidence(target, row)
        if stored.limited:
            limited = [i for i, key in enumerate(keys) if key in stored.limited]
            if limited:
                at = array("I", [new[i] for i in limited])
                self._target.limit_many(target, [rows[i] for i in limited], at)
        self._target.changed(added, target)

    def _stack(self, stored: StoredRelation, target: StoredRelation, key: RowKey) -> None:
        """Copy the newest details that the view admits of a fact with several labels."""
        seen = [labels for labels in stored.stacked[key] if self._admits(labels)]
        if seen:
            self._one(stored.layers[seen[-1]], target, key)

    def _one(self, source: StoredRelation, target: StoredRelation, key: RowKey) -> None:
        texts = self._tenant.engine.texts(array("I", key))
        own = tuple(self._target.engine.intern_many(texts))
        copy_row(source, key, target, own, self._target, _COPIED)
        self._leave_out_evidence(target, own)

    def _leave_out_evidence(self, target: StoredRelation, row: RowKey) -> None:
        """Remove the evidence in episodes that the view does not admit."""
        metadata = target.metadata.get(row)
        spans = evidence_of(metadata) if metadata else ()
        known = [span for span in spans if span["episode"] in self._target.episodes]
        if metadata and len(known) < len(spans):
            target.describe(row, with_evidence(metadata, known))

    def _facts(
        self, scope: str | None, schema: RelationSchema, facts: Sequence[tuple[str, ...]]
    ) -> None:
        """Give facts of one relation the details that the view admits now, or remove them."""
        target = self._target.need_partition(scope).writable(schema)
        own = self._target.engine.intern_many([arg for args in facts for arg in args])
        rows, ids = located(target.relation, own, len(facts))
        if len(ids):
            target.remove(rows, len(ids))
            self._target.changed(len(ids), target)
        partition = self._tenant.partition(scope)
        stored = None if partition is None else partition.get(schema)
        if stored is None:
            return
        find = self._tenant.engine.find
        keys = [tuple(map(find, args)) for args in facts]
        known = [key for key in keys if 0 not in key]
        symbols = array("I", [symbol for key in known for symbol in key])
        self._located(stored, symbols, len(known))
