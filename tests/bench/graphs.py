"""Seeded generators of facts. The same arguments give the same facts, on every machine."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import accumulate

Pair = tuple[str, str]


def node(number: int) -> str:
    """The name of a node: a plain word in the rule language and an atom in Prolog."""
    return f"n{number}"


def chain(edges: int) -> list[Pair]:
    """n0 → n1 → ... → n`edges`."""
    return [(node(i), node(i + 1)) for i in range(edges)]


def scattered(nodes: int, edges: int, seed: int) -> list[Pair]:
    """Distinct random edges without loops; cyclic once there is more than one edge a node."""
    rng = random.Random(seed)
    found: dict[Pair, None] = {}
    while len(found) < edges:
        x, y = rng.randrange(nodes), rng.randrange(nodes)
        if x != y:
            found[node(x), node(y)] = None
    return list(found)


def downhill(nodes: int, edges: int, seed: int) -> list[Pair]:
    """Distinct random edges that all lead to a node of a higher number: no cycle."""
    rng = random.Random(seed)
    found: dict[Pair, None] = {}
    while len(found) < edges:
        x, y = rng.randrange(nodes), rng.randrange(nodes)
        if x != y:
            found[node(min(x, y)), node(max(x, y))] = None
    return list(found)


def zipf(nodes: int, edges: int, seed: int) -> list[Pair]:
    """Distinct random edges without loops; the k-th node is an end of an edge as often as 1/k^0.8
    says: hubs.
    """
    rng = random.Random(seed)
    places = list(range(nodes))
    rng.shuffle(places)
    weights = list(accumulate((k + 1) ** -0.8 for k in range(nodes)))
    found: dict[Pair, None] = {}
    while len(found) < edges:
        x, y = rng.choices(places, cum_weights=weights, k=2)
        if x != y:
            found[node(x), node(y)] = None
    return list(found)


def generations(layers: int, width: int, seed: int) -> list[Pair]:
    """child → parent: everybody but the first layer has two parents in the layer above."""
    rng = random.Random(seed)
    found = []
    for layer in range(1, layers):
        for place in range(width):
            for parent in rng.sample(range(width), 2):
                found.append((node(layer * width + place), node((layer - 1) * width + parent)))
    return found


def with_surroundings(core: int, edges: int, seed: int) -> list[Pair]:
    """A ring of `core` nodes from n0, in edges that no path from (or, mirrored, to) the ring uses,
    up to `edges` in all.

    What n0 reaches is the ring, however many edges there are.
    """
    rng = random.Random(seed)
    found = {(node(i), node((i + 1) % core)): None for i in range(core)}
    outside = range(core, core + max(edges, 4))
    while len(found) < edges:
        x, y = rng.choice(outside), rng.choice(outside)
        found[node(x), node(y)] = None
    return list(found)


@dataclass(slots=True)
class Access:
    """Users in groups in groups, things in folders in folders, grants to groups, bans of users."""

    member: list[Pair] = field(default_factory=list)
    inside: list[Pair] = field(default_factory=list)
    grants: list[Pair] = field(default_factory=list)
    banned: list[Pair] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    things: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    @property
    def facts(self) -> int:
        """How many facts there are."""
        return len(self.member) + len(self.inside) + len(self.grants) + len(self.banned)


def access(facts: int, seed: int) -> Access:
    """About `facts` facts: a user may read some hundreds of things, some through four groups and
    five folders.
    """
    rng = random.Random(seed)
    made = Access()
    users, groups, folders, things = (
        facts // 8,
        max(facts // 100, 8),
        max(facts // 20, 8),
        facts // 2,
    )
    made.users = [f"u{i}" for i in range(users)]
    made.groups = [f"g{i}" for i in range(groups)]
    made.folders = [f"d{i}" for i in range(folders)]
    made.things = [f"t{i}" for i in range(things)]
    member: dict[Pair, None] = {}
    for user in made.users:
        for _ in range(2):
            member[user, rng.choice(made.groups)] = None
    for i in range(4, groups):  # a tree of groups, four deep or so
        member[made.groups[i], made.groups[rng.randrange(max(1, i // 6), max(2, i // 3))]] = None
    made.member = list(member)
    for i in range(4, folders):
        made.inside.append(
            (made.folders[i], made.folders[rng.randrange(max(1, i // 6), max(2, i // 3))])
        )
    made.inside += [(thing, made.folders[rng.randrange(folders)]) for thing in made.things]
    grants: dict[Pair, None] = {}
    low = folders // 40
    for i, group in enumerate(
        made.groups
    ):  # the few groups at the top have small folders, so that no list is huge
        for _ in range(6):
            start = low if i > 40 else folders // 3
            grants[group, made.folders[rng.randrange(start, folders)]] = None
    made.grants = list(grants)
    banned: dict[Pair, None] = {}
    while len(banned) < max(facts - made.facts, 1):
        banned[rng.choice(made.users), rng.choice(made.things)] = None
    made.banned = list(banned)
    return made
