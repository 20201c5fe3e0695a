"""The log in PostgreSQL meets the contract, has one writer, and continues after a lost
connection.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.encryption import encrypted
from support.postgres import OwnServer, psycopg, schema

from kbcore.config import Config
from kbcore.errors import (
    ConfigError,
    KBError,
    LogCorrupted,
    NotReady,
    SnapshotFailed,
    StorageBusy,
    StorageFailed,
)
from kbcore.plug.conformance import LogStoreConformance
from kbcore.plug.ports import LogStore
from kbplugins import storage_postgres
from kbplugins.storage_postgres import PostgresStore, driver

ONE = [(1, 1, b"one")]


def config_of(url: str, **settings) -> Config:
    return Config(
        storage_backend="postgres", storage_url=url, storage_timeout_ms=20_000, **settings
    )


def sql(url: str, query: str, *values):
    with psycopg().connect(url, autocommit=True) as connection:
        cursor = connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def payloads(store: LogStore) -> list[bytes]:
    return [record.payload for record in store.read(0)]


def read_all(url: str) -> list[bytes]:
    store = PostgresStore(config_of(url))
    try:
        return payloads(store)
    finally:
        store.close()


class TestPostgres(LogStoreConformance):
    @pytest.fixture
    def config(self, postgres_url: str) -> Config:
        return config_of(postgres_url)

    def make_store(self, config: Config) -> LogStore:
        return PostgresStore(config)


class TestPostgresEncrypted(TestPostgres):
    @pytest.fixture
    def config(self, postgres_url: str, tmp_path: Path) -> Config:
        return replace(config_of(postgres_url), storage_dir=str(tmp_path / "data"))

    def make_store(self, config: Config) -> LogStore:
        return encrypted(PostgresStore, config)


@pytest.fixture
def own(own_postgres: OwnServer) -> Iterator[str]:
    """A schema on a server that a test may stop."""
    with schema(own_postgres.url) as url:
        yield url


def test_the_hook_offers_postgres() -> None:
    assert storage_postgres.kb_storage_backends(config=Config()) == {"postgres": PostgresStore}


def test_a_missing_psycopg_is_named_with_its_installation(monkeypatch) -> None:
    def missing(name: str):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(driver.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'psycopg\[binary\]'"):
        PostgresStore(config_of("postgresql://u:hush@h/d"))


def test_a_url_is_needed() -> None:
    with pytest.raises(ConfigError, match="needs STORAGE_URL"):
        PostgresStore(Config(storage_backend="postgres"))


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://u:hu%73h@127.0.0.1:1/d", NotReady),
        ("postgresql://u:hush@127.0.0.1:1/d?wrong=1", ConfigError),
        ("postgresql://u@127.0.0.1:1/d?password=hush", NotReady),
        ("postgresql://u:hush@127.0.0.1:not-a-port/d", ConfigError),
    ],
)
def test_an_unusable_server_is_reported_without_the_password(url, error, caplog) -> None:
    psycopg()
    with caplog.at_level(logging.DEBUG), pytest.raises(KBError) as caught:
        PostgresStore(config_of(url))
    assert isinstance(caught.value, (error, ConfigError))
    assert "hush" not in str(caught.value) + str(caught.value.details) + caplog.text + repr(
        config_of(url)
    )
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("what", ["role", "database", "schema"])
def test_a_missing_role_database_or_schema_is_named(postgres_server, what) -> None:
    with psycopg().connect(postgres_server) as connection:
        user, name = connection.info.user, connection.info.dbname
        host = f"host={connection.info.host}&port={connection.info.port}"
    url = {
        "role": f"postgresql://nobody-here:hush@/postgres?{host}",
        "database": f"postgresql://{user}@/nothing-here?{host}",
        "schema": f"postgresql://{user}@/{name}?{host}&options=-csearch_path%3Dnothing",
    }[what]
    with pytest.raises(ConfigError) as caught:
        PostgresStore(config_of(url))
    assert what in caught.value.message or "authentication" in caught.value.message
    assert "hush" not in caught.value.message


def test_the_holder_is_named(postgres_url) -> None:
    store = PostgresStore(config_of(postgres_url))
    with pytest.raises(StorageBusy, match=f"is in use by pid {os.getpid()} on "):
        PostgresStore(config_of(postgres_url))
    store.close()
    PostgresStore(config_of(postgres_url)).close()


def test_each_schema_is_a_separate_log(postgres_server) -> None:
    with schema(postgres_server) as first, schema(postgres_server) as second:
        one, two = PostgresStore(config_of(first)), PostgresStore(config_of(second))
        one.append(ONE)
        assert (one.status().head, two.status().head) == (1, 0)
        one.close()
        two.close()


@pytest.mark.parametrize(
    ("policy", "synchronous"), [("always", "on"), ("interval", "off"), ("never", "off")]
)
def test_the_policy_decides_what_a_commit_waits_for(postgres_url, policy, synchronous) -> None:
    store = PostgresStore(config_of(postgres_url, fsync_policy=policy))
    assert store._session.execute("SHOW synchronous_commit").fetchone() == (synchronous,)
    assert store._session.execute("SHOW statement_timeout").fetchone() == ("20s",)
    store.append(ONE)
    assert store.status().durable == (1 if policy == "always" else 0)
    store.save_snapshot(1, [b"x"])
    assert store.status().durable == 1
    store.close()


def test_a_writer_that_lost_its_lock_to_another_is_fenced(postgres_url) -> None:
    old = PostgresStore(config_of(postgres_url))
    old.append(ONE)
    sql(postgres_url, "SELECT pg_terminate_backend(%s)", old._session._pid)
    new = PostgresStore(config_of(postgres_url))
    assert new.append([(1, 1, b"of the new one")]) == 2
    new.close()  # also when the new one is gone again and its lock is free
    with pytest.raises(StorageFailed, match="another writer"):
        old.append([(1, 1, b"of the old one")])
    with pytest.raises(StorageFailed):
        old.append(ONE)
    with pytest.raises(KBError):
        old.save_snapshot(1, [b"x"])
    assert not old.status().writable
    old.close()
    new = PostgresStore(config_of(postgres_url))
    assert payloads(new) == [b"one", b"of the new one"]
    new.close()


def test_a_writer_whose_token_was_replaced_cannot_append_over_its_open_connection(
    postgres_url,
) -> None:
    store = PostgresStore(config_of(postgres_url))
    store.append(ONE)
    sql(postgres_url, "UPDATE kbcore_meta SET writer = 'another'")
    with pytest.raises(StorageFailed, match="another writer"):
        store.append(ONE)
    with pytest.raises(SnapshotFailed, match="another writer"):
        PostgresStore._save(store, 1, [b"x"])
    store.close()
    assert sql(postgres_url, "SELECT count(*) FROM kbcore_log") == [(1,)]


def test_a_broken_connection_is_reopened(postgres_url) -> None:
    store = PostgresStore(config_of(postgres_url))
    for number in range(1, 6):
        sql(postgres_url, "SELECT pg_terminate_backend(%s)", store._session._pid)
        assert store.append([(1, 1, b"%d" % number)]) == number
    sql(postgres_url, "SELECT pg_terminate_backend(%s)", store._session._pid)
    with pytest.raises(NotReady) as caught:
        payloads(store)  # a reading that breaks says so
    assert caught.value.message == driver.NO_ANSWER
    assert payloads(store) == [b"1", b"2", b"3", b"4", b"5"]
    store.close()


def test_a_commit_whose_answer_was_lost_is_not_written_twice(postgres_url, monkeypatch) -> None:
    store = PostgresStore(config_of(postgres_url))
    store.append(ONE)
    real, lose = store._session.execute, [True]

    def losing(query, values=None, *, binary=True):
        done = real(query, values, binary=binary)
        if "INSERT INTO kbcore_log" in query and lose:
            lose.clear()
            store._session.drop()
            raise driver.Unreachable("the answer was lost")
        return done

    monkeypatch.setattr(store._session, "execute", losing)
    assert store.append([(1, 1, b"two"), (1, 1, b"three")]) == 3
    assert store.append([(1, 1, b"four")]) == 4
    assert payloads(store) == [b"one", b"two", b"three", b"four"]
    store.close()


def test_a_statement_that_takes_too_long_changes_nothing(postgres_url, caplog) -> None:
    store = PostgresStore(replace(config_of(postgres_url), storage_timeout_ms=300))
    store.append(ONE)
    with psycopg().connect(postgres_url) as other:
        other.execute("SELECT * FROM kbcore_meta FOR UPDATE")
        with caplog.at_level(logging.WARNING), pytest.raises(NotReady) as caught:
            store.append(ONE)
    assert caught.value.message == driver.CANCELED
    assert "timeout" in caplog.text
    assert store.status().head == 1
    assert store.append([(1, 1, b"two")]) == 2
    assert payloads(store) == [b"one", b"two"]
    store.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_nothing_acknowledged_is_lost_when_the_server_restarts(own_postgres, own, how) -> None:
    store = PostgresStore(config_of(own))
    acknowledged: list[int] = []
    enough, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                acknowledged.append(store.append([(1, 1, b"%d" % (len(acknowledged) + 1))]))
                store.sync()
                if len(acknowledged) % 50 == 0:
                    enough.set()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failures.append(error)
            enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            assert enough.wait(30)
            own_postgres.stop(how)
            own_postgres.start()
            enough.clear()
        assert enough.wait(30)
    finally:
        stop.set()
        writer.join(60)
    assert failures == []
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    assert payloads(store) == [b"%d" % number for number in acknowledged]
    store.close()


def test_writes_are_refused_while_the_server_is_down_and_accepted_later(
    own_postgres, own, caplog
) -> None:
    store = PostgresStore(replace(config_of(own), storage_timeout_ms=300))
    store.append(ONE)
    own_postgres.stop()
    try:
        with pytest.raises(StorageFailed, match="unknown"):  # it went out over the old connection
            store.append(ONE)
        store.close(clean=False)
        with pytest.raises(NotReady) as caught:
            PostgresStore(config_of(own))
        assert "hush" not in str(caught.value)
    finally:
        own_postgres.start()
    store = PostgresStore(replace(config_of(own), storage_timeout_ms=300))
    own_postgres.stop()
    try:
        with pytest.raises(KBError):
            payloads(store)  # notices that the connection is gone
        assert not store.status().writable
        with caplog.at_level(logging.WARNING), pytest.raises(NotReady) as caught:
            store.append(ONE)  # nothing was sent, so nothing is in doubt
        # The message goes to clients; the address and the text of the driver go to the log.
        assert caught.value.message == driver.NO_ANSWER
        assert "127.0.0.1" in caplog.text
        with pytest.raises(SnapshotFailed):
            store.save_snapshot(1, [b"x"])
    finally:
        own_postgres.start()
    assert store.append([(1, 1, b"two")]) == store.status().head
    assert store.status().writable
    assert payloads(store)[-1] == b"two"
    store.close()


def test_followers_are_woken_by_an_append(postgres_url) -> None:
    store = PostgresStore(config_of(postgres_url))
    store.append(ONE)
    assert store.wait(0, 60) == 1
    assert store.wait(1, 0.01) == 1
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(store.wait(1, 60)))
    waiting.start()
    listening = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND wait_event = 'ClientRead' AND query LIKE %s"
    for _ in range(10_000):  # until it listens and has seen that there is nothing new
        if sql(postgres_url, listening, "SELECT head FROM kbcore_meta") == [(1,)]:
            break
    store.append(ONE)
    waiting.join(60)
    assert found == [2]
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE kbcore_log SET payload = 'two' WHERE seq = 1",
        "UPDATE kbcore_log SET payload = set_byte(payload, 0, get_byte(payload, 0) # 1) WHERE seq = 2",
        "UPDATE kbcore_log SET crc = crc + 1 WHERE seq = 2",
        "UPDATE kbcore_log SET version = 2 WHERE seq = 2",
        "DELETE FROM kbcore_log WHERE seq = 1",
        "DELETE FROM kbcore_log WHERE seq = 2",
        "DELETE FROM kbcore_log WHERE seq = 3",
        "UPDATE kbcore_meta SET head = 2",
        "UPDATE kbcore_meta SET head = 4",
        "UPDATE kbcore_meta SET first = 2",
        "UPDATE kbcore_meta SET log_id = '0123456789abcdef'",
        "UPDATE kbcore_meta SET log_id = '0'",
    ],
)
def test_rows_changed_by_others_are_refused(postgres_url, damage) -> None:
    store = PostgresStore(config_of(postgres_url))
    store.append([(1, 1, b"one"), (1, 1, b"two"), (1, 1, b"three")])
    store.close()
    sql(postgres_url, damage)
    with pytest.raises(LogCorrupted):
        read_all(postgres_url)


@pytest.mark.parametrize(
    "damage", ["UPDATE kbcore_chunks SET data = 'x'", "DELETE FROM kbcore_chunks WHERE number = 1"]
)
def test_a_damaged_snapshot_is_skipped_only_with_a_complete_log(postgres_url, damage) -> None:
    store = PostgresStore(config_of(postgres_url))
    store.append(ONE * 3)
    store.save_snapshot(2, [b"a", b"b"])
    store.close()
    sql(postgres_url, damage)
    store = PostgresStore(config_of(postgres_url))
    assert store.load_snapshot() is None
    store.save_snapshot(2, [b"a", b"b"])
    store.save_snapshot(3, [b"a", b"b"])
    store.drop_before(3)
    store.close()
    sql(postgres_url, damage)
    with pytest.raises(LogCorrupted, match="log before record 3 was dropped"):
        PostgresStore(config_of(postgres_url))
