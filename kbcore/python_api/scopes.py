"""Scopes of a knowledge base: fork, compare, merge, drop."""

from __future__ import annotations

from kbcore.operations.scopes import SOURCE_WINS
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import named
from kbtypes.results import ForkOutcome, MergeOutcome, ScopeDiff


class PythonScopes(PythonHandle):
    """Operations on whole scopes; None is the base. Transactions do not support them."""

    def scopes(self) -> list[str]:
        """Return the names of the scopes, sorted."""
        return self.kb.scopes()

    def fork(
        self, target: str, source: str | None = None, *, overwrite: bool = False
    ) -> ForkOutcome:
        """Copy the facts and the own rules of a scope (None: the base) to a new scope."""
        with named(sourceScope="source", targetScope="target"):
            return self.kb.fork_scope(source, target, overwrite=overwrite)

    def diff(self, source: str | None, target: str | None) -> ScopeDiff:
        """Return the differences from one scope to another (None: the base)."""
        with named(sourceScope="source", targetScope="target"):
            return self.kb.diff_scopes(source, target)

    def merge(
        self, source: str | None, target: str | None = None, *, strategy: str = SOURCE_WINS
    ) -> MergeOutcome:
        """Merge the facts of a scope into another (None: the base).

        `strategy` decides conflicts.
        """
        with named(sourceScope="source", targetScope="target"):
            return self.kb.merge_scope(source, target, strategy=strategy)

    def drop_scope(self, scope: str) -> int:
        """Remove a scope with its facts and its own rules; return the number of removed facts."""
        return self.kb.drop_scope(scope)
