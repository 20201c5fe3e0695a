"""LangGraph's `InMemoryStore`: a namespace for each user and subject, a key for each relation.

A key is written again when its value changes, as the documentation of long-term memory does for
profiles; values that hold side by side have keys of their own.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from ..interface import NotAvailable
from ..model import Case
from .walking import Walking

MAX_ITEMS = 100_000


class LangGraphStore(Walking):
    """The store with structured facts and no index."""

    def __init__(self) -> None:
        try:
            from langgraph.store.memory import InMemoryStore
        except ImportError as error:
            raise NotAvailable("pip install langgraph") from error
        self._make: Any = InMemoryStore
        super().__init__(
            "langgraph-store", metadata.version("langgraph"), {"store": "InMemoryStore"}
        )

    def open(self, case: Case) -> None:
        """Begin with an empty store."""
        super().open(case)
        self._store = self._make()

    def put(self, user: str, subject: str, relation: str, value: str, only: bool) -> None:
        """Write the key of the relation, or of the relation and the value."""
        key = relation if only else f"{relation}/{value}"
        self._store.put((user, subject), key, {"relation": relation, "value": value})

    def values(self, user: str, subject: str, relation: str) -> set[str]:
        """Return the values of the keys of a relation."""
        items = self._store.search((user, subject), filter={"relation": relation}, limit=MAX_ITEMS)
        return {item.value["value"] for item in items}

    def subjects(self, user: str) -> set[str]:
        """Return the second parts of the namespaces of a user."""
        names = self._store.list_namespaces(prefix=(user,), limit=MAX_ITEMS)
        return {namespace[1] for namespace in names}

    def delete(self, user: str, subject: str, relation: str, value: str) -> None:
        """Delete the keys that match."""
        for item in self._store.search((user, subject), limit=MAX_ITEMS):
            is_meant = relation in ("", item.value["relation"])
            if is_meant and value in ("", item.value["value"]):
                self._store.delete((user, subject), item.key)
