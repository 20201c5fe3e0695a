"""Parsers of settings: each returns a value, or raises ValueError with the permitted values."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from kbcore.config.storage_urls import backend_of

BIG = 1 << 40
"""Upper bound for settings without a limit of their own."""


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be {low} to {high}")
        return value

    return parse


def choice(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of several words, ignoring case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(f"must be one of {', '.join(choices)}")

    return parse


def boolean(text: str) -> bool:
    """Parse a boolean."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be true or false")


def names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def weights(text: str) -> tuple[float, ...]:
    """Parse the three weights of salience."""
    found = tuple(float(part) for part in text.split(","))
    if (
        len(found) != 3
        or not all(0 <= weight <= 1 for weight in found)
        or not 0 < sum(found) <= 1 + 1e-9
    ):
        raise ValueError(
            "must be three numbers of 0 to 1, separated by commas, that add up to more than 0 and at most 1"
        )
    return found


def weight(text: str) -> float:
    """Parse a weight, a number from 0 to 1."""
    found = float(text)
    if not 0 <= found <= 1:
        raise ValueError("must be a number from 0 to 1")
    return found


def storage_url(text: str) -> str:
    """Parse a storage URL."""
    backend_of(text)
    return text


def key(text: str) -> str:
    """Parse a secret."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces")
    return text


def hidden(text: str) -> str:
    """Return a placeholder for a secret in messages."""
    return "(not shown)"


def node_name(text: str) -> str:
    """Parse the name of a node."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text):
        raise ValueError("must have 1 to 64 letters, digits and _ . -")
    return text


def rate(text: str) -> tuple[int, ...]:
    """Parse a rate limit: a number of requests and a number of seconds."""
    count, slash, seconds = text.partition("/")
    if not (
        slash
        and count.isdecimal()
        and seconds.isdecimal()
        and 1 <= int(count) <= BIG
        and 1 <= int(seconds) <= 86_400
    ):
        raise ValueError("must be requests/seconds, such as 600/60")
    return int(count), int(seconds)


def address(text: str) -> str:
    """Parse an HTTP address: a host, optionally with port and path, without a trailing slash."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError("is not an address") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("must be an address of http or https, such as http://localhost:8080/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must have no user, query or fragment")
    return text.rstrip("/")
