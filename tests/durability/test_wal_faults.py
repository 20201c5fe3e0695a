"""Every n-th file call fails in turn: no acknowledged record is lost."""

from __future__ import annotations

import random
from contextlib import nullcontext

import pytest
from support.faulty_files import FaultyFiles
from support.log_model import Books, calls_of_a_clean_run, encrypted_logs


@pytest.fixture(scope="module", params=["plain", "encrypted"], autouse=True)
def calls(request, tmp_path_factory):
    """The number of file calls of a run; every test runs on plain and on encrypted logs."""
    encrypted = request.param == "encrypted"
    folder = tmp_path_factory.mktemp("keys")
    with encrypted_logs(folder) if encrypted else nullcontext():
        yield calls_of_a_clean_run()


def faulty_run(at, fault, *, sticky=False):
    files = FaultyFiles(at=at, fault=fault, sticky=sticky)
    books = Books()
    books.run(files)
    return files, books


@pytest.mark.parametrize("fault", ["ENOSPC", "EDQUOT", "EIO", "short", "EINTR"])
def test_one_call_fails(fault, calls) -> None:
    for at in range(1, calls + 1):
        files, books = faulty_run(at, fault)
        if fault == "EINTR":
            assert books.acknowledged == len(books.accepted), files.trace[at - 1]
            assert not books.refused
        if files.hit in ("fsync", "fdatasync") and fault != "EINTR":
            assert len(files.trace) - at < 12, "work went on after a failed sync"
        after = files.killed()
        books.check(after)
        # What a failed sync left in the cache only was copied and synced by that start: now the
        # power may go.
        books.check(after.power_cut(random.Random(at), "dropped"))


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_all_calls_fail_from_one_on(fault, calls) -> None:
    for at in range(1, calls + 1, 2):
        files, books = faulty_run(at, fault, sticky=True)
        books.check(files.killed())


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "short"])
def test_one_call_fails_before_a_power_loss(fault, calls) -> None:
    for at in range(1, calls + 1):
        files, books = faulty_run(at, fault)
        books.check(files.power_cut(random.Random(at)))


def test_a_kill_between_any_two_calls(calls) -> None:
    for at in range(1, calls + 1):
        files, books = faulty_run(at, "crash")
        books.check(files.killed())


@pytest.mark.parametrize("mode", ["dropped", "kept", "torn"])
def test_a_power_loss_between_any_two_calls(mode, calls) -> None:
    for at in range(1, calls + 1):
        files, books = faulty_run(at, "crash")
        books.check(files.power_cut(random.Random(at), mode))
