"""Removal of secrets from log lines: keys, passwords in URLs, values of secret settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

HIDDEN = "(not shown)"

SECRET_FIELDS = frozenset(
    (
        "authorization",
        "proxy_authorization",
        "cookie",
        "set_cookie",
        "x_api_key",
        "api_key",
        "password",
        "secret",
        "token",
    )
)
"""Names of fields whose values are never logged, in any spelling."""

_MIN_SECRET_CHARS = 6
"""Shorter secrets are not searched for in texts: they would match ordinary words."""

_USER_INFO = re.compile(r"(?<=://)[^\s\"']*@")
_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)(\s+|%20)[A-Za-z0-9._~+/=-]{4,}")
_KEY = re.compile(r"\bkb_[A-Za-z0-9]+_[A-Za-z0-9_-]{16,}")
_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_NAMED = re.compile(r"(?i)((?:api[_-]?key|token|password|secret)=)[^\s&\"']+")


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Return a function that removes the given secrets, and anything that looks like one, from a
    text.
    """
    known = sorted(
        (secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS), key=len, reverse=True
    )
    spelled = [form for secret in known for form in dict.fromkeys((secret, _escaped(secret)))]
    pattern = re.compile("|".join(map(re.escape, spelled))) if spelled else None

    def redacted(text: str) -> str:
        if pattern is not None:
            text = pattern.sub(HIDDEN, text)
        if "@" in text:
            text = _USER_INFO.sub("", text)
        if "kb_" in text:
            text = _KEY.sub(HIDDEN, text)
        if "eyJ" in text:  # how a JWT begins
            text = _TOKEN.sub(HIDDEN, text)
        if "=" in text:
            text = _NAMED.sub(rf"\1{HIDDEN}", text)
        return _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)

    return redacted


def field(name: str, value: Any) -> Any:
    """Return the value of a field, hidden if it is secret."""
    return HIDDEN if name.lower().replace("-", "_") in SECRET_FIELDS else value


def _escaped(secret: str) -> str:
    """Return a secret as it appears inside a quoted text."""
    return secret.replace("\\", "\\\\").replace('"', '\\"')
