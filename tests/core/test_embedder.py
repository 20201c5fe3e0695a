"""Vector search with a test embedder that hashes words, and failures of an embedder."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest
from support.embedders import Hashing, Plugin
from support.runtimes import BASE
from support.runtimes import runtime as plain_runtime

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.context.relevance.vectors import NEAR, VECTOR_WEIGHT, fact_text
from kbcore.context.request import WindowRequest
from kbcore.errors import ConfigError
from kbcore.node.opening import open_runtime
from kbcore.plug.conformance.embedder import EmbedderConformance
from kbcore.search.embedder import MAX_FAILURES, PAUSE_SECONDS
from kbcore.state.facts import Fact


class TestHashing(EmbedderConformance):
    def make_embedder(self):
        return Hashing()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def embedder():
    return Hashing()


@pytest.fixture
def kb(clock, embedder):
    config = replace(BASE, storage_backend="memory", embedder="hashing")
    with open_runtime(config, plugins=[Plugin(embedder)], clock=clock) as node:
        node.vectors.close()  # no thread: windows give facts their vectors
        yield node.knowledge_base()


def tell(kb):
    kb.assert_facts(
        [
            Fact("is", ("bob", "physician")),
            Fact("is", ("ann", "plumber")),
            Fact("likes", ("cid", "tea")),
        ]
    )


def first(kb, query, **more):
    return [entry.text for entry in kb.context(WindowRequest(query=query, **more)).entries]


def outcomes(kb):
    text = (kb._services.metrics.expose() or b"").decode()
    lines = [line for line in text.splitlines() if line.startswith("svc_embedder_texts_total{")]
    counts = {line.split('"')[1]: float(line.split()[-1]) for line in lines}
    return {outcome: count for outcome, count in counts.items() if count}


def test_a_fact_that_means_it_comes_first(kb, clock):
    tell(kb)
    clock.advance(60)
    kb.assert_facts([Fact("likes", ("newest", "fact"))])
    assert first(kb, "doctor bob") == ["is(bob, physician)", *first(kb, "doctor bob")[1:]]
    (entry, *_) = kb.context(WindowRequest(query="doctor", explain=True)).entries
    assert entry.text == "is(bob, physician)"
    assert entry.why["lexical"] == pytest.approx(VECTOR_WEIGHT / 3**0.5, abs=1e-3)


def test_text_and_vector_scores_combine_as_documented(kb):
    tell(kb)
    plain = Hashing()
    with plain_runtime(clock=ManualClock()) as node:
        other = node.knowledge_base()
        tell(other)
        words = {
            e.text: e.why["lexical"]
            for e in other.context(WindowRequest(query="bob tea", explain=True)).entries
        }
    asked = plain.vector("bob tea")
    for entry in kb.context(WindowRequest(query="bob tea", explain=True)).entries:
        vector = plain.vector(fact_text(entry.predicate, entry.args, entry.negated))
        product = sum(a * b for a, b in zip(asked, vector, strict=True))
        cosine = product / (sum(a * a for a in asked) * sum(a * a for a in vector)) ** 0.5
        by_words = words[entry.text] / max(words.values())
        match = (1 - VECTOR_WEIGHT) * by_words + VECTOR_WEIGHT * (
            max(cosine, 0.0) if by_words or cosine >= NEAR else 0.0
        )
        assert entry.why["lexical"] == pytest.approx(match, abs=1e-3)


def test_a_fact_near_in_meaning_is_enough_for_an_uncovered_question(kb):
    tell(kb)
    asked = WindowRequest(query="who is a doctor", explain=True, max_facts=1)
    (nearest,) = kb.context(asked).entries
    cosine = nearest.why["lexical"] / VECTOR_WEIGHT
    assert cosine > NEAR
    assert first(kb, "who is a doctor", min_coverage=cosine - 0.01, max_facts=1)
    assert first(kb, "who is a doctor", min_coverage=cosine + 0.01) == []


def test_a_text_is_embedded_once(kb, embedder):
    tell(kb)
    first(kb, "doctor")
    assert sorted(embedder.seen[0]) == [
        "ann is plumber",
        "bob is physician",
        "cid likes tea",
        "doctor",
    ]
    kb.assert_facts([Fact("is", ("dan", "baker"), positive=False)])
    first(kb, "doctor")
    assert embedder.seen[1:] == [["dan not is baker"]]
    first(kb, "physician")
    assert embedder.seen[2:] == [["physician"]]
    kb.context(WindowRequest())
    assert len(embedder.seen) == 3


def test_a_sentence_is_embedded_without_the_names_beside_it():
    text = "I moved to Berlin last week"
    assert fact_text("said", ("mia", text, "2026-11-20"), False) == text
    assert fact_text("said", ("mia", text, "2026-11-20"), True) == f"not {text}"
    assert fact_text("lives_in", ("mia", "Berlin"), False) == "mia lives in Berlin"


def test_no_lock_is_held_during_embedding(kb, embedder):
    tell(kb)

    def write():
        writer = threading.Thread(target=lambda: kb.assert_facts([Fact("told", ("concurrently",))]))
        writer.start()
        writer.join(10)
        assert not writer.is_alive()

    embedder.watch = write
    assert "told(concurrently)" in first(kb, "doctor", fill="salience")
    assert outcomes(kb) == {"ok": 4}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: 1 / 0,
        lambda found: found[1:],
        lambda found: [vector[1:] for vector in found],
        lambda found: [[float("nan")] * 64 for _ in found],
        lambda found: [[1e300] * 64 for _ in found],
        lambda found: [["x"] * 64 for _ in found],
        lambda found: None,
    ],
)
def test_a_failing_embedder_falls_back_to_text_search(kb, embedder, caplog, spoil):
    tell(kb)
    embedder.spoil = spoil
    with caplog.at_level(logging.WARNING, "kbcore.embedder"):
        assert first(kb, "tea")[0] == "likes(cid, tea)"
    assert "hashing" in caplog.text
    assert outcomes(kb) == {"failed": 4}


def test_an_embedder_that_keeps_failing_is_paused(kb, embedder, clock):
    tell(kb)
    embedder.spoil = lambda found: 1 / 0
    for at in range(MAX_FAILURES + 5):
        first(kb, f"text {at}")
    assert len(embedder.seen) == MAX_FAILURES
    clock.advance(int(PAUSE_SECONDS) + 1)
    embedder.spoil = None
    assert first(kb, "doctor bob")[0] == "is(bob, physician)"


def test_a_diff_asks_again_and_a_transaction_sees_its_own_facts(kb):
    tell(kb)
    kb.context(WindowRequest(max_facts=1, query="doctor", session="s"))
    kb.retract_fact("is", ("bob", "physician"))
    kb.assert_facts([Fact("is", ("eve", "physician"))])
    found = kb.context_diff("s", {})
    assert [entry.text for entry in found.added] == ["is(eve, physician)"]
    assert kb.context_diff("unheard", {}).refresh
    node, id = kb._services, kb._services.begin()
    with node.in_transaction("default", "default", id) as inside:
        inside.assert_facts([Fact("is", ("fay", "doctor"))])
    with node.in_transaction("default", "default", id, writes=False) as inside:
        assert first(inside, "fay physician")[0] == "is(fay, doctor)"


def test_an_embedder_without_a_dimension_is_refused(embedder):
    embedder.dimension = 0
    with pytest.raises(ConfigError, match="dimension"):
        open_runtime(
            replace(BASE, storage_backend="memory", embedder="hashing"), plugins=[Plugin(embedder)]
        )


def test_an_unknown_embedder_is_refused():
    with pytest.raises(ConfigError, match="EMBEDDER='mine'"), plain_runtime(embedder="mine"):
        pass
    assert Config().embedder == "none"
