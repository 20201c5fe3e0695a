"""The application of a node, in front of the application of the server.

It lets a request use its shard while that is open here, answers calls of other nodes, and ends the
streams of a shard that moves to another node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from kbcore.cluster.node import ClusterNode
from kbcore.cluster.ownership import HeldShard
from kbcore.errors import KBError, NotReady
from kbcore.node.runtime import Runtime
from kbcore.node.shard_layout import SYSTEM
from kbserver.cluster.gate import FROM_NODE
from kbserver.cluster.node_owners import WAIT_TTLS
from kbserver.cluster.other_nodes import RELEASE, SHARDS
from kbserver.errors import answer_of
from kbserver.forwarding import private
from kbserver.forwarding.forwarder import SHARD
from kbserver.forwarding.private import Application, Environ, PrivateApp, StartResponse
from kbserver.http.gate import CALL
from kbserver.http.request import CALLER
from kbserver.http.request_id import identity_headers, request_id

_UNCHECKED = ("/health", "/metrics", "/replication/", "/admin/cluster")
_FIRST_ERROR, _NOT_FOUND = "4", "404"
_MOVED_HEADER = "X-KBCore-Moved"


class NodeApp:
    """The application of a node."""

    def __init__(self, application: Application, node: ClusterNode, runtime: Runtime) -> None:
        self._application = application
        self._node = node
        self._runtime = runtime
        self._ownership = node.ownership
        self._wait_seconds = WAIT_TTLS * node.ttl
        self._streams: dict[int, set[Any]] = {}
        self._calls = PrivateApp(
            application,
            runtime,
            {
                ("GET", private.DIRECTORY): lambda environ: self._directory(),
                ("POST", RELEASE): self._release,
                ("GET", SHARDS): lambda environ: self._shards(),
            },
        )
        runtime.on_shard_closed.append(self._end_streams)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a WSGI request."""
        path = environ["PATH_INFO"]
        if environ.get(CALL):
            return self._calls.answer(environ, start_response)
        if path.startswith(_UNCHECKED):
            return self._application(environ, start_response)
        return self._answer(environ, start_response)

    def _answer(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        shard: int = environ[SHARD]
        response: list[Any] = []

        def begin(status: str, headers: list[tuple[str, str]], *error: Any) -> None:
            response[:] = status, headers

        try:
            if self._ownership.find(shard, self._wait_seconds) is not None:
                return self._moved(environ, start_response, shard)
            with self._ownership.request(shard) as held:
                body = self._application(environ, begin)
                status, headers = response
                if status < _FIRST_ERROR or status.startswith(_NOT_FOUND):
                    self._check(shard, held, body)
        except NotReady as error:
            return _refused(environ, start_response, error, ())
        start_response(status, headers)
        if isinstance(body, (list, tuple)) or "Content-Length" in dict(headers):
            return body
        return _Stream(self._streams.setdefault(shard, set()), environ.get(CALLER), body)

    def _check(self, shard: int, held: HeldShard, body: Iterable[bytes]) -> None:
        """Raise NotReady, and close the body, if another node may have answered differently."""
        try:
            self._ownership.check(shard, held)
        except NotReady:
            if isinstance(body, Iterator) and hasattr(body, "close"):
                body.close()
            raise

    def _moved(
        self, environ: Environ, start_response: StartResponse, shard: int
    ) -> Iterable[bytes]:
        """Answer that another node has the shard; a node that has sent the request tries again."""
        error = NotReady(
            "the tenant has moved to another node: nothing was carried out",
            {"reason": "moved", "shard": shard, "outcome": "not_done"},
        )
        headers = ((_MOVED_HEADER, "1"),) if environ.get(FROM_NODE) else ()
        return _refused(environ, start_response, error, headers)

    def _end_streams(self, shard: int) -> None:
        for handler in self._streams.pop(shard, set()):
            handler.hang_up()

    # -- calls of other nodes ----------------------------------------------------------------------

    def _directory(self) -> dict[str, Any]:
        if SYSTEM not in self._node.open_shards():
            raise NotReady("this node does not have the system shard")
        return self._runtime.directory().to_json()

    def _release(self, environ: Environ) -> None:
        body = orjson.loads(environ["wsgi.input"].read())
        self._node.release(body["shard"], body["to"])

    def _shards(self) -> dict[str, Any]:
        tenants = [[size.database, size.name, size.facts] for size in self._runtime.sizes()]
        return {"shards": self._node.open_shards(), "tenants": tenants}


class _Stream:
    """A stream, whose connection is closed when its shard moves: its client comes back.

    Unlike the `finally` of a generator, `close` also runs if no part was read.
    """

    def __init__(self, streams: set[Any], handler: Any, body: Iterable[bytes]) -> None:
        self._streams, self._handler, self._body = streams, handler, body
        self._parts = iter(body)
        streams.add(handler)

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def close(self) -> None:
        """Close the body; the server calls this however the response ended."""
        self._streams.discard(self._handler)
        close: Callable[[], None] | None = getattr(self._body, "close", None)
        if close is not None:
            close()


def _refused(
    environ: Environ,
    start_response: StartResponse,
    error: KBError,
    more: Iterable[tuple[str, str]],
) -> list[bytes]:
    id = request_id(environ.get("HTTP_X_REQUEST_ID"))
    answer = answer_of(error, id)
    body = answer.body()
    headers = [
        *identity_headers(id),
        *answer.headers.items(),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        *more,
    ]
    start_response(answer.line(), headers)
    return [body]
