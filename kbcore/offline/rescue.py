"""Operator commands on storage that no server has open: check, salvage, back up, restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbcore.clock import SystemClock
from kbcore.config.settings import Config
from kbcore.durable.backup import BackupInfo, chunks_of, verify, written
from kbcore.durable.capture import capture
from kbcore.durable.records import owners
from kbcore.durable.recovery import recover
from kbcore.durable.snapshot import encode, paced
from kbcore.errors import AlreadyExists, ConfigError
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LogSeed
from kbcore.state.catalog import Catalog
from kbplanner.engine.engine import Engine

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

    `sound` in the report is the verdict. Raises ConfigError if the folder does not exist, and
    StorageBusy if a process has it open.
    """
    _must_be(folder)
    return _plugins(config, folder).storage_tools().check(folder)


def salvage_folder(
    folder: str, to: str, *, skip_damaged: bool = False, config: Config | None = None
) -> dict[str, Any]:
    """Copy the undamaged data of a folder to an empty one, and return a report.

    The report lists the recovered and the lost data of each tenant. The copy is opened and
    recovered before this function returns. Raises AlreadyExists if `to` is not empty, and
    LogCorrupted if no data can be read.
    """
    _must_be(folder)
    report = (
        _plugins(config, folder)
        .storage_tools()
        .salvage(folder, to, skip_damaged=skip_damaged, owners=owners)
    )
    recovered = _recovered(_plugins(config, to), lambda _: _count)
    return {**report, "to": to, "kept": asdict(recovered)}


def backup_storage(to: Path, config: Config) -> BackupInfo:
    """Write a backup of a storage that no server has open; raises AlreadyExists if `to` exists.

    The backup is written to a temporary file, verified and renamed, so the named file is complete.
    """
    if config.storage_backend == "wal":
        _must_be(config.storage_dir)

    def write(info: BackupInfo) -> Callable[[Catalog], BackupInfo]:
        return lambda catalog: keep(written(info, encode(capture(catalog))), to)

    info: BackupInfo = _recovered(Plugins(config), write)
    return info


def running_backup(runtime: Runtime) -> tuple[BackupInfo, Iterator[bytes]]:
    """Return the current state as a backup file, in pieces that can be written while serving."""
    status, captured = runtime.captured()
    info = BackupInfo(status.log_id, status.epoch, status.head, runtime.clock.now_ms())
    return info, written(info, paced(captured, runtime.yield_in_background))


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
            os.fsync(file.fileno())
        info = verify(aside)
        aside.rename(to)
    finally:
        aside.unlink(missing_ok=True)
    return info


def restore_file(backup: Path, to: str, config: Config | None = None) -> tuple[BackupInfo, Kept]:
    """Make a storage folder from a backup.

    The backup is verified first, and the folder is recovered before this function returns. Raises
    LogCorrupted if the backup is damaged and AlreadyExists if the folder is not empty; in both
    cases nothing is written.
    """
    info = verify(backup)
    plugins = _plugins(config, to)
    seed = LogSeed(info.log_id, info.epoch + 1, info.seq)
    plugins.storage_tools().plant(to, seed, chunks_of(backup))
    return info, _recovered(plugins, lambda _: _count)


def _plugins(config: Config | None, folder: str) -> Plugins:
    return Plugins(replace(folder_config(config or Config(), folder), min_free_mb=0))


def folder_config(config: Config, folder: str) -> Config:
    """Return the settings with the storage replaced by a folder."""
    backend = "wal" if config.storage_url else config.storage_backend
    return replace(config, storage_dir=folder, storage_url="", storage_backend=backend)


def _must_be(folder: str) -> None:
    if not os.path.isdir(folder):
        raise ConfigError(f"{folder}: no such folder")


def _recovered(plugins: Plugins, use: Callable[[BackupInfo], Callable[[Catalog], Any]]) -> Any:
    """Recover a storage as a start does, and return the result of `use`."""
    store = plugins.open_storage()
    clean = False
    try:
        catalog = Catalog(Engine)
        try:
            recover(store, catalog)
            status = store.status()
            result = use(
                BackupInfo(status.log_id, status.epoch, status.head, SystemClock().now_ms())
            )(catalog)
            clean = True
        finally:
            catalog.close()
    finally:
        store.close(clean=clean)
    return result


def _count(catalog: Catalog) -> Kept:
    databases = catalog.databases()
    tenants = list(catalog.tenants())
    return Kept(len(databases), len(tenants), sum(tenant.facts() for tenant in tenants))
