"""Windows with an embedder: their cost at 100,000 facts, and the recall of ways to join words and
vectors.

    python tests/bench/vectors.py
    python tests/bench/vectors.py --onnx MODEL TOKENIZER --facts 100000
    python tests/bench/vectors.py --static PATH --facts 100000

Without a model a made embedder gives each word a fixed random direction, so that only the cost is
measured; recall needs a sentence model or word vectors. The questions are those of `talk`, in other
words than the facts; further facts are there to be confused with them.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import add
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from measure import percentile
from talk import collection, many

from kbcore import Config, hookimpl
from kbcore.clock import ManualClock
from kbcore.context.relevance import vectors as relevance
from kbcore.context.request import WindowRequest
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations import context_windows
from kbcore.search.vectors.index import VectorIndex
from kbcore.state.facts import Fact

TOP = 10
BATCH = 5_000
DIMENSION = 384
Blend = Callable[..., Mapping[Any, float]]


class MadeEmbedder:
    """Vectors of random directions, one for each word."""

    name, dimension = "made", DIMENSION

    def __init__(self) -> None:
        self._words: dict[str, array[float]] = {}

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the sums of the directions of the words."""
        vectors = []
        for text in texts:
            total: list[float] = [0.0] * DIMENSION
            for word in text.lower().split():
                total = list(map(add, total, self._direction(word)))
            vectors.append(total)
        return vectors

    def _direction(self, word: str) -> array[float]:
        known = self._words.get(word)
        if known is None:
            draw = random.Random(word)
            known = self._words[word] = array("f", [draw.gauss(0, 1) for _ in range(DIMENSION)])
        return known

    @hookimpl
    def kb_embedders(self) -> dict[str, Callable[[Config], MadeEmbedder]]:
        """Offer the embedder."""
        return {"made": lambda config: self}


def reciprocal(k: float, cut: float) -> Blend:
    """Return the fusion by reciprocal ranks (Cormack and others, 2009): the sum of 1 / (k +
    rank).
    """

    def fused(lexical, tenant, partitions, request, query, budget):  # type: ignore[no-untyped-def]
        index = VectorIndex.of(tenant)
        near = [
            hit
            for partition in partitions
            for hit in index.search(
                tenant,
                partition,
                query,
                128,
                budget.check_time,
                predicates=request.predicates,
                least=cut,
            )
        ]
        by_words = sorted(lexical, key=lambda where: -lexical[where])
        by_vector = [hit[:2] for hit in sorted(near, key=lambda hit: -hit[2])]
        scores: dict[Any, float] = {}
        for ranked in (by_words, by_vector):
            for rank, where in enumerate(ranked, 1):
                scores[where] = scores.get(where, 0.0) + (k + 1) / (k + rank) / 2
        return scores

    return fused


def ways() -> Iterator[tuple[str, Blend]]:
    """Yield the ways to join words and vectors."""
    for weight in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9):
        for cut in (0.3, -1.0):

            def blend(*args, weight=weight, cut=cut):  # type: ignore[no-untyped-def]
                before = relevance.VECTOR_WEIGHT, relevance.NEAR
                relevance.VECTOR_WEIGHT, relevance.NEAR = weight, cut
                try:
                    return relevance.blended(*args)
                finally:
                    relevance.VECTOR_WEIGHT, relevance.NEAR = before

            yield f"blend, weight of vectors {weight}, cut {cut}", blend
    for k in (1, 5, 20, 60):
        for cut in (0.3, -1.0):
            yield f"reciprocal ranks, k {k}, cut {cut}", reciprocal(k, cut)


@contextmanager
def opened(config: Config, clock: ManualClock, *plugins: object) -> Iterator[Runtime]:
    """Open a node in memory, without the thread that embeds."""
    with open_runtime(
        replace(config, storage_backend="memory"), plugins=plugins, clock=clock
    ) as node:
        if node.vectors is not None:
            node.vectors.close()
        yield node


def filled(node: Runtime, facts: Sequence[tuple[str, ...]]) -> float:
    """Store facts and give them their vectors; return the processor time of that, in seconds."""
    kb = node.knowledge_base()
    for start in range(0, len(facts), BATCH):
        kb.assert_facts([Fact(fact[0], fact[1:]) for fact in facts[start : start + BATCH]])
    begun = time.process_time()
    while node.vectors is not None and node.vectors.work():
        pass
    return time.process_time() - begun


def windows(
    node: Runtime, clock: ManualClock, questions: Sequence[str]
) -> tuple[list[Any], list[float]]:
    """Return the windows for questions, and the seconds of each."""
    kb, made, seconds = node.knowledge_base(), [], []
    for text in questions:
        clock.advance(20_000)  # so that no window is the one before
        begun = time.perf_counter()
        made.append(kb.context(WindowRequest(TOP, query=text)))
        seconds.append(time.perf_counter() - begun)
    return made, seconds


def recall(made: Sequence[Any], answers: Sequence[tuple[str, ...]]) -> float:
    """Return the share of windows that have their answer."""
    hits = [
        answer in {(entry.predicate, *entry.args) for entry in window.entries}
        for window, answer in zip(made, answers, strict=True)
    ]
    return sum(hits) / len(hits)


def timed(seconds: Sequence[float]) -> str:
    """Return the middle and the 99th percentile in milliseconds."""
    return f"p50 {1000 * percentile(seconds, 0.5):.1f} ms, p99 {1000 * percentile(seconds, 0.99):.1f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--onnx", nargs=2, metavar=("MODEL", "TOKENIZER"))
    parser.add_argument("--static", metavar="PATH", help="word vectors, or a Model2Vec folder")
    parser.add_argument("--facts", type=int, default=100_000)
    arguments = parser.parse_args()
    facts, asked = collection()
    texts, answers = [text for text, _ in asked], [facts[place] for _, place in asked]
    known = set(facts)
    further = [fact for fact in many(arguments.facts)[0] if fact not in known]
    facts = [*facts, *further[: max(0, arguments.facts - len(facts))]]
    clock = ManualClock(1_700_000_000_000)
    with opened(Config(vector_index_mb=1024), clock) as node:
        filled(node, facts)
        made, _ = windows(node, clock, texts)
        made, without = windows(node, clock, texts)
        print(f"{len(facts):,} facts, {len(texts)} questions, windows of {TOP}")
        print(f"words alone: recall@{TOP} {recall(made, answers):.3f}, {timed(without)}")
    if arguments.onnx:
        model, tokenizer = arguments.onnx
        config = Config(
            embedder="onnx", embedder_onnx_model=model, embedder_onnx_tokenizer=tokenizer
        )
        plugins: tuple[object, ...] = ()
    elif arguments.static:
        config = Config(embedder="static", embedder_static_model=arguments.static)
        plugins = ()
    else:
        print("no model (--onnx or --static): cost with a made embedder, no recall")
        config, plugins = Config(embedder="made"), (MadeEmbedder(),)
    with opened(replace(config, vector_index_mb=1024), clock, *plugins) as node:
        seconds = filled(node, facts)
        assert node.vectors is not None
        figures = node.vectors.figures()
        print(
            f"{figures.vectors:,} vectors in {figures.bytes >> 20} MiB, made in {seconds:.0f} s of a core"
        )
        made, first = windows(node, clock, texts)
        made, again = windows(node, clock, texts)
        ratio = percentile(again, 0.5) / percentile(without, 0.5)
        print(
            f"with vectors: {timed(again)} ({ratio:.2f} × words alone at p50); new query: {timed(first)}"
        )
        if arguments.onnx or arguments.static:
            before = context_windows.blended
            for name, way in ways():
                context_windows.blended = way  # type: ignore[assignment]
                made, _ = windows(node, clock, texts)
                print(f"recall@{TOP} {recall(made, answers):.3f}  {name}", flush=True)
            context_windows.blended = before


if __name__ == "__main__":
    main()
