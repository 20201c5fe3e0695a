"""Rule sets with labels: seen through views that admit them, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runtimes import runtime

import kbcore
from kbcore import Conflict, InvalidInput, NotFound
from kbcore.clock import ManualClock
from kbcore.errors import Forbidden

DECLARED = "@levels trust: web < tool < user. @groups team: hr, eng."
WEB, TOOL, USER = {"trust": "web"}, {"trust": "tool"}, {"trust": "user"}
HR, ENG = {"team": ["hr"]}, {"team": ["eng"]}


@pytest.fixture
def kb() -> Any:
    with kbcore.open_kb() as opened:
        opened.teach(DECLARED)
        yield opened


def answers(kb: Any, goal: str) -> list[Any]:
    return sorted(map(tuple, kb.ask(goal)))


def listed(kb: Any) -> list[tuple[str, int, Any]]:
    return [(each.name, each.version, each.labels) for each in kb.rule_sets()]


def test_what_follows_from_a_rule_set_is_seen_where_its_labels_are_admitted(kb: Any) -> None:
    kb.tell("p(b)")
    kb.viewed(labels=WEB).deploy("p(a). q(?x) :- p(?x).", "set")
    assert answers(kb, "q(?x)") == [("a",), ("b",)]
    for view in (TOOL, USER):
        seen = kb.viewed(view)
        assert answers(seen, "q(?x)") == []
        assert answers(seen, "p(?x)") == [("b",)]
        assert seen.rule_sets() == []
        assert "set" not in seen.dump()
        with pytest.raises(NotFound):
            seen.rule_set("set")
        with pytest.raises(NotFound, match="no rule set 'set'"):
            seen.rule_set_versions("set")
        with pytest.raises(NotFound, match="no rule set 'set'"):
            seen.rule_set_diff("set", 0, 1)
    assert listed(kb) == [("set", 1, WEB)]
    assert kb.rule_set("set").labels == WEB


def test_a_view_shows_rule_sets_without_their_labels(kb: Any) -> None:
    kb.viewed(labels=ENG).deploy("p(a).", "own")
    kb.viewed(labels=HR).deploy("p(b).", "other")
    seen = kb.viewed(ENG)
    assert listed(seen) == [("own", 1, None)]
    seen.deploy("p(a). p(c).", "own")
    assert listed(kb) == [("other", 1, HR), ("own", 2, ENG)]
    assert answers(seen, "p(?x)") == [("a",), ("c",)]
    assert answers(kb.viewed(HR), "p(?x)") == [("b",)]


def test_a_name_that_a_view_does_not_show_is_in_use(kb: Any) -> None:
    kb.viewed(labels=HR).deploy("p(secret).", "taken")
    seen = kb.viewed(ENG)
    for dry_run in (False, True):
        with pytest.raises(Conflict) as raised:
            seen.deploy("p(a).", "taken", expected_version=3, dry_run=dry_run)
        assert raised.value.message == "the name 'taken' is in use"
        assert raised.value.details == {"name": "taken"}
    with pytest.raises(NotFound):
        seen.rollback("taken")


def test_labels_of_a_rule_set_stay(kb: Any) -> None:
    kb.viewed(labels=WEB).deploy("p(a).", "set")
    with pytest.raises(Conflict, match="other labels") as raised:
        kb.viewed(labels=TOOL).deploy("p(b).", "set")
    assert raised.value.details["labels"] == WEB
    kb.deploy("p(b).", "set")
    kb.rollback("set")
    assert answers(kb, "p(?x)") == [("a",)]
    assert answers(kb.viewed(USER), "p(?x)") == []
    assert listed(kb) == [("set", 3, WEB)]
    kb.deploy("p(c).", "plain")
    with pytest.raises(Conflict, match="other labels"):
        kb.viewed(labels=WEB).deploy("p(d).", "plain")


def test_a_view_must_admit_what_it_deploys(kb: Any) -> None:
    with pytest.raises(InvalidInput, match="a view that admits its labels"):
        kb.viewed(USER, WEB).deploy("p(a).", "set")
    assert kb.rule_sets() == []


def test_declarations_belong_to_everybody(kb: Any) -> None:
    for seen in (kb.viewed(labels=WEB), kb.viewed(ENG)):
        with pytest.raises(InvalidInput, match="belongs to everybody"):
            seen.deploy('p(a). @phrase p/1 "{0} is p".', "set")
    assert kb.rule_sets() == []


def test_a_deployment_removes_only_what_has_its_labels(kb: Any) -> None:
    text = "p(a). q(?x) :- p(?x)."
    kb.viewed(labels=WEB).deploy(text, "web")
    kb.teach(text)
    kb.viewed(labels=TOOL).deploy(text, "tool")
    kb.deploy("p(z).", "web")
    assert answers(kb.viewed(TOOL), "q(?x)") == answers(kb.viewed(USER), "q(?x)") == [("a",)]
    assert answers(kb, "p(?x)") == [("a",), ("z",)]
    kb.retract("p(a)")
    assert answers(kb.viewed(TOOL), "p(?x)") == [("a",)]
    assert not answers(kb.viewed(USER), "p(?x)")
    kb.deploy("p(y).", "tool")
    assert answers(kb, "p(?x)") == [("y",), ("z",)]
    kb.retract_rule("q(?x) :- p(?x)")
    assert answers(kb, "q(?x)") == []


def test_a_retraction_by_hand_leaves_what_a_rule_set_has_with_the_same_labels(kb: Any) -> None:
    kb.viewed(labels=WEB).deploy("p(a). q(?x) :- p(?x).", "web")
    kb.tell("p(a)")
    kb.viewed(labels=TOOL).tell("p(a)")
    kb.retract("p(?x)")
    assert answers(kb, "q(?x)") == [("a",)]
    assert answers(kb.viewed(TOOL), "p(?x)") == []
    with pytest.raises(Conflict, match="in the rule set 'web'"):
        kb.retract_rule("q(?x) :- p(?x)")


def test_an_edited_rule_of_a_name_that_others_have_is_refused(kb: Any) -> None:
    kb.viewed(labels=HR).deploy("@named: q(?x) :- p(?x).", "hr")
    eng = kb.viewed(ENG, ENG)
    with pytest.raises(Conflict) as raised:
        eng.deploy("@named: q(?x) :- r(?x).", "eng")
    assert "hr" not in str(raised.value.details)
    assert "p(" not in raised.value.message
    eng.deploy("@own: q(?x) :- r(?x). r(a).", "eng")
    assert answers(eng, "q(?x)") == [("a",)]
    eng.deploy("@own: q(?x) :- s(?x). r(a).", "eng")
    assert answers(eng, "q(?x)") == []


def test_a_dry_run_shows_what_the_view_would_lose(kb: Any) -> None:
    web = kb.viewed(labels=WEB)
    web.deploy("p(a). p(b). q(?x) :- p(?x).", "web")
    kb.teach("p(a). q(?x) :- p(?x).")
    plan = web.deploy("p(c).", "web", dry_run=True, impact=True, impact_goals=["q(?x)"])
    assert plan.impact is not None
    (goal,) = plan.impact.goals
    assert goal.becomes_true == [{"x": "c"}]
    assert goal.becomes_false == [{"x": "b"}]
    web.deploy("p(c).", "web")
    assert answers(kb, "q(?x)") == [("a",), ("c",)]


def test_a_requirement_holds_for_rule_sets(kb: Any) -> None:
    kb.teach("@requires pay(?who) trust >= user.")
    with pytest.raises(Forbidden, match="pay/1 requires trust >= user"):
        kb.viewed(labels=WEB).deploy("pay(?x) :- p(?x).", "web")
    assert kb.rule_sets() == []


@pytest.mark.parametrize("dump_format", ["kb", "jsonl"])
def test_a_dump_keeps_the_labels_of_rule_sets(kb: Any, dump_format: str, tmp_path: Path) -> None:
    kb.viewed(labels=WEB).deploy("p(a). p(b). q(?x) :- p(?x).", "web")
    kb.viewed(labels=ENG).deploy("p(a). r(?x) :- p(?x).", "eng")
    kb.tell("p(a)")
    kb.teach("q(?x) :- p(?x).")
    file = tmp_path / f"all.{dump_format}"
    file.write_text(kb.dump(format=dump_format))
    with kbcore.open_kb() as copy:
        copy.load(file)
        assert listed(copy) == listed(kb) == [("eng", 1, ENG), ("web", 1, WEB)]
        for view in ({}, TOOL, USER, HR, ENG, {**USER, **HR}):
            for goal in ("p(?x)", "q(?x)", "r(?x)"):
                assert answers(copy.viewed(view), goal) == answers(kb.viewed(view), goal)
        assert set(copy.dump().splitlines()[3:]) >= {"p(a).", "q(?x) :- p(?x)."}


@pytest.mark.parametrize("snapshot", [False, True])
def test_labels_of_rule_sets_are_durable(tmp_path: Path, snapshot: bool) -> None:
    with kbcore.open_kb(path=tmp_path) as kb:
        kb.teach(DECLARED)
        kb.viewed(labels=WEB).deploy("p(a). q(?x) :- p(?x).", "web")
        kb.viewed(labels=WEB).tell("p(a)")
        kb.viewed(labels=ENG).deploy("p(b).", "gone")
        kb.deploy("", "gone")
        if not snapshot:
            node = kb.kb._services.system
            node.committer.bytes = node.snapshots._at_bytes = 0
    with kbcore.open_kb(path=tmp_path) as kb:
        assert listed(kb) == [("gone", 2, ENG), ("web", 1, WEB)]
        assert answers(kb.viewed(USER), "q(?x)") == []
        assert answers(kb, "q(?x)") == [("a",)]
        assert kb.rule_set("web").by_hand == ["p(a)."]
        with pytest.raises(Conflict, match="in use"):
            kb.retract_rule("@team labels")
        kb.deploy("p(c).", "web")
        assert answers(kb, "p(?x)") == [("a",), ("c",)]
        kb.rollback("gone")
        assert answers(kb.viewed(HR), "p(?x)") == [("a",), ("c",)]
        assert answers(kb.viewed(ENG), "p(?x)") == [("a",), ("b",), ("c",)]


def test_a_fork_copies_the_labels_of_rule_sets(kb: Any) -> None:
    kb.viewed(labels=WEB).deploy("p(a). q(?x) :- p(?x).", "web", scope="draft")
    kb.fork("copy", "draft")
    assert [(each.scope, each.labels) for each in kb.rule_sets()] == [
        ("copy", WEB),
        ("draft", WEB),
    ]
    assert kb.viewed(USER).rule_sets() == []


def test_an_earlier_state_has_the_rule_sets_of_its_view(kb: Any) -> None:
    kb.viewed(labels=WEB).deploy("p(a).", "web")
    kb.viewed(labels=TOOL).deploy("p(b).", "tool")
    earlier = kb.viewed(TOOL).known_at(kb.kb.clock.now_ms())
    assert [each.name for each in earlier.rule_sets()] == ["tool"]


def test_evicted_details_leave_the_rule_sets_of_other_labels() -> None:
    clock = ManualClock(1_700_000_000_000)
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.teach(DECLARED)
        kb.viewed(labels=WEB).deploy("p(a).", "web")
        kb.tell("p(a)", ttl=1000)
        clock.advance(2000)
        kb.decay()
        check_evicted(kb)


def check_evicted(kb: Any) -> None:
    assert kb.rule_set("web").statements == ["p(a)."]
    assert answers(kb, "p(?x)") == [("a",)]
    assert answers(kb.viewed(USER), "p(?x)") == []
