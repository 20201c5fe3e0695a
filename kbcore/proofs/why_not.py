"""Explanations of goals that do not hold: how far each rule gets, and its first missing premise.

The premises of a rule are taken in the order of its text; comparisons and negated literals wait
until their variables have values. For each rule whose head unifies with the goal, the engine
evaluates longer and longer prefixes of the premises. The answers of the last prefix that has any
are the instances that get farthest, and the next premise is false in all of them: an instance in
which it was true would be an answer of the longer prefix. This is the "first failure" explanation
of why-not provenance (Herschel, Diestelkämper and Ben Lahmar, A survey on provenance, VLDB Journal
26, 2017, section 3.2), computed by the engine that answers the goal.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kbcore.errors import BudgetExceeded, EngineFault
from kbcore.proofs.candidates import FALSE, TRUE, UNDEFINED, WhyNot, WhyNotCandidate
from kbcore.reason.annotate import Answers
from kbcore.reason.ask import GOAL, Reasoner, body_variables, terms_of
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.reason.predicates import unknown_predicates
from kbcore.reason.stored_facts import StoredPattern, matching
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.rulebook import stored_rule
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.evaluate import goal_pattern
from kbplanner.ir.conditions import generator_of
from kbplanner.ir.limits import MAX_COLUMNS
from kbplanner.ir.modes import Modes, permitted
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Extremum,
    Literal,
    Rule,
    Term,
    Variable,
    extremum_of,
)
from kbplanner.ir.unify import Substitution, substituted, unify
from kbplanner.ir.values.comparison import kept
from kbplanner.passes.check import bound_variables, counterpart
from kbplanner.syntax.printer import print_item, print_term

DEFAULT_CANDIDATES, MAX_CANDIDATES = 5, 100
"""Candidates of an explanation: as many as are returned if a request names no limit, and at
most.
"""

MAX_DEPTH = 10
"""Maximum number of missing premises that are followed below one another."""

MAX_RULES = 200
"""Rules of a goal that are examined in one partition; the others make the result truncated."""

NEAR_FACTS = 5
"""Maximum number of stored facts that differ from the goal in one argument."""

BLOCKING_ROWS = 1000
"""Rows of a negated atom that are searched for one whose explicit negative does not hold."""

_UNCOUNTED = GoalOptions(counts_accesses=False)


@dataclass(frozen=True, slots=True)
class WhyNotOptions:
    """Options of a search: the point in time, and the numbers of candidates and of levels."""

    as_of: int | None = None
    limit: int = DEFAULT_CANDIDATES
    depth: int = 1


@dataclass(frozen=True, slots=True)
class _Premises:
    """The premises of a rule in the order of evaluation, with the values from the goal filled in.

    `values` are these values. `goal` is the atom that the head has to conclude, None for a goal of
    several literals, which has no rule.
    """

    rule: Rule | None
    goal: Atom | None
    items: tuple[BodyItem, ...]
    values: Substitution

    def prefix(self, number: int, length: int) -> Rule:
        """Return a rule that lists the bindings of the first premises."""
        items = self.items[:length]
        return Rule(Atom(f"{GOAL}{number}.{length}", tuple(body_variables(items))), items)


@dataclass(frozen=True, slots=True)
class _Reached:
    """The instances of a rule that get farthest: the first `length` premises hold in all of them.

    `values` has the values of the variables of these premises for each instance.
    """

    premises: _Premises
    partition: Partition
    length: int
    values: Sequence[Substitution] = field(default=({},))


class WhyNotSearch:
    """Search for the candidates of a goal; the caller holds the tenant's read lock.

    `truncated` becomes True when the budget ends the search.
    """

    def __init__(self, reasoner: Reasoner, budget: Budget, options: WhyNotOptions) -> None:
        self._reasoner = reasoner
        self._budget = budget
        self._limit = options.limit
        self._depth = options.depth
        self._options = _UNCOUNTED._replace(as_of=options.as_of)
        self.truncated = False

    def rules(
        self, partitions: Sequence[Partition], atom: Atom, limit: int, depth: int
    ) -> tuple[WhyNotCandidate, ...]:
        """Return the nearest instances of the rules that could conclude an atom without answers."""
        groups: list[list[_Reached]] = []
        for number, partition in enumerate(partitions):
            rules = self._reasoner.tenant.rules.visible(partition.name).rules
            unified = ((rule, unify(rule.head, atom)) for rule in rules)
            matching_rules = [(rule, values) for rule, values in unified if values is not None]
            self.truncated |= len(matching_rules) > MAX_RULES
            modes = self._reasoner.modes(partition)
            premises = [
                _Premises(rule, atom, _ordered(rule.body, values, modes), values)
                for rule, values in matching_rules[:MAX_RULES]
            ]
            groups.append(self._reached(partition, premises, len(partitions) - number, limit))
        return self._candidates(groups, limit, depth)

    def literal(
        self, partitions: Sequence[Partition], literal: Literal, *, undefined: bool
    ) -> WhyNot:
        """Return the explanation of a literal without answers, which may be undefined."""
        truth = UNDEFINED if undefined else FALSE
        result = WhyNot(print_item(literal), truth)
        negated, atom = literal.negated and literal.atom.ground, literal.atom
        if literal.negated and not negated:
            atom = counterpart(literal)
        if not negated:
            result = replace(
                result, candidates=self.rules(partitions, atom, self._limit, self._depth)
            )
        try:
            if negated:
                return replace(result, candidates=tuple(self._negated(partitions, literal)))
            if atom.ground:
                opposite = Atom(atom.predicate, atom.args, not atom.positive)
                if any(self.holds(partition, opposite) for partition in partitions):
                    result = replace(result, denied_by=opposite)
            near = (fact for partition in partitions for fact in self.near_facts(partition, atom))
            result = replace(result, near_facts=tuple(islice(dict.fromkeys(near), NEAR_FACTS)))
        except BudgetExceeded:
            self.truncated = True
        return result

    def several(self, partitions: Sequence[Partition], body: Sequence[BodyItem]) -> WhyNot:
        """Return the explanation of a goal of several literals, which may hold."""
        goal = ", ".join(map(print_item, body))
        modes = self._reasoner.modes(partitions[0])
        premises = _Premises(None, None, _ordered(body, {}, modes), {})
        groups = [
            self._reached(partition, [premises], len(partitions) - number, self._limit)
            for number, partition in enumerate(partitions)
        ]
        if any(reached.length == len(body) for group in groups for reached in group):
            return WhyNot(goal, TRUE)
        candidates = self._candidates(groups, self._limit, self._depth)
        try:
            undefined = any(self._possible(partition, premises) for partition in partitions)
        except BudgetExceeded:
            self.truncated, undefined = True, False
        return WhyNot(goal, UNDEFINED if undefined else FALSE, candidates)

    def completed(self, result: WhyNot, body: Sequence[BodyItem], scope: str | None) -> WhyNot:
        """Return a result with the unknown predicates, and with what became of the budget."""
        items = list(body)
        candidates = list(result.candidates)
        while candidates:
            candidate = candidates.pop()
            items.append(candidate.missing)
            if candidate.because is not None:
                candidates.append(candidate.because)
        atoms = [item.atom for item in items if isinstance(item, Literal)]
        external = self._reasoner.external
        unknown = unknown_predicates(
            self._reasoner.tenant,
            ((atom.predicate, atom.arity) for atom in atoms),
            scope,
            () if external is None else external.signatures,
        )
        unknown_names = () if result.holds else tuple(unknown)
        return replace(result, unknown_predicates=unknown_names, truncated=self.truncated)

    def blocking(self, partition: Partition, literal: Literal) -> tuple[Atom | None, bool]:
        """Return the first atom that holds and makes a negated literal false, if there is any.

        The second value is False if not all rows of the atom were looked at.
        """
        atom = literal.atom
        rows, count = self._solve(partition, atom)
        arity = atom.arity
        for index in self._budget.paced(range(min(count, BLOCKING_ROWS)), 20):
            symbols = rows[index * arity : (index + 1) * arity]
            args = tuple(self._reasoner.tenant.engine.texts(symbols))
            opposite = Atom(atom.predicate, args, not atom.positive)
            if not atom.positive or not self.holds(partition, opposite):
                return Atom(atom.predicate, args, atom.positive), True
        return None, count <= BLOCKING_ROWS

    def holds(self, partition: Partition, atom: Atom) -> bool:
        """Return True if an atom has an answer."""
        return self._solve(partition, atom)[1] > 0

    def near_facts(self, partition: Partition, atom: Atom) -> Iterator[Atom]:
        """Yield stored facts that differ from an atom in one constant, at most NEAR_FACTS."""
        constants = [index for index, arg in enumerate(atom.args) if isinstance(arg, str)]
        if len(constants) < 2:  # with one constant every fact would be near
            return
        tenant = self._reasoner.tenant
        left = NEAR_FACTS
        for index in constants:
            args: list[Term] = terms_of(atom)
            args[index] = Variable("other")
            for row in islice(self._stored(partition, atom, args), left):
                left -= 1
                yield Atom(atom.predicate, tuple(tenant.engine.texts(row)), atom.positive)

    # -- inside ------------------------------------------------------------------------------------

    def _negated(
        self, partitions: Sequence[Partition], literal: Literal
    ) -> Iterator[WhyNotCandidate]:
        """Yield what blocks a negated literal without variables in each partition."""
        for partition in partitions[: self._limit]:
            candidate = WhyNotCandidate(None, partition.name, {}, (), literal)
            yield self._completed(candidate, partition, 1)

    def _possible(self, partition: Partition, premises: _Premises) -> bool:
        """Return True if a goal of several literals is not false in a partition."""
        prefix = premises.prefix(0, len(premises.items))
        rules = self._reasoner.with_rules(partition, [prefix])
        options = self._options._replace(include_undefined=True)
        answers = self._reasoner.solve_once(partition, rules, prefix.head, self._budget, options)
        return answers[1] > 0

    def _solve(self, partition: Partition, atom: Atom) -> tuple[array[int], int]:
        return self._reasoner.solve(partition, atom, self._budget, self._options)

    def _stored(
        self, partition: Partition, atom: Atom, args: Sequence[Term]
    ) -> Iterator[array[int]]:
        """Yield rows of stored facts that match, as symbols."""
        tenant, as_of, arity = self._reasoner.tenant, self._options.as_of, atom.arity
        rows: array[int] = array("I")
        if as_of is None:
            stored = partition.get(RelationSchema(atom.predicate, arity, atom.positive))
            pattern = goal_pattern(args, tenant.find)
            if stored is not None and pattern is not None:
                rows = stored.relation.match(pattern, limit=NEAR_FACTS)[0]
        else:
            any_match = StoredPattern(atom.predicate, args, atom.positive)
            for _, valid, _ in matching(tenant, partition, any_match, as_of, self._budget):
                rows = valid
        for start in range(0, len(rows), arity):
            yield rows[start : start + arity]

    def _reached(
        self, partition: Partition, premises: Sequence[_Premises], partitions_left: int, limit: int
    ) -> list[_Reached]:
        """Return how far each rule gets in a partition, in the order of the rules.

        `partitions_left` is the number of partitions that the remaining time is for.
        """
        added = [
            each.prefix(number, length)
            for number, each in enumerate(premises)
            for length in range(1, len(each.items) + 1)
        ]
        added = [rule for rule in added if rule.head.arity <= MAX_COLUMNS]
        if not added:
            return []
        rules = self._reasoner.with_rules(partition, added)
        reached: list[_Reached] = []
        for number, each in enumerate(premises):
            shares = (len(premises) - number) * partitions_left + 1
            farthest = self._farthest(partition, rules, number, each, (limit, shares))
            if farthest is not None:
                reached.append(farthest)
        return reached

    def _farthest(
        self,
        partition: Partition,
        rules: RuleSet,
        number: int,
        premises: _Premises,
        bounds: tuple[int, int],
    ) -> _Reached | None:
        """Return the longest prefix of premises that has instances, and the first of these.

        `bounds` are the number of instances to return, and the number of parts into which the
        remaining time is divided, of which this search has one. None if that is not enough.
        """
        limit, shares = bounds
        reached = _Reached(premises, partition, 0)
        options = self._options._replace(first=limit)
        budget = self._budget.part(2 * shares)
        try:
            for length in range(1, len(premises.items) + 1):
                head = premises.prefix(number, length).head
                if head.arity > MAX_COLUMNS:
                    self.truncated = True
                    return None
                answers = self._reasoner.solve_once(partition, rules, head, budget, options)
                if not answers[1]:
                    break
                values = self._values(premises.items[:length], answers, limit)
                reached = _Reached(premises, partition, length, values)
        except BudgetExceeded:
            self.truncated = True
            return self._greedy(reached, self._budget.part(shares))
        finally:
            self._budget.rows_made += budget.rows_made
        return reached

    def _greedy(self, reached: _Reached, budget: Budget) -> _Reached | None:
        """Extend one instance of a prefix premise by premise, with the first values that match.

        Other instances may get farther, but the next premise is false in the one that is returned.
        """
        premises, partition, length = reached.premises, reached.partition, reached.length
        values = dict(reached.values[0])
        try:
            while length < len(premises.items):
                item = substituted(premises.items[length], values)
                match = self._first_match(partition, item, budget)
                if match is None:
                    return _Reached(premises, partition, length, [values])
                values |= match
                length += 1
        except BudgetExceeded:
            return None
        finally:
            self._budget.rows_made += budget.rows_made
        return _Reached(premises, partition, length, [values])

    def _first_match(
        self, partition: Partition, item: BodyItem, budget: Budget
    ) -> Substitution | None:
        """Return values for which one premise holds; None if there are none."""
        if isinstance(item, Literal) and not item.negated:
            # A goal of one atom can read stored rows; a body always derives rows of its own.
            rows, count = self._reasoner.solve(partition, item.atom, budget, self._options)
            texts = self._reasoner.tenant.engine.texts(rows[: item.atom.arity])
            pairs = zip(item.atom.args, texts, strict=bool(count))
            values: Substitution = {
                arg: text for arg, text in pairs if isinstance(arg, Variable) and not arg.anonymous
            }
            return values if count else None
        answers = self._reasoner.solve_body(
            partition, (item,), body_variables((item,)), budget, self._options
        )
        return self._values((item,), answers, 1)[0] if answers[1] else None

    def _values(
        self, items: Sequence[BodyItem], answers: Answers, limit: int
    ) -> list[Substitution]:
        """Return the values of the variables of premises in the first answers."""
        variables = body_variables(items)
        rows, count = answers
        row_count = min(count, limit)
        texts = iter(self._reasoner.tenant.engine.texts(rows[: row_count * len(variables)]))
        return [{variable: next(texts) for variable in variables} for _ in range(row_count)]

    def _candidates(
        self, groups: Sequence[Sequence[_Reached]], limit: int, depth: int
    ) -> tuple[WhyNotCandidate, ...]:
        """Return the best candidates: those with the most satisfied premises first.

        Among these the first instance of each rule comes before the second instances.
        """
        ranked: list[tuple[tuple[int, int], WhyNotCandidate, Partition]] = []
        for group in groups:
            for reached in group:
                for number, candidate in enumerate(self._instances(reached, limit)):
                    rank = -len(candidate.satisfied), number
                    ranked.append((rank, candidate, reached.partition))
        ranked.sort(key=lambda entry: entry[0])  # stable: rules stay in their order
        return tuple(
            self._completed(candidate, partition, depth)
            for _, candidate, partition in ranked[:limit]
        )

    def _instances(self, reached: _Reached, limit: int) -> Iterator[WhyNotCandidate]:
        """Yield the candidates of the instances that get farthest."""
        premises, length = reached.premises, reached.length
        if length == len(premises.items):
            rule = premises.rule
            try:
                if rule is not None and extremum_of(rule.head) is not None:
                    yield from self._better(reached)
                else:
                    yield from self._aggregated(reached, limit)
            except BudgetExceeded:
                self.truncated = True
            return
        for values in reached.values:
            yield _candidate(reached, values, substituted(premises.items[length], values))

    def _better(self, reached: _Reached) -> Iterator[WhyNotCandidate]:
        """Yield the instances of a rule that keeps the best value, with the better value of their
        groups.
        """
        rule, goal = reached.premises.rule, reached.premises.goal
        extremum = None if rule is None else extremum_of(rule.head)
        if rule is None or goal is None or extremum is None:
            raise EngineFault("a goal without such a rule keeps no best value")
        head = [arg.variable if isinstance(arg, Extremum) else arg for arg in rule.head.args]
        terms = [arg for arg in head if isinstance(arg, (str, Variable))]
        for values in reached.values:
            *group, value = (
                _resolved(_resolved(term, reached.premises.values), values) for term in terms
            )
            atom = Atom(goal.predicate, (*group, Variable("value")), goal.positive)
            rows, count = self._solve(reached.partition, atom)
            if count:
                best = self._reasoner.tenant.engine.texts(rows[: atom.arity])[-1]
                # Values are kept in canonical text: `1` answers no goal for `1.0`.
                is_same = isinstance(value, str) and kept(value) == best
                op = "==" if is_same else "="
                yield _candidate(reached, values, Comparison(op, best, value))
            else:  # the value is not a number
                computed = Apply(extremum.function, (value,))
                yield _candidate(reached, values, Comparison("=", computed, terms_of(goal)[-1]))

    def _aggregated(self, reached: _Reached, limit: int) -> Iterator[WhyNotCandidate]:
        """Yield the groups of a rule with aggregates whose values are not those of the goal."""
        rule, goal, partition = reached.premises.rule, reached.premises.goal, reached.partition
        if rule is None or goal is None or not aggregated(rule):
            raise EngineFault("all premises of a rule hold, but its conclusion does not")
        args: list[Term] = [
            Variable(f"value{index}")
            if isinstance(arg, Aggregate)
            else _resolved(arg, reached.premises.values)
            for index, arg in enumerate(rule.head.args)
            if not isinstance(arg, Extremum)
        ]
        head = Atom(f"{GOAL}0.0", rule.head.args)
        rules = self._reasoner.with_rules(partition, [Rule(head, rule.body)])
        rows, count = self._reasoner.solve_once(
            partition, rules, Atom(head.predicate, tuple(args)), self._budget, self._options
        )
        arity, row_count = len(args), min(count, limit)
        texts = self._reasoner.tenant.engine.texts(rows[: row_count * arity])
        for start in range(0, len(texts), arity):
            row = texts[start : start + arity]
            values: Substitution = {
                arg: text for arg, text in zip(args, row, strict=True) if isinstance(arg, Variable)
            }
            aggregate, difference = _difference(rule.head, goal, row)
            candidate = _candidate(reached, values, difference)
            value = {print_term(aggregate): str(difference.left)}
            yield replace(candidate, bindings=candidate.bindings | value)
        if not row_count:
            index, aggregate = next(
                (index, arg)
                for index, arg in enumerate(rule.head.args)
                if isinstance(arg, Aggregate)
            )
            # Only functions of a variable can have no value: count(*) always has one.
            computed = Apply(aggregate.function, (aggregate.variable or ANONYMOUS,))
            yield _candidate(reached, {}, Comparison("=", computed, terms_of(goal)[index]))

    def _completed(
        self, candidate: WhyNotCandidate, partition: Partition, depth: int
    ) -> WhyNotCandidate:
        """Return a candidate with what blocks its missing premise, and with its cause."""
        missing = candidate.missing
        if not isinstance(missing, Literal):
            return candidate
        try:
            if missing.negated:
                blocking, is_certain = self.blocking(partition, missing)
                return replace(
                    candidate, blocked_by=blocking, undefined=blocking is None and is_certain
                )
            options = self._options._replace(include_undefined=True)
            undefined = self._reasoner.solve(partition, missing.atom, self._budget, options)[1] > 0
            candidate = replace(candidate, undefined=undefined)
            if depth > 1 and not undefined:
                below = self.rules([partition], missing.atom, 1, depth - 1)
                candidate = replace(candidate, because=below[0] if below else None)
        except BudgetExceeded:
            self.truncated = True
        return candidate


def low_confidence(
    literal: Literal, answers: Iterable[tuple[Partition, Sequence[Row]]], least: float
) -> WhyNot:
    """Return the explanation of a goal whose answers all have less confidence than requested."""
    candidates: list[WhyNotCandidate] = []
    atom = counterpart(literal) if literal.negated else literal.atom
    for partition, rows in answers:
        for row in rows:
            values: Substitution = {
                arg: text
                for arg, text in zip(terms_of(atom), row["args"], strict=True)
                if isinstance(arg, Variable) and not arg.anonymous
            }
            bindings = {str(variable): str(text) for variable, text in values.items()}
            satisfied = substituted(Literal(atom) if values else literal, values)
            confidence = f"{row['confidence']:g}"
            test = Comparison(">=", confidence, f"{least:g}")
            bindings["confidence"] = confidence
            candidates.append(WhyNotCandidate(None, partition.name, bindings, (satisfied,), test))
    return WhyNot(print_item(literal), FALSE, tuple(candidates))


def aggregated(rule: Rule) -> bool:
    """Return True if the head of a rule has aggregates."""
    return any(isinstance(arg, Aggregate) for arg in rule.head.args)


def _ordered(body: Sequence[BodyItem], values: Substitution, modes: Modes) -> tuple[BodyItem, ...]:
    """Return the premises with values filled in, in the order of evaluation.

    It is the order of the text, except that comparisons and negated literals come as soon as the
    premises before them bind their variables, premises that plugins decide after those that bind
    the arguments they need, and generators when no other premise can come.
    """
    waiting = [substituted(item, values) for item in body]
    chosen: list[BodyItem] = []
    while waiting:
        ready = next(
            (item for item in waiting if not generator_of(item) and _is_ready(item, chosen, modes)),
            next((item for item in waiting if _is_ready(item, chosen, modes)), waiting[0]),
        )
        waiting.remove(ready)
        chosen.append(ready)
    return tuple(chosen)


def _is_ready(item: BodyItem, before: Sequence[BodyItem], modes: Modes) -> bool:
    if isinstance(item, Literal) and not item.negated:
        schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive).derived
        if schema not in modes:
            return True
        known = bound_variables(Rule(Atom(GOAL), tuple(before)))
        marks = "".join(
            "f" if isinstance(arg, Variable) and arg.name not in known else "b"
            for arg in item.atom.args
        )
        return permitted(modes, schema, marks)
    bound = bound_variables(Rule(Atom(GOAL), (*before, item)))
    return all(variable.anonymous or variable.name in bound for variable in item.variables())


def _resolved(term: Term, values: Substitution) -> Term:
    return values.get(term, term) if isinstance(term, Variable) else term


def _candidate(reached: _Reached, values: Substitution, missing: BodyItem) -> WhyNotCandidate:
    """Return the candidate of an instance with these values."""
    premises = reached.premises
    body = premises.items if premises.rule is None else premises.rule.body
    head = () if premises.rule is None else premises.rule.head.variables()
    named = dict.fromkeys(v for v in (*head, *body_variables(body)) if not v.anonymous)
    terms = {v: _resolved(_resolved(v, premises.values), values) for v in named}
    return WhyNotCandidate(
        None if premises.rule is None else stored_rule(premises.rule),
        reached.partition.name,
        {str(variable): term for variable, term in terms.items() if isinstance(term, str)},
        tuple(substituted(item, values) for item in premises.items[: reached.length]),
        missing,
    )


def _difference(head: Atom, goal: Atom, row: Sequence[str]) -> tuple[Aggregate, Comparison]:
    """Return the first aggregate of a head whose value in a row is not that of the goal.

    With it, the false comparison of both values.
    """
    values: dict[Term, str] = {}
    for own, asked, text in zip(head.args, terms_of(goal), row, strict=True):
        if not isinstance(own, Aggregate) and asked != ANONYMOUS:
            values[asked] = text
    for own, asked, text in zip(head.args, terms_of(goal), row, strict=True):
        if not isinstance(own, Aggregate) or asked == ANONYMOUS:
            continue
        expected = asked if isinstance(asked, str) else values.setdefault(asked, text)
        if expected != text:
            return own, Comparison("=", text, expected)
    raise EngineFault("a rule has the values of a goal, but the goal has no answer")
