"""Previews against the naive evaluator: the models before and after a change, and the change really
made.
"""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

from kbcore.branching.preview import Proposal
from kbcore.state.changes import RetractFact, RetractRule
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbplanner.syntax.parser import parse_rule

FORMS = [
    parse_rule(text)
    for text in (
        "p(?x, count(?y)) :- e(?x, ?y), not n(?y).",
        "s(?x, min(?y), max(?y)) :- f(?x, ?y).",
        "q(?x, ?y) :- e(?x, ?y), not q(?y, ?x).",
        "r(?x) :- e(?x, ?y), not r(?y).",
        "on :- not r(_).",
        "p(?x, ?y) :- r(?x), e(?x, ?y), not ~n(?y).",
        "~n(?x) :- on, e(?x, _).",
    )
]


def truths(rules, facts):
    """Every atom that is not false, with its truth."""
    if naive.stratified(rules):
        true = possible = naive.model(rules, facts)
    else:
        assume(not any(naive.aggregates(rule) for rule in rules))
        true, possible = naive.well_founded(rules, facts)
    values = {(key, row): "undefined" for key, rows in possible.items() for row in rows}
    values.update({(key, row): "true" for key, rows in true.items() for row in rows})
    return values


def shown(changes):
    return {
        ((change.predicate, len(change.args), not change.negated), change.args): change.was
        for change in changes
    }


def state_of(node):
    """Everything stored with its times, and how far the log is applied."""
    kb = node.knowledge_base()
    tenant = node.read_tenant("default", "default")
    facts = [
        row
        for _, stored in tenant.stored()
        for row in stored.rows(
            tenant.engine, *stored.relation.match([0] * stored.schema.arity, hidden=True)
        )
    ]
    return facts, [rule.text for rule in kb.rules()], tenant.generation, tenant.version, tenant.seq


@examples(400)
@given(
    st.lists(
        st.one_of(programs.rules(), programs.rules(), st.sampled_from(FORMS)),
        min_size=1,
        max_size=6,
        unique=True,
    ),
    st.lists(programs.facts(), min_size=1, max_size=12, unique=True),
    st.data(),
)
def test_a_preview_is_the_difference_of_the_models(rules, facts, data):
    check(rules, facts, data.draw(st.integers(0, len(rules))), data)


@examples(200)
@given(
    st.lists(
        st.one_of(programs.rules(), programs.rules(), st.sampled_from(FORMS)),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.lists(programs.facts(), min_size=1, max_size=12, unique=True),
    st.data(),
)
def test_a_preview_of_facts_is_found_from_the_changes(rules, facts, data):
    check(rules, facts, len(rules), data)


def check(rules, facts, split, data):
    """Compare a preview with the difference of the models; of the rules, the first `split` are
    there before.
    """
    fact_split = data.draw(st.integers(0, len(facts)))
    dropped_rules = []
    if split < len(rules):
        dropped_rules = data.draw(st.lists(st.sampled_from(rules[:split] or rules), unique=True))
        dropped_rules = [rule for rule in dropped_rules if rule in rules[:split]]
    dropped = [fact for fact in facts[:fact_split] if data.draw(st.integers(0, 2)) == 0]
    rules_before, rules_after = rules[:split], [r for r in rules if r not in dropped_rules]
    facts_before, facts_after = facts[:fact_split], [f for f in facts if f not in dropped]
    ids = {stored_rule(rule).id for rule in rules}
    assume(len(ids) == len(rules))
    assume(naive.stratified(rules) or not any(naive.aggregates(rule) for rule in rules))
    before, after = truths(rules_before, facts_before), truths(rules_after, facts_after)
    proposal = Proposal(
        tuple(Fact(fact.predicate, fact.args, fact.positive) for fact in facts[fact_split:]),
        tuple(rules[split:]),
        tuple(RetractFact(fact.predicate, fact.args, fact.positive) for fact in dropped),
        tuple(RetractRule(stored_rule(rule).id) for rule in dropped_rules),
    )
    with runtime() as node:
        kb = node.knowledge_base()
        if rules_before:
            kb.assert_rules(rules_before)
        kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts_before])
        state = state_of(node)
        outcome = kb.preview(proposal, limit=10_000)
        assert state_of(node) == state
        every = before.keys() | after.keys()
        expected = {
            truth: {
                atom: before.get(atom, "false")
                for atom in every
                if after.get(atom, "false") == truth != before.get(atom, "false")
            }
            for truth in ("true", "false", "undefined")
        }
        assert shown(outcome.becomes_true) == expected["true"]
        assert shown(outcome.becomes_false) == expected["false"]
        assert shown(outcome.becomes_undefined) == expected["undefined"]
        assert not outcome.truncated
        counts = outcome.counts
        assert (counts.becomes_true, counts.becomes_false, counts.becomes_undefined) == tuple(
            map(len, expected.values())
        )
        stored = {(naive.key(fact), fact.args) for fact in facts_after}
        for change in (*outcome.becomes_true, *outcome.becomes_undefined):
            key = (change.predicate, len(change.args), not change.negated)
            assert change.stored == ((key, change.args) in stored)
        # The same change, really made: nothing remains to be changed by it.
        for fact in dropped:
            kb.retract_fact(fact.predicate, fact.args, positive=fact.positive)
        for rule in dropped_rules:
            kb.retract_rule(id=stored_rule(rule).id)
        if rules[split:]:
            kb.assert_rules(rules[split:])
        kb.assert_facts(proposal.facts)
        assert kb.preview(Proposal(proposal.facts, proposal.rules)).by_predicate == []
