"""Goals to answers: stored facts and rules together, in one partition or in all."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kbcore.errors import EngineFault
from kbcore.reason.annotate import Annotations, Answers
from kbcore.reason.budget import Budget
from kbcore.reason.json_rows import Written, array_of, plain
from kbcore.reason.match import matching
from kbcore.reason.tables import GoalTables, TableCounts
from kbcore.reason.view import viewed
from kbcore.state.facts import Row, derived_row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import NO_ROW, SAME
from kbplanner.evaluate.evaluate import (
    Bind,
    CompiledGoal,
    adornment_of,
    goal_equalities,
    goal_shape,
)
from kbplanner.evaluate.grounding import GroundPlans
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule, Term, Variable
from kbplanner.passes.check import check_evaluable, counterpart
from kbplanner.passes.order import Statistics
from kbplanner.passes.wellfounded import POSSIBLE

GOAL = "?goal"
"""Predicate of the rule that stands for a goal of several literals; no rule text can use this name."""

MAX_READY = 1024
"""Shapes of goals whose plan is found without asking the plan cache."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A goal before it is run: the atom it answers, the pattern of its constants (None: nothing can have them), its plan.

    Without a plan a look-up among the stored facts is all there is to it.
    """

    atom: Atom
    pattern: list[int] | None
    bind: Bind
    goal: CompiledGoal | None = None
    statistics: Statistics | None = None


class Reasoner:
    """Answers goals of one tenant. The caller holds the tenant's read lock and has brought it to now."""

    def __init__(
        self, tenant: Tenant, table_bytes: int, verify: bool = False, counts: TableCounts | None = None
    ) -> None:
        self.tenant = tenant
        self.tables = GoalTables(tenant.engine, table_bytes, verify, counts)
        self._verify = verify
        self.ground_plans = GroundPlans(tenant.engine)
        self._annotations = Annotations(tenant, self.ground_plans)
        self.writer = Written(tenant)
        self._ready: dict[tuple[str | None, str, bool, str], tuple[int, CompiledGoal, StoredRelation]] = {}
        self._negatives: dict[tuple[str | None, RuleSet], tuple[int, frozenset[RelationSchema]]] = {}
        self._bodies: OrderedDict[tuple[RuleSet, Rule], RuleSet] = OrderedDict()

    def close(self) -> None:
        """Give up the goal tables."""
        self.tables.clear()

    def solve(self, partition: Partition, atom: Atom, budget: Budget, as_of: int | None = None) -> Answers:
        """The answers of a signed atom in a partition; those that are stored have been accessed. Raises BudgetExceeded."""
        tenant = self.tenant
        asked = goal_shape(atom.args, tenant.find)
        if asked is None:
            return self._solve(partition, tenant.rules.visible(partition.name), atom, budget, as_of)
        pattern, adornment = asked
        if max(pattern, default=0) & SAME:  # goals that repeat a variable have a plan of their own
            adornment += str([value & SAME and value for value in pattern])
        key = (partition.name, atom.predicate, atom.positive, adornment)
        ready = self._ready.get(key)
        if ready is None or ready[0] != tenant.plan_version or as_of is not None:
            return self._solve(partition, tenant.rules.visible(partition.name), atom, budget, as_of, key)
        found = self.tables.ask(partition.key, ready[1], pattern, partition.bind, budget)
        if found[1] and ready[2].version and budget.counts_accesses:
            tenant.accesses.note(ready[2], found[0], pattern, tenant.read_at)
        return found

    def solve_body(
        self,
        partition: Partition,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        budget: Budget,
        as_of: int | None = None,
    ) -> Answers:
        """The bindings of `variables` for which a whole body holds."""
        rules, head = self.body_rules(partition, body, variables)
        return self._solve(partition, rules, head, budget, as_of)

    def body_rules(
        self, partition: Partition, body: Sequence[BodyItem], variables: Sequence[Variable]
    ) -> tuple[RuleSet, Atom]:
        """Return the rules visible in a partition plus one rule for the body, and the head of that rule."""
        rule = Rule(Atom(GOAL, tuple(variables)), tuple(body))
        visible = self.tenant.rules.visible(partition.name)
        rules = self._bodies.get((visible, rule))
        if rules is None:
            check_evaluable(rule)
            rules = self._bodies[visible, rule] = RuleSet([*visible.rules, rule], visible)
            if len(self._bodies) > 64:
                self._bodies.popitem(last=False)
        return rules, rule.head

    @contextmanager
    def planned(
        self, partition: Partition, body: Sequence[BodyItem], budget: Budget, as_of: int | None = None
    ) -> Iterator[Planned]:
        """The plan for a goal in a partition, and what a run of it would need; recursion through negation is settled."""
        only = body[0]
        if len(body) == 1 and isinstance(only, Literal):
            flipped = only.negated and (only.atom.positive or not only.atom.ground)  # `not ~p(a)` reads `~p` alone
            atom = counterpart(only) if flipped else only.atom
            rules = self.tenant.rules.visible(partition.name)
        else:
            rules, atom = self.body_rules(partition, body, body_variables(body))
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        asked = self._asked(rules, schema, atom)
        pattern = None if asked is None else asked[0]
        if schema not in rules.derived:
            yield Planned(atom, pattern, partition.bind)
            return
        denied = self._denied(partition, rules) if as_of is None else None
        with viewed(self.tenant, partition, rules, (schema,), budget, as_of, denied) as view:
            adornment = adornment_of(terms_of(atom))
            bounded = replace(schema, restrictions=goal_equalities(pattern or ()))
            goal = self.tenant.plans.get(view.rules, bounded, adornment, view.denied, view.statistics)
            yield Planned(atom, pattern, view.bind, goal, view.statistics)

    def rows(
        self,
        partition: Partition,
        literal: Literal,
        budget: Budget,
        as_of: int | None,
        limit: int | None,
        undefined: bool = False,
    ) -> list[Row]:
        """The answers of a literal as rows for the outside, the first `limit` in answer order.

        A negated literal without variables has one row where it holds, with the basis in its metadata; `not p` with
        variables has the explicit negatives, `not ~p` raises UnsafeRule. `undefined` adds what is neither true nor false.
        """
        atom = literal.atom
        if literal.negated:
            opposite = counterpart(literal)
            if not atom.ground:
                return self.rows(partition, Literal(opposite), budget, as_of, limit, undefined)
            found = self.rows(partition, Literal(opposite), budget, as_of, 1) if atom.positive else []
            basis = "explicit"
            if not found:
                certain = not self.possible(partition, atom, budget, as_of)[1]
                fails = not certain and self.solve(partition, atom, budget, as_of)[1]
                unknown = undefined and not certain
                if fails:
                    unknown = unknown and atom.positive and self.possible(partition, opposite, budget, as_of)[1] > 0
                else:
                    basis = "absence"
                if certain or unknown:
                    found = [derived_row(opposite, list(opposite.args), partition.name)]
                if unknown:
                    found[0]["metadata"]["truth"] = "undefined"
            for row in found:
                row["metadata"]["basis"] = basis
            return found
        budget.whole, budget.first = limit is None, None if undefined else limit
        answers = self.solve(partition, atom, budget, as_of)
        budget.first = None
        if undefined:
            every = self.possible(partition, atom, budget, as_of)
            if every[1] != answers[1]:
                return self._with_undefined(partition, atom, answers, every, budget, as_of, limit)
        budget.whole = False
        return self._true(partition, atom, answers, budget, as_of, limit)

    def described(self, partition: Partition, atom: Atom, answers: Answers, budget: Budget) -> list[Row]:
        """Rows for some answers of an atom that `solve` gave, with what they inherit."""
        return self._true(partition, atom, answers, budget, None, None)

    def possible(self, partition: Partition, atom: Atom, budget: Budget, as_of: int | None = None) -> Answers:
        """The answers of an atom that are not false: those that are true, and those that are undefined."""
        return self._solve(partition, self.tenant.rules.visible(partition.name), atom, budget, as_of, possible=True)

    def _with_undefined(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        every: Answers,
        budget: Budget,
        as_of: int | None,
        limit: int | None,
    ) -> list[Row]:
        """Rows for `every` answer, of which `answers` are true."""
        arity = atom.arity
        rows, count = every
        count = count if limit is None else min(count, limit)
        budget.check_answers(count)
        known = set(budget.keys(*answers, arity))
        keys = list(budget.keys(rows, count, arity))
        held = [key for key in budget.paced(keys) if key in known]
        true = array("I", [symbol for key in held for symbol in key]), len(held)
        shown = iter(self._true(partition, atom, true, budget, as_of, None))
        found: list[Row] = []
        for part in budget.slices(count):
            for place in part:
                if keys[place] in known:
                    found.append(next(shown))
                    continue
                texts = self.tenant.engine.texts(array("I", keys[place]))
                found.append(derived_row(atom, texts, partition.name))
                found[-1]["metadata"]["truth"] = "undefined"
        return found

    def _true(
        self, partition: Partition, atom: Atom, answers: Answers, budget: Budget, as_of: int | None, limit: int | None
    ) -> list[Row]:
        """Rows for the first answers of an atom that are true, with what they inherit."""
        rows, count = answers
        marks = self._annotations.marks(partition, atom)
        arity = atom.arity
        if limit is not None and limit < count:
            rows, count = rows[: limit * arity], limit
        budget.check_answers(count)
        shown: list[Row] = []
        for part in budget.slices(count):
            some = rows[part.start * arity : part.stop * arity]
            shown.extend(self._shown(partition, atom, some, len(part), as_of))
        if not marks.plain:
            self._annotations.annotate(partition, atom, (rows, count), shown, marks, budget, as_of, self._solve)
        return shown

    def written(
        self, partition: Partition, atom: Atom, budget: Budget, limit: int | None, offset: int
    ) -> list[bytes] | None:
        """Answers from `offset` on, `limit` at most, as a JSON array in parts; None where rows need a closer look."""
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        stored = partition.get(schema)
        marks = self._annotations.marks(partition, atom)
        if not marks.alike or not plain(stored):
            return None
        absence = not marks.plain  # then nothing of the predicate is stored, or some answer could do without one
        budget.whole, budget.first = limit is None and not offset, None if limit is None else limit + offset
        rows, count = self.solve(partition, atom, budget)
        end = count if limit is None else min(count, offset + limit)
        if offset or end < count:
            rows, count = rows[offset * atom.arity : end * atom.arity], max(end - offset, 0)
        budget.check_answers(count)
        return array_of(list(self.writer.rows(schema, partition.name, stored, rows, count, budget, absence=absence)))

    def written_facts(
        self, partition: Partition, atom: Atom, positive: bool | None, budget: Budget, limit: int | None
    ) -> list[bytes] | None:
        """Stored facts of one sign or (None) both that match, each with its truth value; otherwise as `written`."""
        parts: list[bytes] = []
        for stored, rows, ids in matching(self.tenant, partition, atom.predicate, terms_of(atom), positive, None, budget):
            if not plain(stored):
                return None
            count = len(ids)
            if limit is None:
                budget.check_answers(count)
            else:
                count = min(count, limit)
                limit -= count
            rows = self.tenant.engine.sort(rows, atom.arity, budget.via)
            parts.extend(self.writer.rows(stored.schema, partition.name, stored, rows, count, budget, truth=True))
        return array_of(parts)

    def _solve(
        self,
        partition: Partition,
        rules: RuleSet,
        atom: Atom,
        budget: Budget,
        as_of: int | None,
        ready: tuple[str | None, str, bool, str] | None = None,
        possible: bool = False,
    ) -> Answers:
        """Answer with the given rules: what is true, or what is `possible`.

        A plan found for what is visible now is noted under `ready`, unless it is for what models of this moment say. It is
        given for goals of the outside: answers of these that are stored have been accessed.
        """
        tenant = self.tenant
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        asked = self._asked(rules, schema, atom)
        if asked is None:
            return array("I"), 0
        pattern, adornment = asked
        if schema not in rules.derived:
            matched = matching(tenant, partition, atom.predicate, terms_of(atom), atom.positive, as_of, budget)
            for stored, rows, ids in matched:
                if ready is not None and as_of is None and len(ids) and budget.counts_accesses:
                    tenant.accesses.note(stored, rows, pattern, tenant.read_at)
                return tenant.engine.sort(rows, atom.arity, budget.via), len(ids)
            return array("I"), 0
        denied = self._denied(partition, rules) if as_of is None else None
        with viewed(tenant, partition, rules, (schema,), budget, as_of, denied) as view:
            bounded = replace(schema, truth=POSSIBLE) if possible and view.rules.uncertain(view.denied, schema) else schema
            bounded = replace(bounded, restrictions=goal_equalities(pattern))
            version = tenant.plan_version if as_of is None else -1
            goal = tenant.plans.get(view.rules, bounded, adornment, view.denied, view.statistics, version=version)
            if as_of is not None:
                return self.tables.once(goal, pattern, view.bind, budget)
            if ready is not None and not view.settled:
                if len(self._ready) >= MAX_READY:
                    self._ready.clear()
                self._ready[ready] = (tenant.plan_version, goal, partition.need(schema))
            found = self.tables.ask(partition.key, goal, pattern, view.bind, budget)
            if ready is not None and found[1] and budget.counts_accesses and (stored := partition.need(schema)).version:
                tenant.accesses.note(stored, found[0], pattern, tenant.read_at)
            if self._verify and view.settled:
                means = budget.limits, budget.work, budget.rest
                with tenant.models.view(rules, view.denied, (schema,), partition.bind, partition, *means) as fresh:
                    anew = tenant.plans.get(fresh.rules, bounded, adornment, view.denied, fresh.statistics)
                    if self.tables.once(anew, pattern, fresh.bind, budget) != found:
                        raise EngineFault("a model that was kept differs from a fresh one")
            return found

    def _asked(self, rules: RuleSet, schema: RelationSchema, atom: Atom) -> tuple[list[int], str] | None:
        """The pattern and adornment of a goal; None where nothing can have its constants."""
        args = terms_of(atom)
        asked = goal_shape(args, self.tenant.find)
        if asked is None and schema in rules.derived:
            # A constant that no fact has; a conclusion has it still where it stands in a rule, or where rules compute it.
            intern, find, known = self.tenant.engine.intern, self.tenant.find, rules.constants
            asked = goal_shape(args, lambda t: (intern if rules.computes or t in known else find)(t))
        return asked

    def _denied(self, partition: Partition, rules: RuleSet) -> frozenset[RelationSchema]:
        """Which relations of explicit negatives that matter to the rules have rows, looked up once a version."""
        key, version = (partition.name, rules), self.tenant.plan_version
        known = self._negatives.get(key)
        if known is None or known[0] != version:
            if len(self._negatives) > 256:
                self._negatives.clear()
            known = self._negatives[key] = (version, partition.denied(rules.deniable))
        return known[1]

    def _shown(self, partition: Partition, atom: Atom, rows: array[int], count: int, as_of: int | None) -> list[Row]:
        """Rows that are asserted are shown as stored, the others as derived."""
        arity = atom.arity
        schema = RelationSchema(atom.predicate, arity, atom.positive)
        stored = partition.get(schema)
        ids = stored.relation.locate(rows, count) if stored else array("I", [NO_ROW]) * count
        if stored and NO_ROW not in ids and not stored.limited and as_of is None:
            return stored.rows(self.tenant.engine, rows, ids)
        texts = self.tenant.engine.texts(rows)
        at = self.tenant.at(0) if as_of is None else as_of
        found: list[Row] = []
        for i in range(count):
            place = ids[i : i + 1]
            if stored and place[0] != NO_ROW:
                start, end = next(stored.windows(place))
                if start <= at < end:
                    found.extend(stored.rows(self.tenant.engine, rows[i * arity : (i + 1) * arity], place))
                    continue
            found.append(derived_row(atom, texts[i * arity : (i + 1) * arity], partition.name))
        return found


def body_variables(body: Sequence[BodyItem]) -> list[Variable]:
    """The named variables of a body, in order of appearance."""
    return list(dict.fromkeys(v for item in body for v in item.variables() if not v.anonymous))


def terms_of(atom: Atom) -> list[Term]:
    """The arguments of an atom that is no rule head."""
    return [arg for arg in atom.args if isinstance(arg, (str, Variable))]
