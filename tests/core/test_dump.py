"""Dumps: the text of a knowledge base, which loads to an equal one."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

import kbcore
from kbcore.errors import InvalidInput, LoadError
from kbcore.language.dump import DUMP_FORMATS, dump_lines, fact_entry, listed_rule, rule_entry
from kbcore.language.files import read_text
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_rule

FACTS = """
parent(ann, bob). parent(bob, "Zoë K."). ~parent(ann, cy). raining. ~snowing.
'is member of'(ann, "chess club", "007", 7, -1.5, "", "?x", "a\\"b\\\\c\\nd").
seen(cat) [confidence=0.25, scope=draft, metadata='{"source": "it\\'s a \\\\"chat\\\\"", "n": [1, null, {"x": true}]}'].
licence(dora) [validFrom="2025-01-01T00:00:00Z", validUntil="2999-01-01T00:00:00Z"].
later(eve) [validFrom="2998-01-01T00:00:00Z"].
over(fay) [validFrom="2000-01-01T00:00:00Z", validUntil="2001-01-01T00:00:00Z"].
beat(gus) [ttl=600000].
"""

RULES = """
grand(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
@adult: adult(?x) :- age(?x, ?n), ?n >= 18, not ~adult(?x) [confidence=0.5, scope=draft].
'an odd'(?x) :- 'contains'(?x, "?y"), ?z = 1 + 2, '<'(?x, ?z), matches(?x, "^a?b").
total(?x, count(*), sum(?y)) :- parent(?x, ?y).
"""


def stored(kb: kbcore.EmbeddedKB) -> tuple[Any, Any]:
    """The facts and rules, without the times that count from the assertion."""
    facts, rules, *_ = kb.kb.contents()
    rows = []
    for row in facts:
        created = row.pop("createdAt")
        if row["validFrom"] == created:
            row["validFrom"] = "created"
        if row["ttl"]:
            row["validUntil"] = "ttl"
        rows.append(row)
    return rows, rules


def loaded(text: str, kind: str, kb: kbcore.EmbeddedKB) -> None:
    for batch in read_text(io.StringIO(text, newline=""), f".{kind}"):
        kb.kb.assert_rules(batch.rules, batch.facts)


@pytest.mark.parametrize("kind", DUMP_FORMATS)
def test_a_dump_loads_to_an_equal_base(kind):
    with kbcore.open_kb() as kb, kbcore.open_kb() as copy:
        loaded(FACTS + RULES, "kb", kb)
        facts, rules, *_ = kb.kb.contents()
        text = "".join(f"{line}\n" for line in dump_lines(facts, [r.rule for r in rules], kind))
        assert "over" not in text
        assert "later" in text
        loaded(text, kind, copy)
        assert stored(copy) == stored(kb)
        assert copy.ask("grand(ann, ?z)") == [("ann", "Zoë K.")]
        assert copy.kb.scopes() == ["draft"]


def test_the_text_of_a_dump():
    with kbcore.open_kb() as kb:
        kb.tell("p", ["a", 1])
        kb.tell("p", ["b", 2], negated=True, scope="s", confidence=0.5, metadata={"by": "ann"})
        kb.teach("@near: q(?x) :- p(?x, ?y), ?y > 1.", scope="s")
        facts, rules, *_ = kb.kb.contents()
        rows = list(facts)
        taught = [known.rule for known in rules]
    assert list(dump_lines(rows, taught)) == [
        "p(a, 1).",
        """~p(b, 2) [confidence=0.5, scope=s, metadata='{"by": "ann"}'].""",
        "@near: q(?x) :- p(?x, ?y), ?y > 1 [scope=s].",
    ]
    entries = [json.loads(line) for line in dump_lines(rows, taught, "jsonl")]
    assert entries[:2] == [
        {"predicate": "p", "args": ["a", "1"]},
        {
            "predicate": "p",
            "args": ["b", "2"],
            "negated": True,
            "scope": "s",
            "confidence": 0.5,
            "metadata": {"by": "ann"},
        },
    ]
    assert (entries[2]["name"], entries[2]["scope"]) == ("near", "s")


def test_what_json_cannot_express_is_written_as_text():
    row = {"predicate": "p", "args": ["?x"], "negated": False, "scope": None, "metadata": {}}
    row |= dict.fromkeys(("createdAt", "validFrom", "validUntil", "ttl", "confidence"))
    assert fact_entry(row) == {"text": 'p("?x").'}
    assert rule_entry(parse_rule("p(?x) :- q(?x), ?x > 1 + 2")) == {
        "text": "p(?x) :- q(?x), ?x > 1 + 2."
    }


def test_a_dump_has_one_of_two_formats():
    with pytest.raises(InvalidInput, match="format: must be one of kb, jsonl"):
        list(dump_lines([], [], "csv"))


def test_a_listed_rule_has_a_name_only_if_its_author_gave_one():
    with kbcore.open_kb() as kb:
        kb.teach("p(?x) :- q(?x). @named: p(?x) :- r(?x) [confidence=0.5].")
        kb.teach("p(?x) :- t(?x).", scope="s")
        for known in kb.rules():
            assert listed_rule(known.id, known.text, known.scope) == known.rule


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": "p(a). q(b)."}', "text: must be one fact, rule or declaration"),
        ('{"text": "?- p(a)."}', "text: must be one fact, rule or declaration"),
        ('{"text": "p(a).", "scope": "s"}', "text: is a text and the only member"),
        ('{"text": 1}', "text: is a text and the only member"),
        ('{"predicate": "p", "args": [], "ttl": "1 hour"}', "ttl: must be a positive number"),
        ('{"predicate": "p", "args": [], "ttl": true}', "ttl: must be a positive number"),
        ('{"predicate": "p", "args": [], "confidence": 2}', "confidence: must be a number"),
        ('{"predicate": "p", "args": [], "metadata": [1]}', "metadata: must be an object"),
        ('{"predicate": "p", "args": [], "scope": "a b"}', "scope: 'a b' is not a name"),
        ('{"predicate": "p", "args": [], "scope": 1}', "scope: 1 is not a name"),
        ('{"predicate": "p", "args": [], "validFrom": "now"}', "validFrom: must be epoch"),
    ],
)
def test_a_json_line_that_cannot_be_stored_is_named(line, problem):
    text = '{"predicate": "p", "args": ["a"]}\n' + line + "\n"
    with pytest.raises(LoadError, match="line 2: ") as caught:
        list(read_text(io.StringIO(text), ".jsonl"))
    assert problem in caught.value.message


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
predicates = words.filter(
    lambda text: text and not text.startswith("?") and not {"(", ")"} & {*text}
)
instants = st.none() | st.integers(4_000_000_000_000, 8_640_000_000_000_000)
facts = st.builds(
    Fact,
    predicates,
    st.lists(words, max_size=3).map(tuple),
    st.booleans(),
    st.sampled_from([None, "a", "b:c@d"]),
    st.none() | st.integers(10**9, 10**12),
    st.none() | st.integers(0, 10**12),
    instants,
    st.none() | st.floats(0, 1),
    st.dictionaries(words, st.none() | st.integers(-9, 9) | words | st.lists(words), max_size=2),
)


@given(st.lists(facts, max_size=6), st.sampled_from(DUMP_FORMATS))
@examples(60)
def test_any_facts_survive_a_dump(given_facts, kind):
    with kbcore.open_kb() as kb, kbcore.open_kb() as copy:
        kb.kb.assert_facts(given_facts)
        rows, _, *_ = kb.kb.contents()
        loaded("".join(f"{line}\n" for line in dump_lines(rows, [], kind)), kind, copy)
        assert stored(copy) == stored(kb)


def test_a_dump_is_that_of_the_moment_it_was_begun():
    with kbcore.open_kb() as kb:
        kb.tell_many("p", [(n,) for n in range(2500)])
        kb.tell("m", ["a"], metadata={"n": 1}, confidence=0.5)
        rows, rules, *_ = kb.kb.contents()
        kb.teach("q(?x) :- p(?x).")
        kb.tell("m", ["a"], metadata={"n": 2})
        kb.retract("p", ["?x"])
        rows = list(rows)
        assert rules == []
        assert len(rows) == 2501
        assert (rows[0]["metadata"], rows[0]["confidence"]) == ({"n": 1}, 0.5)
        assert [row["args"] for row in rows[1:4]] == [["0"], ["1"], ["2"]]


def test_a_dump_of_one_scope_has_its_own_facts_and_rules():
    with kbcore.open_kb() as kb:
        kb.execute("p(a). p(b) [scope=s]. q(?x) :- p(?x). r(?x) :- p(?x) [scope=s].")
        facts, rules, *_ = kb.kb.contents("s")
        assert [row["args"] for row in facts] == [["b"]]
        assert [known.rule.head.predicate for known in rules] == ["r"]
        facts, rules, *_ = kb.kb.contents(None)
        assert [row["args"] for row in facts] == [["a"]]
        assert [known.rule.head.predicate for known in rules] == ["q"]
