"""Run the benchmarks and print one table: `python tests/bench/run.py [--only NAME ...] [--small]
[--markdown FILE]`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import access
import aggregates
import answers
import bombs
import branching
import bulk
import changes
import closures
import commands
import conversations
import demand
import distances
import documents
import durability
import encryption
import equivalence
import external
import games
import ground
import how_to
import http_routes
import joins
import known_at
import lexical
import loading
import memory
import point_goal
import proofs
import published
import question_speed
import replication
import retracts
import scopes
import slow_disk
import stalls
import standing
import storage
import table
import text_facts
import transactions
import windows
import writes
from measure import FULL, SMALL, Effort
from peers import find

import kbcore

Workload = Callable[[Effort, Any], Iterator[table.Row]]

WORKLOADS: dict[str, tuple[Workload, str]] = {
    "closure": (closures.closure, "programs"),
    "same-generation": (closures.same_generation, "programs"),
    "join": (joins.joins, "programs"),
    "triangles": (joins.triangles, "programs"),
    "negation": (joins.negation, "programs"),
    "published": (published.published, "programs"),
    "games": (games.games, "programs"),
    "demand": (demand.demand, ""),
    "distances": (distances.distances, "distances"),
    "equivalence": (equivalence.equivalence, "equivalence"),
    "external": (external.external, "external"),
    "proportion": (closures.proportion, ""),
    "retract-then-goal": (writes.retract_then_goal, "retractions"),
    "retracts": (retracts.retracts, "retracts"),
    "standing": (standing.standing, ""),
    "changes": (changes.changes, ""),
    "known-at": (known_at.known_at, ""),
    "first-goal": (writes.first_goal, ""),
    "access": (access.access, "access"),
    "how-to": (how_to.how_to, ""),
    "documents": (documents.documents, ""),
    "aggregates": (aggregates.aggregates, "aggregates"),
    "proofs": (proofs.proofs, ""),
    "ground": (ground.ground, ""),
    "point-goal": (point_goal.point_goal, ""),
    "answers": (answers.answers, ""),
    "handed-out": (answers.handed_out, "handed_out"),
    "scopes": (scopes.scopes, ""),
    "transactions": (transactions.transactions, ""),
    "storage": (storage.storages, ""),
    "encryption": (encryption.encryption, ""),
    "memory": (memory.memory, ""),
    "windows": (windows.windows, ""),
    "questions": (question_speed.speed_of_questions, ""),
    "text-facts": (text_facts.text_facts, ""),
    "conversations": (conversations.conversations, ""),
    "what-if": (branching.branching, ""),
    "lexical": (lexical.lexical, ""),
    "loading": (loading.loading, "load"),
    "http": (http_routes.over_http, ""),
    "bombs": (bombs.bombs, ""),
    "bulk": (bulk.bulk_runs, ""),
    "durability": (durability.durability, ""),
    "replication": (replication.replication, ""),
    "commands": (commands.commands, ""),
    "stalls": (stalls.stalls, ""),
    "slow-disk": (slow_disk.on_a_slow_disk, ""),
}
"""What is run, in order, and the function of a peer that does the same."""


def main() -> int:
    """Exit status 1 when answers differ or something grows that must not; a floor that is not met
    only says so.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS)
    )
    parser.add_argument(
        "--small", action="store_true", help="tiny sizes: does everything still run?"
    )
    which = ", ".join(table.PEERS)
    parser.add_argument(
        "--peers", nargs="*", choices=table.PEERS, default=table.PEERS, metavar="NAME", help=which
    )
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="write the table into this page, between its marks",
    )
    parser.add_argument(
        "--rows",
        default="",
        metavar="TEXT",
        help="only rows with this text in their name, such as '/preview' (stalls)",
    )
    options = parser.parse_args()
    effort = replace(SMALL if options.small else FULL, rows=options.rows)
    peers = find(options.peers)
    begun = time.monotonic()
    rows: list[table.Row] = []
    for name in options.only or WORKLOADS:
        workload, function = WORKLOADS[name]
        started = time.monotonic()
        able = {
            peer: getattr(module, function)
            for peer, module in peers.items()
            if module.VERSION and function and hasattr(module, function)
        }
        for row in workload(effort, able):
            row.compare()
            rows.append(row)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    here = [f"{name} {module.VERSION}" for name, module in peers.items() if module.VERSION]
    head = f"kbcore {kbcore.__version__}, Python {platform.python_version()}, {cpu()} × {os.cpu_count()}; {', '.join(here)}"
    gone = [name for name, module in peers.items() if not module.VERSION]
    if gone:
        head += f"; not installed, so left out: {', '.join(gone)}"
    met, missed = (sum(row.met is wanted for row in rows) for wanted in (True, False))
    head += f"\nfloors met: {met}, not met: {missed}; {time.monotonic() - begun:.0f} s in all"
    print(head)
    for section in dict.fromkeys(row.section for row in rows):
        some = [row for row in rows if row.section == section]
        print(f"\n{table.table(some)}")
        if options.markdown and (
            section != "table" or not options.only
        ):  # the table is written whole or not at all
            table.write_markdown(
                options.markdown,
                section,
                f"{head.replace(chr(10), '; ')}.\n\n{table.markdown(some)}",
            )
    wrong = [row.wrong for row in rows if row.wrong]
    for line in wrong:
        print(f"WRONG {line}", file=sys.stderr)
    return 1 if wrong else 0


def cpu() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


if __name__ == "__main__":
    sys.exit(main())
