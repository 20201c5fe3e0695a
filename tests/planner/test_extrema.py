"""Rules that keep a best value: which recursions are accepted, and why others are refused."""

from __future__ import annotations

import pytest

from kbplanner.check.recursion import recursion_findings
from kbplanner.check.texts import check_texts
from kbplanner.compile.rules import RuleSet
from kbplanner.errors import InvalidInput, RefusedExtremum
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import Extremum, Variable
from kbplanner.passes import rewrite
from kbplanner.syntax.jsonform import rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_rule
from kbplanner.syntax.statements import RuleStatement

BASE = "d(?x, min ?v) :- base(?x, ?v)."
GREATEST = "d(?x, max ?v) :- base(?x, ?v)."


def rules(*texts: str) -> list:
    return [s.rule for s in parse_program(" ".join(texts)) if isinstance(s, RuleStatement)]


ACCEPTED = {
    "a sum": (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w."),
    "a copy": (BASE, "d(?y, min ?v) :- d(?x, ?v), edge(?x, ?y, _)."),
    "a difference": (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e - ?w."),
    "a multiple": (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e * 3 / 2 + ?w."),
    "a sum of two": (BASE, "d(?y, min ?v) :- d(?x, ?e), d(?y, ?f), edge(?x, ?y, _), ?v = ?e + ?f."),
    "a limit": (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w, ?v < 100."),
    "a limit from data": (
        BASE,
        "d(?y, min ?v) :- d(?x, ?v), edge(?x, ?y, ?w), ?v <= ?w.",
    ),
    "the other limit for max": (GREATEST, "d(?y, max ?v) :- d(?x, ?v), edge(?x, ?y, ?w), ?v > ?w."),
    "widest": (GREATEST, "d(?y, max ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = min(?e, ?w)."),
    "bottleneck": (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = max(?e, ?w)."),
    "bottleneck and steps": (
        BASE,
        "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = max(?e, ?w).",
        "d(?y, min ?v) :- d(?x, ?e), bridge(?x, ?y), ?v = ?e + 1.",
        "d(?y, min ?v) :- d(?x, ?e), toll(?x, ?y, ?w), ?w >= 0, ?v = ?e + ?w.",
    ),
    "a value from data that is not better": (
        BASE,
        "d(?y, min ?v) :- d(?x, ?e), trip(?x, ?y, ?from, ?v), ?e <= ?from, ?from <= ?v.",
    ),
    "two predicates": (
        BASE,
        "d(?y, min ?v) :- e(?x, ?v), edge(?x, ?y, _).",
        "e(?y, min ?v) :- d(?x, ?f), edge(?x, ?y, ?w), ?v = ?f + ?w.",
    ),
    "readers above": (
        BASE,
        "d(?y, min ?v) :- d(?x, ?v), edge(?x, ?y, _).",
        "far(?x) :- d(?x, ?v), ?v > 3, not d(?x, 7).",
        "same(?x, ?y) :- d(?x, ?v), d(?y, ?v).",
        "longest(max ?v) :- d(_, ?v).",
    ),
    "no recursion": ("d(?v, min ?w) :- base(?x, ?v), not closed(?x), ?w = abs(?v).",),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    made = RuleSet(rules(*ACCEPTED[name]))
    assert made.conclusions(RelationSchema("d", 2)).role in (Role.LEAST_VALUE, Role.GREATEST_VALUE)
    errors = [each for each in check_texts(["\n".join(ACCEPTED[name])])[0] if each.code < "K100"]
    assert errors == []


REFUSED = {
    "a reversed sum": (
        "?v can get worse",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?w - ?e."),
    ),
    "a negative factor": (
        "?v can get worse",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, _), ?v = ?e * -2."),
    ),
    "a product with data": (
        "?v can get worse",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e * ?w."),
    ),
    "another function": (
        "?v can get worse",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, _), ?v = abs(?e)."),
    ),
    "an equation": (
        "?e = 3 can become false",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?e = 3, ?v = ?e + ?w."),
    ),
    "a limit from below": (
        "?v > 3 can become false",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w, ?v > 3."),
    ),
    "a limit from above for max": (
        "?v < 3 can become false",
        (GREATEST, "d(?y, max ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w, ?v < 3."),
    ),
    "a look-up": (
        "edge/3 is looked up by the value ?e",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?e), ?v = ?e + 1."),
    ),
    "equal values": (
        "two values are compared as equal: ?e",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), d(?y, ?e), edge(?x, ?y, _), ?v = ?e + 1."),
    ),
    "a constant value": (
        "the value of d/2 is compared with 3",
        (BASE, "d(?y, min ?v) :- d(?x, 3), edge(?x, ?y, ?v)."),
    ),
    "the value as a group": (
        "becomes an argument of d/2",
        (BASE, "d(?e, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w."),
    ),
    "a predicate without a best value": (
        "near/1 depends on values that can still improve",
        (BASE, "near(?x) :- d(?x, ?e), ?e < 3.", "d(?y, min ?v) :- near(?x), edge(?x, ?y, ?v)."),
    ),
    "a value that is dropped": (
        "need not change with it",
        (BASE, "d(?y, min ?v) :- d(?x, _), edge(?x, ?y, ?v)."),
    ),
    "the better of two": (
        "need not change with it",
        (BASE, "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = min(?e, ?w)."),
    ),
    "a flat and an improving rule": (
        "need not change with it",
        (
            BASE,
            "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = max(?e, ?w).",
            "d(?y, min ?v) :- d(?x, ?e), edge(?x, ?y, ?w), ?v = ?e + ?w.",
        ),
    ),
    "min and max together": (
        "min and max together",
        (BASE, "d(?y, min ?v) :- e(?y, ?v).", "e(?y, max ?v) :- d(?y, ?v)."),
    ),
    "negation inside": (
        "recursion through negation",
        (BASE, "d(?y, min ?v) :- edge(?x, ?y, ?v), not d(?x, _)."),
    ),
    "negation below": (
        "recursion through negation (win/1)",
        ("win(?x) :- move(?x, ?y), not win(?y).", "d(?x, min ?v) :- win(?x), base(?x, ?v)."),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name):
    reason, texts = REFUSED[name]
    with pytest.raises(RefusedExtremum) as caught:
        RuleSet(rules(*texts))
    assert reason in caught.value.message
    assert caught.value.kind == "not-monotone"
    assert caught.value.details == {"kind": "not-monotone", "hint": caught.value.hint}
    found = [each for each in check_texts(["\n".join(texts)])[0] if each.code == "K062"]
    assert any(reason in each.message for each in found)


def test_the_hint_says_what_to_add():
    texts = (BASE, "d(?y, min ?v) :- d(?x, ?e), trip(?x, ?y, ?from, ?v), ?e <= ?from.")
    with pytest.raises(RefusedExtremum) as caught:
        RuleSet(rules(*texts))
    assert caught.value.hint == "add ?e <= ?v to the body"
    RuleSet(rules(texts[0], texts[1].replace("?e <= ?from.", "?e <= ?from, ?e <= ?v.")))
    with pytest.raises(RefusedExtremum) as caught:
        RuleSet(rules(GREATEST, "d(?y, max ?v) :- d(?x, ?e), edge(?x, ?y, ?v)."))
    assert caught.value.hint == "add ?e >= ?v to the body"


def test_rules_of_a_predicate_agree():
    for other in ("d(?x, max ?v) :- more(?x, ?v).", "d(?x, ?v) :- more(?x, ?v)."):
        with pytest.raises(RefusedExtremum) as caught:
            RuleSet(rules(BASE, other))
        assert caught.value.kind == "mixed-extrema"
        assert caught.value.rules == (0, 1)
    RuleSet(
        rules(BASE, "d(?x, ?y, max ?v) :- more(?x, ?y, ?v).", "~d(?x, max ?v) :- more(?x, ?v).")
    )


def test_a_new_rule_that_closes_a_recursion_of_stored_ones_is_reported():
    stored = rules(BASE, "near(?x) :- d(?x, ?v), ?v < 3.")
    new = rules("d(?y, min ?v) :- near(?x), edge(?x, ?y, ?v).")
    (finding,) = recursion_findings([*stored, *new], len(stored))
    assert (finding.name, finding.rule) == ("not-monotone", 2)


def test_demand_that_would_depend_on_a_value_is_not_derived():
    made = rules(
        BASE,
        "d(?y, min ?v) :- d(?x, ?e), cost(?x, ?y, ?w), ?v = ?e + ?w.",
        "cost(?x, ?y, ?w) :- edge(?x, ?y, ?w).",
        "r(?v, ?x) :- d(?x, ?w), tag(?w, ?v).",
        "q(?x) :- d(?x, ?v), r(?v, ?x).",
    )
    program = rewrite(RuleSet(made).clauses(frozenset()), RelationSchema("q", 1).derived, "b")
    best = {c.head.schema for c in program.clauses if c.head.schema.role is Role.LEAST_VALUE}
    assert {schema.bare for schema in best} <= program.full


def test_text_and_json():
    text = "d(?x, min ?v) :- base(?x, ?v)."
    rule = parse_rule(text)
    assert rule.head.args[-1] == Extremum("min", Variable("v"))
    assert print_rule(rule) == text
    json = rule_to_json(rule)
    assert json["head"]["args"] == ["?x", "min ?v"]
    assert rule_from_json(json) == rule
    assert parse_rule("d(min, ?x) :- base(min, ?x).").head.args == ("min", Variable("x"))


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["min ?v", "?x"], 'head.args[0]: "min ?v" has to be the last argument of the head'),
        (["count(?x)", "max ?v"], 'head.args[1]: "max ?v" cannot stand beside an aggregate'),
        (["?x", "min ?_"], "head.args[1]: min needs a named variable"),
    ],
)
def test_json_is_refused_like_text(args, problem):
    body = [{"predicate": "base", "args": ["?x", "?v"]}]
    with pytest.raises(InvalidInput) as caught:
        rule_from_json({"head": {"predicate": "d", "args": args}, "body": body})
    assert caught.value.message == problem


def test_a_constant_in_the_first_rule_is_no_cross_product():
    assert check_texts(["s(a).\nd(?x, min ?v) :- s(?x), ?v = 0."])[0] == []
