"""Checks of access to shared documents beside cedarpy: owners, viewers by groups, folders in
folders, and public documents.

The shape is that of the gdrive example of Cedar's published benchmarks (Cutler et al., Cedar: a new
language for expressive, fast, safe, and analyzable authorization, OOPSLA 2024), from 5 to 200
users, groups, folders and documents. The generator is our own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import chain
from statistics import median
from typing import Any

from measure import Effort, collector_off, stream_of
from table import Row

from kbcore import open_kb

SIZES = (5, 50, 200)
CHECKS = 2000
SEED = 44

PASSES = 5
"""Times that each check is measured."""

FLOOR = 0.5
"""Our median check, at most, as a share of that of cedarpy."""

RULES = """
in_group(?who, ?group) :- member(?who, ?group).
in_group(?who, ?group) :- member(?who, ?inner), in_group(?inner, ?group).
viewer(?who, ?item) :- view(?who, ?item).
viewer(?who, ?item) :- inside(?item, ?folder), viewer(?who, ?folder).
can_read(?who, ?item) :- owner(?item, ?who).
can_read(?who, ?item) :- viewer(?who, ?item).
can_read(?who, ?item) :- in_group(?who, ?group), viewer(?group, ?item).
can_read(?who, ?item) :- public(?item), user(?who).
"""

POLICIES = """
permit(principal, action, resource) when { resource.owner == principal };
permit(principal, action == Action::"read", resource) when { principal in resource.viewers };
permit(principal, action == Action::"read", resource) when { resource.isPublic };
"""


@dataclass(frozen=True, slots=True)
class Drive:
    """Users, groups, folders and documents, by name, and the relations between them.

    `member` and `inside` have no cycles. `view` has users and groups, with the folders and
    documents that are shared with them.
    """

    users: list[str]
    items: list[str]
    documents: list[str]
    member: list[tuple[str, str]] = field(default_factory=list)
    inside: list[tuple[str, str]] = field(default_factory=list)
    view: list[tuple[str, str]] = field(default_factory=list)
    owner: list[tuple[str, str]] = field(default_factory=list)
    public: list[str] = field(default_factory=list)


def drive(size: int, seed: int = SEED) -> Drive:
    """Return a drive with `size` of each kind."""
    rng = random.Random(seed * 1000 + size)
    users, groups, folders, documents = (
        [f"{kind}{number}" for number in range(size)] for kind in ("user", "group", "folder", "doc")
    )
    base = Drive(users, [*folders, *documents], documents)
    for user in users:
        base.member.extend((user, group) for group in rng.sample(groups, 2))
    for number in range(1, size):
        if rng.random() < 0.5:
            base.member.append((groups[number], groups[rng.randrange(number)]))
        if rng.random() < 0.8:
            base.inside.append((folders[number], folders[rng.randrange(number)]))
    base.inside.extend((document, rng.choice(folders)) for document in documents)
    base.owner.extend((item, rng.choice(users)) for item in base.items)
    for item in base.items:
        if rng.random() < 0.3:
            base.view.append((rng.choice(groups), item))
        if rng.random() < 0.3:
            base.view.append((rng.choice(users), item))
    base.public.extend(document for document in documents if rng.random() < 0.05)
    return base


def checks(base: Drive, count: int, seed: int = SEED) -> list[tuple[str, str]]:
    """Return pairs of a random user and a random document."""
    rng = random.Random(seed)
    return [(rng.choice(base.users), rng.choice(base.documents)) for _ in range(count)]


Decide = Callable[[str, str], bool]


@contextmanager
def ours(base: Drive) -> Iterator[Decide]:
    """Yield the decision of an embedded knowledge base: goal text in, answer out."""
    with open_kb() as kb:
        kb.teach(RULES)
        rows: dict[str, list[tuple[str, ...]]] = {
            "member": [*base.member],
            "inside": [*base.inside],
            "view": [*base.view],
            "owner": [*base.owner],
            "public": [(item,) for item in base.public],
            "user": [(user,) for user in base.users],
        }
        for predicate, relation in rows.items():
            kb.tell_many(predicate, relation)
        yield lambda who, item: bool(kb.ask(f"can_read({who}, {item})"))


def timed(
    deciders: list[Decide], asked: list[tuple[str, str]]
) -> tuple[list[list[float]], list[list[bool]]]:
    """Return for each decider the CPU seconds and the decision of each check.

    The deciders take turns at all checks, and the shortest of PASSES times of a check counts: what
    else the machine does changes from one moment to the next.
    """
    seconds = [[float("inf")] * len(asked) for _ in deciders]
    decisions = [[False] * len(asked) for _ in deciders]
    with collector_off():
        for _ in range(PASSES):
            for index, decide in enumerate(deciders):
                for number, (who, item) in enumerate(asked):
                    start = time.process_time_ns()
                    decisions[index][number] = decide(who, item)
                    took = (time.process_time_ns() - start) / 1e9
                    seconds[index][number] = min(seconds[index][number], took)
    return seconds, decisions


def entities(base: Drive) -> list[dict[str, Any]]:
    """Return a drive as entities of Cedar.

    The viewers of an item are an entity, which its viewers, and the viewers of the folder that it
    is in, are children of: Cedar has no recursion but that of `in`.
    """
    parents: dict[str, list[dict[str, str]]] = {}
    for who, group in base.member:
        parents.setdefault(who, []).append(_uid(group))
    for who, item in base.view:
        parents.setdefault(who, []).append({"type": "Viewers", "id": item})
    viewers = {item: list[dict[str, str]]() for item in base.items}
    for item, folder in base.inside:
        parents.setdefault(item, []).append(_uid(folder))
        viewers[folder].append({"type": "Viewers", "id": item})
    owners, public = dict(base.owner), set(base.public)
    groups = {group for _, group in base.member} | {
        who for who, _ in chain(base.view, base.member) if who.startswith("group")
    }
    objects = [
        _entity(_uid(name), parents.get(name, [])) for name in [*base.users, *sorted(groups)]
    ]
    for item in base.items:
        attributes = {
            "owner": {"__entity": _uid(owners[item])},
            "isPublic": item in public,
            "viewers": {"__entity": {"type": "Viewers", "id": item}},
        }
        objects.append(_entity(_uid(item), parents.get(item, []), attributes))
        objects.append(_entity({"type": "Viewers", "id": item}, viewers[item]))
    return objects


def _entity(
    uid: dict[str, str], parents: list[dict[str, str]], attributes: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"uid": uid, "attrs": attributes or {}, "parents": parents}


def _uid(name: str) -> dict[str, str]:
    kind = name.rstrip("0123456789")
    kinds = {"user": "User", "group": "Group", "folder": "Folder", "doc": "Document"}
    return {"type": kinds[kind], "id": name}


def cedar(base: Drive) -> Decide:
    """Return the decision of cedarpy, whose policies and entities are parsed before. Raises
    ImportError without cedarpy.
    """
    import cedarpy

    policies = cedarpy.PolicySet.from_str(POLICIES)
    known = cedarpy.Entities.from_json_str(json.dumps(entities(base)))

    def decide(who: str, item: str) -> bool:
        request = {
            "principal": f'User::"{who}"',
            "action": 'Action::"read"',
            "resource": f'Document::"{item}"',
            "context": {},
        }
        return cedarpy.is_authorized(request, policies, known).decision is cedarpy.Decision.Allow

    return decide


def documents(effort: Effort, _: object) -> Iterator[Row]:
    """Compare checks of shared documents, one after the other, with and without cedarpy."""
    for size in SIZES:
        base = drive(size)
        asked = checks(base, effort.pick(CHECKS, 50))
        with ours(base) as decide:
            deciders = [decide]
            if find_spec("cedarpy") is not None:
                deciders.append(cedar(base))
            seconds, decisions = timed(deciders, asked)
        yield _row(size, seconds, decisions)


def _row(size: int, seconds: list[list[float]], decisions: list[list[bool]]) -> Row:
    allowed = sum(decisions[0])
    row = Row("shared documents, of each kind", f"{size}", allowed, stream_of(seconds[0]))
    row.floor = f"p50 at most {FLOOR:.0%} of cedarpy's"
    if len(seconds) > 1:
        if decisions[0] != decisions[1]:
            row.wrong = f"{size}: cedarpy decides otherwise"
        share = median(seconds[0]) / median(seconds[1])
        row.ratio = f"{1 / share:.1f} cedarpy"
        row.met = share <= FLOOR
    return row
