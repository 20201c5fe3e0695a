"""Rule sets: deployments, versions, owners, and where they are kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.errors import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    NotFound,
    RateLimited,
    RuleSyntaxError,
)
from kbcore.language.rule_review import check_programs
from kbcore.language.rule_set_files import RuleSetFile
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.operations.rule_sets import MAX_LISTED_FACTS
from kbcore.state.apply import apply
from kbcore.state.changes import ChangeSet, DeployRuleSet, RetractFact
from kbcore.state.facts import FactRows
from kbcore.state.rule_sets import MAX_HISTORY_BYTES, MAX_VERSIONS, VersionNote
from kbplanner.authoring.formatter import format_text
from kbplanner.syntax import parser
from kbplanner.syntax.parser import parse_clause
from kbplanner.syntax.scanner import Token
from kbtypes.windows import RuleInSet

ACCESS = """@module access.
can(?u) :- level(?u, ?l), ?l >= 3.
admin(?u) :- can(?u), staff(?u).
@phrase can/1 "{0} may enter".
staff(ann).
"""
EDITED = ACCESS.replace(">= 3", ">= 2")


@pytest.fixture
def kb():
    with runtime() as node:
        yield node.open()


def allowed(kb: KnowledgeBase) -> set[str]:
    return {row["u"] for row in kb.ask("can(?u)").dicts()}


def rule_texts(kb: KnowledgeBase) -> set[str]:
    return {rule.text for rule in kb.rules()}


def test_a_next_version_reads_the_rules_that_changed(
    kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb.deploy(ACCESS + "never(?x) :- banned(?x), not can(?x).\n")
    heads = []

    def counted(tokens: list[Token], *args: Any) -> Any:
        heads.append(tokens[0].value)
        return parse_clause(tokens, *args)

    monkeypatch.setattr(parser, "parse_clause", counted)
    kb.deploy(ACCESS + "only(?x) :- tried(?x).\n", dry_run=True)
    heads.clear()
    again = kb.deploy("\n% moved\n" + EDITED + "  never(?x) :- banned(?x), not can(?x).\n")
    assert set(heads) == {"can", "@"}
    assert (len(again.changed), again.added, again.removed) == (1, [], [])


def test_a_threshold_that_is_deployed_takes_the_place_of_the_old_one(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3). level(bob, 2).")
    first = kb.deploy(ACCESS)
    assert (first.name, first.version, first.commit) == ("access", 1, 2)
    assert len(first.added) == 3
    assert first.facts.added == ["staff(ann)."]
    assert allowed(kb) == {"ann"}
    second = kb.deploy(EDITED, message="lower", revision="abc123")
    assert [(each.before, each.after) for each in second.changed] == [
        ("can(?u) :- level(?u, ?l), ?l >= 3.", "can(?u) :- level(?u, ?l), ?l >= 2.")
    ]
    assert (second.added, second.removed, second.version) == ([], [], 2)
    assert allowed(kb) == {"ann", "bob"}
    note = kb.rule_set_versions("access")[0]
    assert (note.version, note.message, note.revision) == (2, "lower", "abc123")
    third = kb.rollback("access")
    assert (third.version, kb.rule_set_versions("access")[0].rolled_back_to) == (3, 1)
    assert allowed(kb) == {"ann"}
    assert kb.rule_set_diff("access", 1, 3).has_changes is False
    assert [each.after for each in kb.rule_set_diff("access", 3, 2).changed] == [
        "can(?u) :- level(?u, ?l), ?l >= 2."
    ]


def test_an_edited_rule_is_changed_in_every_account_of_it(kb: KnowledgeBase) -> None:
    kb.deploy(
        "can(?u) :- staff(?u). can(?u) :- level(?u, ?l), ?l >= 3. gone(?u) :- staff(?u).", "a"
    )
    edited = "can(?u) :- level(?u, ?l), ?l >= 2, not barred(?u)."
    text = f"can(?u) :- staff(?u). {edited} can(?u) :- owner(?u). new(?u) :- staff(?u)."
    done = kb.deploy(text, "a")
    assert [(each.before, each.after) for each in done.changed] == [
        ("can(?u) :- level(?u, ?l), ?l >= 3.", edited)
    ]
    assert set(done.added) == {"can(?u) :- owner(?u).", "new(?u) :- staff(?u)."}
    assert done.removed == ["gone(?u) :- staff(?u)."]
    diff = kb.rule_set_diff("a", 1, 2)
    assert (diff.added, diff.changed, diff.removed) == (done.added, done.changed, done.removed)
    newest = kb.rule_set_versions("a")[0]
    assert (newest.added, newest.changed, newest.removed) == (2, 1, 1)
    kb.deploy(f'{text} @phrase can/1 "{{0}} may". limit(3).', "a")
    kb.deploy(f'{text} @phrase can/1 "{{0}} can". limit(4).', "a")
    newest = kb.rule_set_versions("a")[0]
    assert (newest.added, newest.changed, newest.removed) == (1, 1, 1)


def test_the_closest_of_several_rules_is_the_edited_one(kb: KnowledgeBase) -> None:
    kb.deploy("p(?x) :- a(?x), b(?x). p(?x) :- c(?x), d(?x).", "s")
    diff = kb.deploy("p(?x) :- c(?x), d(?x), e(?x). p(?x) :- f(?x).", "s", dry_run=True)
    assert [each.before for each in diff.changed] == ["p(?x) :- c(?x), d(?x)."]
    assert (diff.added, diff.removed) == (["p(?x) :- f(?x)."], ["p(?x) :- a(?x), b(?x)."])


def test_proofs_name_the_rule_sets_of_their_rules(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3). visitor(?u) :- can(?u).")
    bare = kb.prove("visitor(ann)")
    assert bare == []
    kb.deploy(ACCESS)
    rule = "can(?u) :- level(?u, ?l), ?l >= 3."
    (tree,) = kb.prove("visitor(ann)")
    step = tree.proof["step"]
    assert "ruleSets" not in step
    (below,) = step["bodyProofs"]
    assert below["step"]["ruleSets"] == [{"name": "access", "version": 1}]
    assert f"can(ann)  by {rule}  (access version 1)\n" in tree.text
    assert f"can(ann)  by {rule}  (access version 1)\n" in kb.explain("visitor(ann)")
    kb.deploy(EDITED + "staff(bob).")
    kb.deploy(EDITED.replace("@module access.", ""), "doors")
    (graph,) = kb.prove("visitor(ann)", form="dag")
    rules = [node["rule"] for node in graph.proof["nodes"].values() if "rule" in node]
    assert [each.get("ruleSets") for each in rules] == [
        None,
        [{"name": "access", "version": 2}, {"name": "doors", "version": 1}],
    ]
    assert "(access version 2, doors version 1)" in kb.explain("can(ann)")


def test_an_aggregate_of_a_rule_set_names_it_in_its_proof(kb: KnowledgeBase) -> None:
    kb.deploy("total(count(?u)) :- staff(?u). staff(ann). staff(bob).", "counts")
    (tree,) = kb.prove("total(?n)")
    assert tree.proof["step"]["ruleSets"] == [{"name": "counts", "version": 1}]
    assert "(counts version 1)  (" in tree.text


def test_windows_name_the_rule_sets_of_their_rules(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3). visitor(?u) :- can(?u).")
    assert kb.context(goals=["visitor(?u)"]).rule_sets is None
    kb.deploy(ACCESS)
    window = kb.context(goals=["visitor(?u)"], format="facts")
    rule = "can(?u) :- level(?u, ?l), ?l >= 3."
    assert window.rule_sets == (RuleInSet(rule, "access", 1),)
    assert window.rules == ("visitor(?u) :- can(?u).", rule)
    assert f"visitor(?u) :- can(?u).\n{rule}  % access version 1" in window.text
    assert "(access version 1)." in kb.context(goals=["visitor(?u)"], format="natural").text
    without = kb.context(goals=["visitor(?u)"], include_rules=False)
    assert (without.rules, without.rule_sets) == ((), None)
    kb.deploy(EDITED)
    newer = kb.context(goals=["visitor(?u)"], format="natural")
    assert newer.rule_sets == (RuleInSet(rule.replace("3", "2"), "access", 2),)
    for tokens in range(5, newer.tokens + 1):
        cut = kb.context(goals=["visitor(?u)"], format="natural", max_tokens=tokens)
        assert cut.tokens <= tokens
        assert {each.rule for each in cut.rule_sets or ()} <= set(cut.rules)


def test_a_deployment_without_change_makes_no_version(kb: KnowledgeBase) -> None:
    kb.deploy(ACCESS)
    again = kb.deploy(ACCESS.replace("?u", "?who"))
    assert (again.version, again.commit, again.has_changes) == (1, None, False)
    assert len(kb.rule_set_versions("access")) == 1


def test_a_fact_that_loses_its_attributes_is_stored_without_them(kb: KnowledgeBase) -> None:
    kb.deploy('open(a) [confidence=0.5]. open(b) [metadata=\'{"by":"hr"}\'].', "s")
    outcome = kb.deploy("open(a). open(b).", "s")
    assert outcome.facts.changed_count == 2
    rows = kb.query("open(?x)").rows()
    assert [(row["confidence"], row["metadata"]) for row in rows] == [(None, {}), (None, {})]
    kb.rollback("s")
    rows = kb.query("open(?x)").rows()
    assert [(row["confidence"], row["metadata"]) for row in rows] == [
        (0.5, {}),
        (None, {"by": "hr"}),
    ]


@pytest.mark.parametrize("field", ["message", "revision"])
@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_a_note_that_cannot_be_stored_is_refused(kb: KnowledgeBase, field: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        kb.deploy(ACCESS, **{field: text})
    assert kb.rule_sets() == []


def test_deployments_at_the_same_time_are_all_versions(kb: KnowledgeBase) -> None:
    def deploy(number: int) -> int:
        return kb.deploy(f"limit({number}).", "s").version

    with ThreadPoolExecutor(20) as pool:
        versions = list(pool.map(deploy, range(20)))
    assert sorted(versions) == list(range(1, 21))
    (last,) = kb.ask("limit(?x)").dicts()
    assert versions[int(last["x"])] == 20


def test_a_dry_run_stores_nothing(kb: KnowledgeBase) -> None:
    planned = kb.deploy(ACCESS, dry_run=True)
    assert (planned.version, planned.commit, len(planned.added)) == (1, None, 3)
    assert kb.rule_sets() == []
    assert rule_texts(kb) == set()


def test_a_dry_run_says_what_would_become_true_and_false(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3). level(bob, 2). level(cid, 1).")
    kb.deploy(ACCESS + "staff(bob).")
    goals = ["can(?u), level(?u, ?l)", "can(bob)", "admin(?who)", "can(cid)"]
    plan = kb.deploy(EDITED, dry_run=True, impact_goals=goals)
    assert plan.facts.removed == ["staff(bob)."]
    assert plan.impact is not None
    counts = {
        each.predicate: (each.becomes_true, each.becomes_false) for each in plan.impact.by_predicate
    }
    assert counts == {"can": (1, 0), "staff": (0, 1)}
    assert not plan.impact.truncated
    assert [
        (each.becomes_true, each.becomes_false, each.becomes_true_count, each.becomes_false_count)
        for each in plan.impact.goals
    ] == [([{"u": "bob", "l": "2"}], [], 1, 0), ([{}], [], 1, 0), ([], [], 0, 0), ([], [], 0, 0)]
    assert allowed(kb) == {"ann"}
    kb.deploy(EDITED)
    assert allowed(kb) == {"ann", "bob"}
    back = kb.deploy(ACCESS, dry_run=True, impact=True, impact_goals=["can(?u)"]).impact
    assert back is not None
    assert back.goals[0].becomes_false == [{"u": "bob"}]
    assert back.counts.becomes_false == 1


def test_an_impact_on_many_answers_lists_the_first(kb: KnowledgeBase) -> None:
    kb.tell(" ".join(f"level(u{number:03}, 2)." for number in range(150)))
    kb.deploy(ACCESS)
    plan = kb.deploy(EDITED, dry_run=True, impact_goals=["can(?u)"])
    assert plan.impact is not None
    (goal,) = plan.impact.goals
    assert goal.becomes_true == [{"u": f"u{number:03}"} for number in range(100)]
    assert goal.becomes_true_count == 150


def test_the_impact_in_a_scope_is_that_of_the_scope(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3).", scope="draft")
    kb.tell("level(ann, 3). level(bob, 3).")
    plan = kb.deploy(ACCESS, dry_run=True, impact_goals=["can(?u)"], scope="draft")
    assert plan.impact is not None
    assert plan.impact.goals[0].becomes_true == [{"u": "ann"}]
    assert {each.scope for each in plan.impact.by_predicate} == {"draft"}


def test_an_impact_ends_with_its_budget(kb: KnowledgeBase) -> None:
    with runtime(query_max_answers=10) as node:
        small = node.open()
        small.tell(" ".join(f"level(u{number}, 2)." for number in range(20)))
        small.deploy(ACCESS)
        plan = small.deploy(EDITED, dry_run=True, impact_goals=["can(?u)", "can(u1)"])
        assert plan.impact is not None
        assert plan.impact.truncated
        assert plan.impact.goals == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"impact": True}, "impact"),
        ({"impact_goals": ["can(?u)"]}, "impact_goals"),
        ({"dry_run": True, "impact_goals": ["can(?u)", "can("]}, "impact_goals[1]"),
        ({"dry_run": True, "impact_goals": "can(?u)"}, "impact_goals"),
        ({"dry_run": True, "impact_goals": ["p(a)"] * 101}, "impact_goals"),
    ],
)
def test_a_wrong_wish_for_an_impact_is_refused(
    kb: KnowledgeBase, options: dict[str, Any], field: str
) -> None:
    with pytest.raises((InvalidInput, RuleSyntaxError)) as raised:
        kb.deploy(ACCESS, **options)
    assert field in (raised.value.details or {})["fields"]
    assert kb.rule_sets() == []


def test_the_expected_version_decides_which_of_two_deployments_wins(kb: KnowledgeBase) -> None:
    kb.deploy(ACCESS, expected_version=0)
    with pytest.raises(Conflict) as error:
        kb.deploy(EDITED, expected_version=0)
    assert error.value.details is not None
    assert error.value.details["version"] == 1
    kb.deploy(EDITED, expected_version=1)
    with pytest.raises(Conflict):
        kb.rollback("access", 1, expected_version=1)


def test_what_several_have_stored_stays_until_the_last_drops_it(kb: KnowledgeBase) -> None:
    kb.teach("admin(?u) :- can(?u), staff(?u).")
    kb.deploy(ACCESS)
    kb.deploy("staff(ann). staff(bob).", "people")
    kb.deploy("@module access.\ncan(?u) :- level(?u, ?l), ?l >= 3.\n")
    assert rule_texts(kb) == {
        "admin(?u) :- can(?u), staff(?u).",
        "can(?u) :- level(?u, ?l), ?l >= 3.",
    }
    assert kb.phrases() == []
    assert len(kb.ask("staff(?x)")) == 2
    kb.retract_rule("admin(?u) :- can(?u), staff(?u)")
    assert rule_texts(kb) == {"can(?u) :- level(?u, ?l), ?l >= 3."}
    kb.deploy("staff(bob).", "people")
    assert [list(row) for row in kb.ask("staff(?x)")] == [["bob"]]


def test_what_only_a_rule_set_contains_cannot_be_retracted_by_hand(kb: KnowledgeBase) -> None:
    kb.deploy(ACCESS)
    with pytest.raises(Conflict, match="rule set 'access'"):
        kb.retract_rule("admin(?u) :- can(?u), staff(?u)")
    kb.tell("staff(bob).")
    outcome = kb.retract("staff(?x)")
    assert outcome.retracted == 1
    kept = kb.retract("staff(ann)")
    assert (kept.retracted, kept.still_derivable) == (0, True)
    assert [list(row) for row in kb.ask("staff(?x)")] == [["ann"]]


def test_facts_by_hand_keep_what_is_known_about_them(kb: KnowledgeBase) -> None:
    kb.tell("staff", ["ann"], confidence=0.5, metadata={"by": "hr"})
    kb.deploy(ACCESS)
    (row,) = kb.query("staff(ann)").rows()
    assert (row["confidence"], row["metadata"]) == (0.5, {"by": "hr"})


def test_a_named_rule_changes_unless_another_has_stored_it(kb: KnowledgeBase) -> None:
    kb.deploy("@entry: can(?u) :- level(?u, 3).", "a")
    deployed = kb.deploy("@entry: can(?u) :- level(?u, 2).", "a")
    assert deployed.changed[0].after == "@entry: can(?u) :- level(?u, 2)."
    assert rule_texts(kb) == {"can(?u) :- level(?u, 2)."}
    with pytest.raises(AlreadyExists):
        kb.deploy("@entry: can(?u) :- level(?u, 1).", "b")
    kb.deploy("@entry: can(?u) :- level(?u, 2).", "b")
    with pytest.raises(Conflict, match="rule set 'b'"):
        kb.deploy("@entry: can(?u) :- level(?u, 1).", "a")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("can(?u) :- level(?u).", "name the rule set"),
        ("@module a.\n?- can(?u).", "line 2: a query is asked"),
        ("@module a.\np(x) [ttl=5000].", "has no ttl"),
        ("@module a.\np(x) [scope=other].", "one scope"),
        ("@module a.\n% nothing", "no rule, declaration or fact"),
        ("@module a.\n@r: p(?x) :- q(?x).\n@r: p(?x) :- s(?x).", "two different statements"),
        ("@module 'no name'.\np(x).", "is not a name"),
        ("@module a.\np(?x) :- not q(?x).", "not bound"),
    ],
)
def test_files_that_cannot_be_deployed_are_refused(
    kb: KnowledgeBase, text: str, problem: str
) -> None:
    with pytest.raises((InvalidInput, Conflict), match=problem):
        kb.deploy(text)
    assert kb.rule_sets() == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("p(x).\n@module a.", "first statement"),
        ("@module a b.", "expected the name"),
        ("@module a.\n@module a.\np(x).", "first statement"),
    ],
)
def test_a_name_at_another_place_is_refused(kb: KnowledgeBase, text: str, problem: str) -> None:
    with pytest.raises(RuleSyntaxError, match=problem):
        kb.deploy(text, "a")


def test_a_text_with_module_is_deployed_as_a_whole_only(kb: KnowledgeBase) -> None:
    with pytest.raises(RuleSyntaxError, match="deployed as a whole"):
        kb.teach(ACCESS)
    assert kb.load(ACCESS).rules == 3
    with pytest.raises(InvalidInput, match="not of 'other'"):
        kb.deploy(ACCESS, "other")


def test_a_folder_gives_its_name_and_tests_are_left_out(kb: KnowledgeBase, tmp_path: Path) -> None:
    folder = tmp_path / "entry"
    (folder / "more").mkdir(parents=True)
    (folder / "a.kb").write_text("can(?u) :- staff(?u).\n")
    (folder / "more" / "b.kb").write_text('test "x" { staff(eve). ?- can(eve). }\nstaff(ann).\n')
    deployed = kb.deploy(folder)
    assert (deployed.name, deployed.facts.added) == ("entry", ["staff(ann)."])
    with pytest.raises(InvalidInput, match="name the rule set"):
        kb.deploy([folder / "a.kb"])
    (folder / "a.kb").write_text("@module doors.\ncan(?u) :- staff(?u).\n")
    assert kb.deploy(folder, dry_run=True).name == "doors"


def test_names_are_per_scope_and_forks_have_the_rule_sets_of_their_source(
    kb: KnowledgeBase,
) -> None:
    kb.deploy("p(a). q(?x) :- p(?x).", "s", scope="one")
    kb.deploy("p(b).", "s", scope="two")
    kb.fork("three", "one")
    kb.deploy("p(c).", "s", scope="three")
    assert [(each.scope, each.version) for each in kb.rule_sets()] == [
        ("one", 1),
        ("three", 2),
        ("two", 1),
    ]
    assert {(row["scope"], row["args"][0]) for row in kb.query("p(?x)", scope="*").rows()} == {
        ("one", "a"),
        ("two", "b"),
        ("three", "c"),
    }
    assert {rule.scope for rule in kb.rules()} == {"one"}
    kb.drop_scope("one")
    assert [each.scope for each in kb.rule_sets()] == ["three", "two"]


def test_a_purge_removes_facts_from_every_version(kb: KnowledgeBase) -> None:
    kb.deploy("knows(ann, bob). knows(eve, bob).", "s")
    kb.deploy("knows(ann, bob).", "s")
    kb.purge(subject="ann")
    kb.purge(subject="eve")
    assert kb.rule_set_versions("s")[0].version == 2
    assert kb.rollback("s", 1).commit is None
    assert kb.rule_sets()[0].facts == 0


def test_a_decay_leaves_the_facts_of_rule_sets() -> None:
    clock = ManualClock()
    with runtime(clock=clock) as node:
        kb = node.open()
        kb.deploy("limit(3).", "s")
        kb.tell("seen(3).")
        clock.advance(10**12)
        assert kb.decay(0.99).evicted == 1
        assert len(kb.ask("limit(?x)")) == 1


def test_a_deployment_is_not_part_of_a_transaction(kb: KnowledgeBase) -> None:
    kb.deploy(ACCESS)
    with kb.transaction() as inside:
        with pytest.raises(InvalidInput, match="transaction"):
            inside.deploy(EDITED)
        inside.retract("staff(ann)")
        inside.tell("staff(bob)")
        assert len(inside.ask("staff(?x)")) == 2
    assert len(kb.ask("staff(?x)")) == 2


def test_a_standing_goal_sees_one_change(kb: KnowledgeBase) -> None:
    kb.tell("level(ann, 3). level(bob, 2).")
    kb.deploy(ACCESS)
    events: list[dict[str, Any]] = []
    with kb.follow("can(?u)") as follower:
        kb.deploy("@module access.\ncan(?u) :- level(?u, ?l), ?l < 3.\n")
        events += [next(iter(follower))]
    assert len(events) == 1


def test_the_oldest_versions_are_dropped(kb: KnowledgeBase) -> None:
    for number in range(MAX_VERSIONS + 3):
        kb.deploy(f"limit({number}).", "s")
    versions = kb.rule_set_versions("s")
    assert (len(versions), versions[-1].version) == (MAX_VERSIONS, 4)
    with pytest.raises(NotFound, match="kept are 4 to 103"):
        kb.rollback("s", 3)
    kb.rollback("s", 4)
    assert [list(row) for row in kb.ask("limit(?x)")] == [["3"]]


def test_a_large_rule_set_is_rolled_back_after_a_small_change(kb: KnowledgeBase) -> None:
    row = "x" * 60_000
    text = "".join(f"row({number}, {row}).\n" for number in range(MAX_HISTORY_BYTES // 60_000 + 1))
    kb.deploy(text, "table")
    kb.deploy(text + "row(last, x).", "table")
    kb.rollback("table")
    assert [each.version for each in kb.rule_set_versions("table")] == [3, 2, 1]
    assert kb.ask("row(last, x)").dicts() == []


def test_the_removal_of_many_facts_lets_other_work_run(kb: KnowledgeBase) -> None:
    kb.deploy("".join(f"row({number}). " for number in range(100)), "table")
    gone = ChangeSet(
        "default",
        "default",
        (
            DeployRuleSet("table", None, 2, VersionNote("0" * 64)),
            *(RetractFact("row", (str(number),), True, None) for number in range(100)),
        ),
    )
    calls: list[None] = []
    tenant = kb.kb._read_tenant()
    delta = apply(tenant, gone, tenant.at(0), yield_now=lambda: calls.append(None))
    assert len(delta.removed) == 100
    assert len(calls) >= 20


def test_a_purge_of_many_rule_sets_lets_other_work_run(kb: KnowledgeBase) -> None:
    for number in range(3):
        kb.deploy("".join(f"row({number}, {row}). " for row in range(2000)), f"set{number}")
    sets = kb.kb._read_tenant().rule_sets
    calls: list[None] = []
    gone = FactRows("row", 2, ["1", "7"], True, None)
    sets.forget_facts([gone], ever=True, yield_now=lambda: calls.append(None))
    assert [each.facts for each in kb.rule_sets()] == [2000, 1999, 2000]
    assert kb.rule_set_versions("set1")[0].added == 1999
    assert len(calls) >= 3 * 2000 // 200


def test_a_tenant_at_its_limit_of_rules_replaces_them() -> None:
    with runtime(tenant_max_rules=2) as node:
        kb = node.open()
        kb.deploy("p(?x) :- q(?x). @named: r(?x) :- q(?x).", "s")
        kb.deploy("p(?x) :- t(?x). @named: r(?x) :- t(?x).", "s")
        with pytest.raises(RateLimited):
            kb.deploy("p(?x) :- q(?x). @named: r(?x) :- q(?x). u(?x) :- q(?x).", "s")
        assert kb.rollback("s").version == 3


def test_the_metadata_of_facts_count_in_the_size_of_the_versions(kb: KnowledgeBase) -> None:
    note = "x" * 30_000
    for version in range(4):
        kb.deploy(
            "".join(
                f'row({number}) [metadata=\'{{"v":{version},"n":"{note}"}}\'].\n'
                for number in range(100)
            ),
            "table",
        )
    assert [each.version for each in kb.rule_set_versions("table")] == [4, 3]


def test_long_lists_of_facts_are_cut_and_counted(kb: KnowledgeBase) -> None:
    text = "".join(f"row({number}).\n" for number in range(MAX_LISTED_FACTS + 5))
    deployed = kb.deploy(text, "table")
    assert (len(deployed.facts.added), deployed.facts.added_count) == (
        MAX_LISTED_FACTS,
        MAX_LISTED_FACTS + 5,
    )


def test_versions_are_in_snapshots_backups_and_earlier_states(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"history_days": 1}
    with runtime(tmp_path / "a", clock=clock, **settings) as node:
        kb = node.open()
        kb.teach("admin(?u) :- can(?u), staff(?u).")
        kb.deploy(ACCESS)
        then = clock.now_ms()
        clock.advance(1000)
        kb.deploy(EDITED)
        assert rule_texts(kb.known_at(then)) >= {"can(?u) :- level(?u, ?l), ?l >= 3."}
        assert [each.version for each in kb.known_at(then).rule_sets()] == [1]
    with runtime(tmp_path / "a", clock=clock, **settings) as node:
        kb = node.open()
        assert [each.version for each in kb.rule_set_versions("access")] == [2, 1]
        kb.deploy("@module access.\np(x).")
        assert rule_texts(kb) == {"admin(?u) :- can(?u), staff(?u)."}
        last = kb.rollback("access", 1)
        assert rule_texts(kb) >= {"can(?u) :- level(?u, ?l), ?l >= 3."}
        with pytest.raises(Conflict, match="roll the rule set"):
            kb.undo(last.commit)


def test_the_digest_is_that_of_the_files(kb: KnowledgeBase) -> None:
    one, two = RuleSetFile("a.kb", "p(a).\n"), RuleSetFile("b.kb", "p(b).\n")
    kb.kb.deploy([one, two], name="s")
    kb.kb.deploy([two], name="s")
    kb.kb.deploy([two, one], name="s")
    digests = [each.digest for each in kb.rule_set_versions("s")]
    assert digests[0] == digests[2] != digests[1]


def test_the_formatter_and_the_check_know_the_name_of_a_rule_set() -> None:
    text = "% doors\n@module   doors .\nopen(a).\n@module: q(?x):-open(?x).\n"
    formatted = "% doors\n@module doors.\nopen(a).\n@module: q(?x) :- open(?x).\n"
    assert format_text(text) == formatted
    assert check_programs([formatted]) == [[]]


def test_a_predicate_with_rules_in_another_set_gives_a_warning() -> None:
    with kbcore.open_kb() as kb:
        kb.deploy("can(?u) :- level(?u, 3).", name="access")
        outcome = kb.deploy("can(?u) :- paid(?u).\nown(?u) :- paid(?u).", name="billing")
        split = [each for each in outcome.warnings if "also in" in each]
        assert split == ["rules of can/1 are also in the rule sets access"]
        again = kb.deploy("can(?u) :- paid(?u).\nown(?u) :- paid(?u), can(?u).", name="billing")
        assert not [each for each in again.warnings if "also in" in each]
        findings = kb.check("@module third.\ncan(?u) :- free(?u).")
        assert "split-definition" in [each.name for each in findings]
        assert not [
            each for each in kb.check("can(?u) :- free(?u).") if "rule sets" in each.message
        ]
