"""Request bodies in sealed pieces, between two nodes.

The signature of the head gives a key, and each piece is followed by its authentication code with
that key and its number. So the receiving node acts on no byte that its peer has not sent, and
neither node holds more than a piece in memory. An empty piece ends the body, so that it cannot be
cut short; the last bytes of a body with a known length are passed on only after that.
"""

from __future__ import annotations

import hmac
import io
import struct
from hashlib import sha256
from typing import Any

from kbserver.forwarding.forwarder import BLOCK

MAX_PIECE = BLOCK
"""Largest number of bytes of a piece; all but the last ones have as many."""

SEAL_BYTES = 32

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")


class Seals:
    """Makes the pieces of one body."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, data: bytes) -> bytes:
        """Return the next piece; the one without data is the last."""
        piece = _LENGTH.pack(len(data)) + data + _seal(self._key, self._number, data)
        self._number += 1
        return piece


def sealed_length(length: int) -> int:
    """Return the number of bytes of a body in pieces, from its number of bytes."""
    pieces = -(-length // MAX_PIECE) + 1
    return length + pieces * (_LENGTH.size + SEAL_BYTES)


class BrokenSeal(OSError):
    """A piece that the other node has not sent, or not at this place."""


class SealedBody(io.RawIOBase):
    """The body in sealed pieces from `source`, whose length is `length` if it is known.

    Raises BrokenSeal.
    """

    def __init__(self, source: Any, key: bytes, length: int | None) -> None:
        self._source = source
        self._key = key
        self._left = length
        self._number = 0
        self._data = b""
        self._has_ended = False
        if length == 0:
            self._end()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        if not self._data and not self._has_ended:
            self._next()
        size = min(len(buffer), len(self._data))
        buffer[:size] = self._data[:size]
        self._data = self._data[size:]
        return size

    def _next(self) -> None:
        data = self._piece()
        if not data:
            self._finish()
            return
        if self._left is not None:
            self._left -= len(data)
            if self._left <= 0:
                self._end()
        self._data = data

    def _end(self) -> None:
        if self._piece():
            raise self._broken("the body of a forwarded request is too long")
        self._finish()

    def _finish(self) -> None:
        if self._left or self._source.read(1):
            raise self._broken("the body of a forwarded request has another length than its head")
        self._has_ended = True

    def _piece(self) -> bytes:
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if size > MAX_PIECE:
            raise self._broken("a piece of a forwarded body is too large")
        data, seal = self._exactly(size), self._exactly(SEAL_BYTES)
        if not hmac.compare_digest(seal, _seal(self._key, self._number, data)):
            raise self._broken(
                "a piece of a forwarded body is not from the node that sent its head"
            )
        self._number += 1
        return data

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._source.read(size - len(data))
            if not part:
                raise self._broken("the body of a forwarded request ended before its last piece")
            data += part
        return data

    def _broken(self, message: str) -> BrokenSeal:
        self._source.broken = True
        return BrokenSeal(message)


def _seal(key: bytes, number: int, data: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + data, sha256)
