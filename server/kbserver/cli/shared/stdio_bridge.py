"""Bridge from standard input and output to the MCP endpoint of a server; each line is one message.

Requests run concurrently. The bridge handles headers, the session and the stream of notifications
for the client. If the session ends with its server, the bridge opens a new one and renews the
subscriptions.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import httpx

from kbcore.config.storage_urls import redacted
from kbserver.cli.shared.client import trust
from kbserver.mcp.rpc import PARSE_ERROR
from kbserver.mcp.versions import MODERN, NAMED, VERSION_KEY, takes_tasks

NO_ANSWER = -32000
"""Error code of a request that the server did not answer."""

CONNECT_SECONDS, READ_SECONDS = 10.0, 120.0
RETRY_SECONDS = 2.0
"""Delay before the bridge reopens the stream of notifications."""

_GONE = 404

OWN_TOKEN = "kbcore-bridge"  # noqa: S105 - a token for progress is no secret  # nosec B105
"""Progress token for calls without one: the server then streams long calls, which can be
cancelled.
"""

Message = dict[str, Any]


class Bridge:
    """One client at standard input and output, one server at the other end."""

    def __init__(self, http: httpx.Client, path: str, out: TextIO) -> None:
        self._http = http
        self._path = path
        self._out = out
        self._writing = threading.Lock()
        self._opening = threading.Lock()
        self._ended = threading.Event()
        self._session: str | None = None
        self._version: str | None = None
        self._initialize: Message | None = None
        self._followed: dict[str, None] = {}
        self._open: dict[Any, httpx.Response] = {}
        self._cancelled: set[Any] = set()
        self._streaming = False

    def run(self, lines: Iterator[str]) -> None:
        """Forward messages until the input ends; then wait for active requests and end the
        session.
        """
        working: list[threading.Thread] = []
        for line in lines:
            if not line.strip():
                continue
            message = _read_json(line.encode())
            if type(message) is not dict:
                self._fail(None, "a line is one JSON object", PARSE_ERROR)
                continue
            if message.get("method") == "initialize" or "id" not in message:
                self._pass(message)  # later messages depend on it
                continue
            working = [thread for thread in working if thread.is_alive()]
            working.append(threading.Thread(target=self._pass, args=(message,), daemon=True))
            working[-1].start()
        self._ended.set()
        for id in list(self._open):
            self._close(id)
        for thread in working:
            thread.join(CONNECT_SECONDS)
        self._end_session()

    def _pass(self, message: Message) -> None:
        """Send a message and write its answer; transport errors become error answers."""
        method = message.get("method")
        id = _request_id(message)
        if method == "notifications/cancelled" and self._session is None:
            self._close((message.get("params") or {}).get("requestId"))
            return
        try:
            status = self._send(message)
            if status == _GONE and self._session is not None and method != "initialize":
                self._open_again()
                status = self._send(message, last=True)
        except (httpx.HTTPError, httpx.StreamError) as error:
            if id is not None and id not in self._cancelled:
                self._fail(
                    id,
                    f"no answer from {redacted(str(self._http.base_url))}: {type(error).__name__}",
                )
        else:
            if (
                method in ("resources/subscribe", "resources/unsubscribe")
                and status == httpx.codes.OK
            ):
                uri = str((message.get("params") or {}).get("uri"))
                self._followed.pop(uri, None) if method.endswith(
                    "unsubscribe"
                ) else self._followed.setdefault(uri)
            if method == "notifications/initialized" and not self._streaming:
                self._streaming = True
                threading.Thread(target=self._listen, daemon=True).start()
        finally:
            self._cancelled.discard(id)

    def _send(self, message: Message, last: bool = False) -> int:
        """Send once and return the status. The answer is written, except a 404 that the caller
        retries (unless `last`).
        """
        id = _request_id(message)
        with self._http.stream(
            "POST", self._path, json=_reported(message), headers=self._headers(message)
        ) as answer:
            if id is not None:
                self._open[id] = answer
            try:
                self._read(message, answer, last)
            finally:
                self._open.pop(id, None)
            return answer.status_code

    def _read(self, message: Message, answer: httpx.Response, last: bool) -> None:
        id = _request_id(message)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            for reply in _events(answer):
                if (reply.get("params") or {}).get("progressToken") != OWN_TOKEN:
                    self._write(reply)
            return
        body = answer.read()
        if id is None or answer.status_code == httpx.codes.ACCEPTED:
            return
        if message.get("method") == "initialize" and answer.is_success:
            self._session = answer.headers.get("mcp-session-id")
            self._initialize = message
            self._version = json.loads(body).get("result", {}).get("protocolVersion")
        if answer.status_code == _GONE and self._session is not None and not last:
            return
        reply = _read_json(body)
        if type(reply) is dict and "jsonrpc" in reply:
            self._write({**reply, "id": id})
        else:
            problem = reply.get("message") if type(reply) is dict else None
            self._fail(
                id, f"the server answered {answer.status_code}: {problem or answer.reason_phrase}"
            )

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"Accept": "application/json, text/event-stream"}
        params = message.get("params")
        params = params if type(params) is dict else {}
        meta = params.get("_meta")
        version = meta.get(VERSION_KEY) if type(meta) is dict else None
        if type(version) is str and version in MODERN:
            method = str(message.get("method"))
            headers |= {"MCP-Protocol-Version": version, "Mcp-Method": _in_a_header(method)}
            name = params.get(NAMED.get(method, ""))
            if type(name) is str:
                headers["Mcp-Name"] = _in_a_header(name)
        elif self._session is not None and message.get("method") != "initialize":
            headers["Mcp-Session-Id"] = self._session
            if self._version is not None:
                headers["MCP-Protocol-Version"] = self._version
        return headers

    def _open_again(self) -> None:
        """Open a new session in place of an ended one, and renew its subscriptions."""
        gone = self._session
        with self._opening:
            if self._session != gone or self._initialize is None:
                return  # another request has opened it
            headers = {"Accept": "application/json, text/event-stream"}
            answer = self._http.post(self._path, json=self._initialize, headers=headers)
            answer.raise_for_status()
            self._session = answer.headers.get("mcp-session-id")
            for uri in self._followed:
                asked = {
                    "jsonrpc": "2.0",
                    "id": f"again {uri}",
                    "method": "resources/subscribe",
                    "params": {"uri": uri},
                }
                self._http.post(
                    self._path, json=asked, headers=self._headers(asked)
                ).raise_for_status()

    def _listen(self) -> None:
        """Forward notifications of the server until the input ends."""
        headers = {"Accept": "text/event-stream"}
        timeout = httpx.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
        while not self._ended.is_set():
            try:
                session = {"Mcp-Session-Id": self._session or "none"}
                with self._http.stream(
                    "GET", self._path, headers={**headers, **session}, timeout=timeout
                ) as answer:
                    if answer.status_code == _GONE:
                        self._open_again()
                    elif answer.is_success:
                        for event in _events(answer):
                            self._write(event)
            except (httpx.HTTPError, httpx.StreamError):
                pass  # the server is unreachable; the loop retries
            self._ended.wait(RETRY_SECONDS)

    def _close(self, id: Any) -> None:
        """Cancel a request of a protocol version without sessions by closing its connection."""
        answer = self._open.get(id) if isinstance(id, str | int) else None
        if answer is not None:
            self._cancelled.add(id)
            try:  # closing alone would not wake the thread that reads
                answer.extensions["network_stream"].get_extra_info("socket").shutdown(
                    socket.SHUT_RDWR
                )
            except OSError:
                return  # the connection has already ended

    def _end_session(self) -> None:
        if self._session is not None:
            try:
                self._http.request("DELETE", self._path, headers={"Mcp-Session-Id": self._session})
            except httpx.HTTPError:
                return  # the session expires on the server

    def _fail(self, id: Any, text: str, code: int = NO_ANSWER) -> None:
        self._write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    def _write(self, message: Message) -> None:
        with self._writing:
            self._out.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")
            self._out.flush()


def open_http(
    url: str, database: str, tenant: str, api_key: str | None, cacert: str | None = None
) -> httpx.Client:
    """Return an HTTP client for a server and tenant; `cacert` is a file of CA certificates."""
    headers = {"X-Database": database, "X-Tenant-ID": tenant}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    timeout = httpx.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    limits = httpx.Limits(max_connections=None)
    return httpx.Client(
        base_url=url,
        headers=headers,
        timeout=timeout,
        limits=limits,
        follow_redirects=False,
        verify=trust(cacert) if url.startswith("https:") else False,
    )


def _events(answer: httpx.Response) -> Iterator[Message]:
    """Yield the messages of an event stream; comments, which keep it open, are skipped."""
    data: list[str] = []
    for line in answer.iter_lines():
        if line.startswith("data:"):
            data.append(line[5:].lstrip())
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


def _reported(message: Message) -> Message:
    """Return the message with a progress token if it is a tool call without one that cannot become
    a task.
    """
    params = message.get("params")
    if message.get("method") != "tools/call" or type(params) is not dict:
        return message
    meta = params.get("_meta") or {}
    if type(meta) is not dict or "progressToken" in meta or takes_tasks(meta):
        return message
    return {**message, "params": {**params, "_meta": {**meta, "progressToken": OWN_TOKEN}}}


def _request_id(message: Message) -> Any:
    """Return the id of a request; None for notifications and for answers to the server."""
    is_answer = "method" not in message and ("result" in message or "error" in message)
    return None if is_answer else message.get("id")


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _in_a_header(text: str) -> str:
    """Return a text as a header value: unchanged if possible, else in base64."""
    plain = (
        text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?")
    )
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="
