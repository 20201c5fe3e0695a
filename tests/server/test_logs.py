"""Log lines: one line per event, whatever a client sends."""

from __future__ import annotations

import contextvars
import io
import itertools
import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.http import serve_in_memory

from kbcore.config import Config
from kbcore.operations.slow_log import REQUEST
from kbserver import logs
from kbserver.http.request_id import request_id


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("kb", logging.WARNING, "f.py", 1, message, (), None)
    made.fields = fields
    return made


def test_levels_and_formats() -> None:
    stream = io.StringIO()
    logs.configure("WARN", "json", stream)
    logging.getLogger("a").info("unseen")
    logging.getLogger("a").warning("seen %d", 1)
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"]) == ("WARN", "a", "seen 1")
    stream = io.StringIO()
    logs.configure("DEBUG", "text", stream)
    logging.getLogger("a").debug("seen")
    assert " DEBUG a seen\n" in stream.getvalue()


@given(st.text(), st.text())
def test_client_input_cannot_break_a_line(message: str, value: str) -> None:
    text = logs.TextFormatter().format(record(message, tenant=value, status=200))
    assert text.isascii()
    assert text.isprintable()
    assert text.endswith(" status=200")
    line = logs.JsonFormatter().format(record(message, tenant=value))
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert found["level"] == "WARN"


def test_bidirectional_marks_are_escaped_in_both_formats() -> None:
    evil = "a\u202eb\u2066c\u200fd\u2028e\x85f\x7fg\x1b[2Jh\U0001f600"
    for formatter in (logs.TextFormatter(), logs.JsonFormatter()):
        line = formatter.format(record("seen", tenant=evil))
        assert line.isascii()
        assert line.isprintable()
    assert json.loads(logs.JsonFormatter().format(record("seen", tenant=evil)))["tenant"] == evil


SECRETS = ("s3cret-of-the-model", 'with"quote\\and-slash')


@pytest.mark.parametrize(
    ("written", "hidden"),
    [
        ("sent s3cret-of-the-model away", "s3cret-of-the-model"),
        ('sent with"quote\\and-slash away', "quote"),
        ("cannot reach postgresql://kb:hunter22@db/kb", "hunter22"),
        ("cannot reach https://only-user@host/", "only-user"),
        ("header Authorization: Bearer abcdefgh.ijkl", "abcdefgh"),
        ("header Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("key kb_01ab_ABCDEFGHIJKLMNOPQRSTUVWX was used", "ABCDEFGHIJ"),
        ("sent eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2ln as it is", "eyJzdWIiOiJhbm4ifQ"),
        ("GET /x?api_key=abcdefgh&token=zyxw", "abcdefgh"),
        ("GET /x?api_key=abcdefgh&token=zyxw", "zyxw"),
    ],
)
@pytest.mark.parametrize("form", [logs.TextFormatter, logs.JsonFormatter])
def test_secrets_are_not_written(written: str, hidden: str, form: type[logs.TextFormatter]) -> None:
    for made in (record(written), record("failed", reason=written)):
        line = form(SECRETS).format(made)
        assert hidden not in line
        assert form is logs.TextFormatter or json.loads(line)["level"] == "WARN"


def test_secrets_in_tracebacks_are_not_written() -> None:
    try:
        raise RuntimeError("key s3cret-of-the-model refused by https://a:b@host/")
    except RuntimeError as error:
        made = logging.LogRecord(
            "kb", logging.ERROR, "f.py", 1, "failed", (), (type(error), error, error.__traceback__)
        )
    for form in (logs.TextFormatter, logs.JsonFormatter):
        line = form(SECRETS).format(made)
        assert "s3cret-of-the-model" not in line
        assert "a:b@" not in line


def test_fields_named_like_secrets_are_hidden() -> None:
    for name in ("authorization", "X-API-Key", "cookie", "password"):
        assert (
            logs.TextFormatter()
            .format(record("x", **{name: "anything"}))
            .endswith(f'{name}="(not shown)"')
        )


def test_ordinary_texts_are_unchanged() -> None:
    text = "data in /srv/kb at 10.0.0.1:9300, bearer of news, a=b, user@example"
    assert text in logs.TextFormatter(SECRETS).format(record(text))


def test_secret_settings_are_known() -> None:
    config = Config(llm_api_key="abcdefgh", storage_url="postgresql://kb:p%40ss@db/kb")
    assert {"abcdefgh", "p%40ss", "p@ss"} <= set(config.secrets())
    assert Config().secrets() == []


def test_lines_have_the_request_id() -> None:
    context = contextvars.copy_context()
    context.run(REQUEST.set, "r-1")
    assert context.run(logs.TextFormatter().format, record("x")).endswith(" id=r-1")
    assert context.run(logs.TextFormatter().format, record("x", id="own")).endswith(" id=own")


@pytest.mark.parametrize("fast_path", [True, False])
def test_the_access_line_has_three_headers_and_no_body_or_query(
    fast_path: bool,
) -> None:
    stream = io.StringIO()
    with serve_in_memory() as served:
        logs.configure("INFO", "json", stream)
        headers = {
            "X-Request-ID": "r-1",
            "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
            "Authorization": "Bearer hidden-one",
            "Cookie": "hidden-two",
            "User-Agent": "hidden-three",
        }
        query = "" if fast_path else "?limit=5&cursor=hidden-four"
        body = {"predicate": "hidden_five", "args": ["?x", "hidden-six"]}
        served.client.post("/ask" + query, body, headers)
    (line,) = [
        json.loads(line) for line in stream.getvalue().splitlines() if "kbserver.access" in line
    ]
    assert "hidden" not in stream.getvalue()
    assert set(line) == {
        "time",
        "level",
        "logger",
        "message",
        "method",
        "path",
        "status",
        "ms",
        "id",
        "tenant",
        "address",
        "traceId",
    }
    assert (line["id"], line["tenant"], line["path"], line["traceId"]) == (
        "r-1",
        "t",
        "/ask",
        "a" * 32,
    )
    assert line["ms"] >= 0


def test_writes_are_not_logged_at_info() -> None:
    stream = io.StringIO()
    with serve_in_memory() as served:
        logs.configure("INFO", "text", stream)
        served.client.tell("hidden", "hidden", metadata={"hidden": "hidden"})
        served.client.post("/teach", {"text": "hidden(?x) :- "})
        served.client.post("/assert/facts", {"facts": [{"predicate": "hidden", "args": [[]]}]})
    assert stream.getvalue().count(" request ") == 3
    assert "hidden" not in stream.getvalue()


def slow_lines(level: str, **settings: int) -> tuple[list[dict[str, Any]], str]:
    stream = io.StringIO()
    with serve_in_memory(**settings) as served:
        client = served.client
        client.tell("parent", "Ann Smith", "bob")
        client.post("/teach", {"text": 'kin(?x, ?y) :- parent(?x, ?y), ?y != "Eve Jones".'})
        logs.configure(level, "json", stream)
        clock = served.runtime.clock
        ticks = itertools.count()
        clock.monotonic = lambda: next(ticks) * 0.01
        client.post(
            "/ask", {"predicate": "kin", "args": ["Ann Smith", "?y"]}, {"X-Request-ID": "r-7"}
        )
        client.post("/ask?proof=true", {"predicate": "parent", "args": ["?x", "bob"], "limit": 1})
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in lines if line["logger"] == "kbcore.slow"], stream.getvalue()


def test_slow_goals_are_logged_with_their_plan_without_constants() -> None:
    (ask, prove), text = slow_lines("INFO", slow_query_ms=5)
    assert (ask["id"], ask["tenant"], ask["database"], ask["kind"]) == (
        "r-7",
        "t",
        "default",
        "ask",
    )
    assert (ask["goal"], ask["outcome"], ask["limitMs"]) == ("kin(#, ?y)", "answered", 30_000)
    assert ask["ms"] >= 5
    assert "probe parent/2" in ask["plan"]
    assert (prove["kind"], prove["goal"], prove["plan"]) == (
        "prove",
        "parent(?x, #)",
        "look up parent/2",
    )
    assert not any(name in text for name in ("Ann", "Eve", "bob"))


def test_slow_goals_are_logged_with_constants_at_debug() -> None:
    lines, _ = slow_lines("DEBUG", slow_query_ms=5)
    asked = [line["goal"] for line in lines if line["level"] == "DEBUG"]
    assert asked[0] == 'kin("Ann Smith", ?y)'


def test_fast_goals_are_not_logged_and_zero_disables_the_log() -> None:
    assert slow_lines("DEBUG", slow_query_ms=60_000)[0] == []
    assert slow_lines("DEBUG", slow_query_ms=0)[0] == []


def test_lone_surrogates_are_escaped() -> None:
    assert "\\ud800" in logs.TextFormatter().format(record("\ud800"))
    assert json.loads(logs.JsonFormatter().format(record("\ud800")))["message"] == "\\ud800"


def test_a_traceback_stays_on_the_line() -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        made = logging.LogRecord(
            "kb", logging.ERROR, "f.py", 1, "failed", (), (type(error), error, error.__traceback__)
        )
    assert "boom" in logs.TextFormatter().format(made)
    assert "\n" not in logs.TextFormatter().format(made)
    assert "boom" in json.loads(logs.JsonFormatter().format(made))["trace"]


@pytest.mark.parametrize("offered", ["a", "A-1._z", "x" * 128])
def test_a_valid_request_id_is_used(offered: str) -> None:
    assert request_id(offered) == offered


@pytest.mark.parametrize("offered", [None, "", "x" * 129, "a b", "a\nb", "ä", "a;b", "a\n"])
def test_an_invalid_request_id_is_replaced(offered: str | None) -> None:
    assert request_id(offered) not in (offered, request_id(offered))
