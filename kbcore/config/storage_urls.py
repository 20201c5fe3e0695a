"""Where a knowledge base is kept, as one text: `wal:FOLDER`, `sqlite:FILE`, `postgresql://...`, or a guest's `NAME:...`."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SECRETS = frozenset(("password", "sslpassword", "passfile"))
_BACKENDS = {"postgresql": "postgres"}


def backend_of(url: str) -> str:
    """The name of the storage plugin that a URL is for; raises ValueError where there is none."""
    scheme, colon, _ = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ValueError(
            "must be a URL such as wal:/folder, sqlite:/file or postgresql://user@host/database"
        )
    return _BACKENDS.get(scheme.lower(), scheme.lower())


def path_of(url: str) -> str:
    """The path of a URL that names a file or folder, as it stands there: `sqlite:/a/b`, `sqlite:b`, `sqlite:///a/b`."""
    path = url.partition(":")[2]
    return path[2:] if path.startswith("///") else path


def redacted(url: str) -> str:
    """The URL with what is secret in it hidden, for logs and messages."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or ("@" not in url and "=" not in url):
            return url
        return _without_secrets(parts)
    except ValueError:
        return url.partition(":")[0] + ":" + HIDDEN


def secrets_of(url: str) -> list[str]:
    """The secrets in a URL, as they are written and as they are meant; longest first."""
    found: set[str] = set()
    try:
        parts = urlsplit(url)
        if parts.password:
            found |= {parts.password, unquote(parts.password)}
        found |= {value for key, value in parse_qsl(parts.query) if key.lower() in _SECRETS}
    except ValueError:
        found.add(url)
    return sorted((text for text in found if text), key=len, reverse=True)


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
