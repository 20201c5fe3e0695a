"""Word indexes that are made in pieces: what is found before they are complete."""

from __future__ import annotations

import re
import threading
from array import array

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.indexer import WordIndexes
from kbcore.state import partition as partitions
from kbcore.state.episodes.episodes import _Order
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable

COUNT = 200


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """A question indexes one piece of ten facts; more than 20 new facts are a backlog."""
    monkeypatch.setattr("kbcore.search.bm25.FILL_SECONDS", 0)
    monkeypatch.setattr("kbcore.search.bm25.FILL_WORDS", 0)
    monkeypatch.setattr("kbcore.search.bm25.PIECES_AT_ONCE", 1)
    monkeypatch.setattr("kbcore.search.postings.BATCH_ROWS", 20)
    monkeypatch.setattr("kbcore.search.postings.WORDS_MERGED", 5)
    monkeypatch.setattr("kbcore.search.indexer.MIN_FACTS", 50)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def kb(clock):
    with runtime(clock=clock) as node:
        node.word_indexes.close()  # no thread: tests do its work
        yield node.knowledge_base()


def tell(kb, first=0, count=COUNT, predicate="says", scope=None):
    kb.assert_facts(
        [
            Fact(predicate, (f"ann{at % 7}", f"tea n_{at} cup cup"), scope=scope)
            for at in range(first, first + count)
        ]
    )


def window(kb, query="tea", max_facts=500, **options):
    return kb.context(WindowRequest(max_facts, query=query, fill="none", **options))


def numbers(partial):
    return {
        int(number) for entry in partial.entries for number in re.findall(r"n_(\d+)", entry.text)
    }


def finish(kb):
    pieces = 0
    while kb._services.word_indexes.work():
        pieces += 1
    return pieces


def ranked(kb, text="tea", k=1000, index=None, scope=None):
    """The rows of the best matches in order, with their scores."""
    with kb._reads(None) as (tenant, budget):
        partition = tenant.partition(scope)
        hits = (index or LexicalIndex.of)(tenant).search(partition, text, k, budget)
        return [
            (
                stored.schema.predicate,
                *tenant.engine.texts(stored.relation.rows(array("I", [row]))),
                score,
            )
            for stored, row, score in hits
        ]


def fresh_index(tenant):
    for partition in tenant.partitions():
        for stored in partition.relations():
            stored.flips = None
    return LexicalIndex(tenant)


def assert_complete(kb, scope=None):
    """The index finds what a new one finds, in the same order, and its lists ascend."""
    tenant = kb._read_tenant()
    for shelf in LexicalIndex.of(tenant)._shelves.values():
        assert shelf.postings.is_merged
        for places in shelf.postings._lists.values():
            assert list(places) == sorted(places)
    for text in ("tea", "cup n_77", "n_150 tea ann3", "drinks milk"):
        for k in (7, 1000):
            partial = ranked(kb, text, k, scope=scope)
            index = tenant.attached.pop(LexicalIndex)
            assert partial == ranked(kb, text, k, fresh_index, scope=scope), (text, k)
            index.close()


def test_the_newest_facts_are_found_first(kb):
    tell(kb)
    first = window(kb)
    assert first.index_progress == 0.05
    assert numbers(first) == set(range(190, 200))
    second = window(kb)
    assert (second.index_progress, numbers(second)) == (0.1, set(range(180, 200)))
    assert numbers(window(kb, "n_3")) == set()
    assert finish(kb) > 10
    whole = window(kb)
    assert whole.index_progress is None
    assert numbers(whole) == set(range(200))
    assert numbers(window(kb, "n_3")) == {3}
    assert_complete(kb)


def test_the_newest_facts_of_several_predicates_are_found_first(kb, clock):
    for first in range(0, 120, 20):
        clock.advance(1)
        tell(kb, first, 20, "zips" if first % 40 else "asks")
    assert numbers(window(kb)) | numbers(window(kb)) == set(range(100, 120))
    assert numbers(window(kb)) == set(range(90, 120))
    finish(kb)
    assert_complete(kb)


def test_a_few_new_facts_are_found_while_the_index_is_made(kb):
    tell(kb)
    window(kb)
    tell(kb, 500, 5)
    partial = window(kb)
    assert partial.index_progress < 1
    assert numbers(partial) >= set(range(500, 505))
    tell(kb, 600, 50)  # many more
    finish(kb)
    assert numbers(window(kb)) == {*range(200), *range(500, 505), *range(600, 650)}
    assert_complete(kb)


def test_a_bulk_load_after_the_index_was_complete(kb):
    tell(kb)
    window(kb)
    finish(kb)
    tell(kb, 200, 100)
    assert numbers(window(kb)) == {*range(200), *range(290, 300)}
    finish(kb)
    assert_complete(kb)


def test_facts_that_change_while_the_index_is_made(kb, clock):
    tell(kb, 0, 100)
    kb.assert_facts([Fact("says", ("bob", f"tea n_{at}"), ttl=5) for at in range(100, 200)])
    kb.retract_fact("says", ("ann1", "tea n_1 cup cup"))  # before it is first read
    for turn in range(8):
        window(kb)
        at = 3 + 25 * turn % 90
        kb.retract_fact("says", (f"ann{at % 7}", f"tea n_{at} cup cup"))
        if turn == 3:
            clock.advance(6)
            assert not numbers(window(kb)) & set(range(100, 200))
        if turn == 5:
            tell(kb, at, 1)
    finish(kb)
    left = numbers(window(kb))
    assert left < set(range(100))
    assert 1 not in left
    assert_complete(kb)


def test_a_compaction_while_the_index_is_made(kb, monkeypatch):
    monkeypatch.setattr("kbcore.search.postings.MIN_UNUSED_PLACES", 10_000)
    tell(kb, 0, 2000)
    tell(kb, 0, 30, "asks")
    for _ in range(3):
        window(kb)
    kb.retract_pattern("says", (Variable("who"), Variable("what")))
    tell(kb, 5000, 10)
    window(kb)
    finish(kb)
    assert numbers(window(kb)) == {*range(30), *range(5000, 5010)}
    assert_complete(kb)


def test_scopes_that_are_forked_and_dropped_while_their_index_is_made(kb):
    tell(kb)
    window(kb)
    kb.fork_scope(None, "draft")
    draft = window(kb, scope="draft")
    assert draft.index_progress < 1
    assert len(numbers(draft)) == 10
    both = window(kb, scope="*")
    assert both.index_progress < 1
    kb.drop_scope("draft")
    finish(kb)
    assert not kb._services.word_indexes.work()
    assert_complete(kb)
    kb.fork_scope(None, "draft")
    tell(kb, 300, 1, scope="draft")
    window(kb, scope="draft")
    finish(kb)
    assert numbers(window(kb, scope="draft")) == {*range(200), 300}
    assert_complete(kb, "draft")


def test_a_tenant_that_is_emptied_while_its_index_is_made(kb):
    tell(kb)
    window(kb)
    kb._services.admin().nuke_tenant("default", "default")
    assert not kb._services.word_indexes.work()
    tell(kb, 7, 1)
    assert numbers(window(kb)) == {7}


def test_facts_about_a_person_while_the_index_is_made(kb):
    tell(kb, 0, 60)
    about = {at for at in range(200) if at % 7 == 3}

    def found():
        with kb._reads(None) as (tenant, budget):
            index, symbol = LexicalIndex.of(tenant), tenant.engine.find("ann3")
            index.fill(tenant.partitions(), budget)
            hits = index.query(tenant.partition(None), "tea", budget).best(500, symbol=symbol)
            texts = [tenant.engine.texts(s.relation.rows(array("I", [row]))) for s, row, _ in hits]
        return {int(text.split()[1][2:]) for _, text in texts}

    assert found() <= about
    finish(kb)
    tell(kb, 60, 140)
    for _ in range(20):
        assert found() <= about
    assert found() == about


def test_a_transaction_has_its_facts_while_the_index_is_made(kb):
    tell(kb)
    window(kb)
    node, id = kb._services, kb._services.begin()
    with node.in_transaction("default", "default", id) as inside:
        inside.assert_facts([Fact("drinks", ("ann", "tea n_900"))])
        tell(inside, 901, 1)
    with node.in_transaction("default", "default", id, writes=False) as inside:
        partial = window(inside)
        assert partial.index_progress < 1
        assert {900, 901} <= numbers(partial)
        while window(inside).index_progress is not None:
            pass
        assert numbers(window(inside)) == {*range(200), 900, 901}
    with node.in_transaction("default", "default", id) as inside:
        inside.commit()
    finish(kb)
    assert_complete(kb)


def test_an_incomplete_window_is_not_kept(kb):
    tell(kb)
    assert window(kb).index_progress < window(kb).index_progress
    finish(kb)
    assert window(kb).index_progress is None


def test_nothing_is_said_to_be_unknown_while_facts_are_not_indexed(kb):
    tell(kb)
    missing = window(kb, "n_3", min_coverage=0.9, format="natural")
    assert "Nothing relevant" not in missing.text
    finish(kb)
    assert numbers(window(kb, "n_3", min_coverage=0.9)) == {3}
    unknown = window(kb, "zebra", min_coverage=0.9, format="natural")
    assert "Nothing relevant" in unknown.text


def test_a_request_with_little_time_left_is_answered(kb):
    tell(kb)
    with kb._reads(None) as (tenant, budget):
        budget.deadline = budget.clock.monotonic()
        assert LexicalIndex.of(tenant).fill(tenant.partitions(), budget) == 0.05


def test_changes_of_a_session_say_that_facts_are_missing(kb):
    tell(kb)
    window(kb, session="s1")
    assert 0 < kb.context_diff("s1", {"max_facts": 30}).index_progress < 1
    finish(kb)
    assert kb.context_diff("s1", {"max_facts": 20}).index_progress is None


def test_the_readiness_and_the_metrics_say_how_far_the_index_is(kb):
    node = kb._services
    assert node.health()["checks"]["search"] == {
        "status": "pass",
        "message": "every word index is complete",
    }
    tell(kb)
    window(kb)
    ready = node.health()
    assert ready["status"] == "healthy"
    assert ready["checks"]["search"]["indexProgress"] == 0.05
    assert "svc_word_index_waiting 190.0" in (node.metrics.expose() or b"").decode()
    finish(kb)
    assert "indexProgress" not in node.health()["checks"]["search"]
    text = (node.metrics.expose() or b"").decode()
    assert "svc_word_index_waiting 0.0" in text
    assert "svc_word_index_facts 200.0" in text


def test_after_a_start_the_texts_of_episodes_are_indexed_without_a_question(tmp_path, monkeypatch):
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        tell(kb)
        tell(node.knowledge_base(tenant="other"))
        kb.add_episode("ann", "I like tea n_999")
    monkeypatch.setattr(WordIndexes, "_start_thread", lambda self: None)
    with runtime(tmp_path) as node:
        assert node.health()["checks"]["search"]["indexProgress"] == 0
        kb = node.knowledge_base()
        finish(kb)
        assert window(kb).index_progress is None
        assert LexicalIndex not in node.find_tenant("default", "other").attached._of


def test_after_a_start_the_first_question_reads_no_episodes_that_it_does_not_need(
    tmp_path, monkeypatch
):
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        for number in range(60):
            episode = kb.add_episode("ann", f"tea n_{number}", session="s").episode.id
            evidence = (Evidence(episode),)
            kb.assert_facts([Fact("says", ("ann", f"tea n_{number}"), evidence=evidence)])
    monkeypatch.setattr(WordIndexes, "_start_thread", lambda self: None)
    with runtime(tmp_path) as node:
        kb = node.knowledge_base()
        finish(kb)
        for owner, name in ((_Order, "add"), (partitions._SupportedFacts, "move")):
            monkeypatch.setattr(owner, name, lambda *_: pytest.fail("read by the question"))
        assert numbers(window(kb, "n_30")) == {28, 29, 30, 31, 32}


def test_the_thread_completes_the_index_that_a_question_began(monkeypatch):
    complete, fill_more = threading.Event(), LexicalIndex.fill_more

    def filled(self, home, yield_now):
        more = fill_more(self, home, yield_now)
        if not more:
            complete.set()
        return more

    monkeypatch.setattr(LexicalIndex, "fill_more", filled)
    with runtime() as node:
        kb = node.knowledge_base()
        tell(kb)
        assert window(kb).index_progress is not None
        assert complete.wait(30)
        assert window(kb).index_progress is None
