"""Lexical scores after any writes equal the definition and a new index."""

from __future__ import annotations

import tempfile
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bm25
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import name_words, words
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable

PREDICATES = ["worksAt", "works_at", "likes", "the", "teaWith"]
WORDS = [
    "Ann",
    "tea",
    "green tea",
    "tea-tea-house",
    "works",
    "GreenHouse2",
    "of the",
    "bob",
    "green works for bob",
]
facts = st.tuples(st.sampled_from(PREDICATES), st.sampled_from(WORDS), st.sampled_from(WORDS))
texts = st.lists(st.sampled_from([*WORDS, *PREDICATES, "unheard"]), min_size=1, max_size=4).map(
    " ".join
)
scopes = st.sampled_from([None, "s"])
verbs = ["tell"] * 5 + [
    "brief",
    "brief",
    "retract",
    "retract",
    "pattern",
    "wait",
    "drop",
    "fork",
    "search",
    "restart",
]
steps = st.lists(st.tuples(st.sampled_from(verbs), facts, scopes, texts), max_size=25)


def found(kb, scope, text, k, index=None):
    """The facts that match, with their scores, and all facts with theirs."""
    with kb._reads(None) as (tenant, budget):
        partition = tenant.partition(scope)
        if partition is None:
            return [], {}
        index = index(tenant) if index else LexicalIndex.of(tenant)
        best = []
        for stored, place, score in index.search(partition, text, k, budget):
            ids = array("I", [place])
            (row,) = stored.rows(tenant.engine, stored.relation.rows(ids), ids)
            best.append(((row["predicate"], *row["args"]), score))
        scored = (
            dict(best)
            if k >= 1000
            else {
                (row["predicate"], *row["args"]): score
                for stored, place, score in index.search(partition, text, 1000, budget)
                for ids in (array("I", [place]),)
                for row in stored.rows(tenant.engine, stored.relation.rows(ids), ids)
            }
        )
        every = {}
        for stored in partition.relations():
            rows, ids = stored.relation.match([0] * stored.schema.arity)
            for row in stored.rows(tenant.engine, rows, ids):
                fact = (row["predicate"], *row["args"])
                every[fact] = scored.get(fact, 0.0)
        return best, every


def afresh(tenant):
    for partition in tenant.partitions():
        for stored in partition.relations():
            stored.flips = None
    return LexicalIndex(tenant)


def check(kb, scope, text):
    for k in (1, 3, 1000):
        best, every = found(kb, scope, text, k)
        assert every == pytest.approx(
            dict(zip(every, bm25.scores(list(every), text), strict=True)), abs=1e-12
        )
        ranked = sorted((score for score in every.values() if score), reverse=True)
        assert [score for _, score in best] == ranked[:k]
        assert all(every[fact] == score for fact, score in best)
        assert len(set(best)) == len(best)
    kept = kb._read_tenant().attached.pop(LexicalIndex)
    new = found(kb, scope, text, 1000, afresh)
    if kept is not None:
        kept.close()
    assert (best, every) == new


def check_coverage(kb, scope, text):
    """A text is covered up to the largest share that a fact has by definition."""
    _, every = found(kb, scope, text, 1)
    shares = bm25.coverages(list(every), text)
    with kb._reads(None) as (tenant, budget):
        partition = tenant.partition(scope)
        if partition is None:
            return
        index, most = LexicalIndex.of(tenant), max(shares, default=0.0)
        if most:
            assert index.covers(partition, text, most, budget)
        if most + 1e-6 <= 1:
            assert not index.covers(partition, text, most + 1e-6, budget)


@given(steps)
@examples(60)
def test_scores_after_any_writes(made):
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        node = runtime(Path(folder), clock=clock)
        try:
            kb = node.knowledge_base()
            for verb, (predicate, *args), scope, text in made:
                if verb in ("tell", "brief"):
                    kb.assert_facts(
                        [
                            Fact(
                                predicate,
                                tuple(args),
                                scope=scope,
                                ttl=10 if verb == "brief" else None,
                            )
                        ]
                    )
                elif verb == "retract":
                    kb.retract_fact(predicate, tuple(args), scope=scope)
                elif verb == "pattern":
                    kb.retract_pattern(predicate, (Variable("x"), args[1]), scope=scope)
                elif verb == "wait":
                    clock.advance(6)
                elif verb == "drop" and "s" in kb.scopes():
                    kb.drop_scope("s")
                elif verb == "fork":
                    kb.fork_scope(None, "s", overwrite=True)
                elif verb == "restart":
                    node.close()
                    node = runtime(Path(folder), clock=clock)
                    kb = node.knowledge_base()
                elif verb == "search":
                    found(kb, scope, text, 3)
            for _, _, scope, text in made[-3:]:
                check(kb, scope, text)
                check_coverage(kb, scope, text)
        finally:
            node.close()


@given(
    st.lists(facts, min_size=1, max_size=40),
    st.lists(st.tuples(st.booleans(), texts), min_size=1, max_size=6),
)
@examples(60)
def test_an_incrementally_updated_index_equals_a_new_one(told, later):
    with runtime() as node:
        kb = node.knowledge_base()
        for at, (predicate, *args) in enumerate(told):
            kb.assert_facts([Fact(predicate, tuple(args))])
            go, text = later[at % len(later)]
            found(kb, None, text, 2)
            if go:
                kb.retract_fact(predicate, tuple(args))
        best, every = found(kb, None, later[0][1], 1000)
        assert every == pytest.approx(
            dict(zip(every, bm25.scores(list(every), later[0][1]), strict=True)), abs=1e-12
        )
        assert len(best) == sum(score > 0 for score in every.values())


turns = st.lists(
    st.tuples(
        st.sampled_from(
            ["many", "many", "piece", "piece", "glance", "glance", *verbs[5:], "transact"]
        ),
        facts,
        scopes,
        texts,
    ),
    max_size=30,
)


def glance(kb, scope, text):
    """Facts of a window while the index is made: right ones, and all once it is complete."""
    with kb._reads(None) as (tenant, budget):
        partition = tenant.partition(scope)
        if partition is None:
            return
        index = LexicalIndex.of(tenant)
        progress = index.fill([partition], budget)
        assert 0 <= progress <= 1
        hits = index.query(partition, text, budget).best(1000)
        found_rows = {(stored, row) for stored, row, _ in hits}
        assert len(found_rows) == len(hits)
        visible = {
            (stored, row)
            for stored in partition.relations()
            for row in stored.relation.match([0] * stored.schema.arity)[1]
        }
        assert found_rows <= visible
        whole = {
            (stored, row)
            for stored, row in visible
            if set(words(text)) & set(words_of(tenant, stored, row))
        }
        assert found_rows <= whole
        assert progress < 1 or found_rows == whole


def words_of(tenant, stored, row):
    cells = tenant.engine.texts(stored.relation.rows(array("I", [row])))
    return [
        *name_words(stored.schema.predicate),
        *(word for cell in cells for word in words(cell)),
    ]


@given(turns)
@examples(60)
def test_an_index_filled_in_pieces_equals_a_new_one(made):
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("kbcore.search.bm25.FILL_SECONDS", 0)
        patch.setattr("kbcore.search.bm25.FILL_WORDS", 0)
        patch.setattr("kbcore.search.postings.ROWS_AT_ONCE", 2)
        patch.setattr("kbcore.search.postings.BATCH_ROWS", 3)
        patch.setattr("kbcore.search.postings.WORDS_MERGED", 2)
        patch.setattr("kbcore.search.postings.MIN_UNUSED_PLACES", 12)
        patch.setattr("kbcore.search.bm25.PIECES_AT_ONCE", 1)
        node = runtime(Path(folder), clock=clock)
        node.word_indexes.close()
        try:
            kb, number = node.knowledge_base(), 0
            for verb, (predicate, *args), scope, text in made:
                if verb == "many":
                    number += 1
                    kb.assert_facts(
                        [
                            Fact(
                                name,
                                (args[0], f"{args[1]} {number} {at}"),
                                scope=scope,
                                ttl=5 if at % 5 == 0 else None,
                            )
                            for at in range(11)
                            for name in (predicate, PREDICATES[number % len(PREDICATES)])
                        ]
                    )
                elif verb == "piece":
                    node.word_indexes.work()
                elif verb == "glance":
                    glance(kb, scope, text)
                elif verb == "pattern":
                    kb.retract_pattern(predicate, (args[0], Variable("x")), scope=scope)
                elif verb == "retract":
                    kb.retract_fact(predicate, (args[0], f"{args[1]} {number} 3"), scope=scope)
                elif verb == "wait":
                    clock.advance(6)
                elif verb == "drop" and "s" in kb.scopes():
                    kb.drop_scope("s")
                elif verb == "fork":
                    kb.fork_scope(None, "s", overwrite=True)
                elif verb == "transact":
                    id = node.begin()
                    with node.in_transaction("default", "default", id) as inside:
                        inside.assert_facts([Fact(predicate, tuple(args), scope=scope)])
                        inside.retract_pattern(predicate, (args[0], Variable("x")), scope=scope)
                    for _ in range(2):
                        with node.in_transaction("default", "default", id, writes=False) as inside:
                            glance(inside, scope, text)
                    with node.in_transaction("default", "default", id) as inside:
                        inside.commit()
                elif verb == "restart":
                    node.close()
                    node = runtime(Path(folder), clock=clock)
                    node.word_indexes.close()
                    kb = node.knowledge_base()
            while node.word_indexes.work():
                pass
            for _, _, scope, text in made[-3:]:
                check(kb, scope, text)
        finally:
            node.close()
