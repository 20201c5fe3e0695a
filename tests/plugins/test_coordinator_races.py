"""Processes that are stopped at random points never hold the same lease at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

from kbcore import open_coordinator

PROCESSES = 4
SECONDS = 6.0
MIN_LEASES = 20


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _hold_again_and_again(url: str, out: Path, seed: int) -> None:
    """Write the token of each lease, and the time in which this process may rely on it."""
    choose = random.Random(seed)
    coordinator = open_coordinator(url)
    end = _now() + SECONDS
    with out.open("w") as file:
        while _now() < end:
            ttl_ms = choose.choice((5, 20, 50))
            asked = _now()
            lease = coordinator.acquire("name", ttl_ms, b"")
            if lease is None:
                continue
            start, until = _now(), asked + ttl_ms / 1000
            for _ in range(choose.randrange(4)):
                asked = _now()
                if not coordinator.renew(lease):
                    break
                until = asked + ttl_ms / 1000
            stop = min(until, _now())
            if choose.random() < 0.6:
                coordinator.release(lease)
            file.write(json.dumps([lease.token, start, stop]) + "\n")


def _stop_at_random(processes) -> None:
    choose = random.Random(1)
    pause = threading.Event()
    while any(process.is_alive() for process in processes):
        process = choose.choice(processes)
        if process.is_alive():
            os.kill(process.pid, signal.SIGSTOP)
            pause.wait(choose.random() * 0.06)
            os.kill(process.pid, signal.SIGCONT)
        pause.wait(choose.random() * 0.02)


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_holders_never_overlap(kind: str, tmp_path: Path, request) -> None:
    url = f"file:{tmp_path}/x" if kind == "file" else request.getfixturevalue("postgres_url")
    context = multiprocessing.get_context("fork")
    outputs = [tmp_path / f"{number}.jsonl" for number in range(PROCESSES)]
    processes = [
        context.Process(target=_hold_again_and_again, args=(url, out, seed), daemon=True)
        for seed, out in enumerate(outputs)
    ]
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; the children use nothing that they may have locked.
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in processes:
            process.start()
    _stop_at_random(processes)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    leases = sorted(json.loads(line) for out in outputs for line in out.read_text().splitlines())
    assert len(leases) >= MIN_LEASES
    assert len({token for token, _, _ in leases}) == len(leases)
    # A process that was stopped right after it acquired the name relied on the lease at no time.
    held = [lease for lease in leases if lease[1] < lease[2]]
    for before, after in pairwise(held):
        assert before[2] <= after[1], (before, after)
