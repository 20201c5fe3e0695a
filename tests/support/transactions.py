"""A node and the transactions on it, one operation a call, and a commit that must fail."""

from __future__ import annotations

import pytest

from kbcore.clock import ManualClock
from kbcore.errors import Conflict
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable
from kbplanner.syntax.parser import parse_goal, parse_rule
from support.runtimes import runtime

ANY = Variable("x")
REACH = ("reach(?x, ?y) :- edge(?x, ?y).", "reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).")


class Node:
    """A runtime, and one operation of a transaction a call."""

    def __init__(self, folder=None, **settings):
        self.clock = settings.pop("clock", None) or ManualClock()
        self.runtime = runtime(folder, clock=self.clock, **settings)
        self.kb = self.runtime.knowledge_base()

    def begin(self):
        return Handle(self, self.runtime.begin())

    def tell(self, *texts):
        self.kb.assert_facts([fact(text) for text in texts])

    def retract(self, text):
        name, args = atom(text)
        self.kb.retract_fact(name, args)

    def teach(self, *texts):
        self.kb.assert_rules([parse_rule(text) for text in texts])

    def ask(self, goal, kb=None, scope=None):
        return [
            row["args"]
            for row in (kb or self.kb).infer(parse_goal(goal).body[0], AnswerOptions(scope=scope))
        ]


class Handle:
    def __init__(self, node, id):
        self.node = node
        self.id = id

    def do(self, call, *, writes=True):
        with self.node.runtime.in_transaction("default", "default", self.id, writes=writes) as kb:
            return call(kb)

    def tell(self, *texts, **more):
        return self.do(lambda kb: kb.assert_facts([fact(text, **more) for text in texts]))

    def retract(self, text):
        name, args = atom(text)
        return self.do(lambda kb: kb.retract_fact(name, args))

    def ask(self, goal, scope=None):
        return self.do(lambda kb: self.node.ask(goal, kb, scope), writes=False)

    def commit(self):
        return self.do(lambda kb: kb.commit())

    def roll_back(self):
        return self.do(lambda kb: kb.roll_back())

    def state(self):
        with pytest.raises(Conflict) as caught:
            self.do(lambda kb: None)
        return caught.value.details["state"]


def atom(text):
    found = parse_goal(text).body[0].atom
    return found.predicate, found.args


def fact(text, **more):
    return Fact(*atom(text), **more)


def refused(transaction):
    """A commit that must fail: what changed."""
    with pytest.raises(Conflict) as caught:
        transaction.commit()
    assert caught.value.details["state"] == "rolled_back"
    assert caught.value.details["transaction"] == transaction.id
    assert transaction.state() == "rolled_back"
    return caught.value.details["changed"]
