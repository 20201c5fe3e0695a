"""The workers of a server: their processes, their tenants, and which of them holds a connection."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbcore.node.shard_layout import shard_of
from support.servers import Server

DEADLINE_S = 60

SHARDS = 16
"""Number of shards with STORAGE_SHARDS. Two workers have the same tenants with two shards."""

TIME_WAIT = "06"
"""State of a connection in /proc/net/tcp that both ends have closed."""


def children(server: Server) -> list[int]:
    """Process ids of the workers, in the order of their numbers."""
    pid = server.process.pid
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "--worker" in command:  # else it is just being started
            found[json.loads(command[command.index("--worker") + 1])["index"]] = int(child)
    return [found[index] for index in sorted(found)]


def both(server: Server) -> list[int]:
    """Process ids of the two workers, once both run."""
    found: list[int] = []

    def are_running() -> bool:
        found[:] = children(server)
        return len(found) == 2

    until(are_running, "both workers run")
    return found


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < end, what
        threading.Event().wait(0.02)
    return value


def owner(tenant: str, database: str = "default", workers: int = 2) -> int:
    return shard_of(database, tenant, SHARDS) % workers


def tenants_of(index: int, count: int = 4, workers: int = 2) -> list[str]:
    names = (f"t{number}" for number in range(1000))
    return [name for name in names if owner(name, workers=workers) == index][:count]


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Pause a process, so that the other worker accepts every connection."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def other_end(port: int) -> list[str]:
    """Inodes of the server's end of the connection from a client port; "0" before it is
    accepted.
    """
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [row[9] for row in rows if row[2].endswith(f":{port:04X}") and row[3] != TIME_WAIT]


def holders(server: Server, port: int) -> list[int]:
    """Numbers of the workers that have the connection from a client port open.

    Not [] while it waits to be accepted.
    """
    inodes = other_end(port)
    links = {f"socket:[{inode}]" for inode in inodes}
    workers = enumerate(children(server))
    found = [index for index, pid in workers if links & {link for _, link in descriptors(pid)}]
    return [-1, *found] if "0" in inodes else found


def watchers(server: Server, port: int) -> list[int]:
    """Numbers of the workers whose event loop is woken by a connection."""
    inodes = {f" ino:{int(inode):x} " for inode in other_end(port)}
    found = []
    for index, pid in enumerate(children(server)):
        for number, link in descriptors(pid):
            if link == "anon_inode:[eventpoll]":
                watched = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
                found += [index for inode in inodes if inode in watched]
    return found


def descriptors(pid: int) -> list[tuple[str, str]]:
    """Numbers and links of the open files of a process."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append((descriptor.name, os.readlink(descriptor)))
        except FileNotFoundError:  # it was closed
            continue
    return found
