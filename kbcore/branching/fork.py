"""Which scopes there are, and whether one may be forked, compared, merged or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from kbcore.errors import AlreadyExists, InvalidInput, NotFound
from kbcore.state.tenant import ALL_SCOPES, Tenant


@dataclass(frozen=True, slots=True)
class ForkOutcome:
    """How many facts were copied; `timestamp` is the logged time in epoch milliseconds."""

    copied: int
    timestamp: int


def one_scope(name: str, scope: str | None) -> str | None:
    """A scope that may be worked on as a whole (None: the base); raises InvalidInput naming the parameter `name`."""
    if scope == ALL_SCOPES:
        raise InvalidInput.at(name, "'*' is every scope; name one")
    return scope


def check_known(tenant: Tenant, scope: str | None) -> None:
    """Raise NotFound for a named scope that was never written to and has no rules of its own."""
    if scope is not None and not _known(tenant, scope):
        raise NotFound(f"scope '{scope}' does not exist", {"scope": scope})


def check_fork(tenant: Tenant, source: str | None, target: str, overwrite: bool) -> None:
    """Raise NotFound without a source, AlreadyExists where the target is there and may not be overwritten."""
    check_known(tenant, source)
    if not overwrite and _known(tenant, target):
        raise AlreadyExists(f"scope '{target}' exists; fork with overwrite to replace it", {"scope": target})


def _known(tenant: Tenant, scope: str) -> bool:
    return tenant.partition(scope) is not None or bool(tenant.rules.of(scope))
