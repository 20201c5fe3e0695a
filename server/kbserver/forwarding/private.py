"""The application on the private socket of a worker: forwarded requests, and calls of other
workers.

Only processes of the same user can connect: the socket is in a folder with mode 700. What is a call
is decided by the gate of the socket (`proofs.py`, `kbserver/cluster/signing.py`), which knows who
has sent it, never by the path alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from kbcore.durable.snapshot import paced
from kbcore.errors import KBError, NotFound
from kbcore.node.other_processes import Directory
from kbcore.node.runtime import Runtime
from kbserver.errors import answer_of
from kbserver.http.gate import CALL, CALLS

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

DIRECTORY, TENANTS, SNAPSHOT, HEALTH, METRICS, CAPTURE = (
    CALLS + name for name in ("directory", "tenants", "snapshot", "health", "metrics", "capture/")
)

LENGTH = struct.Struct(">I")
"""Length of a chunk in the answer to CAPTURE; 0 ends the chunks."""


class PrivateApp:
    """The application on a private socket, in front of the application of the server."""

    def __init__(
        self,
        application: Application,
        runtime: Runtime,
        more: Mapping[tuple[str, str], Callable[[Environ], Any]] | None = None,
    ) -> None:
        """`more` are further calls, or others in place of these, by method and path."""
        self._application = application
        self._runtime = runtime
        self._calls: dict[tuple[str, str], Callable[[Environ], Any]] = {
            ("GET", DIRECTORY): lambda environ: runtime.directory().to_json(),
            ("POST", DIRECTORY): self._adopt,
            ("GET", TENANTS): lambda environ: [
                [size.database, size.name, size.facts] for size in runtime.sizes()
            ],
            ("POST", SNAPSHOT): lambda environ: runtime.own_snapshot(),
            ("GET", HEALTH): lambda environ: runtime.own_health(),
            ("GET", METRICS): lambda environ: (runtime.metrics.expose() or b"").decode(),
            **(more or {}),
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve a WSGI request."""
        if environ.get(CALL):
            return self.answer(environ, start_response)
        return self._application(environ, start_response)

    def answer(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a call of another process."""
        path = environ["PATH_INFO"]
        try:
            if path.startswith(CAPTURE):
                parts = self._capture(int(path.removeprefix(CAPTURE)))
                start_response("200 OK", [("Content-Type", "application/octet-stream")])
                return parts
            call = self._calls.get((environ["REQUEST_METHOD"], path))
            if call is None:
                raise NotFound("no such call")
            body = orjson.dumps(call(environ))
            status = "200 OK"
        except KBError as error:
            answer = answer_of(error, "")
            status, body = answer.line(), answer.body()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(status, headers)
        return [body]

    def _adopt(self, environ: Environ) -> None:
        self._runtime.adopt(Directory.from_json(orjson.loads(environ["wsgi.input"].read())))

    def _capture(self, shard: int) -> Iterator[bytes]:
        if shard not in self._runtime.shards:
            raise NotFound("this process does not have the shard")
        status, captured = self._runtime.shards[shard].snapshots.captured()
        chunks = paced(captured, self._runtime.yield_in_background)
        seed = orjson.dumps([status.log_id, status.epoch, status.head])

        def framed() -> Iterator[bytes]:
            yield LENGTH.pack(len(seed)) + seed
            for chunk in chunks:
                yield LENGTH.pack(len(chunk)) + chunk
            yield LENGTH.pack(0)

        return framed()
