"""Construction of proofs, as nodes whose premises are computed on demand.

A proof is read from a ground program (`kbplanner.evaluate.grounding`): each conclusion points to
the rule instance that ends its proof of least height, whose premises all have a smaller height, so
that no conclusion supports itself. An asserted fact needs no other proof, even if a rule derives it
too.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeAlias

from kbcore.errors import BudgetExceeded
from kbcore.proofs.batches import (
    BatchPicker,
    Columns,
    Solved,
    Step,
    Values,
    filled,
    parted,
    standing_for,
    stands_for,
    step_of,
    values_of,
    variables_of,
    with_values,
)
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.rulebook import StoredRule, stored_rule
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.ground import Ground
from kbplanner.engine.ground_solver import shortest
from kbplanner.evaluate.evaluate import naming_rule
from kbplanner.evaluate.grounding import GroundRun, Instance
from kbplanner.evaluate.loaded import Bind
from kbplanner.evaluate.witness import CompleteInstances, Witnesses
from kbplanner.ir.program import ClauseAtom
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    BodyItem,
    Comparison,
    HeadTerm,
    Literal,
    Rule,
    Variable,
)
from kbplanner.passes.instances import InstanceRelation
from kbplanner.syntax.printer import print_expression, print_term

ASSERTED, DERIVED, ABSENT, BUILTIN = "asserted", "derived", "absent", "builtin"

ANSWERS_PER_RUN = 64
"""Answers proved by one run.

Their proofs share lemmas, but the size of a run could grow out of proportion.
"""

EXPANSIONS_PER_REST = 50
"""Nodes expanded between two calls of `yield_now`: under a millisecond, also if each has a dozen
premises.
"""

INSTANCES_PER_REST = 50
"""Instances examined separately between two calls of `yield_now`: about a millisecond."""

Symbols = tuple[int, ...]

Replay: TypeAlias = "tuple[StoredRule, dict[str, str], tuple[ProofNode, ...]]"
"""A replayed rule instance: the rule, the values of its variables, and a node for each body item.
"""

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


@dataclass(slots=True, eq=False)
class ProofNode:
    """A node of a proof: a fact or a test.

    Predicate, arguments and sign are those of the true atom; for an `absent` node those of the
    searched pattern; for a builtin its operator and values. `item` is the body item with its
    values, in rule syntax; None for a fact.

    `row` is the stored fact of an asserted node, if rows are requested. After `expand`, a derived
    node has its rule, the values of the rule's variables, and a premise for each body item in
    order; `depth` counts the rule steps below. If the rule aggregates, `aggregated` holds the
    inputs, and each input has such premises. `alternatives` is the number of other rule instances
    with the same conclusion; instances that depend on the same conclusions count once.
    """

    kind: str
    predicate: str
    args: Sequence[HeadTerm]
    positive: bool = True
    item: BodyItem | None = None
    row: Row | None = None
    depth: int = 0
    alternatives: int = 0
    instance: int = -1
    """The instance of the ground program that ends the proof, until it is expanded; then -1."""
    rule: StoredRule | None = None
    bindings: dict[str, str] | None = None
    premises: tuple[ProofNode, ...] = ()
    aggregated: AggregateInputs | None = None

    @property
    def atom(self) -> Atom:
        """The node's fact as an atom."""
        return Atom(self.predicate, tuple(self.args), self.positive)


@dataclass(frozen=True, slots=True)
class ProofContext:
    """The inputs that all proofs of a request in one partition share.

    At most `inputs` inputs of an aggregate are shown; without `rows` nodes have no stored rows.
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

    def without_rules(self) -> Proof:
        """Return a proof that uses no rule."""
        return self._proof(self._partition.bind)

    def proofs(
        self, schema: RelationSchema, answers: Sequence[Sequence[str]]
    ) -> Generator[tuple[ProofNode, Proof]]:
        """Yield for each answer (arguments of a stored schema) the top node and the proof that
        expands it.

        A proof can be expanded until the next is requested. Close the generator to free its run.
        """
        engine = self._tenant.engine
        goals, as_of = (schema,), self._as_of
        with (
            viewed(self._tenant, self._partition, self._rules, goals, self._budget, as_of) as view,
            closing(
                Witnesses(
                    engine, view.bind, view.statistics, self._budget.limits, self._budget.yield_now
                )
            ) as witnesses,
        ):
            for start in range(0, len(answers), ANSWERS_PER_RUN):
                batch = answers[start : start + ANSWERS_PER_RUN]
                rows = [tuple(engine.find(arg) for arg in args) for args in batch]
                if schema not in self._rules.derived:
                    self._budget.yield_now()
                    proof = self._proof(view.bind)
                    yield from ((proof.fact(schema, row), proof) for row in rows)
                    continue
                goal = self._context.reasoner.ground_plans.get(
                    view.rules, schema, "b" * schema.arity, view.denied, view.statistics
                )
                run = GroundRun(engine, goal, view.bind, self._budget.limits)
                try:
                    run.seed(array("I", [symbol for row in rows for symbol in row]), len(rows))
                    ground = self._ground(run)
                    lowest = shortest(engine, ground, self._budget.offload)
                    solved = Solved(
                        engine, run, ground, lowest, CompleteInstances(run, lowest, witnesses)
                    )
                    proof = self._proof(view.bind, solved)
                    answer = goal.plan.slots[goal.plan.answer]
                    yield from ((proof.fact(answer, row), proof) for row in rows)
                finally:
                    run.close()

    def _proof(self, bind: Bind, solved: Solved | None = None) -> Proof:
        return Proof(self._context, bind, solved)

    def _ground(self, run: GroundRun) -> Ground:
        """Step the run to its end and read the ground program; BudgetExceeded names the rule."""
        try:
            return run.read(self._budget.drive, self._budget.yield_now)
        except BudgetExceeded as error:
            raise naming_rule(error, self._rules.rules) from error


class Proof:
    """The proofs of answers from one ground program; each fact has a single shared node."""

    def __init__(self, context: ProofContext, bind: Bind, solved: Solved | None = None) -> None:
        self._context = context
        self._tenant = context.reasoner.tenant
        self._partition = context.partition
        self._budget = context.budget
        self._bind = bind
        self._solved = solved
        self._expanded = 0
        self._picker = (
            None
            if solved is None
            else BatchPicker(solved.ground, solved.shortest, solved.run.parts)
        )
        self._replays: dict[int, Replay] = {}
        self._steps: dict[int, Step | None] = {}
        self._facts: dict[RelationSchema, dict[Symbols, ProofNode]] = {}
        self._stored: dict[int, StoredRule] = {}

    def fact(self, schema: RelationSchema, row: Symbols) -> ProofNode:
        """Return the node of a fact.

        For a derived fact `schema` is its relation in the ground program.
        """
        node = self._table(schema).get(row)
        if node is None:
            (node,) = self._nodes(schema, [row], [self._tenant.engine.texts(array("I", row))])
        return node

    def expand(self, node: ProofNode) -> tuple[ProofNode, ...]:
        """Return the premises of a node, computed on the first call.

        Raises BudgetExceeded at the deadline.
        """
        solved, number = self._solved, node.instance
        self._expanded += 1
        if not self._expanded % EXPANSIONS_PER_REST:
            self._budget.yield_now()
        if number < 0 or solved is None:
            return node.premises
        replay = self._replays.get(number)
        if replay is None:
            self._replay(number, solved)
            replay = self._replays.get(number)
        node.instance = -1
        if replay is None:
            instance = solved.complete.instance(number)
            node.rule = self._rule(instance.source)
            self._explain_aggregate(node, node.rule.rule, instance, solved)
        else:
            node.rule, node.bindings, node.premises = replay
        return node.premises

    def shown(self, count: int) -> None:
        """Count nodes that go into the answer; raises BudgetExceeded if there are too many."""
        self._budget.show_nodes(count)

    def _rule(self, source: InstanceRelation) -> StoredRule:
        number = source.clause.rule
        if number not in self._stored:
            self._stored[number] = stored_rule(self._context.rules.rules[number - 1])
        return self._stored[number]

    def _replay(self, number: int, solved: Solved) -> None:
        """Replay a batch of instances that includes `number`, except those of aggregating rules."""
        self._budget.yield_now()
        batch = [] if self._picker is None else self._picker.pick(number)
        for block, places in parted(solved.run.blocks, batch):
            source, key = block.source, id(block.source)
            if key not in self._steps:
                self._steps[key] = step_of(source, self._rule(source), self._tenant.engine)
            step = self._steps[key]
            if step is not None:
                replays = self._replayed(
                    step, Columns(step, block, places, solved.complete, self._tenant.engine)
                )
                self._replays.update(
                    zip([block.start + index for index in places], replays, strict=True)
                )

    def _replayed(self, step: Step, columns: Columns) -> Iterator[Replay]:
        """Return the replays of the instances in the columns."""
        rule, source = step.rule.rule, step.source
        names = [str(variable) for variable, _ in step.names]
        bindings = list(
            map(dict, map(zip, repeat(names), columns.values([column for _, column in step.names])))
        )
        instances: list[tuple[Instance, Values]] = []
        if step.equations or not all(premise.atom for premise in step.premises):
            places = range(len(step.variables))
            symbol_rows = zip(columns.keys(places), columns.values(places), strict=True)
            for row, texts in self._budget.paced(symbol_rows, INSTANCES_PER_REST):
                values = values_of(rule, dict(zip(step.variables, texts, strict=True)))
                instances.append(
                    (Instance(source, dict(zip(step.variables, row, strict=True))), values)
                )
        if step.equations:
            variables = variables_of(rule)
            bindings = [
                {str(v): values[v] for v in variables if v in values} for _, values in instances
            ]
        premises: list[Sequence[ProofNode]] = []
        for premise in step.premises:
            if premise.atom is None:
                paced = self._budget.paced(instances, INSTANCES_PER_REST)
                premises.append([self._premise(premise.item, *instance) for instance in paced])
                continue
            schema, rows = premise.atom.schema, columns.keys(premise.places)
            facts = self._table(schema)
            pairs = zip(rows, columns.values(premise.places), strict=True)
            new = {row: args for row, args in pairs if row not in facts}
            if new:
                self._nodes(schema, list(new), list(new.values()))
            premises.append([facts[row] for row in rows])
        return zip(repeat(step.rule), bindings, zip(*premises, strict=True), strict=False)

    def _explain_aggregate(
        self, node: ProofNode, rule: Rule, instance: Instance, solved: Solved
    ) -> None:
        """Complete the node of a conclusion with aggregates from the bindings that they cover."""
        pairs = list(zip(rule.head.args, node.args, strict=True))
        node.bindings = {
            str(term): str(value) for term, value in pairs if isinstance(term, Variable)
        }
        folds = (
            f"{print_term(term)} = {value}" for term, value in pairs if isinstance(term, Aggregate)
        )
        # Some aggregates cover fewer variables; the largest group has the bindings of all of them.
        groups = (solved.chosen(instance, atom) for atom in instance.source.premises)
        members = max((solved.ground.of(group) for group in groups), key=len)
        inputs: list[dict[str, str]] = []
        premises: list[ProofNode] = []
        for member in members[: self._context.inputs]:
            bindings, below = self._gathered(rule, solved.gathered(member))
            inputs.append(bindings)
            premises.extend(below)
        node.aggregated = AggregateInputs(", ".join(folds), len(members), tuple(inputs))
        node.premises = tuple(premises)

    def _gathered(
        self, rule: Rule, instance: Instance
    ) -> tuple[dict[str, str], tuple[ProofNode, ...]]:
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
        return bindings, tuple(self._premise(item, instance, values) for item in rule.body)

    def _table(self, schema: RelationSchema) -> dict[Symbols, ProofNode]:
        """Return the existing nodes of a relation; stored and derived facts share one table."""
        facts = self._facts.get(schema)
        if facts is None:
            facts = self._facts[schema] = self._facts.setdefault(schema.stored, {})
        return facts

    def _nodes(
        self, schema: RelationSchema, rows: list[Symbols], args: Sequence[Sequence[str]]
    ) -> list[ProofNode]:
        """Create the nodes of facts from their symbols and texts."""
        stored, symbols = schema.stored, array("I", chain.from_iterable(rows))
        predicate, positive = stored.predicate, stored.positive
        if schema.role is Role.STORED or self._solved is None:
            nodes = asserted = [ProofNode(ASSERTED, predicate, texts, positive) for texts in args]
        else:
            shortest, nodes = self._solved.shortest, []
            heights, chosen, counts = shortest.heights, shortest.chosen, shortest.counts
            for texts, at in zip(
                args, self._solved.run.nodes(schema, symbols, len(rows)), strict=True
            ):
                height = heights[at]
                kind, instance = (DERIVED, chosen[at]) if height else (ASSERTED, -1)
                nodes.append(
                    ProofNode(
                        kind,
                        predicate,
                        texts,
                        positive,
                        None,
                        None,
                        height,
                        counts[at] - 1,
                        instance,
                    )
                )
            asserted = [node for node in nodes if not node.depth]
            symbols = array(
                "I",
                chain.from_iterable(
                    row for row, node in zip(rows, nodes, strict=True) if not node.depth
                ),
            )
        if self._context.rows and asserted:
            relation = self._partition.need(stored)
            stored_rows = relation.rows(
                self._tenant.engine, symbols, relation.relation.locate(symbols, len(asserted))
            )
            for node, stored_row in zip(asserted, stored_rows, strict=True):
                node.row = stored_row
        self._table(schema).update(zip(rows, nodes, strict=True))
        return nodes

    def _premise(self, item: BodyItem, instance: Instance, values: Values) -> ProofNode:
        if isinstance(item, Comparison):
            comparison = Comparison(
                item.op, filled(item.left, values), filled(item.right, values), item.negated
            )
            sides = (
                print_expression(side) if isinstance(side, Apply) else str(side)
                for side in (comparison.left, comparison.right)
            )
            return ProofNode(BUILTIN, item.op, tuple(sides), item=comparison)
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
                searched = Literal(Atom(schema.predicate, expected, schema.positive), negated=True)
                return ProofNode(ABSENT, schema.predicate, expected, schema.positive, item=searched)
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
