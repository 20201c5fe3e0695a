"""The folder of the keys of a storage: one key for each tenant, apart from the data.

    KEYS                                      the folder key, sealed with the master key
    LOG-ID/TENANT-KEYID.key                   a tenant's key, sealed with the folder key
    LOG-ID/TENANT-KEYID.SEQ.retired           the key of a deleted tenant, for records up to SEQ
    LOG-ID/DESTROYED                          destroyed keys: 8 bytes id and 8 bytes SEQ each

TENANT is a keyed hash of database and name, so that names are not readable. The folder has the only
copy of a key: destroying the file makes every copy of what the key sealed unreadable. Each key has
a file of its own, so that processes that use the folder at the same time never write over each
other's keys.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache

from kbcore.config.settings import Config
from kbcore.config.storage_urls import path_of
from kbcore.encryption.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, Cipher, NotAuthentic
from kbcore.encryption.owners import Owner
from kbcore.errors import ConfigError, StorageFailed, StorageFull

FILE = "KEYS"
FORMAT = 1
KEY_ID_BYTES = 8
LOG_KEY_ID = bytes(KEY_ID_BYTES)
"""The key id of what belongs to the log and to no tenant."""

_HEAD = b"KBKEYS\0" + bytes([FORMAT])
_SEALED_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES
_DESTROYED = "DESTROYED"
_NOTE = struct.Struct(f">{KEY_ID_BYTES}sQ")
_MAX_NAMES = 4096
"""Tenants whose hashes are held in memory."""

_NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_NAME = re.compile(r"([0-9a-f]{48})-([0-9a-f]{16})\.(?:key|(\d{20})\.retired)(\.[0-9a-f]{8}\.tmp)?")
_UNFINISHED = re.compile(re.escape(FILE) + r"\.[0-9a-f]{8}\.tmp")
_LOG_ID = re.compile(r"[0-9a-f]{32}")

logger = logging.getLogger("kbcore.encryption")


class KeyDestroyed(Exception):
    """The key of a deleted tenant was destroyed: what it sealed cannot be read any more."""


class KeyLost(ConfigError):
    """A key that was not destroyed does not exist, or its file is damaged."""


def keys_dir(config: Config) -> str:
    """Return the path of the key folder: ENCRYPTION_KEYS_DIR, or beside the stored data.

    Raises ConfigError for a storage without files, for a storage folder that is a mount, beside
    which a file may not last, and for a key folder in the stored data: copies would have the keys.
    """
    has_files = config.storage_backend in ("wal", "sqlite")
    stored = os.path.abspath(path_of(config.storage_url) or config.storage_dir)
    if config.encryption_keys_dir:
        keys = os.path.realpath(config.encryption_keys_dir)
        if has_files and f"{keys}{os.sep}".startswith(f"{os.path.realpath(stored)}{os.sep}"):
            raise ConfigError(
                f"ENCRYPTION_KEYS_DIR={config.encryption_keys_dir} is in the stored data {stored}, whose"
                " copies must not have the keys: set it to a folder elsewhere"
            )
        return config.encryption_keys_dir
    if not has_files:
        raise ConfigError(
            f"STORAGE_BACKEND={config.storage_backend} with encryption needs ENCRYPTION_KEYS_DIR:"
            " a folder for the keys that all processes of the node, or of the cluster, share"
        )
    if os.path.ismount(stored):
        raise ConfigError(
            f"{stored} is a mount, next to which files may not last: set ENCRYPTION_KEYS_DIR to a folder"
            " for the keys that lasts as long as the data"
        )
    return stored + ".keys"


class KeyFolder:
    """The keys of a storage, opened with the master key."""

    def __init__(self, path: str, key: bytes) -> None:
        self.path = path
        self._key = key

    @classmethod
    def open(cls, path: str, master: bytes) -> KeyFolder:
        """Open a key folder; raises ConfigError if it does not exist or has another master key."""
        try:
            data = _read(os.path.join(path, FILE))
        except FileNotFoundError as error:
            raise _without_keys(path) from error
        if data[: len(_HEAD)] != _HEAD or len(data) != len(_HEAD) + _SEALED_BYTES:
            raise ConfigError(f"{os.path.join(path, FILE)} is damaged, or of a newer version")
        try:
            return cls(path, _unwrapped(Cipher(master), data[len(_HEAD) :], _HEAD))
        except NotAuthentic:
            raise ConfigError(
                f"the encryption key is not the one of {path}; set the key that was used when the data"
                " was encrypted"
            ) from None

    @staticmethod
    def exists(path: str) -> bool:
        """Return True if there is a key folder at a path."""
        return os.path.exists(os.path.join(path, FILE))

    @classmethod
    def need(cls, path: str, master: bytes) -> KeyFolder:
        """Open a key folder, and create it if it does not exist. Raises ConfigError.

        A folder that has keys of logs and lost its own is not begun again: a new one would open
        none of them, and would stand in the way of a copy.
        """
        if not cls.exists(path):
            if _has_logs(path) and not cls.exists(path):
                raise _without_keys(path)
            cipher, key = Cipher(master), secrets.token_bytes(KEY_BYTES)
            with _translated(path):
                _make_folder(path)
                _place(path, FILE, _HEAD + _wrapped(cipher, key, _HEAD), replace=False)
        return cls.open(path, master)

    @staticmethod
    @contextmanager
    def locked(path: str) -> Iterator[None]:
        """Lock a key folder for a change of its master key; waits for another process."""
        file = os.path.join(path, FILE)
        with _translated(path):
            try:
                fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise _without_keys(path) from error
        try:
            with _translated(path):
                fcntl.flock(fd, fcntl.LOCK_EX)
                is_replaced = not os.path.samestat(os.fstat(fd), os.stat(file))
            if not is_replaced:
                yield
                return
        finally:
            os.close(fd)
        with KeyFolder.locked(path):  # the other process has placed a new file
            yield

    def rewrap(self, master: bytes) -> None:
        """Seal the folder key with another master key; a crash leaves the old or the new one.

        The caller holds the lock.
        """
        with _translated(self.path):
            # A process that was killed may have left one that an earlier master key opens.
            for name in filter(_UNFINISHED.fullmatch, os.listdir(self.path)):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.path, name))
            _place(
                self.path, FILE, _HEAD + _wrapped(Cipher(master), self._key, _HEAD), replace=True
            )

    def has_log(self, log_id: str) -> bool:
        """Return True if the folder has keys of a log."""
        return has_log(self.path, log_id)

    def log(self, log_id: str) -> LogKeys:
        """Return the keys of a log."""
        return LogKeys(os.path.join(self.path, log_id), log_id, self._key)


def _without_keys(path: str) -> ConfigError:
    return ConfigError(
        f"{path} has no keys, and the data is encrypted with some: put the newest copy of the key"
        " folder there, or set ENCRYPTION_KEYS_DIR"
    )


def _has_logs(path: str) -> bool:
    """Return True if a key folder has keys of any log."""
    try:
        return any(map(_LOG_ID.fullmatch, os.listdir(path)))
    except FileNotFoundError:
        return False


def has_log(path: str, log_id: str) -> bool:
    """Return True if a key folder has keys of a log."""
    return os.path.isdir(os.path.join(path, log_id))


class LogKeys:
    """The keys of one log: that of the log itself, and one for each tenant.

    A key seals what has sequence numbers up to the deletion of its tenant; later data of a tenant
    with this name has another key. Safe for several threads.
    """

    def __init__(self, path: str, log_id: str, folder_key: bytes) -> None:
        self.log_id = log_id
        self._path = path
        self._log_key = hmac.digest(folder_key, b"log" + log_id.encode(), "sha256")
        self._name_key = hmac.digest(folder_key, b"names" + log_id.encode(), "sha256")
        self._cipher = Cipher(hmac.digest(folder_key, b"keys" + log_id.encode(), "sha256"))
        self._lock = threading.RLock()
        self._tenant = lru_cache(_MAX_NAMES)(self._hashed)
        self._files: dict[bytes, str] = {}
        # Normally one per tenant. A process that lost its log may have made another one.
        self._current: dict[str, list[bytes]] = {}
        self._retired: dict[str, list[tuple[int, bytes]]] = {}
        self._ends: dict[bytes, int] = {}  # of the retired keys
        # The last sequence number that each destroyed key sealed.
        self._destroyed: dict[bytes, int] = {}
        self._keys: dict[bytes, bytes] = {LOG_KEY_ID: self._log_key}
        with _translated(path):
            _make_folder(path)
            self._scan()
            # A process may have been killed between the placing of a key and this.
            _sync_folder(path)

    def key_for(self, owner: Owner | None, seq: int) -> bytes:
        """Return the id of the key for data of an owner at a sequence number, made if it is new.

        Durable on return. Raises StorageFull, StorageFailed.
        """
        if owner is None:
            return LOG_KEY_ID
        tenant = self._tenant(owner)
        with self._lock:
            if tenant in self._retired:
                covering = [entry for entry in self._retired[tenant] if entry[0] >= seq]
                if covering:
                    return min(covering)[1]
            known = self._current.get(tenant)
            return known[0] if known else self._make(tenant)

    def key(self, key_id: bytes) -> bytes:
        """Return a key by its id; raise KeyDestroyed, and KeyLost for an unknown one."""
        key = self._keys.get(key_id)
        if key is not None:
            return key
        with self._lock, _translated(self._path):
            for attempt in range(2):
                name = self._files.get(key_id)
                if name is not None:
                    try:
                        key = self._load(name)
                    except FileNotFoundError:  # retired or destroyed by another process
                        name = None
                if key is not None:
                    self._keys[key_id] = key
                    return key
                if not attempt:
                    self._scan()
        if key_id in self._destroyed:
            raise KeyDestroyed
        raise KeyLost(
            f"{self._path} lacks the key {key_id.hex()} of a tenant: put the newest copy of the key"
            " folder there, or set ENCRYPTION_KEYS_DIR"
        )

    def retire(self, owner: Owner, seq: int) -> None:
        """End the use of the key of a tenant, or with the name "" of all tenants of a database.

        It is used for data up to `seq` only. Durable on return.
        """
        prefix = self._tenant(owner) if owner[1] else self._database(owner[0])
        with self._lock, _translated(self._path):
            ending = [tenant for tenant in self._current if tenant.startswith(prefix)]
            for tenant in ending:
                while ids := self._current[tenant]:
                    self._rename(tenant, ids[0], f"{tenant}-{ids[0].hex()}.{seq:020d}.retired")
                    self._retired.setdefault(tenant, []).append((seq, ids[0]))
                    self._ends[ids.pop(0)] = seq
                del self._current[tenant]
            if ending:
                _sync_folder(self._path)

    def _rename(self, tenant: str, key_id: bytes, name: str) -> None:
        """Rename the file of a key, also if another process, which lost the log, renamed it."""
        try:
            os.rename(self._in(self._files[key_id]), self._in(name))
        except FileNotFoundError:
            names = [each for each in self._names_of(tenant, key_id) if not each.endswith(".tmp")]
            if not names:
                raise
            os.rename(self._in(names[0]), self._in(name))
        self._files[key_id] = name

    def _names_of(self, tenant: str, key_id: bytes) -> list[str]:
        """Return the names of all files of a key, unfinished ones included."""
        prefix = f"{tenant}-{key_id.hex()}."
        return [name for name in os.listdir(self._path) if name.startswith(prefix)]

    def is_used_after_end(self, key_id: bytes, seq: int) -> bool:
        """Return True if a key was retired for data before a sequence number at which it is used.

        Then the deletion was not written: by a process that had lost the log.
        """
        return key_id in self._ends and self._ends[key_id] < seq

    def revive(self, seq: int, key_id: bytes | None = None) -> None:
        """Take the end of keys back whose deletion was never written: those retired for data up to
        `seq` or later, or the one of `key_id`. Durable on return.
        """
        with self._lock, _translated(self._path):
            revived = [
                (tenant, entry)
                for tenant, entries in self._retired.items()
                for entry in entries
                if (entry[1] == key_id if key_id else entry[0] >= seq)
            ]
            for tenant, entry in revived:
                self._rename(tenant, entry[1], f"{tenant}-{entry[1].hex()}.key")
                self._current.setdefault(tenant, []).insert(0, entry[1])
                self._forget_end(tenant, entry)
            if revived:
                _sync_folder(self._path)
                logger.warning("%s: %d deletions were not written", self._path, len(revived))

    def _forget_end(self, tenant: str, entry: tuple[int, bytes]) -> None:
        del self._ends[entry[1]]
        self._retired[tenant].remove(entry)
        if not self._retired[tenant]:
            del self._retired[tenant]

    def destroy(self, erased: int) -> int:
        """Destroy the retired keys of data that is all at a sequence number below `erased`.

        Return their number. Raises StorageFull, StorageFailed.
        """
        with self._lock, _translated(self._path):
            ending = [
                (tenant, entry)
                for tenant, entries in self._retired.items()
                for entry in entries
                if entry[0] < erased
            ]
            if not ending:
                return 0
            # The note first: a key that is gone without a note would be taken for a lost one.
            with open(self._in(_DESTROYED), "ab") as file:
                file.truncate(file.tell() // _NOTE.size * _NOTE.size)
                file.write(b"".join(_NOTE.pack(key_id, seq) for _, (seq, key_id) in ending))
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(self._path)
            self._destroyed |= {key_id: seq for _, (seq, key_id) in ending}
            names: dict[str, list[str]] = {}
            for name in os.listdir(self._path):
                if match := _NAME.fullmatch(name):
                    names.setdefault(match[2], []).append(name)
            for tenant, entry in ending:
                for name in names.get(entry[1].hex(), ()):
                    _erase(self._in(name))
                self._files.pop(entry[1], None)
                self._keys.pop(entry[1], None)
                self._forget_end(tenant, entry)
            _sync_folder(self._path)
            return len(ending)

    def destroyed_at(self, key_id: bytes) -> int | None:
        """Return the last sequence number that a key sealed, None if it was not destroyed as far as
        this process knows.
        """
        return self._destroyed.get(key_id)

    def _hashed(self, owner: Owner) -> str:
        names = b"\0".join(name.encode("utf-8", "surrogatepass") for name in owner)
        digest = hmac.digest(self._name_key, b"tenant" + names, "sha256")[:16]
        return self._database(owner[0]) + digest.hex()

    def _database(self, name: str) -> str:
        data = b"database" + name.encode("utf-8", "surrogatepass")
        return hmac.digest(self._name_key, data, "sha256")[:8].hex()

    def _make(self, tenant: str) -> bytes:
        key_id, key = secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(KEY_BYTES)
        name = f"{tenant}-{key_id.hex()}.key"
        with _translated(self._path):
            bound_to = _bound_to(tenant, key_id)
            _place(self._path, name, _wrapped(self._cipher, key, bound_to), replace=False)
        self._files[key_id], self._current[tenant], self._keys[key_id] = name, [key_id], key
        return key_id

    def _load(self, name: str) -> bytes:
        match = _NAME.fullmatch(name)
        if match is None:
            raise FileNotFoundError(name)
        try:
            bound_to = _bound_to(match[1], bytes.fromhex(match[2]))
            return _unwrapped(self._cipher, _read(self._in(name)), bound_to)
        except NotAuthentic:
            raise KeyLost(
                f"{self._in(name)} is damaged: put the newest copy of the key folder there"
            ) from None

    def _scan(self) -> None:
        files: dict[bytes, str] = {}
        current: dict[str, list[bytes]] = {}
        retired: dict[str, list[tuple[int, bytes]]] = {}
        try:
            noted = _read(self._in(_DESTROYED))
        except FileNotFoundError:
            noted = b""
        whole = len(noted) // _NOTE.size * _NOTE.size
        destroyed: dict[bytes, int] = dict(_NOTE.iter_unpack(noted[:whole]))
        destroyed.pop(LOG_KEY_ID, None)  # zeros, which a power cut may leave at the end of a file
        for name in sorted(os.listdir(self._path)):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            tenant, key_id = match[1], bytes.fromhex(match[2])
            if key_id in destroyed:  # a crash came between the note and the removal
                _erase(self._in(name))
                continue
            if match[4] is not None:  # perhaps of a process that makes it now
                continue
            files[key_id] = name
            if match[3] is None:
                current.setdefault(tenant, []).append(key_id)
            else:
                retired.setdefault(tenant, []).append((int(match[3]), key_id))
        self._files, self._current, self._retired = files, current, retired
        self._ends = {key_id: seq for entries in retired.values() for seq, key_id in entries}
        self._destroyed = destroyed

    def _in(self, name: str) -> str:
        return os.path.join(self._path, name)


def _bound_to(tenant: str, key_id: bytes) -> bytes:
    return hashlib.sha256(tenant.encode() + key_id).digest()


def _wrapped(cipher: Cipher, key: bytes, bound_to: bytes) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + cipher.seal(nonce, key, bound_to)


def _unwrapped(cipher: Cipher, data: bytes, bound_to: bytes) -> bytes:
    if len(data) != _SEALED_BYTES:
        raise NotAuthentic
    return cipher.open(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Raise StorageFull or StorageFailed for an OSError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
        if error.errno in _NO_SPACE:
            raise StorageFull(f"the disk of {path} is full: {reason}") from error
        raise StorageFailed(f"the key folder {path} cannot be used: {reason}") from error


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _make_folder(path: str) -> None:
    """Create a folder and those above it, each durably: also one whose maker was killed."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(path):
        _make_folder(above)
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(path, mode=0o700)
    with suppress(
        PermissionError
    ):  # a folder above that this user cannot read has not been made here
        _sync_folder(above)


def _place(folder: str, name: str, data: bytes, *, replace: bool) -> None:
    """Store a file, complete and durable when it has its name.

    Without `replace` a file that has the name stays.
    """
    aside = os.path.join(folder, f"{name}.{secrets.token_hex(4)}.tmp")
    target = os.path.join(folder, name)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(aside, target)
        else:
            try:
                os.link(aside, target)
            except FileExistsError:
                logger.info("%s was created by another process", target)
    finally:
        if os.path.lexists(aside):
            os.unlink(aside)
    _sync_folder(folder)


def _erase(path: str) -> None:
    """Write zeros over a file and remove it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.pwrite(fd, bytes(_SEALED_BYTES), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.unlink(path)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
