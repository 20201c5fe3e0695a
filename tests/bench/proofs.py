"""Proofs of a long chain, and of a rule with very many instances: what they cost beside the same
goal without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import graphs
from measure import Effort, median_of
from programs import Peer, open_without_tables
from table import Row
from writes import PATHS

from kbcore.embed import EmbeddedKB
from kbcore.proofs.shapes import ProofOptions
from kbplanner.ir.terms import Literal
from kbplanner.syntax.parser import parse_goal

NODES = 100_000
"""So that nothing is cut."""


def plain(kb: EmbeddedKB, goal: Literal) -> int:
    """The goal alone, from nothing."""
    return len(kb.kb.infer(goal))


def proved(kb: EmbeddedKB, goal: Literal, form: str) -> int:
    """The goal with its proof as objects."""
    return len(kb.kb.prove(goal, proof=ProofOptions(form=form, nodes=NODES, depth=NODES)))


PRODUCTS = {
    "facts": "r(?x) :- i(?x), a(?u), b(?v), c(?w).",
    "conclusions": "r(?x) :- i(?x), da(?u), db(?v), dc(?w). da(?u) :- a(?u). db(?v) :- b(?v). dc(?w) :- c(?w).",
}
"""A body of parts that nothing connects, with the product of their sizes as instances."""


def proofs(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Both forms of the rules, both forms of proofs."""
    n = effort.pick(1000, 20)
    for form, rules in PATHS.items():
        with open_without_tables({"edge": graphs.chain(n)}, rules) as kb:
            goal = parse_goal(f"path({graphs.node(0)}, {graphs.node(n)})").body[0]
            assert isinstance(goal, Literal)
            without = median_of(partial(plain, kb, goal), effort)
            for shape in ("tree", "dag"):
                ours = median_of(partial(proved, kb, goal, shape), effort)
                row = Row(f"proof, chain, {form}, {shape}", f"{n:,} steps", ours.answers, ours)
                ratio = (ours.seconds or 0) / (without.seconds or 1)
                row.ratio = f"{ratio:.3g} × the plain goal ({without})"
                row.floor, row.met = "≤ 10 × plain", ratio <= 10
                yield row
    yield from _products(effort)


def _products(effort: Effort) -> Iterator[Row]:
    size = effort.pick(500, 10)
    (goal,) = parse_goal("r(x)").body
    assert isinstance(goal, Literal)
    for form, rules in PRODUCTS.items():
        facts = {name: [(str(number),) for number in range(size)] for name in "abc"}
        with open_without_tables({"i": [("x",)], **facts}, rules) as kb:
            without = median_of(partial(plain, kb, goal), effort)
            ours = median_of(partial(proved, kb, goal, "tree"), effort)
            row = Row(f"proof, product of {form}", f"{size:,}³ instances", ours.answers, ours)
            ratio = (ours.seconds or 0) / (without.seconds or 1)
            row.ratio = f"{ratio:.3g} × the plain goal ({without})"
            row.floor, row.met = "≤ 50 × plain", ratio <= 50
            yield row
