"""Games: `win(?x) :- move(?x, ?y), not win(?y).` under the well-founded semantics, against
SWI-Prolog's tabling.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import graphs
from measure import Effort, Sample, Skipped, median_of, too_late
from peers import swipl
from programs import Peer, count_named, open_without_tables
from table import Floor, Row

from kbcore.embed import EmbeddedKB
from kbplanner.syntax.parser import parse_goal

RULES = "win(?x) :- move(?x, ?y), not win(?y)."
SWIPL_RULES = ":- table win/1. win(X) :- move(X, Y), tnot(win(Y))."

CERTAIN = "(call_delays(win(_), Delays), Delays == true)"
"""SWI-Prolog's goal for what is true: an answer that is delayed on nothing."""


def grid(side: int) -> list[graphs.Pair]:
    """From each field of a board to the right and down."""
    steps = [(0, 1), (1, 0)]
    fields = [(x, y, x + a, y + b) for x in range(side) for y in range(side) for a, b in steps]
    return [
        (graphs.node(x * side + y), graphs.node(u * side + v))
        for x, y, u, v in fields
        if u < side and v < side
    ]


def games(effort: Effort, peers: Mapping[str, Peer]) -> Iterator[Row]:
    """Boards on which every position is decided, and graphs with cycles, on which some are
    drawn.
    """
    n, side, m = effort.pick(20_000, 200), effort.pick(100, 10), effort.pick(40_000, 300)
    boards = {
        ("chain", f"{n:,}"): graphs.chain(n),
        ("grid", f"{side} × {side}"): grid(side),
        ("acyclic", f"{n:,}/{m:,}"): graphs.downhill(n, m, 31),
        ("cyclic", f"{n:,}/{m:,}"): graphs.scattered(n, m, 31),
    }
    for (name, size), moves in boards.items():
        with open_without_tables({"move": moves}, RULES) as kb:
            ours = median_of(partial(won, kb), effort)
            named = median_of(partial(won_by_name, kb), effort)
        row = Row(
            f"win/move, {name}", size, ours.answers, ours, named=named, floors=(Floor("swipl"),)
        )
        if "swipl" in peers:
            row.peers["swipl"] = tabled(moves, effort, decides=name != "cyclic")
        print(
            f"  {row.workload}: {row.ours}, {row.peers.get('swipl', '')}",
            file=sys.stderr,
            flush=True,
        )
        yield row


def won(kb: EmbeddedKB) -> int:
    """Count what is true, from nothing: no model is kept."""
    inner = kb.kb
    tenant = inner._read_tenant()
    tenant.models.clear()
    reasoner = kb._runtime.reasoner(tenant)
    partition = inner._partitions(tenant, None)[0]
    with inner._budget() as budget:
        return reasoner.solve(partition, parse_goal("win(?x)").body[0].atom, budget)[1]


def won_by_name(kb: EmbeddedKB) -> int:
    """The same through `kb.ask`."""
    kb.kb._read_tenant().models.clear()
    return count_named(kb, "win(?x)")


def tabled(moves: Sequence[graphs.Pair], effort: Effort, decides: bool) -> Sample:
    """SWI-Prolog's time. Where it does not decide every position that is decided, its answers are
    not counted as such.
    """
    lines = [
        ":- use_module(library(time)).",
        SWIPL_RULES,
        *(f"move({x}, {y})." for x, y in moves),
        swipl.PROGRAM_MAIN,
    ]
    lines.append(f"main :- bench({CERTAIN}, {effort.repeats}, {effort.seconds}, {effort.limit}).")
    try:
        found = swipl.run(lines, 30 + 2 * effort.limit)
    except Skipped as why:
        return Sample(None, None, str(why))
    word, *rest = (found or ["stopped"])[0].split(maxsplit=2)
    if word == "ok":
        return Sample(float(rest[1]), int(rest[0]) if decides else None)
    return (
        too_late(effort.limit)
        if word == "late"
        else Sample(None, None, " ".join(rest)[:40], beyond=float("inf"))
    )
