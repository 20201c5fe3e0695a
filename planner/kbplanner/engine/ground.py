"""A ground program as flat arrays: shortest proofs, and best values over proofs.

Both are Knuth's generalisation of Dijkstra's algorithm from paths to proofs ("A generalization of
Dijkstra's algorithm", 1977), here with functions simple enough to need no heap: each instance is
visited once for each premise.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from kbplanner.pacing import STEPS_PER_YIELD, paced

NONE = 0xFFFFFFFF
"""Array entry for a missing number."""


NEGATED = 0x80000000
"""A premise `NEGATED | node` requires that the node does not hold; used by well-founded models
only.
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A ground program: `nodes` conclusions, numbered from 0, and the instances of rules that
    conclude them.

    Instance `i` concludes node `heads[i]` from the nodes `premises[ends[i-1]:ends[i]]` (from 0 for
    the first); all three are `array('I')`. Only conclusions are nodes: stored facts and tests that
    an instance depends on hold, and are left out. Where absences matter, a premise can also be
    `NEGATED | node`, which holds where the node does not, or NONE, which always holds. The first
    `free` instances are not counted as steps of a proof: they copy stored facts or collect the
    input of an aggregate, and are never circular.
    """

    nodes: int
    heads: array[int]
    ends: array[int]
    premises: array[int]
    free: int = 0

    def __len__(self) -> int:
        return len(self.heads)

    def of(self, instance: int) -> array[int]:
        """Return the premises of an instance."""
        return self.premises[self.ends[instance - 1] if instance else 0 : self.ends[instance]]


@dataclass(frozen=True, slots=True)
class Shortest:
    """Shortest proofs: for each node the steps of its lowest proof (NONE: no proof) and its last
    instance.

    Every premise of a chosen instance that is not free is lower than its conclusion, which excludes
    cycles. Of instances equally low the first is chosen. `counts` says how many instances conclude
    each node from others.
    """

    heights: array[int]
    chosen: array[int]
    counts: array[int]


def shortest(ground: Ground) -> Shortest:
    """Find the lowest proof of each node, level by level, in time linear in the arrays."""
    waiting = _premise_counts(ground)
    starts, users = _users(ground)
    heights = array("I", [NONE]) * ground.nodes
    now: list[int] = []
    later: list[int] = []
    for i, count in enumerate(waiting):
        if not count:
            (now if i < ground.free else later).append(ground.heads[i])
    level = 0
    while now or later:
        while now:
            node = now.pop()
            if heights[node] != NONE:
                continue
            heights[node] = level
            for user in users[starts[node] : starts[node + 1]]:
                waiting[user] -= 1
                if not waiting[user]:
                    (now if user < ground.free else later).append(ground.heads[user])
        now, later, level = later, [], level + 1
    return Shortest(heights, *_chosen(ground, heights))


def widest(ground: Ground, ranks: array[int]) -> array[int]:
    """Return the best value of each node: the maximum over its proofs of the least rank of their
    instances.

    `ranks` has a number for each instance; an instance with rank 0 is not used. A node without a
    proof has 0.
    """
    waiting = _premise_counts(ground)
    starts, users = _users(ground)
    best = array("I", bytes(4 * ground.nodes))
    order = sorted((i for i, rank in enumerate(ranks) if rank), key=ranks.__getitem__, reverse=True)
    for first in order:
        rank = ranks[first]
        todo = [first] if not waiting[first] else []
        while todo:
            node = ground.heads[todo.pop()]
            if best[node]:
                continue
            best[node] = rank
            for user in users[starts[node] : starts[node + 1]]:
                waiting[user] -= 1
                if not waiting[user] and ranks[user] >= rank:
                    todo.append(user)
    return best


def touched(ground: Ground, marked: bytearray, yield_now: Callable[[], None]) -> bytearray:
    """Return which nodes depend on a marked instance in any proof, directly or indirectly.

    `yield_now` is called between pieces of the work.
    """
    starts, users = _users(ground, yield_now)
    nodes = bytearray(ground.nodes)
    todo = [
        ground.heads[instance] for instance, mark in paced(enumerate(marked), yield_now) if mark
    ]
    steps = 0
    while todo:
        steps += 1
        if not steps % STEPS_PER_YIELD:
            yield_now()
        node = todo.pop()
        if not nodes[node]:
            nodes[node] = 1
            todo.extend(ground.heads[user] for user in users[starts[node] : starts[node + 1]])
    return nodes


def _premise_counts(ground: Ground) -> list[int]:
    ends = ground.ends
    return (
        [end - start for start, end in zip(array("I", [0]) + ends[:-1], ends, strict=True)]
        if len(ends)
        else []
    )


def _users(
    ground: Ground, yield_now: Callable[[], None] = lambda: None
) -> tuple[list[int], array[int]]:
    """Return for each node the instances that have it as a premise, concatenated, and each node's
    offset.
    """
    counts = [0] * (ground.nodes + 1)
    for node in paced(ground.premises, yield_now):
        counts[node + 1] += 1
    starts = list(accumulate(counts))
    next_slots = starts[:]
    users = array("I", bytes(4 * len(ground.premises)))
    at = 0
    for instance, end in paced(enumerate(ground.ends), yield_now):
        for node in ground.premises[at:end]:
            users[next_slots[node]] = instance
            next_slots[node] += 1
        at = end
    return starts, users


def _chosen(ground: Ground, heights: array[int]) -> tuple[array[int], array[int]]:
    chosen = array("I", [NONE]) * ground.nodes
    counts = array("I", bytes(4 * ground.nodes))
    at = 0
    for instance, end in enumerate(ground.ends):
        node, below = ground.heads[instance], ground.premises[at:end]
        counts[node] += node not in below
        if chosen[node] == NONE != heights[node]:
            cost = 0 if instance < ground.free else 1
            if heights[node] == cost + max((heights[premise] for premise in below), default=0):
                chosen[node] = instance
        at = end
    return chosen, counts
