"""API keys of a node: creation, verification, rotation and revocation.

Only a digest of a key is stored.

A key is `kb_<id>_<secret>`. The secret has 256 random bits, so a plain SHA-256 protects it: it
cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import TYPE_CHECKING, Any

from kbcore.errors import Forbidden, InvalidInput, NotFound, TooLarge
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeKeys, ChangeSet
from kbcore.state.keys import ADMIN, READER, REPLICA, ROLES, WRITER, KeyRing, StoredKey
from kbcore.state.labels import NO_LABELS, Dimensions, Labels, from_json, narrowed

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

MAX_KEYS = 10_000
MAX_NAMES = 1000
"""Maximum number of databases, or tenants, in a key."""

MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 128, 1024
MAX_EXPIRY_DAYS = 36_500
MAX_OVERLAP_S = 30 * 86_400

OVERLAP_S = 3600
"""Default number of seconds that a replaced key stays valid beside the new one."""

_DAY_MS = 86_400_000
_ID_BYTES, _SECRET_BYTES = 8, 32
_KEY = re.compile(r"kb_([0-9a-f]{16})_[0-9a-f]{64}")
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
_VALUE = re.compile(r"[a-z][A-Za-z0-9_]{0,62}")
MAX_DIMENSIONS = 16
"""Maximum number of dimensions in the view, and in the labels, of a key."""

_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key: `secret` is the whole key, which cannot be shown again."""

    key: StoredKey
    secret: str


@dataclass(frozen=True, slots=True)
class KeyWanted:
    """A request for a key.

    Name, role, where it is valid (empty: everywhere), days until it expires (None: never), what it
    may see (`view`, such as `{"trust": "user"}`), and the labels of what it stores.
    """

    name: str
    role: str
    databases: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    expires_in_days: float | None = None
    description: str = ""
    view: Mapping[str, Any] = attribute(default_factory=dict)
    labels: Mapping[str, Any] = attribute(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidInput naming the first invalid field."""
        _text("name", self.name, MAX_NAME_CHARS, empty=False)
        _text("description", self.description, MAX_DESCRIPTION_CHARS, empty=True)
        if self.role not in ROLES:
            raise InvalidInput.at("role", f"must be one of {', '.join(ROLES)}")
        for field, names in (("databases", self.databases), ("tenants", self.tenants)):
            if len(names) > MAX_NAMES:
                raise InvalidInput.at(field, f"must have at most {MAX_NAMES} names")
            for index, name in enumerate(names):
                if not _NAME.fullmatch(name) or name in (".", ".."):
                    raise InvalidInput.at(
                        f"{field}[{index}]",
                        "must have 1 to 128 letters, digits and _ - . : @",
                    )
        if self.role == REPLICA and (self.databases or self.tenants):
            raise InvalidInput.at(
                "role",
                "must not be replica with databases or tenants: a replica follows the whole node",
            )
        for name, values in (("view", self.view), ("labels", self.labels)):
            _values(name, values)
            if values and self.role not in (READER, WRITER):
                raise InvalidInput.at(name, f"is for keys with the role {READER} or {WRITER}")
        days = self.expires_in_days
        if days is not None and not 0 < days <= MAX_EXPIRY_DAYS:
            raise InvalidInput.at("expiresInDays", f"must be over 0 and at most {MAX_EXPIRY_DAYS}")


class Keys:
    """Operations of administrators on keys, and verification.

    Changes are durable when the method returns.
    """

    def __init__(self, runtime: Runtime, catalog: Catalog) -> None:
        self._runtime = runtime
        self._catalog = catalog

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def _ring(self) -> KeyRing:
        return self._catalog.keys

    @property
    def never_used(self) -> bool:
        """True if there never was a key, so that the first may be created with the bootstrap
        token.
        """
        return not self._ring.used

    def all(self) -> list[StoredKey]:
        """Return every key, oldest first; expired keys too, until they are revoked."""
        return self._ring.all()

    def verify(self, text: str) -> StoredKey | None:
        """Return the key for a text, None if it is no key, or has expired or been revoked.

        The key is looked up by its id and compared by its digest, in constant time.
        """
        matched = _KEY.fullmatch(text)
        if matched is None:
            return None
        known = self._ring.get(matched[1])
        is_equal = hmac.compare_digest(
            digest_of(text), _NO_DIGEST if known is None else known.digest
        )
        if not is_equal or known is None:
            return None
        return (
            known if known.expires_at is None or known.holds(self._runtime.clock.now_ms()) else None
        )

    def current(self, id: str) -> bool:
        """Return True if a key that was verified before is still valid."""
        known = self._ring.get(id)
        return known is not None and known.holds(self._runtime.clock.now_ms())

    def may_see(self, owner: str, view: Labels, dimensions: Dimensions) -> bool:
        """Return True if the key with this id is valid and may see a view of a tenant.

        A name that is no id of a key, as a plugin gives it to a caller, may.
        """
        if not _KEY_ID.fullmatch(owner):
            return True
        known = self._ring.get(owner)
        if known is None or not known.holds(self._runtime.clock.now_ms()):
            return False
        try:
            seen = narrowed(known.view, view, dimensions)
        except Forbidden:
            return False
        return seen == narrowed(NO_LABELS, view, dimensions)

    def create(self, request: KeyWanted, *, first: bool = False) -> NewKey:
        """Create a key; raise InvalidInput and TooLarge, and Forbidden for a `first` key if there
        has been another.
        """
        request.check()
        new = self._new(request)

        def check() -> None:
            if first and not self.never_used:
                raise Forbidden("the first key exists already; create more with an admin key")
            self._check_capacity()

        self._change(ChangeKeys(put=(new.key,)), check)
        return new

    def revoke(self, id: str) -> StoredKey:
        """Revoke a key at once and return it. Raises NotFound."""
        revoked: list[StoredKey] = []
        self._change(ChangeKeys(drop=(id,)), lambda: revoked.append(self._known(id)))
        return revoked[-1]

    def rotate(self, id: str, overlap_s: float = OVERLAP_S) -> NewKey:
        """Create a key with the same permissions as another, which stays valid for `overlap_s`
        seconds (0: is revoked).

        The new key has the same lifetime as the old one had, from now on. Raises NotFound.
        """
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise InvalidInput.at("overlapSeconds", f"must be 0 to {MAX_OVERLAP_S}")
        old = self._known(id)
        now = self._runtime.clock.now_ms()
        expires = None if old.expires_at is None else now + old.expires_at - old.created_at
        new = _fresh(replace(old, created_at=now, expires_at=expires))
        end = now + int(overlap_s * 1000)
        if overlap_s and (old.expires_at is None or end < old.expires_at):
            change = ChangeKeys(put=(new.key, replace(old, expires_at=end)))
        else:
            change = ChangeKeys(put=(new.key,), drop=() if overlap_s else (id,))

        def check() -> None:
            if self._known(id) != old:
                raise NotFound("the key was changed at the same time; try again", {"id": id})
            self._check_capacity()

        self._change(change, check)
        return new

    def _new(self, request: KeyWanted) -> NewKey:
        now = self._runtime.clock.now_ms()
        days = request.expires_in_days
        expires = None if days is None else now + max(1, int(days * _DAY_MS))
        return _fresh(
            StoredKey(
                "",
                request.name,
                request.role,
                "",
                now,
                databases=tuple(dict.fromkeys(request.databases)),
                tenants=tuple(dict.fromkeys(request.tenants)),
                expires_at=expires,
                description=request.description,
                view=from_json(request.view),
                labels=from_json(request.labels),
            )
        )

    def _known(self, id: str) -> StoredKey:
        key = self._ring.get(id)
        if key is None:
            raise NotFound("no such key", {"id": id[:MAX_NAME_CHARS]})
        return key

    def _check_capacity(self) -> None:
        if len(self._ring) >= MAX_KEYS:
            raise TooLarge(
                f"a node has at most {MAX_KEYS} keys; revoke some",
                {"limit": "keys", "value": MAX_KEYS},
            )

    def _change(self, change: ChangeKeys, check: Callable[[], None]) -> None:
        self._runtime.commit(ChangeSet("", "", (change,), check))


def first_admin(name: str, description: str = "") -> KeyWanted:
    """Return the request for the first key of a node.

    An admin key, valid everywhere, without expiry.
    """
    return KeyWanted(name, ADMIN, description=description)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_equal(text: str, other: str) -> bool:
    """Return True if two secrets are equal, in constant time."""
    return hmac.compare_digest(digest_of(text), digest_of(other))


def _fresh(key: StoredKey) -> NewKey:
    id = secrets.token_hex(_ID_BYTES)
    secret = f"kb_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    return NewKey(replace(key, id=id, digest=digest_of(secret)), secret)


def _values(field: str, values: Mapping[str, Any]) -> None:
    """Check levels and groups by dimension; those of a tenant are known when the key is used."""
    if len(values) > MAX_DIMENSIONS:
        raise InvalidInput.at(field, f"must have at most {MAX_DIMENSIONS} dimensions")
    for name, each in values.items():
        groups = (each,) if isinstance(each, str) else each
        if not isinstance(groups, Sequence) or len(groups) > MAX_NAMES:
            raise InvalidInput.at(f"{field}.{name}", "must be a level or a list of groups")
        for text in (name, *groups):
            if not isinstance(text, str) or not _VALUE.fullmatch(text):
                raise InvalidInput.at(field, "must have names of dimensions, levels and groups")
        if field == "labels" and not groups:
            raise InvalidInput.at(f"{field}.{name}", "must have at least one group")


def _text(field: str, value: str, longest: int, *, empty: bool) -> None:
    if not (empty or value) or len(value) > longest or not value.isprintable():
        raise InvalidInput.at(
            field, f"must have {0 if empty else 1} to {longest} printable characters"
        )
