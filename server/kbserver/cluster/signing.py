"""Signatures of requests between the nodes of a cluster.

A signature proves that a request comes from a node and is the one that this node has sent to that
one, now: it covers the time, a random nonce, the name of the receiving node, the method, the
target, the address of the client, every header, and the body, with the secret of the cluster, which
the coordinator keeps. The receiving node remembers the nonce for as long as it accepts the
signature. The client's own key goes with the request, and the node that has the tenant checks it.

The SHA-256 of a small body is in the signature. A large one, or one whose length is not known, is
sent in pieces, each of which is sealed (`sealing.py`).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from kbserver.http.request_head import Head

NODE = "X-KBCore-Node"
"""Header with the signature of a node."""

VALID_SECONDS = 60
"""Largest difference between the clocks of two nodes, and time for which a signature is
accepted.
"""

MAX_NONCES = 1 << 18
"""Number of nonces that are remembered, about 30 MB. A node that gets more forwarded requests in
the time for which signatures are valid refuses the oldest signatures earlier.
"""

NONCE_BYTES = 16

SHA256 = "sha256="
"""Beginning of the body in a signature if the digest of the body follows."""

PIECES = "pieces"
"""Beginning of the body in a signature of sealed pieces; `=` and the length follow if it is
known.
"""

_VERSION = "kbcore-node-2"
_FRAMING = frozenset(("CONTENT_LENGTH", "TRANSFER_ENCODING"))


@dataclass(frozen=True, slots=True)
class Signature:
    """A valid signature: the body that it covers, and the key of sealed pieces."""

    body: str
    key: bytes


class Signatures:
    """Makes and checks signatures with the secret of a cluster, for the node named `own`."""

    def __init__(self, secret: str, own: str, now: Callable[[], float] = time.time) -> None:
        self._secret = secret.encode()
        self._own = own
        self._now = now
        self._nonces = Nonces(int(now()))

    def make(self, to: str, head: Head, client: str, body: str) -> tuple[str, bytes]:
        """Return the value of the header NODE for a request to a node, and the key of its pieces.

        `head` has all headers that the node will get beside those of this package and those of
        framing; `client` is "" for a call. `body` is that of `digest_of` or `pieces_of`.
        """
        text = f"{int(self._now())}:{secrets.token_hex(NONCE_BYTES)}:{body}"
        value = f"{text}:{self._digest(text, to, head, client)}"
        return value, self._key(value)

    def check(self, value: str, head: Head, client: str) -> Signature | str:
        """Return the signature of a request to this node, or what is wrong with it.

        A second call with the same signature finds it wrong.
        """
        text, _, digest = value.rpartition(":")
        expected = self._digest(text, self._own, head, client)
        if not hmac.compare_digest(digest.encode("latin-1"), expected.encode()):
            return (
                "the signature of the node is wrong: it belongs to another cluster, to another"
                " version of kbcore or to another request"
            )
        at, nonce, body = text.split(":")
        now = int(self._now())
        if abs(now - int(at)) > VALID_SECONDS:
            return (
                f"the clocks of the nodes differ by more than {VALID_SECONDS} seconds, or the request was sent"
                " before"
            )
        if not self._nonces.add(int(at), nonce, now):
            return "the request was sent before, or signed before this node started"
        return Signature(body, self._key(value))

    def _digest(self, text: str, to: str, head: Head, client: str) -> str:
        headers = (
            f"{name}:{value}" for name, value in head.headers.items() if name not in _FRAMING
        )
        lines = (_VERSION, text, to, head.method, head.target, client, *sorted(headers))
        message = "\n".join(lines).encode("latin-1", "backslashreplace")
        return hmac.digest(self._secret, message, sha256).hex()

    def _key(self, value: str) -> bytes:
        return hmac.digest(self._secret, f"pieces\n{value}".encode("latin-1"), sha256)


class Nonces:
    """The nonces of valid signatures, remembered until the signatures expire."""

    def __init__(self, started: int, limit: int = MAX_NONCES) -> None:
        """Signatures from before `started`, in epoch seconds, may have been used already."""
        self._from = started
        self._limit = limit
        self._by_second: dict[int, set[bytes]] = {}
        self._count = 0
        self._cleaned = started

    def __len__(self) -> int:
        return self._count

    def add(self, at: int, nonce: str, now: int) -> bool:
        """Remember a nonce of a signature from the second `at`; return False if it may be known."""
        if now != self._cleaned:
            self._cleaned = now
            self._forget_before(now - VALID_SECONDS)
        if at < self._from:
            return False
        nonces = self._by_second.setdefault(at, set())
        key = bytes.fromhex(nonce)
        if key in nonces:
            return False
        nonces.add(key)
        self._count += 1
        while self._count > self._limit:
            self._forget_before(min(self._by_second) + 1)
        return True

    def _forget_before(self, second: int) -> None:
        """Forget the nonces of old signatures, which are refused from now on."""
        self._from = max(self._from, second)
        for at in [at for at in self._by_second if at < second]:
            self._count -= len(self._by_second.pop(at))


def digest_of(body: bytes) -> str:
    """Return a whole body as it stands in a signature."""
    return SHA256 + sha256(body).hexdigest()


def pieces_of(length: int | None) -> str:
    """Return a body in sealed pieces as it stands in a signature; None: its length is not known."""
    return PIECES if length is None else f"{PIECES}={length}"
