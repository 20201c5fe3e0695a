"""The durable log meets the contract and is offered by its hook."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from support.encryption import encrypted

from kbcore.config import Config
from kbcore.errors import StorageBusy
from kbcore.plug.conformance import LogStoreConformance, LogStoreFaultConformance
from kbcore.plug.ports import LogStore
from kbplugins import storage_wal
from kbplugins.storage_wal import WalStore


class TestWal(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return WalStore(config)


class TestWalFaults(LogStoreFaultConformance):
    def make_store(self, config: Config) -> LogStore:
        return WalStore(config)


class TestWalEncrypted(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return encrypted(WalStore, config)


class TestWalEncryptedFaults(LogStoreFaultConformance):
    def make_store(self, config: Config) -> LogStore:
        return encrypted(WalStore, config)


class TestWalInterval(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return WalStore(replace(config, fsync_policy="interval", fsync_interval_ms=3_600_000))

    @pytest.mark.skip(reason="interval syncs later")
    def test_sync_makes_the_head_durable(self, config: Config) -> None: ...


class TestWalNever(LogStoreConformance):
    def make_store(self, config: Config) -> LogStore:
        return WalStore(replace(config, fsync_policy="never"))

    @pytest.mark.skip(reason="the kernel decides when to sync")
    def test_sync_makes_the_head_durable(self, config: Config) -> None: ...


def test_the_hook_offers_wal() -> None:
    assert storage_wal.kb_storage_backends(config=Config()) == {"wal": WalStore}


def test_another_process_is_named(tmp_path) -> None:
    config = Config(storage_dir=str(tmp_path), min_free_mb=0, wal_segment_mb=1)
    code = (
        "import sys; from kbcore.config import Config; from kbplugins.storage_wal import WalStore\n"
        f"store = WalStore(Config(storage_dir={str(tmp_path)!r}, min_free_mb=0, wal_segment_mb=1))\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StorageBusy, match=f"pid {other.pid} on "):
            WalStore(config)
        other.kill()  # the kernel frees the lock, however the holder ends
        other.wait()
        WalStore(config).close()
