"""The commit feed: recipients, order, and calls from listeners."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import Conflict
from kbcore.node.opening import open_runtime
from kbcore.plug.hookspecs import hookimpl
from kbcore.reason.aggregate import AggregateQuery
from kbcore.state.changes import AssertFacts, CatalogAction, ChangeSet
from kbcore.state.facts import Fact


@contextmanager
def opened(**given):
    with open_runtime(Config(storage_backend="memory"), clock=ManualClock(), **given) as runtime:
        yield runtime


def tell(runtime, n, tenant="t", database="default"):
    return runtime.knowledge_base(database, tenant).assert_facts([Fact("p", (str(n),))])


def told(committed):
    return [(c.tenant, f.args[0]) for c in committed for f in c.changes.changes[0].facts]


def test_every_applied_change_set_is_delivered_once_with_its_log_position():
    with opened() as runtime:
        heard, seen = [], []

        def listen(committed):
            heard.append(committed)
            seen.append(
                runtime.knowledge_base("default", "t")
                .aggregate(AggregateQuery("p", "COUNT"))
                .matched
            )

        runtime.feed.subscribe(listen)
        for n in range(3):
            tell(runtime, n)
        assert told(heard) == [("t", "0"), ("t", "1"), ("t", "2")]
        assert [c.seq for c in heard] == [1, 2, 3]
        assert [c.delta.seq for c in heard] == [1, 2, 3]
        assert [c.delta.asserted for c in heard] == [1, 1, 1]
        assert seen == [1, 2, 3]


def test_a_listener_gets_only_its_tenant_until_it_unsubscribes():
    with opened() as runtime:
        mine, databases, everything = [], [], []
        leave = runtime.feed.subscribe(mine.append, "default", "a")
        runtime.feed.subscribe(databases.append, "default")
        stop = runtime.feed.subscribe(everything.append)
        runtime.admin().create_database("other")
        tell(runtime, 1, "a")
        tell(runtime, 2, "b")
        tell(runtime, 3, "a", "other")
        leave()
        leave()
        tell(runtime, 4, "a")
        assert told(mine) == [("a", "1")]
        assert told(databases) == [("a", "1"), ("b", "2"), ("a", "4")]
        assert told(everything[1:]) == [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")]
        assert everything[0].catalog_action is CatalogAction.CREATE_DATABASE
        stop()
        assert runtime.feed.heard


def test_the_feed_is_idle_after_the_last_listener_unsubscribes():
    with opened() as runtime:
        assert not runtime.feed.heard
        leave = runtime.feed.subscribe(lambda committed: None)
        assert runtime.feed.heard
        leave()
        assert not runtime.feed.heard


def test_a_function_subscribed_twice_is_called_twice():
    with opened() as runtime:
        heard = []
        first = runtime.feed.subscribe(heard.append, "default", "t")
        runtime.feed.subscribe(heard.append, "default", "t")
        tell(runtime, 1)
        first()
        tell(runtime, 2)
        assert told(heard) == [("t", "1"), ("t", "1"), ("t", "2")]


def test_a_failing_listener_is_counted_and_affects_no_other(caplog):
    with opened() as runtime:
        heard = []

        def fail(committed):
            raise RuntimeError("no")

        runtime.feed.subscribe(fail)
        runtime.feed.subscribe(heard.append)
        assert tell(runtime, 1).asserted == 1
        assert tell(runtime, 2).asserted == 1
        assert told(heard) == [("t", "1"), ("t", "2")]
        assert runtime.feed.failures == 2
        assert "a listener failed on change set 1" in caplog.text


def test_writes_of_a_listener_are_delivered_after_the_current_event():
    with opened() as runtime:
        order = []

        def echo(committed):
            n = int(committed.changes.changes[0].facts[0].args[0])
            order.append(("echo", n))
            if n < 3:
                tell(runtime, n + 1)

        runtime.feed.subscribe(echo)
        runtime.feed.subscribe(
            lambda c: order.append(("other", int(c.changes.changes[0].facts[0].args[0])))
        )
        tell(runtime, 1)
        assert order == [(who, n) for n in (1, 2, 3) for who in ("echo", "other")]


def test_a_refused_change_set_is_not_delivered():
    with opened() as runtime:
        heard = []
        runtime.feed.subscribe(heard.append)

        def refuse():
            raise Conflict("no")

        with pytest.raises(Conflict):
            runtime.commit(ChangeSet("default", "t", (AssertFacts((Fact("p", ("1",)),)),), refuse))
        tell(runtime, 2)
        assert told(heard) == [("t", "2")]


def test_changes_of_tenants_and_databases_are_delivered_in_order():
    with opened() as runtime:
        heard = []
        admin = runtime.admin()
        admin.create_database("d")
        runtime.feed.subscribe(
            lambda c: heard.append(c.catalog_action or c.changes.changes[0].facts[0].args[0]),
            "d",
            "t",
        )
        tell(runtime, 1, "t", "d")
        admin.nuke_tenant("d", "t")
        tell(runtime, 2, "t", "d")
        tell(runtime, 3, "u", "d")
        admin.nuke_database("d")
        admin.drop_database("d")
        assert heard == [
            "1",
            CatalogAction.NUKE_TENANT,
            "2",
            CatalogAction.NUKE_DATABASE,
            CatalogAction.DROP_DATABASE,
        ]


def test_changes_of_many_writers_are_delivered_in_log_order_per_tenant():
    with opened() as runtime:
        heard = []
        runtime.feed.subscribe(heard.append)
        writers = [
            threading.Thread(
                target=lambda w=w: [tell(runtime, f"{w}-{n}", f"t{w % 2}") for n in range(40)]
            )
            for w in range(6)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        runtime.system.committer.feed.tell()
        assert len(heard) == len(told(heard)) == 240
        for tenant in ("t0", "t1"):
            seqs = [c.seq for c in heard if c.tenant == tenant]
            assert seqs == sorted(set(seqs))
            assert [c.delta.generation for c in heard if c.tenant == tenant] == list(range(1, 121))


class Telling:
    """A plugin that takes some of the arguments only."""

    def __init__(self):
        self.heard = []

    @hookimpl
    def kb_changes_committed(self, tenant, delta):
        self.heard.append((tenant, delta.seq, delta.asserted))


class Failing:
    @hookimpl
    def kb_changes_committed(self, database):
        raise ValueError(database)


def test_a_failing_notification_hook_does_not_affect_others(caplog):
    plugin = Telling()
    with opened(plugins=[plugin, Failing()]) as runtime:
        assert tell(runtime, 1).asserted == 1
        assert plugin.heard == [("t", 1, 1)]
        text = (runtime.metrics.expose() or b"").decode()
        assert 'svc_plugin_failures_total{hook="kb_changes_committed"} 1.0' in text
