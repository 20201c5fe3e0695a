"""Long proofs whose instances are replayed in several batches, with every kind of body item."""

from __future__ import annotations

import pytest
from support.runtimes import runtime_on

from kbcore.proofs import batches
from kbcore.proofs.batches import FIRST_BATCH
from kbcore.proofs.shapes import ProofOptions
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_goal, parse_rule

BATCH = 256
LONG = 2 * BATCH + 100
"""Steps of several batches, few enough for the reference engine."""

ROADS = """
    way(?x, ?y, 1) :- road(?x, ?y).
    way(?x, ?z, ?n) :- road(?x, ?y), open(road), not closed(?y), ?y != nowhere, way(?y, ?z, ?m), ?n = ?m + 1.
""".strip().splitlines()


@pytest.fixture(params=["c", "python"])
def kb(request, monkeypatch):
    monkeypatch.setattr(batches, "MAX_BATCH", BATCH)
    with runtime_on(request.param) as node:
        yield node.knowledge_base()


def tell(kb, predicate, *rows):
    kb.assert_facts([Fact(predicate, tuple(row)) for row in rows])


def teach(kb, texts):
    kb.assert_rules([parse_rule(text.strip()) for text in texts])


def proof(kb, goal, form="tree"):
    (literal,) = parse_goal(goal).body
    (found,) = kb.prove(literal, proof=ProofOptions(form, nodes=100_000, depth=100_000))
    return found["proof"]


@pytest.fixture
def roads(kb):
    tell(kb, "road", *((f"n{i}", f"n{i + 1}") for i in range(LONG)))
    tell(kb, "open", ("road",))
    teach(kb, ROADS)
    return kb


def test_each_step_of_a_long_tree_has_its_own_values(roads):
    node = proof(roads, f"way(n0, n{LONG}, ?n)")
    for i in range(LONG - 1):
        left = LONG - i
        assert node["goal"]["args"] == [f"n{i}", f"n{LONG}", str(left)]
        assert node["step"]["type"] == "rule_application"
        here, there = f"n{i}", f"n{i + 1}"
        values = {"?x": here, "?z": f"n{LONG}", "?n": str(left), "?y": there, "?m": str(left - 1)}
        assert node["substitution"] == values
        road, opened, closed, test, node, sum_ = node["step"]["bodyProofs"]
        assert road["step"]["fact"] == road["goal"]
        assert road["goal"]["args"] == [here, there]
        assert road["substitution"] == {"?x": here, "?y": there}
        assert opened["goal"]["args"] == ["road"]
        assert opened["substitution"] == {}
        assert closed["step"] == {
            "type": "negation_as_failure",
            "fact": None,
            "rule": None,
            "bodyProofs": None,
            "text": f"not closed({there})",
        }
        assert test["step"]["text"] == f"{there} != nowhere"
        assert sum_["step"]["text"] == f"{left} = {left - 1} + 1"
    assert [below["goal"]["args"] for below in node["step"]["bodyProofs"]] == [
        [f"n{LONG - 1}", f"n{LONG}"]
    ]


def test_a_long_graph_has_a_node_for_each_fact(roads):
    found = proof(roads, f"way(n0, n{LONG}, ?n)", form="dag")
    assert not found["truncated"]
    nodes = list(found["nodes"].values())
    derived = [node for node in nodes if node["kind"] == "derived"]
    assert [node["depth"] for node in derived] == list(range(LONG, 0, -1))
    assert [node["fact"]["args"][0] for node in derived] == [f"n{i}" for i in range(LONG)]
    facts = [
        (node["fact"]["predicate"], *node["fact"]["args"])
        for node in nodes
        if node["kind"] == "asserted"
    ]
    assert sorted(facts) == sorted(
        [("open", "road"), *(("road", f"n{i}", f"n{i + 1}") for i in range(LONG))]
    )
    for node in derived[:-1]:
        road, opened, *_ = (found["nodes"][name] for name in node["premises"])
        assert (road["fact"]["args"], opened["fact"]["args"]) == (
            [node["bindings"]["?x"], node["bindings"]["?y"]],
            ["road"],
        )


def test_a_wide_proof_shares_its_lemmas(kb):
    """Every layer depends on two of the one below: twice as many nodes in a tree each time, no more
    in a graph.
    """
    layers = FIRST_BATCH + 6
    teach(kb, [f"h{i + 1}(?x) :- h{i}(?x), g{i}(?x)." for i in range(layers)])
    teach(kb, [f"g{i + 1}(?x) :- g{i}(?x), h{i}(?x)." for i in range(layers)])
    tell(kb, "h0", ("a",))
    tell(kb, "g0", ("a",))
    found = proof(kb, f"h{layers}(a)", form="dag")["nodes"].values()
    assert sorted(node["fact"]["predicate"] for node in found) == sorted(
        [f"h{layers}", *(f"{name}{i}" for name in "gh" for i in range(layers))]
    )
    todo, count = [proof(kb, f"h{layers}(a)")], 0
    while todo:
        node = todo.pop()
        count += 1
        below = node["step"]["bodyProofs"] or []
        todo.extend(below)
        layer = int(node["goal"]["predicate"][1:])
        assert [one["goal"]["predicate"][1:] for one in below] == [str(layer - 1)] * (
            2 if layer else 0
        )
    assert count == 2 ** (layers + 1) - 1


def test_rules_without_variables(kb):
    teach(kb, [f"done{i + 1} :- done{i}, ready." for i in range(40)])
    tell(kb, "done0", ())
    tell(kb, "ready", ())
    node = proof(kb, "done40")
    for i in range(40, 0, -1):
        assert node["goal"]["predicate"] == f"done{i}"
        assert node["substitution"] == {}
        node, ready = node["step"]["bodyProofs"]
        assert ready["step"]["fact"]["predicate"] == "ready"
    assert node["step"]["fact"]["predicate"] == "done0"
