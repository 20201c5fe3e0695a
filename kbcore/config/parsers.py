"""Parsers of settings: text from the environment to a value, with the permitted texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from kbcore.config.hosts import read_host
from kbcore.config.storage_urls import HIDDEN, backend_of, redacted

T = TypeVar("T")

UNLIMITED = 1 << 40
"""Upper bound of integer settings that have no limit by meaning; the documentation omits it."""


@dataclass(frozen=True, slots=True, eq=False)
class Parser(Generic[T]):
    """Conversion of text to a value.

    `permitted` describes the accepted texts, `convert` raises ValueError for all others. `format`
    writes a value as text that could be set again; secrets are hidden. `confidential` values must
    not be in logs and messages.
    """

    permitted: str
    convert: Callable[[str], T]
    format: Callable[[T], str] = str
    confidential: bool = False

    def __call__(self, text: str) -> T:
        """Return the value of a text; raises ValueError with the permitted texts."""
        try:
            return self.convert(text)
        except ValueError as error:
            raise ValueError(f"must be {self.permitted}") from error


def integer(low: int, high: int = UNLIMITED) -> Parser[int]:
    """Return a parser of integers from `low` to `high`."""

    def convert(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(value)
        return value

    limits = f"of at least {low}" if high == UNLIMITED else f"from {low} to {high}"
    return Parser(f"an integer {limits}", convert)


def choice(*choices: str) -> Parser[str]:
    """Return a parser of one of several words; case is ignored."""

    def convert(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(text)

    return Parser(f"one of {', '.join(choices)}", convert)


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _weight(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def _weights(text: str) -> tuple[float, ...]:
    values = tuple(_weight(part) for part in text.split(","))
    if len(values) != 3 or not 0 < sum(values) <= 1 + 1e-9:
        raise ValueError(text)
    return values


def _storage_url(text: str) -> str:
    backend_of(text)
    return text


def _coordinator_url(text: str) -> str:
    backend_of(text)
    if not text.partition(":")[2] or " " in text:
        raise ValueError(text)
    return text


def _secret(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError
    return text


def _node_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError(text)
    return text


def _rate(text: str) -> tuple[int, ...]:
    count, slash, seconds = text.partition("/")
    if not (slash and count.isdecimal() and seconds.isdecimal()):
        raise ValueError(text)
    if not (1 <= int(count) <= UNLIMITED and 1 <= int(seconds) <= 86_400):
        raise ValueError(text)
    return int(count), int(seconds)


def _log_target(text: str) -> str:
    kind, _, rest = text.partition(":")
    if kind == "statsd":
        host, _, port = rest.rpartition(":")
        is_known = bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    elif kind == "webhook":
        parts = urlsplit(rest)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname)
    else:
        is_known = kind == "file" and bool(rest) and "\0" not in rest
    if text and not is_known:
        raise ValueError("must be file:PATH, statsd:HOST:PORT or webhook:URL")
    return text


def _shown_target(value: str) -> str:
    """Return a target without the address of a webhook, whose path may be a secret."""
    return f"{WEBHOOK}{HIDDEN}" if value.startswith(WEBHOOK) else value


def _shown_command(value: str) -> str:
    """Return a command without its arguments, one of which may be a secret."""
    program, _, arguments = value.strip().partition(" ")
    return f"{program} {HIDDEN}" if arguments else program


WEBHOOK = "webhook:"
"""Beginning of a target of the decision log that is an address."""


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(text)
    # http://user:12/34@host has port 12 and no user.
    if "@" in text or any(char.isspace() for char in text):
        raise ValueError(text)
    if parts.query or parts.fragment:
        raise ValueError(text)
    return text.rstrip("/")


def _issuer(text: str) -> str:
    _address(text)
    parts = urlsplit(text)
    host = read_host(parts.hostname or "")
    if parts.scheme != "https" and (host is None or not host.is_loopback):
        raise ValueError(text)
    return text  # with its slash at the end: without one it would be another issuer


def _joined(separator: str) -> Callable[[tuple[object, ...]], str]:
    return lambda values: separator.join(map(str, values))


TEXT = Parser("text", str)
COMMAND = Parser("text", str, _shown_command, confidential=True)
BOOLEAN = Parser("true or false", _boolean, lambda value: str(value).lower())
NAMES = Parser("names separated by commas", _names, _joined(","))
URLS = Parser(
    "URLs separated by commas",
    _names,
    lambda urls: ",".join(map(redacted, urls)),
    confidential=True,
)
WEIGHT = Parser("a number from 0 to 1", _weight)
WEIGHTS = Parser(
    "three numbers from 0 to 1, separated by commas, with a sum above 0 and at most 1",
    _weights,
    _joined(","),
)
STORAGE_URL = Parser(
    "a URL such as wal:/folder, sqlite:/file or postgresql://user@host/database",
    _storage_url,
    redacted,
    confidential=True,
)
COORDINATOR_URL = Parser(
    "a URL such as file:/folder, postgresql://user@host/database or etcd://host:2379",
    _coordinator_url,
    redacted,
    confidential=True,
)
LOG_TARGET = Parser(
    "file:PATH, statsd:HOST:PORT, webhook:URL, or empty",
    _log_target,
    _shown_target,
    confidential=True,
)
SECRET = Parser(
    "printable ASCII without spaces",
    _secret,
    lambda value: "(not shown)" if value else "",
    confidential=True,
)
NODE_NAME = Parser("1 to 64 letters, digits, underscores, dots and hyphens", _node_name)
RATE = Parser("requests/seconds, such as 600/60", _rate, _joined("/"))
ADDRESS = Parser(
    "an HTTP or HTTPS address without user, query or fragment, such as http://localhost:8080/v1",
    _address,
)
"""An HTTP address: a host, optionally with port and path; a trailing slash is removed."""

ISSUER = Parser(
    "an HTTPS address without user, query or fragment; HTTP only on this machine", _issuer
)
"""The address of an OAuth issuer, unchanged."""
