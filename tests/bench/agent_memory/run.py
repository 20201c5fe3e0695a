"""Measure memory systems: `python tests/bench/agent_memory/run.py [--systems NAMES] [--markdown
FILE]`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from agent_memory.baselines import BM25, plain_words, stems
from agent_memory.chats import TEXTS, chat
from agent_memory.interface import Conversation, System
from agent_memory.made import FULL_PEOPLE, SMALL_PEOPLE, made_conversation
from agent_memory.public import DataError, read_locomo, read_longmemeval
from agent_memory.report import tables, write_markdown
from agent_memory.runner import run

BUDGET = 200
CHATS = 5
"""Chats of one run, with consecutive seeds."""


def _kbcore(name: str, options: argparse.Namespace) -> System:
    from agent_memory.kbcore_systems import KBCore

    return KBCore(name, options.min_coverage, options.min_relevance)


SYSTEMS: dict[str, Callable[[argparse.Namespace], System]] = {
    "bm25": lambda _: BM25("bm25", plain_words),
    "bm25-stems": lambda _: BM25("bm25-stems", stems),
    "kbcore-text": lambda options: _kbcore("kbcore-text", options),
    "kbcore-facts": lambda options: _kbcore("kbcore-facts", options),
    "kbcore-abstaining": lambda options: _kbcore("kbcore-abstaining", options),
    "kbcore": lambda options: _kbcore("kbcore", options),
    "kbcore-vectors": lambda options: _kbcore("kbcore-vectors", options),
}
"""A system of your own is one more entry; see `interface.System`."""

DEFAULT = [name for name in SYSTEMS if name != "kbcore-vectors"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(description="Benchmark of memory systems for agents.")
    parser.add_argument("--systems", default=",".join(DEFAULT), help="names, comma-separated")
    parser.add_argument("--seed", type=int, default=1, help="seed of the made data")
    parser.add_argument("--budget", type=int, default=BUDGET, help="tokens of a window")
    parser.add_argument("--small", action="store_true", help="few people, to see that all runs")
    parser.add_argument("--steps", action="store_true", help="kbcore-text part by part instead")
    parser.add_argument("--min-relevance", type=float, default=0.0, help="of kbcore")
    parser.add_argument("--min-coverage", type=float, help="of kbcore")
    parser.add_argument("--markdown", type=Path, help="page whose tables are replaced")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--locomo", type=Path, help="file in the shape of LoCoMo, not made data")
    data.add_argument("--chats", action="store_true", help="made chats of two people, five")
    data.add_argument("--other-chats", action="store_true", help="the same in other words")
    data.add_argument("--longmemeval", type=Path, help="file in the shape of LongMemEval")
    options = parser.parse_args(argv)
    names = options.systems.split(",")
    for name in names:
        if name not in SYSTEMS:
            parser.error(f"--systems: {name!r} is unknown; choose from {', '.join(SYSTEMS)}")
    if "kbcore-vectors" in names and os.environ.get("EMBEDDER", "none") == "none":
        parser.error(
            "kbcore-vectors needs EMBEDDER, such as onnx; see the page about sentence models"
        )
    if options.budget < 1:
        parser.error("--budget must be at least 1")
    start = time.monotonic()
    try:
        conversations = _conversations(options)
    except (DataError, OSError) as error:
        parser.error(str(error))
    systems = _steps(options) if options.steps else (SYSTEMS[name](options) for name in names)
    results = [run(system, conversations, options.budget) for system in systems]
    questions = sum(len(each.questions) for each in conversations)
    turns = sum(len(each.turns) for each in conversations)
    unknown = [text for each in conversations for text in each.unknown_evidence]
    heading = (
        f"{questions:,} questions about {turns:,} turns, windows of at most {options.budget} tokens,"
        f" {'public data' if options.locomo or options.longmemeval else f'seed {options.seed}'};"
        f" Python {platform.python_version()}; {time.monotonic() - start:.0f} s in all."
    )
    if unknown:
        heading += f" Left out: {len(unknown)} ids of evidence that name no turn."
    text = f"{heading}\n\n{tables(results)}"
    print(text)
    if options.markdown:
        write_markdown(options.markdown, text)
    return 0


def _steps(options: argparse.Namespace) -> Iterator[System]:
    from agent_memory.ablation import steps

    return (make() for make in steps(options.min_relevance))


def _conversations(options: argparse.Namespace) -> list[Conversation]:
    if options.locomo:
        return list(read_locomo(options.locomo))
    if options.longmemeval:
        return list(read_longmemeval(options.longmemeval))
    for name in TEXTS:
        if getattr(options, name.replace("-", "_")):
            return [chat(options.seed + number, name) for number in range(CHATS)]
    return [made_conversation(options.seed, SMALL_PEOPLE if options.small else FULL_PEOPLE)]


if __name__ == "__main__":
    raise SystemExit(main())
