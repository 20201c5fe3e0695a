"""Conflict strategies: decisions about facts whose opposite is stored, or that violate a
constraint.

A stored fact that loses ends when the winner begins to hold, and stays in the history. A new fact
that loses is discarded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, chain, zip_longest
from operator import itemgetter
from typing import Protocol

from kbcore.branching.merge import constant_decision, resolution_of
from kbcore.branching.places import (
    Keys,
    ScopePlace,
    claim_of,
    differing_in,
    opposite_place,
    places_of,
)
from kbcore.branching.preview import Name, Proposal, staged_for_writing
from kbcore.clock import Clock
from kbcore.context.proofs.violations import SCHEMA, Violation
from kbcore.errors import Conflict, InvalidInput, PluginFailed
from kbcore.plug.ports import ConflictingFact, Keep, MergeConflict, MergeStrategy
from kbcore.reason.budget import Budget
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    Change,
    Delta,
    EndedFact,
    EndFacts,
    Outdated,
)
from kbcore.state.facts import Fact, FactKey, FactRows, Row, conclusion
from kbcore.state.intervals import within
from kbcore.state.labelling import OUTWEIGHED
from kbcore.state.overlay import apply_to_overlay
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import FOREVER
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.values.comparison import is_equal
from kbplanner.pacing import YieldNow, in_parts, paced

KEEP_BOTH = "KEEP_BOTH"
"""The default strategy: a fact and its opposite are both stored."""

FACTS_PER_YIELD = 10
"""Facts whose rivals are asked for between two calls of `yield_now`: about a millisecond."""

COMPARED_PER_YIELD = 500
"""Facts compared, or looked up by their keys, between two such calls."""

RIVALS_PER_YIELD = 500
"""Facts of one request that are compared between two calls of `yield_now`: about a millisecond."""

ROWS_PER_YIELD = 200
"""Facts in bulk form whose arguments are compared between two such calls."""

Commit = Callable[[tuple[Change, ...], "Callable[[], None] | None"], Delta]
"""Function that commits changes if a check does not raise."""

Assertion = AssertFacts | AssertRows

_Place = tuple[Sequence[int], RelationSchema]
"""Columns in which stored facts of a schema have the arguments of a new fact."""

_Holding = tuple[int, tuple[str, ...], int | None]
"""A stored fact that holds now or later and takes a place of a new fact: the index of the new fact,
its own arguments, and when it began; None if only a look at its intervals tells."""

Reads = Callable[[], AbstractContextManager[tuple[Tenant, Budget]]]
"""Function that opens a read of the tenant."""


class Constraints(Protocol):
    """The declared constraints of a tenant."""

    def guarded(self, assertion: Assertion, commit: Commit, check: Callable[[], None]) -> Delta:
        """Commit facts if they violate no constraint and `check` does not raise.

        Raises Conflict for a violation that there was not before, and Outdated if the knowledge
        base changed in the meantime.
        """
        ...


@dataclass(frozen=True)
class StoredFacts:
    """Functions that a strategy asks about the stored facts.

    `keys` returns the declared keys of a scope. `intervals` returns a row for each interval of the
    facts that take a place in another way than a given one, or (None) of the fact itself, with the
    times in it from which the fact was stated again as `restated`. `has_relation` returns False if
    a scope has no fact of a schema. `holding` looks up many facts at once. `state` identifies what
    they read: as long as it is equal, they return the same.
    """

    keys: Callable[[str | None], Keys]
    intervals: Callable[[Fact, ScopePlace | None], list[Row]]
    has_relation: Callable[[str | None, RelationSchema], bool]
    holding: Callable[[FactRows, Sequence[_Place], int], list[list[_Holding]]]
    state: Callable[[], object]


class ConflictResolver:
    """Writer of facts that applies one conflict strategy to those that have rivals.

    A strategy that refuses every opposite, such as REJECT, also refuses facts that violate
    `constraints`. Raises InvalidInput that lists the strategies if the name is unknown. `yield_now`
    is called about once a millisecond.
    """

    def __init__(
        self,
        name: str,
        strategies: Mapping[str, MergeStrategy],
        stored: StoredFacts,
        constraints: Constraints,
        clock: Clock,
        yield_now: YieldNow,
    ) -> None:
        strategy = strategies.get(name)
        if strategy is None:
            raise InvalidInput.at(
                "conflictStrategy", f"must be one of {', '.join(sorted(strategies))}"
            )
        self._name = name
        self._strategy = strategy
        self._constant = constant_decision(name, strategy)
        self._stored = stored
        self._constraints = constraints
        self._clock = clock
        self._yield_now = yield_now

    def write(self, facts: Sequence[Fact], commit: Commit) -> Delta:
        """Commit the facts as the strategy decides.

        The log holds the outcome. The outcome is computed again if the opposites change before the
        write. Raises Conflict if the strategy refuses a fact.
        """
        return self._write(AssertFacts(tuple(facts)), commit)

    def write_rows(self, rows: Sequence[FactRows], commit: Commit) -> Delta:
        """Commit facts in bulk form as `write` does."""
        return self._write(AssertRows(tuple(rows)), commit)

    def _write(self, assertion: Assertion, commit: Commit) -> Delta:
        if self._constant in (Keep.BOTH, Keep.REFUSE):
            return self._write_all(assertion, commit)
        while True:
            now = self._clock.now_ms()
            try:
                before = self._stored.state()
                changes = self._resolve(assertion, now)
                check = partial(self._check_current, before, assertion, changes, now)
                return commit(changes, check)
            except Outdated:
                continue

    def _write_all(self, assertion: Assertion, commit: Commit) -> Delta:
        """Commit facts, all or none: the strategy keeps both facts, or refuses the new one."""
        if self._constant is Keep.BOTH:
            return commit((assertion,), None)
        while True:
            check = partial(self._refuse_opposites, assertion, self._clock.now_ms())
            try:
                return self._constraints.guarded(assertion, commit, check)
            except Outdated:
                continue

    def _resolve(self, assertion: Assertion, now: int) -> tuple[Change, ...]:
        """Return the changes that the strategy decides on.

        Every value holds from its beginning to that of the next newer value of its claim, in
        any order of arrival.
        """
        together = self._settled_together(assertion, now)
        if not (together.left or together.begun):
            ends = together.all_ends()
            return (EndFacts(ends), assertion) if ends else (assertion,)
        if isinstance(assertion, AssertFacts):
            facts: Sequence[Fact] = assertion.facts
        else:
            parts = chain.from_iterable(
                rows.in_parts(self._yield_now, ROWS_PER_YIELD) for rows in assertion.rows
            )
            facts = [fact for part in parts for fact in part.facts()]
        ends_by_number = together.ends_by_number()
        winners = _Winners()
        ended = _StoredEnds(now)
        discarded = 0
        keys_of = cache(self._stored.keys)
        has_relation = cache(self._stored.has_relation)

        def intervals(fact: Fact, claim: ScopePlace | None) -> list[Row]:
            sign = fact.positive if claim is None else claim.sign_of_rivals(fact)
            schema = RelationSchema(fact.predicate, len(fact.args), sign)
            if not has_relation(fact.scope, schema):
                return []
            return self._stored.intervals(fact, claim)

        for number, fact in enumerate(paced(facts, self._yield_now, FACTS_PER_YIELD)):
            if number not in together.left:
                for each in ends_by_number.get(number, ()):
                    ended.put(each)
                start = together.begun.get(number)
                winners.add(fact if start is None else _stated_again(fact, start, now), ())
                continue
            places = list(places_of(fact, keys_of(fact.scope)))
            stored = [
                row
                for claim in places
                for interval in intervals(fact, claim)
                for left in ended.left(interval)
                for row in _statements(left)
            ]
            new_rivals = winners.rivals(fact, places, self._yield_now)
            rivals = [
                (number, row)
                for number, other in new_rivals
                for row in _statements(_row(other, _new_standing(other, now)))
            ]
            alike = winners.alike(fact, places[0])
            own = [left for interval in intervals(fact, None) for left in ended.left(interval)]
            own += [_row(other, _new_standing(other, now)) for _, other in alike]
            rows = [*stored, *(row for _, row in rivals)]
            settled = self._settled(fact, rows, own, now)
            if settled is None:
                discarded += 1
                continue
            new, beaten = settled
            start = _start(fact, now)
            for index in beaten:
                if index < len(stored):
                    ended.add(rows[index], fact.valid_from)
                else:
                    discarded += winners.end(rivals[index - len(stored)][0], start, now)
            restated = {*new.restated}
            for _, other in alike:
                restated.update((_start(other, now), *other.restated))
            times = within(restated, _start(new, now), _until(new))
            new = replace(new, restated=tuple(times))
            standing = _new_standing(new, now)
            for number, other in alike:
                if _meet(standing, _new_standing(other, now)):
                    winners.remove(number)
            winners.add(new, places)
        ends = ended.facts()
        winning = paced(winners.entries(), self._yield_now, FACTS_PER_YIELD)
        stored_facts = AssertFacts(
            tuple(
                self._with_new_times(each, ended) if places else each for each, places in winning
            ),
            discarded,
        )
        return (EndFacts(ends), stored_facts) if ends else (stored_facts,)

    def _settled_together(self, assertion: Assertion, now: int) -> _Together:
        """Decide about the facts of a request that have no times and share no place with another.

        What holds now of their rivals ends now, if the strategy always prefers the new fact. The
        others are left, as are those with a rival that begins later or has labels.
        """
        together = _Together()
        groups = _groups(assertion, together.left, self._yield_now)
        for numbers, rows in groups:
            keys = self._stored.keys(rows.scope).get((rows.predicate, rows.arity), ())
            claims = [(claim_of(rule), differing_in(rule)) for rule in keys if rows.positive]
            if not all(columns for columns, _ in claims):
                together.left.update(numbers)
                continue
            whole = tuple(range(rows.arity))
            for columns in {whole, *(columns or () for columns, _ in claims)}:
                shared = self._sharing(rows, columns)
                together.left.update(numbers[index] for index in shared)
            places: list[_Place] = [(whole, rows.schema), (whole, rows.schema.opposite)]
            places += [(columns or (), rows.schema) for columns, _ in claims]
            compared = [None, *(column for _, column in claims)]
            first = 0
            for part in rows.in_parts(self._yield_now, ROWS_PER_YIELD):
                own, *rivals = self._stored.holding(part, places, now)
                part_numbers = numbers[first : first + len(part)]
                first += len(part)
                for index, _, start in own:
                    if start is None:
                        together.left.add(part_numbers[index])
                    else:
                        together.begun[part_numbers[index]] = start
                for column, holding in zip(compared, rivals, strict=True):
                    self._end_rivals(part, part_numbers, column, holding, together)
        return together

    def _end_rivals(
        self,
        rows: FactRows,
        numbers: Sequence[int],
        column: int | None,
        holding: Iterable[_Holding],
        together: _Together,
    ) -> None:
        """End the stored facts at a place of new facts that differ from them in a column; None for
        those of the other sign.
        """
        predicate, scope, args, arity = rows.predicate, rows.scope, rows.args, rows.arity
        positive = rows.positive if column is not None else not rows.positive
        is_preferred = self._constant is Keep.SOURCE
        for index, other, start in holding:
            if start is None:
                together.left.add(numbers[index])
            elif column is None or not is_equal(args[index * arity + column], other[column]):
                if is_preferred:
                    ended = EndedFact(predicate, other, positive, scope)
                    together.ends.append((numbers[index], ended))
                else:
                    together.left.add(numbers[index])

    def _sharing(self, rows: FactRows, columns: Sequence[int]) -> Iterable[int]:
        """Return the indexes of the facts that have the same arguments in some columns as another
        of them.
        """
        first: dict[tuple[str, ...], int] = {}
        shared: set[int] = set()
        index = 0
        for part in rows.in_parts(self._yield_now, ROWS_PER_YIELD):
            chosen = (part.args[column :: rows.arity] for column in columns)
            for values in zip(*chosen, strict=True):
                other = first.setdefault(values, index)
                if other != index:
                    shared.update((other, index))
                index += 1
        return shared

    def _settled(
        self, fact: Fact, rivals: Sequence[Row], own: Sequence[Row], now: int
    ) -> tuple[Fact, list[int]] | None:
        """Return a fact with the interval in which it is stored, and the numbers of the rivals
        that end when it begins; None if the fact is discarded. A rival that not all its readers may
        see ends or stays, but changes nothing of the fact.

        `rivals` has an entry for each statement of a rival, `own` for each interval of the fact
        itself.
        """
        new, beaten, bound = _new_standing(fact, now), [], None
        for number, row in enumerate(rivals):
            old = _stored_standing(row)
            decision = self._decide(fact, new, old, row) if _meet(new, old) else Keep.BOTH
            if decision is Keep.BOTH:
                continue
            is_outweighed = OUTWEIGHED in row
            if is_outweighed and (old.valid_from > new.valid_from or decision is Keep.TARGET):
                continue
            if old.valid_from > new.valid_from:
                bound = old.valid_from if bound is None else min(bound, old.valid_from)
            elif decision is Keep.TARGET:
                return None
            else:
                beaten.append(number)
        until = fact.valid_until if bound is None else min(bound, fact.valid_until or bound)
        running = [
            row
            for row in own
            if row["validFrom"] <= new.valid_from
            and (row["validUntil"] is None or new.valid_from < row["validUntil"])
        ]
        # A value that is stated again keeps its beginning, and what comes later in the request may
        # end it up to any of its statements.
        begin, restated = fact.valid_from, fact.restated
        if running and fact.ttl is None:
            begin = min(row["validFrom"] for row in running)
            known = (time for row in running for time in (row["validFrom"], *row["restated"]))
            restated = (*restated, new.valid_from, *known)
        late = until is not None and any(row["validFrom"] >= until for row in own)
        if late and begin is None:
            begin = new.valid_from
        new_fact = replace(fact, valid_from=begin, valid_until=until, late=late, restated=restated)
        return new_fact, beaten

    def _with_new_times(self, fact: Fact, ended: _StoredEnds) -> Fact:
        """Return a fact without the times that what is left of its stored intervals has."""
        if not fact.restated:
            return fact
        stored = (
            time
            for interval in self._stored.intervals(fact, None)
            for left in ended.left(interval)
            for time in left["restated"]
        )
        known = set(stored)
        return replace(fact, restated=tuple(time for time in fact.restated if time not in known))

    def _decide(self, fact: Fact, new: ConflictingFact, old: ConflictingFact, row: Row) -> Keep:
        """Return the decision about a fact and a rival, whose row is `row`."""
        if self._constant is not None:
            return self._constant
        conflict = MergeConflict(fact.predicate, fact.args, (new,), (old,))
        decision = resolution_of(self._name, self._strategy, conflict).keep
        if decision is Keep.REFUSE and OUTWEIGHED in row:
            return Keep.BOTH
        if decision is Keep.REFUSE:
            raise _contradiction(row)
        if decision is Keep.FACTS:
            raise PluginFailed(
                f"strategy {self._name} returned facts for a new fact; it must choose one of the"
                " two facts"
            )
        return decision

    def _check_current(
        self, before: object, assertion: Assertion, changes: tuple[Change, ...], now: int
    ) -> None:
        if self._stored.state() == before:
            return
        resolved = self._resolve(assertion, now)
        pairs = paced(
            zip_longest(_parts(resolved), _parts(changes)), self._yield_now, COMPARED_PER_YIELD
        )
        if any(first != second for first, second in pairs):
            raise Outdated("the rivals have changed")

    def _refuse_opposites(self, assertion: Assertion, now: int) -> None:
        """Raise Conflict for a fact whose opposite is valid."""
        has_opposites = {
            (scope, schema)
            for scope, schema in _written(assertion, self._yield_now)
            if self._stored.has_relation(scope, schema.opposite)
        }
        if not has_opposites:
            return
        if isinstance(assertion, AssertFacts):
            facts: Iterable[Fact] = assertion.facts
        else:
            groups = [each for each in assertion.rows if (each.scope, each.schema) in has_opposites]
            facts = (group.fact(index) for group in groups for index in range(len(group)))
        for fact in paced(facts, self._yield_now, FACTS_PER_YIELD):
            for interval in self._stored.intervals(fact, opposite_place(fact)):
                until = interval["validUntil"]
                if OUTWEIGHED in interval:
                    continue
                if interval["validFrom"] <= now and (until is None or now < until):
                    raise _contradiction(interval)


def _written(assertion: Assertion, yield_now: YieldNow) -> set[Name]:
    """Return the relations that facts are in."""
    if isinstance(assertion, AssertRows):
        return {(group.scope, group.schema) for group in assertion.rows if len(group)}
    names = {
        (fact.scope, fact.predicate, len(fact.args), fact.positive)
        for part in in_parts(assertion.facts, yield_now, COMPARED_PER_YIELD)
        for fact in part
    }
    return {
        (scope, RelationSchema(predicate, arity, positive))
        for scope, predicate, arity, positive in names
    }


def _parts(changes: Sequence[Change]) -> Iterator[object]:
    """Yield the facts of changes one by one, and what else they have."""
    for change in changes:
        if isinstance(change, AssertFacts):
            yield change.discarded
            yield from change.facts
        elif isinstance(change, EndFacts):
            yield from change.facts
        else:
            yield change


def _groups(
    assertion: Assertion, left: set[int], yield_now: YieldNow
) -> list[tuple[Sequence[int], FactRows]]:
    """Return the facts of each relation in bulk form, with their numbers, where none of them has
    times and the request has no other facts of the predicate; add the numbers of the others to
    `left`.
    """
    if isinstance(assertion, AssertRows):
        starts = accumulate(map(len, assertion.rows), initial=0)
        groups: list[tuple[Sequence[int], FactRows]] = [
            (range(start, start + len(rows)), rows)
            for start, rows in zip(starts, assertion.rows, strict=False)
        ]
        timed = set[tuple[str | None, str, int]]()
    else:
        groups, timed = _grouped(assertion.facts, yield_now)
    names = Counter((rows.scope, rows.predicate, rows.arity) for _, rows in groups)
    together: list[tuple[Sequence[int], FactRows]] = []
    for numbers, rows in groups:
        name = rows.scope, rows.predicate, rows.arity
        if rows.arity and names[name] == 1 and name not in timed:
            together.append((numbers, rows))
        else:
            left.update(numbers)
    return together


def _grouped(
    facts: Sequence[Fact], yield_now: YieldNow
) -> tuple[list[tuple[Sequence[int], FactRows]], set[tuple[str | None, str, int]]]:
    """Return the facts of each relation in bulk form, with their numbers, and the names of those
    relations of which any fact has times.
    """
    numbers: dict[tuple[str | None, str, int, bool], list[int]] = {}
    timed: set[tuple[str | None, str, int]] = set()
    for number, fact in enumerate(paced(facts, yield_now, COMPARED_PER_YIELD)):
        name = fact.scope, fact.predicate, len(fact.args)
        numbers.setdefault((*name, fact.positive), []).append(number)
        if fact.ttl is not None or fact.valid_from is not None or fact.valid_until is not None:
            timed.add(name)
    if len(facts) == 1:  # looked up faster by itself
        timed.add((facts[0].scope, facts[0].predicate, len(facts[0].args)))
    groups: list[tuple[Sequence[int], FactRows]] = []
    for (scope, predicate, arity, positive), own in numbers.items():
        args: list[str] = []
        for part in in_parts(own, yield_now, COMPARED_PER_YIELD):
            args.extend(chain.from_iterable(facts[number].args for number in part))
        groups.append((own, FactRows(predicate, arity, args, positive, scope)))
    return groups, timed


def _stated_again(fact: Fact, start: int, now: int) -> Fact:
    """Return a fact without times that holds since `start`, as it is asserted again at `now`."""
    return replace(fact, valid_from=start, restated=(now,) if start < now else ())


def _start(fact: Fact, now: int) -> int:
    return now if fact.valid_from is None else fact.valid_from


def _until(fact: Fact) -> int:
    return FOREVER if fact.valid_until is None else fact.valid_until


def _cut(interval: Row, at: int) -> Iterator[Row]:
    """Yield what is left of an interval when another value begins at a time."""
    start, end = interval["validFrom"], interval["validUntil"]
    if not (start <= at and (end is None or at < end)):
        yield interval
        return
    if start < at:
        yield {**interval, "validUntil": at, "restated": within(interval["restated"], start, at)}
    again = [time for time in interval["restated"] if time > at]
    if again:
        yield {**interval, "validFrom": again[0], "restated": again[1:]}


def _statements(interval: Row) -> Iterator[Row]:
    """Yield a row for each statement of an interval, which holds up to the next one."""
    starts = [interval["validFrom"], *interval["restated"]]
    for start, end in zip_longest(starts, starts[1:], fillvalue=interval["validUntil"]):
        row = {**interval, "validFrom": start, "validUntil": end}
        del row["restated"]
        yield row


def _meet(first: ConflictingFact, second: ConflictingFact) -> bool:
    """Return True if two facts are valid at the same time at some point."""
    return all(
        a.valid_until is None or b.valid_from < a.valid_until
        for a, b in ((first, second), (second, first))
    )


def _row(fact: Fact, standing: ConflictingFact) -> Row:
    """Return a fact of the same request in its external form."""
    return {
        **conclusion(fact.predicate, fact.positive, list(fact.args), fact.scope),
        "metadata": dict(fact.metadata),
        "createdAt": standing.created_at,
        "validFrom": standing.valid_from,
        "validUntil": standing.valid_until,
        "ttl": fact.ttl,
        "confidence": fact.confidence,
        "restated": fact.restated,
    }


def _new_standing(fact: Fact, now: int) -> ConflictingFact:
    start = _start(fact, now)
    ends = [fact.valid_until, None if fact.ttl is None else now + fact.ttl]
    until = min((end for end in ends if end is not None), default=None)
    return ConflictingFact(fact.positive, now, start, until, fact.confidence, dict(fact.metadata))


def _stored_standing(row: Row) -> ConflictingFact:
    return ConflictingFact(
        not row["negated"],
        row["createdAt"],
        row["validFrom"],
        row["validUntil"],
        row["confidence"],
        dict(row["metadata"]),
    )


def _contradiction(row: Row) -> Conflict:
    contents = {name: value for name, value in row.items() if name != "restated"}
    return Conflict(
        "the opposite of a fact is stored", {"reason": "contradiction", "fact": contents}
    )


class _Together:
    """The outcome for those facts of a request that are decided about together, by their numbers.

    `left` are all other facts. `ends` are the ends of stored facts, in order within a relation.
    `begun` has the beginnings of the facts that hold already.
    """

    def __init__(self) -> None:
        self.left: set[int] = set()
        self.begun: dict[int, int] = {}
        self.ends: list[tuple[int, EndedFact]] = []

    def all_ends(self) -> tuple[EndedFact, ...]:
        """Return the ends in order of the new facts, each once."""
        self.ends.sort(key=itemgetter(0))  # those of one fact stay in the order of its places
        return tuple({each.key: each for _, each in self.ends}.values())

    def ends_by_number(self) -> dict[int, list[EndedFact]]:
        """Return the ends by the numbers of the new facts."""
        ends: dict[int, list[EndedFact]] = {}
        for number, each in self.ends:
            ends.setdefault(number, []).append(each)
        return ends


class _StoredEnds:
    """The ends that a request gives to stored facts."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._facts: dict[FactKey, dict[int, EndedFact]] = {}

    def add(self, row: Row, until: int | None) -> None:
        """Add an end (None: now) of the fact of a row."""
        name = row["predicate"], tuple(row["args"]), not row["negated"], row["scope"]
        self.put(EndedFact(*name, until))

    def put(self, fact: EndedFact) -> None:
        """Add the end of a fact."""
        at = self._now if fact.until is None else fact.until
        self._facts.setdefault(fact.key, {}).setdefault(at, fact)

    def left(self, interval: Row) -> Iterable[Row]:
        """Return what these ends leave of the interval of a stored fact."""
        key = (
            interval["scope"],
            interval["predicate"],
            tuple(interval["args"]),
            not interval["negated"],
        )
        parts = [interval]
        for at in self._facts.get(key, ()):
            parts = [left for part in parts for left in _cut(part, at)]
        return parts

    def facts(self) -> tuple[EndedFact, ...]:
        """Return the ended facts."""
        return tuple(fact for ends in self._facts.values() for fact in ends.values())


class _Winners:
    """The facts of a request that a strategy has kept so far, in order, by their places."""

    def __init__(self) -> None:
        self._facts: dict[int, Fact] = {}
        self._places: dict[int, Sequence[ScopePlace]] = {}
        self._at: dict[ScopePlace, dict[int, None]] = {}
        self._count = 0

    def entries(self) -> Iterable[tuple[Fact, Sequence[ScopePlace]]]:
        """Return the facts, each with its places."""
        return zip(self._facts.values(), self._places.values(), strict=True)

    def rivals(
        self, fact: Fact, places: Sequence[ScopePlace], yield_now: YieldNow
    ) -> list[tuple[int, Fact]]:
        """Return the rivals of a fact that takes some places, each with its number, in order."""
        numbers = set()
        for scope_place in places:
            for number in paced(self._at.get(scope_place, ()), yield_now, RIVALS_PER_YIELD):
                other = self._facts[number]
                if scope_place.are_rivals(fact, other.args, other.positive):
                    numbers.add(number)
        return [(number, self._facts[number]) for number in sorted(numbers)]

    def alike(self, fact: Fact, scope_place: ScopePlace) -> list[tuple[int, Fact]]:
        """Return the entries of the same fact; `scope_place` is that of its opposite."""
        entries = ((number, self._facts[number]) for number in self._at.get(scope_place, ()))
        return [(number, other) for number, other in entries if other.key == fact.key]

    def add(self, fact: Fact, places: Sequence[ScopePlace]) -> None:
        """Add a fact that takes some places."""
        number, self._count = self._count, self._count + 1
        self._facts[number], self._places[number] = fact, places
        for scope_place in places:
            self._at.setdefault(scope_place, {})[number] = None

    def end(self, number: int, at: int, now: int) -> int:
        """End a fact when another value begins at a time in it; return 1 if nothing is left of its
        first statement, else 0.
        """
        fact, places = self._facts[number], self._places[number]
        start = _start(fact, now)
        if start < at:
            times = tuple(within(fact.restated, start, at))
            is_late = fact.valid_from is not None
            ended = replace(fact, valid_until=at, late=is_late, restated=times)
            self._facts[number] = ended
        else:
            self.remove(number)
        again = tuple(time for time in fact.restated if time > at)
        if again:
            # The rest is asserted after later intervals of the value, which it must not replace.
            is_late = fact.late or fact.valid_until is not None
            rest = replace(fact, valid_from=again[0], late=is_late, restated=again[1:])
            self.add(rest, places)
        return int(start >= at)

    def remove(self, number: int) -> None:
        """Remove a fact."""
        del self._facts[number]
        for scope_place in self._places.pop(number):
            self._at[scope_place].pop(number, None)


class StoredConstraints:
    """The constraints of the stored facts: they are evaluated with the new facts before the commit.

    `reads` opens the state that they are evaluated in, and `tenant` returns the whole tenant. A
    constraint that depends on an external predicate refuses nothing: its rows cannot be fetched
    for facts that are not stored.
    """

    def __init__(
        self,
        reads: Reads,
        tenant: Callable[[], Tenant],
        clock: Clock,
        external: ExternalPredicates | None,
    ) -> None:
        self._reads = reads
        self._tenant = tenant
        self._clock = clock
        self._external = external

    def guarded(self, assertion: Assertion, commit: Commit, check: Callable[[], None]) -> Delta:
        """Implement `Constraints.guarded`; raises BudgetExceeded too."""
        before = self._tenant().generation
        with self._reads() as (_, budget):
            written = _written(assertion, budget.yield_now)
        self._check(assertion, written)

        def checked() -> None:
            check()
            # A write since then may have declared a constraint, or made a violation of the facts.
            if self._tenant().generation != before and self._are_declared(written):
                raise Outdated("the knowledge base has changed")

        return commit((assertion,), checked)

    def _are_declared(self, written: Iterable[Name]) -> bool:
        """Return True if a constraint is valid in a scope of some relations."""
        tenant = self._tenant()
        with tenant.lock.read():
            scopes = {scope for scope, _ in written}
            return any(SCHEMA in tenant.rules.visible(scope).derived for scope in scopes)

    def _check(self, assertion: Assertion, written: set[Name]) -> None:
        """Raise Conflict if facts violate a constraint; `written` are the relations they are in."""
        if not self._are_declared(written):
            return
        with self._reads() as (tenant, budget):
            now = tenant.at(self._clock.now_ms())
            with staged_for_writing(
                tenant, Proposal(), written, now, budget, self._external
            ) as stage:
                apply_to_overlay(stage.overlay, (assertion,), now, budget.yield_now)
                for scope, args in stage.new_conclusions(SCHEMA, budget):
                    raise violated(Violation(scope, *args))


class StagedConstraints:
    """The constraints of a transaction: they are evaluated before and after the facts are staged,
    and an error rolls the transaction back.
    """

    def __init__(self, violations: Callable[[], list[Violation]]) -> None:
        self._violations = violations

    def guarded(self, assertion: Assertion, commit: Commit, check: Callable[[], None]) -> Delta:
        """Implement `Constraints.guarded`; raises BudgetExceeded too."""
        before = set(self._violations())
        delta = commit((assertion,), check)
        for each in self._violations():
            if each not in before:
                raise violated(each)
        return delta


def violated(violation: Violation) -> Conflict:
    """Return the error for facts that violate a constraint."""
    return Conflict(
        f"the facts violate a declared constraint: {violation.text}",
        {
            "reason": "constraint",
            "kind": violation.kind,
            "first": violation.first,
            "second": violation.second,
        },
    )
