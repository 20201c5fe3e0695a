"""Malformed requests without end: sound ones of every route, damaged in framing, head, path,
headers or body.

Each is identified by its number and the seed, so a failing request can be made again. `Outcome`
counts the responses.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from support.sockets import Running

ATOM = {"predicate": "p", "args": ["a", "?x"]}
FACT = {
    "predicate": "p",
    "args": ["a", "b"],
    "confidence": 0.5,
    "metadata": {"k": [1, {"l": None}]},
    "ttl": 1000,
}

SOUND: dict[str, Any] = {
    "/tell": FACT,
    "/assert/fact": FACT,
    "/retract": FACT,
    "/forget": FACT,
    "/assert/facts": {"facts": [FACT, FACT]},
    **{
        path: {**ATOM, "limit": 3, "asOf": 1_700_000_000_000}
        for path in ("/infer", "/ask", "/query", "/retract/pattern")
    },
    **{
        path: {"head": ATOM, "body": [{**ATOM, "negated": False}]}
        for path in ("/teach", "/assert/rule", "/retract/rule")
    },
    "/execute": {"command": "p(a). ?- p(?x)."},
    "/aggregate": {"predicate": "p", "op": "COUNT", "argIndex": 0},
    "/explain": {"goal": "p(?x, ?y)"},
    **{
        path: {"sourceScope": "s", "targetScope": "t"}
        for path in ("/scope/fork", "/scope/diff", "/scope/merge")
    },
    "/memory/query/salient": {"limit": 3, "minSalience": 0.1},
    "/memory/recall": {**ATOM, "timestamp": 1_700_000_000_000},
    "/memory/decay": {"threshold": 0.05, "dryRun": True},
    "/memory/consolidate": {"minGroupSize": 5, "predicates": ["p"], "dryRun": True},
    "/memory/priority": {"predicate": "p", "args": ["a", "b"], "priority": 0.5},
    "/memory/context": {
        "maxFacts": 5,
        "goals": [ATOM],
        "relevanceBuckets": [{"name": "b", "predicates": ["p"], "weight": 1}],
    },
    "/context/diff": {"sessionId": "s"},
    "/context/session/clear": {"sessionId": "s"},
    "/context/ingest": {"text": "p(a, b).", "maxFacts": 3},
    "/context": {"turns": [{"role": "user", "content": "p(a, b)."}]},
    "/admin/databases": {"name": "d"},
    "/admin/databases/default/tenants": {"tenantId": "t2"},
}
"""Bodies that their routes take, or would, were what they name there."""

GETS = (
    "/health",
    "/health/ready",
    "/predicates",
    "/rules",
    "/scopes",
    "/admin/databases",
    "/openapi.json",
    "/metrics",
    "/nope",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get")
SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1e308,
    2**63,
    10**30,
    1.5,
    "",
    "?",
    "?x",
    "*",
    ".",
    "..",
    "../../etc",
    "a/b",
    "\u202eevil",
    "\u2028",
    "a\nb",
    "\x1b[2J",
    "😀" * 50,
    "x" * 300,
    "%00",
    "${jndi:x}",
    "' OR 1=1 --",
    [],
    {},
    [[]],
    [None],
    *(
        {"$ref": "#"},
        {"": {}},
        ["x"] * 70,
        "not p(a)",
        'p("',
        "p(?x) :- q(?x), not",
        "9" * 400,
        "count(?x)",
        "1e999",
    ),
)
NAMES = (
    "X-Tenant-ID",
    "X-Database",
    "X-Transaction-ID",
    "X-Request-ID",
    "Prefer",
    "Content-Type",
    "Content-Encoding",
    "Accept",
    "Accept-Encoding",
    "Idempotency-Key",
    "If-None-Match",
    "traceparent",
    "Authorization",
    "X-API-Key",
    "Origin",
    "Host",
    "Range",
    "Cookie",
    "Expect",
    "Connection",
    "Upgrade",
    "X-Min-Seq",
    "Transfer-Encoding",
    "Content-Length",
)
VALUES = (
    b"",
    b" ",
    b"\xff\xfe",
    b"a/b",
    b"..",
    b"\xe2\x80\xae",
    b"x" * 9000,
    b"t;q=1",
    b"*",
    b"-1",
    b"1e9",
    b"0x10",
    b"chunked, gzip",
    b"identity",
    b"gzip",
    b"br",
    b"handling=strict",
    b"wait=99999999999999999999",
    b"return=",
    b"a" * 129,
    b"application/json;charset=utf-16",
    b"Bearer",
    b"Bearer \xff",
    b"00-zz-zz-00",
    b"bytes=0-",
    b"100-continue",
    b"close, keep-alive",
    b"websocket",
    b"?",
    b'"',
    b"\t",
)


@dataclass
class Outcome:
    """What became of requests: how many, answers by status, and whatever should not have been, with
    the request.
    """

    requests: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    wrong: list[tuple[str, bytes]] = field(default_factory=list)

    def summary(self) -> str:
        failed = sum(
            count for status, count in self.answers.items() if status >= 500 and status != 501
        )
        said = f"{self.requests} requests, {self.answers.total()} answers, {failed} of 5xx, {len(self.wrong)} wrong"
        return f"{said}: {dict(sorted(self.answers.items()))}"


class Maker:
    """Makes malformed requests; the same seed and number give the same request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def make(self, number: int) -> bytes:
        rng = random.Random(self._seed * 1_000_003 + number)
        path = rng.choice([*SOUND, *GETS])
        method = "POST" if path in SOUND else "GET"
        body = json.dumps(SOUND[path]).encode() if path in SOUND else b""
        headers = [
            (b"Host", b"localhost"),
            (b"X-Tenant-ID", b"t"),
            (b"Content-Type", b"application/json"),
        ]
        kind = rng.randrange(6)
        if kind in (0, 1) and path in SOUND:
            body = self._body(rng, SOUND[path])
        elif kind == 2:
            for _ in range(rng.randrange(1, 3)):
                headers.append((rng.choice(NAMES).encode(), rng.choice(VALUES)))
            rng.shuffle(headers)
        elif kind == 3:
            path, method = self._path(rng, path), rng.choice(METHODS)
        framed = (
            self._framed(rng, body)
            if kind == 4
            else [(b"Content-Length", b"%d" % len(body))]
            if body
            else []
        )
        if kind == 4:
            body = rng.choice(
                (
                    body,
                    body[:-1],
                    b"zz\r\n" + body,
                    b"5\r\n{\r\n0\r\n\r\n",
                    b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body),
                )
            )
        lines = [
            f"{method} {path} HTTP/1.1".encode(),
            *(name + b": " + value for name, value in [*headers, *framed]),
        ]
        raw = b"\r\n".join(lines) + b"\r\n\r\n" + body
        return self._cut(rng, raw) if kind == 5 else raw

    def _body(self, rng: random.Random, sound: Any) -> bytes:
        if rng.random() < 0.3:
            return self._cut(rng, json.dumps(sound).encode())
        damaged = json.loads(json.dumps(sound))
        for _ in range(rng.randrange(1, 3)):
            place: Any = damaged
            while isinstance(place, (dict, list)) and place and rng.random() < 0.8:
                key = rng.choice([*place]) if isinstance(place, dict) else rng.randrange(len(place))
                if not isinstance(place[key], (dict, list)) or rng.random() < 0.4:
                    place[key] = copy.deepcopy(rng.choice(SCALARS))
                    break
                place = place[key]
        return json.dumps(damaged, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def _path(self, rng: random.Random, path: str) -> str:
        more = (
            "",
            "/",
            "//",
            "?limit=x",
            "?cursor=%ff",
            "?proof=maybe",
            "%00",
            "%2e%2e/",
            ";a=b",
            "/../admin",
            "#x",
            "?" + "a=1&" * 500,
        )
        return (
            path + rng.choice(more)
            if rng.random() < 0.7
            else "/" + "".join(rng.choice("ab/%.2ef?=&~;:@") for _ in range(12))
        )

    def _framed(self, rng: random.Random, body: bytes) -> list[tuple[bytes, bytes]]:
        size = b"%d" % len(body)
        return rng.choice(
            [
                [(b"Content-Length", size), (b"Content-Length", size)],
                [(b"Content-Length", size), (b"Transfer-Encoding", b"chunked")],
                [(b"Transfer-Encoding", b"chunked")],
                [(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")],
                [(b"Transfer-Encoding", b"xchunked")],
                [(b"Content-Length", b"+" + size)],
                [(b"Content-Length", b"99999999999999999999")],
                [(b"Content-Length", b"-1")],
                [(b"Content-Length", size + b"," + size)],
                [(b"Content_Length", size)],
                [(b"Content-Length", size), (b"Expect", b"100-continue")],
                [],
            ]
        )

    def _cut(self, rng: random.Random, raw: bytes) -> bytes:
        for _ in range(rng.randrange(1, 4)):
            start, length = rng.randrange(len(raw) + 1), rng.choice((0, 0, 1, 2, 8, 64))
            put = bytes(
                rng.choice(b'\x00\r\n\t :/?"{}[],\\\xff\x80aZ0')
                for _ in range(rng.choice((0, 1, 2, 5)))
            )
            raw = raw[:start] + put + raw[start + length :]
        return raw


def send(running: Running, raw: bytes, outcome: Outcome) -> None:
    """Send a request and note what came back; a time-out of the socket is a hang."""
    outcome.requests += 1
    try:
        answer = running.raw(raw)
    except TimeoutError:
        outcome.wrong.append(("no answer in time", raw))
        return
    except ConnectionError as error:
        outcome.wrong.append((f"cut off: {error!r}", raw))
        return
    try:
        _judge(answer, outcome)
    except (AssertionError, ValueError, LookupError) as error:
        outcome.wrong.append((repr(error), raw))


def _judge(answer: bytes, outcome: Outcome) -> None:
    while answer:
        head, _, answer = answer.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = int(first.split(b" ")[1])
        if status == 100:
            continue
        outcome.answers[status] += 1
        headers = {name.lower(): value for name, value in (line.split(b": ", 1) for line in lines)}
        assert all(32 <= byte < 127 for byte in head.replace(b"\r\n", b"")), (
            "control characters in the head"
        )
        assert headers[b"x-request-id"], "no number"
        if status in (204, 304):
            continue
        if headers.get(b"transfer-encoding") == b"chunked":
            return  # an answer in pieces is the last of its connection here
        length = int(headers[b"content-length"])
        assert len(answer) >= length, "a body that ended early"
        body, answer = answer[:length], answer[length:]
        if status >= 400:
            found = json.loads(body)
            assert list(found) == ["code", "message", "details"], "another shape"
            assert isinstance(found["message"], str), "no message"
            assert found["message"], "an empty message"
            assert found["details"] is None or isinstance(found["details"], dict), (
                "details of another kind"
            )
            assert status < 500 or found["code"] == "LLM_NOT_CONFIGURED", (
                f"{status} {found['code']}"
            )
