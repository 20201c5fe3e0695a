"""Random concurrent transactions and writes: committed ones could have run one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import Conflict
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbplanner.ir.terms import Atom, Rule, Variable
from kbplanner.syntax.parser import parse_rule

START = 1_700_000_000_000
SCOPES = [None, "s"]
RULES = [
    parse_rule(text)
    for text in (
        "r(?x) :- p(?x).",
        "r(?x) :- q(?x), not p(?x).",
        "r(?x) :- p(?y), q(?x), r(?y).",
        "s(count(?x)) :- r(?x).",
        "~q(?x) :- p(?x), not r(?x).",
        "p(?x) :- q(?x), not r(?x).",
    )
]
ACTORS = ["outside", 0, 0, 1]
WRITES = ["tell"] * 5 + ["bulk", "retract", "retract", "pattern", "teach", "forget"]
READS = ["ask"] * 3 + ["query", "count", "rules"]


@dataclass(frozen=True, repr=False)
class Step:
    actor: object
    verb: str
    atom: Atom
    goal: Atom
    rule: Rule
    scope: str | None
    window: tuple[int | None, ...]

    def __repr__(self):
        return f"{self.actor} {self.verb} {self.atom} ?{self.goal} :{self.rule} {self.scope} {self.window}"


# Few names, so that transactions meet.
atoms = st.builds(
    Atom,
    st.sampled_from("pq"),
    st.tuples(st.sampled_from("ab")),
    st.sampled_from([True] * 4 + [False]),
)
goals = st.builds(
    Atom,
    st.sampled_from("pqrs"),
    st.tuples(st.sampled_from(["a", "b", Variable("x"), Variable("x")])),
)
windows = st.one_of(
    st.just((None, None, None)),
    st.tuples(
        st.sampled_from([None, 5]), st.sampled_from([None, 0, 10]), st.sampled_from([None, 10, 20])
    ),
)

steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(ACTORS),
        st.sampled_from(WRITES + READS * 2 + ["commit"] * 3 + ["rollback", "wait"]),
        atoms,
        goals,
        st.sampled_from(RULES),
        st.sampled_from([None, None, None, "s"]),
        windows,
    ),
    min_size=8,
    max_size=40,
)


@examples(250)
@given(st.lists(st.sampled_from(RULES), max_size=2), steps)
def test_committed_transactions_are_serializable(rules, steps):
    clock = ManualClock(START)
    with runtime(clock=clock) as node:
        node.knowledge_base().assert_rules(rules)
        history = play(node, clock, steps)
        found = contents(node.knowledge_base())
    again = ManualClock(START)
    with runtime(clock=again) as node:
        kb = node.knowledge_base()
        kb.assert_rules(rules)
        for step, seen in history:
            assert act(kb, again, step) == seen, step
        assert contents(kb) == found


def play(node, clock, steps):
    """Run the steps; what committed, in the order of the log, each step with what it saw."""
    history, ids, logs = [], {}, {}
    for step in steps:
        if step.verb == "wait":
            history.append((step, act(node.knowledge_base(), clock, step)))
            continue
        if step.actor == "outside":
            if step.verb not in ("commit", "rollback"):
                history.append((step, act(node.knowledge_base(), clock, step)))
            continue
        if step.actor not in ids:
            ids[step.actor], logs[step.actor] = node.begin(), []
        try:
            with node.in_transaction("default", "default", ids[step.actor]) as kb:
                if step.verb == "rollback":
                    kb.roll_back()
                    raise Conflict("over")
                if step.verb == "commit":
                    kb.commit()
                    history.extend(logs[step.actor])
                    event("committed")
                    raise Conflict("over")
                logs[step.actor].append((step, act(kb, clock, step)))
        except Conflict as error:
            event("conflict" if error.details else "over")
            del ids[step.actor]
    return history


def act(kb, clock, step):
    """Do what a step says; what it saw."""
    atom, goal, scope = step.atom, step.goal, step.scope
    if step.verb == "wait":
        clock.advance(4)
    elif step.verb == "tell":
        ttl, start, end = step.window
        begin = clock.now_ms() if start is None else START + start
        if end is not None and START + end <= begin:
            end = None  # an empty interval is refused
        times = {
            "ttl": ttl,
            "valid_from": None if start is None else START + start,
            "valid_until": None if end is None else START + end,
        }
        kb.assert_facts([Fact(atom.predicate, atom.args, atom.positive, scope, **times)])
    elif step.verb == "bulk":
        kb.assert_facts(
            [
                Fact(each.predicate, each.args, each.positive, scope)
                for each in (atom, flipped(atom))
            ]
        )
    elif step.verb == "retract":
        return kb.retract_fact(
            atom.predicate, atom.args, positive=atom.positive, scope=scope
        ).retracted
    elif step.verb == "pattern":
        pattern = [Variable(f"v{i}") for i in range(atom.arity)]
        return kb.retract_pattern(atom.predicate, pattern, scope=scope).retracted
    elif step.verb == "teach":
        kb.assert_rules([step.rule])
    elif step.verb == "forget":
        known = kb.rules()
        if known:
            kb.retract_rule(id=known[0].id, scope=known[0].scope)
        return len(known)
    elif step.verb == "ask":
        return kb.tuples(goal, AnswerOptions(scope=scope))
    elif step.verb == "query":
        return [row["args"] for row in kb.query_rows(goal.predicate, list(goal.args), scope="*")]
    elif step.verb == "count":
        return kb.aggregate(AggregateQuery(atom.predicate, "COUNT"), scope=scope).matched
    else:
        return [rule.id for rule in kb.rules()]
    return None


def flipped(atom):
    return Atom(atom.predicate, atom.args, not atom.positive)


def contents(kb):
    """Everything that is stored and valid, and the rules."""
    facts = set()
    for scope in SCOPES:
        for known in kb.predicates(scope)["predicates"]:
            pattern = [Variable(f"v{i}") for i in range(known["arity"])]
            for row in kb.query_rows(known["predicate"], pattern, scope=scope):
                facts.add(
                    (
                        scope,
                        row["predicate"],
                        *row["args"],
                        row["negated"],
                        row["createdAt"],
                        row["validUntil"],
                    )
                )
    return facts, {(rule.scope, stored_rule(rule.rule).id) for rule in kb.rules()}
