"""Scopes, databases and tenants as a whole: bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kbcore.branching.compare import ScopeDiff
from kbcore.errors import InvalidInput
from kbcore.kb.scopes import SOURCE_WINS
from kbserver.http.request_context import DEFAULT
from kbserver.schemas.base import Answer, Body, JsonObject, present
from kbserver.schemas.facts import Row
from kbserver.schemas.fields import Count, Flag, Json, Many, Name, One, Text, Time, WriteScope

_SOURCE = ("sourceScope", "source", "scopeA")
_TARGET = ("targetScope", "target", "scopeB")
_TENANT = ("tenantId", "id", "name")


class ScopeDiffBody(Body):
    """A source and a target, of which at least one is named.

    Null is the base, and so is the name `default`: published clients send it.
    """

    source_scope = WriteScope()
    source = WriteScope()
    scope_a = WriteScope()
    target_scope = WriteScope()
    target = WriteScope()
    scope_b = WriteScope()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _SOURCE + _TARGET]}

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.diff_scopes`."""
        source, target = self.value_of(fields, _SOURCE), self.value_of(fields, _TARGET)
        if source is None and target is None:
            raise InvalidInput.at(
                "sourceScope", "or targetScope is required; null is the base, but not for both"
            )
        return {"source": source, "target": target}

    def value_of(self, fields: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
        """Return the value of the first spelling that is given.

        Raises InvalidInput for different values under two spellings.
        """
        names = {key: self._fields[key][0] for key in keys}
        values = {key: fields[name] for key, name in names.items() if name in fields}
        if len(set(values.values())) > 1:
            first, other, *_ = values
            raise InvalidInput.at(other, f"says something else than {first}")
        name = next(iter(values.values()), None)
        return None if name == DEFAULT else name


class ScopeForkBody(ScopeDiffBody):
    """A scope to copy, and the name of the copy."""

    overwrite = Flag()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _TARGET]}

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.fork_scope`."""
        source, target = self.value_of(fields, _SOURCE), self.value_of(fields, _TARGET)
        if target is None:
            raise InvalidInput.at("targetScope", "is required")
        return {"source": source, "target": target, "overwrite": fields.get("overwrite", False)}


class ScopeMergeBody(ScopeDiffBody):
    """A scope to merge, the scope to merge into, and the strategy for conflicts."""

    strategy = Text()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.merge_scope`."""
        return {**super().arguments(fields), "strategy": fields.get("strategy", SOURCE_WINS)}


class NewDatabaseBody(Body):
    """A database to create."""

    name = Name(required=True)


class NewTenantBody(Body):
    """A tenant to create: its id under one of three keys."""

    tenant_id = Name()
    id = Name()
    name = Name()

    requires: ClassVar[Json] = {"anyOf": [present(key) for key in _TENANT]}

    def arguments(self, fields: Json) -> Json:
        """Return the id."""
        for name in ("tenant_id", "id", "name"):
            if name in fields:
                return {"tenant": fields[name]}
        raise InvalidInput.at("tenantId", "is required")


class Forked(JsonObject):
    """The outcome of a fork."""

    copied = Count()
    source_scope = Text(allow_none=True)
    target_scope = Text()


class Merged(Answer):
    """The outcome of a merge."""

    merged = Count()
    conflicts_resolved = Count(of="conflicts")
    conflicts = Count()
    strategy = Text()
    timestamp = Time()


class ModifiedFact(JsonObject):
    """A fact that both scopes have, with different attributes."""

    before = One(Row)
    after = One(Row)


class Compared(JsonObject):
    """The differences of two scopes."""

    added = Many(Row)
    removed = Many(Row)
    modified = Many(ModifiedFact)
    only_in_a = Many(Row)
    only_in_b = Many(Row)
    in_both = Count()
    conflicts = Count()
    unchanged = Count()


class Dropped(JsonObject):
    """A deleted scope."""

    deleted = Count("Facts that were deleted.")
    scope = Text()


class Scopes(JsonObject):
    """The scopes of a tenant."""

    scopes = Many(Text())
    count = Count()


class Database(Answer):
    """A database."""

    name = Text()
    is_multi_tenant = Flag(of=lambda database: True)
    tenants = Count()
    facts = Count()
    created_at = Time(allow_none=True)


def diff_counts(diff: ScopeDiff) -> dict[str, int]:
    """Return the counts of common and of different facts of two scopes."""
    changed = len(diff.modified)
    return {"inBoth": diff.unchanged + changed, "conflicts": changed, "unchanged": diff.unchanged}
