"""The vectors of all tenants of a node: one index for each, a thread that fills them, and their
files.

The thread gives new facts to the embedder in batches, without a lock, saves their vectors, and
removes those of facts that are gone. A purge rewrites the file of its tenant at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kbcore.errors import KBError
from kbcore.scheduling import Scheduling
from kbcore.search.embedder import BATCH_SIZE, Embedding
from kbcore.search.vectors.files import VectorFile
from kbcore.search.vectors.index import VectorIndex
from kbcore.search.vectors.places import VectorSettings, path_of, remove_others
from kbcore.search.vectors.store import entry_of
from kbcore.state.overlay import Overlay
from kbcore.state.tenant import Tenant
from kbplanner.syntax.diagnostics import counted

WAIT_SECONDS = 5.0
"""Time between two looks for new facts; a write is looked at earlier."""

MIN_UNUSED_ENTRIES = 1000
"""A file is not rewritten for fewer unused vectors, unless a purge asks for it."""

_log = logging.getLogger("kbcore.vectors")


@dataclass(slots=True)
class _Saved:
    """The file of a tenant, None without a folder, and the tenant's index once the file was read.

    `is_read` is True after the file was read, until its vectors were compared with the facts: it
    may be the file of an earlier tenant of the same name, or from before the tenant was emptied.
    """

    file: VectorFile | None
    loading: threading.Lock = field(default_factory=threading.Lock)
    writing: threading.Lock = field(default_factory=threading.Lock)  # before the lock of the tenant
    index: VectorIndex | None = None
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class VectorFigures:
    """Sizes of all indexes: vectors, their bytes, and facts that wait for theirs."""

    vectors: int = 0
    bytes: int = 0
    backlog: int = 0


class VectorIndexes:
    """The vectors of the tenants of a process, made by one embedder.

    `tenants` returns the tenants of the shards that the process has; `shards` are these shards.
    """

    def __init__(
        self,
        embedding: Embedding,
        settings: VectorSettings,
        tenants: Callable[[], Iterable[Tenant]],
        shards: Mapping[int, object],
        scheduling: Scheduling,
    ) -> None:
        self.embedding = embedding
        self._settings = settings
        self._tenants = tenants
        self._shards = shards
        self._offload_disk = scheduling.offload_disk
        self._yield_now = scheduling.yield_in_background
        self._saved: dict[tuple[str, str], _Saved] = {}
        self._known: dict[tuple[str, str], tuple[int, int]] = {}
        self._backlogs: dict[tuple[str, str], int] = {}
        self._full: set[tuple[str, str]] = set()
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="kbcore-vectors", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for new facts soon."""
        self._wake.set()

    def close(self) -> None:
        """Stop the thread after its current batch, and save what windows have added."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        for tenant in list(self._tenants()):
            if (index := VectorIndex.of(tenant)) is not None and index.unsaved:
                self._save(tenant, index)

    def index(self, tenant: Tenant) -> VectorIndex:
        """Return the index of a tenant, with the vectors of its file."""
        home = tenant.base if isinstance(tenant, Overlay) else tenant
        index = VectorIndex.need(
            home, self.embedding.dimension, self._settings.max_bytes, self._settings.text_of
        )
        saved = self._file_of(home)
        if saved.index is not index:
            with saved.loading:
                if saved.index is not index:
                    if saved.file is not None:
                        index.load(self._offload_disk(saved.file.read))
                        saved.is_read = True
                    saved.index = index
        return index

    def figures(self) -> VectorFigures:
        """Return the sizes of all indexes."""
        indexes = [index for tenant in self._tenants() if (index := VectorIndex.of(tenant))]
        return VectorFigures(
            sum(len(index.store) for index in indexes),
            sum(index.store.bytes for index in indexes),
            sum(self._backlogs.values()),
        )

    def work(self) -> bool:
        """Give a batch of each tenant's new facts to the embedder; return True if more are left."""
        more, present = False, set[tuple[str, str]]()
        for tenant in list(self._tenants()):
            if self._stopping and self._thread is not None:
                return False
            if tenant.failed is None and not tenant.gone:
                present.add((tenant.database, tenant.name))
                more |= self._work_on(tenant)
            self._yield_now()
        for key in set(self._saved) - present:
            self._saved.pop(key, None)
            self._known.pop(key, None)
            self._backlogs.pop(key, None)
            self._full.discard(key)
        if self._settings.folder is not None:
            remove_others(self._settings, present, list(self._shards))
        return more

    def erase(self, tenant: Tenant) -> None:
        """Remove the vectors of facts that are gone, in memory and in the file. Raises OSError."""
        index, saved = self.index(tenant), self._file_of(tenant)
        index.forget_queries()
        with saved.writing:
            with tenant.lock.read():
                index.update(tenant, tenant.partitions(), self._yield_now)
                index.drop_unused(tenant)
                seq, entries = tenant.purges.last_seq(), index.all_entries()
            if saved.file is not None:
                file = saved.file
                self._offload_disk(lambda: file.replace(entries, seq))

    def _file_of(self, tenant: Tenant) -> _Saved:
        key = tenant.database, tenant.name
        with self._mutex:
            saved = self._saved.get(key)
            if saved is None:
                path = path_of(self._settings, *key)
                embedding = self.embedding
                file = None
                if path is not None:
                    file = VectorFile(
                        path, embedding.name, embedding.dimension, self._settings.sealer_of(*key)
                    )
                saved = self._saved[key] = _Saved(file)
            return saved

    def _work_on(self, tenant: Tenant) -> bool:
        key, index = (tenant.database, tenant.name), self.index(tenant)
        state = tenant.serial, tenant.version
        if self._known.get(key) == state and not self._backlogs.get(key):
            self._save(tenant, index)  # what windows have added
            return False
        with tenant.lock.read():
            partitions = tenant.partitions()
            index.update(tenant, partitions, self._yield_now)
            index.drop_unused(tenant)
            state = tenant.serial, tenant.version
            facts = [] if index.store.full else index.missing(tenant, partitions, BATCH_SIZE)
        entries = [
            entry_of(fact.text, vector)
            for fact, vector in zip(
                facts, self.embedding.vectors([fact.text for fact in facts]), strict=False
            )
        ]
        with tenant.lock.read():
            partitions = tenant.partitions()
            if entries:
                index.add(tenant, partitions, facts, entries)
            backlog = index.backlog(partitions)
        if not (index.store.full and backlog):
            self._full.discard(key)
        elif key not in self._full:
            self._full.add(key)
            _log.warning(
                "%s of tenant %s without a vector, found by words only: raise VECTOR_INDEX_MB",
                counted(backlog, "fact"),
                tenant.name,
            )
        self._known[key], self._backlogs[key] = state, backlog
        self._save(tenant, index)
        return bool(entries) and backlog > 0

    def _save(self, tenant: Tenant, index: VectorIndex) -> None:
        """Save new vectors; rewrite a file that has many unused ones, text of a purge, or unused
        ones from before it was read.
        """
        saved = self._file_of(tenant)
        file = saved.file
        if file is None:
            index.take_unsaved()
            return
        try:
            if file.erased is not None and file.erased < tenant.purges.last_seq():
                self.erase(tenant)
                return
            with saved.writing, tenant.lock.read():
                seq, unsaved = tenant.purges.last_seq(), index.take_unsaved()
                unused = file.entries + len(unsaved) - len(index.store)
                limit = 0 if saved.is_read else max(MIN_UNUSED_ENTRIES, len(index.store))
                if unused > limit:
                    entries = index.all_entries()
                    self._offload_disk(lambda: file.replace(entries, seq))
                elif unsaved:
                    self._offload_disk(lambda: file.append(unsaved, seq))
                saved.is_read = False
        except (OSError, KBError) as error:
            _log.warning("vectors of facts were not saved and may be made again: %s", error)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                more = self.work()
            except KBError:
                _log.exception("vectors of new facts were not made; this is tried again")
                more = False
            if not more:
                self._wake.wait(WAIT_SECONDS)
