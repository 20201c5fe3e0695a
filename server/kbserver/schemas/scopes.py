"""Bodies that work on scopes, databases and tenants as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kbcore.branching.compare import ScopeDiff
from kbcore.branching.fork import ForkOutcome
from kbcore.branching.merge import MergeOutcome
from kbcore.errors import InvalidInput
from kbserver.http.request_context import NAME_RULE, is_name
from kbserver.schemas.base import Envelope
from kbserver.schemas.fields import NAME, Reader, flag, scope_to_write, takes, text
from kbserver.schemas.jsonschema import given

SOURCE_WINS = "SOURCE_WINS"

_SOURCE = ("sourceScope", "source", "scopeA")
_TARGET = ("targetScope", "target", "scopeB")


@takes(NAME)
def _name(value: Any) -> str:
    """Read a name of a database or tenant."""
    if type(value) is not str or not is_name(value):
        raise ValueError(f"is not a name: it has {NAME_RULE}")
    return value


_SCOPES: dict[str, Reader] = dict.fromkeys(_SOURCE + _TARGET, scope_to_write)

_EITHER = {"anyOf": [given(name) for name in _SOURCE + _TARGET]}

_two = Envelope("ScopeDiff", _SCOPES, more=_EITHER)
_fork = Envelope(
    "ScopeFork", {**_SCOPES, "overwrite": flag}, more={"anyOf": [given(name) for name in _TARGET]}
)
_merge = Envelope("ScopeMerge", {**_SCOPES, "strategy": text}, more=_EITHER)
_database = Envelope("NewDatabase", {"name": _name}, required=("name",))
_TENANT = ("tenantId", "id", "name")
_tenant = Envelope(
    "NewTenant", dict.fromkeys(_TENANT, _name), more={"anyOf": [given(name) for name in _TENANT]}
)


@dataclass(frozen=True, slots=True)
class TwoScopes:
    """A source and a target; None is the base."""

    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Fork:
    """A scope to copy, and the name of the copy, which may replace a scope of that name."""

    source: str | None
    target: str
    overwrite: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """A scope to take from, a scope to add to, and who decides conflicts."""

    source: str | None
    target: str | None
    strategy: str


@_two.shapes
def two_scopes(data: dict[str, Any], *, strict: bool) -> TwoScopes:
    """Read the body of /scope/diff; at least one scope is named."""
    fields = _two.load(data, strict)
    return TwoScopes(*_both(fields))


@_fork.shapes
def fork_of(data: dict[str, Any], *, strict: bool) -> Fork:
    """Read the body of /scope/fork; the target is named."""
    fields = _fork.load(data, strict)
    source, target = _first(fields, _SOURCE), _first(fields, _TARGET)
    if target is None:
        raise InvalidInput.at("targetScope", "is required")
    return Fork(source, target, fields.get("overwrite", False))


@_merge.shapes
def merge_of(data: dict[str, Any], *, strict: bool) -> Merge:
    """Read the body of /scope/merge; at least one scope is named."""
    fields = _merge.load(data, strict)
    return Merge(*_both(fields), fields.get("strategy", SOURCE_WINS))


def shown_fork(asked: Fork, outcome: ForkOutcome) -> dict[str, Any]:
    """Say how much was copied."""
    return {"copied": outcome.copied, "sourceScope": asked.source, "targetScope": asked.target}


def shown_merge(outcome: MergeOutcome) -> dict[str, Any]:
    """Say what a merge added, and how many conflicts were decided."""
    return {
        "merged": outcome.merged,
        "conflictsResolved": outcome.conflicts,
        "conflicts": outcome.conflicts,
        "strategy": outcome.strategy,
        "timestamp": outcome.timestamp,
    }


def diff_counts(fields: ScopeDiff) -> dict[str, int]:
    """Return the counts of common and of different facts of two scopes."""
    changed = len(fields.modified)
    return {
        "inBoth": fields.unchanged + changed,
        "conflicts": changed,
        "unchanged": fields.unchanged,
    }


@_database.shapes
def new_database(data: dict[str, Any], *, strict: bool) -> str:
    """Read the body that creates a database: its name."""
    name: str = _database.load(data, strict)["name"]
    return name


@_tenant.shapes
def new_tenant(data: dict[str, Any], *, strict: bool) -> str:
    """Read the body that creates a tenant: its id, as `tenantId`, `id` or `name`."""
    fields = _tenant.load(data, strict)
    for spelling in _TENANT:
        if spelling in fields:
            name: str = fields[spelling]
            return name
    raise InvalidInput.at("tenantId", "is required")


def _both(fields: Mapping[str, Any]) -> tuple[str | None, str | None]:
    source, target = _first(fields, _SOURCE), _first(fields, _TARGET)
    if source is None and target is None:
        raise InvalidInput.at(
            "sourceScope", "or targetScope is required; null is the base, but not for both"
        )
    return source, target


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The value of the first spelling given; different values under two spellings are refused."""
    values = {name: fields[name] for name in names if name in fields}
    if len(set(values.values())) > 1:
        one, other, *_ = values
        raise InvalidInput.at(other, f"says something else than {one}")
    return next(iter(values.values()), None)
