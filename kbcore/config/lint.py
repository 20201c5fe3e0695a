"""Warnings for valid but risky settings: unknown names, missing authentication, weak secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from kbcore.config.settings import SETTINGS, Config

MIN_SECRET_CHARS = 16
"""Minimum length of a secret; a shorter one is reported as easy to guess."""

_SIMILARITY = 0.85
_LOOPBACK = ("127.", "::1", "localhost")


def known_names() -> set[str]:
    """Return every name that is read from the environment."""
    return {s.name for s in SETTINGS} | {f"{s.name}_FILE" for s in SETTINGS if s.secret}


def is_loopback(host: str) -> bool:
    """Return True if only processes on the same machine can reach `host`."""
    return host.startswith(_LOOPBACK)


def key_warnings(config: Config) -> Iterator[str]:
    """Yield warnings about missing and weak keys."""
    if not config.api_key and not config.auth_enabled and not is_loopback(config.host):
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
    yield from key_warnings(config)
    if config.replication_mode == "LEADER" and not (
        config.replication_token or config.api_key or config.auth_enabled
    ):
        yield "REPLICATION_MODE=LEADER without REPLICATION_TOKEN or keys: anyone who reaches the node can read its log"
    if config.bootstrap_token and not config.auth_enabled:
        yield "BOOTSTRAP_TOKEN has no effect without AUTH_ENABLED"
    if config.llm_provider == "none" and (config.llm_api_key or config.llm_model):
        yield "LLM_API_KEY and LLM_MODEL have no effect with LLM_PROVIDER=none"
    if "*" in config.cors_origins:
        yield "CORS_ORIGINS=*: pages of any site can call the API"
    if "*" in config.mcp_allowed_origins:
        yield "MCP_ALLOWED_ORIGINS=*: pages of any site can call MCP tools"
    if config.fsync_policy == "never":
        yield "FSYNC_POLICY=never: acknowledged writes can be lost in a power failure"
    if config.engine == "python" or config.engine_verify:
        yield "ENGINE=python and ENGINE_VERIFY=true are slow and meant for debugging"


def _unknown_names(environ: Mapping[str, str], only_settings: bool) -> Iterator[str]:
    known = known_names()
    for name in sorted(set(environ) - known):
        word = name.upper().removeprefix("KB_").removeprefix("KBCORE_")
        similar = difflib.get_close_matches(word, known, 1, _SIMILARITY)
        if similar:
            yield f"{name} is not a setting; did you mean {similar[0]}?"
        elif only_settings:
            yield f"{name} is not a setting"
