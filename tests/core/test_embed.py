"""A knowledge base inside a Python program."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

import pytest

import kbcore
from kbcore.errors import ConfigError, InvalidInput, RuleSyntaxError

ANCESTORS = (
    "ancestor(?x, ?y) :- parent(?x, ?y).\nancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."
)


@pytest.fixture
def kb():
    with kbcore.open_kb() as found:
        yield found


def test_tell_teach_ask(kb):
    assert kb.tell("parent", ["ann", "bob"]).asserted == 1
    assert kb.tell_many("parent", [("bob", "cid"), ("ann", "bob")]).updated == 1
    assert [rule.text for rule in kb.teach(ANCESTORS).rules] == ANCESTORS.split("\n")
    answers = kb.ask("ancestor", ["ann", "?x"])
    assert len(answers) == 2
    assert answers == [("ann", "bob"), ("ann", "cid")]
    assert answers[1] == ("ann", "cid")
    assert [row["args"] for row in answers.rows()] == [["ann", "bob"], ["ann", "cid"]]
    assert kb.ask("ancestor(?x, cid), parent(?x, ?y)") == [("ann", "bob"), ("bob", "cid")]
    assert kb.query("parent", ["?x", "?x"]) == []
    assert kb.count("parent") == 2
    assert len(kb.rules()) == 2


def test_numbers_are_text_and_strings_stay_as_they_are(kb):
    kb.tell_many("n", [(30,), (30.5,), (True,), ("030",), ("30.0",)])
    assert kb.query("n", ["?x"]) == [("30",), ("30.0",), ("30.5",), ("030",), ("true",)]


def test_scopes_are_partitions(kb):
    kb.tell("parent", ["a", "b"])
    kb.tell("parent", ["b", "c"], scope="s")
    kb.teach(ANCESTORS)
    kb.teach("only(?x) :- parent(?x, _).", scope="s")
    assert kb.ask("ancestor(?x, ?y)") == [("a", "b")]
    assert kb.ask("ancestor(?x, ?y)", scope="s") == [("b", "c")]
    assert kb.ask("ancestor(?x, ?y)", scope="*") == [("a", "b"), ("b", "c")]
    assert kb.ask("only(?x)", scope="*") == [("b",)]
    assert kb.ask("only(?x)", scope="never") == []
    with pytest.raises(InvalidInput):
        kb.tell("parent", ["x", "y"], scope="*")


def test_negatives_and_ground_negated_goals(kb):
    kb.tell("likes", ["ann", "tea"], negated=True)
    kb.tell("likes", ["bob", "tea"])
    assert kb.ask("~likes(?who, tea)") == [("ann", "tea")]
    assert kb.ask("not likes(ann, tea)").rows()[0]["metadata"] == {"basis": "explicit"}
    assert kb.ask("not likes(cid, tea)").rows()[0]["metadata"] == {"basis": "absence"}
    assert kb.ask("not likes(bob, tea)") == []
    kb.teach("dislikes(?x) :- person(?x), not likes(?x, tea).")
    kb.tell_many("person", [("ann",), ("bob",), ("cid",)])
    kb.tell("likes", ["ann", "tea"])
    assert kb.ask("dislikes(?x)") == [("ann",), ("cid",)]


def test_validity_and_what_is_refused(kb):
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    kb.tell("p", ["later"], valid_from=soon)
    kb.tell("p", ["now"], valid_until=soon, confidence=0.5, metadata={"k": 1})
    assert kb.query("p", ["?x"]) == [("now",)]
    for wrong in (
        lambda: kb.tell("p", ["?x"]),
        lambda: kb.tell("p", [None]),
        lambda: kb.tell("p", "abc"),
        lambda: kb.tell("p", ["x"], ttl=0),
        lambda: kb.tell("p", ["x"], confidence=2),
        lambda: kb.tell("p", ["x"], valid_from="tomorrow"),
        lambda: kb.tell("p(x)", ["x", "y"]),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    with pytest.raises(RuleSyntaxError):
        kb.teach("p(?x) :- q(?y).")
    assert kb.rules() == []
    assert kb.count("p") == 1


def test_likely_mistakes_in_rules_are_warned_about(kb):
    kb.tell("parent", ["a", "b"])
    warned = kb.teach("p(?x) :- parnet(?x, ?y), parent(?x, ?y, ?z).").warnings
    assert [text.split(" (")[0] for text in warned] == [
        "the variable ?z is used once",
        "no facts or rules for parnet/2",
        "parent has 3 arguments here and 2 elsewhere",
    ]
    assert kb.teach("q(?x) :- parent(?x, _).").warnings == ()


def test_retract_by_fact_and_by_pattern(kb):
    kb.tell_many("e", [("a", "b"), ("a", "c"), ("b", "b")])
    assert kb.retract("e", ["a", "b"]).retracted == 1
    assert kb.retract("e", ["?x", "?x"]).retracted == 1
    assert kb.query("e", ["?x", "?y"]) == [("a", "c")]


def test_a_folder_stores_each_tenant(tmp_path):
    with kbcore.open_kb(path=tmp_path, tenant="one") as kb:
        kb.tell("p", ["a"])
    with kbcore.open_kb(path=tmp_path, tenant="two") as kb:
        assert kb.count("p") == 0
    with kbcore.open_kb(path=tmp_path, tenant="one") as kb:
        assert kb.count("p") == 1


def test_an_unknown_storage_names_the_choices():
    with pytest.raises(ConfigError, match="memory, postgres, sqlite, wal"):
        kbcore.open_kb(storage="stone")


def test_files_of_every_kind(kb, tmp_path):
    (tmp_path / "a.kb").write_text(
        'p(a). p("b c") [confidence=0.5, scope=s].\nq(?x) :- p(?x).\n?- q(?x).\n', encoding="utf-8"
    )
    (tmp_path / "b.jsonl").write_text(
        '{"predicate": "p", "args": [1]}\n\n'
        '{"head": {"predicate": "r", "args": ["?x"]}, "body": [{"predicate": "p", "args": ["?x"]}]}\n',
        encoding="utf-8",
    )
    (tmp_path / "c.csv").write_text('p,"x, y"\np,z\n', encoding="utf-8")
    loaded = kb.load(tmp_path / "a.kb")
    assert (loaded.asserted, loaded.rules, len(loaded.goals)) == (2, 1, 1)
    assert kb.load(str(tmp_path / "b.jsonl")).rules == 1
    assert kb.load(tmp_path / "c.csv").asserted == 2
    assert kb.ask("r(?x)") == [("1",), ("a",), ("x, y",), ("z",)]
    assert kb.load("p(text).").asserted == 1


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.jsonl", '{"predicate": "p", "args": ["a"]}\n{"predicate": "p"}\n', 2),
        ("a.jsonl", "[1]\n", 1),
        ("a.jsonl", '{"predicate": "p", "args": ["?x"]}\n', 1),
        ("a.csv", "p,a\n?q,b\n", 2),
    ],
)
def test_a_faulty_line_is_named(kb, tmp_path, name, text, line):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=f"line {line}:"):
        kb.load(tmp_path / name)


def test_a_line_that_is_not_json_is_named_with_its_column(kb, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"predicate": p}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 1: invalid JSON at column 15: ") as caught:
        kb.load(tmp_path / "a.jsonl")
    assert "char " not in caught.value.message


def test_threads_may_share_it(kb):
    kb.teach(ANCESTORS)
    errors = []

    def work(worker):
        try:
            for n in range(60):
                kb.tell("parent", [f"{worker}-{n}", f"{worker}-{n + 1}"])
                if n % 10 == 9:
                    assert len(kb.ask("ancestor", [f"{worker}-0", "?x"])) == n + 1
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(w,)) for w in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert kb.count("parent") == 360


def test_a_transaction_is_all_or_nothing():
    with kbcore.open_kb() as kb:
        kb.tell("stock", ["apple", 1])
        with kb.transaction() as inside:
            inside.retract("stock", ["apple", 1])
            inside.tell("stock", ["apple", 0])
            inside.teach("gone(?x) :- stock(?x, 0).")
            assert list(inside.ask("gone(?x)")) == [("apple",)]
            assert list(kb.ask("stock(apple, ?n)")) == [("apple", "1")]
        assert list(kb.ask("gone(?x)")) == [("apple",)]
        with pytest.raises(ZeroDivisionError):
            fail_inside(kb)
        assert list(kb.ask("stock(pear, ?n)")) == []


def fail_inside(kb):
    with kb.transaction() as inside:
        inside.tell("stock", ["pear", 1])
        raise ZeroDivisionError


def test_a_transaction_with_outdated_reads_is_refused():
    def race(kb):
        with kb.transaction() as inside:
            inside.tell("stock", ["apple", inside.count("stock")])
            kb.tell("stock", ["pear", 1])

    with kbcore.open_kb() as kb:
        with pytest.raises(kbcore.Conflict):
            race(kb)
        assert list(kb.ask("stock(?x, ?n)")) == [("pear", "1")]


def test_a_write_that_fails_ends_a_transaction():
    def go_on(kb):
        with kb.transaction() as inside:
            inside.tell("p", ["a"])
            with pytest.raises(InvalidInput):
                inside.kb.assert_facts([], conflict="NONSENSE")

    with kbcore.open_kb() as kb, pytest.raises(kbcore.Conflict) as caught:
        go_on(kb)
    assert caught.value.details["state"] == "rolled_back"


def test_upkeep_works_in_an_embedded_knowledge_base(kb):
    kb.tell_many("saw", [("ann", f"x{n}") for n in range(5)])
    kb.tell("saw", ["bob", 1], confidence=0.01)
    kb.prioritize("saw", ["ann", "x3"], 1.0)
    assert [row["args"] for row in kb.salient("saw", ["ann", "?x"], limit=1)] == [["ann", "x3"]]
    assert kb.consolidate(dry_run=True).consolidated == 5
    assert [row["args"] for row in kb.consolidate(predicates=["saw"]).facts] == [["ann", "5"]]
    assert kb.decay(0.1, dry_run=True).atoms[0]["why"]["reason"] == "faded"
    assert kb.decay(0.1).evicted == 1
    assert len(kb.recall("saw", ["?x", "?y"], "2999-01-01T00:00:00Z")) == 5
    assert kb.recall("saw", ["?x", "?y"], 0) == []
    with pytest.raises(InvalidInput, match="ISO 8601"):
        kb.recall("saw", ["?x", "?y"], "yesterday")
    with (
        kb.transaction() as inside,
        pytest.raises(InvalidInput, match="cannot be part of a transaction"),
    ):
        inside.decay()
