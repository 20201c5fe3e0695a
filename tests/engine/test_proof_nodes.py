"""Nodes of proofs: their order against a model in Python, their dicts, and refused numbers."""

from __future__ import annotations

from array import array
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner import _proofs
from kbplanner.engine import proof_nodes
from kbplanner.engine.columns import dicts_of
from kbplanner.engine.proof_nodes import LEAF, MISSING, NodeGraph, Order, Steps, Tree

FACTS = 8


@st.composite
def proofs(draw) -> list[list[int] | None]:
    """The premises of each fact, which have greater numbers; None for a leaf."""
    below: list[list[int] | None] = []
    for fact in range(FACTS):
        others = (
            st.lists(st.integers(fact + 1, FACTS - 1), max_size=3) if fact + 1 < FACTS else None
        )
        below.append(None if others is None else draw(st.none() | others))
    return below


def columns(below: list[list[int] | None]) -> tuple[array, Steps]:
    """The instance of each fact, its own number, and the steps of all instances."""
    facts, steps = array("I"), Steps(len(below))
    for fact, premises in enumerate(below):
        facts.append(LEAF if premises is None else fact)
        if premises is not None:
            steps.add((fact,), 0, [{}], [[premise] for premise in premises])
    return facts, steps


def tree_order(below, most, depth):
    """Each conclusion of a tree with whether it is cut, and the number of nodes."""
    shown, count = [], 1
    todo = deque([(0, 0)])
    while todo:
        fact, level = todo.popleft()
        premises = below[fact]
        is_cut = premises is None or level >= depth or count + len(premises) > most
        shown.append((fact, is_cut))
        if not is_cut:
            count += len(premises)
            todo.extend((one, level + 1) for one in premises if below[one] is not None)
    return shown, count


def graph_order(below, most, depth):
    """Each fact of a graph with whether it has no premises in it."""
    names, shown = {0: 1}, []
    todo = deque([(0, 0)])
    while todo:
        fact, level = todo.popleft()
        premises = below[fact]
        new = [] if premises is None else [p for p in dict.fromkeys(premises) if p not in names]
        is_cut = premises is None or level >= depth or len(names) + len(new) > most
        shown.append((fact, is_cut))
        if not is_cut:
            for one in new:
                names[one] = len(names) + 1
                todo.append((one, level + 1))
    return shown, names


@pytest.fixture(params=[1, 3, 4000])
def pieces(request, monkeypatch):
    monkeypatch.setattr(proof_nodes, "RECORDS_PER_CALL", request.param)


def completed(order: Order, facts: array, steps: Steps) -> Order:
    """The order, for which each step is missing until it is asked for."""
    all_steps = bytes(steps.by_instance)
    steps.by_instance[:] = array("I", [MISSING]).tobytes() * steps.count
    while not order.is_complete:
        missing = order.advance(facts, steps)
        if missing is not None:
            assert steps.step(facts[missing]) == MISSING
            place = slice(4 * facts[missing], 4 * facts[missing] + 4)
            steps.by_instance[place] = all_steps[place]
    steps.by_instance[:] = all_steps
    return order


@pytest.mark.usefixtures("pieces")
@examples(200)
@given(proofs(), st.integers(1, 30), st.integers(0, FACTS))
def test_the_order_of_a_tree_is_that_of_the_model(below, most, depth):
    order = completed(Order(0, most, depth, is_graph=False), *columns(below))
    shown, count = tree_order(below, most, depth)
    assert list(zip(order.facts(), order.cut, strict=True)) == shown
    assert order.nodes == count


@pytest.mark.usefixtures("pieces")
@examples(200)
@given(proofs(), st.integers(1, 12), st.integers(0, FACTS))
def test_the_order_of_a_graph_is_that_of_the_model(below, most, depth):
    order = completed(Order(0, most, depth, is_graph=True), *columns(below))
    shown, names = graph_order(below, most, depth)
    assert list(zip(order.facts(), order.cut, strict=True)) == shown
    assert list(order.names()) == [names.get(fact, 0) for fact in range(FACTS)]
    assert order.nodes == len(names)


def tree_of(facts: array, steps: Steps) -> Tree:
    """Facts `p(a0, b0)`, `p(a1, b1)` ... of one relation, concluded by one rule."""
    return Tree(
        facts,
        [(f"a{fact}", f"b{fact}") for fact in range(len(facts))],
        array("I", [0] * len(facts)),
        [{"row": fact} for fact in range(len(facts))],
        [{"predicate": "p", "args": None, "metadata": None}],
        [{"type": "match", "fact": None}],
        steps,
        [{"type": "rule", "body": None}],
        [((("?x", 0),), (("?y", 1), ("?x", 0)))],
        {},
        {"goal": None, "step": None, "substitution": None},
        {"type": "cut"},
        ("goal", "step", "substitution", "fact", "body", "args", "metadata"),
    )


def model_tree(below, fact, level, depth, item):
    goal = {"predicate": "p", "args": [f"a{fact}", f"b{fact}"], "metadata": {}}
    values = {"?x": f"a{fact}"} | ({"?y": f"b{fact}"} if item else {})
    premises = below[fact]
    if premises is None:
        row = {"row": fact}
        return {"goal": row, "step": {"type": "match", "fact": row}, "substitution": values}
    if level >= depth:
        return {"goal": goal, "step": {"type": "cut"}, "substitution": values}
    body = [model_tree(below, p, level + 1, depth, i % 2) for i, p in enumerate(premises)]
    return {"goal": goal, "step": {"type": "rule", "body": body}, "substitution": {}}


@pytest.mark.usefixtures("pieces")
@examples(200)
@given(proofs(), st.integers(1, FACTS))
def test_a_tree_has_the_nodes_of_the_model(below, depth):
    below[0] = below[0] or [1, 2]
    facts, steps = columns(below)
    order = completed(Order(0, 10**6, depth, is_graph=False), facts, steps)
    root = order.build(tree_of(facts, steps), lambda: None)
    model = model_tree(below, 0, 0, depth, 0)
    assert root == model
    todo, owned = [root], set()
    while todo:  # the dict of a node is its own, so that a caller may change it
        node = todo.pop()
        assert id(node) not in owned
        owned.add(id(node))
        todo.extend(node["step"].get("body", ()))


def graph_of(facts: array, steps: Steps, elided: str = "cut") -> NodeGraph:
    """The same as a graph; facts have a height and alternatives."""
    node = {"fact": None, "kind": "leaf", "depth": 0, "premises": None, "alternatives": 0}
    return NodeGraph(
        facts,
        [(f"a{fact}",) for fact in range(len(facts))],
        array("I", [0] * len(facts)),
        array("I", range(len(facts))),
        [-1] * len(facts),
        [{"predicate": "p", "args": None}],
        [node],
        steps,
        [node | {"kind": "rule", "rule": None, "bindings": None}],
        [{"id": "r1"}],
        {},
        node | {"kind": elided},
        {},
        ("fact", "depth", "premises", "alternatives", "rule", "bindings", "args"),
    )


@pytest.mark.usefixtures("pieces")
@examples(200)
@given(proofs(), st.integers(1, 12))
def test_a_graph_has_the_nodes_of_the_model(below, most):
    facts, steps = columns(below)
    order = completed(Order(0, most, FACTS, is_graph=True), facts, steps)
    nodes = order.table(graph_of(facts, steps), lambda: None)
    shown, names = graph_order(below, most, FACTS)
    model = {}
    for fact, is_cut in shown:
        node = {"fact": {"predicate": "p", "args": [f"a{fact}"]}, "kind": "leaf", "depth": fact}
        node |= {"premises": [], "alternatives": -1}
        if not is_cut:
            node["premises"] = [f"n{names[premise]}" for premise in below[fact]]
            node |= {"kind": "rule", "rule": {"id": "r1"}, "bindings": {}}
        elif below[fact] is not None:
            node["kind"] = "cut"
        model[f"n{names[fact]}"] = node
    assert nodes == model


@pytest.mark.parametrize(
    "name", ["args", "alternatives", "relations", "heights", "facts", "stored", "rules", "steps"]
)
def test_columns_of_a_graph_that_are_too_short_are_refused(name):
    facts, steps = columns([[1], None])
    graph = graph_of(facts, steps)
    order = completed(Order(0, 10, 10, is_graph=True), facts, steps)
    column = steps.bindings if name == "steps" else getattr(graph, name)
    del column[:]
    with pytest.raises(ValueError, match="out of range"):
        order.table(graph, lambda: None)


def test_tests_and_aggregates_of_a_graph_have_values_of_their_own():
    facts, steps = columns([[1], None])
    graph = graph_of(facts, steps)
    graph.tests[1] = {"kind": "test"}
    graph.aggregates[0] = {"rows": 3}
    order = completed(Order(0, 10, 10, is_graph=True), facts, steps)
    nodes = order.table(graph, lambda: None)
    assert nodes["n2"] == {"kind": "test"}
    assert nodes["n1"]["rows"] == 3


def test_values_of_a_step_that_aggregates_come_after_those_of_its_rule():
    facts, steps = columns([[1], None])
    tree = tree_of(facts, steps)
    tree.aggregates[0] = {"text": "count = 1"}
    order = completed(Order(0, 10, 10, is_graph=False), facts, steps)
    step = order.build(tree, lambda: None)["step"]
    assert list(step) == ["type", "body", "text"]


def words(*numbers: int) -> bytes:
    return array("I", numbers).tobytes()


@pytest.mark.parametrize(
    ("fact", "step", "ends", "premises"),
    [
        (9, 0, (), ()),
        (0, 3, (0,), ()),
        (0, 0, (2,), (0,)),
        (0, 1, (2, 1), (0, 0)),
        (0, 0, (1,), (7,)),
    ],
    ids=["fact", "step", "end", "order of ends", "premise"],
)
def test_numbers_out_of_range_are_refused(fact, step, ends, premises):
    queue = bytearray(words(fact, 0, LEAF))
    arguments = words(0), bytearray(words(step)), words(*ends), words(*premises)
    with pytest.raises(ValueError, match="out of range"):
        _proofs.order(queue, None, 0, 1, *arguments, 10, 10, 10)


@pytest.mark.parametrize("name", ["args", "leaves", "relations", "items", "matches", "steps"])
def test_columns_that_are_too_short_are_refused(name):
    facts, steps = columns([[1], None])
    tree = tree_of(facts, steps)
    order = completed(Order(0, 10, 10, is_graph=False), facts, steps)
    if name == "steps":
        steps.bindings.clear()
    else:
        column = getattr(tree, name)
        del column[:]
    with pytest.raises(ValueError, match="out of range"):
        order.build(tree, lambda: None)


def test_a_queue_that_does_not_fit_its_nodes_is_refused():
    tree = tree_of(*columns([[1], None])).arguments()
    with pytest.raises(ValueError, match="out of range"):
        _proofs.trees(tree, bytearray(words(0, 0, 1)), [], 0, 1)
    with pytest.raises(ValueError, match="out of range"):
        _proofs.trees(tree, bytearray(words(0, 0, 1)), [None], 0, 2)


def test_dicts_are_copies_with_the_values_of_their_columns():
    rows = dicts_of({"a": 1, "b": None}, 2, {"b": ["x", "y"], "c": [[], []]})
    assert rows == [{"a": 1, "b": "x", "c": []}, {"a": 1, "b": "y", "c": []}]
    assert list(rows[0]) == ["a", "b", "c"]
    assert dicts_of({"a": 1}, 0, {}) == []


def test_a_column_with_fewer_values_is_refused():
    with pytest.raises(ValueError, match="fewer values"):
        dicts_of({}, 2, {"a": ["x"]})
