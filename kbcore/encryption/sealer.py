"""Sealing and opening of payloads: the one place where stored data is encrypted.

    1 format 0xE1 | 8 key id | 16 salt | 8 counter | ciphertext | 16 tag

The key of a sealed payload is HMAC-SHA256(key of the tenant or log; log id, salt). The salt is
random for each process and log that is opened, and the counter is the nonce: it increases with
every payload. So no nonce is used twice with a key. The tag also covers where the payload belongs:
its purpose, the log, and its position there.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count

from kbcore.encryption.cipher import Cipher, NotAuthentic
from kbcore.encryption.key_folder import KEY_ID_BYTES, KeyDestroyed, KeyLost, LogKeys
from kbcore.encryption.owners import Owner, of_chunk, of_record
from kbcore.errors import ConfigError, InvalidInput, LogCorrupted, NotReady

RECORD = 2
"""Type of a sealed log record; its own type is inside."""

RECORD_VERSION = 1

SNAPSHOT = b"snapshot"
BACKUP = b"backup"

_FORMAT = 0xE1
_SALT_BYTES = 16
_HEAD = struct.Struct(f">B{KEY_ID_BYTES}s{_SALT_BYTES}sQ")
_NONCE = struct.Struct(">4xQ")
_POSITION = struct.Struct(">QQ")
_KINDS = struct.Struct("BB")
_MAX_KIND = 255
_LATEST = (1 << 63) - 1
"""A sequence number that no record has: data without one belongs to the present tenant."""

_MAX_SESSIONS = 4096
"""Derived keys that are held in memory."""

_NOTHING = (
    1,
    1,
    b'{"at":0,"db":"default","tenant":"","changes":[{"op":"catalog","action":"createDatabase"}]}',
)
"""A record that changes nothing, in place of one whose key was destroyed."""

logger = logging.getLogger("kbcore.encryption")


def is_sealed(payload: bytes) -> bool:
    """Return True for a sealed payload; plain ones are JSON and begin with another byte."""
    return payload[:1] == b"\xe1"


class Sealer:
    """Seals and opens the payloads of one log. Safe for several threads.

    With `skips_lost`, what a lost key sealed is left out as if its tenant had been deleted; `lost`
    has the ids of these keys.
    """

    def __init__(self, keys: LogKeys, *, skips_lost: bool = False) -> None:
        self.keys = keys
        self.lost: set[bytes] = set()
        self._skips_lost = skips_lost
        self._log = keys.log_id.encode()
        self._derived = lru_cache(_MAX_SESSIONS)(self._derive)
        self._renew()

    def _renew(self) -> None:
        self._process = os.getpid()
        self._salt = secrets.token_bytes(_SALT_BYTES)
        self._numbers = count()

    def seal(self, key_id: bytes, data: bytes, bound_to: bytes) -> bytes:
        """Seal bytes with a key of the log; `bound_to` says where they belong. Raises NotReady."""
        if os.getpid() != self._process:  # a fork would go on with the same salt and numbers
            self._renew()
        salt, number = self._salt, next(self._numbers)
        head = _HEAD.pack(_FORMAT, key_id, salt, number)
        try:
            cipher = self._derived(key_id, salt)
        except KeyDestroyed:  # by another process, since a backup of this log began
            raise NotReady("a tenant was deleted in the meantime; try again") from None
        return head + cipher.seal(_NONCE.pack(number), data, head + bound_to)

    def open(self, sealed: bytes, bound_to: bytes, seq: int = 0) -> bytes:
        """Return bytes that were sealed at a sequence number, 0 outside of the log.

        Raises NotAuthentic, KeyDestroyed, and ConfigError without a key. What claims to be sealed
        with a destroyed key after the end of that key was changed.
        """
        if len(sealed) < _HEAD.size:
            raise NotAuthentic
        format_, key_id, salt, number = _HEAD.unpack_from(sealed)
        if format_ != _FORMAT:
            raise NotAuthentic
        head = sealed[: _HEAD.size]
        try:
            if self.keys.destroyed_at(key_id) is not None:
                raise KeyDestroyed
            cipher = self._derived(key_id, salt)
        except KeyDestroyed:
            if seq > (self.keys.destroyed_at(key_id) or 0):
                raise NotAuthentic from None
            raise
        except KeyLost:
            if not self._skips_lost:
                raise
            self.lost.add(key_id)
            raise KeyDestroyed from None
        data = cipher.open(_NONCE.pack(number), memoryview(sealed)[_HEAD.size :], head + bound_to)
        if self.keys.is_used_after_end(key_id, seq):
            self.keys.revive(seq, key_id)
        return data

    def _derive(self, key_id: bytes, salt: bytes) -> Cipher:
        return Cipher(hmac.digest(self.keys.key(key_id), self._log + b"\0" + salt, "sha256"))

    def forget(self) -> None:
        """Remove derived keys from memory after keys were destroyed."""
        self._derived.cache_clear()

    # -- records ------------------------------------------------------------

    def record(self, seq: int, kind: int, version: int, payload: bytes) -> tuple[int, int, bytes]:
        """Return the sealed record at a sequence number: type, version and payload.

        Retires the key of a tenant that the record deletes. Raises InvalidInput, StorageFull,
        StorageFailed.
        """
        if not payload:
            raise InvalidInput("a log record needs at least one byte")
        if not (0 <= kind <= _MAX_KIND and 0 <= version <= _MAX_KIND):
            raise InvalidInput(f"record type {kind} or version {version} is not in 0 to 255")
        owned = of_record(payload)
        if owned.ends is not None:
            self.keys.retire(owned.ends, seq - 1)
        key_id = self.keys.key_for(owned.owner, seq)
        data = _KINDS.pack(kind, version) + payload
        return RECORD, RECORD_VERSION, self.seal(key_id, data, self._record_at(seq))

    def opened_record(
        self, seq: int, kind: int, version: int, payload: bytes
    ) -> tuple[int, int, bytes]:
        """Return the type, version and payload of a sealed record.

        That of a deleted tenant whose key was destroyed is replaced by one without effect. Raises
        LogCorrupted for a record that is not sealed, was changed, or belongs elsewhere.
        """
        if kind != RECORD or version != RECORD_VERSION:
            raise self._damaged(f"record {seq}", "it is not encrypted as this version does")
        try:
            data = self.open(payload, self._record_at(seq), seq)
        except NotAuthentic:
            raise self._damaged(
                f"record {seq}", "it was changed, or belongs to another place"
            ) from None
        except KeyDestroyed:
            logger.info("record %d is left out: its key was destroyed, or is lost", seq)
            return _NOTHING
        return (*_KINDS.unpack_from(data), data[_KINDS.size :])

    def _record_at(self, seq: int) -> bytes:
        return b"record\0" + self._log + _POSITION.pack(seq, 0)

    # -- snapshots and backups ----------------------------------------------

    def chunks(self, seq: int, chunks: Iterable[bytes], purpose: bytes) -> Iterator[bytes]:
        """Return the sealed chunks of a snapshot: two more than there are, at both ends.

        The first has a random number that the others are bound to, so that chunks of two snapshots
        cannot be mixed; the last has the number of chunks and a digest of them, so that none can be
        left out or marked as one of a deleted tenant.
        """
        log_key, number = self.keys.key_for(None, seq), secrets.token_bytes(16)
        yield self.seal(log_key, number, self._chunk_at(purpose, seq, 0, b""))
        digest = hashlib.sha256()
        owner: Owner | None = None
        index = 0
        for chunk in chunks:
            index += 1
            owner = of_chunk(chunk, owner)
            key_id = self.keys.key_for(owner, seq)
            sealed = self.seal(key_id, b"\0" + chunk, self._chunk_at(purpose, seq, index, number))
            digest.update(sealed)
            yield sealed
        end = b"\1" + digest.digest()
        yield self.seal(log_key, end, self._chunk_at(purpose, seq, index + 1, number))

    def opened_chunks(self, seq: int, chunks: Iterable[bytes], purpose: bytes) -> Iterator[bytes]:
        """Return the chunks of a sealed snapshot, without those of deleted tenants whose keys were
        destroyed. Raises LogCorrupted, also for a snapshot with missing chunks.
        """
        part = f"the {purpose.decode()} at {seq}"
        number, ended, destroyed, digest = b"", False, 0, hashlib.sha256()
        for index, sealed in enumerate(chunks):
            if ended:
                raise self._damaged(part, "it goes on after its end")
            try:
                data = self.open(sealed, self._chunk_at(purpose, seq, index, number), seq)
            except NotAuthentic:
                problem = "it was changed, or belongs to another place"
                raise self._damaged(f"part {index} of {part}", problem) from None
            except KeyDestroyed:
                destroyed += 1
                digest.update(sealed)
                continue
            if not index:
                number = data
            elif data[:1] == b"\1":
                ended = True
                if data[1:] != digest.digest():
                    raise self._damaged(part, "a part of it was changed")
            else:
                digest.update(sealed)
                yield data[1:]
        if not ended:
            raise self._damaged(part, "its end is missing")
        if destroyed:
            logger.warning(
                "%s: %d parts are left out, of deleted tenants or with lost keys", part, destroyed
            )

    def _chunk_at(self, purpose: bytes, seq: int, index: int, number: bytes) -> bytes:
        return purpose + b"\0" + self._log + _POSITION.pack(seq, index) + number

    def _damaged(self, part: str, problem: str) -> LogCorrupted:
        return LogCorrupted(
            f"{part} of log {self.keys.log_id} cannot be decrypted: {problem}",
            directory="",
            segment="",
            offset=0,
            found=f"{part} cannot be decrypted",
        )


class FileSealer:
    """Seals and opens parts of a file of a tenant, with the key that the tenant has now.

    `current` returns the sealer of the log of the tenant.
    """

    def __init__(self, current: Callable[[], Sealer], owner: Owner) -> None:
        self._current = current
        self._owner = owner

    def seal(self, data: bytes, bound_to: bytes) -> bytes:
        """Seal a part; `bound_to` says which part of which file it is. Raises StorageFailed."""
        sealer = self._current()
        key_id = sealer.keys.key_for(self._owner, _LATEST)
        return sealer.seal(key_id, data, self._bound_to(bound_to))

    def open(self, sealed: bytes, bound_to: bytes) -> bytes | None:
        """Return a part, None if it was changed, or its key is gone."""
        try:
            return self._current().open(sealed, self._bound_to(bound_to))
        except (NotAuthentic, KeyDestroyed, ConfigError):
            return None

    def _bound_to(self, bound_to: bytes) -> bytes:
        names = (name.encode("utf-8", "surrogatepass") for name in self._owner)
        return (
            b"file\0" + b"".join(struct.pack(">I", len(name)) + name for name in names) + bound_to
        )
