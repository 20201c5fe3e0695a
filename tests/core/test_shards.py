"""Shards: placement, the same answers as one log, crashes between shards, opening, and tools."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.content import content
from support.http import Client, ForgetfulPlugin
from support.runtimes import runtime

import kbcore
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import (
    AlreadyExists,
    ConfigError,
    LogCorrupted,
    StorageFailed,
    StorageFull,
    UnknownDatabase,
)
from kbcore.node.api_keys import KeyWanted
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.node.shard_layout import shard_of
from kbcore.offline.migrate import check_storage, copy_storage
from kbcore.offline.rescue import (
    backup_storage,
    check_folder,
    keep,
    restore_file,
    running_backup,
    salvage_folder,
)
from kbcore.plug.manager import Plugins
from kbserver import create_app

SMALL = Config(min_free_mb=0, wal_segment_mb=1, fsync_policy="never")


def opened(folder: Path, shards: int = 0, **settings: object) -> Runtime:
    settings = {"fsync_policy": "never", "wal_segment_mb": 1, **settings}
    return runtime(folder, storage_shards=shards, **settings)


def crash(node: Runtime) -> None:
    """Close a node as a kill would: no snapshots, no clean flag."""
    node._failed = StorageFailed("killed")
    node.close()


def fill(node: Runtime, tenants: int = 12) -> None:
    for number in range(tenants):
        database = ("default", "other")[number % 2]
        if database == "other" and number == 1:
            node.admin().create_database("other")
        kb = node.open(f"t{number}", database)
        kb.tell_many("p", [(row, number) for row in range(number + 1)])
        kb.teach("q(?x) :- p(?x, ?y).")
        kb.tell("p", ["in", "s"], scope="s", confidence=0.5, metadata={"k": 1})


def test_the_placement_of_tenants_never_changes() -> None:
    assert [shard_of("default", name, 64) for name in ("default", "t", "acme", "é", "")] == [
        55,
        43,
        42,
        43,
        22,
    ]
    assert [shard_of("other", f"t{number}", 5) for number in range(8)] == [3, 0, 0, 3, 3, 2, 3, 1]
    assert shard_of("any", "tenant", 1) == 0
    assert shard_of("ab", "c", 1 << 30) != shard_of("a", "bc", 1 << 30)


def perform(node: Runtime, seed: int) -> list[object]:
    """Run random operations of many tenants, and return what each answered."""
    rng = random.Random(seed)
    answers: list[object] = []

    def attempt(operation):
        try:
            answers.append(operation())
        except kbcore.KBError as error:
            answers.append((type(error).__name__, error.message))

    admin = node.admin()
    for number in range(120):
        database = rng.choice(("default", "a", "b"))
        tenant = f"t{rng.randrange(9)}"
        if rng.random() < 0.25:
            attempt(
                rng.choice(
                    (
                        lambda d=database: admin.create_database(d),
                        lambda d=database: admin.drop_database(d),
                        lambda d=database: admin.nuke_database(d),
                        lambda d=database, t=tenant: admin.create_tenant(d, t),
                        lambda d=database, t=tenant: admin.drop_tenant(d, t),
                        lambda d=database, t=tenant: admin.nuke_tenant(d, t),
                    )
                )
            )
            attempt(admin.databases)
            attempt(lambda d=database: admin.tenants(d))
            continue

        def write(d=database, t=tenant, n=number) -> object:
            kb = node.open(t, d)
            kb.tell("p", [n % 7, n])
            with kb.transaction() as tx:
                tx.tell("p", [n % 5, "tx"])
                if n % 3 == 0:
                    tx.retract("p", [n % 7, "?x"])
            return sorted(kb.ask("p(?x, ?y)"))

        attempt(write)
    answers.append(content(node))
    return answers


@pytest.mark.parametrize("seed", range(3))
def test_operations_answer_the_same_on_one_and_on_five_shards(seed) -> None:
    answers = []
    for shards in (1, 5):
        with runtime(storage_shards=shards, sweep_interval_ms=0) as node:
            assert len(node.shards) == shards
            answers.append(perform(node, seed))
    assert answers[0] == answers[1]
    assert any(isinstance(answer, tuple) for answer in answers[0])


def test_a_storage_with_shards_is_reopened_as_it_was_created(tmp_path) -> None:
    with opened(tmp_path, 4) as node:
        fill(node)
        key = node.keys().create(KeyWanted("k", "admin"))
        before = content(node)
        assert sum(bool(list(shard.catalog.tenants())) for shard in node.shards.values()) > 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "SHARDS",
        *(f"shard-{number:03d}" for number in range(4)),
    ]
    with opened(tmp_path) as node:
        assert len(node.shards) == 4
        assert content(node) == before
        assert node.keys().verify(key.secret) is not None
        node.open("t3", "other").tell("p", ["later", 1])
        after = content(node)
        crash(node)
    with opened(tmp_path, 4) as node:
        assert content(node) == after
        assert node.recovered.records == 1


def test_one_log_keeps_its_layout(tmp_path) -> None:
    with opened(tmp_path) as node:
        fill(node, 2)
    assert (tmp_path / "MANIFEST").exists()
    assert not list(tmp_path.glob("[Ss][Hh]*"))


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_another_number_of_shards_is_refused_and_names_both(tmp_path, backend) -> None:
    for name, created, wanted in (("one", 1, 4), ("four", 4, 2)):
        config = replace(
            SMALL,
            storage_backend=backend,
            storage_dir=str(tmp_path / name),
            storage_shards=created,
        )
        open_runtime(config).close()
        with pytest.raises(ConfigError, match=f"STORAGE_SHARDS={wanted}, but .* has {created} sh"):
            open_runtime(replace(config, storage_shards=wanted))
        with open_runtime(replace(config, storage_shards=0)) as node:
            assert len(node.shards) == created


def test_the_hook_kb_storage_shards_offers_places_of_the_built_in_storages() -> None:
    plugins = Plugins(Config())
    offers = {
        each for name in plugins.names() for each in plugins.offers(name, "kb_storage_shards")
    }
    assert sorted(offers) == ["memory", "postgres", "sqlite", "wal"]
    assert Plugins(replace(SMALL, storage_backend="none")).shard_places() is None


def test_a_backend_without_shards_and_replication_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="STORAGE_SHARDS=2: STORAGE_BACKEND=forgetful has one"):
        open_runtime(
            Config(storage_backend="forgetful", storage_shards=2), plugins=(ForgetfulPlugin(),)
        )
    opened(tmp_path, 2).close()
    with pytest.raises(ConfigError, match="REPLICATION_MODE=LEADER: the storage has 2 shards"):
        opened(tmp_path, replication_mode="LEADER", fsync_policy="always")


def test_a_missing_exchanged_or_unlisted_shard_is_refused(tmp_path) -> None:
    for name in ("a", "b"):
        with opened(tmp_path / name, 3) as node:
            fill(node)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    shutil.rmtree(tmp_path / "a" / "shard-001")
    with pytest.raises(LogCorrupted, match="shard 1 is missing"):
        opened(tmp_path / "a")
    shutil.copytree(tmp_path / "b" / "shard-001", tmp_path / "a" / "shard-001")
    with pytest.raises(LogCorrupted, match=r"shard 1 of .* is of another storage"):
        opened(tmp_path / "a")
    (tmp_path / "c" / "SHARDS").unlink()
    with pytest.raises(LogCorrupted, match="SHARDS: damaged: it is missing"):
        opened(tmp_path / "c")
    assert not check_folder(str(tmp_path / "c"), SMALL)["sound"]
    (tmp_path / "b" / "SHARDS").write_bytes(b"KBSHARDS 1\n{}\n00000000\n")
    with pytest.raises(LogCorrupted, match="its checksum is wrong"):
        opened(tmp_path / "b")


def test_a_crash_while_a_storage_is_created_is_finished_by_the_next_start(
    tmp_path, monkeypatch
) -> None:
    from kbplugins.storage_wal.shards import WalShards

    record, calls = WalShards.record, []

    def fail_second(self, config, log_ids):
        calls.append(log_ids)
        if len(calls) == 2:
            raise StorageFailed("killed")
        record(self, config, log_ids)

    monkeypatch.setattr(WalShards, "record", fail_second)
    with pytest.raises(StorageFailed):
        opened(tmp_path, 3)
    monkeypatch.undo()
    with opened(tmp_path) as node:
        assert len(node.shards) == 3
        fill(node)


@pytest.mark.parametrize("reached", [0, 1, 3])
@pytest.mark.parametrize("action", ["drop", "nuke", "recreate"])
def test_a_crash_between_the_shards_of_a_drop_leaves_no_data(
    tmp_path, monkeypatch, reached, action
) -> None:
    """The system shard has decided; `reached` other shards have followed before the crash."""
    node = opened(tmp_path, 5)
    fill(node, 30)
    kept = content(node)["default"]
    commits, committer = [], type(node.system.committer)
    commit = committer.commit

    def counted(self, changes):
        if self is not node.system.committer:
            if len(commits) == reached:
                raise StorageFailed("killed")
            commits.append(changes)
        return commit(self, changes)

    monkeypatch.setattr(committer, "commit", counted)
    admin = node.admin()
    with pytest.raises(StorageFailed):
        (admin.nuke_database if action == "nuke" else admin.drop_database)("other")
    monkeypatch.undo()
    if action == "recreate":  # as if the records of the drops had not reached the disk
        assert "other" in {
            database.name
            for shard in node.shards.values()
            for database in shard.catalog.databases()
        }
        node.clock.seen(node.clock.now_ms() + 1)
        with monkeypatch.context() as patch:
            patch.setattr(node, "_align", lambda: None)
            admin.create_database("other")
    crash(node)
    with opened(tmp_path) as node:
        after = content(node)
        assert after["default"] == kept
        if action == "drop":
            assert "other" not in after
            for number in range(1, 30, 2):
                with pytest.raises(UnknownDatabase):
                    node.open(f"t{number}", "other")
        elif action == "nuke":
            assert sorted(after["other"]["tenants"]) == sorted(
                f"t{number}" for number in range(1, 30, 2)
            )
            assert not any(tenant["facts"] for tenant in after["other"]["tenants"].values())
        else:
            assert after["other"]["tenants"] == {}
            node.open("t1", "other").tell("p", ["new"])


def test_a_database_that_a_full_shard_does_not_have_yet_follows_later(
    tmp_path, monkeypatch
) -> None:
    with opened(tmp_path, 2) as node:
        other = next(shard for shard in node.shards.values() if shard is not node.system)
        with monkeypatch.context() as patch:
            patch.setattr(other.store, "append", _full)
            node.admin().create_database("late")
            assert node._not_aligned
        node.align_again()
        assert not node._not_aligned
        for number in range(8):
            node.open(f"t{number}", "late").tell("p", [number])
        assert len(node.admin().tenants("late")) == 8


def _full(records: object) -> int:
    raise StorageFull("the disk is full")


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_copies_with_other_numbers_of_shards_are_equal(tmp_path, backend) -> None:
    urls = [f"{backend}:{tmp_path / name}" for name in ("one", "four", "two", "again")]
    config = SMALL.updated({"STORAGE_URL": urls[0]})
    with open_runtime(config, clock=ManualClock(1_700_000_000_000)) as node:
        fill(node)
        node.admin().create_database("empty")
        node.admin().nuke_tenant("other", "t1")
        node.admin().nuke_database("other")
        node.open("t1", "other").tell("p", ["again"])
        node.keys().create(KeyWanted("k", "reader"))
        before, head = content(node), node.log_head()
    contents = check_storage(urls[0], SMALL)
    for source, target, shards in ((0, 1, 4), (1, 2, 2), (2, 3, 1)):
        copied = copy_storage(urls[source], urls[target], SMALL, shards=shards)
        assert (copied.shards, copied.facts, copied.head) == (shards, contents.facts, head)
        assert copied == check_storage(urls[target], SMALL)
        with open_runtime(SMALL.updated({"STORAGE_URL": urls[target]})) as node:
            assert content(node) == before
            assert len(node.keys()) == 1
            assert node.log_head("other", "t1") >= head
    same = copy_storage(urls[1], f"{backend}:{tmp_path / 'same'}", SMALL)
    assert same.shards == 4
    with pytest.raises(ConfigError, match="has 4 shards"):
        copy_storage(urls[0], urls[1], SMALL)
    with pytest.raises(AlreadyExists, match="is not empty"):
        copy_storage(urls[0], urls[1], SMALL, shards=4)


def test_shards_in_postgres_are_schemas(postgres_url, tmp_path) -> None:
    config = replace(SMALL.updated({"STORAGE_URL": postgres_url}), storage_shards=3)
    with open_runtime(config) as node:
        fill(node)
        before = content(node)
    with pytest.raises(ConfigError, match=r"STORAGE_SHARDS=2, but .* has 3 shards"):
        open_runtime(replace(config, storage_shards=2))
    with open_runtime(replace(config, storage_shards=0)) as node:
        assert content(node) == before
    copied = copy_storage(postgres_url, f"wal:{tmp_path / 'wal'}", SMALL, shards=1)
    assert copied.digest == check_storage(postgres_url, SMALL).digest


def damage(folder: Path) -> None:
    """Flip a byte of the newest snapshot; without an older one it is all there is."""
    (snapshot,) = folder.glob("snap-*.kbs")
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.write_bytes(data)
    for segment in folder.glob("wal-*.log"):
        segment.unlink()


def test_fsck_names_the_damaged_shard_and_salvage_keeps_the_others(tmp_path) -> None:
    source = tmp_path / "source"
    with opened(source, 3) as node:
        fill(node)
        tenants = {
            number: {(tenant.database, tenant.name) for tenant in shard.catalog.tenants()}
            for number, shard in node.shards.items()
        }
    report = check_folder(str(source), SMALL)
    assert report["sound"]
    assert [each["shard"] for each in report["shards"]] == [0, 1, 2]
    damage(source / "shard-002")
    report = check_folder(str(source), SMALL)
    assert not report["sound"]
    assert {problem["shard"] for problem in report["problems"]} == {2}
    assert [each["sound"] for each in report["shards"]] == [True, True, False]
    with pytest.raises(LogCorrupted):
        opened(source)
    report = salvage_folder(str(source), str(tmp_path / "to"), config=SMALL)
    assert report["kept"]["tenants"] == len(tenants[0]) + len(tenants[1])
    with opened(tmp_path / "to", 3) as node:
        assert {(each.database, each.name) for each in node.tenants()[1]} == (
            tenants[0] | tenants[1]
        )
    with pytest.raises(AlreadyExists):
        salvage_folder(str(source), str(tmp_path / "to"), config=SMALL)


def test_a_backup_of_shards_is_restored_as_it_was(tmp_path) -> None:
    with opened(tmp_path / "source", 3) as node:
        fill(node)
        before = content(node)
        info, parts = running_backup(node)
        keep(parts, tmp_path / "running")
    assert len(info.logs) == 3
    config = replace(SMALL, storage_dir=str(tmp_path / "source"))
    backup_storage(tmp_path / "stopped", config)
    for name in ("running", "stopped"):
        folder = tmp_path / f"from {name}"
        with pytest.raises(ConfigError, match=r"STORAGE_SHARDS=2, but .* has 3 shards"):
            restore_file(tmp_path / name, str(folder), replace(SMALL, storage_shards=2))
        _, kept = restore_file(tmp_path / name, str(folder), SMALL)
        assert (kept.databases, kept.tenants) == (2, 12)
        with pytest.raises(AlreadyExists):
            restore_file(tmp_path / name, str(folder), SMALL)
        with opened(folder) as node:
            assert content(node) == before
            assert node.log_status().epoch == 2


def test_a_backup_with_empty_shards_is_restored_as_it_was(tmp_path) -> None:
    with opened(tmp_path / "source", 16) as node:
        for number in range(5):
            node.open(f"t{number}").tell("p", ["a"])
        before = content(node)
        keep(running_backup(node)[1], tmp_path / "backup")
    _, kept = restore_file(tmp_path / "backup", str(tmp_path / "to"), SMALL)
    assert (kept.tenants, kept.facts) == (5, 5)
    with opened(tmp_path / "to") as node:
        assert content(node) == before


def test_listeners_hear_each_change_once_and_positions_belong_to_a_tenant() -> None:
    with runtime(storage_shards=4) as node:
        client = Client(create_app(node).test_client())
        heard, of_tenant = [], []
        node.feed.subscribe(heard.append)
        node.feed.subscribe(of_tenant.append, "default", "t1")
        for number in range(6):
            client.post("/tell", {"predicate": "p", "args": ["a"]}, {"X-Tenant-ID": f"t{number}"})
        node.admin().nuke_database("default")
        assert [committed.tenant for committed in heard] == [f"t{n}" for n in range(6)] + [""]
        assert [committed.tenant for committed in of_tenant] == ["t1", ""]
        for number in range(6):
            headers = {"X-Tenant-ID": f"t{number}"}
            answer = client.post("/tell", {"predicate": "p", "args": ["b"]}, headers)
            seq = answer.headers["X-Commit-Seq"]
            assert int(seq) == node.log_head("default", f"t{number}")
            ask = {"predicate": "p", "args": ["?x"]}
            for tenant in range(6):
                read = {"X-Tenant-ID": f"t{tenant}", "X-Min-Seq": seq}
                assert client.post("/query", ask, read).status_code == 200
        rows = client.get("/admin/databases").get_json()
        assert rows[0]["tenants"] == rows[0]["facts"] == 6
        assert client.post("/admin/snapshot", {}).status_code == 200
        assert client.get("/health/ready").get_json()["status"] == "healthy"
        assert "svc_shards 4" in client.get("/metrics").text


def test_open_kb_uses_one_shard_by_default(tmp_path) -> None:
    with kbcore.open_kb(path=tmp_path / "kb", config=SMALL) as kb:
        kb.tell("p", ["a"])
        assert len(kb._runtime.shards) == 1
    assert (tmp_path / "kb" / "MANIFEST").exists()
