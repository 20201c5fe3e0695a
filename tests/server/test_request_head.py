"""Strict parsing of request heads."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore import __version__
from kbserver.errors import ErrorAnswer
from kbserver.http.request_head import MAX_HEAD, MAX_LINE, BadRequest, Head, read_head, refusal


def head_of(raw: bytes) -> Head:
    head = Head()
    assert read_head(io.BytesIO(raw).readline, head)
    return head


def test_a_valid_request() -> None:
    head = head_of(
        b"POST /tell%20x?a=b&c HTTP/1.1\r\nHost: x\r\nX-Tenant-ID:  t \r\nContent-Length: 3\r\nContent-Type: a/b\r\n\r\n{}"
    )
    assert head.environ() == {
        "REQUEST_METHOD": "POST",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "PATH_INFO": "/tell x",
        "QUERY_STRING": "a=b&c",
        "HTTP_HOST": "x",
        "HTTP_X_TENANT_ID": "t",
        "CONTENT_LENGTH": "3",
        "CONTENT_TYPE": "a/b",
    }
    assert (head.length, head.chunked, head.closes) == (3, False, False)


def test_targets() -> None:
    assert head_of(b"GET http://host:1/a/b?c HTTP/1.1\r\n\r\n").target == "/a/b?c"
    assert head_of(b"GET http://host HTTP/1.1\r\n\r\n").target == "/"
    assert head_of(b"OPTIONS * HTTP/1.1\r\n\r\n").target == "*"
    assert head_of(b"GET //a//b HTTP/1.1\r\n\r\n").target == "//a//b"


def test_repeated_headers_are_joined_and_names_with_underscores_dropped() -> None:
    head = head_of(
        b"GET / HTTP/1.1\r\nPrefer: a\r\nprefer: b\r\nCookie: a\r\nCookie: b\r\nX_Tenant_ID: evil\r\n\r\n"
    )
    assert head.headers == {"PREFER": "a,b", "COOKIE": "a; b"}


def test_connection_close() -> None:
    assert head_of(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").closes
    assert head_of(b"GET / HTTP/1.0\r\n\r\n").closes
    assert not head_of(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").closes


def test_no_request() -> None:
    assert not read_head(io.BytesIO(b"").readline, Head())
    assert not read_head(io.BytesIO(b"\r\n").readline, Head())


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\n\r\n", 400),
        (b"G(T / HTTP/1.1\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nNo colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nSpace : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nExpect: miracles\r\n\r\n", 417),
        (b"GET /" + b"a" * MAX_LINE + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * MAX_HEAD + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_malformed_heads_are_refused(raw: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        head_of(raw)
    assert refused.value.status == status


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length:"]),
)
def test_any_bytes_are_read_or_refused(raw: bytes, start: bytes) -> None:
    head = Head()
    try:
        complete = read_head(io.BytesIO(start + raw).readline, head)
    except BadRequest as error:
        refusal(head, ErrorAnswer(error.status, "VALIDATION_ERROR", error.message))
    else:
        assert not complete or head.length is None or head.length >= 0
        head.environ()


def test_a_refusal_carries_the_request_id() -> None:
    head = Head()
    with pytest.raises(BadRequest):
        read_head(io.BytesIO(b"GET / HTTP/1.1\r\nX-Request-ID: mine\r\nbad\r\n\r\n").readline, head)
    raw = refusal(head, ErrorAnswer(400, "VALIDATION_ERROR", "no"))
    start, body = raw.split(b"\r\n\r\n")
    assert start.split(b"\r\n") == [
        b"HTTP/1.1 400 Bad Request",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"X-Request-ID: mine",
        b"X-KB-Version: %b" % __version__.encode(),
        b"X-Content-Type-Options: nosniff",
        b"Connection: close",
    ]
    assert body == b'{"code":"VALIDATION_ERROR","message":"no","details":null}'
