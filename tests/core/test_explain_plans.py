"""Plans of goals as text and as values: golden texts, time by step, use of goal tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.runtimes import runtime, runtime_on

from kbcore.clock import ManualClock
from kbcore.errors import BudgetExceeded
from kbcore.reason.budget import RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_goal, parse_rule

RULES = """
    reach(?x, ?y) :- link(?x, ?y).
    reach(?x, ?z) :- reach(?x, ?y), link(?y, ?z).
    far(?x, count(?y)) :- reach(?x, ?y), not link(?x, ?y), ?y != a.
"""

FOLDER = Path(__file__).parent / "golden"

GOLDEN = {
    "bound": ("reach(a, ?y)", False),
    "bound-analyzed": ("reach(a, ?y)", True),
    "aggregate-analyzed": ("far(?x, ?n)", True),
    "several-analyzed": ("reach(?x, ?y), link(?y, ?z), link(?z, ?x)", True),
    "stored-analyzed": ("link(a, ?y)", True),
}


class Ticking(ManualClock):
    """A clock on which every look takes a millisecond."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def kb(clock):
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        taught(kb)
        yield kb


def taught(kb):
    kb.assert_rules([parse_rule(text.strip()) for text in RULES.strip().splitlines()])
    kb.assert_facts([Fact("link", tuple(pair)) for pair in ("ab", "bc", "cd", "bd")])


def body(text):
    return parse_goal(text).body


def steps(plan):
    return [
        step for stratum in plan["strata"] for rule in stratum["rules"] for step in rule["steps"]
    ]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(kb, name):
    """`KB_GOLDEN=write` rewrites the texts for review."""
    goal, analyze = GOLDEN[name]
    found = kb.plan(body(goal), analyze=analyze) + "\n"
    path = FOLDER / f"plan-{name}.txt"
    if os.environ.get("KB_GOLDEN") == "write":
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", ["c", "python"])
def test_the_sums_are_complete(clock, engine):
    with runtime_on(engine, clock=clock) as node:
        kb = node.knowledge_base()
        taught(kb)
        for goal in (
            "reach(?x, ?y)",
            "reach(a, ?y)",
            "far(?x, ?n)",
            "reach(?x, ?y), not link(?x, ?y)",
        ):
            (plan,) = kb.plans(body(goal), analyze=True)
            rules = [rule for stratum in plan["strata"] for rule in stratum["rules"]]
            for key, whole in (
                ("rows", "rowsMade"),
                ("rowsRead", "rowsRead"),
                ("lookUps", "lookUps"),
            ):
                assert (
                    sum(rule[key] for rule in rules)
                    == sum(rule[key] for rule in plan["rules"])
                    == plan[whole]
                )
            assert sum(stratum["rows"] for stratum in plan["strata"]) == plan["rowsMade"]
            assert sum(stratum["rounds"] for stratum in plan["strata"]) == plan["rounds"]
            for stratum in plan["strata"]:
                assert sum(rule["rows"] for rule in stratum["rules"]) == stratum["rows"]
            assert all(rule["steps"][-1]["rows"] == rule["rows"] for rule in rules)


def test_answers_are_counted_as_they_are_given(kb):
    kb.assert_facts([Fact("link", ("d", "b"))])
    for args in ("?x, ?y", "a, ?y", "?x, d", "?x, ?x", "a, d", "d, a"):
        (literal,) = body(f"reach({args})")
        assert kb.plans([literal], analyze=True)[0]["answers"] == len(kb.infer(literal)), args
    assert kb.plans(body("reach(a, ?y), link(?y, d)"), analyze=True)[0]["answers"] == 2
    assert kb.plans(body("link(a, ?y)"), analyze=True)[0]["answers"] == 1


def test_a_plan_alone_runs_nothing(clock):
    with runtime(clock=clock, query_max_rows=3) as node:
        kb = node.knowledge_base()
        taught(kb)
        (plan,) = kb.plans(body("reach(?x, ?y)"))
        assert (plan["analyzed"], plan["answers"], plan["ms"], plan["rowsMade"]) == (
            False,
            None,
            None,
            None,
        )
        assert all(
            stratum["rounds"] is stratum["ms"] is stratum["rows"] is None
            for stratum in plan["strata"]
        )
        assert all(step["rows"] is None for step in steps(plan))
        with pytest.raises(BudgetExceeded) as caught:
            kb.plans(body("reach(?x, ?y)"), analyze=True)
        assert caught.value.details["limit"] == "derivedRows"
        assert caught.value.details["rule"] == "reach(?x, ?y) :- link(?x, ?y)."


def test_the_time_of_a_stratum_is_that_of_its_steps():
    with runtime(clock=Ticking()) as node:
        kb = node.knowledge_base()
        taught(kb)
        (plan,) = kb.plans(body("far(?x, ?n)"), analyze=True)
        times = [stratum["ms"] for stratum in plan["strata"]]
        assert times == [1.0] * len(times)
        assert plan["ms"] == sum(times)


def test_a_run_that_is_too_long_is_stopped():
    with runtime(clock=Ticking()) as node:
        kb = node.knowledge_base()
        taught(kb)
        with pytest.raises(BudgetExceeded) as caught:
            kb.plans(
                body("far(?x, ?n)"),
                AnswerOptions(request_limits=RequestLimits(timeout_ms=5)),
                analyze=True,
            )
        assert caught.value.details["limit"] == "timeMs"


def test_what_a_goal_table_would_do(kb):
    def state(goal, analyze=False, **more):
        (plan,) = kb.plans(body(goal), AnswerOptions(**more), analyze=analyze)
        return plan["table"]["state"]

    def ask(goal):
        (literal,) = body(goal)
        kb.infer(literal)

    assert state("reach(?x, ?y)") == "none"
    assert state("reach(?x, ?y)", analyze=True) == "none"
    assert state("reach(?x, ?y)") == "none"  # what is analyzed is not kept
    ask("reach(?x, ?y)")
    assert state("reach(?x, ?y)") == "current"
    kb.assert_facts([Fact("link", ("d", "e"))])
    assert state("reach(?x, ?y)") == "continued"
    ask("reach(?x, ?y)")
    assert state("reach(?x, ?y)") == "current"
    kb.retract_fact("link", ("d", "e"))
    assert state("reach(?x, ?y)") == "stale"
    assert state("reach(?x, ?y)", as_of=0) == "none"
    counts = kb.plans(body("reach(?x, ?y)"))[0]["table"]["counts"]
    assert counts == {"current": 0, "continued": 1, "stale": 0, "missed": 1}


def test_another_binding_continues_a_table(kb):
    kb.assert_rules([parse_rule("pair(?x, ?y) :- link(?x, ?z), link(?z, ?y).")])
    (literal,) = body("pair(a, ?y)")
    kb.infer(literal)
    assert kb.plans([literal])[0]["table"]["state"] == "current"
    assert kb.plans(body("pair(b, ?y)"))[0]["table"]["state"] == "continued"


def test_the_past_and_partitions(kb, clock):
    clock.advance(1000)
    then = clock.now_ms()
    clock.advance(1000)
    kb.assert_facts([Fact("link", ("d", "e"))])
    kb.assert_facts([Fact("link", ("x", "y"), scope="s")])
    now, past = (
        kb.plans(body("reach(a, ?y)"), AnswerOptions(as_of=at), analyze=True)[0]
        for at in (None, then)
    )
    assert (now["answers"], past["answers"]) == (4, 3)
    plans = kb.plans(body("reach(?x, ?y)"), AnswerOptions(scope="*"), analyze=True)
    assert [(plan["scope"], plan["answers"]) for plan in plans] == [(None, 10), ("s", 1)]


def test_recursion_through_negation_is_settled_first(kb):
    kb.assert_rules([parse_rule("win(?x) :- link(?x, ?y), not win(?y).")])
    (plan,) = kb.plans(body("win(?x)"), analyze=True)
    (literal,) = body("win(?x)")
    assert plan["answers"] == len(kb.infer(literal)) == 2


def test_constants_that_only_rules_have(clock):
    with runtime(clock=clock) as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule("kind(?x, node) :- link(?x, ?y).")])
        kb.assert_facts([Fact("link", ("a", "b"))])
        assert kb.plans(body("kind(?x, node)"), analyze=True)[0]["answers"] == 1
        (plan,) = kb.plans(body("kind(?x, edge)"), analyze=True)
        assert (plan["constantsKnown"], plan["answers"], plan["ms"]) == (False, 0, None)
        assert "not run: no fact and no conclusion has the constants of this goal" in kb.plan(
            body("kind(?x, edge)")
        )


def test_estimates_come_from_what_is_stored(kb):
    kb.assert_facts([Fact("big", (str(i), str(i % 10))) for i in range(1000)])
    kb.assert_rules([parse_rule("both(?x, ?y) :- big(?x, ?k), big(?y, ?k).")])
    (plan,) = kb.plans(body("both(?x, ?y)"), analyze=True)
    demand, first, second, emit = plan["strata"][0]["rules"][0]["steps"]
    assert (demand["estimatedRows"], first["estimatedRows"], second["estimatedPerLookUp"]) == (
        1.0,
        1000.0,
        100.0,
    )
    assert second["estimatedRows"] == second["rows"] == emit["rows"] == plan["answers"] == 100_000
    assert not second["assumed"]
    assert (second["mask"], second["adornment"], second["atom"]) == ("fb", "fb", "big(?y, ?k)")
