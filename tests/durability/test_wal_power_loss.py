"""Power losses at random points of random workloads, several times on the same folder."""

from __future__ import annotations

import random

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import Books


def life(seed, policy="always"):
    """One workload that is cut off at a random call; the books and what the machine finds."""
    rng = random.Random(seed)
    files = FaultyFiles(at=rng.randrange(20, 400), fault="crash")
    books = Books()
    books.run(files, seed=seed, steps=30, close=False, fsync_policy=policy)
    return files, books, rng


def survive(seeds, policy="always"):
    for seed in seeds:
        files, books, rng = life(seed, policy)
        mode = rng.choice(("dropped", "kept", "torn", "torn"))
        # A second cut, without any more writes, must not take what the first start served.
        once = files.power_cut(rng, mode)
        books.check(once)
        books.check(once.power_cut(rng, "dropped"))


def test_nothing_acknowledged_is_lost() -> None:
    survive(range(150))


def test_under_never_a_power_loss_may_shorten_the_log_but_a_start_succeeds() -> None:
    survive(range(1000, 1100), "never")


def test_a_power_loss_during_recovery() -> None:
    for seed in range(60):
        files, books, rng = life(seed)
        found = files.power_cut(rng)
        for at in range(1, 200, 7):
            again = found.copy()
            again.at, again.fault = at, "crash"
            books_again = Books()
            books_again.run(again, steps=0, close=False)
            if not again.crashed:
                break
            found = again.power_cut(rng)
        books.check(found)


@pytest.mark.slow
def test_many_power_losses() -> None:
    survive(range(10_000, 13_000))
