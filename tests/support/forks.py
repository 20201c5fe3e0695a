"""Helpers for tests that fork, compare and merge scopes."""

from __future__ import annotations

from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS, Rule
from kbplanner.syntax.parser import parse_rule
from support.engines import T0

RULE = parse_rule("q(?x) :- p(?x).")
START = T0


def scoped(text, scope):
    rule = parse_rule(text)
    return Rule(rule.head, rule.body, scope=scope)


def told(kb, scope=None, **more):
    kb.assert_facts([Fact("p", (name,), scope=scope, **more) for name in "ab"])


def names(rows):
    return [row["args"] for row in rows]


def contested(kb):
    """A base and a scope that differ in every way, and what is only in one."""
    kb.assert_facts(
        [
            Fact("p", ("sure",), confidence=0.9, metadata={"who": "base", "b": 1}),
            Fact("p", ("sign",)),
            Fact("p", ("mine",)),
            Fact("p", ("sure",), scope="s", confidence=0.4, metadata={"who": "s", "s": 1}),
            Fact("p", ("sign",), scope="s", positive=False),
            Fact("p", ("yours",), scope="s", confidence=0.1, ttl=3_600_000),
        ]
    )


def stored(kb, scope=None):
    return {
        (*row["args"], row["negated"]): row for row in kb.query_rows("p", [ANONYMOUS], scope=scope)
    }
