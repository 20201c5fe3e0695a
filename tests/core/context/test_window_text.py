"""What the text of a window says besides facts: goals without answers, evidence, and each fact
once.
"""

from __future__ import annotations

import ast
from importlib.resources import files

import pytest

from kbcore.context.capacity import MAX_INHERITED
from kbcore.context.proofs.proofs import MAX_ELSEWHERE
from kbcore.context.text.draft import MAX_CITED_PREMISES
from kbcore.context.text.drafts import MAX_NAMED
from kbcore.embed import KnowledgeBase, open_kb
from kbcore.errors import InvalidInput
from kbtypes.windows import ADAPTER_PREDICATES


@pytest.fixture
def kb():
    with open_kb() as opened:
        yield opened


def lines(kb: KnowledgeBase, *goals: str, **options) -> list[str]:
    window = kb.context(goals=list(goals), format="natural", include_rules=False, **options)
    return window.text.splitlines()


def unmet(kb: KnowledgeBase, goal: str) -> list[list[str]]:
    window = kb.context(goals=[goal], explain=True)
    return [miss["missing"] for miss in window.cut["goals"][0]["partial"]]


def test_a_condition_with_not_that_is_not_met_is_named(kb):
    kb.teach("free(?x) :- person(?x), not busy(?x), not ill(?x). busy(?x) :- meeting(?x).")
    kb.tell("person(ann). meeting(ann). person(bob). ill(bob).")
    assert unmet(kb, "free(ann)") == [["not busy(ann)"]]
    assert unmet(kb, "free(bob)") == [["not ill(bob)"]]
    assert unmet(kb, "free(cy)") == [["person(cy)"]]
    assert lines(kb, "free(ann)") == [
        "No answer is known, because ann · busy.",
        "ann · person",
    ]


def test_each_rule_of_a_goal_has_its_conditions(kb):
    kb.teach("free(?x) :- person(?x), rested(?x). free(?x) :- robot(?x), charged(?x).")
    kb.tell("person(ann). robot(ann).")
    text = kb.context(goals=["free(ann)"]).text
    assert "% No answer is known. Unmet conditions: rested(ann); or charged(ann)" in text


def test_a_window_without_facts_has_no_text(kb):
    kb.tell("other(a)")
    assert lines(kb, "likes(ann, ?x)", "not other(a)") == []


def test_a_denied_goal_and_contradicted_answers(kb):
    kb.tell("p(a). q(a) [confidence=0.1]. ~q(a) [confidence=0.9]. r(a).")
    kb.prioritize("r", ["a"], priority=1.0)
    shown = lines(kb, "r(a)", "not p(a)", "q(a)")
    assert shown[shown.index("Goal: it is not known that a · p") + 1] == "This does not hold."
    assert shown[shown.index("Goal: a · q") + 1] == "One contradicted answer is left out."


def test_answers_that_do_not_fit_are_mentioned(kb):
    kb.tell_many("likes", [("ann", f"thing{n}") for n in range(7)])
    shown = lines(kb, "likes(ann, ?x)", max_facts=5)
    assert "More answers are left out." in shown
    assert "More answers are left out." not in lines(kb, "likes(ann, ?x)", max_facts=7)
    kb.teach("likes(?x, ?y) :- owns(?x, ?y).")
    assert "There may be more answers." in lines(kb, "likes(ann, ?x)", max_facts=7)
    assert "There may be more answers." not in lines(kb, "likes(ann, ?x)", max_facts=8)


def test_answers_listed_for_another_goal_are_named(kb):
    kb.tell_many("likes", [("ann", f"thing{n}") for n in range(MAX_ELSEWHERE + 5)])
    text = kb.context(goals=["likes(ann, ?x)", "likes(?y, ?x)"]).text
    assert text.count("likes(ann, thing7)") == 2
    (also,) = (line for line in text.splitlines() if "Also, listed above" in line)
    assert also.endswith(", and 5 more")


def test_a_premise_with_notes_keeps_its_line(kb):
    kb.teach("happy(?x) :- likes(?x, ?y), has(?x, ?y).")
    kb.tell("likes(ann, tea) [confidence=0.5]. has(ann, tea).")
    assert lines(kb, "happy(ann)") == [
        "ann · happy (confidence 0.5) because ann likes tea and ann has tea",
        "ann likes tea (confidence 0.5).",
    ]


def test_a_conclusion_has_the_evidence_of_its_facts(kb):
    kb.teach("total(?x, count(?y)) :- likes(?x, ?y).")
    for n in range(30):
        id = kb.add_episode("ann", f"I like thing {n}.").episode.id
        kb.tell("likes", ["ann", f"thing{n}"], evidence=[id])
    window = kb.context(goals=["total(ann, ?n)"], citations=True, format="natural")
    total = window.entries[0]
    assert total.predicate == "total"
    assert len(total.evidence) == len(set(total.evidence)) == MAX_INHERITED
    assert len(total.citations) == MAX_CITED_PREMISES
    cited = {n for entry in window.entries for n in entry.citations}
    assert cited == {source["number"] for source in window.sources}
    # The facts whose sources the conclusion does not cite keep their lines.
    uncited = [
        entry for entry in window.entries if not set(entry.citations) <= set(total.citations)
    ]
    assert len(uncited) == 30 - MAX_CITED_PREMISES
    assert all(f"likes {entry.args[1]} [" in window.text for entry in uncited)
    reason, *others = window.text.splitlines()
    assert reason.count("likes thing") == MAX_NAMED
    assert "\n".join(others).count("likes thing") == len(uncited)


def test_a_reason_names_a_limited_number_of_premises(kb):
    kb.teach("total(?x, count(?y)) :- likes(?x, ?y).")
    kb.tell_many("likes", [("ann", f"thing{n}") for n in range(MAX_NAMED + 5)])
    for text_format, lines in (("facts", MAX_NAMED + 5), ("natural", 5)):
        window = kb.context(goals=["total(ann, ?n)"], format=text_format, include_rules=False)
        (reason,) = (line for line in window.text.splitlines() if "because" in line)
        assert reason.endswith(" and 5 more")
        assert window.text.replace(reason, "").count("thing") == lines


def test_a_conclusion_whose_facts_have_no_evidence_has_none(kb):
    kb.teach("happy(?x) :- likes(?x, ?y).")
    kb.tell("likes(ann, tea)")
    (conclusion, _) = kb.context(goals=["happy(ann)"]).entries
    assert conclusion.evidence == ()


def test_an_explicit_negative_differs_from_an_absence(kb):
    kb.teach("free(?x) :- person(?x), ~is_busy(?x), not is_ill(?x).")
    kb.tell("person(ann). ~is_busy(ann).")
    window = kb.context(goals=["free(ann)"], include_rules=False)
    assert window.entries[0].provenance.premises == (
        "person(ann)",
        "not is_busy(ann)",
        "not is_ill(ann)",
    )
    assert window.text.splitlines() == [
        "% Goal: free(ann)",
        "free(ann).  % because #1, #2, not is_ill(ann)",
        "person(ann).  % #1",
        "~is_busy(ann).  % #2",
    ]


def test_fillers_have_a_heading_of_their_own(kb):
    kb.tell("likes(ann, tea). color(sky, blue).")
    asked = {"query": "ann", "fill": "salience"}
    assert kb.context(**asked).text.splitlines() == [
        "likes(ann, tea).",
        "% Other facts",
        "color(sky, blue).",
    ]
    natural = kb.context(**asked, format="natural").text
    assert natural.splitlines() == ["ann likes tea.", "Other facts:", "sky · color: blue"]
    alone = kb.context().text.splitlines()
    assert sorted(alone) == ["color(sky, blue).", "likes(ann, tea)."]


def test_a_text_that_is_in_the_window_has_no_footnote(kb):
    id = kb.add_episode("ann", "I like tea.", at="2026-02-10T10:00:00Z").episode.id
    kb.tell("likes(ann, tea)", evidence=[id])
    kb.tell("said", ["ann", "I like tea.", "2026-02-10T10:00:00Z"], evidence=[id])
    for query in ("does ann like tea?", "who said what?"):
        window = kb.context(query=query, citations="text", format="natural", fill="salience")
        assert sorted(line for line in window.text.splitlines() if "facts" not in line) == [
            "10 Feb 2026, ann: I like tea. [1]",
            "ann likes tea [1].",
        ]
    assert kb.context(goals="likes(ann, ?x)", citations="text").text.splitlines() == [
        "% Goal: likes(ann, ?x)",
        "likes(ann, tea).  % [1]",
        "% [1] 10 Feb 2026, ann: I like tea.",
    ]


def test_changes_keep_the_times_of_the_session(kb):
    kb.tell("likes(ann, tea)", valid_until="2150-01-01T10:30:00Z")
    kb.context(session="s", format="natural", times="minute")
    kb.tell("likes(ann, rum)", valid_until="2150-01-01T11:45:00Z")
    assert kb.context_diff("s").text == "New: ann likes rum (until 1 Jan 2150 11:45)."
    kb.tell("likes(ann, gin)", valid_until="2150-01-01T11:45:00Z")
    assert kb.context_diff("s", times="day").text == "New: ann likes gin (until 1 Jan 2150)."


@pytest.mark.parametrize(
    ("option", "value"), [("times", "hour"), ("citations", "all"), ("citations", 1)]
)
def test_unknown_values_of_options_are_errors(kb, option, value):
    with pytest.raises(InvalidInput, match=f"{option}: must be"):
        kb.context(**{option: value})


def test_data_of_adapters_is_left_out_unless_it_is_named(kb):
    for name in ADAPTER_PREDICATES:
        kb.tell(name, ["key", "some tea"])
    kb.tell("likes(ann, tea)")
    kb.teach("stored(?x) :- langgraph_item(?_k, ?x).")
    for options in (
        {},
        {"query": "tea"},
        {"query": "tea", "min_coverage": 0.1, "fill": "salience"},
    ):
        window = kb.context(**options)
        assert [entry.predicate for entry in window.entries] == ["likes"]
        assert window.available == 1
    (conclusion,) = kb.context(goals="stored(?x)").entries
    assert conclusion.predicate == "stored"
    for named in (
        {"predicates": ["agent_item"]},
        {"goals": "agent_item(?x, ?y)"},
        {"buckets": {"items": ["agent_item"]}, "fill": "none", "query": "tea"},
    ):
        assert "agent_item" in [entry.predicate for entry in kb.context(**named).entries]


def test_the_predicates_of_the_adapters_are_known():
    folder = files("kbcore_client") / "adapters"
    found = set()
    for module in ("anthropic_memory.py", "langgraph.py", "openai_agents.py"):
        for statement in ast.parse((folder / module).read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
                found.update(ast.literal_eval(statement.value))
    assert found - {"said"} == ADAPTER_PREDICATES
