"""A node believes a request only if another node has sent it, to this node, once, as it is."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore.errors import NotFound, Unauthorized
from kbserver.cluster.gate import FROM_NODE, NodeGate
from kbserver.cluster.sealing import MAX_PIECE, BrokenSeal, SealedBody, Seals, sealed_length
from kbserver.cluster.signing import (
    VALID_SECONDS,
    Nonces,
    Signature,
    Signatures,
    digest_of,
    pieces_of,
)
from kbserver.http.gate import CALL, OPEN_BODY
from kbserver.http.request_head import Head

NOW = 1_700_000_000
CLIENT = "192.0.2.7 4711"
BODY = b'{"predicate":"p","args":["a"]}'
HEAD = Head(
    "POST",
    "/tell?x=1",
    headers={
        "HOST": "kb",
        "CONTENT_LENGTH": str(len(BODY)),
        "CONTENT_TYPE": "application/json",
        "X_TENANT_ID": "t",
        "X_DATABASE": "d",
        "AUTHORIZATION": "Bearer kb_1_2",
        "X_TRANSACTION_ID": "tx1",
        "IDEMPOTENCY_KEY": "once",
        "PREFER": "return=minimal",
        "X_REQUEST_ID": "id",
    },
)


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


def nodes() -> tuple[Signatures, Signatures, Clock]:
    """Signatures of two nodes, `a` and `b`."""
    clock = Clock()
    return Signatures("s", "a", clock), Signatures("s", "b", clock), clock


def changed(**headers: str | None) -> Head:
    """HEAD with other headers; None removes one."""
    every = {**HEAD.headers, **headers}
    return replace(HEAD, headers={k: v for k, v in every.items() if v is not None})


def test_a_request_is_accepted_once_by_the_node_to_which_it_was_sent() -> None:
    a, b, _ = nodes()
    value, key = a.make("b", HEAD, CLIENT, digest_of(BODY))
    assert isinstance(a.check(value, HEAD, CLIENT), str)
    assert b.check(value, HEAD, CLIENT) == Signature(digest_of(BODY), key)
    assert isinstance(b.check(value, HEAD, CLIENT), str)
    other, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
    assert other != value
    assert isinstance(b.check(other, HEAD, CLIENT), Signature)


ALTERED = {
    "method": (replace(HEAD, method="PUT"), CLIENT),
    "target": (replace(HEAD, target="/tell?x=2"), CLIENT),
    "private target": (replace(HEAD, target="/-/directory"), CLIENT),
    "client": (HEAD, "192.0.2.8 4711"),
    "no client": (HEAD, ""),
    "another header": (changed(X_MIN_SEQ="5"), CLIENT),
    "a header in two": (changed(PREFER="return", X_A="minimal"), CLIENT),
    **{
        f"{change} {name}": (changed(**{name: value}), CLIENT)
        for name in HEAD.headers
        if name != "CONTENT_LENGTH"
        for change, value in (("other", "x"), ("no", None))
    },
}


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_request_is_refused(what) -> None:
    a, b, _ = nodes()
    value, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
    head, client = ALTERED[what]
    assert isinstance(b.check(value, head, client), str)
    assert isinstance(b.check(value, HEAD, CLIENT), Signature)  # a wrong request uses up nothing


@examples(300)
@given(data=st.data())
def test_an_altered_signature_is_refused(data) -> None:
    a, b, _ = nodes()
    value, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
    position = data.draw(st.integers(0, len(value)))
    char = data.draw(st.characters(min_codepoint=32, max_codepoint=255))
    altered = value[:position] + char + value[position + data.draw(st.integers(0, 2)) :]
    if altered != value:
        assert isinstance(b.check(altered, HEAD, CLIENT), str)
    assert isinstance(b.check(value, HEAD, CLIENT), Signature)


def test_a_signature_ends() -> None:
    a, b, clock = nodes()
    for skew in (-VALID_SECONDS - 1, VALID_SECONDS + 1):
        clock.now = NOW + 1000
        value, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
        clock.now -= skew
        assert isinstance(b.check(value, HEAD, CLIENT), str)
    clock.now = NOW + 5000
    value, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
    for later in range(VALID_SECONDS + 1):
        clock.now = NOW + 5000 + later
        assert isinstance(b.check(value, HEAD, CLIENT), Signature if later == 0 else str)


def test_a_signature_from_before_a_start_is_refused() -> None:
    """The nonces that were used before are not known any more."""
    a, b, clock = nodes()
    value, _ = a.make("b", HEAD, CLIENT, digest_of(BODY))
    assert isinstance(b.check(value, HEAD, CLIENT), Signature)
    clock.now += 2
    assert isinstance(Signatures("s", "b", clock).check(value, HEAD, CLIENT), str)


def test_the_memory_for_nonces_is_bounded_and_no_nonce_counts_twice() -> None:
    nonces = Nonces(0, limit=100)
    used = []
    for number in range(1000):
        at = number // 7
        assert nonces.add(at, f"{number:04x}", at)
        used.append((at, f"{number:04x}"))
        assert len(nonces) <= 100
        for each in used:
            assert not nonces.add(*each, at)
    assert not nonces.add(0, "ffff", 142)  # too old to be sure
    assert nonces.add(142, "ffff", 142)
    nonces.add(142 + 2 * VALID_SECONDS, "00", 142 + 2 * VALID_SECONDS)
    assert len(nonces) == 1


def admitted(
    gate: NodeGate, head: Head, *, client: str | None, value: str | None, body: bytes
) -> Any:
    """What the gate makes of a request, with its body."""
    headers = dict(head.headers)
    if value is not None:
        headers["X_KBCORE_NODE"] = value
    if client is not None:
        headers["X_KBCORE_CLIENT"] = client
    read = replace(head, headers=headers)
    additions = gate.admit(read, "10.0.0.1")
    assert not [name for name in read.headers if name.startswith("X_KBCORE")]
    environ: dict[str, Any] = {
        "wsgi.input": io.BytesIO(body),
        "REMOTE_ADDR": "10.0.0.1",
        **additions,
    }
    if (open_body := environ.pop(OPEN_BODY, None)) is not None:
        open_body(environ)
    return environ


def test_the_gate_of_a_node() -> None:
    a, b, _ = nodes()
    trusted: set[str] = set()
    gate = NodeGate(b, trusted)

    def signed(head: Head, client: str, body: bytes = BODY) -> str:
        return a.make("b", head, client, digest_of(body))[0]

    # A client is not believed, and its request is not a call.
    environ = admitted(gate, HEAD, client=CLIENT, value=None, body=BODY)
    assert (environ["REMOTE_ADDR"], FROM_NODE in environ, CALL in environ) == (
        "10.0.0.1",
        False,
        False,
    )
    call = Head("POST", "/-/directory")
    for target in ("/-/directory", "/%2d/directory", "//-/directory"):
        with pytest.raises(NotFound):
            admitted(gate, replace(call, target=target), client=None, value=None, body=b"")
        head = replace(call, target=target)
        with pytest.raises(NotFound):  # it comes from a client of another node
            admitted(gate, head, client=CLIENT, value=signed(head, CLIENT, b""), body=b"")
    assert trusted == {"10.0.0.1"}
    # A node is.
    environ = admitted(gate, HEAD, client=CLIENT, value=signed(HEAD, CLIENT), body=BODY)
    assert (environ["REMOTE_ADDR"], environ[FROM_NODE]) == ("192.0.2.7", True)
    assert environ["wsgi.input"].read() == BODY
    environ = admitted(gate, call, client=None, value=signed(call, "", b""), body=b"")
    assert environ[CALL]
    # Another body, a longer one, none.
    for body in (BODY[:-1] + b" ", b"", BODY[:-1]):
        with pytest.raises(Unauthorized):
            admitted(gate, HEAD, client=CLIENT, value=signed(HEAD, CLIENT), body=body)
    for value in ("", "1:2", "nonsense", f"{NOW}:00:{digest_of(b'')}:{'0' * 64}", "\xff:::::"):
        with pytest.raises(Unauthorized):
            admitted(gate, HEAD, client=CLIENT, value=value, body=BODY)
    # A body that is too large for its digest is not read.
    large = changed(CONTENT_LENGTH=str(MAX_PIECE + 1))
    body = bytes(MAX_PIECE + 1)
    with pytest.raises(Unauthorized):
        admitted(gate, large, client=CLIENT, value=signed(large, CLIENT, body), body=body)


class Source(io.BytesIO):
    """A body as it arrives."""

    broken = False


def pieces(key: bytes, *blocks: bytes) -> list[bytes]:
    seals = Seals(key)
    return [seals.seal(block) for block in (*blocks, b"")]


@examples(100)
@given(
    blocks=st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    size=st.integers(1, 400),
    known=st.booleans(),
)
def test_a_body_in_pieces_arrives_whole(blocks, size, known) -> None:
    whole = b"".join(blocks)
    source = Source(b"".join(pieces(b"k", *blocks)))
    body = SealedBody(source, b"k", len(whole) if known else None)
    parts = iter(lambda: body.read(size), b"")
    assert b"".join(parts) == whole
    assert not source.broken


def read_into(read: bytearray, source: Source, length: int | None) -> None:
    """Read a body to its end or to the first broken piece."""
    body = SealedBody(source, b"k", length)
    while part := body.read(64):
        read += part


BLOCKS = [b"a" * 100, b"b" * 100, b"c" * 100]
WHOLE = pieces(b"k", *BLOCKS)


@pytest.mark.parametrize(
    "sent",
    [
        WHOLE[:-1],
        WHOLE[:-2],
        WHOLE[1:],
        WHOLE[::-1],
        [WHOLE[0], *WHOLE[2:]],
        [],
        [WHOLE[0], WHOLE[0], *WHOLE[1:]],
        [WHOLE[1], WHOLE[0], *WHOLE[2:]],
        [*WHOLE[:-1], pieces(b"other", *BLOCKS)[-1]],
        [*WHOLE[:-1], pieces(b"k")[0]],
        [*WHOLE, b"x"],
        [b"\xff" * 200],
        [WHOLE[0][:50] + b"X" + WHOLE[0][51:], *WHOLE[1:]],
    ],
)
@pytest.mark.parametrize("length", [None, 300])
def test_a_body_in_pieces_that_was_altered_is_refused_before_its_end(sent, length) -> None:
    source = Source(b"".join(sent))
    read = bytearray()
    with pytest.raises(BrokenSeal):
        read_into(read, source, length)
    assert source.broken
    assert b"".join(BLOCKS).startswith(bytes(read))
    assert length is None or len(read) <= 200  # the last piece was not passed on


@pytest.mark.parametrize("length", [0, 1, 299, 301])
def test_a_body_in_pieces_has_the_signed_length(length) -> None:
    with pytest.raises(BrokenSeal):
        SealedBody(Source(b"".join(WHOLE)), b"k", length).readall()


def test_a_signature_of_pieces_names_their_length() -> None:
    a, b, _ = nodes()
    gate = NodeGate(b, set())
    for length in (None, 300):
        stated = changed(CONTENT_LENGTH=str(sealed_length(300)))
        chunked = changed(CONTENT_LENGTH=None, TRANSFER_ENCODING="chunked")
        for head in (stated, chunked):
            value, key = a.make("b", head, CLIENT, pieces_of(length))
            body = b"".join(pieces(key, b"".join(BLOCKS)))
            assert len(body) == sealed_length(300)
            if (length is None) != head.chunked:
                with pytest.raises(Unauthorized):
                    admitted(gate, head, client=CLIENT, value=value, body=body)
                continue
            environ = admitted(gate, head, client=CLIENT, value=value, body=body)
            assert environ["wsgi.input"].read() == b"".join(BLOCKS)
            assert environ.get("CONTENT_LENGTH") == (None if length is None else "300")
    for size in (0, 1, MAX_PIECE, MAX_PIECE + 1, 3 * MAX_PIECE):
        blocks = [bytes(min(MAX_PIECE, size - start)) for start in range(0, size, MAX_PIECE)]
        assert len(b"".join(pieces(b"k", *blocks))) == sealed_length(size)
