"""A damaged snapshot is replaced by an older state, and that shows; a start that replayed records
saves the next one from it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.runtimes import runtime

from kbcore.node.runtime import Runtime
from kbcore.state.facts import Fact
from kbserver import create_app


def opened(folder: Path, backend: str = "wal") -> Runtime:
    return runtime(folder, storage_backend=backend, sweep_interval_ms=0)


def tell(node: Runtime, name: str) -> None:
    node.knowledge_base("default", "t").assert_facts([Fact("p", (name,))])


def stored(node: Runtime) -> set[str]:
    rows = node.knowledge_base("default", "t").query_rows("p", ["a"])
    rows += node.knowledge_base("default", "t").query_rows("p", ["b"])
    return {row["args"][0] for row in rows}


def damaged_total(node: Runtime) -> float:
    lines = create_app(node).test_client().get("/metrics").text.splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith("svc_snapshots_damaged_total")]
    return float(value)


def damage(folder: Path, backend: str) -> None:
    if backend == "wal":
        newest = sorted(folder.glob("snap-*.kbs"))[-1]
        content = bytearray(newest.read_bytes())
        content[80] ^= 1
        newest.write_bytes(content)
        return
    with sqlite3.connect(folder / "kbcore.sqlite") as db:
        db.execute(
            "UPDATE chunks SET data = x'00' WHERE number = 0 AND snapshot = (SELECT max(id) FROM snapshots)"
        )
    db.close()


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_a_damaged_snapshot_shows_until_the_next_one(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend) as node:
        assert damaged_total(node) == 0
        assert node.health()["status"] == "healthy"
        tell(node, "a")
        node.snapshot()
        tell(node, "b")
    damage(tmp_path, backend)
    with opened(tmp_path, backend) as node:
        assert stored(node) == {"a", "b"}
        assert damaged_total(node) == 1
        health = node.health()
        assert (health["status"], health["writable"]) == ("degraded", True)
        assert health["checks"]["storage"]["status"] == "warn"
        assert "snapshot" in health["checks"]["storage"]["message"]
        node.snapshot()
        assert node.health()["status"] == "healthy"
        assert damaged_total(node) == 1, "a counter does not go back"
    with opened(tmp_path, backend) as node:
        assert damaged_total(node) == 0
        assert stored(node) == {"a", "b"}


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_a_start_that_replayed_takes_a_snapshot_at_the_stop(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend) as node:
        tell(node, "a")
        node.system.store.close(clean=False)
    with opened(tmp_path, backend) as node:
        assert node.recovered.records == 1
        assert node.log_status().snapshot == 0
    with opened(tmp_path, backend) as node:
        assert (node.recovered.records, node.recovered.snapshot) == (0, 1)
        before = snapshot_files(tmp_path)
    assert snapshot_files(tmp_path) == before, "nothing was replayed or written"


def snapshot_files(folder: Path) -> list[tuple[str, Any]]:
    return [(path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("snap-*.kbs"))]
