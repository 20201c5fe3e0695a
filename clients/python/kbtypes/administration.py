"""Results of administration: databases and API keys."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbtypes.results import Json


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A database, the numbers of its tenants and facts, and when it was created.

    `created_at` is in epoch milliseconds.
    """

    name: str
    tenants: int
    facts: int
    created_at: int

    @classmethod
    def of(cls, answer: Json) -> DatabaseInfo:
        """Return the database that an answer describes."""
        return cls(answer["name"], answer["tenants"], answer["facts"], answer["createdAt"])


@dataclass(frozen=True, slots=True)
class ApiKey:
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
    created_at: int
    expires_at: int | None
    is_expired: bool = False
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, answer: Json) -> ApiKey:
        """Return the key that an answer describes."""
        return cls(
            answer["id"],
            answer["name"],
            answer["role"],
            tuple(answer["databases"]),
            tuple(answer["tenants"]),
            answer["description"],
            answer["createdAt"],
            answer["expiresAt"],
            bool(answer.get("expired")),
            answer.get("key"),
        )
