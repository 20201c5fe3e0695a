"""Stored facts and the expected salience, in the form that memory tests compare."""

from __future__ import annotations

import math

from kbplanner.ir.terms import Variable
from support.engines import HOUR

X = Variable("x")


def names(rows):
    return [(row["predicate"], *row["args"]) for row in rows]


def stored(kb, scope=None):
    tenant = kb._read_tenant()
    found = []
    for relation in tenant.partition(scope).relations():
        every = relation.relation.match([0] * relation.schema.arity, hidden=True)
        found.extend(names(relation.rows(tenant.engine, *every)))
    return sorted(found)


def formula(age, accesses=1, priority=0.5, confidence=1.0):
    return (
        0.5 * 2 ** -(age / HOUR)
        + 0.3 * min(1, math.log(1 + accesses) / math.log(100))
        + 0.2 * priority
    ) * confidence
