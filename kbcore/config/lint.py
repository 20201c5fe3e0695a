"""Warnings for valid but risky settings: unknown names, missing authentication, weak secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from kbcore.config.settings import SETTINGS, Config

SHORTEST_SECRET = 16
"""Minimum length of a secret; a shorter one is reported as weak."""

_NEAR = 0.85
_LOOPBACK = ("127.", "::1", "localhost")


def known_names() -> set[str]:
    """Return every name that is read from the environment."""
    return {s.name for s in SETTINGS} | {f"{s.name}_FILE" for s in SETTINGS if s.secret}


def doubts(config: Config, environ: Mapping[str, str], *, ours: bool = False) -> Iterator[str]:
    """Yield warnings about settings for an operator.

    `ours` is true if every name in `environ` is meant for kbcore, as in a settings file.
    """
    yield from _names(environ, ours)
    if not config.host.startswith(_LOOPBACK) and not config.api_key and not config.auth_enabled:
        yield f"HOST={config.host} is not this machine only, and neither API_KEY nor AUTH_ENABLED: anybody may do anything"
    if config.replication_mode == "LEADER" and not (
        config.replication_token or config.api_key or config.auth_enabled
    ):
        yield "REPLICATION_MODE=LEADER without REPLICATION_TOKEN and without keys: whoever reaches it may fetch its log"
    for name, secret in (("API_KEY", config.api_key), ("BOOTSTRAP_TOKEN", config.bootstrap_token)):
        if secret and len(secret) < SHORTEST_SECRET:
            yield f"{name} has fewer than {SHORTEST_SECRET} characters, and can be guessed"
    if config.bootstrap_token and not config.auth_enabled:
        yield "BOOTSTRAP_TOKEN is set, but AUTH_ENABLED is not: there are no keys to be made"
    if config.llm_provider == "none" and (config.llm_api_key or config.llm_model):
        yield "LLM_API_KEY or LLM_MODEL is set, but LLM_PROVIDER is none: no model will be asked"
    if "*" in config.cors_origins:
        yield "CORS_ORIGINS=*: pages of any site may call"
    if "*" in config.mcp_allowed_origins:
        yield "MCP_ALLOWED_ORIGINS=*: pages of any site may use the tools"
    if config.fsync_policy == "never":
        yield "FSYNC_POLICY=never: a power cut may take writes that were acknowledged"
    if config.engine == "python" or config.engine_verify:
        yield "ENGINE=python and ENGINE_VERIFY are for debugging, and slow"


def _names(environ: Mapping[str, str], ours: bool) -> Iterator[str]:
    known = known_names()
    for name in sorted(set(environ) - known):
        near = difflib.get_close_matches(
            name.upper().removeprefix("KB_").removeprefix("KBCORE_"), known, 1, _NEAR
        )
        if near:
            yield f"{name} is not a setting; {near[0]} is one"
        elif ours:
            yield f"{name} is not a setting"
