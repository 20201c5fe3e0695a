"""A committer on a log in memory, and threads that write through it."""

from __future__ import annotations

import threading

from kbcore.clock import LoggedClock, ManualClock
from kbcore.config import Config
from kbcore.durable.commit import Committer
from kbcore.plug.ports import LogStatus
from kbcore.scheduling import Scheduling
from kbcore.state.catalog import Catalog
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact
from kbplanner.engine.engine import Engine


class Log:
    """A log in a list; syncs wait at a gate when there is one."""

    def __init__(self):
        self.records = []
        self.syncs = 0
        self.gate = None
        self.at_gate = threading.Event()
        self.error = None

    def append(self, records):
        if self.error is not None:
            raise self.error
        self.records.extend(records)
        return len(self.records)

    def sync(self):
        if self.gate is not None:
            self.at_gate.set()
            assert self.gate.wait(20)
        self.syncs += 1

    def status(self):
        return LogStatus(len(self.records), len(self.records), "log", 1, 0, 0, True)


def committer(log, **limits):
    catalog = Catalog(Engine)
    config = Config(**limits)
    clock = LoggedClock(ManualClock())
    return catalog, Committer(log, catalog, clock, config, scheduling=Scheduling())


def tell(n, tenant="t", check=None):
    return ChangeSet("default", tenant, (AssertFacts((Fact("p", (str(n),)),)),), check)


def rows(catalog, tenant="t"):
    found = catalog.tenant("default", tenant)
    stored = found.partition(None).named("p")[0].relation
    return found.engine.texts(stored.match([0])[0])


def run_all(calls):
    """Run calls in threads; their results or errors, in order."""
    results = [None] * len(calls)

    def run(place, call):
        try:
            results[place] = call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    return threads, results


def waiting(writes, count):
    """Wait until `count` change sets are queued."""
    done = threading.Event()
    while len(writes._queue) < count:
        done.wait(0.001)
