"""Table of settings and their values; the only module that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from kbcore.config.parsers import (
    BIG,
    address,
    boolean,
    choice,
    hidden,
    integer,
    key,
    names,
    node_name,
    rate,
    storage_url,
    weight,
    weights,
)
from kbcore.config.storage_urls import backend_of, redacted
from kbcore.errors import ConfigError, InvalidInput


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: environment name, parser of its text, default, and help text.

    `shown` formats the text for messages and hides secrets.
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    shown: Callable[[str], str] = repr

    @property
    def field(self) -> str:
        """Name of the field of Config."""
        return self.name.lower()

    @property
    def secret(self) -> bool:
        """True if the value is a secret, which is never shown and can also be given as a file."""
        return self.shown is hidden


SETTINGS: tuple[Setting, ...] = (
    Setting("HOST", str, "127.0.0.1", "address to listen on"),
    Setting("PORT", integer(0, 65535), 9300, "port to listen on; 0 picks a free one"),
    Setting("STORAGE_DIR", str, "./data", "folder of the durable data"),
    Setting(
        "STORAGE_BACKEND",
        str,
        "wal",
        "storage plugin: wal (durable log), sqlite, postgres, memory (keeps nothing), or a guest's; STORAGE_URL implies it",
    ),
    Setting(
        "STORAGE_URL",
        storage_url,
        "",
        "where that plugin keeps data, instead of STORAGE_DIR: wal:FOLDER, sqlite:FILE, postgresql://USER@HOST/DATABASE",
        lambda url: repr(redacted(url)),
    ),
    Setting(
        "STORAGE_TIMEOUT_MS",
        integer(1, 3_600_000),
        30_000,
        "milliseconds a statement of the storage server may take, and a write waits for a server that is away",
    ),
    Setting(
        "FSYNC_POLICY",
        choice("always", "interval", "never"),
        "always",
        "when a write is synced to the disk",
    ),
    Setting(
        "FSYNC_INTERVAL_MS",
        integer(1, 3_600_000),
        1000,
        "milliseconds between syncs under FSYNC_POLICY=interval",
    ),
    Setting("WAL_SEGMENT_MB", integer(1, 1024), 16, "size of a log segment in MiB"),
    Setting(
        "SNAPSHOT_LOG_MB",
        integer(1, 1 << 20),
        64,
        "a snapshot is taken after this much log, in MiB",
    ),
    Setting(
        "SNAPSHOT_MINUTES",
        integer(1, 1 << 20),
        15,
        "a snapshot is taken after this many minutes with changes",
    ),
    Setting(
        "MIN_FREE_MB",
        integer(0, 1 << 20),
        64,
        "below this much free disk, in MiB, writes are refused",
    ),
    Setting(
        "READY_REQUIRES_WRITES",
        boolean,
        False,
        "not ready (503) while writes are refused because the disk is full",
    ),
    Setting(
        "REPLICATION_MODE", choice("none", "LEADER", "FOLLOWER"), "none", "none, LEADER or FOLLOWER"
    ),
    Setting(
        "LEADER_URL",
        address,
        "",
        "address of the node to follow, such as https://leader.example:9300",
    ),
    Setting(
        "LEADER_CA_FILE",
        str,
        "",
        "file of certificates to check that node's by, instead of the usual ones",
    ),
    Setting(
        "REPLICATION_TOKEN",
        key,
        "",
        "secret of all nodes, 16 characters or more, never logged; optional",
        hidden,
    ),
    Setting(
        "REPLICATION_NAME",
        node_name,
        "follower",
        "name of this follower, which its leader shows and counts by",
    ),
    Setting(
        "REPLICATION_POLL_MS",
        integer(10, 20_000),
        1000,
        "milliseconds a leader may wait for something new to send",
    ),
    Setting(
        "WAL_RETAIN_MB", integer(0, 1 << 20), 1024, "log kept for followers that lag behind, in MiB"
    ),
    Setting(
        "WAL_RETAIN_HOURS",
        integer(0, 1 << 20),
        24,
        "hours since its last question for which a follower counts",
    ),
    Setting(
        "READY_MAX_LAG_S", integer(1, 1 << 20), 10, "seconds a follower may be behind and be ready"
    ),
    Setting(
        "READY_STALE_S",
        integer(0, 1 << 30),
        300,
        "seconds a follower is ready for reads without its leader",
    ),
    Setting(
        "LOG_LEVEL", choice("DEBUG", "INFO", "WARN", "ERROR"), "INFO", "lowest level that is logged"
    ),
    Setting("LOG_FORMAT", choice("text", "json"), "text", "form of a log line"),
    Setting(
        "SLOW_QUERY_MS",
        integer(0, 86_400_000),
        1000,
        "a goal that takes as many milliseconds is logged; 0: none is",
    ),
    Setting("QUERY_MAX_ROWS", integer(1, BIG), 10_000_000, "rows one request may derive"),
    Setting("QUERY_MAX_STEPS", integer(1, BIG), 2_000_000_000, "engine steps one request may take"),
    Setting(
        "QUERY_TIMEOUT_MS", integer(1, 86_400_000), 30_000, "milliseconds one request may infer"
    ),
    Setting(
        "QUERY_MAX_BYTES",
        integer(1, BIG),
        256 << 20,
        "bytes the derived rows of one request may take",
    ),
    Setting("QUERY_MAX_ANSWERS", integer(1, BIG), 1_000_000, "answers one request may return"),
    Setting(
        "QUERY_MAX_PROOF_NODES",
        integer(1, BIG),
        200_000,
        "nodes that the proofs of one request may have together",
    ),
    Setting(
        "API_KEY",
        key,
        "",
        "the one admin key; clients send it as Authorization: Bearer KEY or X-API-Key",
        hidden,
    ),
    Setting(
        "AUTH_ENABLED",
        boolean,
        False,
        "ask for keys that are made, listed and revoked; API_KEY is one beside them",
    ),
    Setting(
        "BOOTSTRAP_TOKEN",
        key,
        "",
        "what POST /auth/bootstrap needs, once, to make the first key",
        hidden,
    ),
    Setting(
        "FORWARDED_HOPS",
        integer(0, 16),
        0,
        "proxies in front whose X-Forwarded-For says who calls; 0: believe none",
    ),
    Setting(
        "RATE_LIMIT",
        rate,
        (),
        "requests/seconds of a caller: of its key, without keys of its tenant; none: no limit",
    ),
    Setting("RATE_LIMIT_TENANT", rate, (), "the same of a tenant, whoever asks"),
    Setting("RATE_LIMIT_ADDRESS", rate, (), "the same of an address, whatever it asks for"),
    Setting("TENANT_MAX_FACTS", integer(0, BIG), 0, "most stored facts of a tenant; 0: no limit"),
    Setting(
        "TENANT_MAX_BYTES",
        integer(0, BIG),
        0,
        "most bytes of memory a tenant's facts may take; 0: no limit",
    ),
    Setting("TENANT_MAX_RULES", integer(0, BIG), 0, "most rules of a tenant; 0: no limit"),
    Setting("TENANT_MAX_SCOPES", integer(0, BIG), 0, "most scopes of a tenant; 0: no limit"),
    Setting(
        "TENANT_MAX_SESSIONS",
        integer(1, 1_000_000),
        1000,
        "context sessions of a tenant; over it the oldest ends",
    ),
    Setting(
        "TENANT_MAX_INFERENCES",
        integer(1, 10_000),
        4,
        "long goals of a tenant that are worked on at a time",
    ),
    Setting(
        "PROOF_NODES",
        integer(1, 100_000),
        1000,
        "nodes of a proof that are shown where a request does not say",
    ),
    Setting(
        "PROOF_DEPTH",
        integer(1, 10_000),
        100,
        "rule steps, one below another, that a proof tree shows likewise",
    ),
    Setting(
        "GOAL_TABLE_MB", integer(0, 1 << 20), 64, "memory for kept goal tables of a tenant, in MiB"
    ),
    Setting(
        "SALIENCE_SCORER",
        str,
        "default",
        "what says how much a fact matters: default, or a guest's plugin",
    ),
    Setting(
        "SALIENCE_HALF_LIFE_MS",
        integer(1, BIG),
        3_600_000,
        "milliseconds in which the recency of a fact halves",
    ),
    Setting(
        "SALIENCE_WEIGHTS",
        weights,
        (0.5, 0.3, 0.2),
        "what recency, frequency and priority weigh in salience",
    ),
    Setting(
        "QUERY_SALIENCE_WEIGHT",
        weight,
        0.1,
        "weight of salience beside text relevance, which is 1 for the best match of a query",
    ),
    Setting(
        "EMBEDDER",
        str,
        "none",
        "what makes vectors of texts, for queries of windows: a guest's plugin, or none",
    ),
    Setting(
        "TOKENIZER",
        str,
        "none",
        "what counts tokens for maxTokens: a plugin's tokenizer, or none for characters / 4",
    ),
    Setting(
        "SWEEP_INTERVAL_MS",
        integer(0, BIG),
        60_000,
        "milliseconds between two evictions of expired facts; 0: none",
    ),
    Setting(
        "LLM_PROVIDER",
        str,
        "none",
        "language model plugin: openai, anthropic, google, ollama, a guest's, or none",
    ),
    Setting("LLM_MODEL", str, "", "name of the model, as its provider has it"),
    Setting(
        "LLM_API_KEY",
        key,
        "",
        "key for the provider; it is sent to LLM_BASE_URL only and never logged",
        hidden,
    ),
    Setting(
        "LLM_BASE_URL",
        address,
        "",
        "address of the provider's interface; each provider has a default",
    ),
    Setting(
        "LLM_TIMEOUT_MS",
        integer(1, BIG),
        60_000,
        "milliseconds a model has for one prompt, all tries together",
    ),
    Setting(
        "LLM_REQUEST_TIMEOUT_MS",
        integer(1, BIG),
        300_000,
        "milliseconds a request may spend with the model in all",
    ),
    Setting("LLM_MAX_CONCURRENCY", integer(1, 1000), 4, "calls of the model at a time"),
    Setting(
        "LLM_MAX_TOKENS", integer(64, 1_000_000), 4096, "tokens one answer of the model may have"
    ),
    Setting(
        "LLM_RETRIES",
        integer(0, 10),
        2,
        "further tries after a failure that may pass, such as 429 or 503",
    ),
    Setting(
        "LLM_BREAKER_FAILURES",
        integer(1, 1000),
        5,
        "failures one after the other that stop calls of the model",
    ),
    Setting(
        "LLM_BREAKER_MS",
        integer(1, BIG),
        30_000,
        "milliseconds after which a stopped model is tried again",
    ),
    Setting(
        "EXTRACTION_MAX_FACTS",
        integer(1, 10_000),
        200,
        "most facts, and most rules, taken from one text by a model",
    ),
    Setting(
        "EXTRACTION_CHUNK_CHARS",
        integer(200, 200_000),
        6000,
        "characters of a text a model reads at a time",
    ),
    Setting(
        "EXTRACTION_MAX_CHUNKS",
        integer(1, 10_000),
        32,
        "most pieces of a text a model reads; else it is refused",
    ),
    Setting(
        "CONTEXT_OPTIMIZE_ENABLED",
        boolean,
        False,
        "serve POST /context/optimize past its sunset, 2026-07-01",
    ),
    Setting(
        "PUBLIC_URL",
        address,
        "",
        "address under which clients reach the server, if it is not where it listens",
    ),
    Setting(
        "MCP_TOOLS",
        choice("default", "all"),
        "default",
        "tools that clients of the tool protocol are shown",
    ),
    Setting(
        "MCP_ALLOWED_ORIGINS",
        names,
        (),
        "pages that may call the tool protocol, as https://host; * for every one",
    ),
    Setting("MAX_BODY_BYTES", integer(1, BIG), 32 << 20, "largest request body in bytes"),
    Setting(
        "MAX_BODIES_BYTES",
        integer(1, BIG),
        256 << 20,
        "most bytes of all bodies under way; one alone may have more",
    ),
    Setting("MAX_BULK_FACTS", integer(1, BIG), 100_000, "most facts in one bulk assert"),
    Setting("MAX_JSON_DEPTH", integer(1, 512), 64, "deepest nesting of a JSON body"),
    Setting("WRITE_QUEUE_RECORDS", integer(1, BIG), 10_000, "most writes waiting for the disk"),
    Setting(
        "WRITE_QUEUE_BYTES",
        integer(1, BIG),
        8 << 20,
        "most bytes waiting for the disk; one write may be larger",
    ),
    Setting(
        "TX_MAX_OPERATIONS",
        integer(1, BIG),
        10_000,
        "most writes of one transaction; a bulk assert is one",
    ),
    Setting(
        "TX_MAX_BYTES",
        integer(1, 60 << 20),
        8 << 20,
        "most bytes of log that one transaction may come to",
    ),
    Setting("TX_MAX_OPEN", integer(1, BIG), 100, "most open transactions of a tenant"),
    Setting(
        "TX_IDLE_MS",
        integer(1, BIG),
        60_000,
        "milliseconds without use after which a transaction expires",
    ),
    Setting(
        "TX_LIFE_MS",
        integer(1, BIG),
        600_000,
        "milliseconds after which a transaction expires even if it is used",
    ),
    Setting(
        "MAX_CONNECTIONS", integer(1, 1 << 20), 4000, "most open connections; further ones wait"
    ),
    Setting(
        "MAX_CONNECTIONS_ADDRESS",
        integer(0, 1 << 20),
        100,
        "most of an address but this machine's; 0: no limit",
    ),
    Setting(
        "HEADER_TIMEOUT_MS",
        integer(1, 3_600_000),
        10_000,
        "milliseconds for the headers of a request; else 408",
    ),
    Setting(
        "BODY_TIMEOUT_MS",
        integer(1, 3_600_000),
        30_000,
        "milliseconds for the body of a request; else 400",
    ),
    Setting(
        "IDLE_TIMEOUT_MS",
        integer(1, 3_600_000),
        75_000,
        "milliseconds of silence that close a connection",
    ),
    Setting(
        "CORS_ORIGINS",
        names,
        (),
        "origins whose pages may call, separated by commas; * for any; none: off",
    ),
    Setting(
        "EVENTS_MAX_STREAMS",
        integer(0, 1 << 20),
        1000,
        "most event streams of a tenant; all have 3/4 of connections",
    ),
    Setting(
        "EVENTS_BUFFER",
        integer(1, BIG),
        10_000,
        "events of a tenant kept for streams that read or resume",
    ),
    Setting("EVENTS_BUFFER_MB", integer(1, 1 << 20), 16, "memory for those, about, in MiB"),
    Setting(
        "EVENTS_KEEP_MS",
        integer(0, BIG),
        600_000,
        "milliseconds they are kept after a tenant's last stream ended",
    ),
    Setting(
        "SHUTDOWN_TIMEOUT_MS",
        integer(1, 3_600_000),
        10_000,
        "milliseconds to drain requests after SIGTERM",
    ),
    Setting(
        "ENGINE",
        choice("c", "python"),
        "c",
        "inference engine; python is the slow reference, for debugging",
    ),
    Setting("ENGINE_VERIFY", boolean, False, "recompute every answer from scratch and compare"),
    Setting(
        "METRICS_SINKS",
        names,
        ("prometheus",),
        "where metrics go: prometheus, statsd, none, a guest's; several",
    ),
    Setting(
        "STATSD_ADDRESS",
        str,
        "127.0.0.1:8125",
        "host and port of the StatsD daemon, for METRICS_SINKS=statsd",
    ),
    Setting("PLUGINS_DISABLED", names, (), "names of plugins not to load, separated by commas"),
    Setting("PLUGINS_TRACE", boolean, False, "log every call of a hook"),
)


def _content(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}={path!r} cannot be read: {type(error).__name__}") from error


def environment() -> dict[str, str]:
    """Return the environment of the process, to search it for unknown settings."""
    return dict(os.environ)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; see SETTINGS for their meaning and units."""

    host: str = "127.0.0.1"
    port: int = 9300
    storage_dir: str = "./data"
    storage_backend: str = "wal"
    storage_url: str = field(default="", repr=False)
    storage_timeout_ms: int = 30_000
    fsync_policy: str = "always"
    fsync_interval_ms: int = 1000
    wal_segment_mb: int = 16
    snapshot_log_mb: int = 64
    snapshot_minutes: int = 15
    min_free_mb: int = 64
    ready_requires_writes: bool = False
    replication_mode: str = "none"
    leader_url: str = ""
    leader_ca_file: str = ""
    replication_token: str = field(default="", repr=False)
    replication_name: str = "follower"
    replication_poll_ms: int = 1000
    wal_retain_mb: int = 1024
    wal_retain_hours: int = 24
    ready_max_lag_s: int = 10
    ready_stale_s: int = 300
    log_level: str = "INFO"
    log_format: str = "text"
    slow_query_ms: int = 1000
    query_max_rows: int = 10_000_000
    query_max_steps: int = 2_000_000_000
    query_timeout_ms: int = 30_000
    query_max_bytes: int = 256 << 20
    query_max_answers: int = 1_000_000
    query_max_proof_nodes: int = 200_000
    api_key: str = field(default="", repr=False)
    auth_enabled: bool = False
    bootstrap_token: str = field(default="", repr=False)
    forwarded_hops: int = 0
    rate_limit: tuple[int, ...] = ()
    rate_limit_tenant: tuple[int, ...] = ()
    rate_limit_address: tuple[int, ...] = ()
    tenant_max_facts: int = 0
    tenant_max_bytes: int = 0
    tenant_max_rules: int = 0
    tenant_max_scopes: int = 0
    tenant_max_sessions: int = 1000
    tenant_max_inferences: int = 4
    proof_nodes: int = 1000
    proof_depth: int = 100
    goal_table_mb: int = 64
    salience_scorer: str = "default"
    salience_half_life_ms: int = 3_600_000
    salience_weights: tuple[float, ...] = (0.5, 0.3, 0.2)
    query_salience_weight: float = 0.1
    embedder: str = "none"
    tokenizer: str = "none"
    sweep_interval_ms: int = 60_000
    llm_provider: str = "none"
    llm_model: str = ""
    llm_api_key: str = field(default="", repr=False)
    llm_base_url: str = ""
    llm_timeout_ms: int = 60_000
    llm_request_timeout_ms: int = 300_000
    llm_max_concurrency: int = 4
    llm_max_tokens: int = 4096
    llm_retries: int = 2
    llm_breaker_failures: int = 5
    llm_breaker_ms: int = 30_000
    extraction_max_facts: int = 200
    extraction_chunk_chars: int = 6000
    extraction_max_chunks: int = 32
    context_optimize_enabled: bool = False
    public_url: str = ""
    mcp_tools: str = "default"
    mcp_allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_bodies_bytes: int = 256 << 20
    max_bulk_facts: int = 100_000
    max_json_depth: int = 64
    write_queue_records: int = 10_000
    write_queue_bytes: int = 8 << 20
    tx_max_operations: int = 10_000
    tx_max_bytes: int = 8 << 20
    tx_max_open: int = 100
    tx_idle_ms: int = 60_000
    tx_life_ms: int = 600_000
    max_connections: int = 4000
    max_connections_address: int = 100
    header_timeout_ms: int = 10_000
    body_timeout_ms: int = 30_000
    idle_timeout_ms: int = 75_000
    cors_origins: tuple[str, ...] = ()
    events_max_streams: int = 1000
    events_buffer: int = 10_000
    events_buffer_mb: int = 16
    events_keep_ms: int = 600_000
    shutdown_timeout_ms: int = 10_000
    engine: str = "c"
    engine_verify: bool = False
    metrics_sinks: tuple[str, ...] = ("prometheus",)
    statsd_address: str = "127.0.0.1:8125"
    plugins_disabled: tuple[str, ...] = ()
    plugins_trace: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read the settings from the environment.

        A secret can also be read from a file, named by the setting with the suffix `_FILE`. Raises
        ConfigError with the name of the setting and its permitted values.
        """
        source = os.environ if environ is None else environ
        texts = {s.name: source[s.name] for s in SETTINGS if source.get(s.name, "") != ""}
        for setting in SETTINGS:
            path = source.get(f"{setting.name}_FILE", "") if setting.secret else ""
            if path:
                if setting.name in texts:
                    raise ConfigError(
                        f"{setting.name} and {setting.name}_FILE are both set; give one"
                    )
                texts[setting.name] = _content(f"{setting.name}_FILE", path)
        return cls().updated(texts)

    def secrets(self) -> list[str]:
        """Return the texts that must never be shown, including passwords in URLs."""
        found = [str(getattr(self, setting.field)) for setting in SETTINGS if setting.secret]
        password = urlsplit(self.storage_url).password if self.storage_url else None
        return [text for text in (*found, password, unquote(password or "")) if text]

    def updated(self, texts: Mapping[str, str]) -> Config:
        """Return a copy with settings, by environment name, parsed from text; raises ConfigError."""
        table = {setting.name: setting for setting in SETTINGS}
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in table:
                raise ConfigError(f"unknown setting {name}")
            try:
                values[table[name].field] = table[name].parse(text)
            except ValueError as error:
                shown = table[name].shown(text)
                raise ConfigError(f"{name}={shown}: {error}; {table[name].help}") from error
        if values.get("storage_url") and "storage_backend" not in values:
            values["storage_backend"] = backend_of(values["storage_url"])
        return replace(self, **values)

    def kept(self, storage: str | None, path: str | None) -> Config:
        """Return a copy with the storage of a program: a URL, or a backend, a path or both.

        Without any of them, the storage is `memory`.
        """
        if storage is not None and ":" in storage:
            if path is not None:
                raise InvalidInput.at("path", "goes without a URL, which says where by itself")
            return self.updated({"STORAGE_URL": storage})
        if path is not None:
            return self.updated({"STORAGE_URL": f"{storage or 'wal'}:{path}"})
        wanted = storage or "memory"
        url = (
            self.storage_url if self.storage_url and backend_of(self.storage_url) == wanted else ""
        )
        return replace(self, storage_backend=wanted, storage_url=url)


if {s.field: s.default for s in SETTINGS} != {
    f.name: f.default for f in fields(Config)
}:  # pragma: no cover
    raise AssertionError("SETTINGS and Config disagree")
