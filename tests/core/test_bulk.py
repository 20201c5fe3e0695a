"""Bulk rows: the same result as facts asserted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.durable.records import CHANGES, VERSION, decode_changes, encode_changes, stamp
from kbcore.errors import InvalidInput
from kbcore.language.files import MAX_GROUPS, LoadError, read_file
from kbcore.state.changes import AssertRows, ChangeSet
from kbcore.state.facts import Fact, FactRows

NAMES = st.sampled_from(["a", "b", "c", "é", "?", "30"])
PAIRS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=8)


@given(st.lists(PAIRS, min_size=1, max_size=4), st.booleans(), st.sampled_from([None, "s"]))
def test_rows_in_bulk_are_like_facts_one_by_one(batches, positive, scope):
    def stored(bulk):
        clock = ManualClock(1_000_000)
        with runtime(clock=clock) as node:
            kb = node.knowledge_base()
            kb.assert_facts(
                [
                    Fact(
                        "p",
                        ("a", "b"),
                        positive,
                        scope,
                        ttl=5,
                        confidence=0.5,
                        metadata={"by": "x"},
                    )
                ]
            )
            counts = []
            for batch in batches:
                clock.advance(10)
                if bulk:
                    args = [name for pair in batch for name in pair]
                    outcome = kb.assert_rows([FactRows("p", 2, args, positive, scope)])
                else:
                    outcome = kb.assert_facts([Fact("p", pair, positive, scope) for pair in batch])
                counts.append((outcome.asserted, outcome.updated))
            return counts, kb.query_rows(
                "p", [kbcore.Variable("x"), kbcore.Variable("y")], scope=scope
            )

    assert stored(True) == stored(False)


def test_rows_survive_their_record():
    rows = FactRows("p", 2, ["a", "é", "b", "\n"]), FactRows("q", 1, ["x"], False, "s")
    changes = ChangeSet("d", "t", (AssertRows(rows),))
    at, found = decode_changes(CHANGES, VERSION, stamp(encode_changes(changes), 7))
    assert (at, found) == (7, changes)


def test_a_csv_file_of_plain_and_other_lines(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("p,a,b\n\np,c,d\nq,1\n", encoding="utf-8")
    (batch,) = read_file(path)
    assert (len(batch.facts), [len(rows) for rows in batch.rows], batch.line) == (0, [2, 1], 4)
    path.write_text("p,a,b\np,?x,é\n", encoding="utf-8")
    (batch,) = read_file(path)
    assert (len(batch.facts), batch.rows) == (2, [])
    path.write_text("".join(f"p{i},a\n" for i in range(MAX_GROUPS + 1)), encoding="utf-8")
    (batch,) = read_file(path)
    assert (len(batch.facts), batch.rows) == (MAX_GROUPS + 1, [])
    path.write_text('p,a\n?q,b\np,"c\n', encoding="utf-8")
    with pytest.raises(
        LoadError, match="line 2"
    ):  # the first fault, though the quote is found first
        list(read_file(path))


def test_bulk_assertion_accepts_the_same_arguments():
    with kbcore.open_kb() as kb:
        assert kb.tell_many("p", [["a", "b"], ["a", "b"], ["c", "d"]]).updated == 1
        assert kb.tell_many("p", [["a", 30.0], ["x", True]]).asserted == 2
        assert list(kb.ask("p(a, ?x)")) == [("a", "30"), ("a", "b")]
        for rows in ([["a", "?x"]], [["a", "\0"]], ["ab"]):
            with pytest.raises(InvalidInput):
                kb.tell_many("p", rows)
        with pytest.raises(InvalidInput):
            kb.tell_many("p(a)", [["a", "b"]])
        with pytest.raises(InvalidInput):
            kb.tell_many("p", [["a", "b"]], scope="*")
        assert kb.count("p") == 4


def test_rows_of_arity_0_are_one_row():
    assert len(FactRows("flag", 0, ())) == 1
    assert FactRows("flag", 0, ()).facts() == [Fact("flag", ())]
