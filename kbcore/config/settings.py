"""Settings with their defaults, parsers and help texts; the only module that reads the
environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kbcore.config.parsers import (
    ADDRESS,
    BOOLEAN,
    COMMAND,
    COORDINATOR_URL,
    ISSUER,
    LOG_TARGET,
    NAMES,
    NODE_NAME,
    RATE,
    SECRET,
    STORAGE_URL,
    TEXT,
    URLS,
    WEBHOOK,
    WEIGHT,
    WEIGHTS,
    Parser,
    choice,
    integer,
)
from kbcore.config.storage_urls import backend_of, redacted, secrets_of
from kbcore.errors import ConfigError, InvalidInput

T = TypeVar("T")

PREFIX = "KBCORE_"
"""Prefix of environment variables; a name without it works too, and yields to the one with it."""

MIN_TOKEN_CHARS = 8
"""Length from which the end of the path of an address is taken for a secret."""

_FILE = "_FILE"


@dataclass(frozen=True, slots=True)
class Setting:
    """Description of one field of Config, for messages, commands and documentation."""

    field: str
    default: Any
    parser: Parser[Any]
    help: str

    @property
    def name(self) -> str:
        """Name of the setting, and of its environment variable after the optional prefix."""
        return self.field.upper()

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that can set it; of several that are set, the first counts.

        Those that end in `_FILE` name a file with the secret.
        """
        names = (PREFIX + self.name, self.name)
        return tuple(
            name + suffix for name in names for suffix in (("", _FILE) if self.secret else ("",))
        )

    @property
    def secret(self) -> bool:
        """True if the value is a secret, which is never shown and can also be read from a file."""
        return self.parser is SECRET

    def parse(self, text: str, variable: str | None = None) -> Any:
        """Return the value of a text that `variable` holds (default: the name of the setting).

        Raises ConfigError, without the text of a secret.
        """
        try:
            return self.parser(text)
        except ValueError as error:
            value = "(not shown)" if self.secret else repr(redacted(text))
            raise ConfigError(f"{variable or self.name}={value}: {error}") from error

    def variable_in(self, environ: Mapping[str, str], *, prefixed: bool = False) -> str | None:
        """Return the environment variable that sets it; None if none does.

        `prefixed` leaves out names without the prefix. Raises ConfigError for a secret that is
        given both itself and as a file.
        """
        used = [name for name in self.variables if environ.get(name)]
        if prefixed:
            used = [name for name in used if name.startswith(PREFIX)]
        if used and used[0] + _FILE in used:
            raise ConfigError(f"{used[0]} and {used[0]}{_FILE} are both set; set one")
        return used[0] if used else None


def _setting(default: T, parser: Parser[T], help: str) -> T:
    """Return a field of Config; values of a confidential parser are left out of its `repr`."""
    metadata = {"parser": parser, "help": help}
    return field(default=default, repr=not parser.confidential, metadata=metadata)


def environment() -> dict[str, str]:
    """Return the environment of the process, to search it for unknown settings."""
    return dict(os.environ)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; the environment variable of a field is `KBCORE_` and its name in upper case."""

    host: str = _setting("127.0.0.1", TEXT, "address to listen on")
    port: int = _setting(9300, integer(0, 65535), "port to listen on; 0: any free port")
    tls_cert: str = _setting(
        "",
        TEXT,
        "file of the server's certificate and its chain (PEM); with TLS_KEY the server speaks HTTPS only",
    )
    tls_key: str = _setting(
        "", TEXT, "file of the private key of TLS_CERT (PEM, without passphrase)"
    )
    tls_client_ca: str = _setting(
        "",
        TEXT,
        "file of CA certificates (PEM) for client certificates, which other nodes and followers must"
        " then present; other clients may",
    )
    tls_min_version: str = _setting(
        "1.3", choice("1.2", "1.3"), "lowest version of TLS that is accepted"
    )
    workers: int = _setting(
        1,
        integer(1, 64),
        "number of server processes, which share the tenants; more than 1 needs a storage with at least as many shards",
    )
    storage_dir: str = _setting("./data", TEXT, "folder of the stored data")
    storage_backend: str = _setting(
        "wal",
        TEXT,
        "storage plugin; default: that of STORAGE_URL; wal, sqlite, postgres, memory (stores nothing) or third-party",
    )
    storage_url: str = _setting(
        "",
        STORAGE_URL,
        "location of the data, instead of STORAGE_DIR: wal:FOLDER, sqlite:FILE or postgresql://USER@HOST/DATABASE",
    )
    storage_shards: int = _setting(
        0,
        integer(0, 1024),
        "number of shards of a new storage, each a log of its own; 0: as the storage was created, 1 for a new one",
    )
    encryption_key_file: str = _setting(
        "",
        TEXT,
        "file with the key that encrypts stored data, 32 random bytes in base64; empty, and no"
        " ENCRYPTION_KEY_COMMAND: data is stored as it is",
    )
    encryption_key_command: str = _setting(
        "",
        COMMAND,
        "command that prints the key that encrypts stored data, instead of ENCRYPTION_KEY_FILE; it is"
        " run without a shell",
    )
    receipt_key_file: str = _setting(
        "",
        TEXT,
        "file with the key that signs receipts and the agent card, 32 random bytes in base64; empty: no"
        " receipts",
    )
    encryption_keys_dir: str = _setting(
        "",
        TEXT,
        "folder of the keys of tenants, which backups and copies of the data must not contain; default:"
        " the path of the stored data and .keys",
    )
    storage_timeout_ms: int = _setting(
        30_000,
        integer(1, 3_600_000),
        "timeout of a statement on the storage server, and of a write that waits for the server to return, in milliseconds",
    )
    fsync_policy: str = _setting(
        "always",
        choice("always", "interval", "never"),
        "when writes are synced to disk; interval: every FSYNC_INTERVAL_MS",
    )
    fsync_interval_ms: int = _setting(
        1000,
        integer(1, 3_600_000),
        "time between syncs with FSYNC_POLICY=interval, in milliseconds",
    )
    wal_segment_mb: int = _setting(16, integer(1, 1024), "size of a log segment in MiB")
    snapshot_log_mb: int = _setting(
        64, integer(1, 1 << 20), "amount of new log after which a snapshot is taken, in MiB"
    )
    snapshot_minutes: int = _setting(
        15,
        integer(1, 1 << 20),
        "time after which a snapshot is taken if there were changes, in minutes",
    )
    min_free_mb: int = _setting(
        64, integer(0, 1 << 20), "free disk space below which writes are refused, in MiB"
    )
    ready_requires_writes: bool = _setting(
        False, BOOLEAN, "report not ready (503) while writes are refused because the disk is full"
    )
    replication_mode: str = _setting(
        "none", choice("none", "LEADER", "FOLLOWER"), "replication role of this node"
    )
    leader_url: str = _setting(
        "",
        ADDRESS,
        "address of the leader that a follower follows, such as https://leader.example:9300",
    )
    leader_ca_file: str = _setting(
        "",
        TEXT,
        "file of CA certificates to verify the leader with; default: the CA certificates of the system",
    )
    replication_token: str = _setting(
        "", SECRET, "secret shared by all nodes, at least 16 characters; optional"
    )
    replication_name: str = _setting(
        "follower", NODE_NAME, "name of this follower in the status and the metrics of its leader"
    )
    replication_poll_ms: int = _setting(
        1000,
        integer(10, 20_000),
        "time a leader waits for new records before it answers a follower, in milliseconds",
    )
    replication_sync: bool = _setting(
        False,
        BOOLEAN,
        "acknowledge a write when the followers that are in sync, at least one, have it on disk as well",
    )
    replication_sync_timeout_ms: int = _setting(
        2000,
        integer(100, 600_000),
        "time after which a silent or late follower is not in sync any more, in milliseconds",
    )
    coordinator_url: str = _setting(
        "",
        COORDINATOR_URL,
        "coordinator through which the nodes elect their leader, such as postgresql://user@host/database;"
        " implies REPLICATION_SYNC; with CLUSTER_URL: where the leases are, if not in that database",
    )
    cluster_url: str = _setting(
        "",
        COORDINATOR_URL,
        "storage of a cluster whose nodes share the tenants, such as postgresql://user@host/database",
    )
    cluster_route: str = _setting(
        "proxy",
        choice("proxy", "redirect"),
        "what a node does with a request for a tenant of another node: pass it on, or answer 307",
    )
    cluster_ca_file: str = _setting(
        "",
        TEXT,
        "file of CA certificates to verify the other nodes of a cluster with, at https addresses;"
        " default: the CA certificates of the system",
    )
    cluster_weight: int = _setting(
        100,
        integer(1, 10_000),
        "share of a node in the shards of a cluster, relative to the others",
    )
    cluster_ttl_ms: int = _setting(
        2000,
        integer(200, 600_000),
        "time to live of a lease: after it, another node takes over; in milliseconds",
    )
    advertise_url: str = _setting(
        "",
        ADDRESS,
        "address at which the other nodes and their clients reach this node, with COORDINATOR_URL or CLUSTER_URL",
    )
    wal_retain_mb: int = _setting(
        1024,
        integer(0, 1 << 20),
        "maximum amount of log kept for followers that lag behind, in MiB",
    )
    wal_retain_hours: int = _setting(
        24,
        integer(0, 1 << 20),
        "time since its last request for which log is kept for a follower, in hours",
    )
    ready_max_lag_s: int = _setting(
        10, integer(1, 1 << 20), "maximum lag with which a follower is ready, in seconds"
    )
    ready_stale_s: int = _setting(
        300,
        integer(0, 1 << 30),
        "time for which a follower without its leader stays ready for reads, in seconds",
    )
    log_level: str = _setting(
        "INFO", choice("DEBUG", "INFO", "WARN", "ERROR"), "lowest level that is logged"
    )
    log_format: str = _setting("text", choice("text", "json"), "format of log lines")
    slow_query_ms: int = _setting(
        1000,
        integer(0, 86_400_000),
        "duration from which a goal is logged as slow, in milliseconds; 0: never",
    )
    decision_log: str = _setting(
        "",
        LOG_TARGET,
        "where a line of JSON for each answered goal goes, such as file:decisions.jsonl, or their counts; empty: nowhere",
    )
    query_max_rows: int = _setting(
        10_000_000, integer(1), "maximum number of rows a request may derive"
    )
    query_max_steps: int = _setting(
        2_000_000_000, integer(1), "maximum number of engine steps of one request"
    )
    query_timeout_ms: int = _setting(
        30_000, integer(1, 86_400_000), "timeout of the inference of one request, in milliseconds"
    )
    query_max_bytes: int = _setting(
        256 << 20, integer(1), "maximum memory for the derived rows of one request, in bytes"
    )
    query_max_answers: int = _setting(
        1_000_000, integer(1), "maximum number of answers of one request"
    )
    query_max_proof_nodes: int = _setting(
        200_000, integer(1), "maximum number of nodes in all proofs of one request"
    )
    api_key: str = _setting(
        "",
        SECRET,
        "single admin key; clients send it as Authorization: Bearer KEY or as X-API-Key: KEY",
    )
    auth_enabled: bool = _setting(
        False,
        BOOLEAN,
        "require API keys, managed with /auth or kbcore keys; API_KEY stays valid too",
    )
    require_keys: bool = _setting(
        False,
        BOOLEAN,
        "do not start without API_KEY or AUTH_ENABLED on an address that other machines can reach",
    )
    oauth_issuer: str = _setting(
        "",
        ISSUER,
        "issuer (OAuth 2.1, OpenID Connect) whose access tokens are accepted beside keys, exactly as its metadata "
        "names it; needs PUBLIC_URL and kbcore[oauth]",
    )
    oauth_audience: str = _setting(
        "",
        TEXT,
        "audience that access tokens must name; default: PUBLIC_URL with /mcp",
    )
    oauth_tenant_claim: str = _setting(
        "tenant", TEXT, "claim of access tokens with the tenant, or the list of tenants"
    )
    allowed_hosts: tuple[str, ...] = _setting(
        (),
        NAMES,
        "names in the Host header that a server without keys accepts, beside local names, HOST and PUBLIC_URL; *: any",
    )
    bootstrap_token: str = _setting(
        "", SECRET, "secret with which POST /auth/bootstrap creates the first key, once"
    )
    forwarded_hops: int = _setting(
        0,
        integer(0, 16),
        "number of trusted proxies whose X-Forwarded-For gives the client address; 0: ignore the header",
    )
    rate_limit: tuple[int, ...] = _setting(
        (),
        RATE,
        "rate limit per API key, such as 600/60; per tenant when authentication is off; default: no limit",
    )
    rate_limit_tenant: tuple[int, ...] = _setting((), RATE, "rate limit per tenant")
    rate_limit_address: tuple[int, ...] = _setting((), RATE, "rate limit per client address")
    tenant_max_facts: int = _setting(
        0, integer(0), "maximum number of stored facts per tenant; 0: no limit"
    )
    tenant_max_bytes: int = _setting(
        0,
        integer(0),
        "maximum memory for the facts, rules, episodes and subscriptions of a tenant, in bytes; 0: no limit",
    )
    tenant_max_rules: int = _setting(
        0, integer(0), "maximum number of rules per tenant; 0: no limit"
    )
    tenant_max_scopes: int = _setting(
        0, integer(0), "maximum number of scopes per tenant; 0: no limit"
    )
    tenant_max_episodes: int = _setting(
        0, integer(0), "maximum number of episodes per tenant; 0: no limit"
    )
    episode_max_chars: int = _setting(
        1_000_000,
        integer(1000, 8_000_000),
        "maximum length of an episode, in characters; longer ingested texts become several episodes",
    )
    tenant_max_sessions: int = _setting(
        1000,
        integer(1, 1_000_000),
        "maximum number of context sessions per tenant; a further one ends the oldest",
    )
    tenant_max_standing_goals: int = _setting(
        100, integer(0, 10_000), "maximum number of standing goals per tenant"
    )
    standing_goals_ms: int = _setting(
        100,
        integer(1, 60_000),
        "time in milliseconds after a write in which the answers of a tenant's standing goals are "
        "brought up to date; a goal that needs more follows when its changes are read",
    )
    standing_goals_replay_ms: int = _setting(
        30_000,
        integer(1, 3_600_000),
        "maximum time in milliseconds to compute changes of a standing goal from the log that are "
        "not in memory any more; beyond it a reader gets all answers instead",
    )
    webhook_urls: tuple[str, ...] = _setting(
        (),
        URLS,
        "addresses below which webhooks of standing goals may be, such as https://host/path/; "
        "default: none, and webhooks are refused",
    )
    webhook_secret: str = _setting(
        "",
        SECRET,
        "signs webhooks of subscriptions without a secret of their own: whsec_ and 24 to 64 bytes in base64",
    )
    webhook_sender: str = _setting("http", TEXT, "plugin that sends webhooks")
    webhook_private_addresses: bool = _setting(
        False, BOOLEAN, "allow webhooks to hosts with private or loopback addresses"
    )
    webhook_timeout_ms: int = _setting(
        15_000, integer(1, 300_000), "timeout of one delivery to a webhook, in milliseconds"
    )
    tenant_max_inferences: int = _setting(
        4, integer(1, 10_000), "maximum number of long goals per tenant that run at a time"
    )
    proof_nodes: int = _setting(
        1000, integer(1, 100_000), "default for the maximum number of nodes in a shown proof"
    )
    proof_depth: int = _setting(
        100,
        integer(1, 10_000),
        "default for the maximum depth of a shown proof tree, in rule steps",
    )
    history_days: int = _setting(
        0,
        integer(0, 36_500),
        "days for which the log and some snapshots are kept, for knownAt and histories; 0: as long "
        "as the last two snapshots need the log",
    )
    history_cache_mb: int = _setting(
        256,
        integer(1, 1 << 20),
        "memory for earlier states that questions with knownAt have rebuilt, in MiB",
    )
    goal_table_mb: int = _setting(
        64, integer(0, 1 << 20), "memory for cached goal tables per tenant, in MiB"
    )
    salience_scorer: str = _setting(
        "default", TEXT, "plugin that scores the salience of facts: default or a third-party plugin"
    )
    salience_half_life_ms: int = _setting(
        3_600_000, integer(1), "time in which the recency of a fact halves, in milliseconds"
    )
    salience_weights: tuple[float, ...] = _setting(
        (0.5, 0.3, 0.2),
        WEIGHTS,
        "weights of recency, frequency and priority in the salience of a fact",
    )
    query_salience_weight: float = _setting(
        0.1,
        WEIGHT,
        "weight of salience relative to text relevance, which is 1 for the best match of a query",
    )
    embedder: str = _setting(
        "none",
        TEXT,
        "plugin that embeds texts for context queries: none, onnx, static or a third-party plugin",
    )
    embedder_onnx_model: str = _setting(
        "", TEXT, "file of the sentence model in ONNX form, for EMBEDDER=onnx"
    )
    embedder_onnx_tokenizer: str = _setting(
        "", TEXT, "the tokenizer.json of that model, for EMBEDDER=onnx"
    )
    embedder_static_model: str = _setting(
        "",
        TEXT,
        "file of word vectors (GloVe, word2vec or fastText, as text) or folder of a Model2Vec model,"
        " for EMBEDDER=static",
    )
    embedder_static_mb: int = _setting(
        512,
        integer(1, 1 << 20),
        "memory for word vectors, in MiB; further words of the file are not known, and a Model2Vec"
        " model has to fit",
    )
    vector_index_mb: int = _setting(
        256,
        integer(1, 1 << 20),
        "memory for the vectors of facts per tenant, in MiB; further facts are found by words only",
    )
    vector_dir: str = _setting(
        "",
        TEXT,
        "folder that keeps the vectors of facts; default: vectors beside the stored data, none for a"
        " storage without files",
    )
    search_predicates: tuple[str, ...] = _setting(
        ("matches_text",),
        NAMES,
        "predicates that search the stored facts in rules: matches_text, near (needs EMBEDDER)",
    )
    sql_predicates: str = _setting(
        "", TEXT, "file (JSON) that describes tables of SQL databases as predicates of rules"
    )
    tokenizer: str = _setting(
        "none", TEXT, "plugin that counts tokens for maxTokens; none: characters / 4"
    )
    sweep_interval_ms: int = _setting(
        60_000, integer(0), "time between two evictions of expired facts, in milliseconds; 0: never"
    )
    llm_provider: str = _setting(
        "none",
        TEXT,
        "language model plugin: openai, anthropic, google, ollama, a third-party plugin, or none",
    )
    llm_model: str = _setting("", TEXT, "model name at the provider")
    llm_api_key: str = _setting("", SECRET, "API key for the provider, sent to LLM_BASE_URL only")
    llm_base_url: str = _setting(
        "", ADDRESS, "base address of the provider's API; each provider has a default"
    )
    llm_timeout_ms: int = _setting(
        60_000, integer(1), "timeout of one prompt including all retries, in milliseconds"
    )
    llm_request_timeout_ms: int = _setting(
        300_000, integer(1), "maximum time that a request spends with the model, in milliseconds"
    )
    llm_max_concurrency: int = _setting(
        4, integer(1, 1000), "maximum number of simultaneous model calls"
    )
    llm_max_tokens: int = _setting(
        4096, integer(64, 1_000_000), "maximum number of tokens in one answer of the model"
    )
    llm_retries: int = _setting(
        2, integer(0, 10), "number of retries after a temporary failure such as 429 or 503"
    )
    llm_breaker_failures: int = _setting(
        5,
        integer(1, 1000),
        "number of consecutive failures that open the circuit breaker of the model",
    )
    llm_breaker_ms: int = _setting(
        30_000,
        integer(1),
        "time until an open circuit breaker lets a call through again, in milliseconds",
    )
    extraction_max_facts: int = _setting(
        200, integer(1, 10_000), "maximum number of facts, and of rules, extracted from one text"
    )
    extraction_chunk_chars: int = _setting(
        6000, integer(200, 200_000), "length of the chunks of a text for extraction, in characters"
    )
    extraction_max_chunks: int = _setting(
        32, integer(1, 10_000), "maximum number of chunks; a longer text is refused"
    )
    record_evidence: bool = _setting(
        True,
        BOOLEAN,
        "store the texts given to /context, /context/ingest and /extract as episodes, as the evidence "
        "of the facts read in them",
    )
    extraction_fallback: str = _setting(
        "none",
        choice("none", "episode"),
        "prose in /context and /context/ingest without a language model; none: refused (501); "
        "episode: stored as said(speaker, text, when)",
    )
    ingest_conflicts: str = _setting(
        "NEWEST_WINS",
        TEXT,
        "conflictStrategy of facts read in texts, on /context, /context/ingest and /extract: "
        "KEEP_BOTH, REJECT, NEWEST_WINS, CONFIDENCE, or one of a third-party plugin",
    )
    context_optimize_enabled: bool = _setting(
        False, BOOLEAN, "serve POST /context/optimize after its sunset on 2026-07-01"
    )
    context_compat: bool = _setting(
        True,
        BOOLEAN,
        "default of compat: context windows repeat their entries as facts and their rules as rules, for older clients",
    )
    public_url: str = _setting(
        "", ADDRESS, "address at which clients reach the server; default: HOST and PORT"
    )
    mcp_tools: str = _setting(
        "default", choice("default", "memory", "all"), "set of tools offered over MCP and A2A"
    )
    mcp_max_answer_tokens: int = _setting(
        20_000,
        integer(100),
        "maximum size of the answer of a tool, in tokens of four bytes; longer lists and texts are cut",
    )
    mcp_allowed_origins: tuple[str, ...] = _setting(
        (), NAMES, "web origins that may call MCP, such as https://host; *: any"
    )
    max_body_bytes: int = _setting(32 << 20, integer(1), "maximum size of a request body, in bytes")
    max_text_body_bytes: int = _setting(
        4 << 20,
        integer(1),
        "maximum size of a request body that is no bulk of facts, in bytes; at most MAX_BODY_BYTES",
    )
    max_bodies_bytes: int = _setting(
        256 << 20,
        integer(1),
        "maximum size of all request bodies in memory, in bytes; a single body may exceed it",
    )
    max_bulk_facts: int = _setting(
        100_000, integer(1), "maximum number of facts in one bulk assert"
    )
    max_json_depth: int = _setting(64, integer(1, 512), "maximum nesting of a JSON body")
    write_queue_records: int = _setting(10_000, integer(1), "maximum number of queued writes")
    write_queue_bytes: int = _setting(
        8 << 20,
        integer(1),
        "maximum size of the queued writes, in bytes; a single write may exceed it",
    )
    tx_max_operations: int = _setting(
        10_000, integer(1), "maximum number of writes in a transaction; a bulk assert counts as one"
    )
    tx_max_bytes: int = _setting(
        8 << 20, integer(1, 60 << 20), "maximum size of the log record of a transaction, in bytes"
    )
    tx_max_open: int = _setting(100, integer(1), "maximum number of open transactions per tenant")
    tx_idle_ms: int = _setting(
        60_000, integer(1), "time without use after which a transaction expires, in milliseconds"
    )
    tx_life_ms: int = _setting(
        600_000, integer(1), "time after which a transaction expires in any case, in milliseconds"
    )
    max_connections: int = _setting(
        4000, integer(1, 1 << 20), "maximum number of open connections; further ones wait"
    )
    max_connections_address: int = _setting(
        100,
        integer(0, 1 << 20),
        "maximum number of open connections per client address, except loopback; 0: no limit",
    )
    header_timeout_ms: int = _setting(
        10_000,
        integer(1, 3_600_000),
        "timeout for the headers of a request, in milliseconds; answered with 408",
    )
    body_timeout_ms: int = _setting(
        30_000,
        integer(1, 3_600_000),
        "timeout for the body of a request, in milliseconds; answered with 400",
    )
    idle_timeout_ms: int = _setting(
        75_000,
        integer(1, 3_600_000),
        "time after which an idle connection is closed, in milliseconds",
    )
    cors_origins: tuple[str, ...] = _setting(
        (),
        NAMES,
        "web origins that may call the API (CORS), such as https://host; *: any; default: none",
    )
    events_max_streams: int = _setting(
        1000,
        integer(0, 1 << 20),
        "maximum number of event streams per tenant; all streams together take at most 3/4 of MAX_CONNECTIONS",
    )
    events_buffer: int = _setting(
        10_000, integer(1), "number of events per tenant kept for streams that lag behind or resume"
    )
    events_buffer_mb: int = _setting(
        16, integer(1, 1 << 20), "approximate memory for these events, in MiB"
    )
    events_keep_ms: int = _setting(
        600_000,
        integer(0),
        "time for which events are kept after the last stream of a tenant ends, in milliseconds",
    )
    shutdown_timeout_ms: int = _setting(
        10_000,
        integer(1, 3_600_000),
        "time to finish running requests after SIGTERM, in milliseconds",
    )
    engine_threads: int = _setting(
        0,
        integer(0, 64),
        "threads that evaluate one large recursion over dense relations together; 0: one for each core",
    )
    engine_verify: bool = _setting(
        False, BOOLEAN, "recompute every answer from scratch and compare, for debugging"
    )
    metrics_sinks: tuple[str, ...] = _setting(
        ("prometheus",),
        NAMES,
        "metrics sinks: prometheus, statsd, otlp, none, or third-party plugins",
    )
    statsd_address: str = _setting(
        "127.0.0.1:8125", TEXT, "host and port of the StatsD daemon, for METRICS_SINKS=statsd"
    )
    plugins_disabled: tuple[str, ...] = _setting((), NAMES, "plugins that are not loaded")
    plugins_trace: bool = _setting(False, BOOLEAN, "log every hook call")

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, prefixed: bool = False
    ) -> Config:
        """Read the settings from the environment, `KBCORE_PORT` or `PORT` for example.

        A secret can also be read from a file, named by its variable with the suffix `_FILE`. With
        `prefixed`, names without the prefix are not read: they may belong to a host application.
        Raises ConfigError with the name of the variable and its permitted values.
        """
        source = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for setting in SETTINGS:
            variable = setting.variable_in(source, prefixed=prefixed)
            if variable is not None:
                text = source[variable]
                if setting.secret and variable.endswith(_FILE):
                    text = _content(variable, text)
                values[setting.field] = setting.parse(text, variable)
        return cls()._replaced(values)

    def secrets(self) -> list[str]:
        """Return the texts that must never be shown, including passwords in URLs."""
        values = [str(getattr(self, setting.field)) for setting in SETTINGS if setting.secret]
        own = (self.storage_url, self.coordinator_url, self.cluster_url)
        decisions = self.decision_log.removeprefix(WEBHOOK)
        if decisions != self.decision_log:
            _, _, rest = urlsplit(decisions).path.lstrip("/").partition("/")
            values += [decisions, *([rest] if len(rest) >= MIN_TOKEN_CHARS else [])]
        urls = (*own, *self.webhook_urls, decisions)
        return [text for text in (*values, *(t for url in urls for t in secrets_of(url))) if text]

    def updated(self, texts: Mapping[str, str]) -> Config:
        """Return a copy with settings, by their names, parsed from text; raises ConfigError."""
        settings = {setting.name: setting for setting in SETTINGS}
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in settings:
                raise ConfigError(f"unknown setting {name}")
            values[settings[name].field] = settings[name].parse(text)
        return self._replaced(values)

    def _replaced(self, values: dict[str, Any]) -> Config:
        """Return a copy with other fields; a storage URL alone also chooses the storage plugin.

        The URL of a cluster is that of its storage. Raises ConfigError if another one is given.
        """
        cluster_url = values.get("cluster_url", self.cluster_url)
        if cluster_url:
            if values.get("storage_url") or values.get("storage_backend"):
                raise ConfigError(
                    "CLUSTER_URL names the storage of the cluster: leave out STORAGE_URL and STORAGE_BACKEND"
                )
            values["storage_url"] = cluster_url
        if values.get("storage_url") and "storage_backend" not in values:
            values["storage_backend"] = backend_of(values["storage_url"])
        return replace(self, **values)

    def with_storage(self, storage: str | None, path: str | None) -> Config:
        """Return a copy with the storage of a program: a URL, or a backend, a path or both.

        Without any of them, the storage is `memory`.
        """
        if storage is not None and ":" in storage:
            if path is not None:
                raise InvalidInput.at("path", "must be omitted if `storage` is a URL")
            return self.updated({"STORAGE_URL": storage})
        if path is not None:
            return self.updated({"STORAGE_URL": f"{storage or 'wal'}:{path}"})
        backend = storage or "memory"
        keeps_url = self.storage_url and backend_of(self.storage_url) == backend
        return replace(
            self, storage_backend=backend, storage_url=self.storage_url if keeps_url else ""
        )


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(f.name, f.default, **f.metadata) for f in fields(Config)
)
"""All settings, in the order of the fields of Config."""


def _content(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {path!r} cannot be read as a text file") from error
