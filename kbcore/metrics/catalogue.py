"""Table of all metric families: name, kind, labels and help.

Metrics sinks receive this table, and the reference page is generated from it. Ten names are
documented for clients and must not change, even where a counter lacks `_total`. Labels have few
values: route templates rather than paths, and no names of tenants, predicates or keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kbcore.limit_names import BUDGET_LIMITS


class Kind(Enum):
    """Kind of a metric: values are summed, replace the last value, or are counted in buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
)
"""Upper bounds of durations, from a read of a goal table to a goal that meets the time limit."""

LONG_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
FACTS = (1, 5, 10, 25, 50, 100, 250, 500, 1000)

ERROR_CODES = (
    "VALIDATION_ERROR",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "NOT_FOUND",
    "CONFLICT",
    "FOLLOWER_READ_ONLY",
    "LOG_TRUNCATED",
    "PAYLOAD_TOO_LARGE",
    "BUDGET_EXCEEDED",
    "RATE_LIMITED",
    "INTERNAL_ERROR",
    "LLM_NOT_CONFIGURED",
    "LLM_FAILED",
    "PLUGIN_FAILED",
    "NOT_READY",
    "STORAGE_FULL",
)
"""Codes of errors; the server has the status of each."""

TELLING_HOOKS = (
    "kb_changes_committed",
    "kb_goal_answered",
    "kb_llm_called",
    "kb_metrics_sinks",
    "kb_predicates",
    "kb_runtime_started",
    "kb_runtime_stopping",
)
"""Hooks whose failures are counted and otherwise ignored."""

MODEL_OUTCOMES = ("ok", "error", "rate_limited", "refused", "timeout")
"""Outcomes of calls of a language model."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric family.

    `area` is its section in the documentation. `buckets` are the upper bounds of a histogram.
    Durations are in seconds, sizes in bytes. `known` are the combinations of label values that have
    samples from the start: an alert on an increase would miss the first one otherwise.
    """

    name: str
    kind: Kind
    area: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    known: tuple[tuple[str, ...], ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)


def _count(
    name: str, area: str, help: str, *labels: str, values: tuple[str, ...] = ()
) -> MetricSpec:
    """Return a counter; `values` are the known values of its only label."""
    return MetricSpec(
        name, Kind.COUNTER, area, help, labels, known=tuple((value,) for value in values)
    )


def _gauge(name: str, area: str, help: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, area, help, labels)


def _times(
    name: str, area: str, help: str, *labels: str, buckets: tuple[float, ...] = SECONDS
) -> MetricSpec:
    return MetricSpec(name, Kind.HISTOGRAM, area, help, labels, buckets)


_A = "Fact operations"
FACTS_ASSERTED = _count("svc_facts_asserted_total", _A, "Facts stored that were not there before")
FACTS_UPDATED = _count("svc_facts_updated_total", _A, "Facts told again that were there already")
FACTS_RETRACTED = _count("svc_facts_retracted_total", _A, "Stored facts removed by retractions")
RULES_ASSERTED = _count("svc_rules_asserted_total", _A, "Rules taught that were not there before")
RULES_RETRACTED = _count("svc_rules_retracted_total", _A, "Rules forgotten")
SCOPES_CHANGED = _count(
    "svc_scopes_changed_total",
    _A,
    "Scopes forked, merged or dropped",
    "action",
    values=("drop", "fork", "merge"),
)

_A = "Inference"
INFERENCE_SECONDS = _times(
    "svc_inference_duration_seconds", _A, "Time to answer a goal with rules: ask or prove", "kind"
)
RULES_FIRED = _count(
    "svc_rules_fired_total",
    _A,
    "New rows that rules made while goals were answered, those of demand too",
)
QUERY_SECONDS = _times(
    "svc_query_duration_seconds", _A, "Time to read stored facts without rules", "kind"
)
BUDGET_EXCEEDED = _count(
    "svc_budget_exceeded_total",
    _A,
    "Reads ended by a budget, by the limit they met",
    "limit",
    values=tuple(BUDGET_LIMITS),
)
INFERENCES_WORKING = _gauge("svc_inferences_working", _A, "Long goals that have their turn")
INFERENCES_WAITING = _gauge("svc_inferences_waiting", _A, "Long goals that wait for their turn")

_A = "Goal tables"
TABLE_LOOKUPS = _count(
    "svc_goal_table_lookups_total",
    _A,
    "Goals by what became of their goal table",
    "result",
    values=("current", "continued", "stale", "missed"),
)
TABLES = _gauge("svc_goal_tables", _A, "Goal tables kept")
TABLE_BYTES = _gauge("svc_goal_table_bytes", _A, "Memory of kept goal tables")
MAINTAINED_BYTES = _gauge(
    "svc_maintained_bytes",
    _A,
    "Memory of goal tables, standing goals and kept conclusions that follow changes",
)
MAINTAINED_ROW_BYTES = _gauge(
    "svc_maintained_row_bytes", _A, "The part of it that is rows, without sets and indexes"
)
PLANS = _gauge("svc_plans", _A, "Compiled plans kept")

_A = "Memory"
FACTS_STORED = _gauge("svc_memory_facts_total", _A, "Facts stored now, in all tenants and scopes")
DECAY_EVICTED = _count(
    "svc_memory_decay_evicted",
    _A,
    "Facts evicted, by why: expired, faded or replaced",
    "reason",
    values=("expired", "faded", "replaced"),
)
CONSOLIDATED = _count("svc_memory_consolidated_total", _A, "Facts summed up by consolidation")
WINDOW_SECONDS = _times(
    "svc_context_window_duration_seconds", _A, "Time to make or compare context windows"
)
WINDOW_FACTS = _times("svc_context_window_facts", _A, "Facts in a context window", buckets=FACTS)
ENGINE_BYTES = _gauge(
    "svc_engine_bytes", _A, "Memory of the engines: symbols, relations, indexes, runs"
)
RULES_STORED = _gauge("svc_rules", _A, "Rules stored now, in all tenants")
TENANTS = _gauge("svc_tenants", _A, "Tenants")
DATABASES = _gauge("svc_databases", _A, "Databases")

EMBEDDER_TEXTS = _count(
    "svc_embedder_texts_total",
    _A,
    "Texts given to the embedder, by outcome: ok or failed",
    "outcome",
    values=("ok", "failed"),
)
WORD_INDEX_FACTS = _gauge(
    "svc_word_index_facts", _A, "Facts of the word indexes of all tenants, with those that wait"
)
WORD_INDEX_WAITING = _gauge(
    "svc_word_index_waiting",
    _A,
    "Facts that wait to be indexed by their words, in the word indexes of all tenants",
)
VECTORS = _gauge("svc_vectors", _A, "Vectors of facts in memory, in all tenants")
VECTOR_BYTES = _gauge("svc_vector_bytes", _A, "Memory of the vectors of facts, in bytes")
VECTORS_MISSING = _gauge(
    "svc_vectors_missing", _A, "Facts that wait for their vectors, or got none for lack of memory"
)

_A = "Transactions"
TRANSACTIONS = _count("svc_transactions_total", _A, "Transactions that ended, by how", "outcome")
TRANSACTIONS_OPEN = _gauge("svc_transactions_open", _A, "Transactions that are open")

_A = "Log"
SHARDS = _gauge("svc_shards", _A, "Shards of this process; figures of the log are sums over them")
LOG_RECORDS = _count("svc_log_records_total", _A, "Change sets written to the log")
LOG_BATCHES = _count("svc_log_batches_total", _A, "Batches written, each with one sync")
LOG_BYTES = _count("svc_log_bytes_total", _A, "Bytes of the change sets written to the log")
LOG_SYNC_SECONDS = _times(
    "svc_log_sync_duration_seconds",
    _A,
    "Time to append and sync a batch, as its writers wait for it",
)
LOG_WAITING = _gauge("svc_log_queue_records", _A, "Change sets that wait for the disk")
LOG_HEAD = _gauge("svc_log_head", _A, "Sequence number of the last record")
STORAGE_WRITABLE = _gauge(
    "svc_storage_writable",
    _A,
    "1 while writes are taken, 0 when there is no room or the log failed",
)
TAIL_BYTES_DROPPED = _count(
    "svc_wal_tail_bytes_dropped_total",
    _A,
    "Bytes of a torn tail, of which nothing was acknowledged, dropped at the start",
)
SNAPSHOTS_DAMAGED = _count(
    "svc_snapshots_damaged_total",
    _A,
    "Snapshots found damaged or gone: an older state and the log since then replace them",
)
RECOVERY_RECORDS = _gauge("svc_recovery_records", _A, "Log records replayed at the start")
RECOVERY_SECONDS = _gauge(
    "svc_recovery_duration_seconds", _A, "Time the start took to recover the state"
)

_A = "Snapshots"
SNAPSHOTS = _count(
    "svc_snapshots_total", _A, "Snapshots taken or failed", "outcome", values=("ok", "failed")
)
SNAPSHOT_SECONDS = _times(
    "svc_snapshot_duration_seconds", _A, "Time to take a snapshot", buckets=LONG_SECONDS
)
SNAPSHOT_HEAD = _gauge("svc_snapshot_head", _A, "Sequence number the newest snapshot stands for")
SNAPSHOT_AGE = _gauge(
    "svc_snapshot_age_seconds",
    _A,
    "Time since the last snapshot of this process, or since its start",
)

_A = "Replication"
REPLICATION_HEAD = _gauge(
    "svc_replication_leader_head", _A, "Last record the leader said to have synced, on a follower"
)
REPLICATION_APPLIED = _gauge(
    "svc_replication_applied", _A, "Last record of the leader that is applied here"
)
REPLICATION_LAG_RECORDS = _gauge(
    "svc_replication_lag_records", _A, "Records the leader had more at the last contact"
)
REPLICATION_LAG_SECONDS = _gauge(
    "svc_replication_lag_seconds", _A, "How old, at most, what a follower answers is"
)
REPLICATION_CONTACT = _gauge(
    "svc_replication_last_contact_seconds", _A, "Time since the leader last answered"
)
REPLICATION_BYTES = _count(
    "svc_replication_bytes_total", _A, "Bytes of records and states that came from the leader"
)
REPLICATION_BOOTSTRAPS = _count(
    "svc_replication_bootstraps_total", _A, "Times the state was fetched whole"
)
REPLICATION_DIVERGENCES = _count(
    "svc_replication_divergences_total", _A, "Times the leader's log was not the one here"
)
IS_LEADER = _gauge("svc_replication_is_leader", _A, "1 on a leader, 0 on a follower")
TERM = _gauge("svc_replication_term", _A, "Term of the log")
ROLE_CHANGES = _count(
    "svc_replication_role_changes_total", _A, "Times the node became a leader or a follower"
)
LEASE_SECONDS = _gauge(
    "svc_replication_lease_seconds",
    _A,
    "Time for which a leader may rely on its lease, with COORDINATOR_URL; 0 on a follower",
)
IN_SYNC_FOLLOWERS = _gauge(
    "svc_replication_in_sync_followers",
    _A,
    "Followers that have every acknowledged write, on a leader with REPLICATION_SYNC",
)
SYNC_WAIT_SECONDS = _times(
    "svc_replication_sync_wait_seconds",
    _A,
    "Time that a durable write waits for the followers that are in sync",
)
FOLLOWER_LAG_RECORDS = _gauge(
    "svc_replication_follower_lag_records",
    _A,
    "Records a follower lacks, on its leader",
    "follower",
)

_A = "Cluster"
CLUSTER_NODES = _gauge("svc_cluster_nodes", _A, "Live nodes of the cluster, as this node sees them")
CLUSTER_UNOWNED = _gauge(
    "svc_cluster_unowned_shards", _A, "Shards that no node has at the moment; their tenants wait"
)
CLUSTER_TAKEN = _count("svc_cluster_shards_taken_total", _A, "Shards that this node has opened")
CLUSTER_HANDED_OVER = _count(
    "svc_cluster_shards_released_total", _A, "Shards that this node has released to another one"
)
CLUSTER_LOST = _count(
    "svc_cluster_shards_lost_total",
    _A,
    "Shards that this node has lost: its lease ended, or its log failed",
)

_A = "HTTP"
HTTP_REQUESTS = _count(
    "svc_http_requests_total",
    _A,
    "Requests answered, by route template",
    "method",
    "route",
    "status",
)
HTTP_SECONDS = _times(
    "svc_http_request_duration_seconds", _A, "Time from a request to its answer", "method", "route"
)
HTTP_UNDER_WAY = _gauge("svc_http_requests_in_progress", _A, "Requests being answered")
HTTP_BODY_BYTES = _gauge(
    "svc_http_body_bytes", _A, "Bytes of the bodies of requests being answered"
)
HTTP_CONNECTIONS = _gauge("svc_http_connections", _A, "Open connections, of kbcore serve")
HTTP_REFUSED = _count(
    "svc_http_refused_total", _A, "Requests refused for their head, before they were one", "status"
)
ERRORS = _count(
    "svc_errors_total", _A, "Errors answered, by their code", "code", values=ERROR_CODES
)

_A = "Events"
EVENT_STREAMS = _gauge("svc_event_streams", _A, "Open streams of events")

WEBHOOK_DELIVERIES = _count(
    "svc_webhook_deliveries_total",
    _A,
    "Attempts to deliver a change to a webhook",
    "outcome",
    values=("delivered", "failed", "gone"),
)
WEBHOOKS_FAILING = _gauge(
    "svc_webhooks_failing", _A, "Addresses of webhooks whose last delivery failed"
)

_A = "Tool protocol"
MCP_CALL_SECONDS = _times(
    "svc_mcp_tool_call_duration_seconds", _A, "Time of a tool call", "tool", "outcome"
)
MCP_SUBSCRIBERS = _gauge(
    "svc_mcp_sse_subscribers", _A, "Open notification streams of the tool protocol"
)

_A = "Language model"
LLM_CALL_SECONDS = _times(
    "svc_llm_call_duration_seconds",
    _A,
    "Time of a call of a language model",
    "provider",
    "outcome",
    buckets=LONG_SECONDS,
)
LLM_TOKENS = _count(
    "svc_llm_tokens_used", _A, "Tokens used, as the provider counts them", "provider", "kind"
)

_A = "Node"
BUILD_INFO = _gauge(
    "svc_build_info",
    _A,
    "1, with the versions of what runs",
    "version",
    "python",
    "engine",
    "storage",
)
UPTIME = _gauge("svc_uptime_seconds", _A, "Time since the start")
CPU_SECONDS = _count(
    "svc_process_cpu_seconds_total", _A, "Processor time of the process, all threads"
)
CLOCK_STEPS_BACK = _count(
    "svc_clock_steps_back_total", _A, "Times the wall clock was seen to go back by over 5 seconds"
)
PLUGINS_LOADED = _gauge("svc_plugins_loaded", _A, "Plugins that are loaded")
DECISIONS = _count(
    "svc_decision_log_lines_total",
    _A,
    "Lines of the decision log: written, dropped because the queue was full, or failed",
    "outcome",
    values=("written", "dropped", "failed"),
)
PLUGIN_FAILURES = _count(
    "svc_plugin_failures_total",
    _A,
    "Times a telling hook or a metrics sink raised",
    "hook",
    values=TELLING_HOOKS,
)

FAMILIES: tuple[MetricSpec, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, MetricSpec)
)
"""All metric families, in the order of the reference page."""

DOCUMENTED = (
    "svc_facts_asserted_total",
    "svc_facts_retracted_total",
    "svc_inference_duration_seconds",
    "svc_rules_fired_total",
    "svc_mcp_tool_call_duration_seconds",
    "svc_mcp_sse_subscribers",
    "svc_llm_call_duration_seconds",
    "svc_llm_tokens_used",
    "svc_memory_facts_total",
    "svc_memory_decay_evicted",
)
"""The names that are documented for clients."""
