"""kill -9 while vectors are saved and purged: the next start has intact ones, and none of purged
text.
"""

from __future__ import annotations

import random
import subprocess
import sys
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from support.embedders import Hashing, Plugin
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.search.vectors.index import VectorIndex
from kbcore.search.vectors.store import digest_of, entry_of
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget

SECRET = "zebulon"
ROUNDS = 40
TESTS = Path(__file__).resolve().parents[1]


def opened(folder: Path) -> Runtime:
    config = replace(BASE, storage_dir=str(folder), min_free_mb=0, embedder="hashing")
    return open_runtime(config, plugins=[Plugin(Hashing())], clock=ManualClock())


def write_until_killed(folder: Path) -> None:
    """Store facts, make their vectors and purge some of them; each round prints a line."""
    with opened(folder) as node:
        kb = node.knowledge_base()
        for number in range(ROUNDS):
            kb.assert_facts([Fact("likes", (SECRET, str(number)))])
            kb.assert_facts([Fact("owns", (f"p{number}", f"t{n}")) for n in range(10)])
            node.vectors.work()
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
            kb.purge(PurgeTarget(subject=SECRET))


def kill_rounds(folder: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    code = f"from durability.test_vector_kill import *; write_until_killed(Path({str(folder)!r}))"
    for _ in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(1 + chance.randrange(4)):
            assert child.stdout.readline()
        child.kill()
        child.wait()
        child.stdout.close()
        with opened(folder) as node:
            node.vectors.close()
            kb = node.knowledge_base()
            while node.vectors.work():
                pass
            assert kb.purge(PurgeTarget(subject=SECRET)).erased
            tenant = node.find_tenant("default", "default")
            index = VectorIndex.of(tenant)
            assert len(index.store) == tenant.facts() > 0
            texts = {f"p{n} owns t{at}" for n in range(ROUNDS) for at in range(10)}
            entries = {}
            for text in sorted(texts):
                vector = array("f", Hashing().vector(text))
                length = sum(number**2 for number in vector) ** 0.5
                scaled = array("f", [number / length for number in vector])
                entries[digest_of(text)] = entry_of(text, scaled)
            assert all(entry == entries[entry.digest] for entry in index.store.entries())
            secrets = [digest_of(f"{SECRET} likes {number}") for number in range(ROUNDS)]
            for path in folder.rglob("*"):
                if path.is_file():
                    data = path.read_bytes()
                    assert SECRET.encode() not in data
                    assert not any(secret in data for secret in secrets)


def test_saved_vectors_survive_kills(tmp_path: Path) -> None:
    kill_rounds(tmp_path, rounds=2, seed=1)


@pytest.mark.crash
def test_saved_vectors_survive_thirty_kills(tmp_path: Path) -> None:
    kill_rounds(tmp_path, rounds=30, seed=2)
