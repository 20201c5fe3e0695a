"""Labels that the text of facts and rules names."""

from __future__ import annotations

from typing import Any

import pytest

import kbcore
from kbcore.errors import Forbidden, InvalidInput, RuleSyntaxError, TooLarge
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_fact, print_rule

DECLARED = """
@levels trust: web < tool < user.
@groups team: hr, eng.
"""


@pytest.fixture
def kb() -> Any:
    with kbcore.open_kb() as opened:
        opened.teach(DECLARED)
        yield opened


def names(kb: kbcore.KnowledgeBase, goal: str) -> list[str]:
    return sorted(" ".join(map(str, answer)) for answer in kb.ask(goal))


def test_facts_and_rules_name_their_labels(kb: Any) -> None:
    kb.teach("""
        p(a) [trust=web]. p(b) [team=(hr, eng), confidence=0.5]. p(c) [team=hr].
        q(?x) :- p(?x) [trust=tool].
        @key owns(?car, _) [team=eng].
    """)
    assert names(kb, "p(?x)") == ["a", "b", "c"]
    assert names(kb.viewed({"trust": "tool"}), "q(?x)") == ["b", "c"]
    assert names(kb.viewed({"trust": "user"}), "q(?x)") == []
    assert names(kb.viewed({"team": ["eng"]}), "p(?x)") == ["a", "b"]
    rules = [each.id for each in kb.viewed({"team": ["hr"]}).rules()]
    assert rules == [each.id for each in kb.rules() if not each.id.startswith("key")]


@pytest.mark.parametrize(
    "text",
    [
        "p(a) [trust=web].",
        "p(a) [team=(eng, hr), confidence=0.5].",
        "@why: q(?x) :- p(?x) [team=hr, confidence=0.5, scope=draft].",
    ],
)
def test_a_printed_statement_is_the_same(text: str) -> None:
    (statement,) = parse_program(text, labelled=True)
    if hasattr(statement, "rule"):
        assert print_rule(statement.rule) == text
    else:
        assert print_fact(statement.atom, statement.annotations) == text


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("p(a). p(b) [trst=web].", 13, 'no annotation "trst"\nhint: did you mean trust?'),
        ("p(a) [trust=wb].", 7, "trust is one of web < tool < user"),
        ("p(a) [trust=(web, tool)].", 7, "trust is one of"),
        ("p(a) [team=(hr, hl)].", 7, 'team is groups of hr, eng, found "hl"'),
        ("q(?x) :- p(?x) [tem=hr].", 17, 'a rule has no annotation "tem"'),
        ("p(a) [confidnce=0.5].", 7, "did you mean confidence?"),
        ("p(a) [trust=5].", 7, 'no annotation "trust"'),
        ("q(?x) :- p(?x) [ttl=web].", 17, 'a rule has no annotation "ttl"'),
        ("p(a) [trust=web, trust=tool].", 18, "given twice"),
        ('@phrase p/1 "{0}" [trust=web].', 20, "has no annotation"),
        ("@levels confidence: low < high.", 9, "is an option of statements"),
        ("@groups metadata: a, b.", 9, "is an option of statements"),
    ],
)
def test_a_mistake_has_its_place(kb: Any, text: str, column: int, problem: str) -> None:
    with pytest.raises(RuleSyntaxError) as refused:
        kb.teach(text)
    assert problem in refused.value.message
    (error,) = refused.value.details["errors"]
    assert (error["line"], error["column"]) == (1, column)
    assert kb.predicates() == []


def test_a_dimension_of_the_same_text_counts(kb: Any) -> None:
    kb.teach("@levels care: low < high. p(a) [care=low].")
    assert names(kb.viewed({"care": "high"}), "p(?x)") == []
    with kbcore.open_kb() as other, pytest.raises(RuleSyntaxError):
        other.teach("p(a) [care=low].")


def test_text_lowers_the_labels_of_the_request_only(kb: Any) -> None:
    tool = kb.viewed(labels={"trust": "tool", "team": ["hr"]})
    tool.tell("p(a) [trust=web]. p(b).")
    assert [row.get("labels") for row in kb.query("p(?x)").rows()] == [
        {"trust": "web", "team": ["hr"]},
        {"trust": "tool", "team": ["hr"]},
    ]
    for text, dimension in (("p(c) [trust=user]", "trust"), ("p(c) [team=(hr, eng)]", "team")):
        with pytest.raises(Forbidden) as refused:
            tool.tell(text)
        assert refused.value.details == {"dimension": dimension}
    assert names(kb, "p(?x)") == ["a", "b"]


def test_a_fact_in_two_label_sets_of_one_text_is_two_rows(kb: Any) -> None:
    kb.teach("p(a) [team=hr, confidence=0.25]. p(a) [team=eng, confidence=0.75].")
    hr, eng, all_of = (kb.viewed({"team": team}) for team in (["hr"], ["eng"], ["hr", "eng"]))
    numbers = [each.query("p(a)").rows()[0]["confidence"] for each in (hr, eng, all_of)]
    assert numbers == [0.25, 0.75, 0.75]
    kb.teach("p(a) [team=hr, confidence=0.5].")  # what is stored last is the newest
    assert all_of.query("p(a)").rows()[0]["confidence"] == 0.5


def test_strategies_take_facts_of_one_label_set(kb: Any) -> None:
    kb.teach("@key home(?who, _). home(mia, oslo).")
    kb.tell("home(mia, rome) [trust=web]", conflict="NEWEST_WINS")
    assert names(kb.viewed({"trust": "user"}), "home(mia, ?x)") == ["mia oslo"]
    assert names(kb, "home(mia, ?x)") == ["mia oslo", "mia rome"]
    kb.tell("home(mia, bern) [trust=tool]", conflict="NEWEST_WINS")  # ends what the web says
    assert names(kb, "home(mia, ?x)") == ["mia bern", "mia oslo"]
    with pytest.raises(InvalidInput, match="different labels"):
        kb.tell("home(mia, a) [trust=tool]. home(mia, b).", conflict="NEWEST_WINS")


def test_what_has_no_labels_refuses_them(kb: Any) -> None:
    with pytest.raises(InvalidInput, match='no label or option "trust"'):
        kb.deploy("p(a) [trust=web].", name="access")
    assert kb.predicates() == []


def test_a_script_with_queries_has_labels(kb: Any) -> None:
    outcome = kb.execute("p(a) [trust=web]. p(b). ?- p(?x).")
    assert len(outcome.answers) == 2
    with kb.transaction() as transaction:
        transaction.tell("p(c) [trust=web]")
    assert names(kb, "p(?x)") == ["a", "b", "c"]
    assert names(kb.viewed({"trust": "user"}), "p(?x)") == ["b"]


def test_a_preview_reads_labels(kb: Any) -> None:
    kb.teach("p(a). p(b) [trust=web]. q(?x) :- p(?x).")
    user, web = kb.viewed({"trust": "user"}), kb.viewed(labels={"trust": "web"})
    assert user.preview("p(c) [trust=web]").counts.becomes_true == 0
    assert kb.preview("p(c) [trust=web]").counts.becomes_true == 2
    gone = web.preview(forget="p(?x)")
    assert sorted(each.args for each in gone.becomes_false) == [("b",), ("b",)]
    assert kb.preview(forget="p(?x)").counts.becomes_false == 4
    assert kb.viewed({"trust": "user"}, {"trust": "web"}).preview(forget="p(a)").by_predicate == []


def test_a_script_of_facts_alone_has_labels(kb: Any) -> None:
    kb.execute("p(a) [trust=web]. q(?x) :- p(?x) [trust=web].")
    assert names(kb, "q(?x)") == ["a"]
    assert names(kb.viewed({"trust": "user"}), "p(?x)") == []


def test_labels_in_text_survive_a_restart(tmp_path: Any) -> None:
    with kbcore.open_kb(path=str(tmp_path)) as kb:
        kb.teach(DECLARED + "p(a) [trust=web]. p(b). p(b) [team=hr].")
        before = kb.dump()
    with kbcore.open_kb(path=str(tmp_path)) as kb:
        assert kb.dump() == before
        assert names(kb.viewed({"trust": "user", "team": []}), "p(?x)") == ["b"]


def test_a_check_knows_stored_dimensions_and_those_of_the_text(kb: Any) -> None:
    assert kb.check("p(a) [trust=web]. @levels care: low < high. p(b) [care=low].") == []
    (finding,) = kb.check("p(a) [trust=wb].")
    assert (finding.name, finding.line, finding.column) == ("bad-annotation", 1, 7)
    (finding,) = kb.check("p(a) [trst=web].")
    assert finding.name == "unknown-annotation"


def test_too_many_label_sets_store_nothing(kb: Any) -> None:
    groups = [f"g{number}" for number in range(64)]
    kb.teach(f"@groups many: {', '.join(groups)}.")
    pairs = [(a, b, c) for a in groups[:20] for b in groups[20:40] for c in groups[40:51]]
    text = " ".join(f"p(a{n}) [many=({', '.join(each)})]." for n, each in enumerate(pairs))
    with pytest.raises(kbcore.KBError, match="at most 4096 different labels"):
        kb.teach(text)
    assert kb.predicates() == []


def test_a_fact_that_comes_too_often_stores_nothing(kb: Any) -> None:
    kb.teach("p(a) [trust=web]. p(a) [trust=tool]. " * 32)
    with pytest.raises(TooLarge, match="at most 64 times"):
        kb.teach("q(a) [trust=web]. q(a) [trust=tool]. " * 32 + "q(a) [trust=web].")
    assert [each.predicate for each in kb.predicates()] == ["p"]
