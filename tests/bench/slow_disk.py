"""Group commit on a disk whose sync takes long: a real server whose log waits before each sync
returns.

    python tests/bench/slow_disk.py [MILLISECONDS]

Durable /tell at 1 and 32 connections beside the rate at which that disk syncs one write after the
other. A workload of the table, and a program of its own for other disks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from http_routes import HOST, Server, drive, sync_rate, tells
from measure import FULL, Effort
from table import Row, table

from kbcore import Config, hookimpl
from kbcore.plug.ports import LogStore
from kbplugins.storage_wal import kb_storage_backends as wal_backends


class SlowDisk:
    """The durable log on a disk that takes `ms` milliseconds longer to sync."""

    def __init__(self, ms: float) -> None:
        self._seconds = ms / 1000

    @hookimpl
    def kb_storage_backends(self, config: Config) -> Mapping[str, Callable[[Config], LogStore]]:
        """Offer it as `slow`."""

        def make(config: Config) -> LogStore:
            store = wal_backends(config)["wal"](config)
            sync = store.sync

            def slow_sync() -> None:
                sync()
                wait(self._seconds)

            store.sync = slow_sync  # type: ignore[method-assign]
            return store

        return {"slow": make}


def wait(seconds: float) -> None:
    """Stand still in this thread, as a disk would; the pool thread knows no event loop."""
    from gevent import monkey

    monkey.get_original("time", "sleep")(seconds)


class SlowServer(Server):
    """A server on a slow disk."""

    def __init__(self, folder: str, ms: float) -> None:
        self._log = Path(f"{folder}.log").open("w")  # noqa: SIM115 - closed with the server
        command = [sys.executable, __file__, "--serve", folder, str(ms)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env={**os.environ}
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().strip().rsplit(":", 1)[1])


def serve(folder: str, ms: float) -> int:
    from gevent import monkey

    monkey.patch_all()
    from kbserver.serve import run

    config = replace(
        Config(), host=HOST, port=0, storage_dir=folder, storage_backend="slow", log_level="ERROR"
    )
    return run(config, plugins=[SlowDisk(ms)])


def on_a_slow_disk(effort: Effort, peers: object = None, ms: float = 3.0) -> Iterator[Row]:
    """A row for each number of connections."""
    with tempfile.TemporaryDirectory() as scratch:
        server = SlowServer(f"{scratch}/kb", ms)
        try:
            for connections in (1, 32):
                single = sync_rate(scratch, 0.2 if effort.small else 1.0, lambda: wait(ms / 1000))
                load = drive(server, tells(), connections, 0.2 if effort.small else 3.0, 100_000)
                times = load.rate / single
                size = f"{len(load.latencies):,} requests"
                row = Row(
                    f"http /tell, {connections} conn, sync of {ms:g} ms",
                    size,
                    None,
                    f"{load.rate:,.0f} /s",
                )
                row.ratio = f"{times:.3g} × the {single:,.0f} single syncs/s"
                if connections > 1:
                    row.floor, row.met = "≥ 10 × single syncs", times >= 10
                yield row
        finally:
            server.close()


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        return serve(sys.argv[2], float(sys.argv[3]))
    print(table([*on_a_slow_disk(FULL, ms=float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
