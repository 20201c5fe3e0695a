"""Rule sets through the client, on a knowledge base in this process and on servers."""

from __future__ import annotations

import pytest

from kbcore_client import Conflict, InvalidInput, NotFound, RuleSyntaxError

RULE = "can(?u) :- level(?u, ?l), ?l >= 3."
TEXT = f"% who may enter\n@module access.\n{RULE}\nlevel(ann, 3). level(bob, 2).\n"


def test_a_rule_set_is_deployed_compared_and_rolled_back(kb):
    deployed = kb.deploy(TEXT, expected_version=0, message="m", revision="r")
    assert (deployed.name, deployed.version, deployed.added, deployed.facts.added_count) == (
        "access",
        1,
        [RULE],
        2,
    )
    assert kb.deploy(TEXT).commit is None
    edited = TEXT.replace("3.", "2.", 1)
    dry = kb.deploy(edited, dry_run=True)
    assert (dry.commit, dry.version, dry.has_changes) == (None, 2, True)
    assert kb.ask("can(?u)") == [("ann",)]
    assert kb.deploy(edited).changed == dry.changed
    assert sorted(kb.ask("can(?u)")) == [("ann",), ("bob",)]
    with pytest.raises(Conflict) as refused:
        kb.deploy(TEXT, expected_version=1)
    assert refused.value.details["version"] == 2
    assert kb.rollback("access").version == 3
    assert [(each.version, each.message) for each in kb.rule_set_versions("access")] == [
        (3, None),
        (2, None),
        (1, "m"),
    ]
    assert [(each.name, each.version) for each in kb.rule_sets()] == [("access", 3)]
    assert kb.rule_set_diff("access", 1, 3).has_changes is False
    assert kb.rule_set_diff("access", 3, 2).changed == dry.changed
    contents = kb.rule_set("access")
    assert (contents.version, contents.by_hand) == (3, [])
    assert len(contents.statements) == contents.statements.index("level(bob, 2).") + 1


def test_the_impact_of_a_dry_run_and_the_rule_sets_of_proofs_and_windows(kb):
    kb.tell("level(ann, 3). level(bob, 2).")
    text = "may_enter(?who) :- level(?who, ?level), ?level >= 3."
    kb.deploy(text, "access")
    impact = kb.deploy(
        text.replace("3", "2"), "access", dry_run=True, impact_goals=["may_enter(?who)"]
    ).impact
    assert impact.goals[0].becomes_true == [{"who": "bob"}]
    assert [(each.predicate, each.becomes_true) for each in impact.by_predicate] == [
        ("may_enter", 1)
    ]
    assert impact.counts.becomes_false == 0
    with pytest.raises(InvalidInput, match="dry runs only"):
        kb.deploy(text, "access", impact_goals=["may_enter(?who)"])
    (proof,) = kb.prove("may_enter(ann)")
    assert "(access version 1)" in proof.text
    window = kb.context(goals=["may_enter(?who)"])
    assert [(each.name, each.version) for each in window.rule_sets] == [("access", 1)]


def test_a_name_behind_many_comments(kb):
    assert kb.deploy("/* a */ % b\n" * 1000 + TEXT).name == "access"
    with pytest.raises(InvalidInput, match="name the rule set"):
        kb.deploy("/* a */ % b\n" * 1000 + RULE)


def test_files_and_folders_are_deployed(kb, tmp_path):
    folder = tmp_path / "doors"
    folder.mkdir()
    (folder / "a.kb").write_text(RULE)
    (folder / "b.kb").write_text("level(ann, 3).")
    deployed = kb.deploy(folder)
    assert (deployed.name, deployed.added, deployed.facts.added) == (
        "doors",
        [RULE],
        ["level(ann, 3)."],
    )
    assert kb.deploy([folder / "a.kb"], "doors").facts.removed == ["level(ann, 3)."]
    with pytest.raises(InvalidInput, match="name the rule set"):
        kb.deploy(folder / "a.kb")
    with pytest.raises(InvalidInput, match="not of 'other'"):
        kb.deploy(TEXT, "other")
    with pytest.raises(RuleSyntaxError):
        kb.deploy("p(?x) :-", "other")
    with pytest.raises(NotFound):
        kb.rollback("other")
    with pytest.raises(NotFound):
        kb.rule_set_versions("doors", scope="s")
