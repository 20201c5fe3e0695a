"""Conclusions that are kept, so that their changes are the counts of a retraction."""

from __future__ import annotations

import random
from contextlib import contextmanager

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

import kbcore
from kbcore.retraction import cascade, kept
from kbcore.state.facts import Fact
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_rule

FORMS = [
    parse_rule(text)
    for text in (
        "p(?x, count(?y)) :- e(?x, ?y), not n(?y).",
        "s(?x, min(?y), max(?y)) :- f(?x, ?y).",
        "s(?x, ?y, sum(?z)) :- e(?x, ?y), f(?y, ?z).",
        "r(?x) :- p(?x, ?n), ?n < 2.",
        "q(?x, ?y) :- e(?x, ?y), not r(?y).",
        "q(?x, ?z) :- q(?x, ?y), e(?y, ?z).",
        "on :- s(?x, ?y, ?z), not q(?x, ?x).",
        "d(?x, min ?y) :- f(?x, ?y).",
        "r(?x) :- d(?x, ?y), ?y < 3, not n(?x).",
    )
]


@contextmanager
def always_kept(**limits):
    """Conclusions are kept from the first count on; the limits are those of an evaluation of
    all.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "MAX_ROWS": 1,
            "MAX_STEPS": 1,
            "MIN_SPENT_SECONDS": 0,
            "SPENT_FOR_KEPT": 0,
            "SPENT_FOR_NONE": 0,
        }.items():
            patch.setattr(cascade, name, value)
        for name, value in limits.items():
            patch.setattr(kept, name, value)
        yield patch


def conclusions(rules, facts):
    """The rows of all predicates with rules."""
    heads = {naive.key(rule.head) for rule in rules}
    model = naive.model(rules, facts)
    return {(key, row) for key, rows in model.items() if key in heads for row in rows}


def check(kb, rules, facts, gone):
    """Retract a fact; compare the counts with the models before and after."""
    rest = [fact for fact in facts if fact != gone]
    outcome = kb.retract_fact(gone.predicate, gone.args, positive=gone.positive)
    before, after = (conclusions(rules, each) for each in (facts, rest))
    own = (naive.key(gone), gone.args)
    listed = [
        (naive.key(atom), atom.args)
        for row in outcome.cascaded_atoms
        for atom in [Atom(row["predicate"], tuple(row["args"]), not row["negated"])]
    ]
    assert set(listed) == before - after - {own}
    assert len(listed) == outcome.cascaded
    assert outcome.newly_derivable == len(after - before)
    assert not outcome.truncated
    return rest


def leaving(predicate):
    """Limits with which the conclusions of a predicate are not kept, nor those that depend on
    them.
    """
    return {"_is_left": lambda rules, clause: clause.head.schema.predicate == predicate}


STEPS = st.lists(
    st.tuples(st.sampled_from(["retract", "retract", "tell", "teach"]), st.integers(0, 1 << 30)),
    min_size=3,
    max_size=12,
)


@examples(200)
@given(
    st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True),
    st.lists(programs.rules().filter(lambda rule: not naive.aggregates(rule)), max_size=3),
    st.lists(programs.facts(), min_size=4, max_size=12, unique=True),
    STEPS,
    st.one_of(
        st.just({}),
        st.builds(leaving, st.sampled_from(["p", "q", "r", "s", "d", "on"])),
        st.builds(lambda steps: {"MAX_STEPS": steps}, st.integers(5, 60)),
        st.builds(lambda steps: {"MIN_STEPS": steps}, st.integers(5, 60)),
    ),
)
def test_histories(forms, others, facts, steps, limits):
    rules = [*forms, *others]
    compiled = RuleSet(rules)
    # Nothing is kept for what recurses through negation, and the other path has next to no budget.
    assume(not any(map(compiled.negative_components, (frozenset(), compiled.deniable))))
    assume(naive.stratified(rules))
    with always_kept(**limits), runtime(engine_verify=True) as node:
        kb = node.knowledge_base()
        taught, later = (rules[:-1], rules[-1:]) if len(rules) > 1 else (rules, [])
        kb.assert_rules(taught)
        kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])
        stored, away = list(facts), []
        for step, number in steps:
            if step == "teach":
                kb.assert_rules(later)
                taught, later = [*taught, *later], []
            elif step == "tell" and away:
                fact = away.pop(number % len(away))
                kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive)])
                stored.append(fact)
            elif stored:
                fact = stored[number % len(stored)]
                stored = check(kb, taught, stored, fact)
                away.append(fact)


LAYERS = [
    parse_rule(text)
    for text in (
        "belongs(?x, ?g) :- member(?x, ?g).",
        "belongs(?x, ?g) :- member(?x, ?y), belongs(?y, ?g).",
        "size(?g, count(?x)) :- belongs(?x, ?g).",
        "large(?g) :- size(?g, ?n), ?n > 2.",
        "may(?x, ?t) :- belongs(?x, ?g), grant(?g, ?t), not banned(?x, ?t), not large(?g).",
        "shares(?x, ?y) :- may(?x, ?t), may(?y, ?t).",
        "alone(?x) :- may(?x, ?t), not shares(?x, b).",
        "near(?x, min ?n) :- start(?x, ?n).",
        "near(?y, min ?n) :- near(?x, ?m), member(?x, ?y), not large(?y), ?n = ?m + 1.",
    )
]


@pytest.mark.parametrize("left", ["", "may", "shares", "alone", "near", "large"])
@pytest.mark.parametrize("seed", range(4))
def test_rules_over_kept_conclusions(left, seed):
    """Rules that are left are evaluated over the rows of those that are kept."""
    draw = random.Random(f"{left} {seed}")
    names = "abcde"
    pairs = [(x, y) for x in names for y in names]
    pool = [Atom("member", pair) for pair in pairs if pair[0] != pair[1]]
    pool += [Atom(name, (x, t)) for name in ("grant", "banned") for x in names for t in "tu"]
    pool += [Atom("start", (x, str(n))) for x in names for n in (1, 3)]
    facts = draw.sample(pool, 30)
    with always_kept(**leaving(left)) as patch, runtime(engine_verify=True) as node:
        kb = node.knowledge_base()
        kb.assert_rules(LAYERS)
        kb.assert_facts([Fact(fact.predicate, fact.args) for fact in facts])
        facts = check(kb, LAYERS, facts, facts[0])
        cascades = node.cascades(kb._read_tenant())
        results = []
        inner = cascade.Cascades._found_in_kept
        patch.setattr(
            cascade.Cascades,
            "_found_in_kept",
            lambda *args: results.append(inner(*args)) or results[-1],
        )
        for _ in range(30):
            away = [fact for fact in pool if fact not in facts]
            for fact in draw.sample(away, draw.randrange(3)):
                kb.assert_facts([Fact(fact.predicate, fact.args)])
                facts.append(fact)
            facts = check(kb, LAYERS, facts, draw.choice(facts))
        assert cascades.maintained_bytes()[0] > 0
        assert sum(each is not None for each in results) > 5


def cascades_of(kb):
    return kb._runtime.cascades(kb.kb._read_tenant())


SUMS = "total(?g, sum(?n)) :- sale(?k, ?g, ?n). many(?g) :- total(?g, ?n), ?n > 10."


@pytest.fixture
def shop():
    """A knowledge base with sums, which are kept: counts of all conclusions fail."""
    with always_kept() as patch, kbcore.open_kb() as kb:
        kb.tell_many("sale", [(f"k{n}", f"g{n % 5}", str(n)) for n in range(40)])
        kb.teach(SUMS)
        kb.retract("sale", ["k39", "g4", "39"])
        assert cascades_of(kb).maintained_bytes()[0] > 0
        patch.setattr(cascade, "compared", _never)
        kb.patch = patch
        yield kb


def _never(*_):
    raise AssertionError("all conclusions were compared")


def test_what_falls_is_what_changes_in_kept_sums(shop):
    outcome = shop.retract("sale", ["k1", "g1", "1"])
    assert [row["args"] for row in outcome.cascaded_atoms] == [["g1", "148"]]
    assert (outcome.newly_derivable, outcome.truncated) == (1, False)
    assert ("g1", "147") in shop.ask("total(?g, ?n)")


def test_facts_that_came_before_are_followed_first(shop):
    shop.tell_many("sale", [("more", "g1", "100"), ("other", "g7", "1")])
    shop.retract("sale", ["k1", "g1", "1"], count=False)
    assert cascades_of(shop).are_behind([None])
    outcome = shop.retract("sale", ["k6", "g1", "6"])
    assert [row["args"] for row in outcome.cascaded_atoms] == [["g1", "247"]]
    assert not cascades_of(shop).are_behind([None])


def test_many_facts_of_one_pattern(shop):
    outcome = shop.retract("sale", ["?k", "g2", "?n"])
    assert {tuple(row["args"]) for row in outcome.cascaded_atoms} == {("g2", "156"), ("g2",)}
    assert outcome.newly_derivable == 0


def test_new_rules_end_what_is_kept(shop):
    shop.patch.undo()
    shop.teach("most(max(?n)) :- total(?g, ?n).")
    for name, args in (("k38", ["164"]), ("k37", ["156"])):
        group = f"g{int(name[1:]) % 5}"
        outcome = shop.retract("sale", [name, group, name[1:]])
        assert args in [row["args"] for row in outcome.cascaded_atoms]
