"""Declared constraints: stored like rules, derived violations, windows, summaries, and refused
writes.
"""

from __future__ import annotations

from threading import Thread

import pytest

from kbcore import Config, Conflict, KnowledgeBase, RuleSyntaxError, open_kb
from kbcore.branching import preview

DECLARED = "@key owns(?car, _). @disjoint cat, dog. @total person(?x), age(?x, _)."
OWNS = 'contradiction(key, "owns(car1, ann)", "owns(car1, bob)")'


@pytest.fixture
def kb():
    with open_kb(config=Config(storage_backend="memory")) as opened:
        opened.teach(DECLARED)
        yield opened


def found(kb: KnowledgeBase, scope: str | None = None) -> list[tuple]:
    return list(kb.ask("contradiction(?kind, ?first, ?second)", scope=scope))


def test_violations_come_and_go_with_facts(kb):
    assert found(kb) == []
    kb.tell("owns(car1, ann). owns(car1, bob). cat(tom). dog(tom). person(ann).")
    assert found(kb) == [
        ("disjoint", "cat(tom)", "dog(tom)"),
        ("key", "owns(car1, ann)", "owns(car1, bob)"),
        ("total", "person(ann)", "age(ann, _)"),
    ]
    assert kb.retract("owns(car1, bob)").cascaded == 1
    kb.tell("age(ann, 40)")
    assert found(kb) == [("disjoint", "cat(tom)", "dog(tom)")]


def test_conclusions_violate_constraints_too(kb):
    kb.teach("cat(?x) :- meows(?x). dog(?x) :- barks(?x).")
    kb.tell("meows(rex). barks(rex).")
    assert found(kb) == [("disjoint", "cat(rex)", "dog(rex)")]
    assert "meows(rex)  stored" in kb.explain("contradiction(disjoint, ?f, ?s)")


def test_a_declaration_is_a_rule_with_its_text_as_id(kb):
    assert [rule.id for rule in kb.rules()] == [
        "key owns(?car, _)",
        "disjoint cat, dog",
        "total person(?x), age(?x, _)",
    ]
    kb.tell("owns(car1, ann). owns(car1, bob).")
    kb.retract_rule("key owns(?car, _)")
    assert found(kb) == []
    assert "wrong" not in kb.plan("contradiction(?k, ?f, ?s)")


def test_a_declaration_survives_a_dump(kb):
    text = kb.dump()
    with open_kb(config=Config(storage_backend="memory")) as copy:
        copy.execute(text)
        assert [rule.text for rule in copy.rules()] == [rule.text for rule in kb.rules()]
        assert [rule.id for rule in copy.rules()] == [rule.id for rule in kb.rules()]


def test_wide_facts_have_a_text():
    width = 60
    with open_kb(config=Config(storage_backend="memory")) as kb:
        kb.teach(f"@key wide(?a, {', '.join('_' * (width - 1))}).")
        kb.tell("wide", ["k", *map(str, range(width - 1))])
        kb.tell("wide", ["k", *map(str, range(width - 2)), "last"])
        ((_, first, second),) = found(kb)
        assert first.endswith(f", {width - 2})")
        assert second.endswith(", last)")


def test_different_names_of_one_class_are_a_contradiction(kb):
    assert kb.teach("@equivalence same/2.").warnings == ()
    assert kb.rules()[-1].id == "different same/2"
    kb.tell("same(bob, robert). same(robert, bert). different(bob, bert). different(bob, ann).")
    assert found(kb) == [("different", "bob", "bert")]
    assert kb.ask("same(bert, ?x)") == [("bert", "bert"), ("bert", "bob"), ("bert", "robert")]
    proof = kb.explain("contradiction(different, bob, bert)")
    assert "different(bob, bert)  stored" in proof
    assert "same(robert, bert)  stored" in proof
    kb.retract("same(robert, bert)")
    assert found(kb) == []
    with pytest.raises(Conflict, match="contradiction") as error:
        kb.tell("same(bert, robert)", conflict="REJECT")
    assert error.value.details["kind"] == "different"
    assert found(kb) == []
    kb.retract_rule("different same/2")
    kb.tell("same(bert, robert)", conflict="REJECT")


def test_representatives_follow_the_facts(kb):
    assert kb.teach("@equivalence same/2. @canonical same/2.").warnings == ()
    kb.teach("owner(?car, ?name) :- owns(?car, ?who), canonical(same, ?who, ?name).")
    kb.teach("same(?who, ?who) :- owns(_, ?who).")
    kb.tell(
        "same(bob, robert). same(robert, bert). owns(c1, bob). owns(c2, robert). owns(c3, zoe)."
    )
    assert kb.ask("owner(?car, ?name)") == [("c1", "bert"), ("c2", "bert"), ("c3", "zoe")]
    proof = kb.explain("canonical(same, bob, ?name)")
    assert "representative(?y) = bert over 3" in proof
    assert "same(robert, bert)  stored" in proof
    kb.retract("same(robert, bert)")
    assert kb.ask("owner(?car, ?name)") == [("c1", "bob"), ("c2", "bob"), ("c3", "zoe")]
    assert "canonical(same, zoe, bob)" in kb.why_not("canonical(same, zoe, bob)").text


def test_an_equivalence_of_the_name_different_contradicts_nothing(kb):
    assert len(kb.teach("@equivalence different/2.").rules) == 2


# ---- writes ----


def test_only_reject_refuses_a_violation(kb):
    kb.tell("owns(car1, ann)", conflict="REJECT")
    with pytest.raises(
        Conflict, match=r"violate a declared constraint: contradiction\(key"
    ) as error:
        kb.tell("owns(car1, bob). owns(car2, bob).", conflict="REJECT")
    assert error.value.details == {
        "reason": "constraint",
        "kind": "key",
        "first": "owns(car1, ann)",
        "second": "owns(car1, bob)",
    }
    assert len(kb.query("owns(?c, ?w)")) == 1  # all or none
    kb.tell("owns(car1, bob)")
    assert len(found(kb)) == 1
    kb.tell("owns(car3, bob)", conflict="REJECT")  # what is violated already refuses nothing
    kb.tell("person(zoe). age(zoe, 3).", conflict="REJECT")
    with pytest.raises(Conflict, match="total"):
        kb.tell("person(max)", conflict="REJECT")


def test_constraints_hold_within_a_scope(kb):
    kb.tell("owns(car1, ann)", scope="a")
    kb.tell("owns(car1, bob)", scope="b", conflict="REJECT")
    with pytest.raises(Conflict):
        kb.tell("owns(car1, bob)", scope="a", conflict="REJECT")


def store_two_owners(kb: KnowledgeBase) -> None:
    with kb.transaction() as tx:
        tx.tell("owns(car1, ann)", conflict="REJECT")
        tx.tell("owns(car1, bob)", conflict="REJECT")


def test_a_transaction_refuses_a_violation_of_its_own_facts(kb):
    with pytest.raises(Conflict, match="owns"):
        store_two_owners(kb)
    assert len(kb.query("owns(?c, ?w)")) == 0


def test_concurrent_writers_never_make_a_violation(kb):
    """Each of eight writers wants every car for itself; each car gets exactly one owner."""
    refused: list[str] = []

    def write(who: str) -> None:
        for car in range(12):
            try:
                kb.tell("owns", [f"car{car}", who], conflict="REJECT")
            except Conflict:
                refused.append(who)

    writers = [Thread(target=write, args=(f"w{number}",)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(kb.query("owns(?car, ?who)")) == 12
    assert len(refused) == 7 * 12
    assert found(kb) == []


# ---- windows ----


def test_a_window_says_that_its_facts_violate_a_constraint(kb):
    kb.tell("owns(car1, ann). owns(car1, bob). cat(tom). dog(tom). person(ann). age(ann, 3).")
    assert f"{OWNS}." in kb.context(query="who owns car1?").text.splitlines()
    about_cats = kb.context(query="tom", predicates=["cat"], max_facts=20)
    assert "owns" not in about_cats.text
    assert 'contradiction(disjoint, "cat(tom)", "dog(tom)").' in about_cats.text
    goal = kb.context(goals="age(ann, ?n)", fill="none")
    assert "contradiction" not in goal.text


def test_a_full_window_keeps_a_place_for_violations(kb):
    kb.tell_many("owns", [(f"car{n}", "ann") for n in range(100)])
    kb.tell("owns(car1, bob)")
    window = kb.context(query="who owns car1?", max_facts=20)
    assert len(window.entries) == 20
    assert window.entries[-1].predicate == "contradiction"
    small = kb.context(query="who owns car1?", max_tokens=12)
    assert small.tokens <= 12


def test_a_session_sees_a_violation_come_and_go(kb):
    kb.tell("owns(car1, ann)")
    kb.context(query="car1", session="s")
    kb.tell("owns(car1, bob)")
    assert "contradiction" in {
        entry.predicate for entry in kb.context_diff("s", query="car1").added
    }
    kb.retract("owns(car1, ann)")
    gone = kb.context_diff("s", query="car1").removed
    assert {each.entry.predicate for each in gone} == {"contradiction", "owns"}


def test_the_summary_counts_violations(kb):
    kb.tell("owns(car1, ann). owns(car1, bob). cat(tom). dog(tom).")
    summary = kb.context_summary()
    assert [each.text for each in summary.violations] == [
        'contradiction(disjoint, "cat(tom)", "dog(tom)")',
        OWNS,
    ]
    assert summary.contradictions == 0
    assert {entry.predicate for entry in summary.salient} == {"owns", "cat", "dog"}


def test_a_window_with_a_fact_of_two_names_says_that_they_are_different(kb):
    kb.teach("@equivalence same/2.")
    kb.tell("same(bob, rob). different(rob, bob). same(x, y). age(rob, 3).")
    text = "contradiction(different, rob, bob)."
    assert text in kb.context(query="bob", predicates=["same"]).text.splitlines()
    assert text not in kb.context(goals="same(x, y)", fill="none").text.splitlines()
    assert [each.text for each in kb.context_summary().violations] == [text[:-1]]


# ---- mistakes ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@key owns(?car, ?who).", "column 2: a key has variables for the arguments"),
        ("@key owns(_, _).", "column 2: a key has variables for the arguments"),
        ("@key owns(?car, ann).", "column 6: a constraint is about predicates with variables"),
        ("@key ~owns(?car, _).", "column 6: a constraint is about predicates with variables"),
        ("@key p(?a, ?a, _).", "column 2: the variable ?a is there twice"),
        ("@key p(?a, _), q(?a, _).", "column 2: a key is of one predicate"),
        ("@disjoint cat.", "column 2: at least two predicates exclude each other"),
        ("@disjoint cat, dog/2.", "column 2: predicates that exclude each other have the same"),
        ("@disjoint cat, cat.", "column 2: the predicate cat is there twice"),
        ("@disjoint cat, dog/99.", "column 16: expected a predicate, such as cat or likes/2"),
        ("@disjoint cat(?x), dog(?x).", "column 11: expected a predicate, such as cat or likes/2"),
        ("@total person(?x).", "column 2: after the predicate come those that have to hold"),
        ("@total person(?x), age(?y, _).", "column 2: the first predicate has no variable ?y"),
        ("@disjoint cat dog.", 'column 15: expected predicates with "," between them'),
        ("@key p(?x, _) :- q(?x).", 'column 15: expected predicates with "," between them'),
        ("@key", "column 5: expected predicates"),
        ("@key p(?x, _) [ttl=3].", "ttl"),
    ],
)
def test_a_mistake_is_named(kb, text, message):
    with pytest.raises(RuleSyntaxError) as error:
        kb.teach(text)
    assert message in error.value.message
    assert len(kb.rules()) == 3


def test_words_of_declarations_are_still_names_of_rules(kb):
    kb.teach("@key: lock(?x) :- door(?x).")
    assert kb.rules()[-1].id == "key"


def test_a_write_is_checked_by_what_it_changes(kb, monkeypatch):
    kb.tell("owns(car1, ann). owns(car2, ann). person(ann). age(ann, 40).")

    def never(*_):
        raise AssertionError("both states were evaluated")

    monkeypatch.setattr(preview, "new_rows", never)
    monkeypatch.setattr(preview, "compare_truth", never)
    kb.tell("owns(car3, bob). person(bob). age(bob, 3).", conflict="REJECT")
    for text in ("owns(car1, bob).", "cat(tom). dog(tom).", "person(eve)."):
        with pytest.raises(Conflict):
            kb.tell(text, conflict="REJECT")
    outcome = kb.preview("owns(car1, bob). owns(car4, bob).", forget="age(ann, ?n)")
    assert [change.text for change in outcome.becomes_true] == [
        "owns(car1, bob)",
        "owns(car4, bob)",
        OWNS,
        'contradiction(total, "person(ann)", "age(ann, _)")',
    ]
    assert [change.text for change in outcome.becomes_false] == ["age(ann, 40)"]


def test_many_new_constants_are_checked_before_they_are_stored(kb):
    rows = [(f"car{number:08}{'x' * 30}", f"owner {number}") for number in range(40_000)]
    assert kb.tell_many("owns", rows, conflict="REJECT").asserted == len(rows)
    with pytest.raises(Conflict, match="violate a declared constraint"):
        kb.tell_many("owns", [("bike", "ann"), (rows[0][0], "bob")], conflict="REJECT")
    assert kb.count("owns") == len(rows)
