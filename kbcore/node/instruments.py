"""Instruments of a node: bound metrics for hot paths, and a collector for values read on demand."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kbcore import __version__
from kbcore.errors import BudgetExceeded, KBError
from kbcore.metrics import catalogue as m
from kbcore.node.metric_sinks import Labels, Metrics, Tell
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import Usage
from kbcore.reason.ask import Reasoner
from kbcore.reason.tables import TableCounts
from kbcore.retraction.cascade import Cascades
from kbcore.state.changes import ChangeSet, Delta, DropScope, EvictFacts, ForkScope, MergeScope
from kbcore.state.tenant import Tenant
from kbcore.subscriptions.registry import registries

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

Value = tuple[m.MetricSpec, Labels, float]
Figures = tuple[int, int, int]

SCOPE_ACTIONS = {ForkScope: "fork", DropScope: "drop", MergeScope: "merge"}


class Meters:
    """Metrics of the work of a runtime.

    `reads` has, for each kind of read, the function that records its seconds.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.tables = TableCounts()
        self.synced = metrics.bind(m.LOG_SYNC_SECONDS)
        self.replicated = metrics.bind(m.SYNC_WAIT_SECONDS)
        self.fired = metrics.bind(m.RULES_FIRED)
        self.window_facts = metrics.bind(m.WINDOW_FACTS)
        self.consolidated = metrics.bind(m.CONSOLIDATED)
        self.reads: dict[str, Tell] = {
            **{kind: metrics.bind(m.INFERENCE_SECONDS, kind) for kind in ("ask", "prove")},
            **{
                kind: metrics.bind(m.QUERY_SECONDS, kind)
                for kind in ("query", "aggregate", "salient", "recall", "other")
            },
            "window": metrics.bind(m.WINDOW_SECONDS),
        }
        self._asserted = metrics.bind(m.FACTS_ASSERTED)
        self._updated = metrics.bind(m.FACTS_UPDATED)
        self._retracted = metrics.bind(m.FACTS_RETRACTED)

    def committed(self, changes: ChangeSet, delta: Delta) -> None:
        """Count a change set that was made durable and applied."""
        if delta.asserted:
            self._asserted(delta.asserted)
        if delta.updated:
            self._updated(delta.updated)
        if delta.removed:
            self._retracted(sum(len(removed.rows) for removed in delta.removed))
        if delta.rules_added:
            self.metrics.observe(m.RULES_ASSERTED, len(delta.rules_added))
        if delta.rules_removed:
            self.metrics.observe(m.RULES_RETRACTED, len(delta.rules_removed))
        first = changes.changes[0] if changes.changes else None
        if isinstance(first, EvictFacts) and delta.evicted:
            self.metrics.observe(m.DECAY_EVICTED, delta.evicted, (first.reason.value,))
        elif (action := SCOPE_ACTIONS.get(type(first))) is not None:
            self.metrics.observe(m.SCOPES_CHANGED, 1, (action,))

    def exceeded(self, error: BudgetExceeded) -> None:
        """Count a read that reached a limit."""
        self.metrics.observe(m.BUDGET_EXCEEDED, 1, (str((error.details or {}).get("limit")),))

    def snapshot(self, seconds: float, outcome: str) -> None:
        """Count a snapshot that was taken, or failed."""
        self.metrics.observe(m.SNAPSHOTS, 1, (outcome,))
        if outcome == "ok":
            self.metrics.observe(m.SNAPSHOT_SECONDS, seconds)

    def transaction(self, outcome: str) -> None:
        """Count a transaction that ended."""
        self.metrics.observe(m.TRANSACTIONS, 1, (outcome,))

    def embedded(self, texts: int, well: bool) -> None:
        """Count texts passed to the embedder, which succeeded or failed."""
        self.metrics.observe(m.EMBEDDER_TEXTS, texts, ("ok" if well else "failed",))

    def delivered(self, outcome: str) -> None:
        """Count an attempt to deliver a change to a webhook."""
        self.metrics.observe(m.WEBHOOK_DELIVERIES, 1, (outcome,))

    def decided(self, outcome: str, count: int) -> None:
        """Count lines of the decision log by what became of them."""
        self.metrics.observe(m.DECISIONS, count, (outcome,))

    def failed(self, hook: str) -> None:
        """Count a plugin that failed in a notification hook."""
        self.metrics.observe(m.PLUGIN_FAILURES, 1, (hook,))


def model_called(metrics: Metrics, plugins: Plugins, provider: str) -> Callable[[Usage], None]:
    """Return the function that counts each call of a language model and notifies plugins.

    `provider` is the name of the configured one, whose metrics begin with zero.
    """
    for outcome in m.MODEL_OUTCOMES:
        metrics.bind(m.LLM_CALL_SECONDS, provider, outcome)
    for kind in ("input", "output"):
        metrics.bind(m.LLM_TOKENS, provider, kind)

    def called(usage: Usage) -> None:
        metrics.observe(m.LLM_CALL_SECONDS, usage.seconds, (usage.provider, usage.outcome))
        metrics.observe(m.LLM_TOKENS, usage.input_tokens, (usage.provider, "input"))
        metrics.observe(m.LLM_TOKENS, usage.output_tokens, (usage.provider, "output"))
        plugins.tell("kb_llm_called", provider=usage.provider, model=usage.model, usage=usage)

    return called


def collector(runtime: Runtime) -> Callable[[], Iterator[Value]]:
    """Return the collector of a node's current values.

    It yields to other threads between tenants.
    """
    started = runtime.clock.monotonic()
    known: WeakKeyDictionary[Tenant, Figures] = WeakKeyDictionary()

    def collect() -> Iterator[Value]:
        tables = runtime.meters.tables
        for result in ("current", "continued", "stale", "missed"):
            yield m.TABLE_LOOKUPS, (result,), getattr(tables, result)
        yield from _state(runtime, known)
        yield from _log(runtime)
        yield m.RECOVERY_RECORDS, (), runtime.recovered.records
        yield m.RECOVERY_SECONDS, (), runtime.recovery_seconds
        yield m.INFERENCES_WORKING, (), runtime.slots.all_working()
        yield m.INFERENCES_WAITING, (), runtime.slots.all_waiting()
        yield m.TRANSACTIONS_OPEN, (), len(runtime.transactions)
        yield m.WEBHOOKS_FAILING, (), runtime.webhooks_failing
        yield m.PLUGINS_LOADED, (), len(runtime.plugins.names())
        yield m.UPTIME, (), runtime.clock.monotonic() - started
        yield m.CPU_SECONDS, (), time.process_time()
        yield m.CLOCK_STEPS_BACK, (), runtime.clock.steps_back
        waiting, indexed = runtime.word_indexes.counts()
        yield m.WORD_INDEX_FACTS, (), indexed
        yield m.WORD_INDEX_WAITING, (), waiting
        if runtime.vectors is not None:
            figures = runtime.vectors.figures()
            yield m.VECTORS, (), figures.vectors
            yield m.VECTOR_BYTES, (), figures.bytes
            yield m.VECTORS_MISSING, (), figures.backlog
        config = runtime.config
        yield (
            m.BUILD_INFO,
            (__version__, platform.python_version(), "c", config.storage_backend),
            1,
        )

    return collect


def _figures(tenant: Tenant, known: MutableMapping[Tenant, Figures]) -> Figures:
    """Return the facts, rules and bytes of a tenant, without its lock.

    A long goal may hold it for long.

    If something changes during the count, return the previous figures.
    """
    try:
        known[tenant] = tenant.facts(), len(tenant.rules.all()), tenant.engine.bytes
    except (RuntimeError, KBError):
        return known.get(tenant, (0, 0, 0))
    return known[tenant]


def _state(runtime: Runtime, known: MutableMapping[Tenant, Figures]) -> Iterator[Value]:
    facts = rules = size = plans = table_count = table_bytes = 0
    maintained = [0, 0]
    databases, tenants = runtime.tenants()
    for tenant in tenants:
        if tenant.gone or tenant.failed is not None:
            continue
        figures = _figures(tenant, known)
        facts, rules, size = facts + figures[0], rules + figures[1], size + figures[2]
        plans += len(tenant.plans)
        reasoner = tenant.attached.get(Reasoner)
        if reasoner is not None:
            tables = reasoner.tables
            table_count, table_bytes = table_count + len(tables), table_bytes + tables.bytes
        tables_of = None if reasoner is None else reasoner.tables
        for each in (tables_of, *registries(tenant), tenant.attached.get(Cascades)):
            if each is not None:
                sizes = each.maintained_bytes()
                maintained = [a + b for a, b in zip(maintained, sizes, strict=True)]
        runtime.yield_now()
    yield m.FACTS_STORED, (), facts
    yield m.RULES_STORED, (), rules
    yield m.ENGINE_BYTES, (), size
    yield m.PLANS, (), plans
    yield m.TABLES, (), table_count
    yield m.TABLE_BYTES, (), table_bytes
    yield m.MAINTAINED_BYTES, (), maintained[0]
    yield m.MAINTAINED_ROW_BYTES, (), maintained[1]
    yield m.DATABASES, (), databases
    yield m.TENANTS, (), len(tenants)


def _log(runtime: Runtime) -> Iterator[Value]:
    """Yield the figures of the log; those of several shards are added up."""
    shards = list(runtime.shards.values())
    statuses = [shard.store.status() for shard in shards]
    yield m.SHARDS, (), len(shards)
    yield m.LOG_RECORDS, (), sum(shard.committer.records for shard in shards)
    yield m.LOG_BATCHES, (), sum(shard.committer.batches for shard in shards)
    yield m.LOG_BYTES, (), sum(shard.committer.bytes for shard in shards)
    yield m.LOG_WAITING, (), sum(shard.committer.waiting for shard in shards)
    yield m.LOG_HEAD, (), sum(status.head for status in statuses)
    yield m.TAIL_BYTES_DROPPED, (), sum(status.tail_bytes_dropped for status in statuses)
    yield m.SNAPSHOTS_DAMAGED, (), sum(status.snapshots_damaged for status in statuses)
    yield m.SNAPSHOT_HEAD, (), sum(status.snapshot for status in statuses)
    yield m.SNAPSHOT_AGE, (), max((shard.snapshots.age() for shard in shards), default=0.0)
    yield m.STORAGE_WRITABLE, (), int(runtime.log_status().writable)
