"""Conflict resolution of merges: a strategy decides, its decisions go into the log.

Strategies with a constant decision are not called. For others, the most frequent decision is logged
once as the default, and every different decision with its conflict.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from kbcore.branching.compare import pairs
from kbcore.errors import BudgetExceeded, Conflict, PluginFailed
from kbcore.plug.ports import ConflictingFact, Keep, MergeConflict, MergeStrategy, Resolution
from kbcore.reason.budget import Budget
from kbcore.state.changes import Decision, MergeScope
from kbcore.state.merging.differences import SIGNS, ScopeDifference, Validity, differences, standing
from kbcore.state.partition import PartitionKey, RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.diagnostics import counted
from kbtypes.results import Modified

MAX_LISTED = 1000
"""Maximum number of conflicts listed in a refusal; the count covers all."""

MAX_DECISIONS = 100_000
"""Maximum number of conflicts with a decision other than the most frequent one."""


@dataclass(slots=True)
class _Decided:
    conflicts: int = 0
    refused: list[Modified] = field(default_factory=list)
    keeps: Counter[Keep] = field(default_factory=Counter)
    decisions: list[tuple[str, tuple[str, ...], Decision]] = field(default_factory=list)


Stamp = tuple[tuple[PartitionKey, frozenset[tuple[RelationSchema, int]]] | None, ...]


def stamp(tenant: Tenant, *scopes: str | None) -> Stamp:
    """Return a value that stays equal until a fact in one of these scopes changes."""
    return tuple(
        None
        if partition is None
        else (
            partition.key,
            frozenset(
                (stored.schema, stored.version)
                for stored in partition.relations()
                if stored.version
            ),
        )
        for partition in map(tenant.partition, scopes)
    )


def refuse_conflicts(
    tenant: Tenant, source: str | None, target: str | None, at: int, budget: Budget
) -> None:
    """Raise Conflict with a list of conflicts if two scopes have any."""
    decided = _Decided()
    for difference in differences(
        tenant.partition(source),
        tenant.partition(target),
        Validity(at, future=True),
        budget.yield_now,
    ):
        decided.conflicts += difference.conflict_count()
        _refuse(tenant, difference, decided, budget)
    _raise_refused(decided, source, target)


def decide(
    tenant: Tenant,
    source: str | None,
    target: str | None,
    name: str,
    strategy: MergeStrategy,
    at: int,
    budget: Budget,
) -> MergeScope:
    """Let a strategy decide every conflict; the caller holds the read lock.

    Raises Conflict if the strategy refuses one, PluginFailed if it fails, BudgetExceeded if too
    many decisions differ from the most frequent one.
    """
    decided = _Decided()
    for difference in differences(
        tenant.partition(source),
        tenant.partition(target),
        Validity(at, future=True),
        budget.yield_now,
    ):
        keys = difference.conflicts()
        before = decided.keeps[Keep.REFUSE]
        for part in budget.slices(len(keys)):
            budget.check_time()
            for conflict in _conflicts(tenant, difference, keys[part.start : part.stop], at):
                _note(decided, conflict, resolution_of(name, strategy, conflict))
        decided.conflicts += len(keys)
        if decided.keeps[Keep.REFUSE] > before:
            _refuse(tenant, difference, decided, budget)
    if decided.keeps[Keep.REFUSE]:
        _raise_refused(decided, source, target)
    usual = max((Keep.SOURCE, Keep.TARGET, Keep.BOTH), key=lambda keep: decided.keeps[keep])
    others = tuple(decision for decision in decided.decisions if decision[2].keep is not usual)
    if len(others) > MAX_DECISIONS:
        message = (
            f"a merge may decide at most {MAX_DECISIONS} conflicts differently from the most"
            f" frequent decision; this merge decides {len(others)}"
        )
        raise BudgetExceeded(message, "mergeDecisions", MAX_DECISIONS)
    return MergeScope(source, target, at, usual, others)


def _note(decided: _Decided, conflict: MergeConflict, resolution: Resolution) -> None:
    decided.keeps[resolution.keep] += 1
    decision = Decision(resolution.keep, resolution.facts if resolution.keep is Keep.FACTS else ())
    decided.decisions.append((conflict.predicate, conflict.args, decision))


def constant_decision(name: str, strategy: MergeStrategy) -> Keep | None:
    """Return the decision that a strategy takes for every conflict, or None if it depends.

    Raises PluginFailed if the strategy declares an invalid decision.
    """
    decision = getattr(strategy, "always", Keep.FACTS)
    if decision is Keep.FACTS or not isinstance(decision, Keep | None):
        raise PluginFailed(
            f"strategy {name} has no valid attribute 'always': it must be the decision for every"
            " conflict, or None if the decision depends on the conflict"
        )
    return decision


def resolution_of(name: str, strategy: MergeStrategy, conflict: MergeConflict) -> Resolution:
    """Return the validated resolution of a strategy; raises PluginFailed."""
    atom_text = f"{conflict.predicate}({', '.join(conflict.args)})"
    try:
        resolution = strategy.resolve(conflict)
    except Exception as error:
        raise PluginFailed(
            f"strategy {name} failed at {atom_text}: {type(error).__name__}: {error}"
        ) from error
    problem = _problem_of(resolution)
    if problem:
        raise PluginFailed(
            f"strategy {name} returned {problem} at {atom_text}; nothing was changed"
        )
    return resolution


def _problem_of(resolution: object) -> str:
    """Return the problem of an invalid resolution, or an empty text."""
    if not isinstance(resolution, Resolution) or not isinstance(resolution.keep, Keep):
        return f"{type(resolution).__name__}, not a Resolution"
    if resolution.keep is not Keep.FACTS:
        return ""
    if not isinstance(resolution.facts, tuple) or not all(
        isinstance(fact, ConflictingFact) for fact in resolution.facts
    ):
        return "facts that are not a tuple of ConflictingFact"
    if len({fact.positive for fact in resolution.facts}) < len(resolution.facts):
        return "two facts of one sign"
    for fact in resolution.facts:
        times = (
            fact.created_at,
            fact.valid_from,
            0 if fact.valid_until is None else fact.valid_until,
        )
        if any(type(time) is not int or not 0 <= time < 1 << 62 for time in times):
            return "a fact with an invalid time"
        confidence = fact.confidence
        if confidence is not None and not (
            isinstance(confidence, (int, float)) and 0 <= confidence <= 1
        ):
            return "a fact with a confidence outside 0 to 1"
        if not _is_json(fact.metadata, 16) or not hasattr(fact.metadata, "keys"):
            return "a fact whose metadata is not JSON"
    return ""


def _is_json(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(
            isinstance(key, str) and _is_json(below, depth - 1) for key, below in value.items()
        )
    if isinstance(value, (list, tuple)):
        return depth > 0 and all(_is_json(below, depth - 1) for below in value)
    return (
        value is None
        or isinstance(value, (str, bool, float))
        or (isinstance(value, int) and abs(value) < 1 << 63)
    )


def _conflicts(
    tenant: Tenant, difference: ScopeDifference, keys: list[RowKey], at: int
) -> Iterator[MergeConflict]:
    """Yield the conflicts at the given arguments, in the form that strategies receive."""
    arity = difference.arity
    symbols = array("I", [symbol for key in keys for symbol in key])
    texts = tenant.engine.texts(symbols)
    sides = []
    for side in ("source", "target"):
        facts: dict[RowKey, list[ConflictingFact]] = {key: [] for key in keys}
        for sign in SIGNS:
            stored: StoredRelation | None = getattr(difference.signs[sign], side)
            if stored is None:
                continue
            all_ids = stored.relation.locate(symbols, len(keys))
            located = [(key, id) for key, id in zip(keys, all_ids, strict=True) if id != NO_ROW]
            stored_keys, ids = [key for key, _ in located], array("I", [id for _, id in located])
            for key, fact in zip(stored_keys, standing(stored, ids, stored_keys), strict=True):
                if fact.valid_until is None or fact.valid_until > at:
                    facts[key].append(fact)
        sides.append(facts)
    for index, key in enumerate(keys):
        args = tuple(texts[index * arity : (index + 1) * arity])
        yield MergeConflict(difference.predicate, args, tuple(sides[0][key]), tuple(sides[1][key]))


def _refuse(tenant: Tenant, difference: ScopeDifference, decided: _Decided, budget: Budget) -> None:
    decided.refused.extend(
        islice(pairs(tenant, difference, budget), MAX_LISTED - len(decided.refused))
    )


def _raise_refused(decided: _Decided, source: str | None, target: str | None) -> None:
    if not decided.conflicts:
        return
    names = ("the base" if scope is None else f"scope '{scope}'" for scope in (source, target))
    conflicts = counted(decided.conflicts, "conflict")
    raise Conflict(
        f"{' and '.join(names)} have {conflicts}; nothing was merged",
        {"count": decided.conflicts, "conflicts": [asdict(pair) for pair in decided.refused]},
    )
