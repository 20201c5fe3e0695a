r"""The hash chain of the records of one tenant.

Each record of the log has a digest, and each digest is hashed with the head before it:

    digest = SHA-256("kbcore record TYPE VERSION\n" + payload)
    head   = SHA-256(head before + digest)

The first head is 32 zero bytes. The digests of the last records are kept, so that the chain from
them to the head can be checked after the records themselves are gone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

DIGEST_BYTES = 32
NO_HEAD = bytes(DIGEST_BYTES)
"""The head of an empty chain."""

CHAINED_SINCE = 14
"""The first version of records that are in a chain. Earlier ones have no salt."""

KEPT_DIGESTS = 16_384
"""Number of digests of the last records of a tenant that are kept at least."""

WAITING_RECORDS = 64
"""Records of a chain that wait to be hashed, at most; large ones wait as their digests."""

_DROPPED = 256 * DIGEST_BYTES
"""Digests that are dropped in one step: less than a millisecond."""


def next_head(head: bytes, digest: bytes | bytearray) -> bytes:
    """Return the head of a chain after a record, from the head before it."""
    return sha256(head + digest).digest()


@dataclass(frozen=True, slots=True)
class ChainState:
    """A chain at one point: the number of its records, its head, and its last digests.

    `start` is the head before the first of these digests.
    """

    count: int
    head: bytes
    start: bytes
    digests: bytes

    def to_json(self) -> list[object]:
        """Return the state as JSON."""
        return [self.count, self.head.hex(), self.start.hex(), b64encode(self.digests).decode()]

    @property
    def first(self) -> int:
        """Position of the record of the first digest; the first record of a chain has 1."""
        return self.count - len(self.digests) // DIGEST_BYTES + 1


class RecordChain:
    """The chain of a tenant, which grows with each record that is applied.

    Records are hashed when there are some: a loop takes a third of the time of single steps
    between other work. Readers may call `state` at the same time.
    """

    __slots__ = ("_digests", "_hashed", "_head", "_start", "waiting")

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        """The next records: what the digest of each is computed from, or the digest, which is
        shorter than any record. Who appends one calls `hash_waiting` at WAITING_RECORDS.
        """
        self._hashed = 0
        self._start = self._head = NO_HEAD
        self._digests = bytearray()

    @property
    def count(self) -> int:
        """The number of records of the chain."""
        return self._hashed + len(self.waiting)

    def hash_waiting(self) -> None:
        """Hash the records that wait."""
        self._head = self._hash_waiting(self._digests)
        self._hashed += len(self.waiting)
        self.waiting = []
        while len(self._digests) >= KEPT_DIGESTS * DIGEST_BYTES + _DROPPED:
            for at in range(0, _DROPPED, DIGEST_BYTES):
                self._start = next_head(self._start, self._digests[at : at + DIGEST_BYTES])
            del self._digests[:_DROPPED]

    def _hash_waiting(self, digests: bytearray) -> bytes:
        """Append the digests of the records that wait; return the head after them."""
        head = self._head
        for record in self.waiting:
            digest = record if len(record) == DIGEST_BYTES else sha256(record).digest()
            digests += digest
            head = sha256(head + digest).digest()
        return head

    def state(self) -> ChainState:
        """Return the chain as it is now."""
        digests = bytearray(self._digests)
        head = self._hash_waiting(digests)
        return ChainState(self.count, head, self._start, bytes(digests))

    def restore(self, state: Sequence[object]) -> None:
        """Load what `ChainState.to_json` returned."""
        count, head, start, digests = state
        self._hashed, self.waiting = int(str(count)), []
        self._head = bytes.fromhex(str(head))
        self._start = bytes.fromhex(str(start))
        self._digests = bytearray(b64decode(str(digests)))
