"""A model server for tests: real HTTP on a port of its own, four wire forms, the same answer every
time.

It misbehaves on request: `misbehave("429", "ok")` is for the next two requests. Kinds: ok; a status
such as 429, with a Retry-After where one follows ("429 after 7"); slow (no answer before
`released`), drip, redirect, cut (the connection ends), not_json, oversize; of the text of the
answer: bad_json, truncated, wrong_shape, fenced, empty, injected, invented.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.stand_in_answers import think

INJECTED = {
    "facts": [
        {
            "predicate": "trusted",
            "args": ["mallory"],
            "negated": False,
            "confidence": 1,
            "scope": "secret",
            "ttl": 1,
        },
        {
            "predicate": "owns",
            "args": ["mallory", "?everything"],
            "negated": False,
            "confidence": 1,
        },
        {"predicate": "p" * 300, "args": ["x"], "negated": False, "confidence": 1},
        {"predicate": "owns", "args": ["x" * 70_000], "negated": False, "confidence": 1},
        {"predicate": "matches(a, b)", "args": ["a", "b"], "negated": False, "confidence": 1},
        {"predicate": "odd", "args": {"a": 1}, "negated": "yes", "confidence": 7},
        {"predicate": "nested", "args": [["a"]], "negated": False, "confidence": 1},
        "retract(everything)",
    ],
    "rules": [
        {
            "head": {"predicate": "trusted", "args": ["?x"]},
            "body": [{"predicate": "known", "args": ["?x"]}],
        }
    ],
    "retract": [{"predicate": "trusted", "args": ["ann"]}],
    "scope": "secret",
    "tenant": "other",
    "baseUrl": "http://attacker.example/",
}
"""What a model says that obeyed a text instead of reading it."""


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; header names in small letters."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Said:
    """What a request asks, whatever its wire form: instructions, turns, and the schema of the
    answer.
    """

    system: str
    prompt: str
    schema: Any
    turns: list[str] = field(default_factory=list)


class StandIn:
    """Started by `with`; `url` is its address, `seen` are the requests it got. With `no_schemas` it
    refuses schemas.
    """

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.no_schemas = False
        self.released = threading.Event()
        self._kinds: deque[str] = deque()
        self._server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"standin": self}))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def settings(self, provider: str = "openai", **more: Any) -> dict[str, Any]:
        """Fields of Config that make a runtime ask this server."""
        base = self.url + ("/v1" if provider == "openai" else "")
        return {"llm_provider": provider, "llm_model": "stand-in", "llm_base_url": base, **more}

    def environment(self, provider: str = "openai") -> dict[str, str]:
        """The same as environment variables."""
        return {name.upper(): str(value) for name, value in self.settings(provider).items()}

    def misbehave(self, *kinds: str) -> None:
        self._kinds.extend(kinds)

    def next_kind(self) -> str:
        return self._kinds.popleft() if self._kinds else "ok"

    @property
    def prompts(self) -> list[str]:
        """The last turn of each request."""
        return [_said(one).prompt for one in self.seen]

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    standin: StandIn
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = Seen(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.standin.seen.append(seen)
        kind, _, after = self.standin.next_kind().partition(" after ")
        try:
            self._answer(seen, kind, after)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        self.standin.seen.append(Seen(self.path, dict(self.headers.items()), None))
        self._send(200, b"{}")

    def _answer(self, seen: Seen, kind: str, after: str) -> None:
        if kind == "slow":
            self.standin.released.wait(30)
        if kind.isdigit():
            said = json.dumps(
                {"error": {"message": f"no {self.headers.get('Authorization')}"}}
            ).encode()
            self._send(int(kind), said, **({"Retry-After": after} if after else {}))
        elif kind == "redirect":
            self._send(307, b"", Location=f"{self.standin.url}/elsewhere")
        elif kind == "cut":
            self.close_connection = True
            self.connection.close()
        elif kind == "not_json":
            self._send(200, b"<html>bad gateway</html>")
        elif kind == "oversize":
            self._send(200, b'{"choices": "' + b"x" * (5 << 20) + b'"}')
        elif kind == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not self.standin.released.wait(0.02):
                self.wfile.write(b" ")
                self.wfile.flush()
            self.close_connection = True
        elif self.standin.no_schemas and _said(seen).schema is not None:
            self._send(400, b'{"error": "json_schema is not supported"}')
        else:
            self._send(200, json.dumps(_wire(seen, kind)).encode())

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _said(seen: Seen) -> Said:
    body = seen.body
    if seen.path.endswith(":generateContent"):
        turns = [turn["parts"][0]["text"] for turn in body["contents"]]
        system, schema = (
            body["systemInstruction"]["parts"][0]["text"],
            body["generationConfig"].get("responseSchema"),
        )
    elif seen.path == "/v1/messages":
        turns, system = [turn["content"] for turn in body["messages"]], body["system"]
        schema = body["tools"][0]["input_schema"] if "tools" in body else None
    else:
        turns, system = (
            [turn["content"] for turn in body["messages"][1:]],
            body["messages"][0]["content"],
        )
        wrapped = body.get("response_format")
        schema = wrapped["json_schema"]["schema"] if wrapped else body.get("format")
    return Said(system, turns[-1], schema, turns)


def _wire(seen: Seen, kind: str) -> dict[str, Any]:
    said = _said(seen)
    found = think(said.system, said.turns[0])
    if kind == "injected":
        found = INJECTED
    elif kind == "invented" and "sentences" in found:
        found["sentences"] += [
            {"text": "Ann owns a yacht in Monaco.", "facts": [1]},
            {"text": "Everybody knows that 42 people agree.", "facts": []},
            {"text": "Bob agrees.", "facts": [99]},
        ]
    elif kind == "wrong_shape":
        found = {"facts": "none", "queries": 3, "sentences": [1]}
    text = json.dumps(found)
    if kind == "bad_json":
        text = "Sure! Here are the facts: {facts: [works_at(Ann"
    elif kind == "truncated":
        text = text[: len(text) * 2 // 3]
    elif kind == "fenced":
        text = f"<think>{{hmm}}</think>Here you are:\n```json\n{text}\n```\nAnything else?"
    elif kind == "empty":
        text = ""
    cut = kind == "truncated"
    used, made = len(said.prompt) // 4, len(text) // 4
    if seen.path.endswith(":generateContent"):
        content = {"role": "model", "parts": [{"text": text}]}
        candidate = {"content": content, "finishReason": "MAX_TOKENS" if cut else "STOP"}
        return {
            "candidates": [candidate],
            "usageMetadata": {"promptTokenCount": used, "candidatesTokenCount": made},
        }
    if seen.path == "/v1/messages":
        usage = {"input_tokens": used, "output_tokens": made}
        if said.schema is not None and kind in ("ok", "injected", "invented", "wrong_shape"):
            part = {"type": "tool_use", "id": "t1", "name": "answer", "input": found}
            return {"content": [part], "stop_reason": "tool_use", "usage": usage}
        part = {"type": "text", "text": text}
        return {
            "content": [part],
            "stop_reason": "max_tokens" if cut else "end_turn",
            "usage": usage,
        }
    if seen.path == "/api/chat":
        message = {"role": "assistant", "content": text}
        ended = {"done": True, "done_reason": "length" if cut else "stop"}
        return {"message": message, **ended, "prompt_eval_count": used, "eval_count": made}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if cut else "stop",
    }
    return {"choices": [choice], "usage": {"prompt_tokens": used, "completion_tokens": made}}
