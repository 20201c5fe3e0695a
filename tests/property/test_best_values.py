"""Best-value predicates: both engines against the naive evaluator and direct algorithms, with
retractions in between.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.inherited_confidence import Oracle, Told
from support.proofs import Checker
from support.reference.engine import ReferenceEngine
from support.runtimes import runtime_on

from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs.shapes import ProofOptions
from kbcore.state.facts import Fact
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded
from kbplanner.evaluate.evaluate import GoalRun
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_rule

from .test_why_not import ALL
from .test_why_not import World as Truths
from .test_why_not import check as check_why_not

NUMBER = count()
ENGINES = {"reference": ReferenceEngine, "c": Engine}

SHORTEST = (
    "dist(?x, min ?d) :- start(?x), ?d = 0.",
    "dist(?y, min ?d) :- dist(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.",
)
ALL_PAIRS = (
    "path(?x, ?y, min ?d) :- edge(?x, ?y, ?d).",
    "path(?x, ?z, min ?d) :- path(?x, ?y, ?e), path(?y, ?z, ?f), ?d = ?e + ?f.",
)
RIGHT_LINEAR = (
    "path(?x, ?y, min ?d) :- edge(?x, ?y, ?d).",
    "path(?x, ?z, min ?d) :- edge(?x, ?y, ?w), path(?y, ?z, ?e), ?d = ?w + ?e.",
)
WIDEST = (
    "wide(?x, max ?c) :- start(?x), ?c = 1000.",
    "wide(?y, max ?c) :- wide(?x, ?e), edge(?x, ?y, ?w), ?c = min(?e, ?w).",
)
MINIMAX = (
    "least_top(?x, ?y, min ?m) :- edge(?x, ?y, ?m).",
    "least_top(?x, ?z, min ?m) :- least_top(?x, ?y, ?e), edge(?y, ?z, ?w), ?m = max(?e, ?w).",
)
EARLIEST = (
    "arrival(?x, min ?t) :- start(?x), ?t = 0.",
    "arrival(?y, min ?t) :- arrival(?x, ?s), trip(?x, ?y, ?from, ?t), ?s <= ?from, ?s <= ?t.",
)
LABELS = (
    "class(?x, min ?n) :- node(?x, ?n).",
    "class(?y, min ?n) :- class(?x, ?n), edge(?x, ?y, _).",
)
MUTUAL = (
    "even(?x, min ?d) :- start(?x), ?d = 0.",
    "odd(?y, min ?d) :- even(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.",
    "even(?y, min ?d) :- odd(?x, ?e), edge(?x, ?y, ?w), ?d = ?e + ?w.",
)
READERS = (
    "near(?x) :- dist(?x, ?d), ?d < 7.",
    "unreached(?x) :- edge(?x, _, _), not dist(?x, _).",
    "total(sum(?d)) :- dist(_, ?d).",
    "link(?x, ?y, ?w) :- edge(?x, ?y, ?w), not closed(?x).",
    "detour(?y, min ?d) :- start(?y), ?d = 0.",
    "detour(?y, min ?d) :- detour(?x, ?e), link(?x, ?y, ?w), ?d = ?e + ?w, ?d <= 12.",
)
PROGRAMS = {
    "shortest": (SHORTEST, "dist", 2),
    "all pairs": (ALL_PAIRS, "path", 3),
    "right linear": (RIGHT_LINEAR, "path", 3),
    "widest": (WIDEST, "wide", 2),
    "minimax": (MINIMAX, "least_top", 3),
    "earliest": (EARLIEST, "arrival", 2),
    "labels": (LABELS, "class", 2),
    "mutual": (MUTUAL, "odd", 2),
    "readers": ((*SHORTEST, *READERS), "detour", 2),
}

NODES = "abcdef"
nodes = st.sampled_from(NODES)
weights = st.sampled_from(["0", "1", "2", "3", "5", "8", "2.5", "0.5", "2.0", "1e0", "heavy"])


def atom(name: str, *args: object) -> Atom:
    return Atom(name, tuple(map(str, args)))


facts = st.one_of(
    st.builds(lambda x, y, w: atom("edge", x, y, w), nodes, nodes, weights),
    st.builds(lambda x, y, w: atom("edge", x, y, w), nodes, nodes, weights),
    st.builds(lambda x, y, w: atom("edge", x, y, w), nodes, nodes, weights),
    st.builds(lambda x: atom("start", x), nodes),
    st.builds(lambda x, n: atom("node", x, n), nodes, weights),
    st.builds(lambda x: atom("closed", x), nodes),
    st.builds(
        lambda x, y, t, u: atom("trip", x, y, t, u),
        nodes,
        nodes,
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.builds(lambda x, w: atom("dist", x, w), nodes, weights),
    st.builds(lambda x, y, w: atom("path", x, y, w), nodes, nodes, weights),
    st.builds(lambda x, w: atom("wide", x, w), nodes, weights),
)


def goals(name: str, arity: int) -> st.SearchStrategy[Atom]:
    terms = st.one_of(st.just(Variable("v")), nodes)
    value = st.one_of(st.just(Variable("value")), weights)
    return st.builds(
        lambda group, last: Atom(name, (*dict_of(group), last)),
        st.lists(terms, min_size=arity - 1, max_size=arity - 1),
        value,
    )


def dict_of(group: list) -> list:
    """Give each variable a name of its own."""
    return [Variable(f"v{i}") if isinstance(arg, Variable) else arg for i, arg in enumerate(group)]


@st.composite
def histories(draw):
    rules, name, arity = draw(st.sampled_from(sorted(PROGRAMS.values())))
    begin = draw(st.lists(facts, min_size=4, max_size=20))
    verbs = st.sampled_from(["tell", "retract", "ask", "ask"])
    steps = draw(st.lists(st.tuples(verbs, facts, goals(name, arity)), min_size=2, max_size=10))
    return rules, begin, steps


@pytest.mark.parametrize("name", ENGINES)
@examples(400)
@given(histories(), st.booleans(), st.sampled_from([1, 7, 10_000]))
def test_goals_have_the_best_values(name, history, keep, fuel):
    texts, begin, steps = history
    programs.check_history(ENGINES[name](), texts, begin, steps, keep=keep, fuel=fuel)


def dijkstra(edges: Iterable[tuple[str, str, float]], start: str) -> dict[str, float]:
    out: dict[str, list[tuple[str, float]]] = {}
    for x, y, w in edges:
        out.setdefault(x, []).append((y, w))
    best: dict[str, float] = {}
    queue = [(0, start)]
    while queue:
        d, x = heapq.heappop(queue)
        if x not in best:
            best[x] = d
            for y, w in out.get(x, ()):
                heapq.heappush(queue, (d + w, y))
    return best


graphs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 1000)), max_size=200
)


@pytest.mark.parametrize("name", ENGINES)
@examples(60)
@given(st.lists(graphs, min_size=2, max_size=5), st.integers(0, 40), st.sampled_from([5, 10_000]))
def test_tables_continue_from_new_facts(name, parts, target, fuel):
    """New edges improve the distances that a table has; only a retraction makes it stale."""
    world = programs.World(ENGINES[name](), RuleSet(map(parse_rule, SHORTEST)))
    world.tell([atom("start", "n0"), atom("edge", "n0", f"n{target}", 100_000)])
    edges = [("n0", f"n{target}", 100_000)]
    whole, one = (Atom("dist", (x, Variable("d"))) for x in (Variable("x"), f"n{target}"))
    for number, part in enumerate(parts):
        new = [(f"n{x}", f"n{y}", w) for x, y, w in part]
        world.tell(atom("edge", *edge) for edge in new)
        edges += new
        expected = dijkstra(edges, "n0")
        before = dict(world.kept)
        states = {key: run.run.check() for key, run in before.items()}
        assert RunState.STALE not in states.values()
        assert len(states) == (2 if number else 0)
        assert world.ask(whole, keep=True, fuel=fuel) == {(x, str(d)) for x, d in expected.items()}
        assert world.ask(one, keep=True, fuel=fuel) == {(f"n{target}", str(expected[f"n{target}"]))}
        assert all(world.kept[key] is run for key, run in before.items())
    gone = next(edge for edge in edges if edge[1] == f"n{target}")
    world.retract(atom("edge", *gone))
    rest = dijkstra([edge for edge in edges if edge != gone], "n0")
    assert world.ask(whole, keep=True) == {(x, str(d)) for x, d in rest.items()}


def test_a_table_with_readers_of_best_values_is_computed_again():
    """Conclusions from a replaced value would stay."""
    rules = (*SHORTEST, "far(?x) :- dist(?x, ?d), ?d > 5.", "worst(max ?d) :- dist(_, ?d).")
    world = programs.World(Engine(), RuleSet(map(parse_rule, rules)))
    world.tell([atom("start", "a"), atom("edge", "a", "b", 9)])
    far, worst = Atom("far", (Variable("x"),)), Atom("worst", (Variable("d"),))
    assert world.ask(far, keep=True) == {("b",)}
    assert world.ask(worst, keep=True) == {("9",)}
    world.tell([atom("edge", "a", "b", 2)])
    assert {run.run.check() for run in world.kept.values()} == {RunState.STALE}
    assert world.ask(far, keep=True) == set()
    assert world.ask(worst, keep=True) == {("2",)}


def bellman_ford(edges: list[tuple[str, str, int]], start: str) -> dict[str, int] | None:
    """The least distances; None with a negative cycle within reach."""
    best = {start: 0}
    names = {x for x, _, _ in edges} | {y for _, y, _ in edges} | {start}
    for number in range(len(names) + 1):
        before = dict(best)
        for x, y, w in edges:
            if x in best and best[x] + w < best.get(y, best[x] + w + 1):
                best[y] = best[x] + w
        if best == before:
            return best
        if number == len(names):
            return None
    return best


@pytest.mark.parametrize("name", ENGINES)
@examples(60)
@given(graphs)
def test_distances_are_those_of_dijkstra(name, graph):
    world = programs.World(ENGINES[name](), RuleSet(map(parse_rule, SHORTEST)))
    world.tell([atom("start", "n0"), *(atom("edge", f"n{x}", f"n{y}", w) for x, y, w in graph)])
    found = world.ask(Atom("dist", (Variable("x"), Variable("d"))))
    expected = dijkstra([(f"n{x}", f"n{y}", w) for x, y, w in graph], "n0")
    assert found == {(x, str(d)) for x, d in expected.items()}


@pytest.mark.parametrize("name", ENGINES)
@examples(100)
@given(st.lists(st.tuples(nodes, nodes, st.integers(-4, 9)), max_size=14))
def test_negative_weights_end_without_a_negative_cycle(name, graph):
    world = programs.World(ENGINES[name](), RuleSet(map(parse_rule, SHORTEST)))
    world.tell([atom("start", "a"), *(atom("edge", *edge) for edge in graph)])
    expected = bellman_ford(graph, "a")
    goal = Atom("dist", (Variable("x"), Variable("d")))
    if expected is not None:
        assert world.ask(goal) == {(x, str(d)) for x, d in expected.items()}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    "limits", [RunLimits(rows=5000), RunLimits(steps=20_000)], ids=["rows", "steps"]
)
def test_a_negative_cycle_meets_the_budget(name, limits):
    world = programs.World(ENGINES[name](), RuleSet(map(parse_rule, SHORTEST)))
    edges = [("a", "b", 1), ("b", "c", -3), ("c", "a", 1)]
    world.tell([atom("start", "a"), *(atom("edge", *edge) for edge in edges)])
    goal = Atom("dist", (Variable("x"), Variable("d")))
    plan = world.cache.get(world.rules, RelationSchema("dist", 2), "ff", frozenset(), world)
    run = GoalRun(world.engine, plan, world.bind, limits)
    with pytest.raises(BudgetExceeded) as caught:
        run.ask([0] * goal.arity, programs.Slices(10_000, limits))
    assert caught.value.details["limit"] == ("derivedRows" if limits.rows else "steps")
    assert caught.value.details["rule"] == SHORTEST[1]
    run.close()


@pytest.fixture(scope="module", params=["python", "c"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with runtime_on(request.param) as runtime:
        yield runtime


def stored(runtime: Runtime, rules: list[Rule], facts: list[Atom]) -> TenantKB:
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    kb.assert_rules(rules)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
    return kb


@st.composite
def worlds(draw):
    texts, name, arity = draw(st.sampled_from(sorted(PROGRAMS.values())))
    begin = draw(st.lists(facts, min_size=4, max_size=16, unique=True))
    asked = draw(st.lists(goals(name, arity), min_size=1, max_size=3))
    return [parse_rule(text) for text in texts], begin, asked


@examples(150)
@given(worlds())
def test_every_best_value_has_a_proof_that_holds(runtime, world):
    rules, begin, asked = world
    kb = stored(runtime, rules, begin)
    checker = Checker(rules, begin)
    for goal in (*asked, Atom(asked[0].predicate, (Variable("_"),) * asked[0].arity)):
        rows = kb.infer(Literal(goal))
        proofs = kb.prove(Literal(goal), proof=ProofOptions(form="dag", nodes=10_000))
        assert [proof["result"] for proof in proofs] == rows
        for proof in proofs:
            assert not proof["proof"]["truncated"]
            checker.dag(proof, 10_000)
        for proof in kb.prove(Literal(goal), proof=ProofOptions(nodes=200)):
            checker.tree(proof, 200, 100)


@examples(150)
@given(worlds())
def test_what_is_missing_for_a_best_value(runtime, world):
    rules, begin, asked = world
    kb = stored(runtime, rules, begin)
    model = naive.model(rules, begin)
    for goal in asked:
        if naive.answers(model, goal):
            continue
        result = kb.why_not((Literal(goal),), ALL)
        assert result.truth == "false"
        check_why_not(Truths(model, model), rules, Literal(goal), result)


@examples(150)
@given(worlds())
def test_a_retraction_counts_replaced_values(runtime, world):
    rules, begin, _ = world
    kb = stored(runtime, rules, begin)
    gone, rest = begin[0], begin[1:]
    outcome = kb.retract_fact(gone.predicate, gone.args)
    before, after = (
        {(name, row) for name, rows in naive.model(rules, known).items() for row in rows}
        for known in (begin, rest)
    )
    conclusions = {naive.key(rule.head) for rule in rules}
    fallen = {each for each in before - after if each[0] in conclusions}
    shown = {
        ((row["predicate"], len(row["args"]), True), tuple(row["args"]))
        for row in outcome.cascaded_atoms
    }
    assert shown == fallen - {(naive.key(gone), gone.args)}
    assert outcome.cascaded == len(shown)
    assert outcome.newly_derivable == len({e for e in after - before if e[0] in conclusions})
    assert not outcome.truncated


@examples(150)
@given(worlds(), st.lists(st.sampled_from([None, None, 0.25, 0.5]), min_size=16, max_size=16))
def test_best_values_inherit_the_confidence_of_their_facts(runtime, world, confidences):
    rules, begin, asked = world
    begin = [fact for fact in begin if naive.kept_fact(rules, fact) in ([], [fact])]
    rules = [replace(rule, confidence=c) for rule, c in zip(rules, confidences[8:], strict=False)]
    told = {fact: Told(c) for fact, c in zip(begin, confidences, strict=False)}
    kb = runtime.knowledge_base(tenant=f"t{next(NUMBER)}")
    kb.assert_rules(rules)
    for fact, one in told.items():
        kb.assert_facts([Fact(fact.predicate, fact.args, confidence=one.confidence)])
    oracle = Oracle(rules, told)
    expected = oracle.confidences()
    for goal in asked:
        for row in kb.infer(Literal(goal)):
            atom = Atom(goal.predicate, tuple(row["args"]))
            own = told.get(atom)
            is_plain = own is not None and own.confidence is None
            assert row["confidence"] == (None if is_plain else expected[atom])
            assert row["metadata"].get("nonMonotonic", False) is (own is None)
