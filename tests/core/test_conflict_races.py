"""Writers of one place at the same time: the outcome is that of some order."""

from __future__ import annotations

from support.runtimes import runtime

from kbcore.operations.conflicts import ConflictResolver
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS
from kbplanner.syntax.parser import parse_program


def keyed(kb):
    declared = [each.rule for each in parse_program("@key lives_in(?who, _).")]
    kb.assert_rules(declared)


def test_a_rival_that_came_in_between_is_ended(tmp_path, monkeypatch):
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        keyed(kb)
        kb.assert_facts(
            [Fact("lives_in", ("mia", "hamburg"), valid_from=1000)], conflict="NEWEST_WINS"
        )
        resolve, calls = ConflictResolver._resolve, []

        def resolved(self, facts, now):
            calls.append(facts)
            changes = resolve(self, facts, now)
            if len(calls) == 1:
                kb.assert_facts([Fact("lives_in", ("mia", "oslo"), valid_from=2000)])
            return changes

        monkeypatch.setattr(ConflictResolver, "_resolve", resolved)
        kb.assert_facts(
            [Fact("lives_in", ("mia", "berlin"), valid_from=3000)], conflict="NEWEST_WINS"
        )
        assert len(calls) == 3  # decided, looked at again under the lock, and decided again
        rows = kb.query_rows("lives_in", ["mia", ANONYMOUS])
        assert [row["args"] for row in rows] == [["mia", "berlin"]]


def test_what_was_decided_is_not_decided_again_if_nothing_changed(tmp_path, monkeypatch):
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        keyed(kb)
        resolve, calls = ConflictResolver._resolve, []

        def resolved(self, facts, now):
            calls.append(facts)
            return resolve(self, facts, now)

        monkeypatch.setattr(ConflictResolver, "_resolve", resolved)
        kb.assert_facts([Fact("lives_in", ("mia", "berlin"))], conflict="NEWEST_WINS")
        assert len(calls) == 1
