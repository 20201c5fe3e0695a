"""A node of a cluster reads an encrypted log along, and opens it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.encryption import with_key
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.durable.recovery import recover
from kbcore.errors import LogCorrupted
from kbcore.node.opening import open_runtime
from kbcore.node.shard import new_catalog
from kbcore.plug.manager import Plugins
from kbcore.state.facts import Fact
from kbserver.cluster.joining import ClusterLogs

TENANTS = [f"tenant-{n}" for n in range(6)]


def test_a_shard_is_read_along_and_taken_over(tmp_path: Path, postgres_url: str) -> None:
    plain = replace(BASE, storage_backend="postgres", storage_url=postgres_url, storage_shards=2)
    config = replace(with_key(plain, str(tmp_path)), encryption_keys_dir=str(tmp_path / "keys"))
    with open_runtime(config, clock=ManualClock()) as node:
        for tenant in TENANTS:
            node.knowledge_base(tenant=tenant).assert_facts([Fact("p", (tenant,))])
        node.snapshot()
        for tenant in TENANTS:
            node.knowledge_base(tenant=tenant).assert_facts([Fact("q", (tenant,))])
    logs = ClusterLogs(config, Plugins(config))
    facts = 0
    for shard in range(2):
        reader = logs.reader(shard)
        catalog = new_catalog(config)
        recover(reader, catalog)
        facts += sum(tenant.facts() for tenant in catalog.tenants())
        catalog.close()
        store = reader.open()
        reader.close()
        assert store.append([(1, 13, b'{"at":1,"db":"default","tenant":"t","changes":[]}')])
        store.close()
    assert facts == 2 * len(TENANTS)
    reader = ClusterLogs(plain, Plugins(plain)).reader(0)
    catalog = new_catalog(plain)
    with pytest.raises(LogCorrupted):  # the node then opens the log, which names the missing key
        recover(reader, catalog)
    catalog.close()
    reader.close()
