"""`matches_text` and `near` in rules: the search of facts as relations."""

from __future__ import annotations

import pytest

from kbcore import Config, hookimpl, open_kb
from kbcore.errors import ConfigError, InvalidInput, PredicateFailed, UnboundArgument

MEMORY = Config(storage_backend="memory")
NOTES = """
note(n1, "green tea from Uji"). note(n2, "black tea"). note(n3, "how to repair a bicycle").
question(q1, "where does green tea come from"). question(q2, "bicycle").
~note(n4, "tea").
"""


@pytest.fixture
def kb():
    with open_kb(config=MEMORY) as kb:
        kb.execute(NOTES)
        yield kb


def test_a_goal_finds_facts_by_their_words(kb):
    found = [(fact, float(score)) for _, fact, score in kb.ask("matches_text(tea, ?f, ?s)")]
    assert {fact for fact, _ in found} == {
        "note/n1/green tea from Uji",
        "note/n2/black tea",
        "question/q1/where does green tea come from",
        "not:note/n4/tea",
    }
    assert all(0 < score <= 1 for _, score in found)
    assert len(kb.ask('matches_text("zebra", ?f, ?s)')) == 0


def test_a_rule_joins_matches_with_facts(kb):
    kb.teach("""
        related(?q, ?n) :- question(?q, ?text), matches_text(?text, ?fact, ?score), ?score > 0.2,
            ?n = capture(?fact, "^note/([^/]+)/", 1).
        open(?q) :- question(?q, _), not related(?q, _).
    """)
    assert list(kb.ask("related(?q, ?n)")) == [("q1", "n1"), ("q2", "n3")]
    assert len(kb.ask("open(?q)")) == 0
    kb.tell("question", ["q3", "zebra"])
    assert list(kb.ask("open(?q)")) == [("q3",)]
    kb.retract("note", ["n3", "how to repair a bicycle"])
    assert list(kb.ask("related(?q, ?n)")) == [("q1", "n1")]


def test_each_partition_is_searched_by_itself(kb):
    kb.tell("note", ["d1", "white tea / 100%"], scope="draft")
    (answer,) = kb.ask("matches_text(tea, ?f, ?s)", scope="draft")
    assert answer[1] == "note/d1/white tea %2F 100%25@draft"


def test_a_transaction_searches_its_own_facts(kb):
    text = 'note(n9, "zebra"). ?- matches_text(zebra, ?f, _).'
    assert [row["args"][1] for row in kb.execute(text).answers] == ["note/n9/zebra"]


def test_a_search_needs_its_text(kb):
    with pytest.raises(UnboundArgument, match="argument 1"):
        kb.ask("matches_text(?text, ?fact, ?score)")
    with pytest.raises(InvalidInput, match="matches_text/3 is an external predicate"):
        kb.tell("matches_text", ["a", "b", "1"])


def test_a_proof_shows_the_match(kb):
    kb.teach("about_tea(?f) :- matches_text(tea, ?f, ?s), ?s > 0.")
    (proof, *_) = kb.prove("about_tea(?f)")
    assert proof.proof["step"]["bodyProofs"][0]["step"]["type"] == "external"


def test_searches_can_be_left_out():
    with open_kb(config=Config(storage_backend="memory", search_predicates=())) as kb:
        kb.tell("matches_text", ["a", "b", "1"])
        assert list(kb.ask("matches_text(?x, ?y, ?z)")) == [("a", "b", "1")]


class Letters:
    """An embedder whose vectors count letters; `fails` makes it raise."""

    name, dimension, fails = "letters", 26, False

    def embed(self, texts):
        if self.fails:
            raise OSError("no connection")
        return [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]

    @hookimpl
    def kb_embedders(self):
        return {"letters": lambda config: self}


NEAR = Config(
    storage_backend="memory", embedder="letters", search_predicates=("near", "matches_text")
)


def test_near_finds_facts_by_their_vectors():
    with open_kb(config=NEAR, plugins=[Letters()]) as kb:
        kb.execute(NOTES)
        kb.teach("like(?q, ?f) :- question(?q, ?text), near(?text, ?f, ?s), ?s > 0.9.")
        scored = {fact: float(score) for _, fact, score in kb.ask("near('a teb lack', ?f, ?s)")}
        assert max(scored, key=scored.get) == "note/n2/black tea"
        assert all(0.3 <= score <= 1.000001 for score in scored.values())
        assert ("q1", "question/q1/where does green tea come from") in kb.ask("like(?q, ?f)")


def test_an_embedder_that_fails_is_an_error():
    embedder = Letters()
    with open_kb(config=NEAR, plugins=[embedder]) as kb:
        kb.execute(NOTES)
        embedder.fails = True
        with pytest.raises(PredicateFailed, match="near/3"):
            kb.ask("near(tea, ?f, ?s)")
        assert kb.ask("matches_text(tea, ?f, ?s)")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"search_predicates": ("near",)}, "needs EMBEDDER"),
        ({"search_predicates": ("far",)}, "choose from: matches_text, near"),
    ],
)
def test_wrong_settings_prevent_the_start(settings, problem):
    with pytest.raises(ConfigError, match=problem):
        open_kb(config=Config(storage_backend="memory", **settings))
