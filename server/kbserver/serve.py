"""The server: gevent's pywsgi with strict request parsing, timeouts, and low latency.

Headers and body of a response leave in one send with Nagle's algorithm off. Otherwise the second
packet of each response waits for the client's delayed acknowledgement, 40 ms per request.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer
from gevent.socket import wait_read

from kbcore import __version__
from kbcore.config.lint import is_loopback, key_warnings
from kbcore.config.settings import Config, environment
from kbcore.config.storage_urls import redacted
from kbcore.errors import Forbidden, KBError, NotReady
from kbcore.metrics.catalogue import HTTP_CONNECTIONS, HTTP_REFUSED
from kbcore.node.opening import open_runtime
from kbcore.replication.failover import Connect
from kbcore.scheduling import Scheduling
from kbcore.tracing.spans import turn_on
from kbplanner.syntax.parser import load_grammar
from kbserver import logs
from kbserver.app import create_app, stop_process
from kbserver.cluster.application import NodeApp
from kbserver.cluster.gate import FROM_NODE, NodeGate
from kbserver.cluster.joining import Joined, prepare
from kbserver.cluster.node_owners import NodeOwners
from kbserver.errors import ErrorAnswer, answer_of
from kbserver.forwarding.forwarder import Forwarder, Owners
from kbserver.forwarding.private import PrivateApp
from kbserver.forwarding.proofs import HopProofs, WorkerGate
from kbserver.forwarding.request_shards import RequestShards
from kbserver.http.certificates import has_tls
from kbserver.http.connections import ConnectionLimit
from kbserver.http.disconnects import DisconnectWatcher
from kbserver.http.gate import OPEN_BODY, Gate, PublicGate
from kbserver.http.listening import accept_connections, bind
from kbserver.http.request import CALLER
from kbserver.http.request_body import BodyInput, Times, TooSlow
from kbserver.http.request_head import BadRequest, Head, read_head, refusal
from kbserver.http.tls import HSTS, PlainText, ServerTLS, describe, is_about_certificate
from kbserver.process import garbage_collection as collector
from kbserver.process.instruments import gauge
from kbserver.process.offload import Offload, OffloadWithin, yield_now, yield_to_sockets
from kbserver.rate_headers import rate_headers, used_up
from kbserver.replication.log_client import CA_FILE as LEADER_CA
from kbserver.replication.log_client import HTTPLogSource
from kbserver.replication.requests import role_lines
from kbserver.security.browser_guard import CHECKED, BrowserGuard
from kbserver.security.browser_guard import EXTENSION as BROWSER_GUARD
from kbserver.security.guard import GUARD, MANAGED, OAUTH, SINGLE, mode_of
from kbserver.security.limits import network_of
from kbserver.security.token_bucket import Buckets
from kbserver.workers.handover import Affinity, Handover, HandoverReceiver, resumed
from kbserver.workers.other_workers import WorkerPeers
from kbserver.workers.worker import Worker
from kbserver.workers.worker_owners import WorkerOwners

if TYPE_CHECKING:
    from flask import Flask

    from kbcore.node.other_processes import Peers
    from kbcore.node.runtime import Runtime

_LINGER_SECONDS, _LINGER_BYTES = 1.0, 8 << 20
_STOP_SECONDS = 5.0
_SLICE = 1 << 20
_STREAM_BUFFER = 1 << 17
_CODES = {429: "RATE_LIMITED", 500: "INTERNAL_ERROR", 503: "NOT_READY"}

log = logging.getLogger(__name__)


MAX_TLS_LINES = 10
"""Log lines about TLS connections that an address could not open, per minute."""

MAX_DISK_THREADS = 8
"""Threads for syncs of the shards' logs and for snapshots."""

PRIVATE_IDLE_SECONDS = 3600.0
"""Idle time after which a connection between workers is closed; they close it earlier
themselves.
"""


class Handler(WSGIHandler):  # type: ignore[misc]
    """One connection. `received` are its first bytes, if another worker has read them."""

    busy = False
    left = False
    head: Head
    rfile: io.BufferedReader
    wsgi_input: BodyInput
    response_headers: list[tuple[bytes, bytes]]

    def __init__(self, sock: Any, address: Any, server: Server, received: bytes = b"") -> None:
        super().__init__(sock, address, server)
        self.affinity = Affinity(is_new=not received)
        if received:
            self.rfile = resumed(self.rfile, received)

    def handle(self) -> None:
        """Serve requests until one side closes the connection."""
        self.server.handlers.add(self)
        address = str(self.client_address[0]) if isinstance(self.client_address, tuple) else ""
        admitted = self.server.connection_limit.enter(address)
        try:
            if self.socket.family in (socket.AF_INET, socket.AF_INET6):
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.settimeout(self.server.times.idle)
            if self.server.tls is not None and not self._shake_hands():
                return
            if not admitted:
                self.busy = True
                limit = {
                    "limit": "MAX_CONNECTIONS_ADDRESS",
                    "value": self.server.connection_limit.limit,
                }
                self._refuse(Head(), 429, "too many open connections from this address", limit)
            while admitted and self.handle_one_request():
                gevent.sleep(0)  # a client with pipelined requests must not keep others waiting
        except OSError:
            pass  # the client left or was idle for too long
        finally:
            self.server.handlers.discard(self)
            self._close()
            self.server.connection_limit.leave(address)

    def _note(self, level: int, message: str, *more: str) -> None:
        """Log why there is no TLS connection, a few times a minute for each address."""
        address = str(self.client_address[0])
        network, lines = network_of(address), self.server.tls_lines
        if not lines.wait(network):
            lines.take(network)
            log.log(level, message, address, *more)

    def _shake_hands(self) -> bool:
        """Do the TLS handshake; return False if there is no connection."""
        try:
            with gevent.Timeout(self.server.times.head, TooSlow()):
                self.socket.handshake()
        except PlainText:
            self.busy = True
            self._refuse(Head(), 400, "this port speaks HTTPS only: use https:// in the address")
        except TooSlow:
            self._note(logging.INFO, "no TLS connection with %s: the handshake took too long")
        except OSError as error:
            self.busy = True  # the alert must arrive
            level = logging.WARNING if is_about_certificate(error) else logging.INFO
            self._note(level, "no TLS connection with %s: %s", describe(error))
        else:
            return True
        return False

    def handle_one_request(self) -> bool | None:
        """Serve one request. Returns True if the connection may carry another."""
        self.busy = False
        self.close_connection = self.server.stopping
        buffered = self.rfile.peek(1)
        if not buffered:
            return None
        self.busy = True
        head = Head()
        try:
            if b"\r\n\r\n" in buffered:
                read_head(self.rfile.readline, head)
            else:
                with gevent.Timeout(self.server.times.head, TooSlow()):
                    if not read_head(self.rfile.readline, head):
                        return None
        except BadRequest as error:
            self._refuse(head, error.status, error.message)
            return None
        except TooSlow:
            self._refuse(head, 408, f"the headers took over {self.server.times.head:g} seconds")
            return None

        self.command, self.path, self.request_version = head.method, head.target, head.version
        self.close_connection = head.closes or self.server.stopping
        self.head = head
        if not self._is_admitted(head, len(buffered) - head.size):
            return None
        self.application = self.server.application
        forwarder = self.server.forwarder
        if forwarder is None:
            self.handle_one_response()
        else:
            try:
                if not self._forwarded(forwarder, buffered):
                    self.handle_one_response()
            finally:
                forwarder.release(self.environ)
        return None if self.close_connection else True

    def _is_admitted(self, head: Head, buffered: int) -> bool:
        """Make the WSGI environment of a request; return False if the gate has refused it."""
        address = self.client_address[0] if isinstance(self.client_address, tuple) else ""
        try:
            additions = self.server.gate.admit(head, str(address))
            self.environ = self._environ(head, buffered)
            self.environ.update(additions)
            self._check_certificate()
            open_body = self.environ.pop(OPEN_BODY, None)
            if open_body is not None:
                open_body(self.environ)
        except KBError as error:
            self._close_with(head, answer_of(error))
            return False
        except OSError:
            self.refuse(400, "the body could not be read")
            return False
        return True

    def _check_certificate(self) -> None:
        """Raise Forbidden for a request that needs a client certificate and has none."""
        tls = self.server.tls
        if (
            tls is not None
            and tls.needs_certificate(self.environ["PATH_INFO"], is_node=FROM_NODE in self.environ)
            and not self.socket.getpeercert()
        ):
            self._note(logging.WARNING, "%s has no client certificate: refused")
            raise Forbidden("this request needs a client certificate of TLS_CLIENT_CA")

    def _hand_over(self, owner: Hashable, buffered: bytes) -> bool:
        """Give the connection to the worker that owns the tenant of the request; False if it
        stays.
        """
        handover = self.server.handover
        # Otherwise a part of the request has left the buffer.
        is_whole = b"\r\n\r\n" in buffered and self.environ["wsgi.input"] is self.wsgi_input
        if handover is None or self.server.stopping or not is_whole:
            return False
        if not handover.send(owner, self.socket, buffered):
            return False
        self.busy = False  # the connection must not be shut down
        self.close_connection = True
        return True

    def _forwarded(self, forwarder: Forwarder, buffered: bytes) -> bool:
        """Have another process answer the request; return False if it is for this one."""
        is_done = True
        try:
            owner = forwarder.owner_of(self.environ)
            self._check_browser()
            if self.affinity.moves_to(owner) and self._hand_over(owner, buffered):
                return True
            if owner is None:
                return False
            address = forwarder.redirect(owner)
            if address:
                self._redirect(address)
            else:
                is_done = forwarder.forward(self, owner)
        except KBError as error:
            answer = answer_of(error)
            self._close_with(self.head, answer)
        except OSError:
            self.close_connection = True
            if self.wsgi_input.broken:
                self.refuse(400, "the body could not be read")
        self.close_connection = self.close_connection or self.wsgi_input.abandoned
        return is_done

    def _check_browser(self) -> None:
        """Check a request before another process gets it; raises Forbidden.

        A request of another node was checked there, by the names of that node.
        """
        guard = self.server.browser_guard
        if FROM_NODE in self.environ:
            self.environ[CHECKED] = True
        elif guard is not None:
            guard.check(self.environ)
            self.environ[CHECKED] = True

    def _redirect(self, address: str) -> None:
        """Send the client to the node that has its tenant."""
        headers = {"Location": address + self.head.target}
        answer = ErrorAnswer(307, "REDIRECT", "the tenant is on another node", None, headers)
        self.close_connection = True
        self.socket.sendall(refusal(self.head, answer))

    def hang_up(self) -> None:
        """Close the connection of a stream, so that its client opens the stream again."""
        self.left = self.close_connection = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def refuse(self, status: int, message: str, details: dict[str, Any] | None = None) -> None:
        """Answer the request with an error, and close the connection."""
        self._refuse(self.head, status, message, details)

    def watch(self, stop: Callable[[KBError], None]) -> Callable[[], None]:
        """Call `stop` if the client disconnects during a long goal; see
        `kbcore.reason.admission.Caller`.
        """

        def leave() -> None:
            self.left = True

        end: Callable[[], None] = self.server.disconnects.begin(self.socket, stop, leave)
        return end

    def stream(self, seconds: float) -> None:
        """Configure the socket for streaming: a send timeout in seconds and a small buffer."""
        self.socket.settimeout(seconds)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_BUFFER)
        self.close_connection = True

    def _environ(self, head: Head, buffered: int) -> dict[str, Any]:
        expects = self.socket if "EXPECT" in head.headers else None
        self.wsgi_input = BodyInput(
            self.rfile, head, expects, buffered, self.server.times.body, yield_now
        )
        environ: dict[str, Any] = self.server.get_environ()
        environ.update(head.environ())
        environ["wsgi.input"] = self.wsgi_input
        environ["wsgi.input_terminated"] = True
        if self.server.believes_proxy and environ.get("HTTP_X_FORWARDED_PROTO") == "https":
            environ["wsgi.url_scheme"] = "https"
        environ[CALLER] = self
        if isinstance(self.client_address, tuple):
            environ["REMOTE_ADDR"] = str(self.client_address[0])
            environ["REMOTE_PORT"] = str(self.client_address[1])
        return environ

    def finalize_headers(self) -> None:
        """Add `Connection: close` if the connection will be closed."""
        self.close_connection = (
            self.close_connection or self.wsgi_input.abandoned or self.server.stopping
        )
        if self.close_connection:
            self.response_headers = [
                header for header in self.response_headers if header[0].lower() != b"connection"
            ]
            self.response_headers.append((b"Connection", b"close"))
        if self.server.is_https:
            self.response_headers.append(HSTS)
        super().finalize_headers()
        if self.command == "HEAD":  # not even the last chunk may follow the head
            self.response_use_chunked = False

    def _write_with_headers(self, data: bytes) -> None:
        self.headers_sent = True
        self.finalize_headers()
        start = bytearray(b"HTTP/1.1 " + self.status + b"\r\n")
        for name, value in self.response_headers:
            start += name + b": " + value + b"\r\n"
        start += b"\r\n"
        if self.response_use_chunked:
            start += b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        elif self.command != "HEAD":
            start += data
        self._sendall(start)

    def _write(self, data: bytes) -> None:
        if self.command != "HEAD":
            super()._write(data)

    def _sendall(self, data: bytes | bytearray) -> None:
        if self.left:  # the same error as from the kernel
            raise BrokenPipeError(errno.EPIPE, "the client left")
        whole = memoryview(
            data
        )  # the send timeout applies to each slice, not to the whole response
        try:
            for start in range(0, len(whole), _SLICE):
                super()._sendall(whole[start : start + _SLICE] if len(whole) > _SLICE else data)
        except TimeoutError as error:
            self.left = True
            raise BrokenPipeError(errno.EPIPE, "the client does not read") from error

    def log_request(self) -> None:
        """Do nothing: the application logs requests."""

    def _log_error(self, t: Any, v: Any, tb: Any) -> None:
        log.error("the application failed", exc_info=(t, v, tb))

    def _handle_client_error(self, ex: BaseException) -> None:
        log.info("bad request body: %s", ex)

    def _send_error_response_if_possible(self, error_code: int) -> None:
        self.close_connection = True
        if not self.response_length:
            messages = {
                400: "the body could not be read",
                500: "the server failed to handle this request; the log has more",
            }
            self._refuse(self.head, error_code, messages[error_code])

    def _refuse(
        self, head: Head, status: int, message: str, details: dict[str, Any] | None = None
    ) -> None:
        code = _CODES.get(status, "VALIDATION_ERROR")
        headers = {"Retry-After": "1"} if status in (429, 503) else {}
        if status == 429:
            headers |= rate_headers(used_up(details, 1))
        self._close_with(head, ErrorAnswer(status, code, message, details, headers))

    def _close_with(self, head: Head, answer: ErrorAnswer) -> None:
        """Answer with an error, and close the connection."""
        path = head.target.partition("?")[0][: logs.MAX_PATH_CHARS]
        entry = {"method": head.method, "path": path, "status": answer.status}
        logs.log_request({**entry, "reason": answer.message})
        self.close_connection = True
        self.server.refused(answer.status)
        self.socket.sendall(refusal(head, answer))

    def _close(self) -> None:
        """Close after reading pending input: a plain close would reset the connection before the
        response arrives.
        """
        sock = self.__dict__.pop("socket", None)
        if sock is None:
            return
        try:
            if self.busy:
                sock.shutdown(socket.SHUT_WR)
                left = _LINGER_BYTES
                with gevent.Timeout(_LINGER_SECONDS, False):
                    while left > 0 and (part := sock.recv(1 << 16)):
                        left -= len(part)
        except OSError:
            pass
        finally:
            self.rfile.close()
            sock.close()


def _ignore_refusal(status: int) -> None:
    """Count nothing."""


class Server(WSGIServer):  # type: ignore[misc]
    """A WSGI server that tracks its connections and lets busy ones finish when it stops."""

    handler_class = Handler

    def __init__(
        self,
        listener: socket.socket,
        application: Any,
        *,
        connections: int = Config().max_connections,
        max_per_address: int = Config().max_connections_address,
        times: Times | None = None,
        refused: Callable[[int], None] | None = None,
        forwarder: Forwarder | None = None,
    ) -> None:
        self.forwarder = forwarder
        self.tls: ServerTLS | None = None
        self.is_https = False
        self.tls_lines = Buckets("handshakes", MAX_TLS_LINES, 60, time.monotonic)
        self.believes_proxy = False
        """True if X-Forwarded-Proto comes from a trusted proxy."""
        self.gate: Gate = PublicGate()
        self.handover: Handover | None = None
        self.browser_guard: BrowserGuard | None = None
        self.handlers: set[Handler] = set()
        self.connection_limit = ConnectionLimit(max_per_address)
        self.times = times or Times.of(Config())
        self.refused = refused or _ignore_refusal
        self.stopping = False
        self.disconnects = DisconnectWatcher()
        name = str(listener.getsockname()[0])  # set here because pywsgi would look it up in DNS
        super().__init__(
            listener,
            application,
            spawn=Pool(connections),
            log=None,
            error_log=log,
            # Of several processes that share a socket, each accepts one connection at a time.
            environ={"SERVER_NAME": name, "wsgi.multiprocess": forwarder is not None},
        )

    def use_https(self, tls: ServerTLS | None) -> None:
        """Serve https addresses; without `tls` another process forwards their requests."""
        self.tls = tls
        self.is_https = True
        self.environ["wsgi.url_scheme"] = "https"

    def do_handle(self, *args: Any) -> None:
        """Accept a connection, or drop it if its address has far too many; runs on the hub."""
        sock, address = args
        if isinstance(address, tuple) and self.connection_limit.is_flooded(str(address[0])):
            self.refused(429)
            self.do_close(sock, address)
        else:
            super().do_handle(sock, address)

    def handle(self, sock: Any, address: Any, received: bytes = b"") -> None:
        """Serve a connection; `received` are its first bytes, if another worker has read them."""
        if self.tls is not None:
            try:
                sock = self.tls.wrap(sock, yield_now)
            except OSError:  # the client has left
                return
        Handler(sock, address, self, received).handle()

    def take_over(self, sock: Any, received: bytes) -> None:
        """Serve a connection of another worker until it is closed."""
        try:
            address = sock.getpeername()
        except OSError:  # the client has left
            return
        self.handle(sock, address, received)

    def drain(self, seconds: float) -> None:
        """Stop accepting, close idle connections, wait up to `seconds` for busy ones, then stop
        their long goals.
        """
        self.stopping = True
        for handler in list(self.handlers):
            if not handler.busy:
                try:
                    handler.socket.shutdown(socket.SHUT_RD)
                except OSError:
                    continue
        self.close()
        if not self.pool.join(timeout=seconds):
            self.disconnects.stop_all(NotReady("the server is stopping"))
        self.stop(timeout=_STOP_SECONDS)


def run(
    config: Config,
    *,
    plugins: Sequence[object] = (),
    say: Callable[[str], None] | None = None,
    worker: Worker | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. The process is patched by gevent already.

    With `worker` this process is one of several. `say` prints a line of the start.
    """
    say = say or logs.announcer(config.log_format, config.secrets())
    config = with_otlp_metrics(config, environment())
    logs.configure(
        config.log_level,
        config.log_format,
        secrets=config.secrets(),
        worker=None if worker is None else worker.index,
    )
    # The logs and a snapshot; a single log has one sync at a time.
    export = Offload(1)  # is not closed: an export that hangs must not hold up the end
    instance = "" if worker is None else str(worker.index)
    end_tracing = turn_on(environment(), export, instance)
    end_logs = logs.export(environment(), export, instance, config.secrets())
    offload, disk = Offload(os.cpu_count() or 1), Offload(MAX_DISK_THREADS)
    wait = Offload(1)
    tls = ServerTLS(config) if has_tls(config) else None
    # Bound before the storage is opened: a port in use must leave no folder behind. Connections are
    # refused until the storage is open.
    listener = bind(config.host, config.port) if worker is None else worker.public_socket()
    joined = None
    if config.cluster_url:
        accept_connections(listener)
        joined = prepare(config, listener, plugins, tls)
    runtime = open_runtime(
        config,
        plugins=plugins,
        scheduling=Scheduling(
            offload=offload,
            offload_disk=disk,
            offload_wait=wait,
            yield_now=yield_now,
            yield_in_background=yield_to_sockets,
            call_within=OffloadWithin(),
        ),
        on_failure=stop_process,
        peers=_peers(joined, worker),
    )
    try:
        application = create_app(
            runtime,
            on_storage_failed=stop_process if joined is None else None,
        )
        load_grammar()
        servers = _servers(config, runtime, application, worker, joined, listener, tls)
        public = servers[0]
        receiver = None
        # The state of a TLS connection is in its process: its requests are forwarded.
        if worker is not None and tls is None:
            public.handover = Handover(worker)
            receiver = HandoverReceiver(worker.handover_socket(), public.take_over, public.pool)
        stop_requested = Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, stop_requested.set)
        if tls is not None:
            gevent.signal_handler(signal.SIGHUP, tls.reload)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))  # see the supervisor
        if joined is None:
            source: Connect = HTTPLogSource
            if tls is not None:  # shared, so that a reload reaches it
                context = tls.client(LEADER_CA, config.leader_ca_file)
                source = partial(HTTPLogSource, context=context)
            runtime.start_replication(source)
        for server in servers:
            server.start()
        if receiver is not None:
            receiver.start()
        if joined is not None:
            joined.node.start(runtime, joined.peers)
        gc_schedule = collector.arrange(
            lambda: (
                not any(len(server.disconnects) for server in servers)
                and application.extensions["kbcore.bodies"].bytes < collector.LARGE_BYTES
            )
        )
        log.info("started", extra={"fields": start_fields(runtime)})
        lines = announcement(config, public.address[:2], not runtime.keys().never_used)
        if worker is None:
            for line in lines:
                say(line)
        else:
            _report(worker, lines)
            gevent.spawn(_stop_with_supervisor, worker, stop_requested)
            gevent.spawn(runtime.align_again)
        stop_requested.wait()
        log.info("stopping")
        gc_schedule.kill()
        if joined is not None:
            joined.close(config.shutdown_timeout_ms / 1000)
        runtime.replication.close()
        application.extensions["kbcore.events"].close()
        application.extensions["kbcore.goal_streams"].close()
        application.extensions["kbcore.mcp"].close()
        _drain(servers, config.shutdown_timeout_ms / 1000)
        if receiver is not None:
            receiver.close()
    finally:
        runtime.close()
        for end in (end_tracing, end_logs):
            if end is not None:
                end(config.shutdown_timeout_ms / 1000)
        offload.close()
        disk.close()
        wait.close()
    return 0


def with_otlp_metrics(config: Config, environ: Mapping[str, str]) -> Config:
    """Return the settings with the sink `otlp` if the variable of OpenTelemetry asks for it."""
    if environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "otlp":
        return config
    return replace(config, metrics_sinks=(*config.metrics_sinks, "otlp"))


def _peers(joined: Joined | None, worker: Worker | None) -> Peers | None:
    """Return the other nodes of the cluster, or the other workers; None for a single process."""
    if joined is not None:
        return joined.peers
    return None if worker is None else WorkerPeers(worker)


def _drain(servers: Iterable[Server], seconds: float) -> None:
    """Stop all servers at once, each after at most `seconds` for its busy connections."""
    drains = [gevent.spawn(server.drain, seconds) for server in servers]
    gevent.joinall(drains, raise_error=True)


def _servers(
    config: Config,
    runtime: Runtime,
    application: Flask,
    worker: Worker | None,
    joined: Joined | None,
    listener: socket.socket,
    tls: ServerTLS | None,
) -> list[Server]:
    """Return the server on the public address and, in a worker, the one on its private socket."""
    metrics, times = runtime.metrics, Times.of(config)

    def refused(status: int) -> None:
        metrics.observe(HTTP_REFUSED, 1, (str(status),))

    owners: Owners | None = None
    public_application: Any = application
    if joined is not None:
        owners = NodeOwners(joined.node, joined.signatures, joined.peers.context)
        public_application = NodeApp(application, joined.node, runtime)
    elif worker is not None:
        owners = WorkerOwners(worker)
    forwarder = None
    if owners is not None:
        shards = RequestShards(
            application.extensions[GUARD],
            application.extensions["kbcore.bodies"],
            runtime,
        )
        forwarder = Forwarder(owners, shards, redirects=config.cluster_route == "redirect")
    if joined is not None and forwarder is not None:
        joined.node.on_node_lost.append(forwarder.drop)
    if worker is None:
        accept_connections(listener)
    public = Server(
        listener,
        public_application,
        connections=config.max_connections,
        max_per_address=0 if config.forwarded_hops else config.max_connections_address,
        times=times,
        refused=refused,
        forwarder=forwarder,
    )
    if tls is not None:
        public.use_https(tls)
    public.browser_guard = application.extensions[BROWSER_GUARD]
    if joined is not None:
        public.gate = NodeGate(joined.signatures, public.connection_limit.trusted)
    metrics.on_collect(gauge(HTTP_CONNECTIONS, lambda: len(public.handlers)))
    public.believes_proxy = config.forwarded_hops > 0
    if worker is None:
        return [public]
    private = Server(
        worker.private_socket(),
        PrivateApp(application, runtime),
        connections=config.max_connections * worker.count,
        max_per_address=0,
        times=replace(times, idle=PRIVATE_IDLE_SECONDS),
        refused=refused,
    )
    private.gate = WorkerGate(HopProofs(worker.secret))
    private.believes_proxy = public.believes_proxy
    if tls is not None:
        private.use_https(None)
    return [public, private]


def _report(worker: Worker, lines: Iterable[str]) -> None:
    """Tell the supervisor that this worker serves."""
    with os.fdopen(worker.ready, "w", encoding="utf-8") as ready:
        ready.write("\n".join(lines))


def _stop_with_supervisor(worker: Worker, stop_requested: Event) -> None:
    """Stop this worker when the supervisor has ended."""
    wait_read(worker.alive)
    log.warning("the supervisor has ended; stopping")
    stop_requested.set()


def start_fields(runtime: Runtime) -> dict[str, Any]:
    """Return the fields of the log line of a start: version, size and duration of the recovery."""
    sizes = list(runtime.sizes())
    return {
        "version": __version__,
        "databases": len({size.database for size in sizes}),
        "tenants": len(sizes),
        "facts": sum(size.facts for size in sizes),
        "recoveredRecords": runtime.recovered.records,
        "recoverySeconds": round(runtime.recovery_seconds, 3),
    }


def announcement(
    config: Config, address: tuple[str, int], bootstrapped: bool = False
) -> Iterable[str]:
    """Yield the start-up lines: address, storage, replication, authentication; `bootstrapped`: a
    key has been created.
    """
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    scheme = "https" if has_tls(config) else "http"
    yield f"kbcore listens on {scheme}://{host}:{address[1]}"
    if config.storage_url:
        yield f"data in {redacted(config.storage_url)}, fsync policy {config.fsync_policy}"
    elif config.storage_backend in ("wal", "sqlite"):
        yield f"data in {os.path.abspath(config.storage_dir)}, fsync policy {config.fsync_policy}"
    else:
        yield f"storage backend {config.storage_backend}"
    yield from role_lines(config)
    yield from authentication_lines(config, bootstrapped)


def authentication_lines(config: Config, bootstrapped: bool) -> Iterable[str]:
    """Yield the start-up lines about authentication, with warnings about missing and weak keys."""
    mode = mode_of(config)
    if mode == SINGLE:
        yield "authentication: one key, API_KEY"
    elif mode == MANAGED and bootstrapped:
        yield "authentication: managed keys"
    elif mode == MANAGED:
        yield (
            "authentication: managed keys, none created yet;"
            " use POST /auth/bootstrap with BOOTSTRAP_TOKEN, or kbcore keys create"
        )
    elif mode == OAUTH:
        yield f"authentication: access tokens of {config.oauth_issuer}"
    elif is_loopback(config.host):
        yield "authentication is off: any local process can read and write"
    for warning in key_warnings(config):
        yield f"WARNING: {warning}"
