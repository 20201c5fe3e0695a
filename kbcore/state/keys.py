"""API keys of a node as they are stored: permissions and a digest.

The key itself cannot be recovered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kbcore.state.labels import NO_LABELS, Labels

READER, WRITER, ADMIN, REPLICA = "reader", "writer", "admin", "replica"

ROLES = (READER, WRITER, ADMIN, REPLICA)
"""Roles of a key: read; read and write; everything; follow the log only."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key: its name, its role, and where it is valid (`databases`, `tenants`; empty:
    everywhere).

    `digest` is the SHA-256 of the whole key in hexadecimal digits. Times are epoch milliseconds; a
    key with `expires_at` None never expires. `view` is what the key may see at most of each tenant,
    `labels` are those of what it stores.
    """

    id: str
    name: str
    role: str
    digest: str
    created_at: int
    databases: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    expires_at: int | None = None
    description: str = ""
    view: Labels = NO_LABELS
    labels: Labels = NO_LABELS

    @property
    def prefix(self) -> str:
        """The start of the key: enough to identify it, and not secret."""
        return f"kb_{self.id}"

    @property
    def limited(self) -> bool:
        """True if the key is limited to some databases or tenants."""
        return bool(self.databases or self.tenants)

    def holds(self, now: int) -> bool:
        """Return True if the key has not expired."""
        return self.expires_at is None or now < self.expires_at


class KeyRing:
    """Every key of a node by id.

    `used` stays true once there has been a key: a node is bootstrapped once.
    """

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}
        self.used = False

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, id: str) -> StoredKey | None:
        """Return a key by its id, including expired keys."""
        return self._keys.get(id)

    def all(self) -> list[StoredKey]:
        """Return every key, oldest first."""
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    def change(self, put: Iterable[StoredKey], drop: Iterable[str]) -> None:
        """Add or replace keys by id, and remove others."""
        keys = {**self._keys, **{key.id: key for key in put}}
        for id in drop:
            keys.pop(id, None)
        self._keys = keys
        self.used = True
