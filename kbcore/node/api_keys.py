"""Keys of a node: made, shown once, judged, replaced and revoked. What is stored of one is a digest.

A key is `kb_<id>_<secret>`. The secret has 256 random bits, so that a plain SHA-256 protects it: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbcore.errors import Forbidden, InvalidInput, NotFound, TooLarge
from kbcore.state.catalog import Catalog
from kbcore.state.changes import ChangeKeys, ChangeSet
from kbcore.state.keys import ADMIN, REPLICA, ROLES, KeyRing, StoredKey

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime

MOST_KEYS = 10_000
MOST_NAMES = 1000
"""Databases, or tenants, that one key may name."""

LONGEST_NAME, LONGEST_DESCRIPTION = 128, 1024
LONGEST_DAYS = 36_500
LONGEST_OVERLAP_S = 30 * 86_400

OVERLAP_S = 3600
"""Seconds a key that is replaced goes on beside the new one, where nobody says."""

_DAY_MS = 86_400_000
_ID_BYTES, _SECRET_BYTES = 8, 32
_KEY = re.compile(r"kb_([0-9a-f]{16})_[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it was made: `secret` is the whole key, which nobody can show again."""

    key: StoredKey
    secret: str


@dataclass(frozen=True, slots=True)
class KeyWanted:
    """What is asked for: a name, a role, where it holds (empty: everywhere), in how many days it expires (None: never)."""

    name: str
    role: str
    databases: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    expires_in_days: float | None = None
    description: str = ""

    def check(self) -> None:
        """Raise InvalidInput naming the field that will not do."""
        _text("name", self.name, LONGEST_NAME, empty=False)
        _text("description", self.description, LONGEST_DESCRIPTION, empty=True)
        if self.role not in ROLES:
            raise InvalidInput.at("role", f"must be one of {', '.join(ROLES)}")
        for field, names in (("databases", self.databases), ("tenants", self.tenants)):
            if len(names) > MOST_NAMES:
                raise InvalidInput.at(field, f"has at most {MOST_NAMES} names")
            for place, name in enumerate(names):
                if not _NAME.fullmatch(name) or name in (".", ".."):
                    raise InvalidInput.at(f"{field}[{place}]", "is not a name: letters, digits and _ - . : @, 1 to 128")
        if self.role == REPLICA and (self.databases or self.tenants):
            raise InvalidInput.at("role", "replica is for the whole node: it takes no databases and no tenants")
        days = self.expires_in_days
        if days is not None and not 0 < days <= LONGEST_DAYS:
            raise InvalidInput.at("expiresInDays", f"must be over 0 and at most {LONGEST_DAYS}")


class Keys:
    """What an administrator does with keys, and what the door asks. Every change is durable when its method returns."""

    def __init__(self, runtime: Runtime, catalog: Catalog) -> None:
        self._runtime = runtime
        self._catalog = catalog

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def _ring(self) -> KeyRing:
        return self._catalog.keys

    @property
    def unused(self) -> bool:
        """Whether there never was a key, so that the first may be made with the bootstrap token."""
        return not self._ring.used

    def all(self) -> list[StoredKey]:
        """Every key, the oldest first; expired ones too, until they are revoked."""
        return self._ring.all()

    def judge(self, text: str) -> StoredKey | None:
        """The key that a text is, None where it is none, or has expired or been revoked.

        It is found by the id in it and compared by its digest, in a time that does not depend on where they differ.
        """
        matched = _KEY.fullmatch(text)
        if matched is None:
            return None
        known = self._ring.get(matched[1])
        right = hmac.compare_digest(digest_of(text), _NO_DIGEST if known is None else known.digest)
        if not right or known is None:
            return None
        return known if known.expires_at is None or known.holds(self._runtime.clock.now_ms()) else None

    def current(self, id: str) -> bool:
        """Whether a key that was judged once still holds."""
        known = self._ring.get(id)
        return known is not None and known.holds(self._runtime.clock.now_ms())

    def create(self, wanted: KeyWanted, *, first: bool = False) -> NewKey:
        """Make a key; raises InvalidInput and TooLarge, and Forbidden for a `first` one where there has been another."""
        wanted.check()
        made = self._made(wanted)

        def check() -> None:
            if first and not self.unused:
                raise Forbidden("the first key has been made; an admin key makes more")
            self._room()

        self._change(ChangeKeys(put=(made.key,)), check)
        return made

    def revoke(self, id: str) -> StoredKey:
        """Let a key go, at once; gives what it was. Raises NotFound."""
        gone: list[StoredKey] = []
        self._change(ChangeKeys(drop=(id,)), lambda: gone.append(self._known(id)))
        return gone[-1]

    def rotate(self, id: str, overlap_s: float = OVERLAP_S) -> NewKey:
        """Make a key that may do what another may, which goes on for `overlap_s` seconds (0: is revoked). Raises NotFound.

        The new one expires so long from now as the old one was made for.
        """
        if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
            raise InvalidInput.at("overlapSeconds", f"must be 0 to {LONGEST_OVERLAP_S}")
        old = self._known(id)
        now = self._runtime.clock.now_ms()
        expires = None if old.expires_at is None else now + old.expires_at - old.created_at
        made = _fresh(replace(old, created_at=now, expires_at=expires))
        end = now + int(overlap_s * 1000)
        if overlap_s and (old.expires_at is None or end < old.expires_at):
            change = ChangeKeys(put=(made.key, replace(old, expires_at=end)))
        else:
            change = ChangeKeys(put=(made.key,), drop=() if overlap_s else (id,))

        def check() -> None:
            if self._known(id) != old:
                raise NotFound("the key was changed meanwhile", {"id": id})
            self._room()

        self._change(change, check)
        return made

    def _made(self, wanted: KeyWanted) -> NewKey:
        now = self._runtime.clock.now_ms()
        days = wanted.expires_in_days
        expires = None if days is None else now + max(1, int(days * _DAY_MS))
        return _fresh(
            StoredKey(
                *("", wanted.name, wanted.role, "", now),
                databases=tuple(dict.fromkeys(wanted.databases)),
                tenants=tuple(dict.fromkeys(wanted.tenants)),
                expires_at=expires,
                description=wanted.description,
            )
        )

    def _known(self, id: str) -> StoredKey:
        found = self._ring.get(id)
        if found is None:
            raise NotFound("no such key", {"id": id[:LONGEST_NAME]})
        return found

    def _room(self) -> None:
        if len(self._ring) >= MOST_KEYS:
            raise TooLarge(f"a node has at most {MOST_KEYS} keys; revoke some", {"limit": "keys", "value": MOST_KEYS})

    def _change(self, change: ChangeKeys, check: Callable[[], None]) -> None:
        self._runtime.commit(ChangeSet("", "", (change,), check))


def first_admin(name: str, description: str = "") -> KeyWanted:
    """What the first key of a node is: an admin's, everywhere, without an end."""
    return KeyWanted(name, ADMIN, description=description)


def digest_of(text: str) -> str:
    """The SHA-256 of a key, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def same(text: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not depend on where they differ."""
    return hmac.compare_digest(digest_of(text), digest_of(other))


def _fresh(key: StoredKey) -> NewKey:
    id = secrets.token_hex(_ID_BYTES)
    secret = f"kb_{id}_{secrets.token_hex(_SECRET_BYTES)}"
    return NewKey(replace(key, id=id, digest=digest_of(secret)), secret)


def _text(field: str, value: str, longest: int, *, empty: bool) -> None:
    if not (empty or value) or len(value) > longest or not value.isprintable():
        raise InvalidInput.at(field, f"must have {0 if empty else 1} to {longest} printable characters")

