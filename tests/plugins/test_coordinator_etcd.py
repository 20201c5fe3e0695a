"""The coordinator in etcd meets the contract, and works on after failures of the server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from support.etcd import EtcdServer

from kbcore import open_coordinator
from kbcore.errors import ConfigError, NotReady
from kbcore.plug.conformance import CoordinatorConformance
from kbcore.plug.ports import Change, ChangeKind, Coordinator
from kbplugins.coordinator_etcd import EtcdCoordinator

LONG_MS = 60_000


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdServer]:
    server = EtcdServer()
    yield server
    server.remove()


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """A server that a test may stop."""
    server = EtcdServer()
    yield server
    server.remove()


class TestEtcd(CoordinatorConformance):
    @pytest.fixture(autouse=True)
    def address(self, etcd: EtcdServer) -> None:
        self.url = f"etcd://127.0.0.1:{etcd.port}"

    def make_coordinator(self) -> Coordinator:
        return open_coordinator(self.url)


def _acquired(coordinator: Coordinator, name: str = "a"):
    lease = coordinator.acquire(name, LONG_MS, b"")
    assert lease is not None
    return lease


def test_the_path_of_the_url_separates_applications(etcd: EtcdServer) -> None:
    paths = [uuid.uuid4().hex, uuid.uuid4().hex + "/deeper"]
    coordinators = [EtcdCoordinator(f"{etcd.address}/{path}") for path in paths]
    for coordinator in coordinators:
        _acquired(coordinator)
        assert [held.name for held in coordinator.leases("")] == ["a"]
    for coordinator in coordinators:
        coordinator.close()


def test_the_time_to_live_is_rounded_up(etcd: EtcdServer) -> None:
    coordinator = EtcdCoordinator(f"{etcd.address}/{uuid.uuid4().hex}")
    lease = coordinator.acquire("a", 1_001, b"")
    assert lease is not None
    assert lease.ttl_ms == 2_000
    coordinator.close()


def test_another_member_is_asked_when_one_is_down(etcd: EtcdServer) -> None:
    url = f"etcd://127.0.0.1:1,127.0.0.1:{etcd.port}/{uuid.uuid4().hex}"
    coordinator = EtcdCoordinator(url)
    watch = coordinator.watch("")
    lease = _acquired(coordinator)
    assert next(watch) == Change(ChangeKind.HELD, "a", lease.token)
    coordinator.close()


def test_leases_survive_a_restart_of_the_server(own_etcd: EtcdServer) -> None:
    coordinator = EtcdCoordinator(own_etcd.address)
    lease = _acquired(coordinator)
    own_etcd.stop()
    for call in (
        lambda: coordinator.renew(lease),
        lambda: coordinator.leases(""),
        lambda: EtcdCoordinator(own_etcd.address),
    ):
        with pytest.raises(NotReady, match="the coordinator does not answer"):
            call()
    own_etcd.start()
    assert coordinator.renew(lease)
    coordinator.release(lease)
    assert _acquired(coordinator).token > lease.token
    coordinator.close()


def test_a_watch_goes_on_after_a_restart(own_etcd: EtcdServer) -> None:
    coordinator, other = (EtcdCoordinator(own_etcd.address) for _ in range(2))
    watch = coordinator.watch("")
    first = _acquired(other, "a")
    assert next(watch) == Change(ChangeKind.HELD, "a", first.token)
    own_etcd.stop()
    own_etcd.start()
    second = _acquired(other, "b")
    assert next(watch) == Change(ChangeKind.HELD, "b", second.token)
    other.close()
    coordinator.close()


def test_a_watch_reports_a_gap_where_the_history_is_gone(own_etcd: EtcdServer) -> None:
    coordinator, other = (EtcdCoordinator(own_etcd.address) for _ in range(2))
    watch = coordinator.watch("")
    own_etcd.stop()
    own_etcd.start()
    lease = _acquired(other, "a")
    own_etcd.call("kv/compaction", revision=own_etcd.write(b"x"), physical=True)
    assert next(watch) == Change(ChangeKind.GAP)
    assert [held.token for held in coordinator.leases("")] == [lease.token]
    other.release(lease)
    assert next(watch) == Change(ChangeKind.FREE, "a", lease.token)
    other.close()
    coordinator.close()


def test_a_watch_can_be_closed_while_the_server_is_down(own_etcd: EtcdServer) -> None:
    coordinator = EtcdCoordinator(own_etcd.address)
    watch = coordinator.watch("")
    changes: list[Change] = []
    thread = threading.Thread(target=lambda: changes.extend(watch), daemon=True)
    thread.start()
    own_etcd.stop()
    watch.close()
    thread.join(20)
    assert not thread.is_alive()
    assert changes == []
    coordinator.close()


def test_a_key_that_an_operator_deleted_is_lost(own_etcd: EtcdServer) -> None:
    coordinator = EtcdCoordinator(own_etcd.address)
    lease = _acquired(coordinator)
    own_etcd.call("kv/deleterange", key="AA==", range_end="AA==")
    assert not coordinator.renew(lease)
    coordinator.close()


def test_a_login_is_used_and_never_shown(own_etcd: EtcdServer) -> None:
    own_etcd.call("auth/user/add", name="root", password="hush")
    own_etcd.call("auth/role/add", name="root")
    own_etcd.call("auth/user/grant", user="root", role="root")
    own_etcd.call("auth/enable")
    coordinator = EtcdCoordinator(f"etcd://root:hu%73h@127.0.0.1:{own_etcd.port}")
    lease = _acquired(coordinator)
    watch = coordinator.watch("")
    coordinator._server._headers = {"Authorization": "expired"}
    assert coordinator.renew(lease)
    coordinator.release(lease)
    assert next(watch) == Change(ChangeKind.FREE, "a", lease.token)
    coordinator.close()
    for login in ("root:wrong-hush@", ""):
        with pytest.raises(ConfigError) as refused:
            EtcdCoordinator(f"etcd://{login}127.0.0.1:{own_etcd.port}")
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("etcd:", "hosts are needed, such as etcd://host:2379"),
        ("etcd://host:port", "hosts are needed"),
        ("etcd://host,", "hosts are needed"),
        ("etcd://host?timeout=1", "a query is not supported"),
    ],
)
def test_an_unusable_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EtcdCoordinator(url)
