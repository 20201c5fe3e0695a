"""Results of administration: databases and API keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbtypes.records import TIME, Record, member


@dataclass(frozen=True, slots=True)
class DatabaseInfo(Record):
    """A database, the numbers of its tenants and facts, and when it was created.

    `created_at` is in epoch milliseconds.
    """

    name: str
    tenants: int
    facts: int
    created_at: int = field(metadata=TIME)


@dataclass(frozen=True, slots=True)
class ApiKey(Record):
    """An API key. `key` is its secret, which only the answer to its creation has.

    `role` is `reader`, `writer`, `admin` or `replica`. It is valid in `databases` and `tenants`, or
    everywhere if they are empty. Times are in epoch milliseconds; `expires_at` is None for a key
    that does not expire.
    """

    id: str
    name: str
    role: str
    databases: tuple[str, ...]
    tenants: tuple[str, ...]
    description: str
    created_at: int = field(metadata=TIME)
    expires_at: int | None = field(metadata=TIME)
    is_expired: bool = field(default=False, metadata=member("expired"))
    key: str | None = field(default=None, repr=False)
