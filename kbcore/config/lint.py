"""Warnings for valid but risky settings: unknown names, missing authentication, weak secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from kbcore.config.hosts import read_host
from kbcore.config.settings import PREFIX, SETTINGS, Config
from kbcore.system_calls import can_hand_over_connections

MIN_SECRET_CHARS = 16
"""Minimum length of a secret; a shorter one is reported as easy to guess."""

_SIMILARITY = 0.85
"""From where on a variable without the prefix, which may belong to another program, is reported."""

CLIENT_VARIABLES = frozenset(
    ("KBCORE_URL", "KBCORE_TENANT", "KBCORE_DATABASE", "KBCORE_API_KEY", "KBCORE_CA_FILE")
)
"""Settings of the commands that talk to a server; the server ignores them."""


def known_names() -> set[str]:
    """Return every name that is read from the environment."""
    return {name for setting in SETTINGS for name in setting.variables} | CLIENT_VARIABLES


def is_loopback(host: str) -> bool:
    """Return True if only processes on the same machine can reach `host`."""
    read = read_host(host)
    return read is not None and read.is_loopback


def is_open(config: Config) -> bool:
    """Return True if other machines can reach the server, and it has no keys."""
    has_keys = config.api_key or config.auth_enabled or config.oauth_issuer
    return not (has_keys or is_loopback(config.host))


def key_problems(config: Config) -> Iterator[str]:
    """Yield why a server must not start with these keys."""
    if config.require_keys and is_open(config):
        yield (
            f"HOST={config.host} is not a loopback address and there are no keys: set API_KEY,"
            " AUTH_ENABLED or OAUTH_ISSUER, or REQUIRE_KEYS=false to let anyone read and write"
        )
    if config.oauth_issuer and not config.public_url:
        yield "OAUTH_ISSUER needs PUBLIC_URL: the address for which clients request tokens"


def worker_problems(config: Config) -> Iterator[str]:
    """Yield why this platform cannot run the worker processes of the settings."""
    if config.workers > 1 and not can_hand_over_connections():
        yield (
            f"WORKERS={config.workers}: several server processes need Linux, because this system"
            " cannot hand a connection from one process to another; leave WORKERS at 1"
        )


def key_warnings(config: Config) -> Iterator[str]:
    """Yield warnings about missing and weak keys."""
    if is_open(config):
        yield (
            f"authentication is off and HOST={config.host} is not a loopback address: anyone can read and write;"
            " set AUTH_ENABLED or API_KEY"
        )
    for name, secret in (("API_KEY", config.api_key), ("BOOTSTRAP_TOKEN", config.bootstrap_token)):
        if secret and len(secret) < MIN_SECRET_CHARS:
            yield f"{name} has fewer than {MIN_SECRET_CHARS} characters and is easy to guess"


def warnings_for(
    config: Config, environ: Mapping[str, str], *, only_settings: bool = False
) -> Iterator[str]:
    """Yield warnings for an operator.

    `only_settings` is true if every name in `environ` should be a setting, as in a settings file.
    """
    yield from _unknown_names(environ, only_settings)
    yield from _unused_names(environ)
    yield from key_warnings(config)
    if config.replication_mode == "LEADER" and not (
        config.replication_token or config.api_key or config.auth_enabled or config.oauth_issuer
    ):
        yield "REPLICATION_MODE=LEADER without REPLICATION_TOKEN or keys: anyone who reaches the node can read its log"
    if config.api_key and config.auth_enabled:
        yield "API_KEY has no effect beside AUTH_ENABLED=true: only managed keys are accepted"
    if config.bootstrap_token and not config.auth_enabled:
        yield "BOOTSTRAP_TOKEN has no effect without AUTH_ENABLED"
    if (config.oauth_audience or config.oauth_tenant_claim != "tenant") and not config.oauth_issuer:
        yield "OAUTH_AUDIENCE and OAUTH_TENANT_CLAIM have no effect without OAUTH_ISSUER"
    if config.oauth_issuer and config.public_url.startswith("http:"):
        host = urlsplit(config.public_url).hostname or ""
        if not is_loopback(host):
            yield "PUBLIC_URL is http: access tokens are sent unencrypted; use https"
    if config.llm_provider == "none" and (config.llm_api_key or config.llm_model):
        yield "LLM_API_KEY and LLM_MODEL have no effect with LLM_PROVIDER=none"
    if "*" in config.cors_origins:
        yield "CORS_ORIGINS=*: pages of any site can call the API"
    if "*" in config.mcp_allowed_origins:
        yield "MCP_ALLOWED_ORIGINS=*: pages of any site can call MCP tools"
    yield from _host_warnings(config)
    if config.fsync_policy == "never":
        yield "FSYNC_POLICY=never: acknowledged writes can be lost in a power failure"
    if config.engine_verify:
        yield "ENGINE_VERIFY=true is slow and meant for debugging"


def _host_warnings(config: Config) -> Iterator[str]:
    for name in config.allowed_hosts:
        if name == "*":
            yield (
                "ALLOWED_HOSTS=*: without keys, pages of any site can read and write by DNS rebinding"
            )
        elif read_host(name) is None:
            yield (
                f"ALLOWED_HOSTS: {name!r} matches no Host;"
                " give names or addresses without scheme, port, path and wildcard"
            )


def _unused_names(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each variable that yields to the same name with the prefix."""
    for setting in SETTINGS:
        used = setting.variable_in(environ)
        if used is not None and used.startswith(PREFIX):
            for name in setting.variables:
                if environ.get(name) and not name.startswith(PREFIX):
                    yield f"{name} is ignored because {used} is set"


def _unknown_names(environ: Mapping[str, str], only_settings: bool) -> Iterator[str]:
    bare = {setting.name for setting in SETTINGS}
    for name in sorted(set(environ) - known_names()):
        word = name.upper().removeprefix("KB_").removeprefix(PREFIX)
        prefix = PREFIX if name.startswith(PREFIX) else ""
        similar = difflib.get_close_matches(word, bare, 1, 0.6 if prefix else _SIMILARITY)
        if similar:
            yield f"{name} is not a setting; did you mean {prefix}{similar[0]}?"
        elif only_settings or prefix:
            yield f"{name} is not a setting"
