"""Copying and checking storage while no server has it open."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbcore.config.settings import Config
from kbcore.config.storage_urls import backend_of, path_of, redacted
from kbcore.durable.capture import capture
from kbcore.durable.recovery import recover
from kbcore.durable.snapshot import encode
from kbcore.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    InvalidInput,
    LogTruncated,
    ReadOnlyFollower,
)
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogRecord, LogStore
from kbcore.replication.role import leader_of
from kbcore.state.catalog import Catalog
from kbplanner.engine.engine import Engine as CEngine

BATCH_RECORDS = 1024
BATCH_BYTES = 4 << 20
"""Maximum bytes per append of a copy; a single record may be larger."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a storage: last record, newest snapshot (0: none), later records, and totals.

    `digest` is the SHA-256 of everything a start recovers: databases, tenants, scopes, rules, facts
    with their attributes, generations and transactions.
    """

    head: int
    snapshot: int
    records: int
    facts: int
    digest: str


def check_storage(
    url: str, config: Config | None = None, plugins: Iterable[object] = ()
) -> Contents:
    """Read a storage as a start does, and also every older record that is still stored.

    Raises ConfigError if the storage does not exist, StorageBusy if it is in use, and LogCorrupted
    if it is damaged.
    """
    store = _open(url, config, plugins, there=True)
    try:
        if not store.status().head:
            raise ConfigError(f"{redacted(url)} has no knowledge base")
        for _ in _all_records(store):
            pass
        return _contents(store)
    finally:
        store.close()


def copy_storage(
    source: str, target: str, config: Config | None = None, plugins: Iterable[object] = ()
) -> Contents:
    """Copy the newest snapshot and the later records to an empty storage, and verify the copy.

    Records keep their sequence numbers. The target is reopened for the verification. Raises
    AlreadyExists if the target is not empty, ReadOnlyFollower if the target follows a leader,
    ConfigError if the source is empty, StorageBusy if either storage is in use, and Conflict if the
    contents differ, for example because the target is damaged.
    """
    if source == target:
        raise InvalidInput.at("to", "must differ from the source")
    origin = _open(source, config, plugins, there=True)
    try:
        if not origin.status().head:
            raise ConfigError(f"{redacted(source)} has no knowledge base")
        copy = _open(target, config, plugins)
        try:
            if leader := leader_of(copy):
                raise ReadOnlyFollower(leader, redacted(target))
            if copy.status().head:
                raise AlreadyExists(
                    f"{redacted(target)} is not empty: it has {copy.status().head} records"
                )
            _copy(origin, copy)
        finally:
            copy.close()
        expected = _contents(origin)
    finally:
        origin.close()
    copy = _open(target, config, plugins)
    try:
        copied = _contents(copy)
    finally:
        copy.close()
    if copied != expected:
        raise Conflict(
            f"{redacted(target)} differs from {redacted(source)} after the copy; do not use it",
            {"source": expected.digest, "target": copied.digest},
        )
    return copied


def _open(
    url: str, config: Config | None, plugins: Iterable[object], *, there: bool = False
) -> LogStore:
    settings = (config or Config()).updated({"STORAGE_URL": url})
    if there and backend_of(url) in ("wal", "sqlite") and not os.path.exists(path_of(url)):
        raise ConfigError(
            f"{url}: there is no such {'file' if backend_of(url) == 'sqlite' else 'folder'}"
        )
    return Plugins(settings, plugins).open_storage()


def _all_records(store: LogStore) -> Iterator[LogRecord]:
    try:
        return store.read(0)
    except LogTruncated as error:
        return store.read((error.details or {})["first"] - 1)


def _copy(origin: LogStore, copy: LogStore) -> None:
    after = 0
    loaded = origin.load_snapshot()
    if loaded is not None:
        after, chunks = loaded
        copy.begin_with(after, chunks)
    for batch in _batches(origin.read(after)):
        last = copy.append([(record.type, record.version, record.payload) for record in batch])
        if last != batch[-1].seq:
            raise Conflict(
                f"the copy has record {last} where the source has record {batch[-1].seq}"
            )
        copy.sync()


def _batches(records: Iterator[LogRecord]) -> Iterator[list[LogRecord]]:
    batch: list[LogRecord] = []
    size = 0
    for record in records:
        if batch and (len(batch) >= BATCH_RECORDS or size + len(record.payload) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.payload)
    if batch:
        yield batch


def _contents(store: LogStore) -> Contents:
    catalog = Catalog(CEngine)
    try:
        recovered = recover(store, catalog)
        digest = hashlib.sha256()
        for chunk in encode(capture(catalog)):
            digest.update(len(chunk).to_bytes(8, "little") + chunk)
        facts = sum(tenant.facts() for tenant in catalog.tenants())
    finally:
        catalog.close()
    return Contents(
        store.status().head, recovered.snapshot, recovered.records, facts, digest.hexdigest()
    )
