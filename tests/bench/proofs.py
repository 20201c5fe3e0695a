"""Proofs of a long chain: what they cost beside the same goal without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import graphs
from measure import Effort, median_of
from programs import Peer, open_without_tables
from table import Row
from writes import PATHS

from kbcore.embed import EmbeddedKB
from kbplanner.parser import parse_goal
from kbplanner.terms import Literal

NODES = 100_000
"""So that nothing is cut."""


def plain(kb: EmbeddedKB, goal: Literal) -> int:
    """The goal alone, from nothing."""
    return len(kb.kb.infer(goal))


def proved(kb: EmbeddedKB, goal: Literal, form: str) -> int:
    """The goal with its proof as objects."""
    return len(kb.kb.prove(goal, form=form, nodes=NODES, depth=NODES))


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
