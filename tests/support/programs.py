"""Hypothesis strategies for small safe programs, facts and goals, and a harness to evaluate
them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import Engine, Relation, RunLimits, RunState, Steps
from kbplanner.evaluate.evaluate import (
    GoalRun,
    PlanCache,
    adornment_of,
    goal_equalities,
    goal_pattern,
)
from kbplanner.evaluate.settle import Models, View
from kbplanner.ir.conditions import generator
from kbplanner.ir.operators import COMPARISONS, SUBSTRING_TESTS
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Literal,
    Rule,
    Variable,
)
from kbplanner.passes.wellfounded import POSSIBLE
from kbplanner.syntax.parser import parse_rule
from support import naive

PLENTY = RunLimits()


@dataclass(frozen=True, slots=True)
class Slices:
    """A run budget without limits: runs go on in slices of `fuel`."""

    fuel: int
    limits: RunLimits = PLENTY
    now: int | None = None
    offload: None = None

    def yield_now(self) -> None:
        pass

    def check_answers(self, count: int) -> None:
        pass

    def work(self, run: Steps) -> None:
        while run.step(self.fuel) is not RunState.DONE:
            pass

    def finish(self, run: Steps) -> None:
        self.work(run)


CONSTANTS = ["a", "b", "c", "1", "2", "10", "1.0"]
ODD_CONSTANTS = [
    "1e0",
    "01",
    "98765432109876543210",
    "98765432109876543211",
    "98765432109876543210.0",
]
ODD_CONSTANTS += ["2026-05-01", "2026-05-01T02:00+02:00"]
"""Constants that are equal, different or ordered only by exact value, by time, or as text."""
BASE = [("e", 2), ("f", 2), ("n", 1), ("t", 3), ("flag", 0)]
DERIVED = [("p", 2), ("q", 2), ("r", 1), ("s", 3), ("on", 0)]
VARIABLES = [Variable(name) for name in "xyzw"]

constants = st.sampled_from([*CONSTANTS, *CONSTANTS, *ODD_CONSTANTS])
predicates = st.sampled_from(BASE + DERIVED + DERIVED)


@st.composite
def facts(draw, signs: bool = True):
    name, arity = draw(st.sampled_from(BASE + BASE + DERIVED))
    args = tuple(draw(constants) for _ in range(arity))
    positive = draw(st.sampled_from([True, True, True, not signs]))
    return Atom(name, args, positive)


MANY_VARIABLES = [Variable(name) for name in "xyzuvw"]


@st.composite
def wide_rules(draw):
    """Rules most of whose variables the head does not have: bodies of parts that have little to do
    with each other.
    """
    body = []
    for _ in range(draw(st.integers(2, 4))):
        name, arity = draw(st.sampled_from([*BASE[:3], *DERIVED[:3], *DERIVED[:3], ("on", 0)]))
        args = [
            draw(st.sampled_from([*MANY_VARIABLES, *MANY_VARIABLES, ANONYMOUS, "a"]))
            for _ in range(arity)
        ]
        body.append(Literal(Atom(name, tuple(args))))
    bound = [v for v in MANY_VARIABLES if any(v in item.variables() for item in body)]
    terms = st.sampled_from([*bound, "a", "2"])
    if draw(st.integers(0, 2)) == 0:
        body.append(
            Comparison(
                draw(st.sampled_from(COMPARISONS)), draw(terms), draw(terms), draw(st.booleans())
            )
        )
    if draw(st.integers(0, 3)) == 0:
        result = Variable("made")
        body.append(
            Comparison("=", result, draw(st.sampled_from(SHAPES))(draw(terms), draw(terms)))
        )
        bound.append(result)
    if draw(st.integers(0, 2)) == 0:
        name, arity = draw(st.sampled_from([*BASE[:3], *DERIVED[:3]]))
        args = [draw(st.sampled_from([*bound, ANONYMOUS, "b"])) for _ in range(arity)]
        body.append(Literal(Atom(name, tuple(args), draw(st.booleans())), negated=True))
    name, arity = draw(st.sampled_from([("r", 1), ("r", 1), ("on", 0), ("p", 2)]))
    args = [draw(st.sampled_from([*bound, *bound, "a"])) for _ in range(arity)]
    return Rule(Atom(name, tuple(args)), tuple(draw(st.permutations(body))))


SHAPES = [
    lambda a, b: Apply("mod", (Apply("+", (a, b)), "3")),
    lambda a, b: Apply("mod", (Apply("*", (a, b)), "4")),
    lambda a, b: Apply("mod", (Apply("length", (Apply("concat", (a, b)),)), "3")),
    lambda a, b: Apply("min", (a, b)),
    lambda a, b: Apply("max", (a, Apply("abs", (b,)))),
    lambda a, b: Apply("div", (a, "2")),
    lambda a, b: Apply("upper", (a,)),
    lambda a, b: Apply("round", (a,)),
    lambda a, b: Apply("substring", (Apply("concat", (a, b)), "1", "1")),
    lambda a, b: Apply("replace", (a, b, "1")),
    lambda a, b: Apply("capture", (Apply("join", ("a", a, b)), "([a-c])(1?)", "2")),
]
"""Expressions of which no recursion makes values without end."""


def generators(terms):
    """Calls of generators, with at most four values each."""
    return st.one_of(
        st.lists(terms, min_size=1, max_size=3).map(lambda args: Apply("member", tuple(args))),
        st.tuples(st.sampled_from(["0", "1", "-1"]), st.sampled_from(["2", "3"])).map(
            lambda args: Apply("range", args)
        ),
        terms.map(lambda end: Apply("range", ("0", Apply("min", (end, "3"))))),
        st.tuples(terms, terms).map(
            lambda args: Apply("split", (Apply("join", ("1", *args)), args[1]))
        ),
    )


@st.composite
def computing_rules(draw, generating: bool = True):
    """Rules with expressions, tests of strings, perhaps generators, and sometimes aggregates."""
    body = []
    for _ in range(draw(st.integers(1, 2))):
        name, arity = draw(st.sampled_from([*BASE[:4], *BASE[:3], *DERIVED[:4]]))
        args = draw(st.permutations(VARIABLES))[:arity]
        if draw(st.integers(0, 5)) == 0:
            args = [draw(st.sampled_from([*args, ANONYMOUS, "1"])) for _ in args]
        body.append(Literal(Atom(name, tuple(args))))
    bound = [v for v in VARIABLES if any(v in item.variables() for item in body)]
    terms = st.sampled_from([*bound, *bound, *bound, "1", "a", "2"])
    values = st.one_of(
        terms, st.builds(lambda shape, a, b: shape(a, b), st.sampled_from(SHAPES), terms, terms)
    )
    made = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.integers(0, 7 if generating else 5))
        if kind > 5:
            element = draw(st.sampled_from([*made, *bound, Variable(f"made{len(made)}")]))
            if element not in (*made, *bound):
                made.append(element)
            body.append(generator(draw(generators(terms)), element, False))
            if draw(st.integers(0, 2)) == 0:
                body.append(generator(draw(generators(terms)), element, draw(st.booleans())))
        elif kind == 0:
            body.append(
                Comparison(
                    draw(st.sampled_from(COMPARISONS)),
                    draw(values),
                    draw(values),
                    draw(st.booleans()),
                )
            )
        elif kind == 1:
            body.append(
                Comparison(
                    draw(st.sampled_from(SUBSTRING_TESTS)),
                    draw(values),
                    draw(values),
                    draw(st.booleans()),
                )
            )
        else:
            made.append(Variable(f"made{len(made)}"))
            body.append(Comparison("=", made[-1], draw(values)))
            if draw(st.integers(0, 3)) == 0:  # joined with what is stored or derived
                name, arity = draw(predicates.filter(lambda one: one[1] > 0))
                args = (
                    made[-1],
                    *(
                        draw(st.sampled_from([*bound, ANONYMOUS])) if bound else "1"
                        for _ in range(arity - 1)
                    ),
                )
                body.append(Literal(Atom(name, args), draw(st.integers(0, 2)) == 0))
    known = [*bound, *made] or ["a"]
    name, arity = draw(st.sampled_from(DERIVED[:4]))
    args = [draw(st.sampled_from([*known, *made])) for _ in range(arity)]
    if any(isinstance(one, Variable) for one in known) and draw(st.integers(0, 2)) == 0:
        for _ in range(draw(st.integers(1, 2))):
            function = draw(st.sampled_from(["count", "sum", "sum", "min", "max", "avg", "*"]))
            one = (
                Aggregate("count", None)
                if function == "*"
                else Aggregate(function, draw(st.sampled_from(known)))
            )
            args[draw(st.integers(0, arity - 1))] = one
    return Rule(
        Atom(name, tuple(args), draw(st.sampled_from([True] * 5 + [False]))),
        tuple(draw(st.permutations(body))),
    )


@st.composite
def rules(draw, signs: bool = True, negation: bool = True):
    body = []
    for _ in range(draw(st.integers(1, 3))):
        name, arity = draw(predicates)
        args = tuple(
            draw(st.sampled_from([*VARIABLES, *VARIABLES, ANONYMOUS, "a", "1"]))
            for _ in range(arity)
        )
        body.append(Literal(Atom(name, args, draw(st.sampled_from([True] * 5 + [not signs])))))
    bound = [v for v in VARIABLES if any(v in item.variables() for item in body)]
    terms = st.sampled_from([*bound, *bound, "a", "b"])
    if negation and draw(st.booleans()):
        name, arity = draw(predicates)
        args = tuple(draw(st.one_of(terms, st.just(ANONYMOUS))) for _ in range(arity))
        body.append(
            Literal(
                Atom(name, args, draw(st.sampled_from([True, True, True, not signs]))), negated=True
            )
        )
    if draw(st.integers(0, 3)) == 0:
        body.append(
            Comparison(
                draw(st.sampled_from(COMPARISONS)), draw(terms), draw(terms), draw(st.booleans())
            )
        )
    if draw(st.integers(0, 5)) == 0:
        name = Variable("named")
        body.append(Comparison("=", name, draw(terms)))
        terms = st.sampled_from([*bound, name])
    name, arity = draw(st.sampled_from(DERIVED))
    head = Atom(
        name,
        tuple(draw(terms) for _ in range(arity)),
        draw(st.sampled_from([True] * 5 + [not signs])),
    )
    return Rule(head, tuple(draw(st.permutations(body))))


@st.composite
def goals(draw):
    name, arity = draw(st.sampled_from(DERIVED))
    args = tuple(
        draw(st.sampled_from([*VARIABLES[:2], ANONYMOUS, *CONSTANTS[:4]])) for _ in range(arity)
    )
    return Atom(name, args, draw(st.sampled_from([True] * 5 + [False])))


class World:
    """Facts in an engine and goals asked with plans, as kbcore does it but without goal tables
    unless kept.
    """

    def __init__(self, engine: Engine, rules: RuleSet) -> None:
        self.engine = engine
        self.rules = rules
        self.relations: dict[RelationSchema, Relation] = {}
        self.cache = PlanCache(engine)
        self.kept: dict[tuple, GoalRun] = {}
        self.models = Models(engine)
        self.version = 0

    def bind(self, schema: RelationSchema) -> Relation:
        if schema not in self.relations:
            self.relations[schema] = self.engine.relation(schema.arity)
        return self.relations[schema]

    def rows(self, schema: RelationSchema) -> int:
        return self.bind(schema).counts().visible

    def distinct(self, schema: RelationSchema, columns) -> int:
        return self.bind(schema).distinct(columns)

    def row(self, atom: Atom) -> tuple[Relation, array]:
        relation = self.bind(RelationSchema(atom.predicate, atom.arity, atom.positive))
        return relation, self.engine.intern_many(atom.args)

    def tell(self, atoms: Iterable[Atom]) -> None:
        for atom in atoms:
            relation, row = self.row(atom)
            relation.insert(row, 1)
            self.version += 1

    def retract(self, atom: Atom) -> None:
        relation, row = self.row(atom)
        relation.delete(row, 1)
        self.version += 1

    def ask(
        self,
        goal: Atom,
        *,
        keep: bool = False,
        fuel: int = 10_000,
        possible: bool = False,
        limits: RunLimits = PLENTY,
        now: int | None = None,
    ) -> set[tuple[str, ...]]:
        schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
        pattern = goal_pattern(goal.args, self.engine.intern)
        assert pattern is not None
        if schema not in self.rules.derived:
            rows, ids = self.bind(schema).match(pattern)
            return self._texts(rows, len(ids), goal.arity)
        denied = frozenset(s for s in self.rules.deniable if self.rows(s))
        budget = Slices(fuel, limits, now)
        facts = View(self.rules, denied, self.bind, self)
        version = self.version if keep else -1
        with self.models.view(facts, (schema,), budget, version=version) as view:
            if possible and view.rules.uncertain(denied, schema):
                schema = replace(schema, truth=POSSIBLE)
            schema = replace(schema, restrictions=goal_equalities(pattern))
            compiled = self.cache.get(
                view.rules, schema, adornment_of(goal.args), denied, view.statistics
            )
            return self._ask(goal, pattern, compiled, view.bind, budget, keep)

    def _ask(
        self, goal, pattern, compiled, bind, budget: Slices, keep: bool
    ) -> set[tuple[str, ...]]:
        key = (id(compiled), None if not compiled.plan.one_seed else tuple(pattern))
        run = self.kept.pop(key, None)
        if run is not None and run.run.check() is RunState.STALE:
            run.close()
            run = None
        if run is None:
            run = GoalRun(self.engine, compiled, bind, budget.limits, budget.now)
        answers = run.ask(pattern, budget)
        assert answers is not None
        rows, count = answers
        found = self._texts(rows, count, goal.arity)
        if keep:
            self.kept[key] = run
        else:
            run.close()
        return found

    def _texts(self, rows: array, count: int, arity: int) -> set[tuple[str, ...]]:
        texts = self.engine.texts(rows)
        return {tuple(texts[i * arity : (i + 1) * arity]) for i in range(count)}


def check_history(
    engine: Engine,
    texts: Iterable[str],
    begin: Sequence[Atom],
    steps: Iterable[tuple[str, Atom, Atom]],
    *,
    keep: bool,
    fuel: int,
) -> None:
    """Compare the answers of a goal with the naive evaluator after each step.

    A step is a verb (`tell`, `retract` or `ask`), the fact to tell, and the goal. `retract` takes
    one of the present facts.
    """
    rules = [parse_rule(text) for text in texts]
    world = World(engine, RuleSet(rules))
    world.tell(begin)
    present = list(dict.fromkeys(begin))
    for verb, fact, goal in steps:
        if verb == "tell":
            world.tell([fact])
            present = list(dict.fromkeys([*present, fact]))
        elif verb == "retract" and present:
            world.retract(present.pop(len(present) // 2))
        expected = naive.answers(naive.model(rules, present), goal)
        assert world.ask(goal, keep=keep, fuel=fuel) == expected
