"""Strict parsing of request bodies."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore.errors import InvalidInput, TooLarge
from kbcore.strict_json import read_slowly
from kbserver.http.body_memory import Bodies
from kbserver.http.json_body import parse_object, read_body


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b'{"a": 1, "a": 2}', 'key "a" is given twice'),
        (b'{"a": {"b": 1, "b": {"c": 1}}}', 'key "b" is given twice'),
        (b'{"a": "\\u003a", "a": 1}', 'key "a" is given twice'),
        (b'{"\\u0061": 1, "a": 2}', 'key "a" is given twice'),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "the number 1e999 is too large"),
        (b'{"a": "\\ud800"}', "half a surrogate pair is not a character"),
        (b'{"\\udc00": 1}', "half a surrogate pair is not a character"),
        (b'{"a": "\\u0000"}', "the character NUL is not allowed in text"),
        (b'{"a": "\x00"}', "Invalid control character"),
        (b'{"a": "\xff"}', "the body is not valid UTF-8 at byte 7"),
        (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
        (b'{"a": 1} x', "Extra data at line 1, column 10"),
        (b'{"a": 1}{"b": 2}', "Extra data"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer in the body has too many digits"),
        (b"[" * 100_000, "nests deeper than 64 levels"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nests deeper than 64 levels"),
        (b'{"a": ["]", ' + b"[" * 70 + b"]" * 70 + b"]}", "nests deeper than 64 levels"),
        (b"[]", "a JSON object, not an array"),
        (b"null", "a JSON object, not null"),
        (b"true", "a JSON object, not a boolean"),
        (b'"text"', "a JSON object, not a string"),
        (b"12", "a JSON object, not a number"),
        (b" ", "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b'{"a": 01}', "not valid JSON"),
    ],
)
def test_invalid_bodies_are_refused(raw: bytes, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_object(raw, 64)
    assert complaint in refused.value.message


def test_an_unclosed_string_of_escapes_takes_linear_time() -> None:
    with pytest.raises(InvalidInput):
        parse_object(b'["' + b'\\"[' * 300_000, 64)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", {}),
        (b"{}", {}),
        (b'{"a": 12345678901234567890123}', {"a": 12345678901234567890123}),
        (b'{"a": -9223372036854775809}', {"a": -9223372036854775809}),
        (b'{"a": 18446744073709551615}', {"a": 18446744073709551615}),
        (b'{"a": "\\u003a b:c"}', {"a": ": b:c"}),
        (b'{"a": "\\\\u0000"}', {"a": "\\u0000"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a":' * 64 + b"1" + b"}" * 64, None),
    ],
)
def test_valid_bodies_are_parsed(raw: bytes, value: Any) -> None:
    found = parse_object(raw, 64)
    if value is not None:
        assert found == value
        assert type(found.get("a")) is type(value.get("a"))


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), _values, max_size=5), st.booleans())
def test_both_parsers_agree(value: dict[str, Any], ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    slow: Any
    try:
        slow = read_slowly(raw, 64, "the body")
    except InvalidInput:
        slow = "refused"
    try:
        fast: Any = parse_object(raw, 64)
    except InvalidInput:
        fast = "refused"
    assert repr(fast) == repr(slow)
    assert fast == value or "\0" in json.dumps(value, ensure_ascii=False).replace("\\u0000", "\0")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_invalid(raw: bytes) -> None:
    with suppress(InvalidInput):
        assert type(parse_object(raw, 16)) is dict


class Failing(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError("gone")


def test_the_stated_length_is_read() -> None:
    assert (
        read_body({"CONTENT_LENGTH": "3", "wsgi.input": io.BytesIO(b"{} x")}, 10, Bodies(1 << 30))
        == b"{} "
    )


def test_too_large_is_known_before_anything_is_read() -> None:
    for stated in ("11", "9" * 40):
        with pytest.raises(TooLarge):
            read_body({"CONTENT_LENGTH": stated, "wsgi.input": Failing()}, 10, Bodies(1 << 30))


def test_chunks_are_bounded_too() -> None:
    endless = {"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(b"x" * 1_000_000)}
    with pytest.raises(TooLarge):
        read_body(endless, 70_000, Bodies(1 << 30))
    assert endless["wsgi.input"].tell() < 200_000


def test_a_body_without_length_and_end_is_empty() -> None:
    assert read_body({"wsgi.input": Failing()}, 10, Bodies(1 << 30)) == b""


@pytest.mark.parametrize(
    "environ",
    [
        {"CONTENT_LENGTH": "5", "wsgi.input": io.BytesIO(b"{}")},
        {"CONTENT_LENGTH": "5", "wsgi.input": Failing()},
        {"CONTENT_LENGTH": "-5", "wsgi.input": io.BytesIO(b"{}")},
        {"CONTENT_LENGTH": "5x", "wsgi.input": io.BytesIO(b"{}")},
        {"wsgi.input_terminated": True, "wsgi.input": Failing()},
    ],
)
def test_an_incomplete_body_is_a_client_error(environ: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read_body(environ, 10, Bodies(1 << 30))
