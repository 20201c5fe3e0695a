"""Copying and checking storage while no server has it open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

from kbcore.config.settings import Config
from kbcore.config.storage_urls import backend_of, path_of, redacted
from kbcore.durable.capture import capture_tenants
from kbcore.durable.snapshot import encode
from kbcore.errors import (
    AlreadyExists,
    ConfigError,
    Conflict,
    InvalidInput,
    LogTruncated,
    ReadOnlyFollower,
)
from kbcore.node.shard_layout import SYSTEM, shard_of
from kbcore.offline.logs import (
    LogContents,
    contents_of,
    opened_logs,
    recovered,
    removed_on_failure,
    tenants_of,
)
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogRecord, LogStore
from kbcore.replication.role import leader_of
from kbplanner.syntax.diagnostics import counted

BATCH_RECORDS = 1024
BATCH_BYTES = 4 << 20
"""Maximum bytes per append of a copy; a single record may be larger."""


def check_storage(
    url: str, config: Config | None = None, plugins: Iterable[object] = ()
) -> LogContents:
    """Read a storage as a start does, and also every older record that is still stored.

    Raises ConfigError if the storage does not exist, StorageBusy if it is in use, and LogCorrupted
    if it is damaged.
    """
    loaded, settings = _settings(url, config, plugins, there=True)
    with opened_logs(loaded, settings) as stores:
        _check_not_empty(stores, url)
        for store in stores:
            for _ in _all_records(store):
                pass
        with recovered(stores, settings) as logs:
            return contents_of(logs)


def copy_storage(
    source: str,
    target: str,
    config: Config | None = None,
    plugins: Iterable[object] = (),
    *,
    shards: int = 0,
) -> LogContents:
    """Copy the newest snapshot and the later records to an empty storage, and verify the copy.

    `shards` is the number of shards of the target (0: as many as the source has). With as many
    shards as the source has, records keep their sequence numbers. Otherwise the state is copied,
    and the sequence of each shard of the target continues above the highest of the source. The
    target is reopened for the verification.

    Raises AlreadyExists if the target is not empty, ReadOnlyFollower if the target follows a
    leader, ConfigError if the source is empty or the target has another number of shards,
    StorageBusy if either storage is in use, and Conflict if the contents differ, for example
    because the target is damaged.
    """
    if source == target:
        raise InvalidInput.at("to", "must differ from the source")
    loaded, settings = _settings(source, config, plugins, there=True)
    with opened_logs(loaded, settings) as origins:
        _check_not_empty(origins, source)
        count = shards or len(origins)
        target_plugins, target_settings = _settings(target, config, plugins, shards=count)
        is_file = backend_of(target) in ("wal", "sqlite")
        with (
            removed_on_failure(path_of(target)) if is_file else nullcontext(),
            opened_logs(target_plugins, target_settings) as copies,
        ):
            for copy in copies:
                _check_empty(copy, target)
            if len(copies) == len(origins):
                for origin, copy in zip(origins, copies, strict=True):
                    _copy(origin, copy)
                with recovered(origins, settings) as logs:
                    expected = contents_of(logs)
            else:
                expected = _convert(origins, copies, settings)
    with (
        opened_logs(target_plugins, target_settings) as copies,
        recovered(copies, target_settings) as logs,
    ):
        copied = contents_of(logs)
    if (copied.facts, copied.digest) != (expected.facts, expected.digest):
        raise Conflict(
            f"{redacted(target)} differs from {redacted(source)} after the copy; do not use it",
            {"source": expected.digest, "target": copied.digest},
        )
    return copied


def _settings(
    url: str,
    config: Config | None,
    plugins: Iterable[object],
    *,
    there: bool = False,
    shards: int = 0,
) -> tuple[Plugins, Config]:
    settings = (config or Config()).updated({"STORAGE_URL": url, "STORAGE_SHARDS": str(shards)})
    if there and backend_of(url) in ("wal", "sqlite") and not os.path.exists(path_of(url)):
        raise ConfigError(
            f"{redacted(url)}: there is no such {'file' if backend_of(url) == 'sqlite' else 'folder'}"
        )
    return Plugins(settings, plugins), settings


def _check_not_empty(stores: Sequence[LogStore], url: str) -> None:
    if not any(store.status().head for store in stores):
        raise ConfigError(f"{redacted(url)} has no knowledge base")


def _check_empty(store: LogStore, url: str) -> None:
    if leader := leader_of(store):
        raise ReadOnlyFollower(leader, redacted(url))
    if store.status().head:
        raise AlreadyExists(
            f"{redacted(url)} is not empty: it has {counted(store.status().head, 'record')}"
        )


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


def _convert(
    origins: Sequence[LogStore], copies: Sequence[LogStore], settings: Config
) -> LogContents:
    """Begin each target with a snapshot of the tenants that belong there; return the contents."""
    last = max(store.status().head for store in origins)
    with recovered(origins, settings) as logs:
        system, tenants = logs[0].catalog, tenants_of([log.catalog for log in logs])
        for tenant in tenants:
            tenant.seq = tenant.seq or last  # as the target will read it
        for shard, copy in enumerate(copies):
            held = (
                tenant
                for tenant in tenants
                if shard_of(tenant.database, tenant.name, len(copies)) == shard
            )
            copy.begin_with(last, encode(capture_tenants(system, held, keys=shard == SYSTEM)))
        return contents_of(logs)
