"""Labels of facts, rules and episodes, and views, of a knowledge base in this process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kbcore
from kbcore.errors import Forbidden

DECLARED = """
@levels trust: web < tool < user.
@groups team: hr, eng.
safe(?x) :- person(?x), not accused(?x).
"""


@pytest.fixture
def kb() -> Any:
    with kbcore.open_kb() as opened:
        opened.teach(DECLARED)
        yield opened


def names(kb: kbcore.KnowledgeBase, goal: str) -> list[str]:
    return sorted(" ".join(map(str, answer)) for answer in kb.ask(goal))


def test_a_lie_of_the_web_defeats_nothing_for_those_who_believe_users(kb: Any) -> None:
    kb.tell("person(ann)")
    kb.viewed(labels={"trust": "web"}).tell("accused(ann)")
    assert names(kb, "safe(?x)") == []
    assert names(kb.viewed({"trust": "user"}), "safe(?x)") == ["ann"]
    assert names(kb.viewed({"trust": "web"}), "safe(?x)") == []


def test_a_team_sees_what_belongs_to_it_and_to_everybody(kb: Any) -> None:
    kb.tell("person(ann)")
    kb.viewed(labels={"team": ["hr"]}).tell("salary(ann, 5)")
    kb.viewed(labels={"team": ["hr", "eng"]}).tell("desk(ann, 12)")
    eng, hr, outside = (kb.viewed({"team": team}) for team in (["eng"], ["hr"], []))
    assert [names(each, "salary(ann, ?x)") for each in (eng, hr, outside)] == [[], ["ann 5"], []]
    assert [names(each, "desk(ann, ?x)") for each in (eng, hr, outside)] == [
        ["ann 12"],
        ["ann 12"],
        [],
    ]
    assert [names(each, "person(?x)") for each in (eng, hr, outside)] == [["ann"]] * 3
    assert "salary" not in {each.predicate for each in eng.predicates()}


def test_a_fact_with_several_labels_has_the_details_of_each(kb: Any) -> None:
    kb.tell("likes(ann, tea)", confidence=0.4)
    kb.viewed(labels={"team": ["hr"]}).tell("likes(ann, tea)", metadata={"secret": "from hr"})
    hr, eng = kb.viewed({"team": ["hr"]}), kb.viewed({"team": ["eng"]})
    (seen,) = eng.query("likes(?x, ?y)").rows()
    assert (seen["metadata"], seen["confidence"]) == ({}, 0.4)
    (seen,) = hr.query("likes(?x, ?y)").rows()
    assert (seen["metadata"], seen["confidence"]) == ({"secret": "from hr"}, None)
    eng.retract("likes(ann, tea)")
    assert [names(each, "likes(?x, ?y)") for each in (kb, hr, eng)] == [["ann tea"]] * 2 + [[]]
    hr.retract("likes(ann, tea)")
    assert names(kb, "likes(?x, ?y)") == []


def test_what_the_web_says_ends_no_value_of_a_user(kb: Any) -> None:
    kb.teach("@key home(?who, _).")
    kb.tell("home(mia, oslo)")
    web = kb.viewed(labels={"trust": "web"})
    web.tell("home(mia, rome)", conflict="NEWEST_WINS")
    assert names(kb.viewed({"trust": "user"}), "home(mia, ?x)") == ["mia oslo"]
    assert names(kb, "home(mia, ?x)") == ["mia oslo", "mia rome"]
    kb.tell("home(mia, bern)", conflict="NEWEST_WINS")
    assert names(kb, "home(mia, ?x)") == ["mia bern"]
    assert names(kb.viewed({"trust": "user"}), "home(mia, ?x)") == ["mia bern"]


def test_views_follow_each_change(kb: Any) -> None:
    user, web = kb.viewed({"trust": "user"}), kb.viewed(labels={"trust": "web"})
    for number in range(5):
        kb.tell(f"person(p{number})")
        web.tell(f"person(w{number})")
        assert names(user, "person(?x)") == [f"p{each}" for each in range(number + 1)]
    kb.teach("short(?x) :- person(?x).")
    web.teach("long(?x) :- person(?x).")
    assert len(names(user, "short(?x)")) == 5
    assert names(user, "long(?x)") == []
    assert [rule.text for rule in user.rules()] == [
        "safe(?x) :- person(?x), not accused(?x).",
        "short(?x) :- person(?x).",
    ]
    kb.retract("person(?x)")
    assert names(user, "person(?x)") == []


def test_labels_survive_restarts_and_backups_of_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    with kbcore.open_kb(path=folder) as kb:
        kb.teach(DECLARED)
        kb.tell("person(ann)")
        kb.viewed(labels={"trust": "web"}).tell("person(ann)")
        kb.viewed(labels={"trust": "web"}).tell("person(eve)")
        kb.viewed(labels={"team": ["hr"]}).teach("odd(?x) :- person(?x).")
        kb.viewed({"trust": "user"}).retract("person(ann)")
        kb.fork("copy")
        before = shutil.copytree(folder, tmp_path / "crashed")
    for opened in (folder, before):  # with a snapshot, and from the log alone
        with kbcore.open_kb(path=opened) as kb:
            user, eng = kb.viewed({"trust": "user"}), kb.viewed({"team": ["eng"]})
            assert names(kb, "person(?x)") == ["ann", "eve"]
            assert names(user, "person(?x)") == []
            assert user.ask("person(?x)", scope="copy").count() == 0
            assert kb.ask("person(?x)", scope="copy").count() == 2
            assert (names(eng, "odd(?x)"), names(user, "odd(?x)")) == ([], [])
            assert names(kb, "odd(?x)") == ["ann", "eve"]


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        ({"mood": "good"}, "no levels or groups have this name"),
        ({"trust": "gossip"}, "one of web < tool < user"),
        ({"trust": ["web"]}, "one of web < tool < user"),
        ({"team": ["sales"]}, "a list of groups: hr, eng"),
        ({"team": 3}, "a list of groups: hr, eng"),
    ],
)
def test_an_unknown_view_is_an_error(kb: Any, view: dict[str, Any], problem: str) -> None:
    with pytest.raises(kbcore.InvalidInput, match=problem):
        kb.viewed(view)


def test_labels_in_use_stay_declared(kb: Any) -> None:
    kb.viewed(labels={"trust": "web"}).tell("person(ann)")
    for declaration in ("@levels trust: tool < user.", "@groups trust: web, user."):
        with pytest.raises(kbcore.Conflict, match="in use"):
            kb.teach(declaration)
    with pytest.raises(kbcore.Conflict, match="in use"):
        kb.retract_rule("@trust labels")
    kb.teach("@levels trust: web < forum < tool < user.")
    assert names(kb.viewed({"trust": "forum"}), "person(?x)") == []


def test_what_would_reach_beyond_a_view_refuses(kb: Any) -> None:
    seen = kb.viewed({"trust": "user"})
    refused = (
        lambda: seen.fork("copy"),
        lambda: seen.memory("ann"),
        lambda: seen.teach('@phrase person/1 "{0} is a person".'),
        lambda: seen.admin(),
        lambda: seen.keys(),
    )
    for each in refused:
        with pytest.raises(kbcore.InvalidInput, match="not available through a view"):
            each()


def test_a_view_of_a_view_is_narrower_and_keeps_its_labels(kb: Any) -> None:
    kb.viewed(labels={"trust": "web"}).tell("person(eve)")
    user = kb.viewed({"trust": "user"}, {"trust": "tool"})
    with pytest.raises(Forbidden, match="trust"):
        user.viewed({"trust": "web"})
    with pytest.raises(Forbidden, match="trust"):
        user.viewed(labels={"trust": "user"})
    user.viewed({"team": ["hr"]}, {"team": ["hr"]}).tell("person(ann)")
    (stored,) = (row for row in kb.query("person(ann)").rows())
    assert stored["labels"] == {"team": ["hr"], "trust": "tool"}
    assert names(user.viewed({"team": []}), "person(?x)") == []


def test_a_transaction_has_the_view_of_its_begin(kb: Any) -> None:
    with kb.transaction() as whole:
        with pytest.raises(kbcore.InvalidInput, match="begun with another view"):
            whole.viewed({"trust": "user"})
        whole.viewed(None, {"trust": "web"}).tell("person(web)")
        with pytest.raises(Forbidden, match="trust"):
            whole.viewed(None, {"trust": "web"}).viewed(None, {"trust": "user"})
    user = kb.viewed({"trust": "user"})
    assert "web" in names(kb, "person(?x)")
    assert "web" not in names(user, "person(?x)")


def test_rules_of_a_view_do_not_replace_those_that_it_does_not_show(kb: Any) -> None:
    kb.viewed(labels={"team": ["hr"]}).teach("@bonus: bonus(?x) :- person(?x).")
    eng = kb.viewed({"team": ["eng"]}, {"team": ["eng"]})
    with pytest.raises(kbcore.Conflict) as refused:
        eng.teach("@bonus: bonus(?x) :- desk(?x, _).")
    assert "person" not in str(refused.value)
    eng.teach("@bonus: bonus(?x) :- person(?x).")
    kb.tell("person(ann)")
    assert names(eng, "bonus(?x)") == ["ann"]
    eng.retract_rule("bonus")
    assert names(eng, "bonus(?x)") == []
    assert names(kb.viewed({"team": ["hr"]}), "bonus(?x)") == ["ann"]


def test_a_scope_is_forked_after_its_labels_are_gone() -> None:
    """The layers of a stack stay, empty, when its fact is retracted."""
    with kbcore.open_kb(config={}) as kb:
        kb.teach("@levels trust: web < user.")
        kb.viewed(labels={"trust": "web"}).tell("q(c)")
        kb.tell_many("q", [("a",), ("c",)])
        kb.retract("q(c)")
        kb.fork("what_if")
        assert kb.ask("q(?x)", scope="what_if") == [("a",)]
