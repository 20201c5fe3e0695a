"""HTTP client of a follower, which reads the log and snapshots of its leader.

Calls block on sockets of the standard library; under gevent other greenlets run during that time.
Certificates are verified, redirects are not followed, and every answer has a time and a size
limit. The caller verifies the content.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from kbcore.config.settings import Config
from kbcore.errors import BadShipment, Diverged, LogTruncated
from kbcore.replication.leader import LogCursor, Shipment
from kbserver.http.certificates import client_context

LOG, SNAPSHOT = "/replication/log", "/replication/snapshot"

CA_FILE = "LEADER_CA_FILE"
"""Setting with the CA certificates of the leader."""

CONNECT_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""Extra time for a response beyond the requested wait."""

SNAPSHOT_SECONDS = 60.0
"""Timeout for the next chunk of a snapshot."""

MAX_RECORD_BYTES = (64 << 20) + 4096
_CHUNK_BYTES = 256 << 10

_REASONS = (
    (httpx.TimeoutException, "timeout"),
    (httpx.ConnectError, "cannot connect"),
)
"""Reasons in messages, by exception of the HTTP client."""

log = logging.getLogger("kbserver.replication")


class HTTPLogSource:
    """Implements `kbcore.replication.follower.LogSource`."""

    def __init__(
        self,
        config: Config,
        transport: httpx.BaseTransport | None = None,
        *,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """`context` verifies the leader, and has the certificate of this node."""
        if context is None and config.leader_url.startswith("https:"):
            context = client_context(config, CA_FILE, config.leader_ca_file)
        self._name = config.replication_name
        self._url = config.leader_url
        is_local = _is_local(self._url)
        if not is_local and self._url.startswith("http:"):
            log.warning(
                "LEADER_URL is http and not on this machine: the token and all data are sent unencrypted"
            )
        self._http = httpx.Client(
            base_url=self._url,
            headers={
                **(
                    {"Authorization": f"Bearer {config.replication_token}"}
                    if config.replication_token
                    else {}
                ),
                "User-Agent": "kbcore-follower",
                "Accept-Encoding": "identity",
            },
            follow_redirects=False,
            trust_env=not is_local,
            verify=context or False,
            transport=transport,
        )

    def read(self, cursor: LogCursor, wait_ms: int, max_bytes: int) -> Shipment:
        """Return the records after a cursor; raises BadShipment, Diverged, LogTruncated."""
        query: dict[str, Any] = {
            "follower": self._name,
            "log_id": cursor.log_id,
            "epoch": cursor.epoch,
            "from": cursor.after + 1,
            "synced": cursor.synced,
            "wait_ms": wait_ms,
            "max_bytes": max_bytes,
        }
        if cursor.crc is not None:
            query["prev_crc"] = f"{cursor.crc:08x}"
        with self._stream(LOG, query, wait_ms / 1000 + GRACE_SECONDS) as answer:
            data = self._body(answer, max(MAX_RECORD_BYTES, max_bytes))
            head = answer.headers
            try:
                return Shipment(
                    head["X-Log-Id"],
                    int(head["X-Epoch"]),
                    int(head["X-Head-Seq"]),
                    data,
                    max(0.0, int(head["X-Waited-Ms"]) / 1000),
                )
            except (KeyError, ValueError) as error:
                raise BadShipment(f"the response of {self._url} is not that of a leader") from error

    @contextmanager
    def snapshot(self) -> Iterator[Iterator[bytes]]:
        """Open a snapshot of the leader as chunks of bytes."""
        with self._stream(SNAPSHOT, {"follower": self._name}, SNAPSHOT_SECONDS) as answer:
            yield self._chunks(answer)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    @contextmanager
    def _stream(self, path: str, query: dict[str, Any], seconds: float) -> Iterator[httpx.Response]:
        limits = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            with self._http.stream("GET", path, params=query, timeout=limits) as answer:
                if answer.status_code not in (200, 204):
                    self._raise(answer)
                yield answer
        except (httpx.HTTPError, httpx.StreamError, OSError, RuntimeError, ValueError) as error:
            raise self._failure("no response from", error) from error

    def _failure(self, what: str, error: Exception) -> BadShipment:
        """Log an error of the HTTP client, and return the error without its text."""
        log.info("%s %s: %s: %s", what, self._url, type(error).__name__, error)
        reason = next(
            (text for kind, text in _REASONS if isinstance(error, kind)), "the connection failed"
        )
        return BadShipment(f"{what} {self._url}: {reason}")

    def _chunks(self, answer: httpx.Response) -> Iterator[bytes]:
        try:
            yield from answer.iter_raw(_CHUNK_BYTES)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise self._failure("incomplete response from", error) from error

    def _body(self, answer: httpx.Response, limit: int) -> bytes:
        parts, size = [], 0
        for chunk in self._chunks(answer):
            size += len(chunk)
            if size > limit:
                raise BadShipment(f"the response of {self._url} has more than {limit} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def _raise(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if status < 400:
            raise BadShipment(f"{self._url} responded with {status}: redirects are not followed")
        try:
            answer_body = httpx.Response(status, content=self._body(answer, 64 << 10)).json()
            code, message, details = (
                answer_body["code"],
                str(answer_body["message"])[:300],
                answer_body["details"],
            )
        except (ValueError, KeyError, TypeError):
            raise BadShipment(f"{self._url} responded with {status}") from None
        if code == "LOG_TRUNCATED":
            raise LogTruncated(message, details)
        if code == "CONFLICT" and isinstance(details, dict) and "reason" in details:
            if type(details.get("epoch")) is not int or type(details.get("head")) is not int:
                raise BadShipment(f"{self._url} responded with {status} without its term")
            raise Diverged(message, details)
        raise BadShipment(f"{self._url} responded with {status}: {message}")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
