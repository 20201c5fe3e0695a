"""A shard loses data only by a decision of the system shard, never because that does not know
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbcore.clock import LoggedClock, ManualClock
from kbcore.config import Config
from kbcore.errors import NotReady, UnknownDatabase
from kbcore.node.api_keys import first_admin
from kbcore.node.opening import open_runtime
from kbcore.node.other_processes import Directory
from kbcore.node.runtime import Runtime
from kbcore.node.shard import overdue
from kbcore.node.shard_layout import SYSTEM, shard_of
from kbcore.offline.migrate import check_storage, copy_storage
from kbcore.state.catalog import MAX_DROPS, Catalog, DatabaseEntry
from kbplanner.engine.engine import Engine

SHARDS = 2
CONFIG = Config(min_free_mb=0, storage_shards=SHARDS)


class OneOf:
    """The other process of two, as the one with the last shard sees it."""

    cluster = None

    def __init__(self, directory: Directory | None, index: int = 1) -> None:
        self._directory = directory
        self.owns = lambda shard: shard % 2 == index
        self.announced: list[Directory] = []

    def directory(self) -> Directory | None:
        return self._directory

    def announce(self, directory: Directory) -> None:
        self.announced.append(directory)

    def tenants(self) -> list[Any]:
        return []

    def health(self) -> list[dict[str, Any]]:
        return []


def opened(folder: Path, later_ms: int = 0, **peers: Any) -> Runtime:
    clock = ManualClock(1_700_000_000_000 + later_ms)
    return open_runtime(replace(CONFIG, storage_dir=str(folder)), clock=clock, **peers)


TENANTS = [name for name in (f"t{n}" for n in range(100)) if shard_of("shop", name, SHARDS) == 1][
    :3
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A storage with facts of the databases `default` and `shop` in its last shard."""
    with opened(tmp_path / "kb") as node:
        node.admin().create_database("shop")
        node.keys().create(first_admin("root"))
        for tenant in TENANTS:
            node.open(tenant, "shop").tell("p", [tenant])
    return tmp_path / "kb"


@pytest.fixture
def system(folder: Path) -> Directory:
    """What its system shard has decided."""
    with opened(folder) as node:
        return node.directory()


@pytest.fixture
def worker(folder: Path, system: Directory) -> Iterator[Runtime]:
    """The process with its last shard."""
    with opened(folder, peers=OneOf(system)) as node:
        assert list(node.shards) == [1]
        yield node


def facts(node: Runtime, tenant: str) -> list[Any]:
    return list(node.open(tenant, "shop").query("p(?x)"))


def later(directory: Directory, **changes: Any) -> Directory:
    return replace(directory, version=directory.version + 1, **changes)


def without(directory: Directory, name: str) -> tuple[tuple[str, int, int], ...]:
    return tuple(each for each in directory.databases if each[0] != name)


def test_a_database_that_a_directory_omits_is_hidden_and_comes_back(worker, system, caplog) -> None:
    before = [facts(worker, tenant) for tenant in TENANTS]
    assert all(before)
    omitting = later(system, databases=without(system, "shop"))
    worker.adopt(omitting)
    for tenant in TENANTS:
        with pytest.raises(UnknownDatabase):
            worker.open(tenant, "shop")
    assert [size.database for size in worker.sizes()] == []
    assert "shop" in caplog.text
    health = worker.own_health()
    assert (health["status"], health["checks"]["recovery"]["status"]) == ("degraded", "warn")
    worker.adopt(later(omitting, databases=system.databases))
    assert [facts(worker, tenant) for tenant in TENANTS] == before
    assert worker.own_health()["status"] == "healthy"


def test_a_directory_without_any_database_destroys_nothing(worker, system) -> None:
    before = [facts(worker, tenant) for tenant in TENANTS]
    empty = later(system, databases=(), drops=(), keys=(), keys_used=False)
    worker.adopt(empty)
    worker.adopt(later(empty, databases=system.databases))
    assert [facts(worker, tenant) for tenant in TENANTS] == before


@pytest.mark.parametrize("created", [-1, 1])
def test_a_database_with_another_creation_time_replaces_no_data(worker, system, created) -> None:
    before = [facts(worker, tenant) for tenant in TENANTS]
    databases = [
        (name, at + created if name == "shop" else at, emptied)
        for name, at, emptied in system.databases
    ]
    other = later(system, databases=tuple(databases))
    with pytest.raises(NotReady):
        worker.adopt(other)
    for tenant in TENANTS:
        with pytest.raises(UnknownDatabase):
            worker.open(tenant, "shop")
    worker.adopt(later(other, databases=system.databases))
    assert [facts(worker, tenant) for tenant in TENANTS] == before


def test_an_older_directory_changes_nothing(worker, system) -> None:
    before = [facts(worker, tenant) for tenant in TENANTS]
    worker.adopt(later(system))
    worker.adopt(replace(system, databases=(), drops=(("shop", 1 << 50),)))
    assert [facts(worker, tenant) for tenant in TENANTS] == before


def test_an_earlier_emptying_empties_nothing(worker, system) -> None:
    """As in a directory from before the last emptying, whatever its version says."""
    emptied = [
        (name, at, 5 if name == "shop" else emptied) for name, at, emptied in system.databases
    ]
    nuked = later(system, databases=tuple(emptied))
    worker.adopt(nuked)
    assert facts(worker, TENANTS[0]) == []
    worker.open(TENANTS[0], "shop").tell("p", ["new"])
    worker.adopt(later(nuked, databases=system.databases))
    assert len(facts(worker, TENANTS[0])) == 1


def test_a_recorded_drop_is_carried_out(worker, system) -> None:
    created = next(at for name, at, _ in system.databases if name == "shop")
    dropped = later(system, databases=without(system, "shop"), drops=(("shop", created),))
    worker.adopt(dropped)
    worker.adopt(later(dropped, databases=system.databases, drops=()))
    assert [facts(worker, tenant) for tenant in TENANTS] == [[], [], []]
    assert worker.own_health()["status"] == "healthy"


def test_the_process_that_decides_adopts_nothing(folder, system) -> None:
    with opened(folder, peers=OneOf(None, 0)) as node:
        before = node.directory()
        node.adopt(Directory(1 << 40, (), (("shop", 1 << 50),), True, ()))
        assert node.directory() == before


def lose_decision(folder: Path) -> None:
    """Remove the database `shop` from the system shard, as if its record had not reached the
    disk.
    """
    with opened(folder) as node:
        shard = node.shards[SYSTEM]
        del shard.catalog._databases["shop"]
        shard.snapshot()


def test_data_of_a_lost_decision_outlives_starts_snapshots_and_copies(folder, tmp_path) -> None:
    lose_decision(folder)
    for _ in range(2):
        with opened(folder) as node:
            assert [info.name for info in node.admin().databases()] == ["default"]
            with pytest.raises(UnknownDatabase):
                node.open(TENANTS[0], "shop")
            assert node.health()["status"] == "degraded"
            held = [tenant.name for tenant in node.shards[1].catalog.tenants()]
            assert sorted(held) == sorted(TENANTS)
            node.snapshot()
    assert check_storage(f"wal:{folder}", CONFIG).facts == 0
    copy_storage(f"wal:{folder}", f"wal:{tmp_path / 'copy'}", CONFIG, shards=1)
    assert check_storage(f"wal:{tmp_path / 'copy'}", CONFIG).facts == 0


def test_an_operator_removes_the_data_by_creating_and_deleting_the_database(folder) -> None:
    lose_decision(folder)
    with opened(folder, 1) as node:
        node.admin().create_database("shop")
        with pytest.raises(UnknownDatabase):  # the old facts do not come back
            node.open(TENANTS[0], "shop")
        node.admin().drop_database("shop")
        assert node.health()["status"] == "healthy"
        node.admin().create_database("shop")
        assert [facts(node, tenant) for tenant in TENANTS] == [[], [], []]
    with opened(folder) as node:
        assert [facts(node, tenant) for tenant in TENANTS] == [[], [], []]
        assert node.health()["status"] == "healthy"


def test_a_drop_that_only_a_snapshot_has_is_carried_out_after_a_crash(folder, monkeypatch) -> None:
    with opened(folder) as node:
        with monkeypatch.context() as patch:
            patch.setattr(node, "_align", lambda: None)
            node.admin().drop_database("shop")
        node.shards[SYSTEM].snapshot()
        assert [t.name for t in node.shards[1].catalog.tenants()]
    with opened(folder) as node:
        assert [t.name for t in node.shards[1].catalog.tenants()] == []
        assert node.health()["status"] == "healthy"


def test_drops_in_a_directory_pass_as_json(system) -> None:
    directory = replace(system, drops=(("a", 1), ("b", 2)))
    assert Directory.from_json(directory.to_json()) == directory


def catalog(*databases: DatabaseEntry, drops: dict[str, int] | None = None) -> Catalog:
    made = Catalog(Engine)
    made.mirror(databases, drops or {}, (), used=False)
    return made


def test_a_database_that_was_created_again_is_not_covered_by_the_drop_before() -> None:
    clock = LoggedClock(ManualClock())
    with open_runtime(Config(storage_backend="memory"), clock=ManualClock()) as node:
        admin = node.admin()
        times = []
        for _ in range(3):  # in the same millisecond
            admin.create_database("d")
            times.append(node.databases.database("d").created_at)
            admin.drop_database("d")
        assert times == sorted(set(times))
        assert node.databases.drops == {"d": times[-1]}
        assert times[0] == clock.now_ms()


def test_the_memory_of_drops_is_bounded_and_what_it_forgets_is_quarantined() -> None:
    system = catalog()
    for number in range(MAX_DROPS + 1):
        system.record_drop(f"d{number}", number)
    system.record_drop("d1", 0)  # an older one: the later time stays
    assert len(system.drops) == MAX_DROPS
    assert system.drops["d1"] == 1
    shard = catalog(
        DatabaseEntry("d0", 0),
        DatabaseEntry("d1", 1),
        DatabaseEntry("d2", 3),
        DatabaseEntry("e", 5),
    )
    for name in ("d0", "d1", "d2"):
        shard.need_tenant(name, "t", 7)
    changes, unknown = overdue(system, shard)
    assert unknown == {"d0", "d2"}
    assert sorted(change.database for change in changes) == ["d1", "e"]  # `e` has no data
