"""What becomes of the conflicts of a merge: a strategy is asked, its decisions go into the log.

Most strategies always decide alike, and are not asked at all. Of others the decision that most conflicts have is written
once, and the rest with what they concern.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from kbcore.branching.compare import Modified, pairs
from kbcore.errors import BudgetExceeded, Conflict, PluginFailed
from kbcore.plug.ports import Keep, MergeConflict, MergeStrategy, Resolution, Standing
from kbcore.reason.budget import Budget
from kbcore.state.changes import Decision, MergeScope
from kbcore.state.merging.differences import SIGNS, Difference, Validity, differences, standing
from kbcore.state.partition import PartitionKey, RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import NO_ROW
from kbplanner.ir.schema import RelationSchema

LISTED = 1000
"""Conflicts that a refusal lists; it counts them all."""

MAX_DECISIONS = 100_000
"""Conflicts that a merge may decide in another way than most."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """How many facts came or changed, and how many conflicts were resolved; `timestamp` is the logged time."""

    merged: int
    conflicts: int
    strategy: str
    timestamp: int


@dataclass(slots=True)
class _Decided:
    conflicts: int = 0
    refused: list[Modified] = field(default_factory=list)
    keeps: Counter[Keep] = field(default_factory=Counter)
    decisions: list[tuple[str, tuple[str, ...], Decision]] = field(default_factory=list)


Stamp = tuple[tuple[PartitionKey, frozenset[tuple[RelationSchema, int]]] | None, ...]


def stamp(tenant: Tenant, *scopes: str | None) -> Stamp:
    """What is the same for as long as nothing in these scopes changes."""
    return tuple(
        None
        if found is None
        else (found.key, frozenset((stored.schema, stored.version) for stored in found.relations() if stored.version))
        for found in map(tenant.partition, scopes)
    )


def refuse_conflicts(tenant: Tenant, source: str | None, target: str | None, at: int, budget: Budget) -> None:
    """Raise Conflict, with a list, where two scopes do not agree on something."""
    found = _Decided()
    for one in differences(tenant.partition(source), tenant.partition(target), Validity(at, future=True)):
        found.conflicts += one.conflict_count()
        _refuse(tenant, one, found, budget)
    _raise_refused(found, source, target)


def decide(
    tenant: Tenant, source: str | None, target: str | None, name: str, strategy: MergeStrategy, at: int, budget: Budget
) -> MergeScope:
    """Ask a strategy about every conflict; the read lock is held.

    Raises Conflict where it refuses, PluginFailed where it fails, BudgetExceeded where it decides too many in other ways.
    """
    found = _Decided()
    for one in differences(tenant.partition(source), tenant.partition(target), Validity(at, future=True)):
        keys = one.conflicts()
        before = found.keeps[Keep.REFUSE]
        for part in budget.slices(len(keys)):
            budget.check_time()
            for conflict in _conflicts(tenant, one, keys[part.start : part.stop], at):
                _note(found, conflict, asked(name, strategy, conflict))
        found.conflicts += len(keys)
        if found.keeps[Keep.REFUSE] > before:
            _refuse(tenant, one, found, budget)
    if found.keeps[Keep.REFUSE]:
        _raise_refused(found, source, target)
    usual = max((Keep.SOURCE, Keep.TARGET, Keep.BOTH), key=lambda keep: found.keeps[keep])
    others = tuple(decision for decision in found.decisions if decision[2].keep is not usual)
    if len(others) > MAX_DECISIONS:
        said = f"a merge decides at most {MAX_DECISIONS} conflicts in another way than most, this one {len(others)}"
        raise BudgetExceeded(said, "mergeDecisions", MAX_DECISIONS)
    return MergeScope(source, target, at, usual, others)


def _note(found: _Decided, conflict: MergeConflict, resolution: Resolution) -> None:
    found.keeps[resolution.keep] += 1
    decision = Decision(resolution.keep, resolution.facts if resolution.keep is Keep.FACTS else ())
    found.decisions.append((conflict.predicate, conflict.args, decision))


def asked(name: str, strategy: MergeStrategy, conflict: MergeConflict) -> Resolution:
    """The resolution of a strategy, judged; raises PluginFailed."""
    place = f"{conflict.predicate}({', '.join(conflict.args)})"
    try:
        found = strategy.resolve(conflict)
    except Exception as error:
        raise PluginFailed(f"strategy {name} failed at {place}: {type(error).__name__}: {error}") from error
    wrong = _wrong(found)
    if wrong:
        raise PluginFailed(f"strategy {name} returned {wrong} at {place}; nothing was changed")
    return found


def _wrong(found: object) -> str:
    """What is wrong with a resolution; empty where nothing is."""
    if not isinstance(found, Resolution) or not isinstance(found.keep, Keep):
        return f"{type(found).__name__}, not a Resolution"
    if found.keep is not Keep.FACTS:
        return ""
    if not isinstance(found.facts, tuple) or not all(isinstance(fact, Standing) for fact in found.facts):
        return "facts that are not a tuple of Standing"
    if len({fact.positive for fact in found.facts}) < len(found.facts):
        return "two facts of one sign"
    for fact in found.facts:
        times = (fact.created_at, fact.valid_from, 0 if fact.valid_until is None else fact.valid_until)
        if any(type(time) is not int or not 0 <= time < 1 << 62 for time in times):
            return "a fact with a time that is none"
        sure = fact.confidence
        if sure is not None and not (isinstance(sure, (int, float)) and 0 <= sure <= 1):
            return "a fact with a confidence outside 0 to 1"
        if not _is_json(fact.metadata, 16) or not hasattr(fact.metadata, "keys"):
            return "a fact whose metadata is not JSON"
    return ""


def _is_json(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(key, str) and _is_json(below, depth - 1) for key, below in value.items())
    if isinstance(value, (list, tuple)):
        return depth > 0 and all(_is_json(below, depth - 1) for below in value)
    return value is None or isinstance(value, (str, bool, float)) or (isinstance(value, int) and abs(value) < 1 << 63)


def _conflicts(tenant: Tenant, found: Difference, keys: list[RowKey], at: int) -> Iterator[MergeConflict]:
    """Conflicts at some arguments as strategies see them."""
    arity = found.arity
    symbols = array("I", [symbol for key in keys for symbol in key])
    texts = tenant.engine.texts(symbols)
    sides = []
    for side in ("source", "target"):
        facts: dict[RowKey, list[Standing]] = {key: [] for key in keys}
        for sign in SIGNS:
            stored: StoredRelation | None = getattr(found.signs[sign], side)
            if stored is None:
                continue
            places = stored.relation.locate(symbols, len(keys))
            there = [(key, place) for key, place in zip(keys, places, strict=True) if place != NO_ROW]
            ids = array("I", [place for _, place in there])
            for key, fact in zip([k for k, _ in there], standing(stored, ids, [k for k, _ in there]), strict=True):
                if fact.valid_until is None or fact.valid_until > at:
                    facts[key].append(fact)
        sides.append(facts)
    for place, key in enumerate(keys):
        args = tuple(texts[place * arity : (place + 1) * arity])
        yield MergeConflict(found.predicate, args, tuple(sides[0][key]), tuple(sides[1][key]))


def _refuse(tenant: Tenant, one: Difference, found: _Decided, budget: Budget) -> None:
    found.refused.extend(islice(pairs(tenant, one, budget), LISTED - len(found.refused)))


def _raise_refused(found: _Decided, source: str | None, target: str | None) -> None:
    if not found.conflicts:
        return
    names = ("the base" if scope is None else f"scope '{scope}'" for scope in (source, target))
    raise Conflict(
        f"{' and '.join(names)} have {found.conflicts} conflict{'s' * (found.conflicts != 1)}; nothing was merged",
        {"count": found.conflicts, "conflicts": [asdict(pair) for pair in found.refused]},
    )
