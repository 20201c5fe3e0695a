"""Operator commands for encryption: encrypt a plain storage, and change the master key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from kbcore.config.settings import Config
from kbcore.durable.capture import capture
from kbcore.durable.snapshot import encode
from kbcore.encryption.key_folder import KeyFolder, keys_dir
from kbcore.encryption.master_key import is_configured, key_in, master_key
from kbcore.errors import ConfigError
from kbcore.node.shard import recover_log
from kbcore.node.shard_layout import location_of, vector_folder
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import Erases, KeepsHistory, LogSeed, LogStore, TakesOver
from kbcore.plug.sealed_store import Encryption, is_plain
from kbcore.search.vectors.files import SUFFIX, TEMPORARY


@dataclass(frozen=True, slots=True)
class Enabled:
    """Result of the encryption of a storage: its logs, and how many were plain before."""

    keys_dir: str
    logs: int
    encrypted: int


def enable(config: Config, plugins: Iterable[object] = ()) -> Enabled:
    """Encrypt a storage that no process has open with the configured key.

    Each log is replaced by an encrypted snapshot of its state, all or nothing. After a crash the
    logs are plain or encrypted, and a second call encrypts the others. Older snapshots, by which
    earlier states can be read, are removed, and vectors of facts are made again.

    Raises ConfigError without a key or a storage, StorageBusy, LogCorrupted.
    """
    if not is_configured(config):
        raise ConfigError(
            "set ENCRYPTION_KEY_FILE or ENCRYPTION_KEY_COMMAND to the key that encrypts the data"
        )
    loaded = Plugins(config, plugins)
    if not loaded.encryption.is_on:
        raise ConfigError(f"STORAGE_BACKEND={config.storage_backend} stores nothing")
    folder = loaded.encryption.folder()
    _remove_vectors(config)
    places, factory = loaded.shard_places(), loaded.plain_storage()
    log_ids = () if places is None else places.recorded(config)
    if log_ids is None:
        raise ConfigError(f"{location_of(config)} has no knowledge base")
    settings = [config]
    if places is not None and log_ids:
        settings = [places.place(config, shard, new=False) for shard in range(len(log_ids))]
    encrypted = 0
    for each in settings:
        store = factory(each)
        clean = False
        try:
            encrypted += _encrypt(store, folder, loaded.encryption, config)
            clean = True
        finally:
            store.close(clean=clean)
    return Enabled(folder.path, len(settings), encrypted)


def _encrypt(store: LogStore, folder: KeyFolder, encryption: Encryption, config: Config) -> bool:
    """Replace a plain log by an encrypted one; return False if it is empty or encrypted."""
    status = store.status()
    if not is_plain(store):
        folder.log(status.log_id)
        _erase(store)
        return False
    if not isinstance(store, TakesOver):
        raise ConfigError(
            f"STORAGE_BACKEND={config.storage_backend} cannot be encrypted in place: copy the data to"
            " a new storage without a key, then encrypt that"
        )
    log = recover_log(store, replace(config, replication_mode="none"))
    try:
        seed = LogSeed(status.log_id, status.epoch, status.head)
        store.replace_with(seed, encryption.planted(seed, encode(capture(log.catalog))))
    finally:
        log.catalog.close()
    _erase(store)
    return True


def _erase(store: LogStore) -> None:
    """Remove the bytes of the plain log that a storage may still have after it was replaced.

    After the replacement there is one snapshot; with more, it was long ago.
    """
    seq = store.status().snapshot
    is_replaced = not isinstance(store, KeepsHistory) or len(store.snapshot_numbers()) == 1
    if is_replaced and isinstance(store, Erases) and store.erased() < seq:
        store.erase_before(seq)


def _remove_vectors(config: Config) -> None:
    folder = vector_folder(config)
    if folder is not None and folder.is_dir():
        for path in chain(folder.glob(f"*{SUFFIX}"), folder.glob(f"*{TEMPORARY}")):
            path.unlink()


def rotate(config: Config, new_key_file: str) -> str:
    """Seal the key folder of a storage with a new master key; return the path of the folder.

    The keys of tenants stay, so that neither data nor backups change. A crash leaves the old or the
    new master key in force; if the new one is in force already, nothing is changed. Raises
    ConfigError for a key that is missing or not that of the folder.
    """
    if not is_configured(config):
        raise ConfigError("set ENCRYPTION_KEY_FILE or ENCRYPTION_KEY_COMMAND to the present key")
    path, new = keys_dir(config), key_in(new_key_file, "--new-key-file")
    present = master_key(config)
    with KeyFolder.locked(path):
        try:
            folder = KeyFolder.open(path, present)
        except ConfigError:
            try:
                folder = KeyFolder.open(path, new)
            except ConfigError:
                pass
            else:
                return folder.path
            raise
        folder.rewrap(new)
    return path
