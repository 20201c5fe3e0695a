"""Answers after every kind of write, in any order, equal those of a fresh evaluation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.context.window import SUMMARY_SUFFIX
from kbcore.errors import NotFound
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbplanner.ir.terms import Atom, Rule, Variable

SCOPES = [None, "s", "s.t"]
START = 1_700_000_000_000
LEAST = 2
"""Facts that make a group."""

scopes = st.sampled_from(SCOPES)
windows = st.tuples(
    st.sampled_from([None, None, 5]),
    st.sampled_from([(None, None), (None, None), (0, 10), (0, 20), (10, 20)]),
).map(lambda window: (window[0], *window[1]))
"""A ttl, a beginning and an end; `test_intervals` has ends without a beginning."""


@dataclass(frozen=True)
class Step:
    verb: str
    atom: Atom
    goal: Atom
    rule: Rule
    scope: str | None
    window: tuple[int | None, ...]
    other: str | None
    strategy: str
    share: float


UNSET = 0.5
VERBS = ["tell"] * 5 + ["retract"] * 2 + ["pattern", "teach", "forget", "wait"] + ["ask"] * 5
VERBS += [
    "fork",
    "fork",
    "drop",
    "merge",
    "merge",
    "decay",
    "consolidate",
    "consolidate",
    "prioritize",
    "prioritize",
]
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(VERBS),
        programs.facts(),
        programs.goals(),
        programs.rules(),
        scopes,
        windows,
        scopes,
        st.sampled_from(["SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH"]),
        st.sampled_from([0.0, 0.4, 0.8]),
    ),
    max_size=20,
)


class Shadow:
    """What should be stored: facts with their windows and priorities, and rules, by scope.

    Salience is the priority alone here, so that the oracle needs no clock of accesses.
    """

    def __init__(self):
        self.now = START
        self.facts = {}
        self.rules = {}

    def tell(self, atom, scope, window):
        ttl, start, end = window
        known = self.facts.get((scope, atom))
        alive = known is not None and known[2] > self.now
        created, priority = (known[0], known[4]) if alive else (self.now, UNSET)
        begin = created if start is None else START + start
        until = min(
            created + ttl if ttl is not None else float("inf"),
            START + end if end is not None else float("inf"),
        )
        self.facts[scope, atom] = (created, begin, until, start is not None, priority)

    def teach(self, rule, scope):
        self.rules.setdefault((scope, stored_rule(rule).id), rule)

    def valid(self, scope):
        return [
            atom
            for (where, atom), (_, begin, end, *_) in self.facts.items()
            if where == scope and begin <= self.now < end
        ]

    def visible(self, scope):
        return [rule for (where, _), rule in self.rules.items() if where in (None, scope)]

    def drop(self, scope):
        for book in (self.facts, self.rules):
            for key in [key for key in book if key[0] == scope]:
                del book[key]

    def fork(self, source, target):
        self.drop(target)
        self.facts.update(
            {
                (target, atom): known
                for (where, atom), known in self.facts.items()
                if where == source
            }
        )
        if source is not None:
            self.rules.update(
                {
                    (target, name): rule
                    for (where, name), rule in self.rules.items()
                    if where == source
                }
            )

    def merge(self, source, target, strategy):
        mine, theirs = self.alive(source), self.alive(target)
        for name, facts in mine.items():
            known = theirs.get(name, {})
            changed = [
                sign for sign in facts if sign in known and told(facts[sign]) != told(known[sign])
            ]
            if changed or (facts.keys() - known.keys() and known.keys() - facts.keys()):
                if strategy == "TARGET_WINS":
                    continue
                if strategy == "SOURCE_WINS":
                    for sign in known:
                        del self.facts[target, Atom(*name, sign)]
                else:
                    facts = {s: hull(facts[s], known[s]) if s in known else facts[s] for s in facts}
            else:
                facts = {sign: fact for sign, fact in facts.items() if sign not in known}
            for sign, fact in facts.items():
                self.facts[target, Atom(*name, sign)] = fact

    def decay(self, scope, threshold):
        faded = [
            (scope, atom) for atom in self.valid(scope) if self.facts[scope, atom][4] < threshold
        ]
        over = [key for key, fact in self.facts.items() if key[0] == scope and fact[2] <= self.now]
        for key in [*faded, *over]:
            del self.facts[key]
        return len(faded)

    def consolidate(self, scope):
        """Summaries are facts like others from here on; none of them is summed up itself."""
        groups = Counter()
        for atom in self.valid(scope):
            if atom.positive and atom.arity > 1 and not atom.predicate.endswith(SUMMARY_SUFFIX):
                groups[atom.predicate, atom.arity, atom.args[0]] += 1
        wanted = {
            Atom(name + SUMMARY_SUFFIX, (first, str(count)))
            for (name, _, first), count in groups.items()
            if count >= LEAST
        }
        for atom in self.valid(scope):
            if atom.predicate.endswith(SUMMARY_SUFFIX) and atom not in wanted:
                del self.facts[scope, atom]
        for atom in wanted - set(self.valid(scope)):
            self.tell(atom, scope, (None, None, None))

    def alive(self, scope):
        found = {}
        for (where, atom), fact in self.facts.items():
            if where == scope and fact[2] > self.now:
                found.setdefault((atom.predicate, atom.args), {})[atom.positive] = fact
        return found

    def answers(self, goal, scope):
        rules, facts = self.visible(scope), self.valid(scope)
        true = (
            naive.model(rules, facts)
            if naive.stratified(rules)
            else naive.well_founded(rules, facts)[0]
        )
        return naive.answers(true, goal)


def told(fact):
    _, begin, until, given, _ = fact
    return begin if given else None, until


def hull(one, other):
    created, begin = min(one[0], other[0]), min(one[1], other[1])
    return created, begin, max(one[2], other[2]), begin != created, other[4]


@examples(250)
@given(st.lists(programs.rules(), min_size=1, max_size=3), steps)
def test_answers_follow_every_kind_of_write(rules, steps):
    assume(evaluable(rules))
    clock, shadow = ManualClock(START), Shadow()
    with runtime(clock=clock, engine_verify=True, salience_weights=(0.0, 0.0, 1.0)) as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        for rule in rules:
            shadow.teach(rule, None)
        for step in steps:
            play(kb, clock, shadow, step)
        for scope in SCOPES:
            for step in steps:
                assert set(kb.tuples(step.goal, AnswerOptions(scope=scope))) == shadow.answers(
                    step.goal, scope
                )
            rows = kb.salient(scope=scope, limit=1000)
            found = {
                Atom(row["predicate"], tuple(row["args"]), not row["negated"]): row["salience"]
                for row in rows
            }
            assert found == {atom: shadow.facts[scope, atom][4] for atom in shadow.valid(scope)}


def evaluable(rules):
    """Whether the oracle evaluates these together: it does not know aggregates beside recursion
    through negation.
    """
    return naive.stratified(rules) or not any(naive.aggregates(rule) for rule in rules)


def play(kb, clock, shadow, step):
    atom, scope = step.atom, step.scope
    if step.verb == "tell":
        ttl, start, end = step.window
        times = {
            "ttl": ttl,
            "valid_from": None if start is None else START + start,
            "valid_until": None if end is None else START + end,
        }
        kb.assert_facts([Fact(atom.predicate, atom.args, atom.positive, scope, **times)])
        shadow.tell(atom, scope, step.window)
    elif step.verb == "retract":
        kb.retract_fact(atom.predicate, atom.args, positive=atom.positive, scope=scope)
        shadow.facts.pop((scope, atom), None)
    elif step.verb == "pattern":
        pattern = [Variable(f"v{i}") for i in range(atom.arity)]
        kb.retract_pattern(atom.predicate, pattern, scope=scope)
        for where, other in list(shadow.facts):
            if where == scope and (other.predicate, other.arity) == (atom.predicate, atom.arity):
                del shadow.facts[where, other]
    elif step.verb == "teach":
        rule = Rule(step.rule.head, step.rule.body, scope=scope)
        if evaluable([*shadow.rules.values(), rule]):
            kb.assert_rules([rule])
            shadow.teach(rule, scope)
    elif step.verb == "forget":
        if shadow.rules:
            where, name = next(iter(shadow.rules))
            kb.retract_rule(id=name, scope=where)
            del shadow.rules[where, name]
    elif step.verb in ("fork", "drop", "merge"):
        known = [None, *kb.scopes()]
        assert {where for where, _ in [*shadow.facts, *shadow.rules]} <= set(known)
        if step.verb == "fork" and scope in known and step.other not in (None, scope):
            kb.fork_scope(scope, step.other, overwrite=True)
            shadow.fork(scope, step.other)
        elif step.verb == "drop" and scope is not None and scope in known:
            kb.drop_scope(scope)
            shadow.drop(scope)
        elif step.verb == "merge" and scope != step.other and {scope, step.other} <= set(known):
            kb.merge_scope(scope, step.other, strategy=step.strategy)
            shadow.merge(scope, step.other, step.strategy)
    elif step.verb == "decay":
        assert kb.decay(step.share, scope=scope).evicted == shadow.decay(scope, step.share)
    elif step.verb == "consolidate":
        kb.consolidate(min_group_size=LEAST, scope=scope)
        shadow.consolidate(scope)
    elif step.verb == "prioritize":
        fact = shadow.facts.get((scope, atom))
        if fact is not None and fact[2] > shadow.now:
            kb.prioritize(
                atom.predicate, atom.args, step.share, positive=atom.positive, scope=scope
            )
            shadow.facts[scope, atom] = (*fact[:4], step.share)
        else:
            with pytest.raises(NotFound):
                kb.prioritize(
                    atom.predicate, atom.args, step.share, positive=atom.positive, scope=scope
                )
    elif step.verb == "wait":
        clock.advance(5)
        shadow.now += 5
    else:
        assert set(kb.tuples(step.goal, AnswerOptions(scope=scope))) == shadow.answers(
            step.goal, scope
        )
