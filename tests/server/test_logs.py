"""Log lines: one event, one line, whatever a client sends."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbserver import logs
from kbserver.request_id import request_id


@pytest.fixture(autouse=True)
def _root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("kb", logging.WARNING, "f.py", 1, message, (), None)
    made.fields = fields
    return made


def test_levels_and_forms() -> None:
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
def test_nothing_from_outside_breaks_a_line(message: str, value: str) -> None:
    text = logs.TextFormatter().format(record(message, tenant=value, status=200))
    assert text.isascii()
    assert text.isprintable()
    assert text.endswith(" status=200")
    found = json.loads(logs.JsonFormatter().format(record(message, tenant=value)))
    assert found["level"] == "WARN"


def test_surrogates_do_not_break_a_line() -> None:
    assert "\\ud800" in logs.TextFormatter().format(record("\ud800"))
    assert json.loads(logs.JsonFormatter().format(record("\ud800")))["message"] == "\\ud800"


def test_a_trace_stays_on_the_line() -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        made = logging.LogRecord("kb", logging.ERROR, "f.py", 1, "failed", (), (type(error), error, error.__traceback__))
    assert "boom" in logs.TextFormatter().format(made)
    assert "\n" not in logs.TextFormatter().format(made)
    assert "boom" in json.loads(logs.JsonFormatter().format(made))["trace"]


@pytest.mark.parametrize("offered", ["a", "A-1._z", "x" * 128])
def test_a_good_request_id_is_kept(offered: str) -> None:
    assert request_id(offered) == offered


@pytest.mark.parametrize("offered", [None, "", "x" * 129, "a b", "a\nb", "ä", "a;b", "a\n"])
def test_another_one_is_replaced(offered: str | None) -> None:
    assert request_id(offered) not in (offered, request_id(offered))
