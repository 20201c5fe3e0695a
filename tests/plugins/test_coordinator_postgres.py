"""The coordinator in PostgreSQL meets the contract, and works on after failures of the server."""

from __future__ import annotations

import threading

import pytest
from support.postgres import OwnServer, psycopg, schema

from kbcore import open_coordinator
from kbcore.errors import ConfigError, NotReady
from kbcore.plug.conformance import CoordinatorConformance
from kbcore.plug.ports import Change, ChangeKind, Coordinator
from kbplugins.coordinator_postgres import PostgresCoordinator

LONG_MS = 60_000


class TestPostgres(CoordinatorConformance):
    @pytest.fixture(autouse=True)
    def address(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make_coordinator(self) -> Coordinator:
        return open_coordinator(self.url)


def sql(url: str, query: str, *values):
    with psycopg().connect(url, autocommit=True) as connection:
        cursor = connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def _acquired(coordinator: Coordinator, name: str = "a"):
    lease = coordinator.acquire(name, LONG_MS, b"")
    assert lease is not None
    return lease


def test_a_new_schema_is_opened_by_many_at_once(postgres_url: str) -> None:
    coordinators: list[Coordinator] = []
    barrier = threading.Barrier(8)

    def start() -> None:
        barrier.wait()
        coordinators.append(PostgresCoordinator(postgres_url))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(coordinators) == 8
    for coordinator in coordinators:
        coordinator.close()


def test_a_lost_connection_is_replaced(postgres_url: str) -> None:
    coordinator = PostgresCoordinator(postgres_url)
    lease = _acquired(coordinator)
    coordinator._connection.close()
    with pytest.raises(NotReady, match="the coordinator does not answer"):
        coordinator.renew(lease)
    assert coordinator.renew(lease)
    coordinator.close()


def test_a_watch_reports_a_gap_after_a_lost_connection(own_postgres: OwnServer) -> None:
    with schema(own_postgres.url) as url:
        coordinator, other = PostgresCoordinator(url), PostgresCoordinator(url)
        watch = coordinator.watch("")
        sql(url, "SELECT pg_terminate_backend(%s, 10000)", watch._connection.info.backend_pid)
        lease = _acquired(other)
        assert next(watch) == Change(ChangeKind.GAP)
        assert [held.token for held in coordinator.leases("")] == [lease.token]
        other.release(lease)
        assert next(watch) == Change(ChangeKind.FREE, "a", lease.token)
        other.close()
        coordinator.close()


def test_leases_survive_a_crash_of_the_server(own_postgres: OwnServer) -> None:
    with schema(own_postgres.url) as url:
        coordinator = PostgresCoordinator(url)
        lease = _acquired(coordinator)
        watch = coordinator.watch("")
        own_postgres.stop()
        for call in (
            lambda: coordinator.renew(lease),
            lambda: coordinator.leases(""),
            lambda: PostgresCoordinator(url),
        ):
            with pytest.raises(NotReady, match="the coordinator does not answer"):
                call()
        own_postgres.start()
        assert next(watch) == Change(ChangeKind.GAP)
        assert coordinator.renew(lease)
        coordinator.release(lease)
        assert _acquired(coordinator).token > lease.token
        coordinator.close()


def test_no_statement_leaves_a_transaction_open(postgres_url: str) -> None:
    """A process that is stopped between two calls must not hold a lock that other processes wait
    for.
    """
    coordinator = PostgresCoordinator(postgres_url)
    watch = coordinator.watch("")
    lease = _acquired(coordinator)
    next(watch)
    coordinator.renew(lease)
    pids = [each._connection.info.backend_pid for each in (coordinator, watch)]
    states = sql(postgres_url, "SELECT state FROM pg_stat_activity WHERE pid = ANY(%s)", pids)
    assert states == [("idle",), ("idle",)]
    coordinator.close()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://u:hu%73h@127.0.0.1:1/d", NotReady),
        ("postgresql://u:hush@127.0.0.1:1/d?wrong=1", ConfigError),
        ("postgresql://u:hush@127.0.0.1:not-a-port/d", ConfigError),
    ],
)
def test_an_unusable_server_is_reported_without_the_password(url, error, caplog) -> None:
    with pytest.raises(error) as refused:
        PostgresCoordinator(url)
    assert "hush" not in str(refused.value) + caplog.text
    if error is ConfigError:
        assert str(refused.value).startswith("coordinator 'postgresql:")


def test_a_missing_schema_is_a_mistake_in_the_url(postgres_server: str) -> None:
    joiner = "&" if "?" in postgres_server else "?"
    url = f"{postgres_server}{joiner}options=-csearch_path%3Dmissing_schema"
    with pytest.raises(ConfigError, match="no schema has been selected"):
        PostgresCoordinator(url)
