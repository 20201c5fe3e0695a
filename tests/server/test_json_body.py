"""Strict parsing of request bodies."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbcore.errors import InvalidInput, TooLarge
from kbcore.strict_json import read_slowly
from kbplanner.pacing import yielding
from kbserver.http import json_body as body
from kbserver.http import json_pieces as pieces
from kbserver.http.body_memory import Bodies
from kbserver.http.json_body import BodyLimit, parse_object, read_body


def limited(size: int) -> BodyLimit:
    return BodyLimit(size, "MAX_BODY_BYTES")


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
        read_body(
            {"CONTENT_LENGTH": "3", "wsgi.input": io.BytesIO(b"{} x")}, limited(10), Bodies(1 << 30)
        )
        == b"{} "
    )


def test_too_large_is_known_before_anything_is_read() -> None:
    for stated in ("11", "9" * 40):
        with pytest.raises(TooLarge):
            read_body(
                {"CONTENT_LENGTH": stated, "wsgi.input": Failing()}, limited(10), Bodies(1 << 30)
            )


def test_chunks_are_bounded_too() -> None:
    endless = {"wsgi.input_terminated": True, "wsgi.input": io.BytesIO(b"x" * 1_000_000)}
    with pytest.raises(TooLarge):
        read_body(endless, limited(70_000), Bodies(1 << 30))
    assert endless["wsgi.input"].tell() < 200_000


def test_a_body_without_length_and_end_is_empty() -> None:
    assert read_body({"wsgi.input": Failing()}, limited(10), Bodies(1 << 30)) == b""


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
        read_body(environ, limited(10), Bodies(1 << 30))


# ---- large bodies, in pieces ----


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut every body into pieces of a few bytes."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 7)
    monkeypatch.setattr(body, "PIECE_BYTES", 7)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet='ab"\\\\,:[]{}\n é😀', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.text(alphabet='ab"\\\\,:[{', max_size=3), inner, max_size=6)
    ),
    max_leaves=40,
)


@pytest.mark.usefixtures("small_pieces")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text("ab:,é", max_size=3), JSON_VALUES, max_size=6), st.booleans(), st.data()
)
def test_pieces_make_the_value_of_the_whole(
    value: dict[str, Any], is_ascii: bool, data: st.DataObject
) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert parse_object(raw, 64) == value
    at = data.draw(st.integers(0, len(raw) - 1))
    changed = (
        raw[:at] + data.draw(st.sampled_from([b"", b",", b"]", b"}", b'"', b"["])) + raw[at + 1 :]
    )
    with suppress(InvalidInput):
        assert parse_object(changed, 64) == json.loads(changed)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b'{"a": 1, "b": [1, 2, 3], "a": 2}', 'key "a" is given twice'),
        (b'{"a": [1, 2, 3, 4, 5, NaN]}', "NaN is not a JSON number"),
        (b'{"a": [1, 2, 3, 4, 5, 1e999]}', "the number 1e999 is too large"),
        (b'{"a": [1, 2, 3, 4, 5, "\\ud800"]}', "half a surrogate pair"),
        (b'{"a": [1, 2, 3, 4, 5, "\\u0000"]}', "the character NUL"),
        (b'{"a": [1, 2, 3, 4, 5, "\xff"]}', "the body is not valid UTF-8 at byte 23"),
        (b'{"a": [1, 2, 3, 4, 5]} x', "Extra data at line 1, column 24"),
        (b'{"a": [1, 2, 3, 4, 5]}, {"b": 1}', "Extra data at line 1, column 23"),
        (b'{"a": [1, 2, 3, 4, 5, ]}', "not valid JSON"),
        (b'{"a": [1, 2, 3,, 4, 5]}', "not valid JSON"),
        (b'{"a": [,1, 2, 3, 4, 5]}', "not valid JSON"),
        (b'{"a": [1, 2, 3, 4, 5}, "b": 1}', "not valid JSON"),
        (b'{"a": [1, 2, 3, 4, 5', "not valid JSON"),
        (b'{"a": 1, "b": 2, "c": 3, "d"}', "not valid JSON"),
        (b'{"a":\n[1, 2,\n3, 4, 5 6]}', "at line 3, column 9"),
        (b'{"a": [' + b"0, " * 9 + b"[" * 70 + b"]" * 70 + b", 0]}", "nests deeper than 64 levels"),
        (b"[1, 2, 3, 4, 5]", "a JSON object, not an array"),
    ],
)
def test_pieces_are_as_strict_as_the_whole(raw: bytes, complaint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_object(raw, 64)
    assert complaint in refused.value.message


@pytest.mark.parametrize(
    "element", [b"[],", b"1,", b'"a",', b"1e20,", b'{"a":["b,"]},', b'"\\",",']
)
def test_large_bodies_give_turns(element: bytes) -> None:
    raw = b'{"facts":[' + element * (1_000_000 // len(element)) + b"0]}"
    turns: list[None] = []
    with yielding(lambda: turns.append(None)):
        parse_object(raw, 64)
    assert len(turns) >= len(raw) // pieces.PIECE_BYTES


@pytest.mark.parametrize(
    ("raw", "unit"),
    [
        (b'{"facts":[' + b"[]," * 700_000 + b"0]}", "bodyContainers"),
        (b"{" + b",".join(b'"%d":0' % i for i in range(120_000)) + b"}", "objectMembers"),
        (b'{"a":"' + b"a" * (5 << 20) + b'"}', "valueBytes"),
    ],
)
def test_large_bodies_have_limits(raw: bytes, unit: str) -> None:
    with pytest.raises(TooLarge) as refused:
        parse_object(raw, 64)
    assert refused.value.details["limit"] == unit
