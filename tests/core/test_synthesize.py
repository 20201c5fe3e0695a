"""Questions in natural language: plan, queries, and answers that contain only derived facts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted import Answer, Scripted

import kbcore
from kbcore.config import Config
from kbcore.embed import EmbeddedKB
from kbcore.errors import InvalidInput, ModelFailed, ModelNotConfigured
from kbcore.language.grounding import unbacked
from kbcore.language.synthesize import NOTHING_KNOWN, NOTHING_STORED


class Bench:
    def __init__(self) -> None:
        self.model = Scripted()
        self.kb: EmbeddedKB = kbcore.open_kb(llm=self.model, config=Config(llm_retries=0))
        self.kb.tell("works_at", ["Ann", "Acme"], confidence=0.9)
        self.kb.tell("works_at", ["Bob", "Acme"])
        self.kb.tell("likes", ["Ann", "coffee"], negated=True)
        self.kb.teach("colleague(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y.")

    def say(self, *answers: Answer) -> None:
        self.model.then(answers)


@pytest.fixture
def bench() -> Iterator[Bench]:
    found = Bench()
    with found.kb:
        yield found


def plan(*queries: Any) -> dict[str, Any]:
    return {"queries": [one if isinstance(one, str) else {"atoms": one} for one in queries]}


def atom(predicate: str, *args: str, **more: Any) -> dict[str, Any]:
    return {"predicate": predicate, "args": list(args), **more}


def said(*sentences: tuple[str, list[Any]], confidence: Any = 1) -> dict[str, Any]:
    return {
        "sentences": [{"text": text, "facts": facts} for text, facts in sentences],
        "confidence": confidence,
    }


def told(found: Any) -> list[tuple[str, str]]:
    return [(one.fact, one.type) for one in found.derivation]


def test_a_stored_fact(bench: Bench) -> None:
    bench.say(plan([atom("works_at", "Ann", "?x")]), said(("Ann works at Acme.", [1])))
    found = bench.kb.synthesize("Where does Ann work?")
    assert (found.answer, found.confidence) == ("Ann works at Acme.", 0.9)
    assert told(found) == [("works_at(Ann, Acme)", "fact_match")]
    assert (found.queries, found.failed) == (["works_at(Ann, ?x)"], [])
    assert (found.provider, found.model) == ("scripted", "script-1")


def test_a_conclusion_with_its_rule_and_premises(bench: Bench) -> None:
    bench.say(plan([atom("colleague", "Ann", "?x")]), said(("Bob is a colleague of Ann.", [1])))
    found = bench.kb.synthesize("Who is a colleague of Ann?")
    assert told(found) == [
        ("colleague(Ann, Bob)", "rule_application"),
        ("works_at(Ann, Acme)", "fact_match"),
        ("works_at(Bob, Acme)", "fact_match"),
    ]
    assert (
        found.derivation[0].rule
        == "colleague(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y."
    )
    assert found.answer == "Bob is a colleague of Ann."


def test_several_atoms_hold_together(bench: Bench) -> None:
    query = [
        atom("works_at", "?x", "?f"),
        atom("likes", "?x", "coffee", polarity="negative"),
        atom("!=", "?x", "Bob"),
    ]
    bench.say(plan(query), said(("Ann does not like coffee and works at Acme.", [1, 2])))
    found = bench.kb.synthesize("Who works and dislikes coffee?")
    assert told(found) == [
        ("works_at(Ann, Acme)", "fact_match"),
        ("not likes(Ann, coffee)", "fact_match"),
    ]
    assert found.queries == ["works_at(?x, ?f), ~likes(?x, coffee), ?x != Bob"]


def test_explicit_negatives_are_found(bench: Bench) -> None:
    bench.say(plan([atom("likes", "Ann", "coffee")]), said(("No, Ann does not like coffee.", [1])))
    found = bench.kb.synthesize("Does Ann like coffee?")
    assert found.answer == "No, Ann does not like coffee."
    assert found.queries == ["likes(Ann, coffee)", "~likes(Ann, coffee)"]


def test_known_spellings_of_names_are_used(bench: Bench) -> None:
    bench.say(plan([atom("worksAt", "ann", "?x")]), said(("Ann works at Acme.", [1])))
    assert bench.kb.synthesize("Where does ann work?").queries == ["works_at(Ann, ?x)"]


def test_queries_may_be_text(bench: Bench) -> None:
    bench.say(plan('works_at("Ann", ?x)'), said(("Ann works at Acme.", [1])))
    assert bench.kb.synthesize("Where?").queries == ["works_at(Ann, ?x)"]


# -- what is not known -----------------------------------------------------------------------------


def test_an_empty_knowledge_base_makes_no_model_call() -> None:
    model = Scripted()
    with kbcore.open_kb(llm=model) as kb:
        found = kb.synthesize("Anything?")
    assert (found.answer, found.confidence, found.derivation, found.queries) == (
        NOTHING_STORED,
        0.0,
        [],
        [],
    )
    assert model.asked == []


def test_without_answers_the_model_is_not_asked_for_one(bench: Bench) -> None:
    bench.say(
        plan([atom("works_at", "Cid", "?x")]),
        plan([atom("flies", "Cid")], [atom("works_at", "Cid", "?x")]),
    )
    found = bench.kb.synthesize("Where does Cid work?")
    assert (found.answer, found.confidence, found.derivation) == (NOTHING_KNOWN, 0.0, [])
    assert len(bench.model.asked) == 2
    assert "works_at(Cid, ?x): no answer" in bench.model.asked[1].messages[0].text
    assert found.queries == ["works_at(Cid, ?x)", "~works_at(Cid, ?x)", "flies(Cid)", "~flies(Cid)"]


def test_a_second_plan_may_find_it(bench: Bench) -> None:
    bench.say(
        plan([atom("employs", "?x", "Ann")]),
        plan([atom("works_at", "Ann", "?x")]),
        said(("Ann works at Acme.", [1])),
    )
    assert bench.kb.synthesize("Who employs Ann?").answer == "Ann works at Acme."


def test_invalid_queries_are_reported_and_sent_back_to_the_model(bench: Bench) -> None:
    bench.say(plan([3], "works_at(", [], [atom("works_at", "?x", "?x", negated="no")]), plan())
    found = bench.kb.synthesize("Where?")
    assert (len(found.failed), found.queries) == (4, [])
    assert "works_at(: " in bench.model.asked[1].messages[0].text


def test_a_query_over_budget_is_reported() -> None:
    model = Scripted(plan([atom("p", "?x"), atom("p", "?y"), atom("p", "?z")]), plan())
    with kbcore.open_kb(llm=model, config=Config(query_max_rows=200)) as kb:
        kb.tell_many("p", [(str(n),) for n in range(10)])
        found = kb.synthesize("What is p?")
    assert [query for query, _ in found.failed] == ["p(?x), p(?y), p(?z)"]


# -- what the model claims -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "numbers"),
    [
        ("Ann owns a yacht in Monaco.", [1]),
        ("Ann has worked at Acme for 20 years.", [1]),
        ("Ann does not work at Acme.", [1]),
        ("bob works at Acme.", [1]),
        ("Mallory works at Acme.", [1]),
        ("Acme is a fine company.", []),
        ("Acme is a fine company.", [7, 0, -1, "1", True, None]),
    ],
)
def test_sentences_without_facts_are_removed_from_the_answer(
    bench: Bench, claim: str, numbers: list[Any]
) -> None:
    bench.say(
        plan([atom("works_at", "Ann", "?x")]), said(("Ann works at Acme.", [1]), (claim, numbers))
    )
    found = bench.kb.synthesize("Where do Ann and Bob work?")
    assert found.answer == "Ann works at Acme."
    assert told(found) == [("works_at(Ann, Acme)", "fact_match"), (claim, "llm_reported")]


def test_rejected_wording_is_replaced_by_our_own(bench: Bench) -> None:
    bench.say(
        plan([atom("works_at", "?x", "Acme")]), said(("Ann and Bob of Acme met in Paris.", [1, 2]))
    )
    found = bench.kb.synthesize("Who works at Acme?")
    assert found.answer == "Ann works at Acme. Bob works at Acme."
    assert told(found)[-1] == ("Ann and Bob of Acme met in Paris.", "llm_reported")


def test_claims_alone_are_no_answer(bench: Bench) -> None:
    bench.say(plan([atom("works_at", "Ann", "?x")]), said(("Everybody knows.", []), confidence=1))
    found = bench.kb.synthesize("Where does Ann work?")
    assert (found.answer, found.confidence) == (NOTHING_KNOWN, 0.0)
    assert told(found) == [("Everybody knows.", "llm_reported")]


@pytest.mark.parametrize(
    ("stated", "shown"), [(0.5, 0.5), (1, 0.9), (None, 0.9), (7, 0.9), ("sure", 0.9)]
)
def test_no_answer_has_a_higher_confidence_than_its_facts(
    bench: Bench, stated: Any, shown: float
) -> None:
    bench.say(
        plan([atom("works_at", "Ann", "?x")]), said(("Ann works at Acme.", [1]), confidence=stated)
    )
    assert bench.kb.synthesize("Where?").confidence == shown


@pytest.mark.parametrize(
    "answer", [{}, {"sentences": 3}, {"sentences": [3]}, {"sentences": [{"facts": [1]}]}, "no"]
)
def test_an_answer_of_another_shape_is_a_failure(bench: Bench, answer: Any) -> None:
    bench.say(plan([atom("works_at", "Ann", "?x")]), answer, answer)
    with pytest.raises(ModelFailed):
        bench.kb.synthesize("Where?")


@given(st.text(max_size=60))
def test_a_sentence_with_unsupported_words_is_removed(text: str) -> None:
    row = {"predicate": "works_at", "args": ["Ann", "Acme"], "negated": False}
    assert unbacked(f"Ann works at Acme {text} Zorg", [row], []) is not None


def test_scopes(bench: Bench) -> None:
    bench.kb.tell("works_at", ["Cid", "Bolt"], scope="s")
    bench.say(plan([atom("works_at", "?x", "?y")]), said(("Cid works at Bolt.", [1])))
    found = bench.kb.synthesize("Who works where?", scope="s")
    assert [(one.fact, one.scope) for one in found.derivation] == [("works_at(Cid, Bolt)", "s")]
    bench.say(plan([atom("colleague", "?x", "?y")]), said(("Ann is a colleague of Bob.", [1])))
    found = bench.kb.synthesize("Who is a colleague?", scope="*")
    assert {one.scope for one in found.derivation} == {None}


@pytest.mark.parametrize("question", ["", " \n", "x" * 4001])
def test_a_question_has_a_length(bench: Bench, question: str) -> None:
    with pytest.raises(InvalidInput, match="question"):
        bench.kb.synthesize(question)


def test_without_a_model() -> None:
    with kbcore.open_kb() as kb, pytest.raises(ModelNotConfigured):
        kb.synthesize("x")


# -- meanings, and what was said -------------------------------------------------------------------


def test_the_plan_knows_what_predicates_mean(bench: Bench) -> None:
    bench.kb.tell((files("kbcore") / "memory.kb").read_text())
    bench.say(plan(), plan())
    bench.kb.synthesize("How many days until the trip?")
    lines = bench.model.asked[0].messages[0].text.splitlines()
    phrase = '"days until the plan of ?who, ?what: ?days"'
    assert f"days_until/3 (?who, ?what, ?days): {phrase}" in lines
    assert "lives_in/2 (person, city): where a person lives now" in lines
    assert (
        "works_at/2 (person, company): where a person works now, for example works_at(Ann, Acme)"
        in lines
    )


def test_where_no_query_has_an_answer_what_was_said_is_the_evidence(bench: Bench) -> None:
    bench.kb.add_episode("mia", "The boiler was repaired in May.", at="2026-05-03", id="e1")
    bench.kb.add_episode("mia", "It rains.", at="2026-05-04")
    bench.kb.tell("said", ["leo", "The boiler is loud again.", "2026-06-01T00:00:00.000Z"])
    bench.say(
        plan([atom("repaired", "boiler", "?x")]),
        plan(),
        said(
            ("Leo said that the boiler is loud again.", [1]),
            ("Mia said that the boiler was repaired in May.", [2]),
        ),
    )
    found = bench.kb.synthesize("When was the boiler repaired?", citations=True)
    assert found.answer == (
        "Leo said that the boiler is loud again. Mia said that the boiler was repaired in May. [1]"
    )
    assert [source["episode"] for source in found.sources.listed] == ["e1"]
    assert [each.type for each in found.derivation] == ["fact_match", "fact_match"]
    facts = bench.model.asked[-1].messages[0].text
    assert 'said(mia, "The boiler was repaired in May.", "2026-05-03T00:00:00.000Z")' in facts
    assert "It rains" not in facts


def test_facts_come_before_what_was_said(bench: Bench) -> None:
    bench.kb.add_episode("mia", "Ann works at Initech.")
    bench.say(plan([atom("works_at", "Ann", "?x")]), said(("Ann works at Acme.", [1])))
    assert bench.kb.synthesize("Where does Ann work?").answer == "Ann works at Acme."
    assert "Initech" not in bench.model.asked[-1].messages[0].text


def test_episodes_alone_answer_a_question_without_a_plan() -> None:
    model = Scripted(said(("Mia said that she moved to Oslo.", [1])))
    with kbcore.open_kb(llm=model) as kb:
        kb.add_episode("mia", "I moved to Oslo.")
        found = kb.synthesize("Where did Mia move?")
    assert found.answer == "Mia said that she moved to Oslo."
    assert len(model.asked) == 1
