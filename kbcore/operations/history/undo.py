"""The inverse of a committed change, from the state before it that a snapshot and the log give.

The state before the change is rebuilt in a separate tenant (`kbcore/durable/earlier_states.py`).
Then the records after the change are applied there too, to find those that concern the same facts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.durable.earlier_states import EarlierStates, LoggedChange
from kbcore.durable.request_key import own_key
from kbcore.durable.transactions import stored_row_of
from kbcore.errors import Conflict, LogTruncated, NotFound
from kbcore.operations.history.named_facts import is_wide, named_facts
from kbcore.plug.ports import LogStore
from kbcore.reason.budget import Budget
from kbcore.state.catalog import Catalog
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeCatalog,
    ChangeSet,
    Declare,
    DeployRuleSet,
    DropScope,
    EndFacts,
    EvictFacts,
    ForkScope,
    MergeScope,
    NoteAnswer,
    PurgeMemory,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    RetractRule,
    SetPriority,
    UseLabels,
)
from kbcore.state.episodes.evidence import evidence_from_json, with_evidence
from kbcore.state.facts import UNSET_PRIORITY, FactKey, Row
from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.merging.sides import ConflictingFact
from kbcore.state.rule_sets import FACT, RULE, ItemKey
from kbcore.state.rulebook import ParsedRule, RuleBook, stored_declaration
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_atom

CONFLICTS_LISTED = 100
RuleKey = tuple[str | None, str]
"""Scope and id of a rule or a declaration."""

_RuleForms = tuple[tuple[Labels, ParsedRule], ...]
"""A rule as it is stored: its forms with each of its labels; the first is the one that is shown."""

_Rules = tuple[dict[RuleKey, _RuleForms], dict[RuleKey, Declaration]]


@dataclass(frozen=True, slots=True)
class _Details:
    """The details of a fact with some labels, in one state: its row and its priority."""

    labels: Labels
    row: Row
    priority: float


_Stored = tuple[_Details, ...]
"""A fact as it is stored in one state: its details with each of its labels, the newest last."""


@dataclass(frozen=True, slots=True)
class _Later:
    """A change after the one to be undone: which change it undid, and what it changed of the
    same.
    """

    seq: int
    undoes: int | None
    conflict: dict[str, Any] | None


@dataclass(slots=True)
class Undone:
    """The inverse of a change set, and what it concerns.

    `labels` are those of what it changes. `seq_seen` is the last record of the tenant that was
    compared with it, `later` are those of them that undid a change or concern the same facts,
    oldest first.
    """

    seq: int
    inverse: tuple[Change, ...]
    facts: frozenset[FactKey]
    rules: frozenset[RuleKey]
    scopes: frozenset[str]
    labels: frozenset[Labels]
    seq_seen: int
    retracted: int = 0
    restored: int = 0
    rules_changed: int = 0
    later: list[_Later] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class UndoneChange:
    """The number of the change that was undone, and of the change that undid it."""

    undone: int
    seq: int
    timestamp: int
    change: Undone


class LogReplay:
    """Finds the inverse of a change, and the later changes that concern the same facts."""

    def __init__(
        self, store: LogStore, scratch: Catalog, owner: tuple[str, str], budget: Budget
    ) -> None:
        self._store = store
        self._states = EarlierStates(store, scratch, owner, budget)
        self._budget = budget

    def find(self, request: str, caller: str | None = None) -> int:
        """Return the number of the change set with an idempotency key or a transaction id; `caller`
        may have a key of its own with this text, which then is meant.

        Raises NotFound if the log has none, and Conflict if it has several.
        """
        self._states.at = self._states.first_record() - 1
        own = None if caller is None else own_key(caller, request)
        numbers = [
            change.seq
            for change in self._changes()
            if request in (change.transaction, change.request)
            or (own is not None and own == change.request)
            if any(each["op"] != "answer" for each in change.body["changes"])
        ]
        if not numbers:
            raise NotFound(
                f"the log has no change with the request id '{request}'", {"requestId": request}
            )
        if len(numbers) > 1:
            raise Conflict(
                "the request made several changes; undo each by its commitSeq, the last one first",
                {"reason": "several", "commitSeqs": numbers[:CONFLICTS_LISTED]},
            )
        return numbers[0]

    def undone(self, seq: int) -> Undone:
        """Return the inverse of the change set with a number.

        Raises NotFound, and Conflict if the change cannot be undone.
        """
        if not 1 <= seq <= self._store.status().head:
            raise _not_found(seq)
        try:
            self._states.restore(seq - 1)
        except LogTruncated as error:
            first = (error.details or {}).get("first")
            raise Conflict(
                f"the change {seq} is no longer in the log: changes before {first} cannot be undone",
                {"reason": "compacted", "commitSeq": seq, "first": first},
            ) from error
        for change in self._changes(seq):
            changes = change.changes()
            _check_kinds(changes, seq)
            return self._inverse(change, changes, seq)
        raise _not_found(seq)

    def check_later(self, undone: Undone) -> None:
        """Compare the records since the last call; raise Conflict if any changed the same facts.

        A change that was undone later and the change that undid it cancel out, and one that left
        the facts as they were concerns nothing. Raises Conflict too if the change is undone
        already.
        """
        for change in self._changes():
            conflict = self._overlap(change, undone)
            undone.seq_seen = change.seq
            if conflict is not None or change.undoes is not None:
                undone.later.append(_Later(change.seq, change.undoes, conflict))
        conflicts: list[dict[str, Any]] = []
        for later in _in_force(undone.later, undone.seq):
            if later.undoes == undone.seq:
                raise Conflict(
                    f"the change {undone.seq} is undone already, by {later.seq}",
                    {"reason": "undone", "commitSeq": undone.seq, "undoneBy": later.seq},
                )
            if later.conflict is not None:
                conflicts.append(later.conflict)
        if conflicts:
            numbers = ", ".join(str(each["commitSeq"]) for each in conflicts[:5])
            raise Conflict(
                f"later changes concern the same facts or rules: {numbers};"
                " undo those first, the last one first",
                {"reason": "changed_later", "conflicts": conflicts[:CONFLICTS_LISTED]},
            )

    def _overlap(self, change: LoggedChange, undone: Undone) -> dict[str, Any] | None:
        """Apply a later change; return it as a conflict if it changed what the undone one did."""
        changes = change.changes().changes
        tenant = self._states.tenant(change.at)
        names = named_facts(tenant, changes)
        names = {key for key in names if key in undone.facts or key[0] in undone.scopes}
        scopes = _written_scopes(changes) & undone.scopes
        if is_wide(changes):
            names |= undone.facts
        elif not names and not scopes and not _named_rules(changes):
            self._states.apply(change)
            return None
        tenant.advance(change.at)  # what ended in the meantime was not changed
        before, rules_before = _rows_of(tenant, names), _rules(tenant)
        self._states.apply(change)
        tenant = self._states.tenant(change.at)
        after, rules_after = _rows_of(tenant, names), _rules(tenant)
        changed = {key for key in names if before.get(key) != after.get(key)}
        rules = set(_changed_rules(rules_before, rules_after))
        if not is_wide(changes):
            scopes &= {key[0] for key in (*changed, *rules)}
        changed &= undone.facts
        rules &= undone.rules
        return _conflict(change, changed, rules, scopes) if changed or rules or scopes else None

    def _inverse(self, change: LoggedChange, changes: ChangeSet, seq: int) -> Undone:
        tenant = self._states.tenant(change.at)
        scopes_before = set(tenant.scopes())
        wide = _scopes_changed_whole(changes)
        names = named_facts(tenant, changes.changes) | self._everything(tenant, wide)
        before = _rows_of(tenant, names)
        rules_before = _rules(tenant)
        delta = self._states.apply(change)
        tenant = self._states.tenant(change.at)
        for removed in () if delta is None else delta.removed:
            names |= {_key(row) for row in removed.rows}
        names |= self._everything(tenant, wide)
        after = _rows_of(tenant, names)
        new_scopes = frozenset(
            scope for scope in wide if scope is not None and scope not in scopes_before
        )
        changed = {key for key in names if before.get(key) != after.get(key)}
        facts = [key for key in sorted(changed, key=repr) if key[0] not in new_scopes]
        gone = [key for key in facts if key not in before]
        again = [key for key in facts if key in before]
        labelled = [key for key in facts if _has_labels(before.get(key, ()), after.get(key, ()))]
        _check_not_deployed(tenant, ((key[0], (FACT, *key[1:])) for key in labelled), seq)
        plain = [key for key in again if key not in set(labelled)]
        inverse: list[Change] = [
            *(DropScope(scope) for scope in sorted(new_scopes)),
            *_inverse_facts(gone, plain, before, after),
        ]
        of_rules = [
            key for key in _changed_rules(rules_before, _rules(tenant)) if key[0] not in new_scopes
        ]
        rules_after = _rules(tenant)[0]
        with_labels = (
            key
            for key in of_rules
            if any(
                labels
                for state in (rules_before[0], rules_after)
                for labels, _ in state.get(key, ())
            )
        )
        _check_not_deployed(tenant, ((scope, (RULE, id)) for scope, id in with_labels), seq)
        inverse += _inverse_rules(of_rules, rules_after, *rules_before)
        inverse += _inverse_labelled([key for key in labelled if key in before], before)
        if not inverse:
            raise Conflict(
                "the change set changed no fact and no rule",
                {"reason": "nothing", "commitSeq": seq},
            )
        return Undone(
            seq,
            tuple(inverse),
            frozenset(facts),
            frozenset(of_rules),
            new_scopes,
            frozenset(
                (
                    *_changed_labels(facts, before, after),
                    *_labels_of_rules(of_rules, rules_before[0], rules_after),
                )
            ),
            seq,
            len(gone),
            len(again),
            len(of_rules),
        )

    def _everything(self, tenant: Tenant, scopes: Iterable[str | None]) -> set[FactKey]:
        """Return the names of all facts of scopes."""
        names: set[FactKey] = set()
        for scope in scopes:
            partition = tenant.partition(scope)
            for stored in () if partition is None else partition.relations():
                arity = stored.schema.arity
                rows, ids = stored.relation.match([0] * arity, hidden=True)
                texts = tenant.engine.texts(rows)
                for index in self._budget.paced(range(len(ids))):
                    args = tuple(texts[index * arity : (index + 1) * arity])
                    names.add((scope, stored.schema.predicate, args, stored.schema.positive))
        return names

    def _changes(self, upto: int | None = None) -> Iterator[LoggedChange]:
        """Yield the change sets after the rebuilt state; raise Conflict if they are gone."""
        try:
            yield from self._states.records(upto)
        except LogTruncated as error:
            first = (error.details or {}).get("first")
            raise Conflict(
                f"the log was compacted during the undo: changes before {first} cannot be undone",
                {"reason": "compacted", "first": first},
            ) from error


def _scopes_changed_whole(changes: ChangeSet) -> set[str | None]:
    """Return the scopes that a change set forks, merges or drops."""
    return {
        change.scope if isinstance(change, DropScope) else change.target
        for change in changes.changes
        if isinstance(change, ForkScope | DropScope | MergeScope)
    }


def _inverse_facts(
    gone: Sequence[FactKey],
    again: Sequence[FactKey],
    before: Mapping[FactKey, _Stored],
    after: Mapping[FactKey, _Stored],
) -> Iterator[Change]:
    """Yield the changes that remove the facts `gone` and store those of `again` as before."""
    for scope, name, args, sign in gone:
        yield RetractFact(name, args, sign, scope)
    if again:
        yield RestoreFacts(tuple(_restored(before[key][0].row) for key in again))
    for key in again:
        scope, name, args, sign = key
        priority = before[key][0].priority
        if priority != (after[key][0].priority if key in after else UNSET_PRIORITY):
            yield SetPriority(name, args, priority, sign, scope)


def _changed_labels(
    facts: Iterable[FactKey], before: Mapping[FactKey, _Stored], after: Mapping[FactKey, _Stored]
) -> Iterator[Labels]:
    """Yield the labels of the details of facts that are not the same in two states."""
    for key in facts:
        old, new = before.get(key, ()), after.get(key, ())
        yield from (each.labels for each in old if each not in new)
        yield from (each.labels for each in new if each not in old)


def _labels_of_rules(
    rules: Iterable[RuleKey], before: dict[RuleKey, _RuleForms], after: dict[RuleKey, _RuleForms]
) -> Iterator[Labels]:
    """Yield the labels of the forms of rules that are not the same in two states; a declaration
    has none.
    """
    for key in rules:
        forms = set(before.get(key, ())) ^ set(after.get(key, ()))
        yield from (labels for labels, _ in forms)
        if key not in before and key not in after:
            yield NO_LABELS


def _has_labels(*states: _Stored) -> bool:
    return any(len(state) > 1 or any(each.labels for each in state) for state in states)


def _check_not_deployed(
    tenant: Tenant, items: Iterable[tuple[str | None, ItemKey]], seq: int
) -> None:
    """Raise Conflict if a rule set contains one of some facts or rules with labels: its share would
    be undone too.
    """
    for scope, key in items:
        if names := tenant.rule_sets.sets_of(scope, key):
            raise Conflict(
                f"the change concerns labels of what the rule set '{names[0]}' contains too, and is"
                " not undone",
                {"reason": "ruleSet", "commitSeq": seq, "name": names[0]},
            )


def _inverse_labelled(
    again: Sequence[FactKey], before: Mapping[FactKey, _Stored]
) -> Iterator[Change]:
    """Yield the changes that store facts as before, with the details of each of their labels."""
    for scope, name, args, sign in again:
        yield RetractFact(name, args, sign, scope)
    rounds: dict[tuple[int, Labels], list[RestoredFact]] = {}
    for key in again:
        for number, each in enumerate(before[key]):
            fact = replace(_restored(each.row), priority=each.priority)
            rounds.setdefault((number, each.labels), []).append(fact)
    for (_, labels), facts in sorted(rounds.items(), key=lambda each: each[0][0]):
        yield UseLabels(labels)
        yield RestoreFacts(tuple(facts))


def _not_found(seq: int) -> NotFound:
    return NotFound(f"the tenant has no change {seq}", {"commitSeq": seq})


def _check_kinds(changes: ChangeSet, seq: int) -> None:
    if any(isinstance(change, PurgeMemory) for change in changes.changes):
        raise Conflict(
            "a purge cannot be undone: its text is removed from the log",
            {"reason": "purged", "commitSeq": seq},
        )
    for change in changes.changes:
        if isinstance(change, DeployRuleSet):
            raise Conflict(
                f"a deployment is not undone; roll the rule set '{change.name}' back",
                {"reason": "ruleSet", "commitSeq": seq, "name": change.name},
            )
    if changes.of_catalog:
        raise Conflict(
            "a change of a whole tenant or database cannot be undone",
            {"reason": "catalog", "commitSeq": seq},
        )


def _named_rules(changes: Iterable[Change]) -> set[RuleKey]:
    keys: set[RuleKey] = set()
    for change in changes:
        if isinstance(change, AssertRules):
            keys.update((rule.scope, rule.id) for rule in change.rules)
        elif isinstance(change, Declare):
            keys.update((each.scope, stored_declaration(each).id) for each in change.declarations)
        elif isinstance(change, RetractRule):
            keys.add((change.scope, change.id))
    return keys


def _written_scopes(changes: Iterable[Change]) -> set[str]:
    """Return the named scopes that changes write to."""
    scopes: set[str | None] = set()
    for change in changes:
        if isinstance(change, AssertFacts | AddEvidence | EndFacts | RestoreFacts):
            scopes.update(fact.scope for fact in change.facts)
        elif isinstance(change, AssertRows | EvictFacts | PurgeMemory):
            scopes.update(rows.scope for rows in change.rows)
        elif isinstance(change, AssertRules):
            scopes.update(rule.scope for rule in change.rules)
        elif isinstance(change, Declare):
            scopes.update(declared.scope for declared in change.declarations)
        elif isinstance(change, ForkScope | MergeScope):
            scopes.update((change.source, change.target))
        elif not isinstance(change, AddEpisodes | NoteAnswer | ChangeCatalog) and hasattr(
            change, "scope"
        ):
            scopes.add(change.scope)
    return {scope for scope in scopes if scope is not None}


def _rows_of(tenant: Tenant, names: Iterable[FactKey]) -> dict[FactKey, _Stored]:
    """Return those of the facts that are stored, also values that have ended."""
    stored: dict[FactKey, _Stored] = {}
    for name in names:
        if details := tuple(_details(tenant, name)):
            stored[name] = details
    return stored


def _details(tenant: Tenant, name: FactKey) -> Iterator[_Details]:
    scope, predicate, args, positive = name
    partition = tenant.partition(scope)
    stored = (
        None if partition is None else partition.get(RelationSchema(predicate, len(args), positive))
    )
    if stored is None:
        return
    symbols = array("I", [tenant.engine.find(arg) for arg in args])
    key = tuple(symbols)
    layers = [(each, stored.layers[each]) for each in stored.stacked.get(key, ())]
    for labels, layer in layers or [(stored.labels.get(key), stored)]:
        row = stored_row_of(tenant, layer, symbols, history=True)
        if row is not None:
            ids = layer.relation.locate(symbols, 1)
            priority = float(layer.relation.attributes(Attribute.PRIORITY, ids)[0])
            yield _Details(labels, row, priority)


def _in_force(later: Sequence[_Later], seq: int) -> list[_Later]:
    """Return the changes after `seq` that were not undone and did not undo one of the others."""
    cancelled: set[int] = set()
    in_force = []
    for each in reversed(later):
        if each.seq in cancelled:
            continue
        if each.undoes is not None and each.undoes > seq:
            cancelled.add(each.undoes)
        else:
            in_force.append(each)
    return in_force[::-1]


def _changed_rules(before: _Rules, after: _Rules) -> list[RuleKey]:
    """Return the rules and declarations that are not the same in two states."""
    (rules, declared), (rules_after, declared_after) = before, after
    return [
        key
        for key in {**rules, **rules_after, **declared, **declared_after}
        if rules.get(key) != rules_after.get(key) or declared.get(key) != declared_after.get(key)
    ]


def _rules(tenant: Tenant) -> _Rules:
    book = tenant.rules
    return (
        {(known.scope, known.id): _forms(book, known) for known in book.all()},
        {(known.scope, known.id): known.declaration for known in book.declarations()},
    )


def _forms(book: RuleBook, known: ParsedRule) -> _RuleForms:
    forms = [(labels, book.form(known, labels)) for labels in book.labels_of(known)]
    return tuple(sorted(forms, key=lambda each: each[1] != known))


def _inverse_rules(
    keys: Iterable[RuleKey],
    after: dict[RuleKey, _RuleForms],
    rules: dict[RuleKey, _RuleForms],
    declared: dict[RuleKey, Declaration],
) -> Iterator[Change]:
    labelled: dict[Labels, list[ParsedRule]] = {}
    for key in keys:
        scope, id = key
        if key in rules:
            if key in after:  # stored with other labels
                yield RetractRule(id, scope)
            for labels, form in rules[key]:
                labelled.setdefault(labels, []).append(form)
        elif key in declared:
            yield Declare((declared[key],))
        else:
            yield RetractRule(id, scope)
    for labels, forms in labelled.items():
        if labels:
            yield UseLabels(labels)
        yield AssertRules(tuple(forms))
    if any(labelled):
        yield UseLabels(NO_LABELS)


def _key(row: Row) -> FactKey:
    return row["scope"], row["predicate"], tuple(row["args"]), not row["negated"]


def _restored(row: Row) -> RestoredFact:
    spans = [evidence_from_json(span).to_json() for span in row.get("evidence", ())]
    standing = ConflictingFact(
        not row["negated"],
        row["createdAt"],
        row["validFrom"],
        row["validUntil"],
        row["confidence"],
        with_evidence(row["metadata"], spans),
    )
    return RestoredFact(row["scope"], row["predicate"], tuple(row["args"]), standing, row["ttl"])


def _conflict(
    change: LoggedChange,
    facts: Iterable[FactKey],
    rules: Iterable[RuleKey],
    scopes: Iterable[str],
) -> dict[str, Any]:
    """Return a later change as it is named in an error."""
    return {
        "commitSeq": change.seq,
        "at": change.at,
        "facts": sorted(print_atom(Atom(name, args, sign)) for _, name, args, sign in facts)[
            :CONFLICTS_LISTED
        ],
        "rules": sorted(id for _, id in rules),
        "scopes": sorted(scopes),
        **({"requestId": change.request} if change.request else {}),
        **({"transaction": change.transaction} if change.transaction else {}),
    }
