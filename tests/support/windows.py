"""Requests of context windows, and their entries in the form that tests compare."""

from __future__ import annotations

from kbcore.context.request import WindowRequest
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.syntax.parser import parse_rule
from support.engines import tell

X, Y = Variable("x"), Variable("y")


def goal(predicate, *args, negated=False):
    return Literal(Atom(predicate, args), negated)


def window(kb, **asked):
    return kb.context(WindowRequest(**asked))


def texts(found):
    return [entry.text for entry in found.entries]


def family(kb):
    for parent, child in (("ann", "bob"), ("bob", "cy"), ("bob", "dee"), ("eve", "fay")):
        tell(kb, "parent", parent, child)
    kb.assert_rules([parse_rule("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).")])
