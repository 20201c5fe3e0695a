"""The way to a leader over HTTP, for a follower.

Blocking calls on sockets of the standard library: under gevent they wait without holding up anybody else. Certificates are
checked, redirects are not followed, and everything has a limit of time and size. What comes is checked by who asked for it.
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
from kbcore.errors import BadShipment, ConfigError, Diverged, LogTruncated
from kbcore.replication.leader import Cursor, Shipment

LOG, SNAPSHOT = "/replication/log", "/replication/snapshot"

CONNECT_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""Extra time for an answer beyond the requested wait."""

SNAPSHOT_SECONDS = 60.0
"""Timeout of the next piece of a snapshot."""

MOST_RECORD_BYTES = (64 << 20) + 4096
_PIECE = 256 << 10

log = logging.getLogger("kbserver.replication")


class HTTPLogSource:
    """Implements `kbcore.replication.follower.LogSource`."""

    def __init__(self, config: Config, transport: httpx.BaseTransport | None = None) -> None:
        self._name = config.replication_name
        self._url = config.leader_url
        here = _is_here(self._url)
        if not here and self._url.startswith("http:"):
            log.warning(
                "LEADER_URL is http and elsewhere: the token and all data travel in the clear"
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
            trust_env=not here,
            verify=_trust(config.leader_ca_file) if self._url.startswith("https:") else False,
            transport=transport,
        )

    def read(self, cursor: Cursor, wait_ms: int, max_bytes: int) -> Shipment:
        """Return the records after a cursor."""
        asked: dict[str, Any] = {
            "follower": self._name,
            "log_id": cursor.log_id,
            "epoch": cursor.epoch,
            "from": cursor.after + 1,
            "wait_ms": wait_ms,
            "max_bytes": max_bytes,
        }
        if cursor.crc is not None:
            asked["prev_crc"] = f"{cursor.crc:08x}"
        with self._stream(LOG, asked, wait_ms / 1000 + GRACE_SECONDS) as answer:
            data = self._body(answer, max(MOST_RECORD_BYTES, max_bytes))
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
                raise BadShipment(f"{self._url} answers, but not as a leader: {error!r}") from error

    @contextmanager
    def snapshot(self) -> Iterator[Iterator[bytes]]:
        """The state of the leader, piece by piece."""
        with self._stream(SNAPSHOT, {"follower": self._name}, SNAPSHOT_SECONDS) as answer:
            yield self._pieces(answer)

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    @contextmanager
    def _stream(self, path: str, asked: dict[str, Any], seconds: float) -> Iterator[httpx.Response]:
        limits = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        try:
            with self._http.stream("GET", path, params=asked, timeout=limits) as answer:
                if answer.status_code not in (200, 204):
                    self._raise(answer)
                yield answer
        except (httpx.HTTPError, httpx.StreamError, OSError, RuntimeError, ValueError) as error:
            raise BadShipment(
                f"no answer from {self._url}: {type(error).__name__}: {error}"
            ) from error

    def _pieces(self, answer: httpx.Response) -> Iterator[bytes]:
        try:
            yield from answer.iter_raw(_PIECE)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise BadShipment(
                f"the answer of {self._url} broke off: {type(error).__name__}: {error}"
            ) from error

    def _body(self, answer: httpx.Response, limit: int) -> bytes:
        parts, size = [], 0
        for piece in self._pieces(answer):
            size += len(piece)
            if size > limit:
                raise BadShipment(f"{self._url} sends more than {limit} bytes")
            parts.append(piece)
        return b"".join(parts)

    def _raise(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if status < 400:
            raise BadShipment(f"{self._url} answers {status}: redirects are not followed")
        try:
            answer_body = httpx.Response(status, content=self._body(answer, 64 << 10)).json()
            code, message, details = (
                answer_body["code"],
                str(answer_body["message"])[:300],
                answer_body["details"],
            )
        except (ValueError, KeyError, TypeError):
            raise BadShipment(f"{self._url} answers {status}") from None
        if code == "LOG_TRUNCATED":
            raise LogTruncated(message, details)
        if code == "CONFLICT" and isinstance(details, dict) and "reason" in details:
            if type(details.get("epoch")) is not int or type(details.get("head")) is not int:
                raise BadShipment(f"{self._url} answers {status} without its term")
            raise Diverged(message, details)
        raise BadShipment(f"{self._url} answers {status}: {message}")


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"LEADER_CA_FILE={ca_file!r} cannot be used: {error}") from error


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
