"""`kb.check`: texts beside what is stored, values of annotations, and codes of scripts."""

from __future__ import annotations

import pytest

from kbcore import open_kb
from kbcore.errors import InvalidInput, RuleSyntaxError
from kbplanner.check.codes import BY_NAME


@pytest.fixture
def kb():
    with open_kb() as kb:
        kb.tell("parent(ann, bob). parent(bob, cid).")
        yield kb


def names(kb, text: str, **options: str) -> list[str]:
    return [each.name for each in kb.check(text, **options)]


def test_nothing_is_stored(kb):
    before = kb.dump()
    assert names(kb, "child(?x, ?y) :- parent(?y, ?x).\nlikes(ann, tea).") == []
    assert kb.dump() == before


def test_positions_and_members(kb):
    (finding,) = kb.check("parent(dee, eve).\nold(?x) :- parent(?y, _), parent(_, ?y).")
    assert (finding.line, finding.column, finding.end_line, finding.end_column) == (2, 5, 2, 7)
    assert (finding.code, finding.name, finding.severity) == ("K012", "unsafe", "error")
    assert finding.as_json()["endColumn"] == 7


@pytest.mark.parametrize(
    "text",
    [
        'likes(ann, tea) [validFrom="yesterday"].',
        'likes(ann, tea) [validUntil="2026-99-01"].',
        'likes(ann, tea) [scope="a b"].',
        'fond(?x) :- parent(?x, _) [scope="a b"].',
        '@phrase parent/2 "{0} is a parent of {1}" [scope="a b"].',
    ],
)
def test_values_of_annotations(kb, text):
    assert names(kb, text) == ["bad-annotation"]
    assert names(kb, text.replace("yesterday", "2026-01-01T00:00:00Z").replace("a b", "s")) == (
        ["bad-annotation"] if "99" in text else []
    )


def test_a_goal(kb):
    assert names(kb, "parent(ann, ?x)", kind="goal") == []
    assert names(kb, "parent(ann)", kind="goal") == ["arity"]
    with pytest.raises(InvalidInput, match="kind: must be one of"):
        kb.check("p(a).", kind="fact")
    with pytest.raises(InvalidInput, match="scope"):
        kb.check("p(a).", scope="*")


def test_a_scope_for_rules_that_name_none(kb):
    kb.teach("total(sum(?n)) :- part(?n). part(1).", scope="draft")
    cyclic = "part(?n) :- total(?n)."
    assert names(kb, cyclic, scope="draft") == ["recursive-aggregate"]
    assert names(kb, cyclic, scope="other") == []
    assert names(kb, cyclic) == ["recursive-aggregate"]


def test_checks_read_the_transaction(kb):
    with kb.transaction() as transaction:
        transaction.tell("sister(ann, dee)")
        assert names(transaction, "aunt(?x, ?z) :- sister(?x, ?y), parent(?y, ?z).") == []


def test_the_examples_of_the_code_of_commands(kb):
    examples = BY_NAME["wrong-command"].examples
    with pytest.raises(RuleSyntaxError) as caught:
        kb.execute(examples.bad)
    assert [error["code"] for error in caught.value.errors] == ["wrong-command"]
    assert len(kb.execute(examples.good).rules) == 1
