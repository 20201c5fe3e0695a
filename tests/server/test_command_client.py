"""The HTTP client of the commands, against servers that answer wrongly or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select

import pytest
from support.commands import kbcore

from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import Failed


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server; yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[object]]]:
    """Run a server with one answer to everything; yield its address and the clients so far.

    It closes the connection after each answer without saying so.
    """
    clients: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            clients.append(self.client_address)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    with serving(Handler) as url:
        yield url, clients


@pytest.mark.parametrize(
    ("status", "body", "headers", "exit_status", "message"),
    [
        (
            404,
            b"<html>",
            {},
            1,
            "404 Not Found, which is no answer of a kbcore server; check --url",
        ),
        (200, b"<html>", {}, 1, "not JSON, as of a kbcore server; check --url"),
        (200, b"[", {"Content-Length": "9"}, 69, "the connection was closed"),
        (302, b"", {"Location": "https://kb.test/"}, 1, "redirects to https://kb.test/; use that"),
        (
            401,
            b'{"code": "UNAUTHORIZED", "message": "no key", "details": null}',
            {},
            77,
            "kbcore: no key\n",
        ),
        (503, b'{"code": "NOT_READY", "message": "wait", "details": null}', {}, 69, "wait"),
        (
            400,
            b'{"code": "X", "message": "m", "details": {"errors": ["odd"]}}',
            {},
            1,
            "kbcore: m\n",
        ),
    ],
)
def test_wrong_answers_are_one_clear_line(status, body, headers, exit_status, message):
    with answering(status, body, **headers) as (url, _):
        failed = kbcore("ask", "--url", url, "p(?x)", expect=exit_status)
    assert message in failed.stderr
    assert (failed.stdout, failed.stderr.count("\n")) == ("", 1)


def test_a_backup_that_ends_too_early_leaves_no_file(tmp_path):
    with answering(200, b"half", **{"Content-Length": "9"}) as (url, _):
        failed = kbcore("backup", "--url", url, "--to", str(tmp_path / "b"), expect=69)
    assert "the connection was closed" in failed.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_connection_that_the_server_closed_is_opened_again():
    with answering(200, b"[]") as (url, clients):
        server = ServerClient(url, "default", "default", None)
        for count in (1, 2, 3):
            assert server.send("POST", "/ask", {"text": "p"}).json() == []
            assert len(clients) == count
            assert select([server._connection.sock], [], [], 10)[0]  # the server closed it
        server.close()


def test_a_request_without_an_answer_is_not_sent_twice():
    """A write may have been carried out although the connection broke before the answer."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            requests.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            if len(requests) == 1:
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"[]")
            else:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    with serving(Handler) as url:
        client = ServerClient(url, "default", "default", None)
        client.send("POST", "/tell", {"text": "p(a)"})
        with pytest.raises(Failed, match="the connection was closed"):
            client.send("POST", "/tell", {"text": "p(b)"})
        client.close()
    assert len(requests) == 2


@pytest.mark.parametrize("url", ["localhost:9300", "ftp://host", "http://", "http://h:port", "x"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(Failed, match="not the address of a server") as refused:
        ServerClient(url, "default", "default", None)
    assert refused.value.status == 2


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_command_sends_no_path_that_a_proxy_would_shorten(name: str) -> None:
    """A proxy may remove the parts of dots: the tenant `..` would be its database."""
    client = ServerClient("http://127.0.0.1:1", "default", "default", None)
    for path in (f"/admin/databases/db/tenants/{name}/nuke", f"/rulesets/{name}?scope=s"):
        with pytest.raises(Failed, match="without a name"):
            client.send("POST", path, {})
