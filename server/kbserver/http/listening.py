"""The listening socket of a server."""

from __future__ import annotations

import errno
import socket

BACKLOG = 1024

_LISTEN_PROBLEMS = {
    errno.EADDRINUSE: "port {port} on {host} is already in use; choose another with --port",
    errno.EADDRNOTAVAIL: "{host} is not an address of this machine; choose another with --host",
    errno.EACCES: "no permission to listen on port {port}; choose one above 1023 with --port",
}


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; raises OSError with a message for the operator."""
    sock = bind(host, port)
    accept_connections(sock)
    return sock


def accept_connections(sock: socket.socket) -> None:
    """Let clients connect to a bound socket.

    Raises OSError with a message for the operator if another server listens on its port by now.
    """
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        sock.close()
        problem = _LISTEN_PROBLEMS.get(error.errno or 0, str(error.strerror))
        raise OSError(error.errno, problem.format(host=host, port=port)) from error


def bind(host: str, port: int) -> socket.socket:
    """Open a socket with Nagle's algorithm off, to which clients cannot connect yet.

    Raises OSError with a message for the operator, also if another server listens on the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
        sock.setblocking(False)
    except socket.gaierror as error:
        sock.close()
        message = f"{host} is not a known address or host name; choose another with --host"
        raise OSError(error.errno, message) from error
    except OSError as error:
        sock.close()
        problem = _LISTEN_PROBLEMS.get(error.errno or 0, str(error.strerror))
        raise OSError(error.errno, problem.format(host=host, port=port)) from error
    return sock
