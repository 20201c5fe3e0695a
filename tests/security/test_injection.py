"""Header, log and stream injection: nothing that a client sends breaks out of what it is written
in.

Hostile values go into every header, path, query and string of a body of every operation. Every
answer must then be well-formed, with headers that the server has written, every log line must be
one event with the fields of the server, and every stream must have the events of the server.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from support.commands import kbcore
from support.http import serve_in_memory
from support.permission_matrix import body_of
from support.sockets import Running

from kbcore import open_kb
from kbserver import logs
from kbserver.cli import cli
from kbserver.cli.shared import output
from kbserver.operations import routes

KEY = "the-key-of-this-administrator"

CRLF = "a\r\nX-Evil: 1\r\n\r\nevil"
HOSTILE = (
    CRLF,
    "a\nX-Evil: 1",
    "a\rX-Evil: 1",
    "a\u2028X-Evil: 1\u0085X-Evil: 2",
    "a\x1b[2J\x1b]0;evil\x07\x9b31m\x7f",
    "a\u202eevil\u2066b",
    'a" forged=1 b="c\\',
    "a, b; c=d%0d%0aX-Evil: 1",
    "a\x00b",
    "\u00e9\u4e2d\U0001f600",
    "\ud800",
    "data: x\n\nevent: evil\ndata: {}\n\n",
    "x" * 7000,
)

HEADERS = (
    "X-Tenant-ID",
    "X-Database",
    "X-Transaction-ID",
    "X-Request-ID",
    "traceparent",
    "X-API-Key",
    "Authorization",
    "User-Agent",
    "Referer",
    "Origin",
    "Host",
    "Prefer",
    "Accept",
    "Cookie",
    "Accept-Encoding",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "X-Forwarded-For",
    "A2A-Version",
    "Mcp-Session-Id",
    "MCP-Protocol-Version",
    "X-Min-Seq",
    "Content-Type",
    "Connection",
    "Forwarded",
    "Sec-Fetch-Site",
)

TEXT_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<level>[A-Z]+) (?P<logger>[\w.]+) (?P<message>.*)"
)
FIELD = re.compile(r'([A-Za-z]+)=("(?:[^"\\]|\\.)*"|[^\s"]+)(?: |$)')
HEADER_LINE = re.compile(rb"([A-Za-z0-9-]+): ([\x20-\x7e]*)")


# -- a server, its answers and its log -------------------------------------------------------------


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Target:
    """A server on a socket that writes its log into `stream`."""

    def __init__(self, running: Running, stream: io.StringIO, clock: Any) -> None:
        self._running, self._clock = running, clock
        self.stream = stream

    def send(self, method: str, target: bytes, headers: dict[str, bytes], body: bytes = b"") -> int:
        """Send a request, check that the answer is one answer of the server; return its status."""
        self._clock.advance(61_000)  # no address has too many wrong keys
        lines = [method.encode() + b" " + target + b" HTTP/1.1"]
        lines += [name.encode() + b": " + value for name, value in headers.items()]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        raw = self._running.raw(b"\r\n".join(lines) + b"\r\nConnection: close\r\n\r\n" + body)
        return check_answer(raw)


def check_answer(raw: bytes) -> int:
    """Check the form of one answer on a connection; return its status."""
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    assert re.fullmatch(rb"HTTP/1\.1 \d{3} [A-Za-z -]+", status), status
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = HEADER_LINE.fullmatch(line)
        assert match, line
        name = match[1].lower()
        assert name not in headers or name == b"vary", line
        headers[name] = match[2]
    assert b"x-evil" not in headers
    if b"content-length" in headers:
        assert len(body) == int(headers[b"content-length"])
    if (
        headers.get(b"content-type") == b"application/json"
        and body
        and b"content-encoding" not in headers
    ):
        json.loads(body)
    return int(status.split()[1])


def check_log(text: str, form: str) -> int:
    """Check that each line is one event with no field of a client; return the number of lines."""
    lines = text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert line.isascii(), line
        assert line.isprintable(), line
        if form == "json":
            event = json.loads(line)
            assert {"time", "level", "logger", "message"} <= set(event)
            assert "forged" not in event
        else:
            match = TEXT_LINE.fullmatch(line)
            assert match, line
            names = fields_of(match["message"])
            assert "forged" not in names, line
    return len(lines)


def fields_of(text: str) -> dict[str, str]:
    """Return the fields at the end of a text line, which follow a message without `=`."""
    words, equals, rest = text.partition("=")
    if not equals:
        return {}
    message, _, name = words.rpartition(" ")
    rest = f"{name}={rest}"
    names, at = {}, 0
    while at < len(rest):
        match = FIELD.match(rest, at)
        assert match, (message, rest[at : at + 80])
        names[match[1]] = match[2]
        at = match.end()
    return names


@pytest.fixture(params=["text", "json"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    settings: dict[str, Any] = {
        "auth_enabled": True,
        "api_key": KEY,
        "forwarded_hops": 1,
        "webhook_urls": ("http://127.0.0.1/",),
        "webhook_private_addresses": True,
        "slow_query_ms": 0,
    }
    with serve_in_memory(**settings) as served:
        running = Running(served.app)
        stream = io.StringIO()
        logs.configure("INFO", request.param, stream)
        try:
            yield Target(running, stream, served.clock)
            assert check_log(stream.getvalue(), request.param) > 100
        finally:
            running.stop()


def sound() -> dict[str, bytes]:
    return {
        "Host": b"127.0.0.1",
        "Authorization": f"Bearer {KEY}".encode(),
        "X-Tenant-ID": b"a",
        "Content-Type": b"application/json",
    }


def header_forms(value: str) -> set[bytes]:
    """A hostile value as a header can carry it: raw with one line end less, and percent-encoded."""
    raw = value.encode("utf-8", "surrogatepass").split(b"\r\n")[0]
    return {raw, raw.replace(b"\n", b"\r"), quote(value, safe="", errors="replace").encode()}


# -- answers and log lines -------------------------------------------------------------------------


def test_hostile_headers(target: Target) -> None:
    goal = json.dumps({"predicate": "p", "args": ["?x"]}).encode()
    for name in HEADERS:
        for value in HOSTILE:
            for form in header_forms(value):
                target.send("POST", b"/ask", {**sound(), name: form}, goal)
        target.send("POST", b"/ask", {**sound(), name: b"\xe9\xff\x85"}, goal)


def test_hostile_paths_and_queries(target: Target) -> None:
    for value in HOSTILE:
        encoded = quote(value, safe="", errors="replace").encode()
        raw = value.encode("utf-8", "surrogatepass").replace(b" ", b"").split(b"\r\n")[0]
        for place in (encoded, raw, encoded.lower(), encoded + b"/" + raw):
            for target_ in (
                b"/" + place,
                b"/goals/" + place,
                b"/console/" + place,
                b"/docs/" + place,
                b"/episodes/" + place,
                b"/admin/databases/" + place + b"/tenants",
                b"/rules?limit=1&cursor=" + place,
                b"/rules?limit=1&" + place + b"=1",
                b"/facts/history?predicate=" + place,
                b"http://" + place + b"/health",
            ):
                target.send("GET", target_, sound())
        target.send("DELETE", b"/auth/keys/" + encoded, sound())
        target.send("POST", b"/admin/databases/" + encoded + b"/nuke", sound(), b"{}")


def hostile_bodies(body: Any, value: str) -> Iterator[Any]:
    """Yield the body with each of its strings replaced by a hostile value, and with a hostile
    key.
    """
    if isinstance(body, str):
        yield value
    elif isinstance(body, list):
        for index, element in enumerate(body):
            for other in hostile_bodies(element, value):
                yield [*body[:index], other, *body[index + 1 :]]
    elif isinstance(body, dict):
        yield {**body, value: "x"}
        for key, element in body.items():
            for other in hostile_bodies(element, value):
                yield {**body, key: other}


MORE_BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/tell", {"predicate": "p", "args": ["x"], "scope": "s", "metadata": {"k": "v"}}),
    ("/teach", {"text": "p(?x) :- q(?x)."}),
    ("/auth/keys", {"name": "n", "role": "reader", "tenants": ["t"], "description": "d"}),
    ("/goals/subscribe", {"goal": "p(?x)", "webhook": {"url": "http://127.0.0.1/x", "secret": "s"}}),
    ("/memory/context", {"query": "q", "sessionId": "s", "format": "natural", "asker": "ann"}),
    ("/mcp", {"jsonrpc": "2.0", "id": "1", "method": "tools/call",
              "params": {"name": "tell", "arguments": {"predicate": "p", "args": ["x"]}}}),
    ("/a2a", {"jsonrpc": "2.0", "id": "1", "method": "SendMessage", "params": {
        "message": {"messageId": "1", "contextId": "c", "role": "ROLE_USER",
                    "parts": [{"data": {"op": "tell", "predicate": "p", "args": ["x"]}}]}}}),
)  # fmt: skip


def test_hostile_bodies(target: Target) -> None:
    bodies = [
        (template, body_of(declared))
        for (method, template), declared in sorted(routes().items())
        if method == "POST" and "<" not in template and declared.body is not None
    ]
    for template, body in (*bodies, *MORE_BODIES):
        for value in HOSTILE:
            for hostile in hostile_bodies(body, value):
                data = json.dumps(hostile).encode()
                target.send("POST", template.encode(), sound(), data)
    assert target.send("GET", b"/metrics", sound()) == 200


def test_labels_of_metrics_name_nothing_of_a_client() -> None:
    line = re.compile(
        r'[a-z_:]+(\{([a-zA-Z_]+="[A-Za-z0-9_./<>:+ -]*",?)*\})? [0-9.eE+-]+(nan|inf)?', re.I
    )
    with serve_in_memory() as served:
        for value in HOSTILE[:-1]:
            path = "/" + quote(value, safe="", errors="replace")
            served.client.get(path)
            served.client.flask.open(path, method="EVIL")
            served.client.post("/ask", {"predicate": value, "args": ["?x"]})
            call = {"name": value, "arguments": {}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            served.client.post("/mcp", message, {"Host": "localhost"})
        exposition = served.client.get("/metrics").text
    samples = [text for text in exposition.splitlines() if not text.startswith("#")]
    assert len(samples) > 50
    assert [text for text in samples if not line.fullmatch(text)] == []
    assert not re.search("evil|forged", exposition, re.I)


# -- streams ---------------------------------------------------------------------------------------

STORED = [value for value in HOSTILE if "\x00" not in value and "\ud800" not in value]


def sse_events(text: str) -> list[dict[str, str]]:
    """Parse an event stream as the standard says: lines end in LF, CR or CR LF."""
    events = []
    for block in re.split(r"(?:\r\n|\r|\n){2}", text):
        event = {}
        for line in re.split(r"\r\n|\r|\n", block):
            name, _, value = line.partition(":")
            assert name in ("", "id", "event", "data", "retry"), line
            if name:
                event[name] = value.removeprefix(" ")
        if "data" in event:
            events.append(event)
    return events


def test_events_of_a_stream_are_those_of_the_server() -> None:
    with serve_in_memory() as served:
        headers = {"X-Tenant-ID": "t"}
        streams = [served.client.flask.get("/memory/events", headers=headers)]
        subscribed = served.client.post("/goals/subscribe", {"goal": "p(?x)", "id": "g"})
        assert subscribed.status_code == 200, subscribed.text
        streams.append(served.client.flask.get("/goals/g/events", headers=headers))
        parts = [iter(stream.response) for stream in streams]
        heads = [next(each).decode() for each in parts]
        for value in STORED:
            served.client.tell("p", value)
        texts = []
        for each, head in zip(parts, heads, strict=True):
            text = head
            while text.count("data:") < 1 or not all_values(sse_events(text)) >= set(STORED):
                text += next(each).decode()
            texts.append(text)
        for stream in streams:
            stream.close()
    for text in texts:
        events = sse_events(text)
        assert {event.get("event") for event in events}.isdisjoint({"evil"})
        assert all(isinstance(json.loads(event["data"]), dict) for event in events)


def all_values(events: list[dict[str, str]]) -> set[str]:
    """Return the strings in the data of events, at any depth."""
    found: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, dict):
            for each in value.values():
                visit(each)
        elif isinstance(value, list):
            for each in value:
                visit(each)

    for event in events:
        visit(json.loads(event["data"]))
    return found


def test_answers_of_tools_in_a_stream_are_one_event_each() -> None:
    with serve_in_memory() as served:
        stream = served.client.flask.get("/mcp/sse", headers={"X-Tenant-ID": "t"}, buffered=False)
        parts = iter(stream.response)
        (endpoint,) = sse_events(next(parts).decode())
        for value in STORED:
            served.client.tell("p", value)
            arguments = {"predicate": "p", "args": ["?x"], "contains": value}
            call = {"name": "query", "arguments": arguments}
            message = {"jsonrpc": "2.0", "id": value, "method": "tools/call", "params": call}
            sent = served.client.post(endpoint["data"], message, {"Host": "localhost"})
            assert sent.status_code == 202, sent.text
            (event,) = sse_events(next(parts).decode())
            assert event["event"] == "message"
            assert json.loads(event["data"])["id"] == value
        stream.close()


@pytest.mark.parametrize("form", ["facts", "natural"])
def test_a_stored_text_stays_on_its_line_of_a_prompt(form: str) -> None:
    with open_kb() as kb:
        for value in STORED:
            kb.tell("p", [value])
            kb.tell("liked", [value, "x"])
        kb.teach('@phrase p/1 "It is known that {0} is so."')
        text = kb.context(goals=["p(?x)", "liked(?x, ?y)"], max_facts=50, format=form).text
    lines = text.splitlines()
    assert len(lines) == 2 * len(STORED) + 2
    beginnings = ("Goal: ", "% Goal: ", "It is known that ", "p(", "liked(", '"', "xxx")
    assert [line for line in lines if not line.startswith(beginnings)] == []


def test_a_text_that_was_said_stays_on_its_line_of_a_prompt() -> None:
    with open_kb() as kb:
        for value in STORED:
            kb.tell("said", [value, value, "2026-03-02"])
        text = kb.context(max_facts=100, format="natural").text
    lines = text.splitlines()
    assert len(lines) == len(STORED)
    assert all(line.startswith("2 Mar 2026, ") for line in lines)
    assert not UNSAFE.search(text.replace("\n", " "))


# -- exports and the terminal ----------------------------------------------------------------------

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that change the state of a terminal or the order of its text, and other line ends."""

FORMATS = ("--table", "--lines", "--json")
SHOWING: tuple[tuple[str, ...], ...] = (
    *(("query", "p(?x)", form) for form in FORMATS),
    *(("ask", "q(?x)", form) for form in FORMATS),
    *(("predicates", form) for form in FORMATS),
    *(("rules", form) for form in FORMATS),
    *(("memory", "episodes", form) for form in FORMATS),
    *(("memory", "history", "p", form) for form in FORMATS),
    ("explain", "q(?x)"),
    ("explain", "q(?x)", "--plan"),
    ("whynot", "q(nothing)"),
    ("context", "--goal", "q(?x)"),
    ("context", "--goal", "q(?x)", "--format", "natural"),
    ("context", "--goal", "q(?x)", "--json"),
    ("memory", "decay", "--dry-run"),
    ("memory", "purge", "--dry-run", "--subject", "ann"),
    ("dump",),
    ("dump", "--format", "jsonl"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A storage folder in which everything that can be hostile is."""
    path = tmp_path_factory.mktemp("hostile") / "kb"
    with open_kb(path=path) as kb:
        for value in STORED:
            kb.tell("p", [value])
            kb.tell("ann", [value])
            kb.tell(value[:100], ["x"])
            kb.add_episode(value[:100], value)
        kb.teach("q(?x) :- p(?x).")
    return str(path)


@pytest.mark.parametrize("arguments", SHOWING, ids=" ".join)
def test_commands_write_nothing_that_changes_a_terminal(
    folder: str, arguments: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(cli, [*arguments, "--storage-dir", folder], color=True)
    assert done.exit_code in (0, 1), done.output
    assert len(done.output) > 5
    shown = re.sub(r"\x1b\[\d{1,2}m", "", done.output)  # the colors of the commands themselves
    assert UNSAFE.findall(shown) == []


@pytest.mark.parametrize("value", [value for value in STORED if len(value) < 100])
@pytest.mark.parametrize(
    "command", ["ask", "query", "explain", "whynot", "tell", "teach", "forget"]
)
def test_messages_about_a_hostile_text_change_no_terminal(
    command: str, value: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(
        cli, [command, value, "--storage-dir", str(tmp_path / "kb")], color=True
    )
    shown = re.sub(r"\x1b\[\d{1,2}m", "", done.output)
    assert UNSAFE.findall(shown) == []


def test_csv_for_a_program_is_exact_and_for_a_terminal_harmless(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> str:
        done = kbcore("query", "p(?x)", "--csv", "--storage-dir", folder)
        return done.stdout_bytes.decode()  # `stdout` has other line ends

    rows = list(csv.reader(io.StringIO(written(), newline="")))
    assert rows[0] == ["x"]
    assert {row[0] for row in rows[1:]} == set(STORED)
    assert {len(row) for row in rows} == {1}
    monkeypatch.setattr(output, "_is_terminal", lambda: True)
    assert UNSAFE.findall(written()) == []


def test_json_lines_are_one_fact_each(folder: str) -> None:
    text = kbcore("dump", "--format", "jsonl", "--storage-dir", folder).stdout
    facts = [json.loads(line) for line in text.removesuffix("\n").split("\n")]
    assert {row["args"][0] for row in facts if row.get("predicate") == "p"} == set(STORED)


@pytest.mark.parametrize("option", ["--tenant", "--database", "--api-key"])
@pytest.mark.parametrize("value", ["a\nX-Evil: 1", "a\r\n\r\nGET /", "t\u20acxt secret"])
def test_options_that_go_into_headers_are_checked(option: str, value: str) -> None:
    done = CliRunner().invoke(cli, ["ask", "p(?x)", "--url", "http://127.0.0.1:9", option, value])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert "Invalid value" in done.output
    assert value not in done.output


def test_settings_change_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "a\n\x1b[31mb\u202e")
    done = CliRunner().invoke(cli, ["config", "check"], env={"STORAGE_DIR": path}, color=True)
    assert done.exit_code == 0
    assert len(re.findall("STORAGE_DIR=.*31mb", done.output)) == 1
    assert UNSAFE.findall(done.output) == []
    logs.announcer("text")(f"storage {path}")
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert UNSAFE.findall(shown) == []
