"""Proofs: why an answer holds, as nodes that are worked out when they are looked at.

A proof is read off a ground program (`kbplanner.grounding`): each conclusion points to the instance of a rule that ends its
lowest proof, whose premises are all lower, so that nothing supports itself. What is asserted needs no other proof, even
where a rule gives it as well.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import Budget
from kbcore.reason.view import viewed
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.rulebook import StoredRule, stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.backend import Engine
from kbplanner.evaluate import Bind, naming_rule
from kbplanner.evaluated import value_of
from kbplanner.ground import Ground, Shortest
from kbplanner.grounding import GroundPlans, GroundRun, Instance
from kbplanner.printer import print_expression, print_term
from kbplanner.program import ClauseAtom
from kbplanner.rules import RuleSet
from kbplanner.schema import RelationSchema, Role
from kbplanner.solved import shortest
from kbplanner.terms import Aggregate, Apply, Atom, BodyItem, Comparison, Expr, HeadTerm, Literal, Rule, Term, Variable

ASSERTED, DERIVED, ABSENT, BUILTIN = "asserted", "derived", "absent", "builtin"

TOGETHER = 64
"""Answers proved by one run: their proofs share lemmas, but a run for very many could grow out of proportion."""

EXPANDED_AT_ONCE = 20
"""Nodes worked out between two rests: about a millisecond."""

Symbols = tuple[int, ...]

Values = dict[Variable, str]
"""The values of variables in an instance of a rule."""


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

    `atom` is the signed atom that holds; for one that is `absent` the pattern that was searched, for a builtin its
    operator with the values used. `item` is the body item with its values, as it would be written; None for a fact.
    `row` is the stored fact of an asserted one, where rows are shown. A derived one has its rule, the values of the rule's
    variables, and a premise for each item of the rule's body in its order, once `expand` was called; `depth` counts rule
    steps below. Where the rule aggregates, `taken` says over what, and there is such a premise for each of its inputs.
    `alternatives` says how many other instances of rules give the same.
    """

    kind: str
    atom: Atom
    item: BodyItem | None = None
    row: Row | None = None
    depth: int = 0
    rule: StoredRule | None = None
    bindings: dict[str, str] = field(default_factory=dict)
    premises: tuple[ProofNode, ...] = ()
    alternatives: int = 0
    taken: Taken | None = None
    instance: int = -1
    """While not expanded: the instance of the ground program that ends its proof; else -1."""


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
        with viewed(self._tenant, self._partition, self._rules, goals, self._budget, moment) as view:
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
                    solved = Solved(engine, run, ground, shortest(engine, ground, self._budget.via))
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


@dataclass(frozen=True, slots=True)
class Solved:
    """A finished run, the ground program read from it, and its shortest proofs."""

    engine: Engine
    run: GroundRun
    ground: Ground
    shortest: Shortest

    def chosen(self, instance: Instance, atom: ClauseAtom) -> int:
        """The number of the instance that gives a premise of another."""
        values = (instance.binding[arg] if isinstance(arg, Variable) else self.engine.find(str(arg)) for arg in atom.args)
        return self.shortest.chosen[self.run.nodes(atom.schema, array("I", values), 1)[0]]

    def gathered(self, binding: int) -> Instance:
        """The instance of the author's body behind a binding, which may be part of another one."""
        instance = self.run.instance(self.shortest.chosen[binding])
        while instance.source.premises and instance.source.premises[0].schema.role is Role.BINDINGS:
            instance = self.run.instance(self.chosen(instance, instance.source.premises[0]))
        return instance


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
        self._facts: dict[RelationSchema, dict[Symbols, ProofNode]] = {}
        self._stored: dict[int, StoredRule] = {}
        self._atoms: dict[tuple[int, int], tuple[BodyItem, ClauseAtom | None]] = {}

    def fact(self, schema: RelationSchema, row: Symbols) -> ProofNode:
        """The node of a fact that holds; of one that rules conclude, `schema` is its relation in the ground program."""
        facts = self._facts.get(schema)
        if facts is None:  # one table for what is stored and what rules conclude
            facts = self._facts[schema] = self._facts.setdefault(schema.stored, {})
        found = facts.get(row)
        if found is None:
            found = facts[row] = self._fact(schema, row)
        return found

    def expand(self, node: ProofNode) -> tuple[ProofNode, ...]:
        """Work out the premises of a node, if that was not done yet; raises BudgetExceeded when the time is over."""
        solved = self._solved
        self._expanded += 1
        if not self._expanded % EXPANDED_AT_ONCE:
            self._budget.rest()
        if node.instance < 0 or solved is None:
            return node.premises
        instance = solved.run.instance(node.instance)
        number = instance.source.clause.rule
        if number not in self._stored:
            self._stored[number] = stored_rule(self._rules.rules[number - 1])
        node.rule = self._stored[number]
        node.instance = -1
        if any(isinstance(arg, Aggregate) for arg in node.rule.rule.head.args):
            self._take(node, node.rule.rule, instance, solved)
        else:
            node.bindings, node.premises = self._replayed(node.rule.rule, instance)
        return node.premises

    def shown(self, count: int) -> None:
        """Count nodes that go into the answer; raises BudgetExceeded where there are too many."""
        self._budget.show_nodes(count)

    def _replayed(self, rule: Rule, instance: Instance) -> tuple[dict[str, str], tuple[ProofNode, ...]]:
        """The values of a rule's variables in an instance, and a node for each item of its body."""
        symbols = array("I", instance.binding.values())
        values = _values(rule, dict(zip(instance.binding, self._tenant.engine.texts(symbols), strict=True)))
        variables = dict.fromkeys(v for part in (rule.head, *rule.body) for v in part.variables() if not v.anonymous)
        bindings = {str(variable): values[variable] for variable in variables if variable in values}
        return bindings, tuple(self._premise(item, instance, values) for item in rule.body)

    def _take(self, node: ProofNode, rule: Rule, instance: Instance, solved: Solved) -> None:
        """Complete the node of a conclusion with aggregates from the bindings they were taken over."""
        pairs = list(zip(rule.head.args, node.atom.args, strict=True))
        node.bindings = {str(term): str(value) for term, value in pairs if isinstance(term, Variable)}
        folds = (f"{print_term(term)} = {value}" for term, value in pairs if isinstance(term, Aggregate))
        # Aggregates may be taken over bindings of fewer variables; the most bindings are those of all.
        groups = (solved.chosen(instance, atom) for atom in instance.source.premises)
        members = max((solved.ground.of(group) for group in groups), key=len)
        inputs: list[dict[str, str]] = []
        premises: list[ProofNode] = []
        for member in members[: self._inputs]:
            bindings, below = self._replayed(rule, solved.gathered(member))
            inputs.append(bindings)
            premises.extend(below)
        node.taken = Taken(", ".join(folds), len(members), tuple(inputs))
        node.premises = tuple(premises)

    def _fact(self, schema: RelationSchema, row: Symbols) -> ProofNode:
        stored = schema.stored
        symbols = array("I", row)
        atom = Atom(stored.predicate, tuple(self._tenant.engine.texts(symbols)), stored.positive)
        alternatives = 0
        if schema.role is not Role.STORED and self._solved is not None:
            number, shortest = self._solved.run.nodes(schema, symbols, 1)[0], self._solved.shortest
            height = shortest.heights[number]
            alternatives = shortest.counts[number] - 1
            if height:
                chosen = shortest.chosen[number]
                return ProofNode(DERIVED, atom, depth=height, alternatives=alternatives, instance=chosen)
        if not self._rows:
            return ProofNode(ASSERTED, atom, alternatives=alternatives)
        relation = self._partition.need(stored)
        shown = relation.rows(self._tenant.engine, symbols, relation.relation.locate(symbols, 1))
        return ProofNode(ASSERTED, atom, row=shown[0], alternatives=alternatives)

    def _premise(self, item: BodyItem, instance: Instance, values: Values) -> ProofNode:
        if isinstance(item, Comparison):
            shown = Comparison(item.op, _filled(item.left, values), _filled(item.right, values), item.negated)
            sides = (print_expression(side) if isinstance(side, Apply) else str(side) for side in (shown.left, shown.right))
            return ProofNode(BUILTIN, Atom(item.op, tuple(sides)), item=shown)
        only = self._only(item, instance)
        if only is not None:
            symbols = self._row(only, instance)
            if 0 not in symbols:
                return self.fact(only.schema, symbols)
        wanted = _ground(item.atom.args, values)
        schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
        if item.negated:
            absent = (i for i in instance.source.clause.body if isinstance(i, ClauseAtom) and i.absent)
            if any(_stands_for(atom, schema, wanted, values) for atom in absent):
                searched = Atom(schema.predicate, wanted, schema.positive)
                return ProofNode(ABSENT, searched, item=Literal(searched, negated=True))
            schema = schema.opposite
        found = next(a for a in instance.source.clause.atoms() if _stands_for(a, schema, wanted, values))
        row = [self._tenant.engine.find(arg) if isinstance(arg, str) else 0 for arg in _ground(found.args, values)]
        if 0 in row:  # anonymous variables leave a choice of stored facts
            row = list(self._bind(found.schema).match(row, limit=1)[0])
        return self.fact(found.schema, tuple(row))

    def _only(self, item: Literal, instance: Instance) -> ClauseAtom | None:
        """The atom of an instance's clause that stands for an item, where whatever the values there can be no other."""
        key = id(instance.source), id(item)
        if key not in self._atoms:
            schema = RelationSchema(item.atom.predicate, item.atom.arity, item.atom.positive)
            found = [] if item.negated else [a for a in instance.source.clause.atoms() if _is_of(a, schema)]
            same = next((atom for atom in found if atom.args == item.atom.args), None)
            only = found[0] if len(found) == 1 else same
            self._atoms[key] = item, only  # the item is kept, so that its id stays its own
        return self._atoms[key][1]

    def _row(self, atom: ClauseAtom, instance: Instance) -> Symbols:
        """The symbols of an atom's arguments in an instance, 0 for those that it does not bind."""
        binding, find = instance.binding, self._tenant.engine.find
        return tuple(find(arg) if isinstance(arg, str) else binding.get(arg, 0) for arg in atom.args)


def _values(rule: Rule, known: Values) -> Values:
    """Add the variables that the rule sets equal to others or computes: in its clause they need not appear."""
    equations = [i for i in rule.body if isinstance(i, Comparison) and i.op in ("=", "==") and not i.negated]
    grown = True
    while grown:
        grown = False
        for item in equations:
            for variable, value in ((item.left, item.right), (item.right, item.left)):
                if not isinstance(variable, Variable) or variable in known:
                    continue
                given = value_of(value, {v.name: text for v, text in known.items()})
                if given is not None:
                    known[variable] = given
                    grown = True
    return known


def _ground(args: Sequence[HeadTerm], values: Values) -> tuple[Term, ...]:
    """Terms with their values; anonymous variables stay."""
    terms = (arg for arg in args if not isinstance(arg, Aggregate))
    return tuple(values.get(term, term) if isinstance(term, Variable) else term for term in terms)


def _filled(expr: Expr, values: Values) -> Expr:
    if isinstance(expr, Apply):
        return Apply(expr.function, tuple(_filled(arg, values) for arg in expr.args))
    return values.get(expr, expr) if isinstance(expr, Variable) else expr


def _is_of(atom: ClauseAtom, schema: RelationSchema) -> bool:
    """Whether a clause's atom reads what is stored or concluded of a relation."""
    return atom.schema.role in (Role.STORED, Role.DERIVED, Role.UNDENIED) and atom.schema.stored == schema


def _stands_for(atom: ClauseAtom, schema: RelationSchema, wanted: Sequence[Term], values: Values) -> bool:
    """Whether a clause's atom is what became of a rule's, given as the relation and the arguments with their values."""
    if not _is_of(atom, schema):
        return False
    found = _ground(atom.args, values)
    return all(isinstance(want, Variable) or want == have for want, have in zip(wanted, found, strict=True))
