"""Costs of labels and views: three levels with one view, and a thousand sets of groups with a
hundred views in use.

Each row compares two knowledge bases in one run by the CPU time of the process, goal by goal in
turns, so that a busy machine changes both sides. `--facts` is the number of facts with groups.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import kbcore
from kbcore import Config
from kbcore.state.facts import Fact

SEED = 20_260_101
LEVEL_NAMES = ("web", "tool", "user")
LEVELS = f"@levels trust: {' < '.join(LEVEL_NAMES)}."
GROUPS = 64
SETS = 1000
VIEWS = 100
FACTS_PER_WRITE = 5000
CACHE_MB = 4096
"""Memory for views, `HISTORY_CACHE_MB`: by default 256."""
RULES = """
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
leaf(?x) :- node(?x), not parent(?x).
parent(?x) :- edge(?x, _).
degree(?x, count(?y)) :- edge(?x, ?y).
"""

Make = Callable[[], kbcore.KnowledgeBase]


def open_kb() -> kbcore.KnowledgeBase:
    """Open a knowledge base in memory, whose views may take CACHE_MB."""
    config = Config(
        storage_backend="memory", min_free_mb=0, history_cache_mb=CACHE_MB, slow_query_ms=0
    )
    return kbcore.open_kb(config=config)


def cpu_of(asked: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    begun = time.process_time()
    asked()
    return time.process_time() - begun


def in_turns(
    one: Sequence[Callable[[], object]], other: Sequence[Callable[[], object]], rounds: int
) -> tuple[float, float]:
    """Return the median CPU seconds of the calls of two sides, which take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for pair in zip(one, other, strict=True):
            for side, call in zip(times, pair, strict=True):
                side.append(cpu_of(call))
    return statistics.median(times[0]), statistics.median(times[1])


def write(kb: kbcore.KnowledgeBase, facts: Sequence[Fact]) -> None:
    """Store facts in parts."""
    for start in range(0, len(facts), FACTS_PER_WRITE):
        kb.kb.assert_facts(list(facts[start : start + FACTS_PER_WRITE]))


def graph(size: int) -> list[Fact]:
    """Return nodes and edges of a random graph."""
    chance = random.Random(SEED)
    edges = {(chance.randrange(size), chance.randrange(size)) for _ in range(size * 3)}
    return [Fact("node", (f"n{i}",)) for i in range(size)] + [
        Fact("edge", (f"n{a}", f"n{b}")) for a, b in sorted(edges)
    ]


def levels(size: int, rounds: int) -> float:
    """Print and return the ratio of goals in a view of three levels to goals without labels.

    A third of the facts has each level. The view admits all of them, so that both sides have the
    same answers to compute, and then the two upper levels, beside a base of these facts alone.
    """
    facts, chance = graph(size), random.Random(SEED)
    level_of = [chance.choice(LEVEL_NAMES) for _ in facts]
    worst = 0.0
    for least in ("web", "tool"):
        admitted = LEVEL_NAMES[LEVEL_NAMES.index(least) :]
        with open_kb() as plain, open_kb() as labelled:
            plain.teach(RULES)
            labelled.teach(LEVELS + RULES)
            for level in LEVEL_NAMES:  # in the same order, as goals read them in it
                own = [f for f, each in zip(facts, level_of, strict=True) if each == level]
                write(labelled.viewed(None, {"trust": level}), own)
                if level in admitted:
                    write(plain, own)
            seen = labelled.viewed({"trust": least})
            goals = [f"reach(n{i}, ?y)" for i in range(0, 200, 10)]
            goals += ["leaf(?x)", "degree(?x, ?n)", "edge(n1, ?y)"]
            calls = [
                [lambda kb=kb, goal=goal: kb.ask(goal).count() for goal in goals]
                for kb in (plain, seen)
            ]
            assert [call() for call in calls[0]] == [call() for call in calls[1]]
            per_goal = []
            for one, other in zip(*calls, strict=True):
                without, within = in_turns([one], [other], rounds)
                per_goal.append(within / without)
            ratio = statistics.median(per_goal)
            print(f"three levels, view of {least}: goal CPU {ratio:.3f} x (at most 1.10)")
            worst = max(worst, ratio)
    return worst


def memory() -> int:
    """Return the resident bytes of the process."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def stored(size: int, *, labelled: bool) -> tuple[kbcore.KnowledgeBase, float]:
    """Store facts of random groups, in a thousand sets; return the bytes of a fact."""
    chance = random.Random(SEED)
    kb = open_kb()
    names = [f"g{i}" for i in range(GROUPS)]
    if labelled:
        kb.teach(f"@groups team: {', '.join(names)}.")
    sets: dict[tuple[str, ...], None] = {}
    while len(sets) < SETS:
        sets[tuple(sorted(chance.sample(names, chance.randint(1, 3))))] = None
    before = memory()
    part = size // SETS
    for number, own in enumerate(sets):
        handle = kb.viewed(None, {"team": list(own)}) if labelled else kb
        first = number * part
        write(
            handle,
            [Fact("edge", (f"n{i}", f"n{i * 7 % size}")) for i in range(first, first + part)],
        )
    return kb, (memory() - before) / (part * SETS)


def memory_of_labels(size: int) -> float:
    """Print and return how many bytes a fact with labels takes more than one without."""
    used = []
    for labelled in (False, True):
        kb, of_process = stored(size, labelled=labelled)
        tenant = kb.kb._stored_tenant()
        of_relations = sum(each.relation.bytes() for _, each in tenant.stored()) / size
        used.append((of_process, of_relations))
        kb.close()
    more, columns = (labelled - plain for plain, labelled in zip(*used, strict=True))
    print(f"{size:,} facts: labels take {more:.0f} bytes a fact of the process (at most 8),")
    print(f"{columns:.1f} of them in the relation")
    return more


def groups(size: int, rounds: int) -> float:
    """Print and return the ratio of goals with a hundred views in use."""
    plain, _ = stored(size, labelled=False)
    kb, _ = stored(size, labelled=True)
    part = size // SETS
    chance = random.Random(SEED + 1)
    pairs = {tuple(sorted(chance.sample(range(GROUPS), 2))) for _ in range(4 * VIEWS)}
    seen_groups = [(i,) for i in range(GROUPS)] + sorted(pairs)
    views = [kb.viewed({"team": [f"g{i}" for i in each]}) for each in seen_groups[:VIEWS]]
    before = memory()
    for seen in views:
        seen.ask("edge(n0, ?y)").count()
    of_views = (memory() - before) / (part * SETS)
    starts = [chance.randrange(size) for _ in views]
    without, within = in_turns(
        [lambda i=i: plain.ask(f"edge(n{i}, ?y)").count() for i in starts],
        [
            lambda seen=seen, i=i: seen.ask(f"edge(n{i}, ?y)").count()
            for seen, i in zip(views, starts, strict=True)
        ],
        rounds,
    )
    ratio = within / without
    print(
        f"{size:,} facts, {SETS} sets of groups, {VIEWS} views: goal p50 {ratio:.2f} x (at most 1.3)"
    )
    print(f"memory of the views together: {of_views:.0f} bytes a fact of the tenant")
    plain.close()
    kb.close()
    return ratio


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", choices=("levels", "groups", "memory"))
    asked = parser.parse_args()
    if asked.only in (None, "levels"):
        levels(asked.nodes, asked.rounds)
    if asked.only in (None, "groups"):
        groups(asked.facts, asked.rounds)
    if asked.only in (None, "memory"):
        memory_of_labels(asked.facts)


if __name__ == "__main__":
    sys.exit(main())
