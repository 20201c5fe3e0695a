"""A proof needs one instance of a rule for each conclusion, and costs no more where there are very
many.

The bodies here have six rows in each of three places that nothing connects, or that only one value
connects: over four hundred instances, of which a proof may make but few rows. Every proof is
checked against the rules, its height too.
"""

from __future__ import annotations

from unittest import mock

import pytest
from support.proofs import Checker
from support.runtimes import runtime_on

from kbcore.errors import BudgetExceeded
from kbcore.proofs import prover
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.engine.backend import RunLimits
from kbplanner.evaluate import race
from kbplanner.evaluate.grounding import GroundRun
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_goal, parse_program
from kbplanner.syntax.printer import print_rule

SIZE = 6
FEW = RequestLimits(rows=300)
"""Rows that a run may make: fewer than there are instances."""

CONCLUDED = [
    "da(?u) :- a(?u).",
    "db(?v) :- b(?v).",
    "dc(?w) :- c(?w).",
    "link(?x, ?y) :- edge(?x, ?y).",
]

BODIES = {
    "independent facts": "r(?x) :- i(?x), a(?u), b(?v), c(?w).",
    "independent conclusions": "r(?x) :- i(?x), da(?u), db(?v), dc(?w).",
    "facts and conclusions": "r(?x) :- i(?x), a(?u), db(?v), dc(?w).",
    "anonymous conclusions": "r(?x) :- i(?x), da(?_), a(?u), db(?_).",
    "compared facts": "r(?x) :- i(?x), a(?u), b(?v), ?u < ?v, c(?w), ?w > ?v.",
    "computed facts": "r(?x) :- i(?x), a(?u), ?n = ?u + 1, b(?n), c(?v), ?m = ?v * 2, c(?m), b(?w).",
    "an equation": "r(?x) :- i(?x), a(?u), ?u = ?v, b(?v), c(?w), da(?k).",
    "absences": "r(?x) :- i(?x), a(?u), not i(?u), b(?v), not dc(?v), c(?w), not link(?w, ?_).",
    "around one value": "r(?x) :- edge(?x, ?y), link(?y, ?u), link(?y, ?v), edge(?y, ?w).",
    "one after the other": "r(?x) :- link(?x, ?y), link(?y, ?u), link(?u, ?v), link(?v, ?w).",
    "another value of the head": "r(?x, ?k) :- i(?x), i(?k), da(?u), link(?k, ?v), link(?v, ?w).",
    "recursive": "r(?x) :- i(?x), da(?u), db(?v), dc(?w). r(?x) :- edge(?y, ?x), r(?y), da(?u), db(?v), dc(?w).",
}


def _facts() -> list[Atom]:
    numbers = [str(i) for i in range(SIZE)]
    facts = [Atom(name, (number,)) for name in "ab" for number in numbers]
    facts += [Atom("c", (str(i),)) for i in range(SIZE // 2, SIZE // 2 + SIZE)]
    facts += [
        Atom("edge", pair) for name in numbers for pair in (("x", f"y{name}"), ("m", f"n{name}"))
    ]
    facts += [Atom("edge", ("y0", "m")), Atom("edge", ("n1", "k")), Atom("edge", ("k", "l"))]
    return [*facts, Atom("i", ("x",)), Atom("i", ("m",))]


FACTS = _facts()


@pytest.fixture(scope="module", params=["c", "python"])
def node(request):
    with runtime_on(request.param) as node:
        yield node


def prepared(node, request, texts, confidence=None):
    kb = node.knowledge_base(tenant="".join(filter(str.isalnum, request.node.name)))
    rules = [statement.rule for statement in parse_program(" ".join([*CONCLUDED, *texts]))]
    kb.assert_rules(rules)
    kb.assert_facts([Fact(one.predicate, one.args, confidence=confidence) for one in FACTS])
    return kb, rules


def goal_of(rules):
    (literal,) = parse_goal("r(?x, ?k)" if rules[-1].head.arity == 2 else "r(?x)").body
    return literal


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("form", ["dag", "tree"])
def test_a_proof_makes_few_instances(node, request, body, form):
    kb, rules = prepared(node, request, [BODIES[body]])
    goal = goal_of(rules)
    found = kb.prove(goal, AnswerOptions(request_limits=FEW), ProofOptions(form=form))
    assert [proof["result"] for proof in found] == kb.infer(goal)
    assert found
    checker = Checker(rules, FACTS)
    for proof in found:
        checker.dag(proof, 1000) if form == "dag" else checker.tree(proof, 1000, 100)


@pytest.mark.parametrize("body", BODIES)
def test_inherited_confidence_needs_few_instances(node, request, body):
    kb, rules = prepared(node, request, [BODIES[body]], confidence=0.5)
    rows = kb.infer(goal_of(rules), AnswerOptions(request_limits=RequestLimits(rows=500)))
    assert {row["confidence"] for row in rows} == {0.5}


def test_a_fact_that_exists_for_many_reasons_has_one_proof(node, request):
    kb, rules = prepared(
        node, request, ["some :- da(?u), db(?v), dc(?w), ?w < 100.", "r(?x) :- i(?x), some."]
    )
    (first, _) = kb.prove(
        goal_of(rules), AnswerOptions(request_limits=FEW), ProofOptions(form="dag")
    )
    Checker(rules, FACTS).dag(first, 1000)


def test_groups_counted_over_a_product_have_a_proof(node, request):
    kb, rules = prepared(node, request, ["r(count(?x)) :- i(?x), da(?u), db(?v), dc(?w)."])
    (proof,) = kb.prove(goal_of(rules), AnswerOptions(request_limits=FEW), ProofOptions(form="dag"))
    assert proof["result"]["args"] == ["2"]
    Checker(rules, FACTS).dag(proof, 1000)


def test_a_rule_with_a_large_product_is_stopped_by_the_budget(node, request):
    kb, _ = prepared(
        node,
        request,
        ["q(?u, ?v, ?w) :- da(?u), db(?v), dc(?w).", "r(?x) :- i(?x), q(?u, ?v, ?x)."],
    )
    (literal,) = parse_goal("q(?u, ?v, ?w)").body
    with pytest.raises(BudgetExceeded):
        kb.prove(literal, AnswerOptions(request_limits=RequestLimits(rows=100)))


def test_values_without_a_column_are_those_of_one_instance(node, request):
    kb, rules = prepared(
        node, request, ["r(?x) :- i(?x), a(?u), b(?v), ?u + ?v = 9, ?u < ?v, c(?w), ?w != ?v."]
    )
    (proof, _) = kb.prove(goal_of(rules), AnswerOptions(request_limits=FEW))
    values = proof["proof"]["substitution"]
    assert (values["?u"], values["?v"]) == ("4", "5")
    assert values["?w"] != "5"


SAME = "same(?y, ?x) :- same(?x, ?y). same(?x, ?z) :- same(?x, ?y), same(?y, ?z). "
TRANSITIVE = {
    "equivalence": SAME + "same(?x, ?y) :- alias(?x, ?y).",
    "closure": "same(?x, ?z) :- same(?x, ?y), same(?y, ?z). same(?x, ?y) :- alias(?x, ?y).",
}
PASCAL = """
pascal(?n, 0, 1) :- row(?n).
pascal(?n, ?n, 1) :- row(?n).
pascal(?n, ?k, ?v) :- pascal(?m, ?j, ?a), pascal(?m, ?k, ?b), ?n = ?m + 1, ?k = ?j + 1, ?v = ?a + ?b, ?m < 20.
"""


def taught(node, request, text, facts):
    kb = node.knowledge_base(tenant="".join(filter(str.isalnum, request.node.name)))
    rules = [statement.rule for statement in parse_program(text)]
    kb.assert_rules(rules)
    kb.assert_facts(facts)
    return kb, rules


@pytest.mark.parametrize("form", TRANSITIVE)
def test_a_pair_of_a_long_chain_has_a_proof_by_a_path(node, request, form):
    pairs = [(f"n{number}", f"n{number + 1}") for number in range(39)]
    facts = [Fact("alias", pair, confidence=0.5 if "n3" in pair else None) for pair in pairs]
    kb, _ = taught(node, request, TRANSITIVE[form], facts)
    (literal,) = parse_goal("same(n0, n39)").body
    # A run for the lowest proofs derives over 10,000 rows, or makes over 100,000 steps.
    limits = AnswerOptions(request_limits=RequestLimits(rows=1000, steps=5000))
    (row,) = kb.infer(literal, limits)
    assert row["confidence"] == 0.5
    (found,) = kb.prove(literal, limits, ProofOptions(form="dag", nodes=1000))
    assert found["result"] == row
    nodes = found["proof"]["nodes"].values()
    assert {tuple(n["fact"]["args"]) for n in nodes if n["kind"] == "asserted"} == set(pairs)
    root = found["proof"]["nodes"][found["proof"]["root"]]
    assert root["depth"] == 39
    assert len(kb.prove(literal, limits)) == 1


def test_a_pair_of_a_short_chain_has_a_lowest_proof(node, request):
    pairs = [(f"n{number}", f"n{number + 1}") for number in range(8)]
    facts = [Atom("alias", pair) for pair in pairs]
    kb, rules = taught(
        node, request, TRANSITIVE["closure"], [Fact(one.predicate, one.args) for one in facts]
    )
    (literal,) = parse_goal("same(n0, n8)").body
    (found,) = kb.prove(literal, proof=ProofOptions(form="dag", nodes=1000))
    Checker(rules, facts).dag(found, 1000)
    assert found["proof"]["nodes"]["n1"]["depth"] == 4


GRAMMAR = """
phrase(?nt, ?a, ?b) :- word(?a, ?w, ?b), lexical(?nt, ?w).
phrase(?nt, ?a, ?c) :- binary(?nt, ?l, ?r), phrase(?l, ?a, ?b), phrase(?r, ?b, ?c).
"""


def sums(numbers):
    """The words of a sum of numbers, and a grammar that reads it in as many ways as there are
    binary trees.
    """
    words = ["plus" if place % 2 else "number" for place in range(2 * numbers - 1)]
    facts = [Fact("word", (f"n{place}", word, f"n{place + 1}")) for place, word in enumerate(words)]
    facts += [Fact("lexical", pair) for pair in (("sum", "number"), ("sign", "plus"))]
    return [
        *facts,
        Fact("binary", ("sum", "sum", "rest")),
        Fact("binary", ("rest", "sign", "sum")),
    ]


def test_a_sentence_of_an_ambiguous_grammar_has_a_proof_from_first_instances(node, request):
    facts = sums(16)
    kb, rules = taught(node, request, GRAMMAR, facts)
    (literal,) = parse_goal("phrase(sum, n0, n31)").body
    # A run for the lowest proofs derives 1,885 rows, one for first instances 860.
    limits = AnswerOptions(request_limits=RequestLimits(rows=1500))
    (found,) = kb.prove(literal, limits, ProofOptions(form="dag", nodes=10_000))
    nodes = found["proof"]["nodes"]
    words = {tuple(n["fact"]["args"]) for n in nodes.values() if n["fact"]["predicate"] == "word"}
    assert words == {fact.args for fact in facts if fact.predicate == "word"}
    for derived in (n for n in nodes.values() if n["kind"] == "derived"):
        assert all(nodes[name]["depth"] < derived["depth"] for name in derived["premises"])
        assert derived["rule"]["text"] in {print_rule(rule) for rule in rules}
    assert len(kb.prove(literal, limits)) == 1


def test_all_answers_of_a_recursion_are_proved_by_one_evaluation_in_full(node, request):
    """Each pair demands others of all names, so that the evaluation without demand ends first."""
    facts = [Fact("edge", (f"n{i}", f"n{(i + 1) % 12}")) for i in range(12)]
    text = """
    odd(?x, ?y) :- edge(?x, ?y).
    odd(?x, ?z) :- even(?x, ?y), odd(?y, ?z).
    even(?x, ?z) :- odd(?x, ?y), odd(?z, ?y).
    even(?x, ?z) :- odd(?x, ?y), odd(?y, ?z).
    """
    kb, _ = taught(node, request, text, facts)
    (literal,) = parse_goal("even(n0, ?y)").body
    read = mock.patch.object(GroundRun, "read", autospec=True, side_effect=GroundRun.read)
    with (
        mock.patch.object(prover, "LOWEST_LIMITS", RunLimits(rows=1)),
        mock.patch.object(prover, "ANSWERS_PER_RUN", 2),
        mock.patch.object(race, "HEAD_START_STEPS", 1),
        mock.patch.object(race, "HEAD_START_STEPS_PER_FACT", 0),
        read as reads,
    ):
        found = kb.prove(literal, proof=ProofOptions(form="dag", nodes=10_000))
    assert [proof["result"] for proof in found] == kb.infer(literal)
    assert len(found) == 6
    assert reads.call_count == 2  # the first met the limits of the search for lowest proofs


def test_tests_that_the_first_premise_decides_bound_its_instances(node, request):
    facts = [Fact("row", (str(number),)) for number in range(21)]
    kb, _ = taught(node, request, PASCAL, facts)
    (literal,) = parse_goal("pascal(20, 10, ?v)").body
    # Without them the instance clause joins all rows with all others: over 200,000 steps.
    limits = AnswerOptions(request_limits=RequestLimits(rows=2000, steps=40_000))
    (found,) = kb.prove(literal, limits)
    assert found["result"]["args"] == ["20", "10", "184756"]
