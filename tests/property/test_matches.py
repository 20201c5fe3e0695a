"""The matches of a window contain the first facts by match and salience, however many are read."""

from __future__ import annotations

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
        st.sampled_from([0.0, 0.5, 1.0]),
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


@given(
    FACTS,
    st.lists(WORDS, min_size=1, max_size=4).map(" ".join),
    st.integers(1, 5),
    st.sampled_from([None, "ana", "zoe"]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([None, ("said", "likes")]),
)
@examples(60)
def test_few_matches_have_the_same_first_facts_as_all(made, text, wanted, asker, least, names):
    clock = ManualClock()
    with open_runtime(Config(storage_backend="memory"), clock=clock) as node:
        kb = node.knowledge_base()
        for predicate, who, what, priority, later in made:
            kb.assert_facts([Fact(predicate, (who, what), priority=priority)])
            clock.advance(later)
        options = {"query": text, "asker": asker, "min_salience": least, "predicates": names}
        with kb._reads(None) as (tenant, budget):
            scores = Scores(tenant, kb._services.scorer, clock.now_ms(), budget)
            partitions = [tenant.partition(None)]
            everything, _ = ranking(
                tenant, partitions, WindowRequest(1000, **options), budget, scores
            )
            usual = matches.MATCHES_PER_FACT
            matches.MATCHES_PER_FACT = 1
            try:
                first, facts = ranking(
                    tenant, partitions, WindowRequest(wanted, **options), budget, scores
                )
            finally:
                matches.MATCHES_PER_FACT = usual
        assert first[:wanted] == everything[:wanted]
        assert len(facts) == len(first)
