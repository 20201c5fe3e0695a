"""Leases in etcd, through its HTTP gateway: `etcd://host:2379`. etcd 3.4 or later.

A lease is a key that is attached to an etcd lease; the server deletes it when the time to live has
passed. A transaction creates the key only if it does not exist. The token is the revision that
created the key, which increases with each change of the whole store.
"""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from kbcore.config.storage_urls import NOT_WELL_FORMED, is_well_formed, redacted
from kbcore.errors import ConfigError, KBError, NotReady
from kbcore.plug.coordination import (
    Change,
    ChangeKind,
    Coordinator,
    Held,
    Lease,
    check_lease,
    check_value,
    encode_name,
)
from kbcore.plug.hookspecs import hookimpl

TIMEOUT_SECONDS = 5.0
"""Limit for a request."""

SILENCE_SECONDS = 30.0
"""A watch connects again after this time without a change: the connection may be dead."""

RETRY_SECONDS = 0.5
"""Interval in which a watch tries to connect again."""

_HOSTS_ARE_NEEDED = "hosts are needed, such as etcd://host:2379"

DEFAULT_FOLDER = "kbcore/leases"
"""Beginning of the keys, unless the URL has a path."""

DEFAULT_PORT = 2379
_NO_LEASE = 5
_BAD_TOKEN = 16
_WRONG_LOGIN = 3

logger = logging.getLogger(__name__)


@hookimpl
def kb_coordinators() -> Mapping[str, Callable[[str], Coordinator]]:
    """Offer the coordinator for URLs that begin with `etcd:`, `http:` or `https:`."""
    return {"etcd": EtcdCoordinator, "http": EtcdCoordinator, "https": EtcdCoordinator}


class EtcdCoordinator:
    """Leases in etcd. Their times to live are rounded up to seconds, and up to etcd's minimum.

    Raises ConfigError for an unusable URL or login, and NotReady if no server answers.
    """

    def __init__(self, url: str) -> None:
        self._server = EtcdGateway(url)
        self._lock = threading.Lock()
        self._etcd_leases: dict[tuple[str, int], str] = {}
        self._watches: set[_Watch] = set()
        self._closed = False
        try:
            self._server.call("kv/range", {"key": encoded(b"\0")})
        except BaseException:
            self._server.close()
            raise

    def acquire(self, name: str, ttl_ms: int, value: bytes) -> Lease | None:
        """Create the key of the name, attached to a new etcd lease."""
        key = encoded(self._server.folder + check_lease(name, ttl_ms, value))
        self._check_open()
        # Most calls meet a holder. Without this read each would leave a lease to be revoked.
        if self._server.call("kv/range", {"key": key, "count_only": True}).get("count"):
            return None
        granted = self._server.call("lease/grant", {"TTL": math.ceil(ttl_ms / 1000)})
        put = {"key": key, "value": encoded(value), "lease": granted["ID"]}
        compare = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": 0}
        answer = self._server.call(
            "kv/txn", {"compare": [compare], "success": [{"requestPut": put}]}
        )
        if not answer.get("succeeded"):
            self._revoke(granted["ID"])
            return None
        lease = Lease(name, int(answer["header"]["revision"]), int(granted["TTL"]) * 1000, value)
        with self._lock:
            self._etcd_leases[name, lease.token] = granted["ID"]
        return lease

    def renew(self, lease: Lease) -> bool:
        """Keep the etcd lease alive, and check that the key is still its own."""
        with self._lock:
            etcd_lease = self._etcd_leases.get((lease.name, lease.token))
        if etcd_lease is None or self._closed:
            return False
        answer = self._server.call("lease/keepalive", {"ID": etcd_lease})
        is_alive = int(answer.get("result", {}).get("TTL", 0)) > 0
        if is_alive:
            key = encoded(self._server.folder + encode_name(lease.name))
            keys = self._server.call("kv/range", {"key": key}).get("kvs", [])
            is_alive = [int(each["create_revision"]) for each in keys] == [lease.token]
        if not is_alive:
            with self._lock:
                self._etcd_leases.pop((lease.name, lease.token), None)
        return is_alive

    def release(self, lease: Lease) -> None:
        """Revoke the etcd lease, which deletes the key."""
        with self._lock:
            etcd_lease = self._etcd_leases.pop((lease.name, lease.token), None)
        if etcd_lease is not None:
            self._revoke(etcd_lease)

    def store(self, lease: Lease, value: bytes) -> bool:
        """Write a key without an etcd lease, if the key of the lease is still its own."""
        check_value(value)
        self._check_open()
        name = encode_name(lease.name)
        put = {"key": encoded(self._server.values + name), "value": encoded(value)}
        compare = {
            "key": encoded(self._server.folder + name),
            "target": "CREATE",
            "result": "EQUAL",
            "create_revision": lease.token,
        }
        answer = self._server.call(
            "kv/txn", {"compare": [compare], "success": [{"requestPut": put}]}
        )
        return bool(answer.get("succeeded"))

    def stored(self, name: str) -> bytes | None:
        """Read the key of the value."""
        self._check_open()
        key = encoded(self._server.values + encode_name(name))
        pairs = self._server.call("kv/range", {"key": key}).get("kvs", [])
        return b64decode(pairs[0].get("value", "")) if pairs else None

    def leases(self, prefix: str) -> Sequence[Held]:
        """Read the keys with the prefix; a lease that has ended has none."""
        self._check_open()
        answer = self._server.call("kv/range", self._server.range_of(prefix))
        return [self._server.held(each) for each in answer.get("kvs", [])]

    def watch(self, prefix: str) -> _Watch:
        """Watch the keys with the prefix.

        After a lost connection the watch goes on where it was. GAP is reported if etcd has dropped
        the changes in between from its history.
        """
        self._check_open()
        watch = _Watch(self, self._server, prefix)
        self._watches.add(watch)
        return watch

    def forget_watch(self, watch: _Watch) -> None:
        """Drop a closed watch."""
        self._watches.discard(watch)

    def close(self) -> None:
        """End watches, release leases if the server answers, and disconnect."""
        if self._closed:
            return
        for watch in list(self._watches):
            watch.close()
        self._closed = True
        with suppress(KBError):  # the leases end by themselves
            for etcd_lease in self._etcd_leases.values():
                self._revoke(etcd_lease)
        self._server.close()

    def _revoke(self, etcd_lease: str) -> None:
        self._server.call("lease/revoke", {"ID": etcd_lease}, accept=_NO_LEASE)

    def _check_open(self) -> None:
        if self._closed:
            raise NotReady("the coordinator is closed")


class EtcdGateway:
    """The HTTP gateway of one or more members of an etcd cluster.

    `folder` is the beginning of the keys of leases, `values` of those of stored values.
    """

    def __init__(self, url: str) -> None:
        self.location = redacted(url)
        if not is_well_formed(url):
            problem = NOT_WELL_FORMED if "@" in url else _HOSTS_ARE_NEEDED
            raise ConfigError(f"coordinator {self.location!r}: {problem}")
        try:
            parts = urlsplit(url)
            user, _, hosts = parts.netloc.rpartition("@")
            scheme = "https" if parts.scheme == "https" else "http"
            self._bases = [_base(scheme, host) for host in hosts.split(",")]
        except (ValueError, httpx.InvalidURL):
            raise ConfigError(f"coordinator {self.location!r}: {_HOSTS_ARE_NEEDED}") from None
        if parts.query or parts.fragment:
            raise ConfigError(f"coordinator {self.location!r}: a query is not supported")
        folder = (parts.path.strip("/") or DEFAULT_FOLDER).encode()
        self.folder, self.values = folder + b"/", folder + b"-values/"
        name, _, password = user.partition(":")
        self._login = {"name": unquote(name), "password": unquote(password)} if user else None
        self._headers: dict[str, str] = {}
        self._http = httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False)

    def call(self, path: str, body: Mapping[str, Any], accept: int | None = None) -> dict[str, Any]:
        """Return the answer to a request, {} for the error number `accept`; raises NotReady."""
        for is_last in (False, True):
            if self._login is not None and not self._headers:
                self._authenticate()
            response = self._post(path, body)
            if response.is_success:
                answer: dict[str, Any] = self._json(response)
                return answer
            number = self._json(response).get("code")
            if number == accept:
                return {}
            if number != _BAD_TOKEN or self._login is None or is_last:
                break
            self._headers = {}
        raise self._refused(response)

    def stream(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Return a response whose lines come one by one; raises httpx.HTTPError, NotReady."""
        if self._login is not None and not self._headers:
            self._authenticate()
        request = self._http.build_request(
            "POST",
            f"{self._bases[0]}/v3/{path}",
            json=body,
            headers=self._headers,
            timeout=httpx.Timeout(TIMEOUT_SECONDS, read=SILENCE_SECONDS),
        )
        try:
            response = self._http.send(request, stream=True)
        except httpx.ConnectError:
            self._next_member()
            raise
        if not response.is_success:
            response.read()
            self._headers = {}
            raise self._refused(response)
        return response

    def range_of(self, prefix: str) -> dict[str, str]:
        """Return the keys of a prefix as the fields `key` and `range_end`."""
        start = self.folder + encode_name(prefix)
        end = start[:-1] + bytes([start[-1] + 1])  # UTF-8 has no byte 255
        return {"key": encoded(start), "range_end": encoded(end)}

    def held(self, pair: Mapping[str, Any]) -> Held:
        """Return the lease of a key."""
        name = b64decode(pair["key"])[len(self.folder) :].decode()
        return Held(name, int(pair["create_revision"]), b64decode(pair.get("value", "")))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Send a request, to another member if one refuses the connection."""
        for _ in self._bases:
            try:
                return self._http.post(
                    f"{self._bases[0]}/v3/{path}", json=body, headers=self._headers
                )
            except httpx.ConnectError as error:
                failure: httpx.HTTPError = error
                self._next_member()
            except httpx.HTTPError as error:  # the request may have had its effect: no other try
                failure = error
                self._next_member()
                break
        raise not_ready(f"{self.location}: {type(failure).__name__}")

    def _next_member(self) -> None:
        self._bases = self._bases[1:] + self._bases[:1]

    def _authenticate(self) -> None:
        response = self._post("auth/authenticate", self._login or {})
        if not response.is_success:
            raise self._refused(response)
        self._headers = {"Authorization": self._json(response)["token"]}

    def _json(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(response.content)
        except ValueError:
            raise ConfigError(
                f"coordinator {self.location!r}: the server does not answer as etcd does"
            ) from None
        return answer

    def _refused(self, response: httpx.Response) -> ConfigError | NotReady:
        answer = self._json(response)
        text = str(answer.get("message") or answer.get("error") or response.status_code)
        if response.status_code == 404:
            return ConfigError(f"coordinator {self.location!r}: the server has no etcd gateway")
        if answer.get("code") in (_WRONG_LOGIN, 7, 9, _BAD_TOKEN):
            return ConfigError(f"coordinator {self.location!r}: {text}")
        return not_ready(f"{self.location}: {text}")


class _Watch:
    """The stream of changes of a prefix, from the revision after the last one that was reported."""

    def __init__(self, coordinator: EtcdCoordinator, server: EtcdGateway, prefix: str) -> None:
        self._coordinator, self._server, self._range = (
            coordinator,
            server,
            server.range_of(prefix),
        )
        self._pending: deque[Change] = deque()
        self._closed = threading.Event()
        self._response: httpx.Response | None = None
        self._lines: Iterator[str] = iter(())
        self._revision = self._current_revision()
        try:
            self._open()
        except httpx.HTTPError as error:
            raise not_ready(f"{server.location}: {type(error).__name__}") from None

    def __iter__(self) -> _Watch:
        return self

    def __next__(self) -> Change:
        while not self._closed.is_set():
            if self._pending:
                return self._pending.popleft()
            try:
                if self._response is None:
                    self._reconnect()
                else:
                    self._read()
            except (httpx.HTTPError, httpx.StreamError, NotReady) as error:
                self._drop()
                if not isinstance(error, httpx.ReadTimeout):
                    self._closed.wait(RETRY_SECONDS)
        self._drop()
        raise StopIteration

    def close(self) -> None:
        self._closed.set()
        self._coordinator.forget_watch(self)
        response = self._response
        if response is not None:
            # Wakes a thread that reads; that thread closes the response.
            connection = response.extensions["network_stream"].get_extra_info("socket")
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)

    def _current_revision(self) -> int:
        answer = self._server.call("kv/range", {**self._range, "count_only": True})
        return int(answer["header"]["revision"])

    def _open(self) -> None:
        body = {**self._range, "start_revision": self._revision + 1, "prev_kv": True}
        self._response = self._server.stream("watch", {"create_request": body})
        self._lines = self._response.iter_lines()
        self._read()
        if self._closed.is_set():  # by another thread, before it could see the response
            self._drop()

    def _reconnect(self) -> None:
        revision = self._current_revision()
        if revision < self._revision:  # the store was replaced by an older one
            self._report_gap(revision)
        self._open()

    def _read(self) -> None:
        """Read one line; a stream that ends is opened again by the next call."""
        line = next(self._lines, None)
        if line is None:
            raise httpx.StreamError("the stream has ended")
        answer = json.loads(line)
        result = answer.get("result", {})
        if "error" in answer or result.get("canceled"):
            self._drop()
            if result.get("compact_revision"):
                self._report_gap(self._current_revision())
            return
        for event in result.get("events", ()):
            self._revision = max(self._revision, int(event["kv"]["mod_revision"]))
            self._report(event)

    def _report(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "DELETE":
            if "prev_kv" in event:
                held = self._server.held(event["prev_kv"])
                self._pending.append(Change(ChangeKind.FREE, held.name, held.token))
            else:  # the history before the change is gone
                self._pending.append(Change(ChangeKind.GAP))
        else:
            held = self._server.held(event["kv"])
            self._pending.append(Change(ChangeKind.HELD, held.name, held.token, held.value))

    def _report_gap(self, revision: int) -> None:
        self._revision = revision
        self._pending.append(Change(ChangeKind.GAP))

    def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()


def encoded(content: bytes) -> str:
    """Return bytes as the gateway takes them."""
    return b64encode(content).decode()


def not_ready(details: str) -> NotReady:
    """Return the error for a server that does not answer; the log has the details."""
    logger.warning("the coordinator does not answer: %s", details)
    return NotReady("the coordinator does not answer; the log has the details")


def _base(scheme: str, host: str) -> str:
    """Return the beginning of URLs of a member; raises ValueError for an unusable address."""
    url = httpx.URL(f"{scheme}://{host}")
    if not url.host or url.path not in ("", "/"):
        raise ValueError(host)
    return (
        f"{scheme}://{host}"
        if url.port or host.endswith(":80")
        else f"{scheme}://{host}:{DEFAULT_PORT}"
    )
