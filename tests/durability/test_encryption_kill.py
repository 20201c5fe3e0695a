"""kill -9 with encryption: of a server, and of `kbcore encryption enable` at any file call."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.encryption import with_key
from support.kill_writers import kill_rounds
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.node.opening import open_runtime
from kbcore.offline.encryption import enable
from kbcore.state.facts import Fact

ENABLE = """
import os, signal, sys
from dataclasses import replace
from kbcore.config import Config
from kbcore.offline.encryption import enable
from kbplugins.storage_wal.files import OsFiles
folder, key, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0
def counting(call):
    def counted(*args):
        global calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return counted
for name in ("open", "pwrite", "fsync", "fdatasync", "rename", "unlink", "truncate", "allocate"):
    setattr(OsFiles, name, counting(getattr(OsFiles, name)))
enable(replace(Config(), storage_dir=folder, encryption_key_file=key, min_free_mb=0, wal_segment_mb=1))
print(calls)
"""
TENANTS = [f"tenant-{n}" for n in range(6)]


def holds(folder: Path, text: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_nothing_acknowledged_is_lost_or_readable_after_kills(tmp_path, backend) -> None:
    key = with_key(Config(), str(tmp_path / "keys")).encryption_key_file
    settings = {
        "ENCRYPTION_KEY_FILE": key,
        "ENCRYPTION_KEYS_DIR": str(tmp_path / "keys"),
        "STORAGE_URL": f"{backend}:{tmp_path / 'data' / backend}",
    }
    (tmp_path / "data").mkdir()
    assert kill_rounds(tmp_path / "data", rounds=2, seed=1, **settings) > 120
    assert holds(tmp_path / "data", b'"bulk"') == []
    assert holds(tmp_path / "data", b"default") == []


def config_of(folder: Path, **settings: object) -> Config:
    return replace(BASE, storage_dir=str(folder), min_free_mb=0, wal_segment_mb=1, **settings)


def facts(config: Config) -> int:
    with open_runtime(config, clock=ManualClock()) as node:
        return sum(
            len(node.knowledge_base(tenant=tenant).query_rows("p", (tenant,))) for tenant in TENANTS
        )


@pytest.mark.parametrize("shards", [1, 3])
def test_a_killed_enable_leaves_a_folder_that_a_second_one_completes(tmp_path, shards) -> None:
    plain = config_of(tmp_path / "data", storage_shards=shards)
    with open_runtime(plain, clock=ManualClock()) as node:
        for tenant in TENANTS:
            node.knowledge_base(tenant=tenant).assert_facts([Fact("p", (tenant,))])
    key = with_key(Config(), str(tmp_path)).encryption_key_file

    def run(folder: Path, at: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ENABLE, str(folder), key, str(at)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path)},
        )

    shutil.copytree(tmp_path / "data", tmp_path / "whole")
    calls = int(run(tmp_path / "whole", 0).stdout)
    assert calls > 20
    for at in random.Random(shards).sample(range(1, calls + 1), 6):
        folder = tmp_path / f"killed-{at}"
        shutil.copytree(tmp_path / "data", folder)
        assert run(folder, at).returncode == -signal.SIGKILL
        keyed = config_of(folder, encryption_key_file=key)
        outcomes = []
        for settings in (keyed, config_of(folder)):
            try:
                outcomes.append(facts(settings))
            except ConfigError:
                continue
        assert set(outcomes) <= {len(TENANTS)}
        enable(keyed)
        assert facts(keyed) == len(TENANTS)
        assert holds(folder, b"tenant-") == []
