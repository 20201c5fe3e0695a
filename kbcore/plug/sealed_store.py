"""A `LogStore` that encrypts what another one stores: records and chunks of snapshots.

Every storage plugin is encrypted this way. What a log has in the clear are numbers: sequence
numbers, sizes, times of files, and the id of the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.encryption.cipher import Cipher
from kbcore.encryption.key_folder import KeyFolder, has_log, keys_dir
from kbcore.encryption.master_key import is_configured, master_key
from kbcore.encryption.sealer import BACKUP, RECORD, SNAPSHOT, Sealer, is_sealed
from kbcore.errors import ConfigError, KBError, StorageFailed, StorageFull
from kbcore.plug.ports import (
    Erases,
    KeepsHistory,
    KeepsReserve,
    KeepsSnapshots,
    LogReader,
    LogRecord,
    LogSeed,
    LogStatus,
    LogStore,
    RemembersLeader,
    TakesOver,
    WorksBeside,
)

Records = Sequence[tuple[int, int, bytes]]

_ABILITIES = (
    KeepsReserve,
    WorksBeside,
    Erases,
    KeepsSnapshots,
    KeepsHistory,
    TakesOver,
    RemembersLeader,
)

logger = logging.getLogger("kbcore.encryption")


class SealedStore:
    """An open log whose payloads are encrypted; it has the optional abilities of `inner`."""

    def __init__(self, inner: LogStore, keys: KeyFolder) -> None:
        self._inner = inner
        self._keys = keys
        self._appending = threading.Lock()
        self._is_read = False
        self._begin(inner.status().log_id)
        for ability in _ABILITIES:
            if isinstance(inner, ability):
                for name in vars(ability):
                    if not name.startswith("_"):
                        own = getattr(self, f"_{name}", None)
                        setattr(self, name, own or getattr(inner, name))

    @property
    def sealer(self) -> Sealer:
        """The keys of this log in use, for data of its tenants outside of it."""
        return self._sealer

    def _begin(self, log_id: str) -> None:
        self._sealer = Sealer(self._keys.log(log_id))
        self._head = self._inner.status().head
        self._sealer.keys.revive(self._head)  # the deletions after it were not written

    # -- records ------------------------------------------------------------

    def append(self, records: Records) -> int:
        """Encrypt and write records, all or none, without syncing."""
        return self._append(records, self._inner.append)

    def _append_for_room(self, records: Records) -> int:
        return self._append(records, cast(KeepsReserve, self._inner).append_for_room)

    def _append(self, records: Records, append: Callable[[Records], int]) -> int:
        with self._appending:
            head = self._head
            try:
                sealed = [
                    self._sealer.record(seq, *record)
                    for seq, record in enumerate(records, head + 1)
                ]
                last = append(sealed)
            except StorageFull:  # nothing was written
                self._sealer.keys.revive(head)
                raise
            if last != head + len(sealed):
                raise StorageFailed(
                    f"the log went on at another record than {head + 1}; nothing more is acknowledged"
                )
            self._head = last
            return last

    def sync(self) -> None:
        """Make everything appended durable."""
        self._inner.sync()

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the decrypted records with a number over `after`, in order."""
        return self._read(self._inner.read(after))

    def _read(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        yield from opened_records(self._sealer, records)
        if not self._is_read:
            self._is_read = True
            self._destroy_keys()  # after a crash that kept it from being done

    # -- snapshots ----------------------------------------------------------

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Encrypt and store a snapshot."""
        self._inner.save_snapshot(seq, self._sealer.chunks(seq, chunks, SNAPSHOT))
        self._destroy_keys()

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with an encrypted snapshot."""
        self._inner.begin_with(seq, self._sealer.chunks(seq, chunks, SNAPSHOT))
        self._begin(self._inner.status().log_id)

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the decrypted newest snapshot."""
        return self._opened(self._inner.load_snapshot())

    def _load_snapshot_before(self, seq: int) -> tuple[int, Iterator[bytes]] | None:
        return self._opened(cast(KeepsSnapshots, self._inner).load_snapshot_before(seq))

    def _opened(
        self, snapshot: tuple[int, Iterator[bytes]] | None
    ) -> tuple[int, Iterator[bytes]] | None:
        if snapshot is None:
            return None
        seq, chunks = snapshot
        return seq, self._sealer.opened_chunks(seq, chunks, SNAPSHOT)

    def _replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        with self._appending:
            sealer = Sealer(self._keys.log(seed.log_id))
            sealed = sealer.chunks(seed.seq, chunks, SNAPSHOT)
            cast(TakesOver, self._inner).replace_with(seed, sealed)
            self._begin(self._inner.status().log_id)

    def drop_before(self, seq: int) -> None:
        """Delete log segments that no snapshot needs."""
        self._inner.drop_before(seq)
        self._destroy_keys()

    def _erase_before(self, seq: int) -> None:
        cast(Erases, self._inner).erase_before(seq)
        self._destroy_keys()

    def _destroy_keys(self) -> None:
        """Destroy the keys of deleted tenants of which the log has no bytes any more."""
        if not isinstance(self._inner, Erases):
            return
        try:
            if self._sealer.keys.destroy(self._inner.erased()):
                self._sealer.forget()
        except KBError as error:  # tried again after the next snapshot
            logger.warning("keys of deleted tenants are not destroyed yet: %s", error)

    # -- state --------------------------------------------------------------

    def status(self) -> LogStatus:
        """Return the status of the log."""
        return self._inner.status()

    def close(self, *, clean: bool = True) -> None:
        """Release the log."""
        self._inner.close(clean=clean)


class SealedReader:
    """A `LogReader` of an encrypted log."""

    def __init__(self, inner: LogReader, keys: KeyFolder, log_id: str) -> None:
        self._inner = inner
        self._keys = keys
        self._sealer = Sealer(keys.log(log_id))

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the decrypted newest snapshot."""
        snapshot = self._inner.load_snapshot()
        if snapshot is None:
            return None
        seq, chunks = snapshot
        return seq, self._sealer.opened_chunks(seq, chunks, SNAPSHOT)

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the decrypted records with a number over `after`."""
        return opened_records(self._sealer, self._inner.read(after))

    def open(self) -> LogStore:
        """Open the log as its only writer from now on."""
        return SealedStore(self._inner.open(), self._keys)

    def close(self) -> None:
        """Release the reader."""
        self._inner.close()


def opened_records(sealer: Sealer, records: Iterable[LogRecord]) -> Iterator[LogRecord]:
    """Yield decrypted records; raises what `Sealer.opened_record` raises."""
    for each in records:
        yield LogRecord(
            each.seq, *sealer.opened_record(each.seq, each.type, each.version, each.payload)
        )


class Encryption:
    """The encryption that the settings of a storage ask for, or none.

    The key is read when the first log is opened.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stores = config.storage_backend != "memory"
        self._folder: KeyFolder | None = None

    @property
    def is_on(self) -> bool:
        """True if stored data is encrypted."""
        return self._stores and is_configured(self._config)

    def check_settings(self) -> None:
        """Raise ConfigError for a key that cannot be used; create nothing."""
        if not self.is_on:
            return
        path, key = keys_dir(self._config), master_key(self._config)
        if KeyFolder.exists(path):
            KeyFolder.open(path, key)
        else:
            Cipher(key)

    def folder(self) -> KeyFolder:
        """Return the key folder, which is created if it does not exist. Raises ConfigError."""
        if self._folder is None:
            self._folder = KeyFolder.need(keys_dir(self._config), master_key(self._config))
        return self._folder

    def known_folder(self) -> KeyFolder:
        """Return the key folder of encrypted data. Raises ConfigError if it does not exist."""
        if self._folder is None:
            self._folder = KeyFolder.open(keys_dir(self._config), master_key(self._config))
        return self._folder

    def opened(self, store: LogStore) -> LogStore:
        """Return an open log with encryption if it is on; raise ConfigError, and close the log, for
        an encrypted log without a key and for a plain log with one.
        """
        if not self._stores:
            return store
        try:
            status = store.status()
            sealed = _is_log_sealed(store)
            if sealed is not None:
                self.check(is_sealed=sealed)
            if not self.is_on:
                if sealed is None and self._has_keys(status.log_id):
                    raise without_key(self._name)
                return store
            folder = self._folder_with(status.log_id) if sealed else self.folder()
            return SealedStore(store, folder)
        except BaseException:
            store.close()
            raise

    def check(self, *, is_sealed: bool) -> None:
        """Raise ConfigError for an encrypted log without a key, and for a plain log with one."""
        if is_sealed and not self.is_on:
            raise without_key(self._name)
        if self.is_on and not is_sealed:
            raise ConfigError(
                f"{self._name} is not encrypted, and an encryption key is set: stop every process"
                " that uses it and run `kbcore encryption enable`"
            )

    def sealer(self, log_id: str, *, skips_lost: bool = False) -> Sealer:
        """Return the keys of an encrypted log. Raises ConfigError if there are none."""
        return Sealer(self._folder_with(log_id).log(log_id), skips_lost=skips_lost)

    def _folder_with(self, log_id: str) -> KeyFolder:
        folder = self.known_folder()
        if not folder.has_log(log_id):
            raise ConfigError(
                f"{folder.path} has no keys of the log {log_id}: put the newest copy of its key folder"
                " there, or set ENCRYPTION_KEYS_DIR"
            )
        return folder

    def backed_up(self, log: LogSeed, chunks: Iterable[bytes]) -> Iterable[bytes]:
        """Return the chunks of a backup of a log, encrypted if encryption is on."""
        return self.sealer(log.log_id).chunks(log.seq, chunks, BACKUP) if self.is_on else chunks

    def restored(
        self, log: LogSeed, chunks: Iterable[bytes], *, skips_lost: bool = False
    ) -> Iterable[bytes]:
        """Return the decrypted chunks of an encrypted backup of a log. Raises ConfigError."""
        if not self.is_on:
            raise without_key("the backup")
        sealer = self.sealer(log.log_id, skips_lost=skips_lost)
        return sealer.opened_chunks(log.seq, chunks, BACKUP)

    def planted(self, log: LogSeed, chunks: Iterable[bytes]) -> Iterable[bytes]:
        """Return the chunks of the snapshot with which a log begins, encrypted if it is on."""
        if not self.is_on:
            return chunks
        return Sealer(self.folder().log(log.log_id)).chunks(log.seq, chunks, SNAPSHOT)

    def reader(self, reader: LogReader, log_id: str) -> LogReader:
        """Return a reader of an encrypted log. Raises ConfigError."""
        return SealedReader(reader, self._folder_with(log_id), log_id)

    def _has_keys(self, log_id: str) -> bool:
        try:
            return has_log(keys_dir(self._config), log_id)
        except ConfigError:  # no folder is named
            return False

    @property
    def _name(self) -> str:
        config = self._config
        return redacted(config.storage_url) if config.storage_url else config.storage_dir


def without_key(name: str) -> ConfigError:
    """Return the error for encrypted data without a key."""
    return ConfigError(
        f"{name} is encrypted: set ENCRYPTION_KEY_FILE or ENCRYPTION_KEY_COMMAND to its key"
    )


def _is_log_sealed(store: LogStore) -> bool | None:
    """Return True for an encrypted log, False for a plain one, None for an empty one."""
    loaded = store.load_snapshot()
    if loaded is not None:
        for chunk in loaded[1]:
            return is_sealed(chunk)
    status = store.status()
    if not status.head:
        return None
    for record in store.read(status.snapshot):
        return record.type == RECORD and is_sealed(record.payload)
    return None


def is_plain(store: LogStore) -> bool:
    """Return True if a log has content that is not encrypted."""
    return _is_log_sealed(store) is False
