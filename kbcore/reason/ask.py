"""Answering of goals from stored facts and rules, in one partition."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kbcore.errors import EngineFault
from kbcore.reason.annotate import Answers, RowAnnotations
from kbcore.reason.as_of import valid_rows
from kbcore.reason.budget import Budget, Notes
from kbcore.reason.external.predicates import ExternalPredicates
from kbcore.reason.external.rows import ExternalRows
from kbcore.reason.json_rows import RowWriter, array_of, plain
from kbcore.reason.options import DEFAULT_GOAL, FactOptions, GoalOptions
from kbcore.reason.stored_facts import FactOrders, FactSearch, StoredPattern
from kbcore.reason.tables import GoalTables, TableCounts, shown
from kbcore.reason.view import viewed
from kbcore.state.facts import Row, derived_row
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import ExternalRules, RuleSet
from kbplanner.engine.backend import NO_ROW, SAME, RunState
from kbplanner.evaluate.evaluate import (
    CompiledGoal,
    GoalRun,
    adornment_of,
    goal_equalities,
    goal_shape,
)
from kbplanner.evaluate.grounding import GroundPlans
from kbplanner.evaluate.loaded import Bind
from kbplanner.evaluate.settle import View
from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule, Term, Variable
from kbplanner.lru import LruCache
from kbplanner.passes.check import check_evaluable, counterpart
from kbplanner.passes.order import Statistics
from kbplanner.passes.wellfounded import POSSIBLE

GOAL = "?goal"
"""Head predicate of the rule for a goal of several literals; no rule text can use this name."""

MAX_READY_PARTITIONS = 64
"""Maximum number of partitions for which the plan of a goal of several literals is kept ready."""

MAX_READY_PLANS = 1024
"""Maximum number of goal shapes whose plan is found without the plan cache."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A goal before its run: the atom to answer, the pattern of its constants, and its plan.

    The pattern is None if no fact or conclusion can have these constants. The plan is None if a
    lookup of stored facts answers the goal.
    """

    atom: Atom
    pattern: list[int] | None
    bind: Bind
    goal: CompiledGoal | None = None
    statistics: Statistics | None = None


class PlainAnswers(NamedTuple):
    """Answers without confidence and without metadata of their own, as flat rows of symbols.

    `absence` says that every answer depends on an absence, and no fact of the predicate is stored.
    """

    symbols: array[int]
    row_count: int
    absence: bool


GoalForm = tuple["str | None", str, bool, str]
"""Partition, predicate, sign and binding pattern of a goal."""


class ReadyGoal(NamedTuple):
    """The plan of goals of one form while the tenant has this `plan_version`.

    It is None if a lookup of stored facts answers them. `stored` has the facts of the
    predicate as they were then: a transaction may have a copy of its own since.
    """

    plan_version: int
    plan: CompiledGoal | None
    stored: StoredRelation


@dataclass(frozen=True, slots=True)
class BodyGoal:
    """A goal of several literals: the rules with one for it, whose head has its variables.

    `ready` has for some partitions a `plan_version` of the tenant, and the plan that answers the
    goal while the tenant has this version.
    """

    rules: RuleSet
    head: Atom
    ready: dict[str | None, tuple[int, CompiledGoal]] = field(default_factory=dict)

    def keep_ready(self, scope: str | None, plan_version: int, plan: CompiledGoal) -> None:
        """Remember how the goal is answered in a partition."""
        if len(self.ready) >= MAX_READY_PARTITIONS:
            self.ready.clear()
        self.ready[scope] = plan_version, plan


class Reasoner:
    """Query evaluator of one tenant.

    The caller holds the tenant's read lock and has applied expiry up to now.
    """

    def __init__(
        self,
        tenant: Tenant,
        table_bytes: int,
        verify: bool = False,
        counts: TableCounts | None = None,
        external: ExternalPredicates | None = None,
    ) -> None:
        self.tenant = tenant
        self.tables = GoalTables(tenant.engine, table_bytes, verify, counts)
        self._verify = verify
        self.ground_plans = GroundPlans(tenant.engine)
        self._annotations = RowAnnotations(tenant, self.ground_plans)
        self.writer = RowWriter(tenant)
        self._ready: dict[GoalForm, ReadyGoal] = {}
        self._only_stored: dict[GoalForm, int] = {}
        """Predicates without rules, with the version of the plans in which they had none."""
        self._negatives: dict[
            tuple[str | None, RuleSet], tuple[int, frozenset[RelationSchema]]
        ] = {}
        self._bodies: LruCache[
            tuple[RuleSet, tuple[BodyItem, ...], tuple[Variable, ...]], BodyGoal
        ] = LruCache(64)
        self._fact_orders = FactOrders()
        self.external = external

    def close(self) -> None:
        """Drop the goal tables and the cached orders of facts."""
        self.tables.clear()
        self._fact_orders.clear()

    def solve(
        self, partition: Partition, atom: Atom, budget: Budget, options: GoalOptions = DEFAULT_GOAL
    ) -> Answers:
        """Return the answers of a signed atom in a partition, and record accesses of stored facts.

        With `include_undefined` the answers are those that are not false. Raises BudgetExceeded.
        """
        tenant = self.tenant
        shape = None if options.include_undefined else goal_shape(atom.args, tenant.find)
        if shape is None:
            return self._solve_unknown(partition, atom, budget, options)
        pattern, adornment = shape
        # Goals that repeat a variable have a separate plan.
        if adornment.count("f") > 1 and max(pattern) & SAME:
            adornment += str([value & SAME and value for value in pattern])
        key = (partition.name, atom.predicate, atom.positive, adornment)
        ready = self._ready.get(key)
        if ready is None or ready[0] != tenant.plan_version or options.as_of is not None:
            return self._solve(
                partition, tenant.rules.visible(partition.name), atom, budget, options, key, shape
            )
        _, plan, stored = ready
        if plan is None:
            return self._looked_up(
                partition, stored.schema, pattern, budget, noted=options.counts_accesses
            )
        if options.deferred is not None and stored.version and options.counts_accesses:
            options = options._replace(deferred=None)  # the rows say which facts are accessed
        answers = self.tables.ask(partition, plan, pattern, partition.bind, budget, options)
        if answers[1] and stored.version and options.counts_accesses:
            tenant.accesses.note(stored, answers[0], pattern, tenant.read_at)
        return answers

    def _solve_unknown(
        self, partition: Partition, atom: Atom, budget: Budget, options: GoalOptions
    ) -> Answers:
        """Return the answers of an atom with a constant that no fact has, or with undefined ones.

        A predicate without rules has none for such a constant.
        """
        tenant, name = self.tenant, partition.name
        key = (name, atom.predicate, atom.positive, str(atom.arity))
        if options.include_undefined or self._only_stored.get(key) != tenant.plan_version:
            rules = tenant.rules.visible(name)
            schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
            if schema not in rules.derived and self.external_rules(rules, schema) is None:
                if len(self._only_stored) >= MAX_READY_PLANS:
                    self._only_stored.clear()
                self._only_stored[key] = tenant.plan_version
            return self._solve(partition, rules, atom, budget, options)
        return array("I"), 0

    def solve_body(
        self,
        partition: Partition,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        budget: Budget,
        options: GoalOptions = DEFAULT_GOAL,
    ) -> Answers:
        """Return the bindings of `variables` for which a whole body is true."""
        known = self._body_goal(partition, body, variables)
        if options.include_undefined:
            return self._solve(partition, known.rules, known.head, budget, options)
        ready = known.ready.get(partition.name)
        if (
            ready is None
            or ready[0] != self.tenant.plan_version
            or options.as_of is not None
            or not options.uses_tables
        ):
            return self._solve(partition, known.rules, known.head, budget, options, known)
        pattern = [0] * len(known.head.args)
        return self.tables.ask(partition, ready[1], pattern, partition.bind, budget, options)

    def body_rules(
        self, partition: Partition, body: Sequence[BodyItem], variables: Sequence[Variable]
    ) -> tuple[RuleSet, Atom]:
        """Return the rules visible in a partition plus one rule for the body, and the head of that
        rule.
        """
        known = self._body_goal(partition, body, variables)
        return known.rules, known.head

    def _body_goal(
        self, partition: Partition, body: Sequence[BodyItem], variables: Sequence[Variable]
    ) -> BodyGoal:
        visible = self.tenant.rules.visible(partition.name)
        key = visible, tuple(body), tuple(variables)
        known = self._bodies.get(key)
        if known is None:
            rule = Rule(Atom(GOAL, key[2]), key[1])
            check_evaluable(rule)
            known = BodyGoal(RuleSet([*visible.rules, rule], visible), rule.head)
            self._bodies.put(key, known)
        return known

    def with_rules(self, partition: Partition, added: Sequence[Rule]) -> RuleSet:
        """Return the rules visible in a partition plus rules whose heads no other rule reads.

        Raises UnsafeRule or InvalidInput for an added rule that cannot be evaluated.
        """
        for rule in added:
            check_evaluable(rule)
        visible = self.tenant.rules.visible(partition.name)
        return RuleSet([*visible.rules, *added], visible)

    def concludes(self, partition: Partition, schema: RelationSchema) -> bool:
        """Return True if a stored schema can have answers that are not stored: from rules visible
        in a partition, or from a plugin.
        """
        if self.external is not None and schema in self.external.modes:
            return True
        return schema in self.tenant.rules.visible(partition.name).derived

    def modes(self, partition: Partition) -> Modes:
        """Return the modes of DERIVED relations that have to be asked with bound arguments."""
        rules = self.tenant.rules.visible(partition.name)
        if self.external is None or rules.reads.isdisjoint(self.external.modes):
            return {} if self.external is None else self.external.derived_modes
        return rules.with_external(self.external.modes).inferred

    def external_rules(self, rules: RuleSet, schema: RelationSchema) -> ExternalRules | None:
        """Return the form of rules to evaluate a goal on a stored schema with, if it depends on an
        external predicate.
        """
        return None if self.external is None else self.external.rules(rules, schema)

    def solve_once(
        self,
        partition: Partition,
        rules: RuleSet,
        atom: Atom,
        budget: Budget,
        options: GoalOptions = DEFAULT_GOAL,
    ) -> Answers:
        """Return the answers of an atom under `rules`, evaluated without goal tables.

        For goals that are not expected again. Raises BudgetExceeded.
        """
        return self._solve(partition, rules, atom, budget, options._replace(uses_tables=False))

    @contextmanager
    def planned(
        self,
        partition: Partition,
        body: Sequence[BodyItem],
        budget: Budget,
        as_of: int | None = None,
    ) -> Iterator[Planned]:
        """Provide the plan for a goal in a partition and the inputs of a run, with recursion
        through negation resolved.
        """
        item = body[0]
        if len(body) == 1 and isinstance(item, Literal):
            flipped = item.negated and (
                item.atom.positive or not item.atom.ground
            )  # `not ~p(a)` reads `~p` alone
            atom = counterpart(item) if flipped else item.atom
            rules = self.tenant.rules.visible(partition.name)
        else:
            rules, atom = self.body_rules(partition, body, body_variables(body))
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        external = self.external_rules(rules, schema)
        if external is not None:
            rules = external
            external.check_components(external.deniable, (schema,))
            self._external_rows(budget)
        shape = self._goal_shape(rules, schema, atom)
        pattern = None if shape is None else shape[0]
        if schema not in rules.derived:
            yield Planned(atom, pattern, partition.bind)
            return
        denied = self._denied(partition, rules) if as_of is None else None
        with viewed(self.tenant, partition, rules, (schema,), budget, as_of, denied) as view:
            adornment = adornment_of(terms_of(atom))
            bounded = replace(schema, restrictions=goal_equalities(pattern or ()))
            goal = self.tenant.plans.get(
                view.rules, bounded, adornment, view.denied, view.statistics
            )
            yield Planned(atom, pattern, view.bind, goal, view.statistics)

    def rows(
        self,
        partition: Partition,
        literal: Literal,
        budget: Budget,
        options: GoalOptions = DEFAULT_GOAL,
    ) -> list[Row]:
        """Return the answers of a literal, in answer order, as answer rows.

        A ground negated literal has one row if it is true, with the basis in its metadata. `not p`
        with variables returns the explicit negatives; `not ~p` with variables raises UnsafeRule.
        """
        atom = literal.atom
        if literal.negated:
            opposite = counterpart(literal)
            if not atom.ground:
                return self.rows(partition, Literal(opposite), budget, options)
            one_true = options._replace(first=1, include_undefined=False, returns_all=False)
            result = (
                self.rows(partition, Literal(opposite), budget, one_true) if atom.positive else []
            )
            basis = "explicit"
            if not result:
                every_true = one_true._replace(first=None)
                certain = not self._possible(partition, atom, budget, every_true)[1]
                fails = not certain and self.solve(partition, atom, budget, every_true)[1]
                unknown = options.include_undefined and not certain
                if fails:
                    unknown = (
                        unknown
                        and atom.positive
                        and self._possible(partition, opposite, budget, every_true)[1] > 0
                    )
                else:
                    basis = "absence"
                if certain or unknown:
                    result = [derived_row(opposite, list(opposite.args), partition.name)]
                if unknown:
                    result[0]["metadata"]["truth"] = "undefined"
            for row in result:
                row["metadata"]["basis"] = basis
            return result
        if not options.include_undefined:
            answers = self.solve(partition, atom, budget, options)
            return self._true(partition, atom, answers, budget, options)
        every_true = options._replace(first=None, include_undefined=False)
        answers = self.solve(partition, atom, budget, every_true)
        possible = self._possible(partition, atom, budget, every_true)
        if possible[1] == answers[1]:
            return self._true(partition, atom, answers, budget, options)
        return self._with_undefined(partition, atom, answers, possible, budget, options)

    def described(
        self, partition: Partition, atom: Atom, answers: Answers, budget: Budget
    ) -> list[Row]:
        """Return rows for answers of an atom from `solve`, with their inherited values."""
        return self._true(partition, atom, answers, budget, DEFAULT_GOAL)

    def bare_rows(self, partition: Partition, atom: Atom, answers: Answers) -> list[Row]:
        """Return rows for answers of an atom from `solve`, without inherited values."""
        return self._shown(partition, atom, *answers, None)

    def _possible(
        self, partition: Partition, atom: Atom, budget: Budget, options: GoalOptions
    ) -> Answers:
        """Return the answers of an atom that are not false: the true and the undefined ones."""
        return self.solve(partition, atom, budget, options._replace(include_undefined=True))

    def _with_undefined(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        possible: Answers,
        budget: Budget,
        options: GoalOptions,
    ) -> list[Row]:
        """Return rows for the `possible` answers, of which `answers` are true."""
        arity = atom.arity
        rows, count = possible
        count = count if options.first is None else min(count, options.first)
        budget.check_answers(count)
        true_keys = set(budget.keys(*answers, arity))
        keys = list(budget.keys(rows, count, arity))
        held = [key for key in budget.paced(keys) if key in true_keys]
        true = array("I", [symbol for key in held for symbol in key]), len(held)
        every_true = options._replace(first=None)
        true_rows = iter(self._true(partition, atom, true, budget, every_true))
        result: list[Row] = []
        for part in budget.slices(count):
            for index in part:
                if keys[index] in true_keys:
                    result.append(next(true_rows))
                    continue
                texts = self.tenant.engine.texts(array("I", keys[index]))
                result.append(derived_row(atom, texts, partition.name))
                result[-1]["metadata"]["truth"] = "undefined"
        return result

    def _true(
        self,
        partition: Partition,
        atom: Atom,
        answers: Answers,
        budget: Budget,
        options: GoalOptions,
    ) -> list[Row]:
        """Return rows for the first true answers of an atom, with their inherited values."""
        rows, count = answers
        arity, first = atom.arity, options.first
        if first is not None and first < count:
            rows, count = rows[: first * arity], first
        budget.check_answers(count)
        result: list[Row] = []
        for part in budget.slices(count):
            part_rows = rows[part.start * arity : part.stop * arity]
            result.extend(self._shown(partition, atom, part_rows, len(part), options.as_of))
        self._annotations.annotate(
            partition, atom, (rows, count), result, budget, options.as_of, self._solve
        )
        return result

    def plain_answers(
        self, partition: Partition, atom: Atom, budget: Budget, limit: int | None, offset: int
    ) -> PlainAnswers | None:
        """Return at most `limit` answers from `offset` on as symbols; None if some have a
        confidence or metadata of their own.
        """
        schema = RelationSchema(atom.predicate, len(atom.args), atom.positive)
        stored = partition.get(schema)
        marks = self._annotations.marks(partition, atom)
        if not marks.alike or not plain(stored):
            return None
        options = GoalOptions(
            first=None if limit is None else limit + offset,
            returns_all=limit is None and not offset,
        )
        rows, count = self.solve(partition, atom, budget, options)
        end = count if limit is None else min(count, offset + limit)
        if offset or end < count:
            rows, count = rows[offset * len(atom.args) : end * len(atom.args)], max(end - offset, 0)
        budget.check_answers(count)
        return PlainAnswers(rows, count, not marks.plain)

    def answers_json(
        self, partition: Partition, atom: Atom, budget: Budget, limit: int | None, offset: int
    ) -> list[bytes] | None:
        """Return `plain_answers` as a JSON array in parts."""
        answers = self.plain_answers(partition, atom, budget, limit, offset)
        if answers is None:
            return None
        budget.answers += answers.row_count
        schema = RelationSchema(atom.predicate, len(atom.args), atom.positive)
        pieces = self.writer.rows(
            schema,
            partition.name,
            partition.get(schema),
            (answers.symbols, answers.row_count),
            budget,
            absence=answers.absence,
        )
        return array_of(list(pieces))

    def facts_json(
        self, partition: Partition, search: FactSearch, budget: Budget, notes: Notes | None
    ) -> list[bytes] | None:
        """Return the stored facts of a search, each with its truth value, as `answers_json`
        does.
        """
        parts: list[bytes] = []
        for _, stored, facts in search.pages((partition,), budget, notes):
            if not plain(stored):
                return None
            parts.extend(
                self.writer.rows(stored.schema, partition.name, stored, facts, budget, truth=True)
            )
        return array_of(parts)

    def plain_facts(
        self, partition: Partition, search: FactSearch, budget: Budget, notes: Notes | None
    ) -> tuple[array[int], int, int] | None:
        """Return the stored facts of a search as symbols, and how many are positive and negative.

        Positive facts come first. None if some have a confidence or metadata.
        """
        symbols, counts = array("I"), {True: 0, False: 0}
        for _, stored, facts in search.pages((partition,), budget, notes):
            if not plain(stored):
                return None
            symbols = symbols + facts.symbols if symbols else facts.symbols
            counts[stored.schema.positive] += facts.row_count
        return symbols, counts[True], counts[False]

    def fact_search(self, pattern: StoredPattern, options: FactOptions) -> FactSearch:
        """Return a search for stored facts, which shares the cached orders of the tenant."""
        return FactSearch(self.tenant, pattern, options, self._fact_orders)

    def _solve(
        self,
        partition: Partition,
        rules: RuleSet,
        atom: Atom,
        budget: Budget,
        options: GoalOptions,
        ready: GoalForm | BodyGoal | None = None,
        shape: tuple[list[int], str] | None = None,
    ) -> Answers:
        """Return the answers of an atom under a rule set.

        `ready` is the form of a client's goal of one literal, whose accesses of stored answers are
        recorded, or a goal of several. The plan is kept with it unless the plan depends on a model
        of this version. `shape` is the shape of the goal, if the caller has it.
        """
        tenant, as_of = self.tenant, options.as_of
        noted = isinstance(ready, tuple) and options.counts_accesses
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        external = self.external_rules(rules, schema)
        if external is not None:
            return self._solve_external(partition, external, atom, budget, options)
        if shape is None:
            shape = self._goal_shape(rules, schema, atom)
        if shape is None:
            return array("I"), 0
        pattern, adornment = shape
        if schema not in rules.derived:
            stored = partition.get(schema)
            if isinstance(ready, tuple) and as_of is None and stored is not None:
                self._keep_ready(ready, None, stored)
            return self._looked_up(partition, schema, pattern, budget, as_of, noted=noted)
        denied = self._denied(partition, rules) if as_of is None else None
        with viewed(tenant, partition, rules, (schema,), budget, as_of, denied) as view:
            bounded = (
                replace(schema, truth=POSSIBLE)
                if options.include_undefined and view.rules.uncertain(view.denied, schema)
                else schema
            )
            bounded = replace(bounded, restrictions=goal_equalities(pattern))
            version = tenant.plan_version if as_of is None else -1
            plan = tenant.plans.get(
                view.rules, bounded, adornment, view.denied, view.statistics, version=version
            )
            if as_of is not None or not options.uses_tables or view.dated:
                return self.tables.once(plan, pattern, view.bind, budget, options)
            if isinstance(ready, tuple) and not view.settled:
                self._keep_ready(ready, plan, partition.need(schema))
            elif isinstance(ready, BodyGoal) and not view.settled and not any(pattern):
                ready.keep_ready(partition.name, tenant.plan_version, plan)
            accessed = partition.need(schema) if noted else None
            if accessed is not None and accessed.version:
                options = options._replace(deferred=None)
            answers = self.tables.ask(partition, plan, pattern, view.bind, budget, options)
            if answers[1] and accessed is not None and accessed.version:
                tenant.accesses.note(accessed, answers[0], pattern, tenant.read_at)
            if self._verify and view.settled:
                facts = View(rules, view.denied, partition.bind, partition)
                with tenant.models.view(facts, (schema,), budget) as fresh:
                    fresh_goal = tenant.plans.get(
                        fresh.rules, bounded, adornment, view.denied, fresh.statistics
                    )
                    fresh_answers = self.tables.once(
                        fresh_goal, pattern, fresh.bind, budget, options
                    )
                    if fresh_answers != shown(answers, options):
                        raise EngineFault("a cached model differs from a fresh one")
            return answers

    def _keep_ready(
        self, form: GoalForm, plan: CompiledGoal | None, stored: StoredRelation
    ) -> None:
        """Remember how goals of one form are answered."""
        if len(self._ready) >= MAX_READY_PLANS:
            self._ready.clear()
        self._ready[form] = ReadyGoal(self.tenant.plan_version, plan, stored)

    def _looked_up(
        self,
        partition: Partition,
        schema: RelationSchema,
        pattern: list[int],
        budget: Budget,
        as_of: int | None = None,
        *,
        noted: bool,
    ) -> Answers:
        """Return the stored facts of a predicate without rules that match; with `noted` their
        accesses are recorded.
        """
        stored, tenant = partition.get(schema), self.tenant
        if stored is None:
            return array("I"), 0
        if as_of is not None:
            rows, ids = valid_rows(stored, pattern, as_of, budget)
        else:
            rows, ids = stored.relation.match(pattern, yield_now=budget.yield_now)
            if noted and len(ids):
                tenant.accesses.note(stored, rows, pattern, tenant.read_at)
        if len(ids) < 2:
            return rows, len(ids)
        return tenant.engine.sort(rows, schema.arity, budget.offload), len(ids)

    def _solve_external(
        self,
        partition: Partition,
        rules: ExternalRules,
        atom: Atom,
        budget: Budget,
        options: GoalOptions,
    ) -> Answers:
        """Return the answers of an atom that depends on external predicates, without goal tables.

        Raises RowsNeeded if plugins have to be called first.
        """
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        shape = self._goal_shape(rules, schema, atom)
        if shape is None:
            return array("I"), 0
        pattern = shape[0]
        with self._external_goal(partition, rules, atom, pattern, budget, options) as (goal, bind):
            run = self.supplied_run(partition, goal, bind, pattern, budget)
            try:
                answers = run.ask(pattern, budget, None, options.first, options.returns_all)
                if answers is None:
                    raise EngineFault("a relation changed under the read lock")
                steps = 0 if budget.steps is None else run.run.stats().steps
            finally:
                run.close()
        budget.notes.warnings += run.warnings
        budget.rows_made += run.rows_made
        if budget.steps is not None:
            budget.steps += steps
        stored = partition.get(schema) if options.counts_accesses else None
        if answers[1] and stored is not None and stored.version and options.as_of is None:
            self.tenant.accesses.note(stored, answers[0], pattern, self.tenant.read_at)
        return answers

    def supplied_run(
        self,
        partition: Partition,
        goal: CompiledGoal,
        bind: Bind,
        pattern: Sequence[int],
        budget: Budget,
    ) -> GoalRun:
        """Return a finished run of a goal with all rows that it demands of external predicates.

        The caller closes it. Raises RowsNeeded if plugins have to be called first.
        """
        rows = self._external_rows(budget)
        while True:
            run = GoalRun(self.tenant.engine, goal, bind, budget.limits, budget.now)
            try:
                run.evaluate(pattern, budget.drive)
                while rows.supply(run, self.tenant, partition, budget):
                    if run.serves(pattern) is RunState.STALE:
                        break
                    run.evaluate(pattern, budget.drive)
                else:
                    return run
            except BaseException:
                run.close()
                raise
            run.close()

    @contextmanager
    def _external_goal(
        self,
        partition: Partition,
        rules: ExternalRules,
        atom: Atom,
        pattern: Sequence[int],
        budget: Budget,
        options: GoalOptions,
    ) -> Iterator[tuple[CompiledGoal, Bind]]:
        """Provide the plan of a goal that depends on external predicates, and what it reads."""
        tenant, as_of = self.tenant, options.as_of
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        self._external_rows(budget)
        rules.check_components(rules.deniable, (schema,))
        denied = self._denied(partition, rules) if as_of is None else None
        with viewed(tenant, partition, rules, (schema,), budget, as_of, denied) as view:
            bounded = (
                replace(schema, truth=POSSIBLE)
                if options.include_undefined and view.rules.uncertain(view.denied, schema)
                else schema
            )
            bounded = replace(bounded, restrictions=goal_equalities(pattern))
            adornment = adornment_of(terms_of(atom))
            yield (
                tenant.plans.get(view.rules, bounded, adornment, view.denied, view.statistics),
                view.bind,
            )

    def _external_rows(self, budget: Budget) -> ExternalRows:
        """Return the rows of external predicates that a request knows."""
        if budget.external is None:
            if self.external is None:
                raise EngineFault("there are no external predicates")
            budget.external = ExternalRows(self.external, self.tenant)
        return budget.external

    def _goal_shape(
        self, rules: RuleSet, schema: RelationSchema, atom: Atom
    ) -> tuple[list[int], str] | None:
        """Return the pattern and adornment of a goal; None if nothing can have its constants."""
        args = terms_of(atom)
        shape = goal_shape(args, self.tenant.find)
        if shape is None and schema in rules.derived:
            # No fact has the constant, but a rule's text or a computation may produce it.
            intern, find, constants = self.tenant.engine.intern, self.tenant.find, rules.constants
            shape = goal_shape(
                args, lambda t: (intern if rules.computes_values or t in constants else find)(t)
            )
        return shape

    def _denied(self, partition: Partition, rules: RuleSet) -> frozenset[RelationSchema]:
        """Return the relations of explicit negatives used by the rules that have rows.

        Cached per version.
        """
        key, version = (partition.name, rules), self.tenant.plan_version
        cached = self._negatives.get(key)
        if cached is None or cached[0] != version:
            if len(self._negatives) > 256:
                self._negatives.clear()
            cached = self._negatives[key] = (version, partition.denied(rules.deniable))
        return cached[1]

    def _shown(
        self, partition: Partition, atom: Atom, rows: array[int], count: int, as_of: int | None
    ) -> list[Row]:
        """Return asserted rows as stored facts, the others as derived rows."""
        arity = atom.arity
        schema = RelationSchema(atom.predicate, arity, atom.positive)
        stored = partition.get(schema)
        ids = stored.relation.locate(rows, count) if stored else array("I", [NO_ROW]) * count
        if stored and NO_ROW not in ids and not stored.limited and as_of is None:
            return stored.rows(self.tenant.engine, rows, ids)
        texts = self.tenant.engine.texts(rows)
        at = self.tenant.at(0) if as_of is None else as_of
        result: list[Row] = []
        for i in range(count):
            row_id = ids[i : i + 1]
            if stored and row_id[0] != NO_ROW:
                row = rows[i * arity : (i + 1) * arity]
                start, end = next(stored.windows_at(row, row_id, at))
                if start <= at < end:
                    result.extend(stored.rows(self.tenant.engine, row, row_id, at))
                    continue
            result.append(derived_row(atom, texts[i * arity : (i + 1) * arity], partition.name))
        return result


def body_variables(body: Sequence[BodyItem]) -> list[Variable]:
    """Return the named variables of a body, in order of appearance."""
    return list(dict.fromkeys(v for item in body for v in item.variables() if not v.anonymous))


def terms_of(atom: Atom) -> list[Term]:
    """Return the arguments of an atom that is not a rule head."""
    return [arg for arg in atom.args if isinstance(arg, (str, Variable))]
