"""Only a worker gets an answer to a call between workers, or sets the address of a client."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.servers import Server
from support.workers import children, descriptors, tenants_of

from kbcore.errors import NotFound
from kbserver.forwarding.proofs import PROOF, HopProofs, WorkerGate
from kbserver.http.gate import CALL, PublicGate, is_call
from kbserver.http.request_head import Head
from kbserver.workers.handover import MOVE_AFTER

TOKEN = "let-me-in-0123456789"
PADDING = "".join(f"X-Padding-{number}: {'x' * 7000}\r\n" for number in range(2))
"""More than the bytes that a worker reads at once: the connection of the request is not handed
over.
"""

CALLS = (
    ("GET", "directory"),
    ("POST", "directory"),
    ("GET", "tenants"),
    ("POST", "snapshot"),
    ("GET", "health"),
    ("GET", "metrics"),
    ("GET", "capture/0"),
    ("GET", "capture/1"),
    ("POST", "release"),
    ("GET", "shards"),
)

PREFIXES = (
    "/-/",
    "/%2d/",
    "/%2D/",
    "/-%2f",
    "/-%2F",
    "/%2D%2F",
    "/%252d/",
    "/%25%32d/",
    "/-%255cx/",
    "//-/",
    "/./-/",
    "/x/../-/",
    "/%2e/-/",
    "/x/%2E%2e/-/",
    "///-//",
    "/%2f-/",
    "/..//-/",
    "/-/./",
    "http://x/-/",
    "HTTP://x:1/%2d/",
    "http://x//-/",
    "https://x/-%2f",
    "/%5c-%5c",
    "/-/x/../",
)


def message(
    method: str, target: str, *headers: str, body: bytes = b"", tenant: str = "t", more: str = ""
) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"X-Tenant-ID: {tenant}", *headers]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + more.encode() + b"\r\n" + body


class Raw:
    """A connection whose bytes the test decides."""

    def __init__(self, server: Server) -> None:
        self.sock = socket.create_connection(server.address, timeout=60)
        self.stream = self.sock.makefile("rb")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.close()
        self.sock.close()

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the answer."""
        self.sock.sendall(data)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer."""
        status = int(self.stream.readline().split()[1])
        length = 0
        while (line := self.stream.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            assert name.lower() != b"transfer-encoding", line
            if name.lower() == b"content-length":
                length = int(value)
        return status, self.stream.read(length)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """Two workers that ask for keys, with facts of every tenant, and the first key."""
    folder = tmp_path_factory.mktemp("private")
    settings = {"AUTH_ENABLED": "true", "BOOTSTRAP_TOKEN": TOKEN, "LOG_FORMAT": "json"}
    with Server(
        folder / "data", "--workers", "2", "--log-level", "DEBUG", log=folder / "log", **settings
    ) as server:
        status, body = server.post("/auth/bootstrap", {"token": TOKEN, "name": "root"})
        assert status == 201, body
        key = json.loads(body)["key"]
        for tenant in (*tenants_of(0), *tenants_of(1)):
            assert tell(server, key, tenant) == 200
        yield server, key


def tell(server: Server, key: str, tenant: str) -> int:
    fact = {"predicate": "secret", "args": [tenant]}
    return server.post("/tell", fact, Authorization=f"Bearer {key}", X_Tenant_ID=tenant)[0]


def state(server: Server, key: str) -> dict[str, Any]:
    """The facts of every tenant, and the keys."""
    contents: dict[str, Any] = {}
    headers = {"Authorization": f"Bearer {key}"}
    for tenant in (*tenants_of(0), *tenants_of(1)):
        goal = {"predicate": "secret", "args": ["?x"]}
        contents[tenant] = server.post("/query", goal, X_Tenant_ID=tenant, **headers)
    connection = server.connect()
    connection.request("GET", "/auth/keys", headers=headers)
    contents["keys"] = json.loads(connection.getresponse().read())
    connection.close()
    return contents


def assert_refused(answer: tuple[int, bytes]) -> None:
    assert answer[0] == 404, answer
    assert json.loads(answer[1]) == {
        "code": "NOT_FOUND",
        "message": "no such path",
        "details": None,
    }


FORGED = json.dumps(
    {
        "version": 1 << 40,
        "databases": [["default", 0, 1 << 50]],
        "keysUsed": True,
        "keys": [],
    }
).encode()


@pytest.mark.parametrize("more", ["", PADDING], ids=["short", "padded"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_public_connection_gets_an_answer_to_a_call(logged, prefix, more) -> None:
    server, _ = logged
    for method, name in CALLS:
        for index in (0, 1):
            body = FORGED if method == "POST" else b""
            tenant = tenants_of(index)[0]
            with Raw(server) as raw:
                target = prefix + name
                assert_refused(
                    raw.ask(message(method, target, body=body, tenant=tenant, more=more))
                )


def test_nothing_changed_by_forged_calls(logged) -> None:
    server, key = logged
    before = state(server, key)
    for more in ("", PADDING):
        for tenant in (tenants_of(0)[0], tenants_of(1)[0]):
            for _ in range(3):  # whichever worker accepts it
                with Raw(server) as raw:
                    forged = message("POST", "/-/directory", body=FORGED, tenant=tenant, more=more)
                    assert_refused(raw.ask(forged))
    assert state(server, key) == before


@pytest.mark.parametrize("prefix", ["/-/", "/%2d/", "/-%2f", "//-/"])
def test_later_requests_of_a_connection_that_moved_are_public(logged, prefix) -> None:
    server, key = logged
    for index in (0, 1):
        for count in (1, MOVE_AFTER - 1, MOVE_AFTER):
            for name in ("directory", "capture/0", "capture/1"):
                with Raw(server) as raw:
                    for tenant in (tenants_of(index)[0],) * count:
                        allowed = f"Authorization: Bearer {key}"
                        assert raw.ask(message("GET", "/scopes", allowed, tenant=tenant))[0] == 200
                    other = tenants_of(1 - index)[0]
                    assert_refused(raw.ask(message("GET", prefix + name, tenant=other)))
                    assert raw.stream.read() == b""  # nothing more is served on it


def test_requests_after_a_refused_one_are_not_answered_as_if_they_were_its_body(logged) -> None:
    server, _ = logged
    with Raw(server) as raw:
        health = message("GET", "/health")
        raw.sock.sendall(health + message("GET", "/-/directory") + health)
        assert raw.answer()[0] == 200
        assert_refused(raw.answer())
        assert raw.stream.read() == b""


@pytest.mark.parametrize(
    "header",
    [
        "X-KBCore-Client",
        "x-kbcore-client",
        "X-KBCORE-CLIENT",
        "X_KBCore_Client",
        "X-KBCore_Client",
        "X-KBCore-Worker",
        "X-KBCore-Node",
        "X-Kbcore-Call",
        "X-KBCore-",
    ],
)
def test_no_client_sets_its_address_or_a_proof(logged, header) -> None:
    """The audit log of wrong keys names the address of each client."""
    server, key = logged
    marks = iter(range(10**6))
    for more in ("", PADDING):
        for index in (0, 1):
            tenant = tenants_of(index)[1]
            with Raw(server) as raw:
                forged = [f"{header}: 203.0.113.9 {next(marks)}"]
                allowed = f"Authorization: Bearer {key}"
                for _ in range(MOVE_AFTER + 2):
                    request = message("GET", "/scopes", allowed, *forged, tenant=tenant, more=more)
                    assert raw.ask(request)[0] == 200
                wrong = f"Authorization: Bearer {key[:-64]}{'0' * 64}"
                request = message("GET", "/scopes", wrong, *forged, tenant=tenant, more=more)
                assert raw.ask(request)[0] in (401, 429)
    assert "203.0.113.9" not in server.log.read_text()


def test_the_secret_shows_neither_in_commands_nor_environments_nor_logs(logged) -> None:
    server, _ = logged
    for pid in (server.process.pid, *children(server)):
        for name in ("cmdline", "environ"):
            text = Path(f"/proc/{pid}/{name}").read_bytes().lower()
            assert PROOF.lower().encode() not in text
        for line in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            if line.startswith(b"{"):
                assert "secret" not in json.loads(line)
    # A worker has read the pipe to its end and closed it.
    for pid in children(server):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        pipe = json.loads(command[command.index(b"--worker") + 1])["secret_pipe"]
        links = dict(descriptors(pid))
        assert "pipe:" not in links.get(str(pipe), "")
    assert PROOF not in server.log.read_text()


@pytest.mark.parametrize("proof", ["", "0" * 64, "nonsense", "\xff" * 64])
def test_a_private_socket_answers_nothing_without_a_proof(logged, proof) -> None:
    """Also a process of the same user must have the secret."""
    server, key = logged
    command = Path(f"/proc/{children(server)[0]}/cmdline").read_bytes().split(b"\0")
    worker = json.loads(command[command.index(b"--worker") + 1])
    allowed = (f"Authorization: Bearer {key}", f"{PROOF}: {proof}", "X-KBCore-Client: 127.0.0.1 1")
    for index in (0, 1):
        for target in ("/-/directory", "/scopes", "/auth/keys", "/-%2fdirectory"):
            for headers in (allowed, allowed[:1], allowed[::2]):
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(f"{worker['folder']}/worker-{index}")
                    sock.sendall(message("GET", target, *headers, tenant=tenants_of(index)[0]))
                    assert sock.recv(100).startswith(b"HTTP/1.1 404 ")


def test_a_forwarded_request_is_never_a_call(logged) -> None:
    """The proof that goes with forwarded requests opens no call, in any form of its path."""
    proofs = HopProofs(b"s" * 32)
    gate = WorkerGate(proofs)

    def admitted(target: str, proof: str) -> dict[str, Any]:
        head = Head(
            "GET", target, headers={"X_KBCORE_WORKER": proof, "X_KBCORE_CLIENT": "1.2.3.4 5"}
        )
        additions = gate.admit(head, "")
        assert head.headers == {}
        return additions

    assert admitted("/-/directory", proofs.call) == {CALL: True}
    assert admitted("/ask", proofs.forwarded) == {"REMOTE_ADDR": "1.2.3.4", "REMOTE_PORT": "5"}
    for target in PREFIXES:
        if target.startswith("/"):
            with pytest.raises(NotFound):
                admitted(f"{target}directory", proofs.forwarded)
    for proof in ("", proofs.call[:-1], "\xff", HopProofs(b"t" * 32).call):
        for target in ("/-/directory", "/ask"):
            with pytest.raises(NotFound):
                admitted(target, proof)
    with pytest.raises(NotFound):
        admitted("/ask", proofs.call)


def encoded(text: str, choose: random.Random) -> str:
    """The text with some characters percent-encoded, some of them several times."""
    parts = []
    for char in text:
        for _ in range(choose.choice((0, 0, 1, 1, 2, 3))):
            code = f"{ord(char[0]):02x}"
            char = f"%{code if choose.random() < 0.5 else code.upper()}{char[1:]}"
        parts.append(char)
    return "".join(parts)


FILLERS = ("", "/", "./", "x/../", "//", "x/./../", "../")


@examples(400)
@given(seed=st.integers(0, 2**32))
def test_no_encoding_hides_the_private_prefix(seed: int) -> None:
    choose = random.Random(seed)
    filler = "".join(choose.choice(FILLERS) for _ in range(choose.randrange(4)))
    path = (
        "/" + encoded(f"{filler}-/", choose).lstrip("?") + choose.choice(("", "directory", "a?b"))
    )
    assert is_call(path), path
    assert is_call(path + "?x=/scopes")


@examples(200)
@given(name=st.from_regex(r"[A-Za-z0-9_.:@-]{2,20}", fullmatch=True), seed=st.integers(0, 2**32))
def test_other_paths_are_not_taken_for_calls(name: str, seed: int) -> None:
    choose = random.Random(seed)
    if name.strip(".") == "":
        return
    for path in (f"/{name}", f"/{name}/-/x", f"/admin/databases/{encoded(name, choose)}/tenants/-"):
        assert not is_call(path), path
    head = Head("GET", "/ask", headers={"X_KBCORE_NODE": "x", "X_REQUEST_ID": name})
    assert PublicGate().admit(head, "") == {}
    assert head.headers == {"X_REQUEST_ID": name}


def test_a_path_that_is_encoded_too_often_is_refused() -> None:
    path = "/-/"
    for _ in range(60):
        path = path.replace("%", "%25") if "%" in path else path.replace("-", "%2d")
        assert is_call(path)


@pytest.mark.slow
def test_random_paths_and_encodings_on_a_running_server(logged) -> None:
    server, key = logged
    before = state(server, key)
    choose = random.Random(1)
    for _ in range(2000):
        method, name = choose.choice(CALLS)
        filler = "".join(choose.choice(FILLERS) for _ in range(choose.randrange(3)))
        target = "/" + encoded(f"{filler}-/{name}", choose)
        tenant = choose.choice((*tenants_of(0), *tenants_of(1)))
        body = FORGED if method == "POST" else b""
        more = choose.choice(("", PADDING))
        with Raw(server) as raw:
            assert_refused(raw.ask(message(method, target, body=body, tenant=tenant, more=more)))
    assert state(server, key) == before
