"""Modes of rules above external predicates, and the programs that the passes make of them."""

from __future__ import annotations

import inspect
import re

import pytest

from kbplanner.compile.build import build
from kbplanner.compile.explain import show
from kbplanner.compile.rules import ExternalRules, RuleSet
from kbplanner.errors import ExternalRecursion, UnboundArgument
from kbplanner.evaluate.evaluate import adornment_of
from kbplanner.ir import calls
from kbplanner.ir.calls import infer_modes
from kbplanner.ir.modes import best_mode, missing, permits
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes import rewrite
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import GoalStatement, RuleStatement

PRICE = {"price": ("bf",)}


def read(text: str, modes: dict[str, tuple[str, ...]]) -> tuple[ExternalRules, str, RelationSchema]:
    """The rules of a text with its external predicates, and the adornment and relation of its
    goal.
    """
    statements = parse_program(text)
    rules = RuleSet([s.rule for s in statements if isinstance(s, RuleStatement)])
    external = {RelationSchema(name, len(own[0])): own for name, own in modes.items()}
    (goal,) = [s.literal.atom for s in statements if isinstance(s, GoalStatement)] or [None]
    form = rules.with_external(external)
    if goal is None:
        return form, "", RelationSchema("none", 0)
    return form, adornment_of(goal.args), RelationSchema(goal.predicate, goal.arity)


def inferred(text: str, modes=PRICE) -> dict[str, str]:
    form, _, _ = read(text, modes)
    found = infer_modes(form.clauses(frozenset()), form.external)
    return {str(schema): " ".join(own) for schema, own in found.items()}


def program(text: str, modes=PRICE) -> str:
    form, adornment, goal = read(text, modes)
    clauses = form.clauses(frozenset())
    return show(rewrite(clauses, goal.derived, adornment, NoStatistics(), external=form.external))


def test_modes_and_marks():
    assert permits("bf", "bb")
    assert not permits("bf", "fb")
    assert best_mode(("ff", "bf", "bb"), "bf") == "bf"
    assert best_mode(("fb", "bf"), "bb") == "fb"
    assert best_mode(("bb",), "bf") is None
    assert missing(("bbf", "fbb"), "bff") == [1]
    assert missing(("bf",), "bf") == []
    assert missing((), "f") == []


def test_the_example_of_the_module():
    page = inspect.getdoc(calls) or ""
    before, after = re.findall(r"\n\n((?:    .*\n)+)", page)[:2]
    modes = inferred(inspect.cleandoc("\n" + before))
    expected = dict(line.strip().split(": ") for line in after.strip().splitlines())
    assert modes == expected


@pytest.mark.parametrize(
    ("text", "modes", "expected"),
    [
        ("p(?x) :- price(?x, ?y).", {"price": ("bf", "fb")}, {"p/1": "b"}),
        ("p(?x, ?y) :- price(?x, ?y).", {"price": ("bf", "fb")}, {"p/2": "bf fb"}),
        ("p(?x, ?y) :- price(?x, ?y).", {"price": ("ff",)}, {}),
        ("p(?x, ?y) :- item(?x), price(?x, ?y).", PRICE, {}),
        ("p(?y) :- ?x = a, price(?x, ?y).", PRICE, {}),
        ("p(?y) :- item(?z), ?x = lower(?z), price(?x, ?y).", PRICE, {}),
        ("p(?x) :- item(?x, ?y), not price(?x, _).", PRICE, {}),
        ("p(?y) :- item(?y), price(?x, ?y).", PRICE, {"p/1": ""}),
        ("p(?x, ?y) :- price(?x, ?z), price(?z, ?y).", PRICE, {"p/2": "bf"}),
        ("p(?x, ?y) :- price(?z, ?y), price(?x, ?z).", PRICE, {"p/2": "bf"}),
        ("n(?x, count(?y)) :- price(?x, ?y).", PRICE, {"n/2": "bf"}),
        ("n(count(?x)) :- price(?x, ?y).", PRICE, {"n/1": ""}),
        (
            "r(?x, ?y) :- price(?x, ?y). r(?x, ?z) :- r(?x, ?y), price(?y, ?z).",
            PRICE,
            {"r/2": "bf"},
        ),
        ("r(?x, ?y) :- price(?y, ?x). r(?x, ?z) :- r(?x, ?y), price(?y, ?z).", PRICE, {"r/2": ""}),
        (
            """p(?a, ?b, ?c, ?d, ?e, ?f, ?g, ?h, ?i) :- price(?a, ?b), price(?c, ?d),
                item(?e, ?f), item(?g, ?h), price(?i, ?i).""",
            PRICE,
            {"p/9": "bfbfffffb"},
        ),
    ],
)
def test_inferred_modes(text, modes, expected):
    assert {
        name: own
        for name, own in inferred(text, modes).items()
        if name != "price/2" and "#" not in name
    } == expected


def test_demand_is_what_the_plugin_is_asked_and_guards_nothing():
    text = "cheap(?x) :- price(?x, ?p), ?p < 10. offer(?x) :- cheap(?x), item(?x). ?- offer(?x)."
    assert program(text) == (
        "demand cheap/1[b](?x) :- demand offer/1[f](), item/1(?x).\n"
        "offer/1[f](?x) :- demand offer/1[f](), item/1(?x), cheap/1[b](?x).  % rule 2\n"
        "offer/1[f](?a0) :- demand offer/1[f](), offer/1(?a0).\n"
        "demand price/2[bf](?x) :- demand cheap/1[b](?x).\n"
        "cheap/1[b](?x) :- demand cheap/1[b](?x), price/2(?x, ?p), ?p < 10.  % rule 1\n"
        "cheap/1[b](?a0) :- demand cheap/1[b](?a0), cheap/1(?a0)."
    )


def test_a_call_with_more_bound_than_a_mode_needs_asks_for_the_inputs_of_the_mode():
    text = "p(?x) :- item(?x, ?y), price(?x, ?y). ?- p(?x)."
    assert "demand price/2[bf](?x) :-" in program(text)
    assert "demand price/2[bb](?x, ?y) :-" in program(text, {"price": ("bf", "bb")})


def test_a_plan_names_its_calls():
    form, adornment, goal = read("p(?x) :- item(?x), price(?x, 3). ?- p(?x).", PRICE)
    clauses = form.clauses(frozenset())
    rewritten = rewrite(clauses, goal.derived, adornment, NoStatistics(), external=form.external)
    plan = build(rewritten, NoStatistics())
    (call,) = plan.external
    assert (call.relation, call.mode) == (RelationSchema("price", 2), "bf")
    assert str(plan.slots[call.slot]) == "demand price/2[bf]"
    form, adornment, goal = read("p(?x) :- item(?x). q(?x) :- price(?x, _). ?- p(?x).", PRICE)
    rewritten = rewrite(
        form.clauses(frozenset()), goal.derived, adornment, NoStatistics(), external=form.external
    )
    assert build(rewritten, NoStatistics()).external == ()
    assert rewritten.modes == {}


def test_goals_that_bind_too_little_are_refused():
    for text, predicate in (
        ("p(?x) :- price(?x, _). ?- p(?x).", "price/2"),
        ("p(?x) :- q(?x). q(?x) :- price(?x, _). ?- p(?x).", "price/2"),
        ("p(?x) :- price(?x, _). ?- price(?y, 3).", "price/2"),
    ):
        with pytest.raises(UnboundArgument) as caught:
            program(text)
        assert caught.value.predicate == predicate
        assert caught.value.arguments == [1]


def test_components_that_recurse_through_negation_are_refused():
    form, _, goal = read("w(?x) :- price(?x, ?y), not w(?y). ?- w(a).", PRICE)
    with pytest.raises(ExternalRecursion, match="price/2"):
        form.check_components(frozenset(), (goal,))
    with pytest.raises(ExternalRecursion):
        form.check((goal,))
    assert [number for number, _ in form.problems()] == [1]
