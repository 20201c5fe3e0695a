"""The matches of a window contain the first facts by match and salience, however many are read."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore import Config, open_runtime
from kbcore.clock import ManualClock
from kbcore.context.ranking import Supply
from kbcore.context.relevance import matches
from kbcore.context.request import WindowRequest
from kbcore.context.salience import Scores
from kbcore.state.facts import Fact

WORDS = st.sampled_from(["red", "blue", "green", "boat", "boat boat", "house", "old old house"])
FACTS = st.lists(
    st.tuples(
        st.sampled_from(["said", "likes", "red_things"]),
        st.sampled_from(["ana", "ben", "cleo"]),
        st.lists(WORDS, min_size=1, max_size=6).map(" ".join),
        st.sampled_from([None, 0.2, 0.5, 1.0]),
        st.integers(0, 10_000_000),
    ),
    max_size=30,
)


def ranking(tenant, partitions, request, budget, scores):
    found = matches.matching_facts(tenant, partitions, request, 0.1, budget, scores)
    supply = Supply(scores, partitions, request.min_salience, found)
    ranked = supply._matched(supply.relations(request.predicates))
    return [each.order for each in ranked], {
        (each.fact.stored, each.fact.row_id) for each in ranked
    }


@pytest.fixture(scope="module")
def node():
    clock = ManualClock()
    with open_runtime(Config(storage_backend="memory"), clock=clock) as opened:
        yield opened, clock


SCOPES = count()
"""Each example has a scope of its own."""


@given(
    FACTS,
    st.lists(WORDS, min_size=1, max_size=4).map(" ".join),
    st.integers(1, 5),
    st.sampled_from([None, "ana", "zoe"]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([None, ("said", "likes")]),
)
@examples(60)
def test_few_matches_have_the_same_first_facts_as_all(
    node, made, text, wanted, asker, least, names
):
    runtime, clock = node
    kb, scope = runtime.knowledge_base(), f"s{next(SCOPES)}"
    for predicate, who, what, confidence, later in made:
        kb.assert_facts([Fact(predicate, (who, what), confidence=confidence, scope=scope)])
        clock.advance(later)
    options = {"query": text, "asker": asker, "min_salience": least, "predicates": names}
    with kb._reads(None) as (tenant, budget):
        if (partition := tenant.partition(scope)) is None:
            assert not made
            return
        scores = Scores(tenant, kb._services.scorer, clock.now_ms(), budget)
        all_matches, _ = ranking(
            tenant, [partition], WindowRequest(1000, **options), budget, scores
        )
        usual = matches.MATCHES_PER_FACT
        matches.MATCHES_PER_FACT = 1
        try:
            first, facts = ranking(
                tenant, [partition], WindowRequest(wanted, **options), budget, scores
            )
        finally:
            matches.MATCHES_PER_FACT = usual
    assert first[:wanted] == all_matches[:wanted]
    assert len(facts) == len(first)
