"""Thousands of malformed requests over sockets: no hangs, no internal errors, one shape of
errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import serve_in_memory
from support.malformed_requests import Maker, Outcome, send
from support.sockets import Running

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serve_in_memory(max_body_bytes=100_000, max_bulk_facts=50) as served:
        found = Running(served.app)
        yield found
        found.stop()


def run(running: Running, seed: int, numbers: range) -> Outcome:
    made, outcome = Maker(seed), Outcome()
    for number in numbers:
        send(running, made.make(number), outcome)
    assert json.loads(running.raw(HEALTH).split(b"\r\n\r\n", 1)[1])["status"] == "healthy"
    return outcome


def test_two_thousand_requests(running: Running) -> None:
    outcome = run(running, 1, range(2000))
    assert outcome.wrong == [], outcome.summary()
    assert outcome.answers[400] > 500
    assert len(outcome.answers) > 8  # they are malformed in many ways


@examples(150)
@given(seed=st.integers(2, 2**32), number=st.integers(0, 2**32))
def test_any_bytes(running: Running, seed: int, number: int) -> None:
    outcome = run(running, seed, range(number, number + 1))
    assert outcome.wrong == [], outcome.summary()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_requests(running: Running, part: int) -> None:
    outcome = run(
        running, int(os.environ.get("KB_SEED", "7")), range(part * 5000, (part + 1) * 5000)
    )
    print(outcome.summary())
    assert outcome.wrong == [], outcome.summary()
