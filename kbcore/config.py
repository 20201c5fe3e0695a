"""Settings: one table, read once, handed down. The only reader of the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kbcore.errors import ConfigError


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be {low} to {high}")
        return value

    return parse


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(f"must be one of {', '.join(choices)}")

    return parse


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("must be true or false")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: environment name, parser of its text, default, and help for people."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str

    @property
    def field(self) -> str:
        """The name of the field of Config."""
        return self.name.lower()


_BIG = 1 << 40

SETTINGS: tuple[Setting, ...] = (
    Setting("HOST", str, "127.0.0.1", "address to listen on"),
    Setting("PORT", _integer(0, 65535), 9300, "port to listen on; 0 picks a free one"),
    Setting("STORAGE_DIR", str, "./data", "folder of the durable data"),
    Setting("STORAGE_BACKEND", str, "wal", "storage plugin: wal (durable log), memory (nothing is kept), or a guest's"),
    Setting("FSYNC_POLICY", _choice("always", "interval", "never"), "always", "when a write is synced to the disk"),
    Setting("FSYNC_INTERVAL_MS", _integer(1, 3_600_000), 1000, "milliseconds between syncs under FSYNC_POLICY=interval"),
    Setting("WAL_SEGMENT_MB", _integer(1, 1024), 16, "size of a log segment in MiB"),
    Setting("SNAPSHOT_LOG_MB", _integer(1, 1 << 20), 64, "a snapshot is taken after this much log, in MiB"),
    Setting("SNAPSHOT_MINUTES", _integer(1, 1 << 20), 15, "a snapshot is taken after this many minutes with changes"),
    Setting("MIN_FREE_MB", _integer(0, 1 << 20), 64, "below this much free disk, in MiB, writes are refused"),
    Setting("LOG_LEVEL", _choice("DEBUG", "INFO", "WARN", "ERROR"), "INFO", "lowest level that is logged"),
    Setting("LOG_FORMAT", _choice("text", "json"), "text", "form of a log line"),
    Setting("QUERY_MAX_ROWS", _integer(1, _BIG), 10_000_000, "rows one request may derive"),
    Setting("QUERY_MAX_STEPS", _integer(1, _BIG), 2_000_000_000, "engine steps one request may take"),
    Setting("QUERY_TIMEOUT_MS", _integer(1, 86_400_000), 30_000, "milliseconds one request may infer"),
    Setting("QUERY_MAX_BYTES", _integer(1, _BIG), 1 << 30, "bytes the derived rows of one request may take"),
    Setting("QUERY_MAX_ANSWERS", _integer(1, _BIG), 1_000_000, "answers one request may return"),
    Setting("PROOF_NODES", _integer(1, 100_000), 1000, "nodes of a proof that are shown where a request does not say"),
    Setting("PROOF_DEPTH", _integer(1, 10_000), 100, "rule steps, one below another, that a proof tree shows likewise"),
    Setting("GOAL_TABLE_MB", _integer(0, 1 << 20), 64, "memory for kept goal tables of a tenant, in MiB"),
    Setting("MAX_BODY_BYTES", _integer(1, _BIG), 32 << 20, "largest request body in bytes"),
    Setting("MAX_BULK_FACTS", _integer(1, _BIG), 100_000, "most facts in one bulk assert"),
    Setting("MAX_JSON_DEPTH", _integer(1, 512), 64, "deepest nesting of a JSON body"),
    Setting("WRITE_QUEUE_RECORDS", _integer(1, _BIG), 10_000, "most writes waiting for the disk"),
    Setting(
        "WRITE_QUEUE_BYTES", _integer(1, _BIG), 8 << 20, "most bytes waiting for the disk; one write may be larger"
    ),
    Setting("SHUTDOWN_TIMEOUT_MS", _integer(1, 3_600_000), 10_000, "milliseconds to drain requests after SIGTERM"),
    Setting("ENGINE", _choice("c", "python"), "c", "inference engine; python is the slow reference, for debugging"),
    Setting("ENGINE_VERIFY", _boolean, False, "recompute every answer from scratch and compare"),
    Setting("PLUGINS_DISABLED", _names, (), "names of plugins not to load, separated by commas"),
    Setting("PLUGINS_TRACE", _boolean, False, "log every hook call"),
)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; see SETTINGS for their meaning and units."""

    host: str = "127.0.0.1"
    port: int = 9300
    storage_dir: str = "./data"
    storage_backend: str = "wal"
    fsync_policy: str = "always"
    fsync_interval_ms: int = 1000
    wal_segment_mb: int = 16
    snapshot_log_mb: int = 64
    snapshot_minutes: int = 15
    min_free_mb: int = 64
    log_level: str = "INFO"
    log_format: str = "text"
    query_max_rows: int = 10_000_000
    query_max_steps: int = 2_000_000_000
    query_timeout_ms: int = 30_000
    query_max_bytes: int = 1 << 30
    query_max_answers: int = 1_000_000
    proof_nodes: int = 1000
    proof_depth: int = 100
    goal_table_mb: int = 64
    max_body_bytes: int = 32 << 20
    max_bulk_facts: int = 100_000
    max_json_depth: int = 64
    write_queue_records: int = 10_000
    write_queue_bytes: int = 8 << 20
    shutdown_timeout_ms: int = 10_000
    engine: str = "c"
    engine_verify: bool = False
    plugins_disabled: tuple[str, ...] = ()
    plugins_trace: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read the settings from the environment; raises ConfigError naming the setting and its choices."""
        source = os.environ if environ is None else environ
        return cls().updated({s.name: source[s.name] for s in SETTINGS if source.get(s.name, "") != ""})

    def updated(self, texts: Mapping[str, str]) -> Config:
        """A copy with settings, by environment name, parsed from text; raises ConfigError."""
        table = {setting.name: setting for setting in SETTINGS}
        values: dict[str, Any] = {}
        for name, text in texts.items():
            if name not in table:
                raise ConfigError(f"unknown setting {name}")
            try:
                values[table[name].field] = table[name].parse(text)
            except ValueError as error:
                raise ConfigError(f"{name}={text!r}: {error}; {table[name].help}") from error
        return replace(self, **values)


if {s.field: s.default for s in SETTINGS} != {f.name: f.default for f in fields(Config)}:  # pragma: no cover
    raise AssertionError("SETTINGS and Config disagree")
