"""Storage URLs: `wal:FOLDER`, `sqlite:FILE`, `postgresql://...`, or `NAME:...` of a plugin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, unquote_plus

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:@/?#,\[\]]*)(?::[0-9]*)?"
_NETWORK_URL = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^@/]*)@)?({_HOST}(?:,{_HOST})*)"
    r"(/[^@?#]*|)(?:\?([^@#]*))?(#[^@]*)?"
)
_BAD_ESCAPE = re.compile(r"%(?!(?!00)[0-9A-Fa-f]{2})")
_HAS_AUTHORITY = re.compile(r"//[^/]")
_USER = re.compile(r"[\w.%+-]*")
_SECRET_NAME = re.compile(r"(?i)pass|pwd|secret|token|key|auth|cred|sig")
"""Parts of names of parameters whose values are not shown."""

_DELIMITER = re.compile(r"[:/@?#&=,\s]+")
_FILE_SCHEMES = frozenset(("wal", "sqlite", "duckdb", "file", "memory"))
_TOKEN_SCHEMES = frozenset(("http", "https"))
"""Schemes whose user may be a token."""

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
    """Return the URL with its secrets hidden, for logs and messages.

    A text that is no well-formed URL, and may have a secret in any part of it, is hidden whole
    except for its scheme. User, path and other parameters of a well-formed one are shown.
    """
    parts = _network_parts(url)
    if parts is not None:
        return parts.shown()
    scheme, colon, rest = url.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        return HIDDEN if _may_have_secret(url) else url
    is_file = scheme.lower() in _FILE_SCHEMES and not _HAS_AUTHORITY.match(rest)
    if is_file:
        return f"{scheme}:{HIDDEN}" if _may_have_secret(rest.partition("?")[2]) else url
    if not (_may_have_secret(rest) or ":" in rest or rest.startswith("//")):
        return url
    return f"{scheme}:{HIDDEN}"


def secrets_of(url: str) -> list[str]:
    """Return the secrets in a URL, both percent-encoded and decoded, longest first.

    These are all its parts if it is not well-formed, because a driver may quote any of them.
    """
    parts = _network_parts(url)
    if parts is not None:
        secrets = parts.secrets()
    elif redacted(url) == url:
        return []
    else:
        rest = url.partition(":")[2]
        logins = [rest[: at.start()] for at in re.finditer("@", rest)]
        secrets = [url, rest, *_DELIMITER.split(rest)]
        secrets += [login.lstrip("/").partition(":")[2] for login in logins]
    texts = {form for text in secrets for form in (text, unquote(text), unquote_plus(text))}
    return sorted((text for text in texts if text), key=len, reverse=True)


def is_well_formed(url: str) -> bool:
    """Return True if user, password, hosts, path and parameters of a URL can be told apart."""
    return _network_parts(url) is not None


NOT_WELL_FORMED = (
    "user, password and hosts cannot be told apart; percent-encode other characters in user and"
    " password, such as %2F for / and %40 for @"
)
"""YieldNow of a message about a URL that is not well-formed."""


@dataclass(frozen=True, slots=True)
class _NetworkParts:
    """The parts of `SCHEME://USER:PASSWORD@HOSTS/PATH?QUERY`; `login` is None without an `@`."""

    scheme: str
    login: str | None
    hosts: str
    path: str
    query: str | None
    has_fragment: bool

    def shown(self) -> str:
        """Return the URL without secrets."""
        login = ""
        if self.login is not None:
            user, colon, _ = self.login.partition(":")
            is_name = _USER.fullmatch(user) and self.scheme.lower() not in _TOKEN_SCHEMES
            login = (user if is_name else HIDDEN) + (f":{HIDDEN}" if colon else "") + "@"
        query = "" if self.query is None else "?" + "&".join(map(_shown_parameter, self._items()))
        fragment = f"#{HIDDEN}" if self.has_fragment else ""
        return f"{self.scheme}://{login}{self.hosts}{self.path}{query}{fragment}"

    def secrets(self) -> list[str]:
        """Return the password and the values of parameters that are not shown, as written."""
        user, colon, password = (self.login or "").partition(":")
        values = [item.partition("=")[2] or item for item in self._items() if _is_secret(item)]
        is_token = self.scheme.lower() in _TOKEN_SCHEMES
        return [*values, *([password] if colon else ()), *([user] if is_token else ())]

    def _items(self) -> list[str]:
        return (self.query or "").split("&")


def _network_parts(url: str) -> _NetworkParts | None:
    """Return the parts of a URL with `//`; None if an unescaped character may belong to a password.

    As in libpq, the login ends at the first `@` before a slash. Another `@` after it, or a port
    that is no number, shows that the password had characters that need percent-encoding.
    """
    matched = _NETWORK_URL.fullmatch(url)
    if matched is None:
        return None
    scheme, login, hosts, path, query, fragment = matched.groups()
    if _BAD_ESCAPE.search(login or ""):  # a driver would quote it
        return None
    return _NetworkParts(scheme, login, hosts, path, query, fragment is not None)


def _is_secret(item: str) -> bool:
    name, equals, _ = item.partition("=")
    return bool(item) and (not equals or _SECRET_NAME.search(unquote(name)) is not None)


def _shown_parameter(item: str) -> str:
    if not _is_secret(item):
        return item
    name, equals, _ = item.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN


def _may_have_secret(text: str) -> bool:
    return "@" in text or ("=" in text and _SECRET_NAME.search(unquote(text)) is not None)
