"""HTTPS of the server itself: versions, clients that speak something else, reload, certificates of
clients, workers, replication.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import gevent
import gevent.socket
import pytest
from click.testing import CliRunner
from gevent.socket import wait_read
from support.certificates import Authority, Pair, secured, served_with
from support.http import Served
from support.replicas import TOKEN, caught_up, follower, leader, until
from support.servers import Server
from support.sockets import Running, connected
from support.workers import both, tenants_of

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore_client import ConnectionFailed, InvalidInput, Retries, Settings, connect
from kbserver.cli import cli
from kbserver.http.request_body import Times
from kbserver.http.tls import (
    MAX_HANDSHAKE_MESSAGES,
    READS_BETWEEN,
    ServerTLS,
    TLSSocket,
)
from kbserver.process.offload import yield_now
from kbserver.serve import MAX_TLS_LINES

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

RECORD_OF_ONE_BYTE = 5 + 1 + 1 + 16
"""Size of a TLS record with one byte: header, content, type, and tag of the cipher."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def running(served: Served, authority: Authority) -> Iterator[Running]:
    server = Running(served.app, **secured(authority))
    yield server
    server.stop()


def certificate_of(address: tuple[str, int], trust: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    with closing(connected(address, trust, 10)) as sock:
        assert isinstance(sock, ssl.SSLSocket)
        certificate = sock.getpeercert()
        assert certificate
        return int(str(certificate["serialNumber"]), 16)


def health(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    connection.request("GET", "/health")
    response = connection.getresponse()
    assert response.read().startswith(b'{"status":"healthy"')
    return response


# -- versions and other protocols ------------------------------------------------------------------


def test_addresses_and_browsers_are_told_https(running: Running) -> None:
    with closing(running.connection()) as connection:
        assert health(connection).headers["Strict-Transport-Security"] == "max-age=86400"
        assert connection.sock.version() == "TLSv1.3"
        assert connection.sock.compression() is None
        connection.request("GET", "/.well-known/agent-card.json")
        card = json.loads(connection.getresponse().read())
    assert card["supportedInterfaces"][0]["url"] == f"https://127.0.0.1:{running.port}/a2a"


def test_a_plain_server_sends_no_hsts(served: Served) -> None:
    server = Running(served.app)
    try:
        with closing(server.connection()) as connection:
            assert "Strict-Transport-Security" not in health(connection).headers
    finally:
        server.stop()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_the_scheme_of_a_trusted_proxy_counts(served: Served, is_trusted: bool) -> None:
    server = Running(served.app)
    server.server.believes_proxy = is_trusted
    try:
        with closing(server.connection()) as connection:
            connection.request(
                "GET", "/.well-known/agent-card.json", headers={"X-Forwarded-Proto": "https"}
            )
            card = json.loads(connection.getresponse().read())
    finally:
        server.stop()
    url = card["supportedInterfaces"][0]["url"]
    assert url.startswith("https://" if is_trusted else "http://")


def test_plain_http_gets_an_answer_that_says_https(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as sock:
        sock.sendall(HEALTH)
        answer = b""
        while part := sock.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"this port speaks HTTPS only" in answer


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x00\x05junk!", b"\x16" + b"\xff" * 600])
def test_what_only_begins_like_tls_is_closed(running: Running, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as sock:
        sock.sendall(first)
        while part := sock.recv(65_536):
            assert part[:1] == b"\x15"  # an alert
    with closing(running.connection()) as connection:
        health(connection)


def test_silent_clients_cost_a_bounded_time_and_block_nobody(
    served: Served, authority: Authority
) -> None:
    server = Running(served.app, times=Times(head=0.2, body=1, idle=600), **secured(authority))
    try:
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
                for _ in range(20)
            ]
            for sock in silent[10:]:
                sock.sendall(b"\x16\x03\x01")  # the beginning of a handshake
            health(stack.enter_context(closing(server.connection())))
            for sock in silent:
                assert sock.recv(1) == b""
        assert not any(handler.busy for handler in server.server.handlers)
    finally:
        server.stop()


def test_changes_of_keys_without_end_end_the_connection(
    running: Running, authority: Authority
) -> None:
    client = subprocess.Popen(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{running.port}", "-CAfile", authority.ca],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    )
    changes = 0
    with client:
        assert client.stdin
        assert client.stdout
        try:
            for _ in range(2 * MAX_HANDSHAKE_MESSAGES):
                client.stdin.write(b"k\n")  # s_client takes this as a command
                while (line := client.stdout.readline()) and line != b"KEYUPDATE\n":
                    continue
                changes += bool(line)
        except BrokenPipeError:
            pass
        finally:
            client.kill()
    assert MAX_HANDSHAKE_MESSAGES // 2 < changes < 2 * MAX_HANDSHAKE_MESSAGES
    with closing(running.connection()) as connection:
        health(connection)


def test_records_of_one_byte_leave_turns_to_others(authority: Authority) -> None:
    config = Config.from_env(authority.pair().settings())
    count = 5 * READS_BETWEEN

    def send(address: tuple[str, int]) -> None:
        with connected(address, authority.client(), 10) as sock:
            for _ in range(count):
                sock.sendall(b"x")
            assert sock.recv(1) == b""

    def turns_of(listener: gevent.socket.socket) -> int:
        sock, _ = listener.accept()
        server = ServerTLS(config).wrap(sock, yield_now)
        server.handshake()
        turns: list[None] = []
        ended: list[bool] = []

        def other() -> None:
            while not ended:
                turns.append(None)
                gevent.sleep(0)

        whole = count * RECORD_OF_ONE_BYTE
        while len(plain_peek(server, whole)) < whole:  # so that no read has to wait
            wait_read(server.fileno())
        running = gevent.spawn(other)
        for _ in range(count):
            assert server.recv(1) == b"x"
        ended.append(None)
        running.join()
        server.close()
        return len(turns)

    def serve() -> None:
        with gevent.socket.create_server(("127.0.0.1", 0)) as listener:
            address.put(listener.getsockname())
            result.put(turns_of(listener))

    address: queue.Queue[tuple[str, int]] = queue.Queue()
    result: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=serve)
    thread.start()
    send(address.get(timeout=10))
    thread.join(10)
    assert result.get(timeout=10) > 1


def plain_peek(sock: TLSSocket, size: int) -> bytes:
    """Return what has arrived, undecrypted."""
    return bytes(gevent.socket.socket.recv(sock, size, socket.MSG_PEEK))


def test_a_record_that_arrives_slowly_ends_like_silence(
    served: Served, authority: Authority
) -> None:
    server = Running(served.app, times=Times(head=60, body=60, idle=0.2), **secured(authority))
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = authority.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65_536))
            sock.sendall(outgoing.read())
            tls.write(HEALTH)
            record = outgoing.read()
            sent, ended = 0, False
            while sent < len(record) - 1 and not ended:
                sock.sendall(record[sent : sent + 1])
                sent += 1
                while not ended and select.select([sock], [], [], 0.05)[0]:
                    ended = not sock.recv(65_536)
            assert ended
    finally:
        server.stop()


def test_older_versions_need_a_setting(served: Served, authority: Authority) -> None:
    trust = authority.client()
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    server = Running(served.app, **secured(authority))
    try:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            certificate_of(("127.0.0.1", server.port), trust)
    finally:
        server.stop()
    options = {**secured(authority, TLS_MIN_VERSION="1.2"), "trust": trust}
    server = Running(served.app, **options)
    try:
        with closing(server.connection()) as connection:
            health(connection)
            assert connection.sock.version() == "TLSv1.2"
            assert connection.sock.cipher()[0].startswith("ECDHE-")
        trust.set_ciphers("AES128-SHA:AES256-SHA:ECDHE-ECDSA-AES128-SHA")
        with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
            certificate_of(("127.0.0.1", server.port), trust)
    finally:
        server.stop()


# -- files that cannot be used ---------------------------------------------------------------------


def settings_with(pair: Pair, **more: Any) -> dict[str, str]:
    return {**pair.settings(), **{name: str(value) for name, value in more.items()}}


def bad_settings(authority: Authority, folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    good, other = authority.pair(), authority.pair("other")
    junk = folder / "junk.pem"
    junk.write_text("-----BEGIN PRIVATE KEY-----\nSECRETSECRET\n-----END PRIVATE KEY-----\n")
    old = authority.pair("old", days=-1)
    sealed = authority.pair("sealed", passphrase=b"correct horse")
    only_client = authority.pair("client", usages=(authority.CLIENT,))
    none = folder / "none.pem"
    return {
        "no key": ({"TLS_CERT": str(good.cert)}, "TLS_CERT is set without TLS_KEY"),
        "no certificate": ({"TLS_KEY": str(good.key)}, "TLS_KEY is set without TLS_CERT"),
        "only a CA": ({"TLS_CLIENT_CA": str(authority.ca)}, "TLS_CLIENT_CA is set without"),
        "no file": (settings_with(good, TLS_KEY=none), f"TLS_KEY={none}: cannot be read: no such"),
        "a folder": (settings_with(good, TLS_CERT=folder), "cannot be read: is a directory"),
        "junk": (settings_with(good, TLS_KEY=junk), "has no usable private key in PEM form"),
        "no PEM": (settings_with(good, TLS_CERT=junk), "has no certificate in PEM form"),
        "another key": (settings_with(good, TLS_KEY=other.key), "is not the key of"),
        "expired": (old.settings(), f"TLS_CERT={old.cert}: the certificate has expired"),
        "encrypted": (sealed.settings(), "is encrypted; a key without passphrase is needed"),
        "for clients": (only_client.settings(), "is not usable for a server: unsuitable"),
        "junk as a CA": (settings_with(good, TLS_CLIENT_CA=junk), "is no file of certificates"),
        "an http address": (settings_with(good, ADVERTISE_URL="http://a:1"), "ADVERTISE_URL="),
        "junk of nodes": ({"CLUSTER_CA_FILE": str(junk)}, "CLUSTER_CA_FILE="),
    }


def test_unusable_files_are_reported_and_keys_never_shown(
    authority: Authority, tmp_path: Path
) -> None:
    for name, (settings, problem) in bad_settings(authority, tmp_path).items():
        environment = {"STORAGE_DIR": str(tmp_path / "data"), **settings}
        checked = CliRunner().invoke(cli, ["config", "check"], env=environment)
        assert checked.exit_code == 78, (name, checked.output)
        assert problem in checked.stderr, (name, checked.stderr)
        assert "SECRET" not in checked.output, name
        if "CLUSTER_CA_FILE" not in settings:
            with pytest.raises(ConfigError) as raised:
                ServerTLS(Config.from_env(settings))
            assert problem in raised.value.message, name
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_does_not_start_with_an_expired_certificate(
    authority: Authority, tmp_path: Path, workers: str
) -> None:
    settings = {"WORKERS": workers, "PORT": "0", **authority.pair(days=-1).settings()}
    ended = subprocess.run(
        [sys.executable, "-m", "kbserver.cli", "serve", "--storage-dir", str(tmp_path / "data")],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 78, ended
    assert "the certificate has expired" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_certificate_that_ends_soon_is_a_warning(authority: Authority, tmp_path: Path) -> None:
    pair = authority.pair(days=3.5)
    pair.key.chmod(0o644)
    environment = {"STORAGE_DIR": str(tmp_path), **pair.settings()}
    checked = CliRunner().invoke(cli, ["config", "check"], env=environment)
    assert checked.exit_code == 0, checked.output
    assert f"WARNING: TLS_CERT={pair.cert}: the certificate expires in 3 days" in checked.stderr
    assert f"WARNING: TLS_KEY={pair.key}: other users can read the key" in checked.stderr


def test_failed_handshakes_of_an_address_have_few_log_lines(
    authority: Authority, tmp_path: Path
) -> None:
    options = served_with(authority)
    log = tmp_path / "log"
    with Server(tmp_path / "data", log=log, **options) as server:
        for _ in range(MAX_TLS_LINES + 5):
            with socket.create_connection(server.address, 10) as sock:
                sock.sendall(b"\x16\x03\x01\x00\x05wrong")
                while sock.recv(4096):  # until the server has closed it
                    pass
        with closing(server.connect()) as connection:
            health(connection)
        assert server.stop() == 0
    assert log.read_text().count("no TLS connection with 127.0.0.1") == MAX_TLS_LINES


# -- reload ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_new_certificate_is_used_after_sighup(
    authority: Authority, tmp_path: Path, workers: str
) -> None:
    options = served_with(authority, WORKERS=workers)
    log = tmp_path / "log"
    with Server(tmp_path / "data", log=log, **options) as server:
        count = int(workers)
        trust = authority.client()
        with closing(server.connect()) as old:
            health(old)
            before = certificate_of(server.address, trust)
            text = Path(options["TLS_CERT"]).read_text()
            Path(options["TLS_CERT"]).write_text("nothing")
            server.process.send_signal(signal.SIGHUP)
            refused = "TLS files cannot be used, those read before stay in use"
            until(lambda: log.read_text().count(refused) == count)
            assert certificate_of(server.address, trust) == before
            Path(options["TLS_CERT"]).write_text(text)
            authority.pair()
            server.process.send_signal(signal.SIGHUP)
            until(lambda: log.read_text().count("TLS files were read again") == count)
            after = {certificate_of(server.address, trust) for _ in range(8)}
            assert len(after) == 1
            assert before not in after
            health(old)
        assert "PRIVATE" not in log.read_text()
        assert server.stop() == 0


# -- workers ---------------------------------------------------------------------------------------


def test_requests_for_both_workers_go_over_one_connection(
    authority: Authority, tmp_path: Path
) -> None:
    options = served_with(authority, WORKERS="2")
    with Server(tmp_path / "data", **options) as server, closing(server.connect()) as connection:
        both(server)
        connection.connect()
        port = connection.sock.getsockname()
        tenants = [*tenants_of(0), *tenants_of(1)]
        for round in range(6):  # more in a row than a plain connection stays
            for tenant in sorted(tenants):
                body = {"predicate": "p", "args": [str(round)]}
                answer = server.post("/tell", body, connection, X_Tenant_ID=tenant)
                assert answer[0] == 200, answer
        for tenant in tenants:
            for _ in range(6):
                body = {"predicate": "p", "args": ["?x"]}
                status, rows = server.post("/query", body, connection, X_Tenant_ID=tenant)
                assert (status, len(json.loads(rows))) == (200, 6)
        connection.request("GET", "/auth/me", headers={"X-Tenant-ID": tenants[-1]})
        response = connection.getresponse()
        response.read()
        assert response.headers["Strict-Transport-Security"]
        assert connection.sock.getsockname() == port


def test_a_stream_and_long_bodies_of_another_worker(authority: Authority, tmp_path: Path) -> None:
    options = served_with(authority, WORKERS="2")
    pad = "x" * 3000
    with Server(tmp_path / "data", **options) as server:
        for tenant in (tenants_of(0)[0], tenants_of(1)[0]):
            with closing(server.connect()) as stream:
                stream.request("GET", "/memory/events", headers={"X-Tenant-ID": tenant})
                events = stream.getresponse()
                assert events.readline() == b"retry: 3000\n"
                facts = [{"predicate": "p", "args": [str(n), pad]} for n in range(1000)]
                status, _ = server.post("/assert/facts", {"facts": facts}, X_Tenant_ID=tenant)
                assert status == 200
                seen = 0
                while seen < 1000:
                    seen += events.readline().startswith(b"data: ")
            body = {"predicate": "p", "args": ["?x", "?y"]}
            status, rows = server.post("/query", body, X_Tenant_ID=tenant)
            assert (status, len(json.loads(rows))) == (200, 1000)


# -- certificates of clients -----------------------------------------------------------------------


def test_clients_may_have_a_certificate_and_followers_must(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other", "stranger")
    options = served_with(authority, TLS_CLIENT_CA=str(authority.ca))
    pair = authority.pair("client")
    foreign = authority.client(stranger.pair("foreign"))
    with leader(tmp_path / "data", log=tmp_path / "log", **options) as server:
        with closing(server.connect()) as connection:
            health(connection)
            for path in ("/replication/log", "/replication/snapshot", "/%72eplication/log"):
                headers = {"Authorization": f"Bearer {TOKEN}"}
                connection = server.connect()
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                assert response.status == 403, path
                assert b"needs a client certificate of TLS_CLIENT_CA" in response.read()
                connection.close()
        server.trust = authority.client(pair)
        with closing(server.connect()) as connection:
            health(connection)
            connection.request("GET", "/replication/log", headers=headers)
            response = connection.getresponse()
            assert response.status == 400  # the follower does not say what it has
            response.read()
        server.trust = foreign
        with closing(server.connect()) as connection, pytest.raises(OSError):
            health(connection)
    # A handshake that fails may be logged after the client knows.
    text = (tmp_path / "log").read_text()
    assert "no TLS connection with 127.0.0.1: its certificate is refused" in text
    assert "127.0.0.1 has no client certificate: refused" in text


# -- replication -----------------------------------------------------------------------------------


def test_a_follower_reads_over_https_with_its_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other", "stranger")
    options = served_with(authority, TLS_CLIENT_CA=str(authority.ca))
    log = tmp_path / "log"
    with leader(tmp_path / "leader", log=log, **options) as first:
        url = f"https://127.0.0.1:{first.address[1]}"
        own = authority.pair("follower").settings()
        copying = {**own, "LEADER_CA_FILE": str(authority.ca), "trust": authority.client()}
        with follower(tmp_path / "copy", url, **copying) as second:
            assert first.post("/tell", {"predicate": "n", "args": ["1"]})[0] == 200
            caught_up(second, first)
            status, rows = second.post("/query", {"predicate": "n", "args": ["?x"]})
            assert (status, len(json.loads(rows))) == (200, 1)
        # A leader that is verified with another CA, and a follower with a foreign certificate.
        wrong = {**copying, "LEADER_CA_FILE": str(stranger.ca)}
        with follower(tmp_path / "wrong", url, log=tmp_path / "wrong.log", **wrong):
            until(lambda: "certificate" in (tmp_path / "wrong.log").read_text())
        foreign = {**copying, **stranger.pair("foreign").settings(), "trust": stranger.client()}
        with follower(tmp_path / "foreign", url, **foreign):
            until(lambda: "its certificate is refused" in log.read_text())


# -- commands and clients --------------------------------------------------------------------------


def test_commands_verify_with_a_ca_file(authority: Authority, tmp_path: Path) -> None:
    options = served_with(authority)
    with Server(tmp_path / "data", **options) as server:
        url = f"https://127.0.0.1:{server.address[1]}"
        arguments = ["tell", "p(a)", "--url", url]
        run = CliRunner()
        done = run.invoke(cli, [*arguments, "--cacert", str(authority.ca)])
        assert done.exit_code == 0, done.output
        done = run.invoke(
            cli, ["ask", "p(?x)", "--url", url], env={"KBCORE_CA_FILE": str(authority.ca)}
        )
        assert (done.exit_code, "a" in done.stdout) == (0, True), done.output
        done = run.invoke(cli, arguments)
        assert "certificate is not trusted; name the file of its CA with --cacert" in done.stderr
        done = run.invoke(cli, [*arguments, "--cacert", options["TLS_KEY"]])
        assert (done.exit_code, "is no readable file of certificates" in done.stderr) == (2, True)
        done = run.invoke(cli, ["tell", "p(a)", "--url", url.replace("https", "http")])
        assert "this port speaks HTTPS only" in done.stderr


def test_python_clients_verify_with_a_ca_file(authority: Authority, tmp_path: Path) -> None:
    at_once = Settings(retries=Retries(attempts=0))
    with Server(tmp_path / "data", **served_with(authority)) as server:
        url = f"https://127.0.0.1:{server.address[1]}"
        with connect(url, ca=authority.ca) as kb:
            kb.tell("p(a)")
            assert list(kb.ask("p(?x)")) == [("a",)]
        refused = pytest.raises(ConnectionFailed, match="is not trusted; name the file of its CA")
        with connect(url, settings=at_once) as kb, refused:
            kb.tell("p(b)")
        with pytest.raises(InvalidInput, match="ca: must be a readable file of certificates"):
            connect(url, ca=tmp_path / "nothing.pem")
    with pytest.raises(InvalidInput, match="ca: is for servers only"):
        connect("memory:", ca=authority.ca)


def test_a_reload_during_handshakes_loses_no_connection(
    running: Running, authority: Authority
) -> None:
    stop = threading.Event()
    tls = running.server.tls
    assert tls is not None
    reloading = threading.Thread(
        target=lambda: [tls.reload() for _ in iter(stop.is_set, True)], daemon=True
    )
    reloading.start()
    try:
        for _ in range(20):
            with closing(running.connection()) as connection:
                health(connection)
    finally:
        stop.set()
        reloading.join(10)
