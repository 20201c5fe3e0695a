"""Paths of the files of vectors, and the removal of files and vectors that must not stay."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kbcore.encryption.sealer import FileSealer
from kbcore.search.vectors.files import SUFFIX, TEMPORARY, erased_in
from kbcore.search.vectors.index import TextOf
from kbcore.state.tenant import Tenant

_log = logging.getLogger("kbcore.vectors")


class ErasesVectors(Protocol):
    """The indexes of vectors, as far as a purge uses them."""

    def erase(self, tenant: Tenant) -> None:
        """Remove the vectors of facts that are gone, in memory and in the file. Raises OSError."""


def plain(database: str, tenant: str) -> None:
    """Return None: the file of a tenant is not encrypted."""


@dataclass(frozen=True, slots=True)
class VectorSettings:
    """Settings of the vectors of a node.

    `folder` is that of the files, None for none; `shard_of` gives the shard of a tenant, by which
    the processes of a node tell their files apart; `max_bytes` is the memory per tenant.
    `sealer_of` returns what encrypts the file of a tenant, None without encryption.
    """

    folder: Path | None
    shard_of: Callable[[str, str], int]
    max_bytes: int
    text_of: TextOf
    sealer_of: Callable[[str, str], FileSealer | None] = plain


def path_of(settings: VectorSettings, database: str, tenant: str) -> Path | None:
    """Return the path of the file of a tenant, None without a folder."""
    if settings.folder is None:
        return None
    name = hashlib.blake2b(f"{database}\0{tenant}".encode(), digest_size=16).hexdigest()
    return settings.folder / f"{settings.shard_of(database, tenant):04d}-{name}{SUFFIX}"


def remove_others(
    settings: VectorSettings, present: Iterable[tuple[str, str]], shards: Iterable[int]
) -> None:
    """Delete the files of tenants that do not exist any more, and what a crash has left.

    Only those of some shards: the others belong to other processes. Files that cannot be deleted
    are reported and tried again later.
    """
    if settings.folder is None or not settings.folder.is_dir():
        return
    prefixes = {f"{shard:04d}" for shard in shards}
    names = {path.name for key in present if (path := path_of(settings, *key)) is not None}
    for path in settings.folder.iterdir():
        known = path.suffix in (SUFFIX, TEMPORARY) and path.name.partition("-")[0] in prefixes
        if known and path.with_suffix(SUFFIX).name not in names:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("vectors of a tenant that is gone were not deleted: %s", error)


def forget_files(
    settings: VectorSettings,
    emptied: tuple[str, str],
    present: Iterable[Tenant],
    shards: Iterable[int],
) -> None:
    """Delete the files of a tenant that was emptied or dropped, while no index uses them.

    `emptied` has its database and name; with the name "" all tenants of the database were. Files
    that cannot be deleted are reported.
    """
    keys = [(tenant.database, tenant.name) for tenant in present]
    others = [key for key in keys if emptied not in (key, (key[0], ""))]
    remove_others(settings, others, shards)


def erased_to(settings: VectorSettings, tenant: Tenant) -> int:
    """Return the number of the last purge whose text has no vector in the files of a tenant."""
    path = path_of(settings, tenant.database, tenant.name)
    if path is None:
        return tenant.purges.last_seq()
    erased = erased_in(path)
    if erased is None:  # a crash may have left a file that was to replace none
        return 0 if path.with_suffix(TEMPORARY).exists() else tenant.purges.last_seq()
    return erased


def erase_purged(
    settings: VectorSettings, tenants: Iterable[Tenant], indexes: ErasesVectors | None
) -> None:
    """Remove the vectors of purged text from the files of tenants, if any may have some.

    Without indexes, because there is no embedder, the file is deleted. Raises OSError.
    """
    for tenant in tenants:
        last, path = tenant.purges.last_seq(), path_of(settings, tenant.database, tenant.name)
        if not last or path is None:
            continue
        if erased_to(settings, tenant) >= last:
            continue
        if indexes is not None:
            indexes.erase(tenant)
        else:
            path.unlink(missing_ok=True)
            path.with_suffix(TEMPORARY).unlink(missing_ok=True)
