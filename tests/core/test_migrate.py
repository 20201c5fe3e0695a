"""Migration between storages: complete, and only into empty storage."""

from __future__ import annotations

import sqlite3

import pytest

import kbcore
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import (
    AlreadyExists,
    ConfigError,
    InvalidInput,
    KBError,
    LogCorrupted,
    StorageBusy,
)
from kbcore.node.opening import open_runtime
from kbcore.offline.migrate import check_storage, copy_storage
from kbcore.plug.manager import Plugins


def fill(url: str, *, snapshots: int = 0, after: int = 1) -> None:
    """Facts with everything on them, rules, scopes, a merge, a decay, databases and a
    transaction.
    """
    config = Config(min_free_mb=0).updated({"STORAGE_URL": url})
    with open_runtime(config, clock=ManualClock(1_700_000_000_000)) as node:
        node.admin().create_database("other")
        node.admin().create_tenant("other", "t")
    with kbcore.open_kb(url, config=Config(min_free_mb=0)) as kb:
        kb.tell("p", ["a", "b"], confidence=0.5, metadata={"k": [1, "x"]}, ttl=10**12)
        kb.tell("p", ["a", "c"], negated=True, scope="s", valid_from=5, valid_until=10**14)
        kb.tell_many("q", [(n, f"n{n % 7}") for n in range(3000)])
        kb.teach("r(?x) :- p(?x, ?y), q(?n, n1).")
        kb.fork("copy", "s")
        kb.retract("q", [5, "?x"])
        for number in range(snapshots):
            kb.tell("round", [number])
            kb._runtime.snapshot()
        for number in range(after):
            with kb.transaction() as tx:
                tx.tell("late", [number])
                tx.tell("later", [number])


@pytest.fixture
def urls(tmp_path, postgres_url):
    return {
        "wal": f"wal:{tmp_path / 'wal'}",
        "sqlite": f"sqlite:{tmp_path / 'kb.sqlite'}",
        "postgres": postgres_url,
    }


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("wal", "sqlite"),
        ("wal", "postgres"),
        ("sqlite", "postgres"),
        ("sqlite", "wal"),
        ("postgres", "wal"),
        ("postgres", "sqlite"),
    ],
)
def test_a_migrated_knowledge_base_is_equal(urls, source, target) -> None:
    fill(urls[source], snapshots=3)
    before = check_storage(urls[source])
    found = copy_storage(urls[source], urls[target])
    assert found == before == check_storage(urls[target])
    assert found.facts == 2 + 1 + 2999 + 3 + 2
    assert found.snapshot  # every close takes one
    with kbcore.open_kb(urls[target], config=Config(min_free_mb=0)) as kb:
        assert sorted(kb.scopes()) == ["copy", "s"]
        assert list(kb.ask("r(?x)")) == [("a",)]
        kb.tell("late", ["more"])
    store = Plugins(Config().updated({"STORAGE_URL": urls[target]})).open_storage()
    assert store.status().head == found.head + 1
    store.close()


def test_records_after_a_snapshot_and_records_without_one_keep_their_numbers(tmp_path) -> None:
    for name, snapshot in (("without", False), ("with", True)):
        config = Config(min_free_mb=0, storage_dir=str(tmp_path / name), fsync_policy="never")
        node = open_runtime(config)
        kb = node.knowledge_base()
        for number in range(1300):
            kb.assert_facts([kbcore.Fact("p", (str(number),))])
            if snapshot and number == 100:
                node.snapshot()
        node.system.store.close(clean=False)  # as a kill leaves it, without the snapshot of a stop
        node.system.store = Plugins(config.updated({"STORAGE_URL": "memory:"})).open_storage()
        node.close()
        found = copy_storage(f"wal:{tmp_path / name}", f"sqlite:{tmp_path / name}.sqlite")
        assert (found.head, found.snapshot, found.facts) == (1300, 101 if snapshot else 0, 1300)
        assert found.records == (1199 if snapshot else 1300)


def test_a_target_that_is_not_empty_is_refused_and_left(urls) -> None:
    fill(urls["wal"])
    fill(urls["sqlite"], snapshots=1)
    before = check_storage(urls["sqlite"])
    with pytest.raises(AlreadyExists, match="is not empty"):
        copy_storage(urls["wal"], urls["sqlite"])
    assert check_storage(urls["sqlite"]) == before
    assert check_storage(urls["wal"]).facts


def test_a_storage_in_use_is_refused(urls) -> None:
    for name in urls:
        with kbcore.open_kb(urls[name], config=Config(min_free_mb=0)) as kb:
            kb.tell("p", ["a"])
            other = next(urls[each] for each in urls if each != name)
            with pytest.raises(StorageBusy):
                copy_storage(urls[name], other)
            with pytest.raises(StorageBusy):
                check_storage(urls[name])


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("wal:{}/nothing", ConfigError),
        ("sqlite:{}/nothing", ConfigError),
        ("nonsense", ConfigError),
        ("stone:{}/x", ConfigError),
        ("memory:", ConfigError),
    ],
)
def test_a_source_that_is_not_a_storage_is_refused(tmp_path, source, error) -> None:
    with pytest.raises(error):
        copy_storage(source.format(tmp_path), f"sqlite:{tmp_path / 'kb.sqlite'}")
    with pytest.raises(error):
        check_storage(source.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_copy_onto_itself_and_one_into_memory_are_refused(urls) -> None:
    fill(urls["wal"])
    with pytest.raises(InvalidInput):
        copy_storage(urls["wal"], urls["wal"])
    with pytest.raises(KBError, match="differs from"):
        copy_storage(urls["wal"], "memory:")


def test_a_damaged_source_is_refused_and_the_target_is_not_usable(tmp_path) -> None:
    source = f"sqlite:{tmp_path / 'kb.sqlite'}"
    fill(source, snapshots=1)
    db = sqlite3.connect(tmp_path / "kb.sqlite")
    with db:
        db.execute("UPDATE log SET payload = x'7b7d' WHERE seq = (SELECT min(seq) FROM log)")
    db.close()
    with pytest.raises(
        LogCorrupted, match="a wrong checksum"
    ):  # before the newest snapshot: a start does not need it
        check_storage(source)
    assert copy_storage(source, f"wal:{tmp_path / 'wal'}").facts
    db = sqlite3.connect(tmp_path / "kb.sqlite")
    with db:
        db.execute("UPDATE chunks SET data = x'7b7d'")
    db.close()
    with pytest.raises(LogCorrupted):
        copy_storage(source, f"wal:{tmp_path / 'other'}")
