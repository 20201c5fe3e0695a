"""Storage URLs: `wal:FOLDER`, `sqlite:FILE`, `postgresql://...`, or `NAME:...` of a plugin."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SECRETS = frozenset(("password", "sslpassword", "passfile"))
_BACKENDS = {"postgresql": "postgres"}


def backend_of(url: str) -> str:
    """Return the name of the storage plugin for a URL; raises ValueError if the URL names none."""
    scheme, colon, _ = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ValueError(
            "must be a URL such as wal:/folder, sqlite:/file or postgresql://user@host/database"
        )
    return _BACKENDS.get(scheme.lower(), scheme.lower())


def path_of(url: str) -> str:
    """Return the path of a URL that names a file or folder, unchanged.

    Examples are `sqlite:/a/b`, `sqlite:b` and `sqlite:///a/b`.
    """
    path = url.partition(":")[2]
    return path[2:] if path.startswith("///") else path


def redacted(url: str) -> str:
    """Return the URL with its secrets hidden, for logs and messages."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or ("@" not in url and "=" not in url):
            return url
        return _without_secrets(parts)
    except ValueError:
        return url.partition(":")[0] + ":" + HIDDEN


def secrets_of(url: str) -> list[str]:
    """Return the secrets in a URL, both percent-encoded and decoded, longest first."""
    secrets: set[str] = set()
    try:
        parts = urlsplit(url)
        if parts.password:
            secrets |= {parts.password, unquote(parts.password)}
        secrets |= {value for key, value in parse_qsl(parts.query) if key.lower() in _SECRETS}
    except ValueError:
        secrets.add(url)
    return sorted((text for text in secrets if text), key=len, reverse=True)


def _without_secrets(parts: SplitResult) -> str:
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user:
        user = f"{user.partition(':')[0]}:{HIDDEN}"
    query = "&".join(
        f"{quote(key)}={HIDDEN if key.lower() in _SECRETS else quote(value)}"
        for key, value in parse_qsl(parts.query)
    )
    slashes = "//" if parts.netloc or parts.path.startswith("//") else ""
    return f"{parts.scheme}:{slashes}{user}{at}{host}{parts.path}{'?' if query else ''}{query}"
