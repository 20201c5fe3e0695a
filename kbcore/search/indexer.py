"""The word indexes of all tenants of a node, and a thread that completes them in the background.

The thread works in pieces of a few milliseconds, each under the read lock of a tenant, and pauses
in between, so that requests and writes go first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

from kbcore.errors import KBError
from kbcore.search.bm25 import LexicalIndex, indexed_share
from kbcore.state.tenant import Tenant
from kbplanner.syntax.diagnostics import counted

MIN_FACTS = 2000
"""Facts of a tenant with episodes from which its index is made after a start.

A question indexes fewer itself.
"""

WAIT_SECONDS = 5.0
"""Time between two looks for new facts; a question that finds facts that are not indexed wakes the
thread at once.
"""

PAUSE_SECONDS = 0.001
"""Time between two pieces, for requests and writes."""

_log = logging.getLogger("kbcore.words")


class WordIndexes:
    """The word indexes of the tenants of a process.

    An index is made by the first question of its tenant, or after a start (`start`) if the tenant
    has episodes; from then on the thread indexes new facts. `tenants` returns the tenants of the
    shards that the process has.
    """

    def __init__(
        self, tenants: Callable[[], Iterable[Tenant]], yield_now: Callable[[], None]
    ) -> None:
        self._tenants = tenants
        self._yield_now = yield_now
        self._mutex = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: WeakSet[Tenant] = WeakSet()

    def start(self) -> None:
        """Begin to make the indexes of tenants with at least MIN_FACTS facts, and episodes.

        Their texts are stored in order to be found. Tenants that an earlier call has seen are left
        out.
        """
        chosen = False
        for tenant in list(self._tenants()):
            if tenant in self._seen or tenant.failed is not None or tenant.gone:
                continue
            self._seen.add(tenant)
            with tenant.lock.read():
                if len(tenant.episodes) and tenant.facts() >= MIN_FACTS:
                    LexicalIndex.of(tenant).include_all(tenant)
                    self._prepare_conversations(tenant)
                    chosen = True
        if chosen:
            self.asked(is_behind=True)

    def _prepare_conversations(self, tenant: Tenant) -> None:
        """Make the order of episodes and the facts of each, about a second for a million, so that
        the first question need not.
        """
        tenant.episodes.prepare()
        for _, stored in tenant.stored():
            self._yield_now()
            stored.prepare_support(self._yield_now)

    def asked(self, *, is_behind: bool) -> None:
        """Look for new facts from time to time from now on; at once if an index is behind."""
        if self._thread is None:
            self._start_thread()
        elif is_behind:
            self._wake.set()

    def _start_thread(self) -> None:
        with self._mutex:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="kbcore-words", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop the thread after its current piece."""
        with self._mutex:
            self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def work(self) -> bool:
        """Do a piece of work for each tenant; return whether more is left."""
        more = False
        for tenant in list(self._tenants()):
            index = tenant.attached.get(LexicalIndex)
            if index is None or not index.is_behind(tenant):
                continue
            if self._thread is not None and self._stop.wait(PAUSE_SECONDS):
                return False
            with tenant.lock.read():
                if tenant.failed is None and not tenant.gone:
                    more |= index.fill_more(tenant, self._yield_now)
        return more

    def counts(self) -> tuple[int, int]:
        """Return the number of facts that wait to be indexed, and of all facts of the indexes."""
        waiting = known = 0
        for tenant in list(self._tenants()):
            if (index := tenant.attached.get(LexicalIndex)) is not None:
                counts = index.counts()
                waiting, known = waiting + counts[0], known + counts[1]
        return waiting, known

    def check(self) -> dict[str, Any]:
        """Return the check of the readiness; while facts wait, with `indexProgress`, 0 to 1.

        It passes then too: questions are answered from the facts that are indexed.
        """
        waiting, known = self.counts()
        if not waiting:
            return {"status": "pass", "message": "every word index is complete"}
        progress = indexed_share(waiting, known)
        message = f"{counted(waiting, 'fact')} not in the word index yet, which is being made"
        return {"status": "pass", "message": message, "indexProgress": progress}

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                while self.work():
                    pass
            except KBError:
                _log.exception("new facts were not indexed; this is tried again")
            self._wake.wait(WAIT_SECONDS)
