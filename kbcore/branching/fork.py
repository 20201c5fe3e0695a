"""Checks before a scope is forked, compared, merged or dropped."""

from __future__ import annotations

from kbcore.errors import AlreadyExists, InvalidInput, NotFound
from kbcore.state.tenant import ALL_SCOPES, Tenant


def one_scope(name: str, scope: str | None) -> str | None:
    """Return a single scope (None: the base).

    Raises InvalidInput naming the parameter `name` for `*`.
    """
    if scope == ALL_SCOPES:
        raise InvalidInput.at(name, "'*' is every scope; name one")
    return scope


def check_known(tenant: Tenant, scope: str | None) -> None:
    """Raise NotFound for a named scope that was never written to and has no rules."""
    if scope is not None and not _exists(tenant, scope):
        raise NotFound(f"scope '{scope}' does not exist", {"scope": scope})


def check_fork(tenant: Tenant, source: str | None, target: str, overwrite: bool) -> None:
    """Raise NotFound if the source does not exist, AlreadyExists if the target does and `overwrite`
    is False.
    """
    check_known(tenant, source)
    if not overwrite and _exists(tenant, target):
        raise AlreadyExists(
            f"scope '{target}' exists; fork with overwrite to replace it", {"scope": target}
        )


def _exists(tenant: Tenant, scope: str) -> bool:
    return tenant.partition(scope) is not None or bool(tenant.rules.of(scope))
