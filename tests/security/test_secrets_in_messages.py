"""Passwords in settings, also in malformed URLs, are in no message, no listing and no log line."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kbcore.config import Config
from kbcore.config.storage_urls import is_well_formed, redacted, secrets_of
from kbcore.errors import ConfigError, KBError
from kbcore.node.opening import open_runtime
from kbserver import logs
from kbserver.cli import cli

PARTS = ("Zq7first", "Wv9second")
"""The pieces that each password below has; no other text of a message has one of them."""

URLS = [
    "postgresql://u:Zq7first/Wv9second@host.invalid/db",
    "postgresql://u:Zq7first@Wv9second@host.invalid",
    "postgresql://u:Zq7first@Wv9second/x@host.invalid/db",
    "postgresql://u:Zq7first?Wv9second@host.invalid/db",
    "postgresql://u:Zq7first?a=Wv9second@host.invalid/db",
    "postgresql://u:Zq7first#Wv9second@host.invalid/db",
    "postgresql://u:Zq7first Wv9second@host.invalid/db",
    "postgresql://u:Zq7first:Wv9second@host.invalid/db",
    "postgresql://u:Zq7first%zzWv9second@host.invalid/db",
    "postgresql://u:Zq7first[Wv9second@host.invalid/db",
    "postgresql://u:Zq7firstWv9second",
    "postgresql://u:12/Zq7firstWv9second@host.invalid/db",
    "postgresql://u@host.invalid/db?password=Zq7firstWv9second",
    "postgresql://u@host.invalid/db?sslpassword=Zq7first&password=Wv9second",
    "postgresql://u@host.invalid/db?p%61ssword=Zq7firstWv9second",
    "postgresql://u@host.invalid/db?password=Zq7first@Wv9second",
    "postgresql://u@host.invalid/db?Zq7firstWv9second",
    "postgresql:u:Zq7firstWv9second@host.invalid/db",
    "postgresql:/u:Zq7firstWv9second@host.invalid/db",
    "postgresql//u:Zq7firstWv9second@host.invalid/db",
    "postgres ://u:Zq7firstWv9second@host.invalid/db",
    "postgre://u:Zq7first/Wv9second@host.invalid/db",
    "u:Zq7firstWv9second@host.invalid/db",
    "host=host.invalid password=Zq7firstWv9second",
    "http://u:Zq7first/Wv9second@host.invalid",
    "http://u:12/Zq7firstWv9second@host.invalid",
    "https://Zq7firstWv9second@host.invalid/a",
    "etcd://u:Zq7first/Wv9second@host.invalid:2379",
    "file://u:Zq7firstWv9second@host.invalid/a",
    "sqlite://u:Zq7firstWv9second@host.invalid/a",
    "duckdb:md:base?motherduck_token=Zq7firstWv9second",
]

SETTINGS = (
    "STORAGE_URL",
    "CLUSTER_URL",
    "COORDINATOR_URL",
    "LEADER_URL",
    "ADVERTISE_URL",
    "PUBLIC_URL",
    "LLM_BASE_URL",
    "WEBHOOK_URLS",
)


def has_secret(text: str) -> bool:
    return any(part in text for part in PARTS)


@pytest.mark.parametrize("left_out", ["STORAGE_URL", "CLUSTER_URL"])
def test_checks_of_settings_show_no_password(left_out: str, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    names = [name for name in SETTINGS if name != left_out]
    for url in URLS:
        file.write_text("".join(f"{name}={url}\n" for name in names))
        result = CliRunner().invoke(cli, ["config", "check", "--env-file", str(file), "--all"])
        assert result.exception is None or isinstance(result.exception, SystemExit), url
        assert not has_secret(result.output), (url, result.output)
        assert all(name in result.output for name in names)


@pytest.mark.parametrize("url", URLS)
def test_starts_show_no_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str] = []
    for name in SETTINGS:
        texts = {name: url}
        if name == "COORDINATOR_URL":
            texts |= {"ADVERTISE_URL": "http://127.0.0.1:9300", "STORAGE_BACKEND": "memory"}
        if name in ("STORAGE_URL", "CLUSTER_URL", "COORDINATOR_URL") and is_well_formed(url):
            continue  # connects; the text of the server is in test_storage_postgres
        if name == "STORAGE_URL" and url.startswith(("sqlite:", "file:", "duckdb:")):
            continue  # a file
        try:
            config = Config.from_env(texts)
            assert not has_secret(repr(config))
            with open_runtime(config):
                pass
        except KBError as error:
            messages.append(f"{error.message} {error.details}")
    assert not has_secret("\n".join(messages))
    assert not has_secret(caplog.text)


@pytest.mark.parametrize("url", URLS)
def test_commands_show_no_password(url: str, tmp_path: Path) -> None:
    if is_well_formed(url) and url.startswith("http"):
        return  # a client sends to it what its user typed
    for arguments in (
        ["status", "--url", url],
        ["storage", "check", url],
        ["storage", "copy", url, f"wal:{tmp_path / 'copy'}"],
        ["storage", "copy", f"wal:{tmp_path / 'copy'}", url],
    ):
        if "storage" in arguments and is_well_formed(url):
            continue
        result = CliRunner().invoke(cli, arguments, env={"COLUMNS": "1000"})
        assert result.exit_code != 0
        assert not has_secret(result.output), (arguments, result.output)


@pytest.mark.parametrize("url", URLS)
def test_log_lines_show_no_password(url: str) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("kbserver.test")
    logs.configure("INFO", "text", stream, secrets_of(url))
    logger.info("cannot connect to %s", url)
    for secret in secrets_of(url):
        if len(secret) > 6:
            logger.info('invalid integer value "%s" for the port', secret)
    assert not has_secret(stream.getvalue())


def test_addresses_of_tables_show_no_password(tmp_path: Path) -> None:
    for url in URLS:
        if is_well_formed(url) or url.startswith(("sqlite:", "duckdb:")):
            continue
        file = tmp_path / "predicates.json"
        table = {"predicate": "p", "table": "t", "columns": ["a"]}
        file.write_text(json.dumps({"databases": {"d": url}, "predicates": [table]}))
        with (
            pytest.raises(KBError) as caught,
            open_runtime(Config(storage_backend="memory", sql_predicates=str(file))),
        ):
            pass
        assert not has_secret(caught.value.message)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=8))
def test_no_piece_of_a_password_is_shown(text: str) -> None:
    password = f"Zq7first{text}Wv9second"
    for url in (
        f"postgresql://user:{password}@host/db",
        f"postgresql://host/db?password={password}",
        f"postgresql:user:{password}@host",
        f"user:{password}@host",
    ):
        shown = redacted(url)
        if "&" not in text or not url.startswith("postgresql://host"):
            assert not has_secret(shown), (url, shown)
        assert has_secret(" ".join(secrets_of(url)))


@pytest.mark.parametrize("url", ["http://u:12/34@host", "http://a b", "http://host/a@b"])
def test_an_address_has_no_login(url: str) -> None:
    with pytest.raises(ConfigError, match="LEADER_URL"):
        Config.from_env({"LEADER_URL": url})
