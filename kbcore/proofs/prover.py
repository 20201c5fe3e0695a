"""Proofs: why an answer holds, as nodes that are worked out when they are looked at.

A proof is read off a ground program (`kbplanner.evaluate.grounding`): each conclusion points to the instance
of a rule that ends its
lowest proof, whose premises are all lower, so that nothing supports itself. What is asserted needs no other proof, even
where a rule gives it as well.
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
    Columns,
    Lots,
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
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.ground import Ground
from kbplanner.engine.solved import shortest
from kbplanner.evaluate.evaluate import Bind, naming_rule
from kbplanner.evaluate.grounding import GroundPlans, GroundRun, Instance
from kbplanner.evaluate.witness import Complete, Witnesses
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

TOGETHER = 64
"""Answers proved by one run: their proofs share lemmas, but a run for very many could grow out of proportion."""

EXPANDED_AT_ONCE = 50
"""Nodes looked at between two rests, some tenths of a millisecond: each may have a dozen items below it to be shown."""

ONE_BY_ONE = 50
"""Items and values that have to be looked at for each instance, worked out between two rests: about a millisecond."""

Symbols = tuple[int, ...]

Replay: TypeAlias = "tuple[StoredRule, dict[str, str], tuple[ProofNode, ...]]"
"""What an instance of a rule says: the rule, the values of its variables, and a node for each item of its body."""

INPUTS = 10
"""Bindings that are shown of those an aggregate was taken over."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What aggregates of a conclusion were taken over: `rows` bindings, the first of which are `inputs`.

    Where nothing but the values of one variable matters, as for `count(?x)` and `min(?x)`, there is one for each value.
    `text` has the aggregates with their values.
    """

    text: str
    rows: int
    inputs: tuple[dict[str, str], ...]


@dataclass(slots=True, eq=False)
class ProofNode:
    """A fact, or a test, that a proof rests on.

    Predicate, arguments and sign are those of the atom that holds; for one that is `absent` of the pattern that was
    searched, for a builtin they are its operator and the values used. `item` is the body item with its values, as it would
    be written; None for a fact.
    `row` is the stored fact of an asserted one, where rows are shown. A derived one has its rule, the values of the rule's
    variables, and a premise for each item of the rule's body in its order, once `expand` was called; `depth` counts rule
    steps below. Where the rule aggregates, `taken` says over what, and there is such a premise for each of its inputs.
    `alternatives` says how many other instances of rules give the same; those that rest on the same conclusions count as
    one.
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
    """While not expanded: the instance of the ground program that ends its proof; else -1."""
    rule: StoredRule | None = None
    bindings: dict[str, str] | None = None
    premises: tuple[ProofNode, ...] = ()
    taken: Taken | None = None

    @property
    def atom(self) -> Atom:
        """What holds, as an atom."""
        return Atom(self.predicate, tuple(self.args), self.positive)


class Prover:
    """Proves answers in one partition under one set of rules, at one moment. The caller holds the tenant's read lock.

    At most `inputs` of what an aggregate is taken over are shown; without `rows` stored facts come as atoms alone.
    """

    def __init__(
        self,
        tenant: Tenant,
        plans: GroundPlans,
        partition: Partition,
        rules: RuleSet,
        budget: Budget,
        as_of: int | None,
        inputs: int = INPUTS,
        rows: bool = True,
    ) -> None:
        self._inputs = inputs
        self._rows = rows
        self._tenant = tenant
        self._plans = plans
        self._partition = partition
        self._rules = rules
        self._budget = budget
        self._as_of = as_of

    def nothing(self) -> Proof:
        """What expands a proof that rests on no rule."""
        return self._proof(self._partition.bind)

    def proofs(self, schema: RelationSchema, answers: Sequence[Sequence[str]]) -> Generator[tuple[ProofNode, Proof]]:
        """For each answer, ground arguments of a stored schema that hold, the top of its proof, and what expands it.

        A proof can be expanded until the next is asked for. To be closed: what it holds is given back then.
        """
        engine = self._tenant.engine
        goals, moment = (schema,), self._as_of
        with (
            viewed(self._tenant, self._partition, self._rules, goals, self._budget, moment) as view,
            closing(Witnesses(engine, view.bind, view.statistics, self._budget.limits, self._budget.rest)) as witnesses,
        ):
            for start in range(0, len(answers), TOGETHER):
                some = answers[start : start + TOGETHER]
                rows = [tuple(engine.find(arg) for arg in args) for args in some]
                if schema not in self._rules.derived:
                    self._budget.rest()
                    proof = self._proof(view.bind)
                    yield from ((proof.fact(schema, row), proof) for row in rows)
                    continue
                goal = self._plans.get(view.rules, schema, "b" * schema.arity, view.denied, view.statistics)
                run = GroundRun(engine, goal, view.bind, self._budget.limits)
                try:
                    run.seed(array("I", [symbol for row in rows for symbol in row]), len(rows))
                    ground = self._ground(run)
                    lowest = shortest(engine, ground, self._budget.via)
                    solved = Solved(engine, run, ground, lowest, Complete(run, lowest, witnesses))
                    proof = self._proof(view.bind, solved)
                    answer = goal.plan.slots[goal.plan.answer]
                    yield from ((proof.fact(answer, row), proof) for row in rows)
                finally:
                    run.close()

    def _proof(self, bind: Bind, solved: Solved | None = None) -> Proof:
        tenant, rules, budget = self._tenant, self._rules, self._budget
        return Proof(tenant, self._partition, rules, budget, bind, solved, self._inputs, self._rows)

    def _ground(self, run: GroundRun) -> Ground:
        """Run to the end and read; a budget that is met names the rule."""
        try:
            return run.read(self._budget.drive, self._budget.rest)
        except BudgetExceeded as error:
            raise naming_rule(error, self._rules.rules) from error


class Proof:
    """Proofs of some answers from one ground program; a fact has one node, however often it is used."""

    def __init__(
        self,
        tenant: Tenant,
        partition: Partition,
        rules: RuleSet,
        budget: Budget,
        bind: Bind,
        solved: Solved | None = None,
        inputs: int = INPUTS,
        rows: bool = True,
    ) -> None:
        self._inputs = inputs
        self._rows = rows
        self._tenant = tenant
        self._partition = partition
        self._rules = rules
        self._budget = budget
        self._bind = bind
        self._solved = solved
        self._expanded = 0
        self._lots = None if solved is None else Lots(solved.ground, solved.shortest, solved.run.parts)
        self._replays: dict[int, Replay] = {}
        self._steps: dict[int, Step | None] = {}
        self._facts: dict[RelationSchema, dict[Symbols, ProofNode]] = {}
        self._stored: dict[int, StoredRule] = {}

    def fact(self, schema: RelationSchema, row: Symbols) -> ProofNode:
        """The node of a fact that holds; of one that rules conclude, `schema` is its relation in the ground program."""
        found = self._table(schema).get(row)
        if found is None:
            (found,) = self._nodes(schema, [row], [self._tenant.engine.texts(array("I", row))])
        return found

    def expand(self, node: ProofNode) -> tuple[ProofNode, ...]:
        """Work out the premises of a node, if that was not done yet; raises BudgetExceeded when the time is over."""
        solved, number = self._solved, node.instance
        self._expanded += 1
        if not self._expanded % EXPANDED_AT_ONCE:
            self._budget.rest()
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
            self._take(node, node.rule.rule, instance, solved)
        else:
            node.rule, node.bindings, node.premises = replay
        return node.premises

    def shown(self, count: int) -> None:
        """Count nodes that go into the answer; raises BudgetExceeded where there are too many."""
        self._budget.show_nodes(count)

    def _rule(self, source: InstanceRelation) -> StoredRule:
        number = source.clause.rule
        if number not in self._stored:
            self._stored[number] = stored_rule(self._rules.rules[number - 1])
        return self._stored[number]

    def _replay(self, number: int, solved: Solved) -> None:
        """Replay an instance, unless its rule aggregates, and with it others of the proof."""
        self._budget.rest()
        picked = [] if self._lots is None else self._lots.pick(number)
        for block, places in parted(solved.run.blocks, picked):
            source, key = block.source, id(block.source)
            if key not in self._steps:
                self._steps[key] = step_of(source, self._rule(source), self._tenant.engine)
            step = self._steps[key]
            if step is not None:
                replays = self._replayed(step, Columns(step, block, places, solved.complete, self._tenant.engine))
                self._replays.update(zip([block.start + place for place in places], replays, strict=True))

    def _replayed(self, step: Step, columns: Columns) -> Iterator[Replay]:
        """Of each instance in the columns the rule, the values of its variables, and a node for each item of its body."""
        rule, source = step.rule.rule, step.source
        names = [str(variable) for variable, _ in step.names]
        bindings = list(map(dict, map(zip, repeat(names), columns.values([place for _, place in step.names]))))
        instances: list[tuple[Instance, Values]] = []
        if step.equations or not all(premise.atom for premise in step.premises):
            places = range(len(step.variables))
            both = zip(columns.keys(places), columns.values(places), strict=True)
            for row, texts in self._budget.paced(both, ONE_BY_ONE):
                values = values_of(rule, dict(zip(step.variables, texts, strict=True)))
                instances.append((Instance(source, dict(zip(step.variables, row, strict=True))), values))
        if step.equations:
            variables = variables_of(rule)
            bindings = [{str(v): values[v] for v in variables if v in values} for _, values in instances]
        premises: list[Sequence[ProofNode]] = []
        for premise in step.premises:
            if premise.atom is None:
                paced = self._budget.paced(instances, ONE_BY_ONE)
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

    def _take(self, node: ProofNode, rule: Rule, instance: Instance, solved: Solved) -> None:
        """Complete the node of a conclusion with aggregates from the bindings they were taken over."""
        pairs = list(zip(rule.head.args, node.args, strict=True))
        node.bindings = {str(term): str(value) for term, value in pairs if isinstance(term, Variable)}
        folds = (f"{print_term(term)} = {value}" for term, value in pairs if isinstance(term, Aggregate))
        # Aggregates may be taken over bindings of fewer variables; the most bindings are those of all.
        groups = (solved.chosen(instance, atom) for atom in instance.source.premises)
        members = max((solved.ground.of(group) for group in groups), key=len)
        inputs: list[dict[str, str]] = []
        premises: list[ProofNode] = []
        for member in members[: self._inputs]:
            bindings, below = self._gathered(rule, solved.gathered(member))
            inputs.append(bindings)
            premises.extend(below)
        node.taken = Taken(", ".join(folds), len(members), tuple(inputs))
        node.premises = tuple(premises)

    def _gathered(self, rule: Rule, instance: Instance) -> tuple[dict[str, str], tuple[ProofNode, ...]]:
        """The values of a rule's variables in an instance of its body, and a node for each item of it."""
        symbols = array("I", instance.binding.values())
        values = values_of(rule, dict(zip(instance.binding, self._tenant.engine.texts(symbols), strict=True)))
        bindings = {str(variable): values[variable] for variable in variables_of(rule) if variable in values}
        return bindings, tuple(self._premise(item, instance, values) for item in rule.body)

    def _table(self, schema: RelationSchema) -> dict[Symbols, ProofNode]:
        """The nodes of a relation so far: one table for what is stored and what rules conclude."""
        facts = self._facts.get(schema)
        if facts is None:
            facts = self._facts[schema] = self._facts.setdefault(schema.stored, {})
        return facts

    def _nodes(self, schema: RelationSchema, rows: list[Symbols], args: Sequence[Sequence[str]]) -> list[ProofNode]:
        """Make the nodes of facts that have none, given their symbols and texts."""
        stored, symbols = schema.stored, array("I", chain.from_iterable(rows))
        predicate, positive = stored.predicate, stored.positive
        if schema.role is Role.STORED or self._solved is None:
            nodes = told = [ProofNode(ASSERTED, predicate, texts, positive) for texts in args]
        else:
            shortest, nodes = self._solved.shortest, []
            heights, chosen, counts = shortest.heights, shortest.chosen, shortest.counts
            for texts, at in zip(args, self._solved.run.nodes(schema, symbols, len(rows)), strict=True):
                height = heights[at]
                kind, instance = (DERIVED, chosen[at]) if height else (ASSERTED, -1)
                nodes.append(ProofNode(kind, predicate, texts, positive, None, None, height, counts[at] - 1, instance))
            told = [node for node in nodes if not node.depth]
            symbols = array("I", chain.from_iterable(row for row, node in zip(rows, nodes, strict=True) if not node.depth))
        if self._rows and told:
            relation = self._partition.need(stored)
            shown = relation.rows(self._tenant.engine, symbols, relation.relation.locate(symbols, len(told)))
            for node, said in zip(told, shown, strict=True):
                node.row = said
        self._table(schema).update(zip(rows, nodes, strict=True))
        return nodes

    def _premise(self, item: BodyItem, instance: Instance, values: Values) -> ProofNode:
        if isinstance(item, Comparison):
            shown = Comparison(item.op, filled(item.left, values), filled(item.right, values), item.negated)
            sides = (print_expression(side) if isinstance(side, Apply) else str(side) for side in (shown.left, shown.right))
            return ProofNode(BUILTIN, item.op, tuple(sides), item=shown)
        only = standing_for(item, instance.source)
        if only is not None:
            symbols = self._row(only, instance)
            if 0 not in symbols:
                return self.fact(only.schema, symbols)
        wanted = with_values(item.atom.args, values)
        schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
        if item.negated:
            absent = (i for i in instance.source.whole.body if isinstance(i, ClauseAtom) and i.absent)
            if any(stands_for(atom, schema, wanted, values) for atom in absent):
                searched = Literal(Atom(schema.predicate, wanted, schema.positive), negated=True)
                return ProofNode(ABSENT, schema.predicate, wanted, schema.positive, item=searched)
            schema = schema.opposite
        found = next(a for a in instance.source.whole.atoms() if stands_for(a, schema, wanted, values))
        row = [self._tenant.engine.find(arg) if isinstance(arg, str) else 0 for arg in with_values(found.args, values)]
        if 0 in row:  # anonymous variables leave a choice of stored facts
            row = list(self._bind(found.schema).match(row, limit=1)[0])
        return self.fact(found.schema, tuple(row))

    def _row(self, atom: ClauseAtom, instance: Instance) -> Symbols:
        """The symbols of an atom's arguments in an instance, 0 for those that it does not bind."""
        binding, find = instance.binding, self._tenant.engine.find
        return tuple(find(arg) if isinstance(arg, str) else binding.get(arg, 0) for arg in atom.args)


def goal_prover(
    reasoner: Reasoner,
    partition: Partition,
    budget: Budget,
    as_of: int | None,
    inputs: int = INPUTS,
    rows: bool = True,
) -> Prover:
    """Return a prover for answers of literals in a partition.

    `inputs` bounds the bindings shown below an aggregate; `rows` says whether nodes carry stored rows.
    """
    rules = reasoner.tenant.rules.visible(partition.name)
    return Prover(reasoner.tenant, reasoner.ground_plans, partition, rules, budget, as_of, inputs, rows)


def body_prover(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    variables: Sequence[Variable],
    budget: Budget,
    as_of: int | None,
) -> tuple[Prover, Atom]:
    """Return a prover for the bindings for which a body holds, and the atom whose arguments they are."""
    rules, head = reasoner.body_rules(partition, body, variables)
    return Prover(reasoner.tenant, reasoner.ground_plans, partition, rules, budget, as_of), head
