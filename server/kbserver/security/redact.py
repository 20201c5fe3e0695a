"""Nothing secret in a log line, whoever wrote it: keys, passwords in addresses, values of secret settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

HIDDEN = "(not shown)"

SECRET_FIELDS = frozenset(
    (
        *("authorization", "proxy_authorization", "cookie", "set_cookie", "x_api_key", "api_key"),
        *("password", "secret", "token"),
    )
)
"""Fields of a line that are never shown, in any spelling of their names."""

_SHORTEST = 6
"""A secret of fewer characters is not looked for in texts: it would be found in every other word."""

_USER_INFO = re.compile(r"(?<=://)[^\s/@\"'?#]*@")
_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)(\s+|%20)[A-Za-z0-9._~+/=-]{4,}")
_KEY = re.compile(r"\bkb_[A-Za-z0-9]+_[A-Za-z0-9_-]{16,}")
_NAMED = re.compile(r"(?i)((?:api[_-]?key|token|password|secret)=)[^\s&\"']+")


def redactor(secrets: Iterable[str] = ()) -> Callable[[str], str]:
    """Make what takes secrets out of a text: those given, and whatever looks like one."""
    known = sorted((secret for secret in secrets if len(secret) >= _SHORTEST), key=len, reverse=True)
    spelled = [form for secret in known for form in dict.fromkeys((secret, _escaped(secret)))]
    given = re.compile("|".join(map(re.escape, spelled))) if spelled else None

    def redacted(text: str) -> str:
        if given is not None:
            text = given.sub(HIDDEN, text)
        if "@" in text:
            text = _USER_INFO.sub("", text)
        if "kb_" in text:
            text = _KEY.sub(HIDDEN, text)
        if "=" in text:
            text = _NAMED.sub(rf"\1{HIDDEN}", text)
        return _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)

    return redacted


def field(name: str, value: Any) -> Any:
    """Give what may be shown of a field."""
    return HIDDEN if name.lower().replace("-", "_") in SECRET_FIELDS else value


def _escaped(secret: str) -> str:
    """How a secret stands in a quoted text."""
    return secret.replace("\\", "\\\\").replace('"', '\\"')
