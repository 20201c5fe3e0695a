"""The fuzzers' corpus, including inputs of fixed bugs, without a fuzzer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz.targets import TARGETS

FILES = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_corpus(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_few_changes_of_each(path: Path) -> None:
    rng, sound = random.Random(path.name), path.read_bytes()
    for _ in range(20):
        data = bytearray(sound)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.choice((0, 1, 4))] = rng.randbytes(rng.choice((0, 1, 4)))
        TARGETS[path.parent.name](bytes(data))


def test_each_target_has_a_corpus() -> None:
    assert {path.parent.name for path in FILES} == set(TARGETS)
