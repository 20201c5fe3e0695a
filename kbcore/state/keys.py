"""The keys of a node as they are stored: what each may do, and a digest of it; no key can be read back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

READER, WRITER, ADMIN, REPLICA = "reader", "writer", "admin", "replica"

ROLES = (READER, WRITER, ADMIN, REPLICA)
"""What a key may do: read; write besides; everything; follow the log and nothing else."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key: who has it, its role, and where it holds (`databases`, `tenants`; empty: everywhere).

    `digest` is the SHA-256 of the whole key in hexadecimal digits. Times are epoch milliseconds; `expires_at` None: never.
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

    @property
    def prefix(self) -> str:
        """How the key begins: enough to tell it from others, and no secret."""
        return f"kb_{self.id}"

    @property
    def limited(self) -> bool:
        """Whether there is a database or tenant where it does not hold."""
        return bool(self.databases or self.tenants)

    def holds(self, now: int) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


class KeyRing:
    """Every key of a node by its id. `used` stays true once there has been one: a node is bootstrapped once."""

    def __init__(self) -> None:
        self._keys: dict[str, StoredKey] = {}
        self.used = False

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, id: str) -> StoredKey | None:
        """A key by its id, expired ones too."""
        return self._keys.get(id)

    def all(self) -> list[StoredKey]:
        """Every key, the oldest first."""
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    def change(self, put: Iterable[StoredKey], drop: Iterable[str]) -> None:
        """Take keys in, or in place of those with their ids, and let others go."""
        keys = {**self._keys, **{key.id: key for key in put}}
        for id in drop:
            keys.pop(id, None)
        self._keys = keys
        self.used = True
