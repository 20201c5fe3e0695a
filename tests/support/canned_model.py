"""A stand-in for the server of a model that gives answers in any form."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CannedModel:
    """A server of a model whose answers are given; `seen` has the bodies of the requests.

    The last answer is repeated.
    """

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.replies = [("application/json", "{}")]
        canned = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                canned.seen.append(json.loads(self.rfile.read(length)))
                kind, text = canned.replies[0]
                if len(canned.replies) > 1:
                    del canned.replies[0]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def answer(self, *bodies: object) -> None:
        """Answer requests with these bodies, one after the other."""
        self.replies = [("application/json", json.dumps(body)) for body in bodies]

    def stream(self, *events: dict[str, Any]) -> None:
        """Answer requests with these events."""
        lines = [f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events]
        self.replies = [("text/event-stream", "".join(lines))]

    def __enter__(self) -> CannedModel:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
