"""A receiver of webhooks: a local HTTP server that records what it gets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


class Receiver:
    """Records the deliveries that have a valid signature; `statuses` are the next answers, then
    200.
    """

    def __init__(self) -> None:
        self.deliveries: list[tuple[str, dict[str, Any]]] = []
        self.statuses: list[int] = []
        self.attempts = 0
        self.unsigned = 0
        self.location = ""
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status := receiver.take(self.headers, body))
                if status in (301, 302, 307):
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hooks"

    def take(self, headers: Any, body: bytes) -> int:
        content = b"%b.%b.%b" % (
            headers["webhook-id"].encode(),
            headers["webhook-timestamp"].encode(),
            body,
        )
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        with self._changed:
            self.attempts += 1
            status = self.statuses.pop(0) if self.statuses else 200
            if headers["webhook-signature"] != f"v1,{expected}":
                self.unsigned += 1
            elif status == 200:
                self.deliveries.append((headers["webhook-id"], json.loads(body)))
            self._changed.notify_all()
        return status

    def wait(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), 60), self.deliveries[-3:]

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
