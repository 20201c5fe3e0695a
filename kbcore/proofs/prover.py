"""Construction of proofs, as nodes whose premises are computed on demand.

A proof is read from a ground program (`kbplanner.evaluate.grounding`): each conclusion points to
the rule instance that ends its proof of least height, whose premises all have a smaller height, so
that no conclusion supports itself. An asserted fact needs no other proof, even if a rule derives it
too.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from kbcore.errors import BudgetExceeded
from kbcore.proofs.batches import (
    MAX_BATCH,
    BatchPicker,
    Columns,
    Solved,
    Step,
    Values,
    parted,
    standing_for,
    stands_for,
    step_of,
    values_of,
    variables_of,
    with_values,
)
from kbcore.proofs.facts import ABSENT, BUILTIN, Facts
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.episodes.quoting import Quotation, quoted_all
from kbcore.state.facts import Row, derived_row
from kbcore.state.partition import Partition
from kbcore.state.rulebook import ParsedRule, stored_rule
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import NO_ROW, Relation, RunLimits
from kbplanner.engine.ground_solver import shortest
from kbplanner.engine.proof_nodes import LEAF, MISSING, Order, Steps, Tree
from kbplanner.errors import EngineFault
from kbplanner.evaluate.evaluate import naming_rule
from kbplanner.evaluate.grounding import LOWEST, PATHS, GroundGoal, GroundRun, Instance
from kbplanner.evaluate.loaded import Bind, Drive
from kbplanner.evaluate.race import LimitedSteps
from kbplanner.evaluate.settle import View
from kbplanner.evaluate.witness import CompleteInstances, Witnesses
from kbplanner.ir.conditions import condition_of, generator_of
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    Expr,
    Literal,
    Rule,
    Variable,
)
from kbplanner.ir.unify import filled, with_now
from kbplanner.ir.values.comparison import kept
from kbplanner.ir.values.instants import instant_text
from kbplanner.passes.instances import InstanceRelation
from kbplanner.syntax.printer import print_expression, print_term

ANSWERS_PER_RUN = 64
"""Answers proved by one run.

Their proofs share lemmas, but the size of a run could grow out of proportion.
"""

LOWEST_LIMITS = RunLimits(rows=20_000, steps=200_000)
"""Limits of a run for the lowest proofs where a recursion has several recursive premises: one or
two milliseconds. Its instances can be many more than its conclusions: those of a transitive
relation grow with the cube of the names.
"""

EXPANSIONS_PER_YIELD = 50
"""Nodes expanded between two calls of `yield_now`: under a millisecond, also if each has a dozen
premises.
"""

INSTANCES_PER_YIELD = 50
"""Instances examined separately between two calls of `yield_now`: about a millisecond."""

Symbols = tuple[int, ...]


INPUTS = 10
"""Default maximum of shown inputs of an aggregate."""


@dataclass(frozen=True, slots=True)
class AggregateInputs:
    """The inputs of the aggregates of a conclusion: `rows` bindings, the first of which are
    `inputs`.

    If only the values of one variable matter, as for `count(?x)` and `min(?x)`, there is one
    binding per value. `text` has the aggregates with their values.
    """

    text: str
    rows: int
    inputs: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProofContext:
    """The inputs that all proofs of a request in one partition share.

    At most `inputs` inputs of an aggregate are shown; without `rows` stored facts have no rows.
    """

    reasoner: Reasoner
    partition: Partition
    rules: RuleSet
    budget: Budget
    inputs: int = INPUTS
    rows: bool = True


class Prover:
    """Prover for answers in one partition under one rule set, now or as of a point in time.

    The caller holds the tenant's read lock.
    """

    def __init__(self, context: ProofContext, as_of: int | None) -> None:
        self._context = context
        self._tenant = context.reasoner.tenant
        self._partition = context.partition
        self._rules = context.rules
        self._budget = context.budget
        self._as_of = as_of

    def without_rules(self) -> FactProof:
        """Return a proof that uses no rule."""
        return self._proof(self._partition.bind)

    def proofs(
        self, schema: RelationSchema, answers: Sequence[Sequence[str]]
    ) -> Generator[tuple[int, FactProof]]:
        """Yield for each answer (arguments of a stored schema) the number of its fact and the proof
        that expands it.

        A proof can be expanded until the next is requested. Close the generator to free its run.
        """
        engine = self._tenant.engine
        goals, as_of = (schema,), self._as_of
        solved: Solved | None = None
        with (
            viewed(self._tenant, self._partition, self._rules, goals, self._budget, as_of) as view,
            closing(
                Witnesses(
                    engine,
                    view.bind,
                    view.statistics,
                    self._budget.limits,
                    self._budget.now,
                    self._budget.yield_now,
                )
            ) as witnesses,
            ExitStack() as runs,
        ):
            for start in range(0, len(answers), ANSWERS_PER_RUN):
                batch = answers[start : start + ANSWERS_PER_RUN]
                rows = [tuple(engine.find(arg) for arg in args) for args in batch]
                if schema not in self._rules.derived:
                    self._budget.yield_now()
                    proof = self._proof(view.bind)
                    yield from ((proof.fact(schema, row), proof) for row in rows)
                    continue
                if solved is None or not solved.run.has_all_rows:
                    runs.close()
                    run = runs.enter_context(closing(self._run(view, schema, rows)))
                    lowest = shortest(engine, run.ground, self._budget.offload)
                    complete = CompleteInstances(run, lowest, witnesses)
                    solved = Solved(engine, run, run.ground, lowest, complete)
                proof = self._proof(view.bind, solved)
                plan = solved.run.goal.plan
                facts = proof.answers(plan.slots[plan.answer], rows)
                yield from ((fact, proof) for fact in facts)

    def _proof(self, bind: Bind, solved: Solved | None = None) -> FactProof:
        return FactProof(self._context, bind, solved)

    def _run(self, view: View, schema: RelationSchema, rows: Sequence[Symbols]) -> GroundRun:
        """Return a run that was read, with the lowest proofs of the rows of a relation.

        Where there are too many instances for that, it has proofs by paths and first instances.
        """
        plans, marks = self._context.reasoner.ground_plans, "b" * schema.arity
        key = (view.rules, schema, marks, view.denied, view.statistics)
        goal = plans.get(*key, LOWEST)
        if goal.may_outgrow:
            try:
                return self._read(goal, view.bind, rows, self._drive_lowest)
            except BudgetExceeded as error:
                if (error.details or {})["limit"] == "timeMs":
                    raise
                goal = plans.get(*key, PATHS)
        return self._read(goal, view.bind, rows, self._budget.drive)

    def _drive_lowest(self, run: LimitedSteps) -> None:
        """Step a run to its end; raises BudgetExceeded also if that takes long."""
        limits = self._budget.limits
        run.limit(
            RunLimits(
                min(limits.rows or LOWEST_LIMITS.rows, LOWEST_LIMITS.rows),
                limits.bytes,
                min(limits.steps or LOWEST_LIMITS.steps, LOWEST_LIMITS.steps),
            )
        )
        self._budget.work(run)

    def _read(
        self, goal: GroundGoal, bind: Bind, rows: Sequence[Symbols], drive: Drive
    ) -> GroundRun:
        """Return a run for the rows of a goal that was read; BudgetExceeded names the rule."""
        budget = self._budget
        run = GroundRun(self._tenant.engine, goal, bind, budget.limits, budget.now)
        try:
            run.seed(array("I", [symbol for row in rows for symbol in row]), len(rows))
            run.read(drive, budget.yield_now)
        except BudgetExceeded as error:
            run.close()
            raise naming_rule(error, goal.rules) from error
        except BaseException:
            run.close()
            raise
        return run


class FactProof:
    """The proofs of answers from one ground program; each fact has a single shared node.

    `facts` has the nodes. The steps between them are computed on demand, in batches. If a rule
    aggregates, the premises of its step are those of the inputs that are shown, one after the
    other, and `aggregated` describes them by step.
    """

    def __init__(self, context: ProofContext, bind: Bind, solved: Solved | None = None) -> None:
        self._context = context
        self._tenant = context.reasoner.tenant
        self._partition = context.partition
        self._budget = context.budget
        self._bind = bind
        self._solved = solved
        self._expanded = 0
        self._shaped_tests = 0
        self._picker = None if solved is None else BatchPicker(solved)
        self._plans: dict[int, Step | None] = {}
        self._numbers: dict[RelationSchema, dict[Symbols, int]] = {}
        self._rule_index: dict[int, int] = {}
        self._goal_rules = () if solved is None else solved.run.goal.rules
        external = context.reasoner.external
        self.facts = Facts(() if external is None else external.modes)
        self.steps = Steps(0 if solved is None else len(solved.ground))
        self.rules: list[ParsedRule] = []
        self.aggregated: dict[int, AggregateInputs] = {}
        self.tree: Tree | None = None
        """The parts of its trees, if one was requested."""

    def fact(self, schema: RelationSchema, row: Symbols) -> int:
        """Return the number of a fact.

        For a derived fact `schema` is its relation in the ground program.
        """
        number = self._table(schema).get(row)
        if number is None:
            self._add(schema, [row], [tuple(self._tenant.engine.texts(array("I", row)))])
            number = self._table(schema)[row]
        return number

    def rule_sets(self, rule: ParsedRule) -> dict[str, Any]:
        """Return the rule sets of a rule as a member `ruleSets`, nothing if it belongs to none."""
        rule_sets = self._tenant.rule_sets.versions_of(rule)
        return {"ruleSets": rule_sets} if rule_sets else {}

    def answers(self, schema: RelationSchema, rows: list[Symbols]) -> list[int]:
        """Return the numbers of facts whose proofs will be requested, in order."""
        numbers = self._table(schema)
        new = [row for row in dict.fromkeys(rows) if row not in numbers]
        if new:
            texts = self._tenant.engine.texts(array("I", chain.from_iterable(new)))
            width = len(rows[0])
            args = list(zip(*[iter(texts)] * width, strict=True)) if width else [()]
            self._add(schema, new, args)
        facts = [numbers[row] for row in rows]
        if self._picker is not None:
            instances = (self.facts.instances[fact] for fact in facts)
            self._picker.expect(instance for instance in instances if instance != LEAF)
        return facts

    def test(self, kind: str, atom: Atom, item: BodyItem) -> int:
        """Add a test and return its number; `atom` is the searched pattern or the comparison."""
        schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
        number = len(self.facts)
        self.facts.add_leaves(schema, [atom.args])
        self.facts.tests[number] = (kind, item)
        return number

    def expand(self, fact: int) -> Sequence[int]:
        """Return the premises of a fact, in order of the rule's body; a leaf has none.

        Raises BudgetExceeded at the deadline.
        """
        self._expanded += 1
        if not self._expanded % EXPANSIONS_PER_YIELD:
            self._budget.yield_now()
        instance = self.facts.instances[fact]
        if self.steps.step(instance) == MISSING:
            self.replay(fact)
        return () if instance == LEAF else self.steps.of(self.steps.step(instance))

    def rule(self, fact: int) -> ParsedRule | None:
        """Return the rule that concludes a fact; None for a leaf and before it is expanded."""
        step = self.steps.step(self.facts.instances[fact])
        return None if step in (LEAF, MISSING) else self.rules[self.steps.rules[step]]

    def complete(self, order: Order) -> None:
        """Order the nodes of a tree or a graph, and replay the steps that it needs.

        The nodes count as shown; raises BudgetExceeded if there are too many, and at the deadline.
        """
        node_count = order.nodes
        self._budget.show_nodes(node_count)
        while not order.is_complete:
            missing = order.advance(self.facts.instances, self.steps)
            self._budget.show_nodes(order.nodes - node_count)
            node_count = order.nodes
            if missing is None:
                self._budget.yield_now()
            else:
                premises = len(self.steps.premises) // max(len(self.steps), 1)
                self.replay(missing, order.nodes_left // max(premises, 1))

    def unshaped_tests(self) -> Iterator[int]:
        """Yield the tests that were added since the last call."""
        count, self._shaped_tests = self._shaped_tests, len(self.facts.tests)
        return islice(self.facts.tests, count, None)

    def yield_now(self) -> None:
        """Yield to other requests; raises BudgetExceeded at the deadline."""
        self._budget.yield_now()

    def replay(self, fact: int, expected: int = MAX_BATCH) -> None:
        """Replay a batch of instances, of which one concludes the fact, and not many more than are
        `expected`.

        Instances of aggregating rules are replayed one at a time.
        """
        self._budget.yield_now()
        solved, number = self._solved, self.facts.instances[fact]
        if solved is None or self._picker is None:
            raise EngineFault("a proof without rules has no steps")
        for block, places in parted(solved.run.blocks, self._picker.pick(number, expected)):
            source, key = block.source, id(block.source)
            if key not in self._plans:
                self._plans[key] = step_of(source, self._rule(source), self._tenant.engine)
            plan = self._plans[key]
            if plan is not None:
                columns = Columns(plan, block, places, solved.complete, self._tenant.engine)
                self._add_steps(plan, [block.start + index for index in places], columns)
        if self.steps.step(number) == MISSING:
            self._add_aggregate(fact, solved.complete.instance(number), solved)

    def _rule(self, source: InstanceRelation) -> ParsedRule:
        return self.rules[self._rule_number(source)]

    def _rule_number(self, source: InstanceRelation) -> int:
        """Return the index in `rules` of the rule of a clause."""
        number = source.clause.rule
        if number not in self._rule_index:
            self._rule_index[number] = len(self.rules)
            stored = stored_rule(self._goal_rules[number - 1])
            if self._budget.now is not None:
                stored = replace(stored, rule=with_now(stored.rule, instant_text(self._budget.now)))
            self.rules.append(stored)
        return self._rule_index[number]

    def _add_steps(self, plan: Step, numbers: Sequence[int], columns: Columns) -> None:
        """Add the steps of instances, which are given by number and as columns."""
        rule, source = plan.rule.rule, plan.source
        instances: list[tuple[Instance, Values]] = []
        if plan.equations or not all(premise.atom for premise in plan.premises):
            places = range(len(plan.variables))
            symbol_rows = zip(columns.keys(places), columns.values(places), strict=True)
            for row, texts in self._budget.paced(symbol_rows, INSTANCES_PER_YIELD):
                values = values_of(rule, dict(zip(plan.variables, texts, strict=True)))
                instances.append(
                    (Instance(source, dict(zip(plan.variables, row, strict=True))), values)
                )
        if plan.equations:
            variables = variables_of(rule)
            bindings = [
                {str(v): values[v] for v in variables if v in values} for _, values in instances
            ]
        else:
            bindings = columns.bindings(plan.names)
        premises: list[list[int]] = []
        for premise in plan.premises:
            if premise.atom is None:
                paced = self._budget.paced(instances, INSTANCES_PER_YIELD)
                premises.append([self._premise(premise.item, *instance) for instance in paced])
            else:
                premises.append(self._facts_of(premise.atom.schema, columns, premise.places))
        self.steps.add(numbers, self._rule_number(source), bindings, premises)

    def _facts_of(
        self, schema: RelationSchema, columns: Columns, places: Sequence[int]
    ) -> list[int]:
        """Return the fact of a relation in each instance of the columns."""
        rows, numbers = columns.keys(places), self._table(schema)
        new = [row for row in dict.fromkeys(rows) if row not in numbers]
        if new:
            args = columns.values(places)
            if len(new) < len(rows):
                args_by_row = dict(zip(rows, args, strict=True))
                args = [args_by_row[row] for row in new]
            self._add(schema, new, args)
        return list(map(numbers.__getitem__, rows))

    def _add_aggregate(self, fact: int, instance: Instance, solved: Solved) -> None:
        """Add the step of a conclusion with aggregates, from the bindings that they cover."""
        rule_number = self._rule_number(instance.source)
        rule = self.rules[rule_number].rule
        pairs = list(zip(rule.head.args, self.facts.args[fact], strict=True))
        folds = (
            f"{print_term(term)} = {value}" for term, value in pairs if isinstance(term, Aggregate)
        )
        # Some aggregates cover fewer variables; the largest group has the bindings of all of them.
        groups = (solved.chosen(instance, atom) for atom in instance.source.premises)
        members = max((solved.ground.of(group) for group in groups), key=len)
        inputs: list[dict[str, str]] = []
        premises: list[int] = []
        for member in members[: self._context.inputs]:
            bindings, below = self._gathered(rule, solved.gathered(member))
            inputs.append(bindings)
            premises.extend(below)
        values = {str(term): str(value) for term, value in pairs if isinstance(term, Variable)}
        self.aggregated[len(self.steps)] = AggregateInputs(
            ", ".join(folds), len(members), tuple(inputs)
        )
        number = self.facts.instances[fact]
        self.steps.add((number,), rule_number, [values], [[premise] for premise in premises])

    def _gathered(self, rule: Rule, instance: Instance) -> tuple[dict[str, str], list[int]]:
        """Return the values of a rule's variables in an instance of its body, and a node for each
        body item.
        """
        symbols = array("I", instance.binding.values())
        values = values_of(
            rule, dict(zip(instance.binding, self._tenant.engine.texts(symbols), strict=True))
        )
        bindings = {
            str(variable): values[variable] for variable in variables_of(rule) if variable in values
        }
        return bindings, [self._premise(item, instance, values) for item in rule.body]

    def _table(self, schema: RelationSchema) -> dict[Symbols, int]:
        """Return the numbers of the facts of a relation; stored and derived facts share one
        table.
        """
        numbers = self._numbers.get(schema)
        if numbers is None:
            numbers = self._numbers[schema] = self._numbers.setdefault(schema.stored, {})
        return numbers

    def _add(
        self, schema: RelationSchema, rows: list[Symbols], args: Sequence[tuple[str, ...]]
    ) -> None:
        """Add facts that have no number yet, by their symbols and texts."""
        facts, stored, solved, first = self.facts, schema.stored, self._solved, len(self.facts)
        symbols = array("I", chain.from_iterable(rows))
        self._table(schema).update(zip(rows, range(first, first + len(rows)), strict=True))
        if schema.role is Role.STORED or solved is None:
            facts.add_leaves(stored, args, self._stored_rows(stored, symbols, len(rows)))
            return
        shortest = solved.shortest
        nodes = solved.run.lowest_nodes(schema, symbols, len(rows), shortest.heights)
        heights = [shortest.heights[node] for node in nodes]
        instances = [shortest.chosen[node] for node in nodes]
        alternatives = [shortest.counts[node] - 1 for node in nodes]
        asserted = [] if all(heights) else [i for i, height in enumerate(heights) if not height]
        for index in asserted:
            instances[index] = LEAF
        facts.add_conclusions(stored, args, instances, heights, alternatives)
        if asserted:
            symbols = array("I", chain.from_iterable(rows[index] for index in asserted))
            stored_rows = self._stored_rows(stored, symbols, len(asserted))
            for index, row in zip(asserted, stored_rows, strict=False):
                facts.leaves[first + index] = row

    def _stored_rows(self, stored: RelationSchema, symbols: array[int], count: int) -> list[Row]:
        """Return the rows of stored facts, none if rows are not requested."""
        if not self._context.rows:
            return []
        if stored in self.facts.external:
            texts = self._tenant.engine.texts(symbols)
            atom, arity = Atom(stored.predicate, (), stored.positive), stored.arity
            return [
                derived_row(atom, texts[i * arity : (i + 1) * arity], self._partition.name)
                for i in range(count)
            ]
        relation = self._partition.need(stored)
        ids = relation.relation.locate(symbols, count)
        if NO_ROW in ids:  # best values are kept in canonical text, facts as they were written
            symbols, ids = self._as_written(relation.relation, symbols, ids)
        rows = relation.rows(self._tenant.engine, symbols, ids)
        for row in rows:
            if "evidence" in row:
                row["evidence"] = quoted_all(row["evidence"], self._tenant.episodes)
        return rows

    def quotations(self, fact: int) -> list[Quotation]:
        """Return the evidence of a stored fact with its text; empty for other nodes."""
        schema = self.facts.schema(fact)
        if fact in self.facts.tests or schema in self.facts.external:
            return []
        relation = self._partition.get(schema.stored)
        if relation is None or not relation.metadata:
            return []
        row = tuple(self._tenant.engine.find(str(arg)) for arg in self.facts.args[fact])
        spans = evidence_of(relation.metadata.get(row, {}))
        return quoted_all(spans, self._tenant.episodes)

    def _as_written(
        self, relation: Relation, symbols: array[int], ids: array[int]
    ) -> tuple[array[int], array[int]]:
        """Return rows and ids with, in place of each row without an id, a fact whose last argument
        is kept as the same value.
        """
        engine, arity = self._tenant.engine, relation.arity
        symbols, ids = symbols[:], ids[:]
        for index, row_id in enumerate(ids):
            if row_id == NO_ROW:
                *group, value = symbols[index * arity : (index + 1) * arity]
                rows, matching_ids = relation.match([*group, 0])
                best, *written = engine.texts(array("I", (value, *rows[arity - 1 :: arity])))
                at = next(at for at, text in enumerate(written) if kept(text) == best)
                symbols[index * arity : (index + 1) * arity] = rows[at * arity : (at + 1) * arity]
                ids[index] = matching_ids[at]
        return symbols, ids

    def _comparison(self, item: Comparison, values: Values) -> int:
        """Return the premise of a comparison, a test or a generator that holds for `values`."""
        comparison = Comparison(
            item.op, filled(item.left, values), filled(item.right, values), item.negated
        )
        test, negated = condition_of(comparison) or (None, False)
        call = test or generator_of(comparison)
        sides: tuple[Expr, ...] = (comparison.left, comparison.right)
        if test is not None:
            sides = test.args
        elif call is not None:
            sides = (*call.args, comparison.left)
        args = (print_expression(arg) if isinstance(arg, Apply) else str(arg) for arg in sides)
        atom = Atom(call.function if call else item.op, tuple(args), not negated)
        return self.test(BUILTIN, atom, comparison)

    def _premise(self, item: BodyItem, instance: Instance, values: Values) -> int:
        if isinstance(item, Comparison):
            return self._comparison(item, values)
        clause_atom = standing_for(item, instance.source)
        if clause_atom is not None:
            symbols = self._row(clause_atom, instance)
            if 0 not in symbols:
                return self.fact(clause_atom.schema, symbols)
        expected = with_values(item.atom.args, values)
        schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
        if item.negated:
            absent = (
                i for i in instance.source.whole.body if isinstance(i, ClauseAtom) and i.absent
            )
            if any(stands_for(atom, schema, expected, values) for atom in absent):
                pattern = Atom(schema.predicate, expected, schema.positive)
                return self.test(ABSENT, pattern, Literal(pattern, negated=True))
            schema = schema.opposite
        matched = next(
            a for a in instance.source.whole.atoms() if stands_for(a, schema, expected, values)
        )
        row = [
            self._tenant.engine.find(arg) if isinstance(arg, str) else 0
            for arg in with_values(matched.args, values)
        ]
        if 0 in row:  # anonymous variables match several stored facts; take the first
            row = list(self._bind(matched.schema).match(row, limit=1)[0])
        return self.fact(matched.schema, tuple(row))

    def _row(self, atom: ClauseAtom, instance: Instance) -> Symbols:
        """Return the symbols of an atom's arguments in an instance, 0 for unbound arguments."""
        binding, find = instance.binding, self._tenant.engine.find
        return tuple(
            find(arg) if isinstance(arg, str) else binding.get(arg, 0) for arg in atom.args
        )


def goal_prover(
    reasoner: Reasoner,
    partition: Partition,
    budget: Budget,
    as_of: int | None,
    inputs: int = INPUTS,
    rows: bool = True,
) -> Prover:
    """Return a prover for answers of literals in a partition.

    `inputs` bounds the bindings shown below an aggregate; `rows` says whether nodes carry stored
    rows.
    """
    rules = reasoner.tenant.rules.visible(partition.name)
    return Prover(ProofContext(reasoner, partition, rules, budget, inputs, rows), as_of)


def body_prover(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    variables: Sequence[Variable],
    budget: Budget,
    as_of: int | None,
) -> tuple[Prover, Atom]:
    """Return a prover for the bindings for which a body holds, and the atom whose arguments they
    are.
    """
    rules, head = reasoner.body_rules(partition, body, variables)
    return Prover(ProofContext(reasoner, partition, rules, budget), as_of), head
