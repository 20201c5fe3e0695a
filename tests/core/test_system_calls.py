"""System calls on platforms that lack some: the absence is simulated."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbcore import system_calls
from kbcore.clock import boot_seconds
from kbcore.config.lint import worker_problems
from kbcore.config.settings import Config
from kbcore.errors import ConfigError
from kbplugins.coordinator_file import FileCoordinator
from kbplugins.storage_wal.files import CREATE, Disk, OsFiles

F_FULLFSYNC = 51
"""The number of the command on macOS."""


@pytest.fixture
def fd(tmp_path: Path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that sync, in order; each is made as well."""
    made: list[str] = []

    def recorded(name: str, original: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            made.append(name)
            original(fd)

        return call

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    return made


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> Callable[[int], None]:
    """The calls that macOS lacks are missing; the function sets the error of F_FULLFSYNC."""
    errors: list[int] = []

    def control(fd: int, command: int, *rest: object) -> int:
        assert command == F_FULLFSYNC
        calls.append("F_FULLFSYNC")
        if errors:
            raise OSError(errors[0], os.strerror(errors[0]))
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    for module, name in (
        (os, "fdatasync"),
        (os, "posix_fallocate"),
        (os, "sched_getaffinity"),
        (time, "CLOCK_BOOTTIME"),
    ):
        monkeypatch.delattr(module, name)
    return errors.append


def test_linux_uses_its_own_calls(fd: int, calls: list[str], tmp_path: Path) -> None:
    system_calls.sync_content(fd)
    system_calls.sync_file(fd)
    system_calls.sync_folder(tmp_path)
    assert calls == ["fdatasync", "fsync", "fsync"]
    system_calls.allocate(fd, 5000)
    assert os.fstat(fd).st_size == 5000
    assert system_calls.available_cores() == len(os.sched_getaffinity(0))
    assert abs(boot_seconds() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert system_calls.boot_id()
    assert list(worker_problems(Config(workers=2))) == []


def test_macos_empties_the_memory_of_the_drive(
    fd: int, calls: list[str], macos: Callable[[int], None], tmp_path: Path
) -> None:
    system_calls.sync_content(fd)
    system_calls.sync_file(fd)
    system_calls.sync_folder(tmp_path)
    assert calls == ["F_FULLFSYNC"] * 3


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_that_does_not_know_it_gets_fsync(
    fd: int, calls: list[str], macos: Callable[[int], None], error: int
) -> None:
    macos(error)
    system_calls.sync_content(fd)
    assert calls == ["F_FULLFSYNC", "fsync"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_of_the_disk_is_not_repeated_in_another_way(
    fd: int, calls: list[str], macos: Callable[[int], None], error: int
) -> None:
    """After a failed sync the kernel may have dropped the pages, so another one proves nothing."""
    macos(error)
    with pytest.raises(OSError, match=os.strerror(error)):
        system_calls.sync_content(fd)
    assert calls == ["F_FULLFSYNC"]


def test_space_that_cannot_be_allocated_is_no_error_of_the_disk(
    macos: Callable[[int], None], tmp_path: Path
) -> None:
    disk = Disk(OsFiles(), str(tmp_path))
    fd = disk.open("segment", CREATE)
    assert disk.allocate("segment", fd, 5000) is False
    assert disk.size("segment", fd) == 0
    disk.close(fd)


def test_without_a_clock_of_the_boot_the_monotonic_one_counts(
    macos: Callable[[int], None],
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    now = system_calls.boot_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def test_without_affinity_all_cores_count(macos: Callable[[int], None]) -> None:
    assert system_calls.available_cores() == os.cpu_count()


def test_workers_are_refused_with_a_reason(macos: Callable[[int], None]) -> None:
    assert list(worker_problems(Config(workers=1))) == []
    (problem,) = worker_problems(Config(workers=2))
    assert problem.startswith("WORKERS=2: several server processes need Linux")


def test_leases_in_a_folder_are_refused_with_a_reason(
    macos: Callable[[int], None], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"needs Linux.*use etcd or PostgreSQL"):
        FileCoordinator(f"file:{tmp_path}/leases")
    assert not (tmp_path / "leases").exists()
