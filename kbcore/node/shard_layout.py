"""Placement of tenants on the shards of a storage, and opening of their logs.

The number of shards is chosen when a storage is created. The storage lists its shards with the ids
of their logs, so that a missing, exchanged or empty shard is not taken for an empty one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from kbcore.config.settings import Config
from kbcore.config.storage_urls import path_of, redacted
from kbcore.errors import ConfigError, LogCorrupted
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogStore, ShardPlaces
from kbplanner.syntax.diagnostics import counted

SYSTEM = 0
"""The shard that decides which databases and API keys exist."""

Logs = dict[int, LogStore]
"""Open logs by the numbers of their shards."""


@lru_cache(maxsize=1 << 16)
def shard_of(database: str, tenant: str, shards: int) -> int:
    """Return the number of the shard, of `shards`, that holds a tenant.

    The placement never changes: BLAKE2b with 8 bytes over both names, each after its length in
    UTF-8 as 4 bytes, all little endian.
    """
    if shards == 1:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in (database, tenant):
        text = name.encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return int.from_bytes(digest.digest(), "little") % shards


def location_of(config: Config) -> str:
    """Return the name of a storage for messages, without secrets."""
    if config.storage_url:
        return redacted(config.storage_url)
    return config.storage_dir if config.storage_backend in ("wal", "sqlite") else "the storage"


def vector_folder(config: Config) -> Path | None:
    """Return the folder that keeps the vectors of facts, None without one."""
    if config.vector_dir:
        return Path(config.vector_dir)
    if config.storage_backend not in ("wal", "sqlite"):
        return None
    named = path_of(config.storage_url) if config.storage_url else ""
    if not named:
        return Path(config.storage_dir, "vectors")
    return Path(named, "vectors") if config.storage_backend == "wal" else Path(f"{named}.vectors")


def open_logs(
    plugins: Plugins, config: Config, owns: Callable[[int], bool] | None = None
) -> tuple[int, Logs]:
    """Open the logs of a storage, and create it if it does not exist.

    Return the number of shards and the logs of those that `owns` selects; None: all, because there
    are no other processes. Raises ConfigError if STORAGE_SHARDS is set to another number or there
    are more WORKERS than shards, LogCorrupted if a shard is damaged, missing or of another storage,
    StorageBusy.
    """
    places, requested = plugins.shard_places(), config.storage_shards
    recorded = None if places is None else places.recorded(config)
    if recorded is None and config.workers > 1 and not requested:
        requested = config.workers  # with more, fewer writes would share a sync
    if recorded is None and requested > 1:
        if places is None:
            raise ConfigError(
                f"STORAGE_SHARDS={requested}: STORAGE_BACKEND={config.storage_backend} has one shard only"
            )
        recorded = [""] * requested
        places.record(config, recorded)
    shards = len(recorded or ()) or 1
    if recorded is not None and requested not in (0, shards):
        raise ConfigError(
            f"STORAGE_SHARDS={requested}, but {location_of(config)} has"
            f" {counted(shards, 'shard')}; leave STORAGE_SHARDS out, or convert the"
            f" data: kbcore storage copy FROM TO --shards {requested}"
        )
    if owns is not None and shards < config.workers:
        raise ConfigError(
            f"WORKERS={config.workers}, but {location_of(config)} has"
            f" {counted(shards, 'shard')}, and each worker needs one; convert the data:"
            f" kbcore storage copy FROM TO --shards {config.workers}"
        )
    if not recorded or places is None:
        return 1, {SYSTEM: plugins.check_storage()(config)}
    return shards, _open(plugins, config, places, list(recorded), owns or _every)


def _open(
    plugins: Plugins,
    config: Config,
    places: ShardPlaces,
    recorded: list[str],
    owns: Callable[[int], bool],
) -> Logs:
    factory, logs = plugins.check_storage(), Logs()
    is_new = False
    try:
        for shard, log_id in enumerate(recorded):
            if log_id and not owns(shard):
                continue
            log = logs[shard] = factory(places.place(config, shard, new=not log_id))
            status = log.status()
            if log_id and status.log_id != log_id:
                raise _exchanged(config, shard, f"its log is {status.log_id}, not {log_id}")
            if not log_id and (status.head or status.snapshot):
                raise _exchanged(config, shard, "it has records, but the storage is new")
            is_new = is_new or not log_id
            recorded[shard] = status.log_id
            if not owns(shard):  # created for another process
                logs.pop(shard).close()
        if is_new:
            places.record(config, recorded)
    except BaseException:
        for log in logs.values():
            log.close(clean=False)
        raise
    return logs


def _every(shard: int) -> bool:
    return True


def _exchanged(config: Config, shard: int, problem: str) -> LogCorrupted:
    location = location_of(config)
    return LogCorrupted(
        f"shard {shard} of {location} is of another storage: {problem}."
        " Restore a backup with `kbcore restore`",
        directory=location,
        segment="",
        offset=0,
        shard=shard,
    )


def adopt_logs(plugins: Plugins, config: Config, shards: int) -> None:
    """Make a storage of shard logs that were created one by one: store the list of their ids.

    The place of a shard without a log gets an empty one. With one shard there is nothing to do.
    """
    places = plugins.shard_places()
    if shards == 1 or places is None:
        return
    factory, log_ids = plugins.check_storage(), []
    for shard in range(shards):
        log = factory(places.place(config, shard, new=True))
        log_ids.append(log.status().log_id)
        log.close()
    places.record(config, log_ids)
