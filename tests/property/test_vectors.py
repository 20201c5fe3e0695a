"""Vector search after any writes equals a comparison with every stored fact.

So does a search of candidates by signs, if all vectors are candidates.
"""

from __future__ import annotations

import tempfile
from array import array
from dataclasses import replace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from support.embedders import Hashing, Plugin
from support.examples import examples
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.context.relevance.vectors import fact_text
from kbcore.node.opening import open_runtime
from kbcore.search.vectors.index import VectorIndex
from kbcore.search.vectors.store import entry_of, query_of
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable

WORDS = ["ann", "tea", "green tea", "doctor", "physician", "bob works"]
facts = st.tuples(
    st.sampled_from(["works_at", "likes", "is"]), st.sampled_from(WORDS), st.sampled_from(WORDS)
)
scopes = st.sampled_from([None, "s"])
VERBS = [
    *["tell"] * 5,
    *["many"] * 2,
    *["retract"] * 3,
    *["brief", "pattern", "wait", "drop", "fork"],
]
VERBS += ["restart", "work", "work", "window", "inside"]
steps = st.lists(st.tuples(st.sampled_from(VERBS), facts, scopes, st.booleans()), max_size=25)


def opened(folder, clock):
    config = replace(BASE, storage_dir=str(folder), min_free_mb=0, embedder="hashing")
    node = open_runtime(config, plugins=[Plugin(Hashing())], clock=clock)
    node.vectors.close()  # `work` stands for the thread
    return node


def vector(text):
    return array("f", Hashing().vector(text))


def wanted(tenant, partition, query):
    """The scores of all visible facts, by comparison with each."""
    scores = {}
    for stored in partition.relations():
        rows, ids = stored.relation.match([0] * stored.schema.arity)
        for row, fact in zip(ids, stored.rows(tenant.engine, rows, ids), strict=True):
            text = fact_text(fact["predicate"], fact["args"], fact["negated"])
            length = sum(number**2 for number in vector(text)) ** 0.5
            entry = entry_of(text, array("f", [number / length for number in vector(text)]))
            cells = memoryview(entry.cells).cast("b")
            product = sum(a * b for a, b in zip(query.cells, cells, strict=True))
            scores[id(stored), row] = product * query.factor * array("f", [entry.factor])[0]
    return scores


def check(kb, node, text):
    while node.vectors.work():
        pass
    query = query_of(vector(text))
    for scope in (None, "s"):
        with kb._reads(None) as (tenant, budget):
            partition = tenant.partition(scope)
            if partition is None:
                continue
            expected = wanted(tenant, partition, query)
            index = node.vectors.index(tenant)
            visible = len(expected)
            for k, rows, candidates in (
                (1, 1 << 16, None),
                (3, 7, None),
                (3, 7, visible),
                (1000, 1, None),
                (1000, 1 << 16, visible),
            ):
                with (
                    mock.patch("kbcore.search.vectors.index.SEARCH_ROWS", rows),
                    mock.patch("kbcore.search.vectors.signs.SIGN_ROWS", rows),
                    mock.patch(
                        "kbcore.search.vectors.index.candidate_count", return_value=candidates
                    ),
                ):
                    found = index.search(tenant, partition, query, k, budget.check_time, least=-1.0)
                ranked = sorted(expected.values(), reverse=True)
                assert [score for _, _, score in found] == ranked[:k]
                assert {(id(stored), row): score for stored, row, score in found}.items() <= (
                    expected.items()
                )
            chosen = index.search(
                tenant, partition, query, 1000, budget.check_time, predicates=["likes"], least=-1.0
            )
            likes = {id(each) for each in partition.relations() if each.schema.predicate == "likes"}
            assert len(chosen) == sum(key[0] in likes for key in expected)


def texts_stored(tenant):
    texts = set()
    for partition in tenant.partitions():
        for stored in partition.relations():
            rows, ids = stored.relation.match([0] * stored.schema.arity, hidden=True)
            for fact in stored.rows(tenant.engine, rows, ids):
                texts.add(fact_text(fact["predicate"], fact["args"], fact["negated"]))
    return texts


@given(steps)
@examples(80)
def test_search_after_any_writes(made):
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        node = opened(folder, clock)
        try:
            kb = node.knowledge_base()
            for verb, (predicate, *args), scope, positive in made:
                if verb in ("tell", "brief"):
                    ttl = 10 if verb == "brief" else None
                    fact = Fact(predicate, tuple(args), positive=positive, scope=scope, ttl=ttl)
                    kb.assert_facts([fact])
                elif verb == "many":
                    kb.assert_facts(
                        [Fact(predicate, (f"a{n}", args[1]), scope=scope) for n in range(40)]
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
                    node = opened(folder, clock)
                    kb = node.knowledge_base()
                elif verb == "work":
                    node.vectors.work()
                elif verb == "window":
                    kb._query_vector(args[0], scope, None, None)
                elif verb == "inside":
                    with node.in_transaction(
                        "default", "default", node.begin("default", "default")
                    ) as inside:
                        inside.assert_facts([Fact(predicate, tuple(args), scope=scope)])
                        inside._query_vector(args[0], scope, None, None)
            check(kb, node, "tea")
            kb.assert_facts([Fact("last", ("fact",))])
            node.vectors.work()
            tenant = node.find_tenant("default", "default")
            # no vector of a fact that is gone is left
            assert len(VectorIndex.of(tenant).store) == len(texts_stored(tenant))
        finally:
            node.close()
