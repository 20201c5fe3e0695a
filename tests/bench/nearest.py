"""Search of vectors: all of them, and the candidates that their signs choose.

    python tests/bench/nearest.py --vectors 1000000
    python tests/bench/nearest.py --onnx MODEL TOKENIZER --texts 20000

Times do not depend on the numbers, which are random. Recall does: it is measured with the vectors
of definitions from WordNet, and with the usage examples as queries. A list of candidates of another
length stands for another number of vectors, because the share of the candidates counts.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from glosses import DATA, glosses
from measure import percentile

from kbcore.clock import SystemClock
from kbcore.search.embedder import Embedding
from kbcore.search.vectors import signs
from kbcore.search.vectors.index import SEARCH_ROWS
from kbcore.search.vectors.store import VectorStore, entry_of, query_of
from kbplanner.engine.engine import Engine
from kbplanner.engine.vectors import NearestSearch, Quantized, StoredVectors
from kbplugins.embedders.onnx import OnnxEmbedder

DIMENSION = 384
K = 128
REPEATS = 15
ENGINE = Engine()


def exact(vectors: StoredVectors, query: Quantized, positions: array[int], k: int) -> list[int]:
    """Return the positions nearest to a query, in pieces as the index searches them."""
    hits: list[tuple[float, int]] = []
    for start in range(0, len(positions), SEARCH_ROWS):
        search = NearestSearch(vectors.cells, vectors.factors, query, -1.0)
        piece = positions[start : start + SEARCH_ROWS]
        found, scores = ENGINE.nearest(search, piece, k)
        hits += [(-score, piece[at]) for at, score in zip(found, scores, strict=True)]
    return [position for _, position in sorted(hits)[:k]]


def chosen(
    of: signs.Signs, vectors: StoredVectors, query: Quantized, positions: array[int], count: int
) -> list[int]:
    """Return the nearest of the candidates."""
    candidates = of.candidates(ENGINE, query, positions, count, lambda: None)
    return exact(vectors, query, array("I", map(positions.__getitem__, candidates)), K)


def timed(run: Callable[[], object]) -> str:
    """Return the least and the middle time of some runs, of this process, in milliseconds."""
    seconds = []
    for _ in range(REPEATS):
        begun = time.process_time()
        run()
        seconds.append(time.process_time() - begun)
    return f"{1000 * min(seconds):.1f} ms, p50 {1000 * percentile(seconds, 0.5):.1f} ms"


def times(count: int) -> None:
    """Print the time of a search among random vectors."""
    draw = random.Random(1)
    cells = bytearray().join(draw.randbytes(DIMENSION * 1000) for _ in range(count // 1000))
    vectors = StoredVectors(cells, array("f", [0.001]) * (count // 1000 * 1000), DIMENSION)
    query = query_of(array("f", [draw.gauss(0, 1) for _ in range(DIMENSION)]))
    positions = array("I", range(len(vectors.factors)))
    of = signs.Signs(DIMENSION)
    begun = time.process_time()
    of.update(ENGINE, vectors, lambda: None)
    print(f"{len(positions):,} vectors: signs made in {time.process_time() - begun:.2f} s")
    print(f"  all vectors   {timed(lambda: exact(vectors, query, positions, K))}")
    candidates = signs.MIN_CANDIDATES
    print(f"  candidates    {timed(lambda: chosen(of, vectors, query, positions, candidates))}")


def recall(model: str, tokenizer: str, texts: int, shift: float) -> None:
    """Print the share of the ten nearest that are found with candidates of several lengths."""
    collection = glosses()
    if collection is None:
        raise SystemExit(f"{DATA} does not exist; KB_WORDNET names the folder")
    facts, _, examples = collection
    embedder = OnnxEmbedder(Path(model), Path(tokenizer))
    embedding = Embedding(embedder, SystemClock(), lambda call: call(), lambda size, done: None)
    chosen_facts = random.Random(1).sample(facts, texts)
    store = VectorStore(embedding.dimension, 1 << 34)
    for start in range(0, texts, 640):
        some = [f"{names} is {text}" for _, names, text in chosen_facts[start : start + 640]]
        for text, vector in zip(some, embedding.vectors(some), strict=True):
            store.add(entry_of(text, _shifted(vector, shift)))
    queries = [
        query_of(_shifted(vector, shift))
        for vector in embedding.vectors([text for text, _ in examples])
    ]
    store.signs.update(ENGINE, store.vectors, lambda: None)
    positions = array("I", range(len(store.factors)))
    nearest = [exact(store.vectors, query, positions, K) for query in queries]
    for divisor in (10, 25, 50, 100, 250, 500):
        count, found, all_found = len(positions) // divisor, 0, 0
        for query, best in zip(queries, nearest, strict=True):
            hits = set(chosen(store.signs, store.vectors, query, positions, count))
            found += len(hits.intersection(best[:10]))
            all_found += len(hits.intersection(best))
        print(
            f"{len(positions):,} vectors, {count:,} candidates (1 in {divisor}):"
            f" recall@10 {found / 10 / len(queries):.4f}, @{K} {all_found / K / len(queries):.4f}"
        )


def _shifted(vector: array[float], shift: float) -> array[float]:
    """Return a vector that has a share of one direction, as those of some models have."""
    numbers = [number + shift / len(vector) ** 0.5 for number in vector]
    length = sum(number * number for number in numbers) ** 0.5
    return array("f", [number / length for number in numbers])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--vectors", type=int, nargs="*", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--onnx", nargs=2, metavar=("MODEL", "TOKENIZER"))
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--shift", type=float, default=0.0, help="length of a common part")
    arguments = parser.parse_args()
    if arguments.onnx:
        recall(*arguments.onnx, arguments.texts, arguments.shift)
        return
    for count in arguments.vectors:
        times(count)


if __name__ == "__main__":
    main()
