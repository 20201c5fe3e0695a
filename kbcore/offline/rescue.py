"""Operator commands on storage that no server has open: check, salvage, back up, restore."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbcore.clock import SystemClock
from kbcore.config.settings import Config
from kbcore.durable.backup import BackupInfo, chunks_of, verify, written
from kbcore.durable.capture import capture
from kbcore.durable.records import logged_at, owners
from kbcore.durable.snapshot import encode
from kbcore.encryption.key_folder import keys_dir
from kbcore.encryption.master_key import is_configured
from kbcore.errors import AlreadyExists, ConfigError, LogCorrupted
from kbcore.node.shard_layout import adopt_logs
from kbcore.offline.logs import opened_logs, recovered, removed_on_failure, tenants_of
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogSeed
from kbcore.system_calls import sync_file
from kbplanner.syntax.diagnostics import counted

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Kept:
    """Counts in a recovered storage: databases, tenants, stored facts."""

    databases: int
    tenants: int
    facts: int


def check_folder(folder: str, config: Config | None = None) -> dict[str, Any]:
    """Check everything in a storage folder without changing it, and return a report.

    `sound` in the report is the verdict. With several shards, `shards` has a report of each, and
    the problems name their shards. Raises ConfigError if the folder does not exist, and StorageBusy
    if a process has it open.
    """
    _must_be(folder)
    plugins, settings = _plugins(config, folder)
    places, tools = plugins.shard_places(), plugins.storage_tools()
    try:
        log_ids = [] if places is None else list(places.recorded(settings) or ())
    except LogCorrupted as error:
        problem = {"file": error.segment, "found": error.message}
        return {"directory": folder, "sound": False, "opens": False, "problems": [problem]}
    if places is None or not log_ids:
        return tools.check(folder)
    reports: list[dict[str, Any]] = []
    for shard, log_id in enumerate(log_ids):
        try:
            report = tools.check(places.place(settings, shard, new=False).storage_dir)
        except LogCorrupted as error:
            problems = [{"file": error.segment, "found": error.message}]
            report = {"sound": False, "opens": False, "problems": problems}
        if log_id and report.get("logId", log_id) != log_id:
            difference = f"the log {report['logId']} of another storage, not {log_id}"
            report["problems"].append({"file": "", "found": difference})
            report |= {"sound": False, "opens": False}
        reports.append({"shard": shard, **report})
    return {
        "directory": folder,
        "sound": all(report["sound"] for report in reports),
        "opens": all(report["opens"] for report in reports),
        "problems": [
            {"shard": report["shard"], **problem}
            for report in reports
            for problem in report["problems"]
        ],
        "shards": reports,
    }


def salvage_folder(
    folder: str, to: str, *, skip_damaged: bool = False, config: Config | None = None
) -> dict[str, Any]:
    """Copy the undamaged data of a folder to an empty one, and return a report.

    The report lists the recovered and the lost data of each tenant, with the numbers and times (ISO
    8601) of the records; with several shards `shards` has a report of each, with `error` for a
    shard of which nothing can be read: it is empty in the copy. Tenants whose keys are lost are
    left out, and `lostKeys` has the ids. The copy is opened and recovered before this function
    returns. Raises AlreadyExists if `to` is not empty, and LogCorrupted if no data can be read.
    """
    _must_be(folder)
    plugins, settings = _plugins(config, folder)
    target_plugins, target = _plugins(
        replace(config or Config(), encryption_keys_dir=settings.encryption_keys_dir), to
    )
    places, tools = plugins.shard_places(), plugins.storage_tools()
    log_ids = () if places is None else places.recorded(settings) or ()
    if places is None or not log_ids:
        with removed_on_failure(to):
            report = tools.salvage(
                folder, to, skip_damaged=skip_damaged, owners=owners, logged_at=logged_at
            )
            return {**report, "to": to, "kept": asdict(_count_in(target_plugins, target))}
    _must_be_empty(to)
    with removed_on_failure(to):
        return _salvage_shards(settings, target, target_plugins, len(log_ids), skip_damaged)


def _salvage_shards(
    settings: Config, target: Config, plugins: Plugins, shards: int, skip_damaged: bool
) -> dict[str, Any]:
    """Copy the undamaged data of each shard to an empty folder; return the report."""
    reports: list[dict[str, Any]] = []
    errors: list[LogCorrupted] = []
    places, tools = plugins.shard_places(), plugins.storage_tools()
    if places is None:
        raise ConfigError(f"STORAGE_BACKEND={target.storage_backend} has one shard only")
    for shard in range(shards):
        try:
            report = tools.salvage(
                places.place(settings, shard, new=False).storage_dir,
                places.place(target, shard, new=True).storage_dir,
                skip_damaged=skip_damaged,
                owners=owners,
                logged_at=logged_at,
            )
        except LogCorrupted as error:
            errors.append(error)
            report = {"error": error.message}
        reports.append({"shard": shard, **report})
    if len(errors) == len(reports):
        raise errors[0]
    adopt_logs(plugins, target, shards)
    contents = asdict(_count_in(plugins, target))
    report = {"directory": settings.storage_dir, "shards": reports}
    return {**report, "to": target.storage_dir, "kept": contents}


def backup_storage(to: Path, config: Config) -> BackupInfo:
    """Write a backup of a storage that no server has open; raises AlreadyExists if `to` exists.

    The backup is written to a temporary file, verified and renamed, so the named file is complete.
    """
    if config.storage_backend == "wal":
        _must_be(config.storage_dir)
    plugins = Plugins(config)
    with opened_logs(plugins, config) as stores, recovered(stores, config) as logs:
        statuses = [log.store.status() for log in logs]
        seeds = tuple(LogSeed(each.log_id, each.epoch, each.head) for each in statuses)
        info = BackupInfo(seeds, SystemClock().now_ms(), plugins.encryption.is_on)
        chunks = (
            plugins.encryption.backed_up(seed, encode(capture(log.catalog)))
            for seed, log in zip(seeds, logs, strict=True)
        )
        return keep(written(info, chunks), to)


def running_backup(runtime: Runtime) -> tuple[BackupInfo, Iterator[bytes]]:
    """Return the current state as a backup file, in pieces that can be written while serving."""
    logs, chunks = runtime.captured()
    encryption = runtime.plugins.encryption
    info = BackupInfo(logs, runtime.clock.now_ms(), encryption.is_on)
    return info, written(info, map(encryption.backed_up, logs, chunks))


def keep(parts: Iterable[bytes], to: Path) -> BackupInfo:
    """Write a backup file: to a temporary file, synced, verified and then renamed.

    Raises AlreadyExists and LogCorrupted.
    """
    if to.exists():
        raise AlreadyExists(f"{to} exists", {"file": str(to)})
    aside = to.with_name(to.name + ".tmp")
    try:
        with aside.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            sync_file(file.fileno())
        info = verify(aside)
        aside.rename(to)
    finally:
        aside.unlink(missing_ok=True)
    return info


def restore_file(
    backup: Path, to: str, config: Config | None = None, *, skips_lost: bool = False
) -> tuple[BackupInfo, Kept]:
    """Make a storage folder from a backup; with `skips_lost` without tenants whose keys are lost.

    The backup is verified first, and the folder is recovered before this function returns. Raises
    LogCorrupted if the backup is damaged and AlreadyExists if the folder is not empty; after an
    error the folder is as it was before.
    """
    info = verify(backup)
    shards = len(info.logs)
    plugins, settings = _plugins(config, to)
    if settings.storage_shards not in (0, shards):
        raise ConfigError(
            f"STORAGE_SHARDS={settings.storage_shards}, but {backup} has"
            f" {counted(shards, 'shard')}; restore it without STORAGE_SHARDS, and"
            " convert it with kbcore storage copy FROM TO --shards NUMBER"
        )
    places, tools = plugins.shard_places(), plugins.storage_tools()
    if shards > 1:
        if places is None:
            raise ConfigError(f"STORAGE_BACKEND={settings.storage_backend} has one shard only")
        _must_be_empty(to)
    with removed_on_failure(to):
        for shard, (log, chunks) in enumerate(zip(info.logs, chunks_of(backup), strict=True)):
            target = to
            if places is not None and shards > 1:
                target = places.place(settings, shard, new=True).storage_dir
            plain: Iterable[bytes] = chunks
            if info.is_encrypted:
                plain = plugins.encryption.restored(log, chunks, skips_lost=skips_lost)
            seed = replace(log, epoch=log.epoch + 1)
            tools.plant(target, seed, plugins.encryption.planted(seed, plain))
        adopt_logs(plugins, settings, shards)
        return info, _count_in(plugins, settings)


def _plugins(config: Config | None, folder: str) -> tuple[Plugins, Config]:
    settings = replace(folder_config(config or Config(), folder), min_free_mb=0)
    if is_configured(settings):  # that of the folder as a whole, also for its shards
        settings = replace(settings, encryption_keys_dir=keys_dir(settings))
    return Plugins(settings), settings


def folder_config(config: Config, folder: str) -> Config:
    """Return the settings with the storage replaced by a folder."""
    backend = "wal" if config.storage_url else config.storage_backend
    return replace(config, storage_dir=folder, storage_url="", storage_backend=backend)


def _must_be(folder: str) -> None:
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder}: no such folder")


def _must_be_empty(folder: str) -> None:
    if os.path.isdir(folder) and os.listdir(folder):
        raise AlreadyExists(f"{folder} is not empty", {"directory": folder})


def _count_in(plugins: Plugins, config: Config) -> Kept:
    """Recover a storage as a start does, and count its contents."""
    with opened_logs(plugins, config) as stores, recovered(stores, config) as logs:
        tenants = tenants_of([log.catalog for log in logs])
        return Kept(
            len(logs[0].catalog.databases()),
            len(tenants),
            sum(tenant.facts() for tenant in tenants),
        )
