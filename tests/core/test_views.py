"""Labels and views: lower levels change nothing above them, and no view shows what others store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.errors import AlreadyExists, BudgetExceeded, Conflict, Forbidden, InvalidInput, TooLarge
from kbcore.state.labels import MAX_LABEL_SETS
from kbplanner.ir.terms import Variable

DECLARED = "@levels trust: web < tool < user. @groups team: hr, eng."
WEB = {"trust": "web"}
USER = {"trust": "user"}
AT = "2030-01-01T00:00:00Z"
HR, ENG = {"team": ["hr"]}, {"team": ["eng"]}


@pytest.fixture
def kb():
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        yield kb


def stored(kb: kbcore.KnowledgeBase) -> list[Any]:
    return kb._runtime.read_tenant("default", "default").rules.declarations()


def answers(kb: kbcore.KnowledgeBase, goal: str) -> list[tuple[str, ...]]:
    return sorted(map(tuple, kb.ask(goal)))


# -- what lower levels cannot change ---------------------------------------------------------------


def test_a_lower_level_removes_nothing_above_it(kb: kbcore.KnowledgeBase) -> None:
    kb.tell("likes(ann, tea)")
    kb.teach("drinks(?x, ?y) :- likes(?x, ?y).")
    web = kb.viewed(None, WEB)
    assert web.retract("likes(ann, tea)").retracted == 0
    assert web.retract("likes(?x, ?y)").retracted == 0
    web.retract_rule("drinks(?x, ?y) :- likes(?x, ?y).")
    assert answers(kb.viewed(USER), "drinks(?x, ?y)") == [("ann", "tea")]


def test_a_lower_level_removes_its_own_part_of_a_stack(kb: kbcore.KnowledgeBase) -> None:
    web = kb.viewed(None, WEB)
    kb.tell("likes(ann, tea)")
    web.tell("likes(ann, tea)")
    web.tell("likes(ann, rum)")
    web.retract("likes(?x, ?y)")
    assert answers(kb, "likes(?x, ?y)") == [("ann", "tea")]


@pytest.mark.parametrize("strategy", ["NEWEST_WINS", "CONFIDENCE", "REJECT"])
def test_a_lower_level_refuses_nothing_above_it(kb: kbcore.KnowledgeBase, strategy: str) -> None:
    kb.teach("@key lives(?who, _).")
    web = kb.viewed(None, WEB)
    web.tell("~safe(box)", confidence=1)
    web.tell("lives(bob, mars)", confidence=1)
    kb.tell("safe(box)", confidence=0.5, conflict=strategy)
    kb.tell("lives(bob, rome)", confidence=0.5, conflict=strategy)
    assert answers(kb.viewed(USER), "safe(?x)") == [("box",)]
    assert answers(kb.viewed(USER), "lives(bob, ?x)") == [("bob", "rome")]


def test_a_later_value_of_a_lower_level_ends_nothing_above_it(kb: kbcore.KnowledgeBase) -> None:
    kb.teach("@key lives(?who, _).")
    kb.viewed(None, WEB).tell("lives(bob, mars)", valid_from="2040-01-01T00:00:00Z")
    kb.tell("lives(bob, rome)", conflict="NEWEST_WINS")
    (row,) = kb.viewed(USER).recall("lives(bob, ?x)", at=AT)
    assert row["validUntil"] is None


@pytest.mark.parametrize("view", [None, ENG])
def test_a_value_of_a_group_ends_nothing_that_others_may_see(
    kb: kbcore.KnowledgeBase, view: Any
) -> None:
    """A shorter validity of the fact for everybody would tell them of the value."""
    kb.teach("@key lives(?who, _).")
    for group in (HR, ENG):
        kb.viewed(None, group).tell("lives(bob, mars)", valid_from="2040-01-01T00:00:00Z")
    for strategy in ("NEWEST_WINS", "REJECT"):
        kb.viewed(view).tell("lives(bob, rome)", conflict=strategy)
    (row,) = kb.viewed({"team": []}).recall("lives(bob, ?x)", at=AT)
    assert row["validUntil"] is None


def test_a_constraint_is_checked_among_facts_of_the_same_groups(kb: kbcore.KnowledgeBase) -> None:
    kb.teach("@key lives(?who, _).")
    both = kb.viewed(None, {"team": ["hr", "eng"]})
    both.tell("lives(bob, mars)")
    for handle in (both, kb.viewed(None, ENG), kb.viewed(ENG, ENG)):
        with pytest.raises(Conflict):
            handle.tell("lives(bob, rome)", conflict="REJECT")
    kb.tell("lives(bob, rome)", conflict="REJECT")


def test_a_lower_level_that_stated_the_same_gives_no_beginning(kb: kbcore.KnowledgeBase) -> None:
    kb.teach("@key lives(?who, _).")
    kb.viewed(None, WEB).tell("lives(bob, rome)", valid_from="2001-01-01T00:00:00Z")
    kb.tell("lives(bob, rome)", valid_from="2020-01-01T00:00:00Z", conflict="NEWEST_WINS")
    with kbcore.open_kb() as only:
        only.teach("@key lives(?who, _).")
        only.tell("lives(bob, rome)", valid_from="2020-01-01T00:00:00Z", conflict="NEWEST_WINS")
        (expected,) = only.recall("lives(bob, ?x)", at=AT)
    (row,) = kb.viewed(USER).recall("lives(bob, ?x)", at=AT)
    assert row["validFrom"] == expected["validFrom"]


def test_a_higher_level_ends_what_is_below(kb: kbcore.KnowledgeBase) -> None:
    kb.teach("@key lives(?who, _).")
    kb.viewed(None, WEB).tell("lives(bob, mars)", valid_from="2001-01-01T00:00:00Z")
    kb.tell("lives(bob, rome)", conflict="NEWEST_WINS")
    assert answers(kb, "lives(bob, ?x)") == [("bob", "rome")]


def test_a_lower_level_gives_no_priority(kb: kbcore.KnowledgeBase) -> None:
    kb.tell("likes(ann, tea)")
    (before,) = kb.viewed(USER).salient("likes")
    kb.viewed(None, WEB).prioritize("likes(ann, tea)", priority=1)
    (after,) = kb.viewed(USER).salient("likes")
    assert after["salience"] <= before["salience"]


def test_a_script_of_a_lower_level_stores_nothing_above(kb: kbcore.KnowledgeBase) -> None:
    """A text with queries is a transaction."""
    for mixed in ("q(x).", "q(x). ?- q(?x).", "?- q(?x). q(x)."):
        kb.viewed(None, WEB).execute(mixed)
    assert answers(kb.viewed(USER), "q(?x)") == []
    assert answers(kb, "q(?x)") == [("x",)]


@pytest.mark.parametrize("labels", [WEB, ENG])
def test_declarations_belong_to_everybody(kb: kbcore.KnowledgeBase, labels: Any) -> None:
    kb.teach('@phrase likes/2 "{0} likes {1}".')
    declared = [each.id for each in stored(kb)]
    for handle in (kb.viewed(None, labels), kb.viewed(labels), kb.viewed(labels, labels)):
        for id in declared:
            with pytest.raises(InvalidInput):
                handle.kb.retract_rule(id=id)
        with pytest.raises(InvalidInput):
            handle.teach("@groups more: a, b.")
    assert [each.id for each in stored(kb)] == declared


def test_a_new_highest_level_raises_nothing(kb: kbcore.KnowledgeBase) -> None:
    kb.viewed(None, USER).tell("p(a)")
    with pytest.raises(Conflict):
        kb.teach("@levels trust: web < tool < user < owner.")
    kb.teach("@levels trust: none < web < tool < user.")
    assert answers(kb.viewed(USER), "p(?x)") == [("a",)]


def test_labels_of_rule_sets_and_of_what_is_stored_by_hand(kb: kbcore.KnowledgeBase) -> None:
    web, hr = kb.viewed(None, WEB), kb.viewed(None, HR)
    kb.deploy("p(a). p(b). q(?x) :- p(?x).", "own")
    for handle in (web, hr):
        handle.tell("p(a)")
        handle.teach("q(?x) :- p(?x).")
    web.retract("p(b)")
    assert answers(kb.viewed(USER), "q(?x)") == [("a",), ("b",)]
    kb.deploy("p(b).", "own")
    assert answers(kb.viewed({**USER, "team": []}), "p(?x)") == [("b",)]
    assert answers(kb.viewed({**USER, "team": []}), "q(?x)") == []
    assert answers(kb.viewed({**USER, **HR}), "q(?x)") == [("a",), ("b",)]
    assert answers(kb.viewed({**WEB, "team": []}), "q(?x)") == [("a",), ("b",)]


# -- what a view does not show ---------------------------------------------------------------------


def test_equal_texts_of_two_groups_are_two_episodes(kb: kbcore.KnowledgeBase) -> None:
    message = "ann", "I resign"
    hr, eng = kb.viewed(HR, HR), kb.viewed(ENG, ENG)
    first = hr.add_episode(*message, at="2026-01-01T00:00:00Z")
    second = eng.add_episode(*message, at="2026-01-01T00:00:00Z")
    assert first.is_new
    assert second.is_new
    assert not eng.add_episode(*message, at="2026-01-01T00:00:00Z").is_new
    assert [each.id for each in eng.episodes().episodes] == [second.episode.id]


def test_the_id_of_an_episode_that_a_view_does_not_show_is_in_use(kb: kbcore.KnowledgeBase) -> None:
    kb.viewed(None, HR).add_episode("ann", "I resign", id="e1")
    for text in ("I resign", "hello"):
        with pytest.raises(AlreadyExists) as error:
            kb.viewed(ENG, ENG).add_episode("ann", text, id="e1")
        assert error.value.details == {"episode": "e1"}


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_view_shows_no_names_of_variables_of_others(tmp_path, snapshot: bool) -> None:
    with kbcore.open_kb(path=tmp_path) as kb:
        kb.teach(DECLARED)
        kb.viewed(HR, HR).teach("paid(?salary_of_bob) :- wage(?salary_of_bob).")
        kb.viewed(ENG, ENG).teach("paid(?x) :- wage(?x).")
        if snapshot:
            kb._runtime.snapshot()
    with kbcore.open_kb(path=tmp_path) as kb:
        assert [each.text for each in kb.viewed(ENG).rules()] == ["paid(?x) :- wage(?x)."]
        kb.viewed(HR).retract_rule("paid(?x) :- wage(?x).")
        assert [each.text for each in kb.rules()] == ["paid(?x) :- wage(?x)."]


def test_the_last_set_of_labels(kb: kbcore.KnowledgeBase) -> None:
    groups = [f"g{index}" for index in range(60)]
    kb.teach(f"@groups many: {', '.join(groups)}.")
    chosen = list(itertools.islice(itertools.combinations(groups, 3), MAX_LABEL_SETS + 1))
    for index, own in enumerate(chosen[:-1]):
        kb.viewed(None, {"many": own}).tell(f"p({index})")
    with pytest.raises(TooLarge):
        kb.viewed(None, {"many": chosen[-1]}).tell("p(x)")
    kb.viewed({"many": ["g1"]}).tell("p(y)")
    kb.viewed(None, {"many": chosen[0]}).tell("p(z)")
    assert answers(kb, "p(y)")


def test_what_is_undone_has_its_labels_again(kb: kbcore.KnowledgeBase) -> None:
    hr, web = kb.viewed(None, HR), kb.viewed(None, {"trust": "web"})
    rule = "paid(?who) :- wage(?who, _)."
    hr.teach(rule)
    kb.tell("wage(ann, 1)", confidence=0.25)
    hr.tell("wage(ann, 1)", confidence=0.75)
    web.tell("wage(bob, 2)")
    before = kb.dump()
    for change in (
        lambda: kb.retract_rule(rule),
        lambda: kb.retract("wage(ann, 1)"),
        lambda: hr.tell("wage(ann, 1)", confidence=0.5),
        lambda: web.tell("wage(ann, 1)"),
        lambda: kb.tell("wage(bob, 2)"),
        lambda: kb.teach(rule),
        lambda: kb.kb.retract_pattern("wage", None),
    ):
        change()
        assert kb.dump() != before
        kb.kb.undo(seq=kb._runtime.log_head("default", "default"))
        assert kb.dump() == before
        assert kb.viewed(ENG).query("wage(?who, ?sum)").rows()[0]["confidence"] == 0.25


def test_labels_undo_and_correct_only_what_they_may_change(kb: kbcore.KnowledgeBase) -> None:
    web = kb.viewed(None, {"trust": "web"})
    rule = "paid(?who) :- wage(?who, _)."
    kb.tell("wage(ann, 1) [trust=user]. wage(bob, 2) [team=hr].")

    def last() -> int:
        return kb._runtime.log_head("default", "default")

    kb.teach(rule.replace(").", ") [team=hr]."))
    kb.retract_rule(rule)
    before, seq = kb.dump(), last()
    for attempt in (
        lambda: web.undo(seq),  # the rule would be back, with the highest level
        lambda: web.undo(seq - 1),
        lambda: web.undo(seq - 2),
        lambda: web.correct("wage(ann, 1)", "wage(ann, 2)", reason="so"),
        lambda: web.correct("wage(bob, 2)", "wage(bob, 3)", reason="so"),
    ):
        with pytest.raises(Forbidden) as refused:
            attempt()
        assert refused.value.details == {"dimension": "trust"}
        assert kb.dump() == before
    web.teach(rule)
    web.undo(last())
    assert kb.dump() == before
    web.tell("wage(cid, 1)")
    web.correct("wage(cid, 1)", "wage(cid, 2)", reason="so")
    assert [each["labels"] for each in kb.query("wage(cid, ?sum)").rows()] == [{"trust": "web"}]


def test_what_a_view_corrects_keeps_its_labels(kb: kbcore.KnowledgeBase) -> None:
    hr = kb.viewed(HR)
    kb.tell("wage(ann, 1) [team=hr]. wage(ann, 1) [team=eng].")
    hr.correct("wage(ann, 1)", "wage(ann, 2)", reason="so")
    labels = [(each["args"][1], each["labels"]) for each in kb.query("wage(ann, ?sum)").rows()]
    assert sorted(labels, key=str) == [("1", ENG), ("2", HR)]


def test_labels_of_what_a_rule_set_contains_are_not_undone(kb: kbcore.KnowledgeBase) -> None:
    kb.deploy("p(a). q(?x) :- p(?x).", name="small")
    for text in ("p(a)", "q(?x) :- p(?x)."):
        kb.viewed(None, HR).tell(text)
        with pytest.raises(Conflict, match="rule set 'small'"):
            kb.kb.undo(seq=kb._runtime.log_head("default", "default"))


def test_a_corrected_fact_keeps_its_labels(kb: kbcore.KnowledgeBase) -> None:
    kb.viewed(None, HR).tell("wage(ann, 1)")
    kb.correct("wage(ann, 1)", "wage(ann, 9)", reason="a typing error")
    assert kb.viewed(ENG).predicates() == []
    assert answers(kb.viewed({"team": ["hr"]}), "wage(ann, ?x)") == [("ann", "9")]
    kb.tell("wage(ann, 9)")
    with pytest.raises(Conflict, match="several labels"):
        kb.correct("wage(ann, 9)", "wage(ann, 8)", reason="a typing error")


def test_a_summary_has_the_labels_of_its_facts(kb: kbcore.KnowledgeBase) -> None:
    hr = kb.viewed(None, HR)
    for index in range(3):
        hr.tell(f"wage(ann, {index})")
        kb.tell(f"wage(ann, {index + 2})")  # one of them is there with both
    kb.consolidate(min_group_size=3)
    assert answers(kb.viewed(ENG), "wage_consolidated(ann, ?n)") == [("ann", "3")]
    assert len(kb.query("wage_consolidated(ann, 3)").rows()[0]["byLabels"]) == 2
    kb.tell("wage(ann, 9)")
    kb.consolidate(min_group_size=3)
    assert answers(kb.viewed(ENG), "wage_consolidated(ann, ?n)") == [("ann", "4")]
    both = answers(kb.viewed({"team": ["hr"]}), "wage_consolidated(ann, ?n)")
    assert both == [("ann", "3"), ("ann", "4")]
    (left,) = kb.query("wage_consolidated(ann, 3)").rows()
    assert left["labels"] == {"team": ["hr"]}
    assert "byLabels" not in left


def test_a_merge_keeps_labels(kb: kbcore.KnowledgeBase) -> None:
    kb.tell("wage(ann, 1)", confidence=0.5)
    kb.fork("draft")
    kb.viewed(None, HR).tell("wage(ann, 2)", scope="draft")
    kb.viewed(None, WEB).tell("~wage(ann, 1)", scope="draft")
    kb.viewed(None, HR).tell("wage(ann, 1)", scope="draft", confidence=0.9)
    kb.tell("ok(a)")
    kb.tell("~ok(a)", scope="draft")
    with pytest.raises(Conflict, match="conflict"):
        kb.merge("draft", strategy="REJECT")
    outcome = kb.merge("draft")
    assert (outcome.merged, outcome.strategy) == (4, "SOURCE_WINS")
    everybody = {"trust": "user", "team": []}
    assert answers(kb.viewed(everybody), "wage(ann, ?x)") == [("ann", "1")]
    assert answers(kb.viewed(everybody), "~ok(?x)") == [("a",)]
    assert answers(kb.viewed({"trust": "user", **HR}), "wage(ann, ?x)") == [
        ("ann", "1"),
        ("ann", "2"),
    ]
    assert answers(kb.viewed({"trust": "user"}), "~wage(ann, 1)") == []
    (row,) = kb.query("wage(ann, 1)").rows()
    assert [each.get("labels") for each in row["byLabels"]] == [None, HR]


def write_beside(
    kb: kbcore.KnowledgeBase,
    write: Callable[[kbcore.KnowledgeBase], object],
    other: Callable[[], object],
) -> None:
    """Write in a transaction, and something else before its commit."""
    with kb.transaction() as inside:
        write(inside)
        other()


def test_a_transaction_of_a_view_meets_only_what_the_view_admits(
    kb: kbcore.KnowledgeBase,
) -> None:
    eng = kb.viewed(ENG, ENG)
    eng.tell("p(a)")
    with eng.transaction() as inside:
        assert answers(inside, "p(?x)") == [("a",)]
        kb.viewed(None, HR).tell("p(zebra)")
        kb.viewed(None, HR).teach("p(?x) :- zebra(?x).")
        inside.tell("q(b)")
        assert answers(inside, "q(?x)") == [("b",)]
    with pytest.raises(Conflict) as caught:
        write_beside(
            eng,
            lambda inside: (answers(inside, "p(?x)"), inside.tell("q(c)")),
            lambda: kb.tell("p(c)"),
        )
    assert caught.value.details["changed"] == [{"predicate": "p", "arity": 1, "scope": None}]
    assert answers(kb, "q(?x)") == [("b",)]


def test_a_dimension_is_not_dropped_beside_a_write_of_its_labels(
    kb: kbcore.KnowledgeBase,
) -> None:
    kb.teach("@levels care: some < full.")
    cared = kb.viewed(None, {"care": "some"})
    with pytest.raises(Conflict, match="labels of care are not declared any more"):
        write_beside(
            cared, lambda inside: inside.tell("p(a)"), lambda: kb.retract_rule("@care labels")
        )
    with pytest.raises(Conflict, match="labels of care are not declared any more"):
        cared.tell("p(a)")  # its labels were read before
    kb.teach("@levels care: some < full.")
    cared.tell("p(a)")
    with pytest.raises(Conflict, match="labels of care are in use"), kb.transaction() as inside:
        inside.retract_rule("@care labels")


def test_what_a_predicate_requires_is_checked_at_the_commit(kb: kbcore.KnowledgeBase) -> None:
    with pytest.raises(Forbidden, match="pay/1 requires trust >= user"):
        write_beside(
            kb.viewed(None, WEB),
            lambda inside: inside.tell("pay(ann)"),
            lambda: kb.teach("@requires pay(?x) trust >= user."),
        )
    assert answers(kb, "pay(?x)") == []


def test_an_earlier_state_through_a_view() -> None:
    clock = ManualClock(1_700_000_000_000)
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.teach(DECLARED)
        kb.viewed(None, HR).tell("p(zebra)")
        kb.viewed(None, ENG).tell("p(a)")
        kb.viewed(None, WEB).tell("p(web)")
        before = clock.now_ms()
        clock.advance(1000)
        kb.viewed(None, ENG).tell("p(b)")
        kb.viewed(None, ENG).retract("p(a)")
        kb.teach("@levels trust: low < web < tool < user.")
        for view, expected in ((ENG, ["a", "web"]), (HR, ["web", "zebra"]), (USER, ["a", "zebra"])):
            earlier = kb.viewed(view).known_at(before)
            assert [x for (x,) in answers(earlier, "p(?x)")] == expected
        assert answers(kb.viewed(ENG), "p(?x)") == [("b",), ("web",)]


def test_a_retraction_through_a_view(kb: kbcore.KnowledgeBase) -> None:
    """Its conclusions are counted in the state of the view, which has symbols of its own."""
    for index in range(50):
        kb.viewed(None, HR).tell(f"other(x{index}, y{index})")
    hr, eng = kb.viewed(None, HR), kb.viewed(ENG, ENG)
    kb.teach("reached(?y) :- edge(?x, ?y).")
    eng.tell("edge(a, b)", metadata={"by": "eng"})
    hr.tell("edge(a, b)", metadata={"by": "zebra"})
    outcome = eng.kb.retract_fact("edge", ("a", "b"))
    assert [row["metadata"] for row in outcome.atoms] == [{"by": "eng"}]
    assert outcome.cascaded == 1
    assert "labels" not in outcome.atoms[0]
    assert answers(kb.viewed(HR), "reached(?x)") == [("b",)]
    eng.tell("edge(a, c)")
    assert eng.kb.retract_pattern("edge", (Variable("x"), "c")).cascaded == 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_stacks_of_a_forked_scope_after_a_restart(tmp_path, snapshot: bool) -> None:
    with kbcore.open_kb(path=tmp_path) as kb:
        kb.teach(DECLARED)
        for labels in (HR, ENG):
            kb.viewed(None, labels).tell("p(a)")
        kb.fork("draft")
        if snapshot:
            kb._runtime.snapshot()
    with kbcore.open_kb(path=tmp_path) as kb:
        kb.retract("p(a)")
        assert [tuple(each) for each in kb.viewed(ENG).ask("p(?x)", scope="draft")] == [("a",)]
        assert answers(kb.viewed(ENG), "p(?x)") == []


# -- concurrency -----------------------------------------------------------------------------------


def test_a_tenant_is_written_while_a_view_is_copied(kb: kbcore.KnowledgeBase) -> None:
    kb.tell_many("e", [(str(index), "x") for index in range(20_000)])
    hr = kb.viewed(None, HR)
    done = threading.Event()
    written = []

    def write() -> None:
        while not done.is_set() and len(written) < 2000:
            number = len(written)
            kb.tell("late", [str(number)])
            hr.tell("hidden", [str(number)])
            kb.retract("e", [str(number), "x"])
            written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for groups in (["hr"], ["eng"], []):
            view = kb.viewed({"team": groups})
            assert view.ask("e(?x, ?y)").count() <= 20_000
    finally:
        done.set()
        writer.join()
    for groups in (["hr"], ["eng"], []):
        view = kb.viewed({"team": groups})
        assert view.ask("e(?x, ?y)").count() == 20_000 - len(written)
        assert view.ask("late(?x)").count() == len(written)
        assert view.ask("hidden(?x)").count() == len(written) * ("hr" in groups)


def test_a_read_of_a_view_stops_neither_writers_nor_other_readers(
    kb: kbcore.KnowledgeBase,
) -> None:
    kb.tell("p(a)")
    view = kb.viewed(ENG)
    view.ask("p(?x)").count()
    state = view.kb._read_tenant()
    with state.lock.read():  # a goal that takes long
        kb.tell("p(b)")
        reader = threading.Thread(target=lambda: view.ask("p(?x)").count())
        reader.start()
        kb.tell("p(c)")
        assert kb.ask("p(?x)").count() == 3
    reader.join()
    assert view.ask("p(?x)").count() == 3


def test_the_copy_of_a_view_ends_with_the_time_of_its_request() -> None:
    clock = ManualClock()
    with runtime(clock=clock, query_timeout_ms=1000) as node:
        kb = node.open()
        kb.teach(DECLARED)
        kb.tell_many("e", [(str(index), "x") for index in range(20_000)])
        hr = kb.viewed(HR)
        slow = pytest.MonkeyPatch()
        slow.setattr(node, "yield_now", lambda: clock.advance(100))
        with pytest.raises(BudgetExceeded, match="1000 ms"):
            hr.kb._read_tenant()  # a goal would end with its own time
        slow.undo()
        assert hr.ask("e(?x, ?y)").count() == 20_000


def test_sessions_of_one_view_end_none_of_others() -> None:
    with runtime(tenant_max_sessions=3) as node:
        kb = node.open()
        kb.teach(DECLARED + " p(a).")
        hr, eng = kb.viewed(HR), kb.viewed(ENG)
        hr.context(goals=["p(?x)"], session="s")
        for number in range(5):
            eng.context(goals=["p(?x)"], session=f"s{number}")
        assert hr.kb.last_window("s") is not None
        known = [number for number in range(5) if eng.kb.last_window(f"s{number}")]
        assert known == [3, 4]


def test_a_snapshot_forgets_labels_that_nothing_has(tmp_path: Any) -> None:
    with runtime(tmp_path) as node:
        kb = node.open()
        kb.teach("@levels care: some < full. @groups team: hr, eng.")
        cared = kb.viewed(None, {"care": "some"})
        cared.tell("p(a)")
        cared.teach("q(?x) :- p(?x).")
        kb.viewed(None, HR).tell("p(b)")
        node.snapshot()
        cared.retract("p(a)")
        cared.retract_rule("q(?x) :- p(?x).")
        with pytest.raises(Conflict, match="labels of care are in use"):
            kb.retract_rule("@care labels")
        node.snapshot()
        kb.retract_rule("@care labels")
        with pytest.raises(Conflict, match="labels of team are in use"):
            kb.retract_rule("@team labels")
        assert list(node.read_tenant("default", "default").label_sets) == [(("team", ("hr",)),)]
