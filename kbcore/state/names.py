"""The rule for names of databases, tenants, scopes and sessions, the same on every way in."""

from __future__ import annotations

import re

from kbcore.errors import InvalidInput
from kbplanner.ir.limits import shortened

NAME_PATTERN = r"[A-Za-z0-9_.:@-]{1,128}"
NAME_RULE = "1 to 128 characters of letters, digits and _ - . : @, other than . and .."

_NAME = re.compile(NAME_PATTERN)


def is_name(text: str) -> bool:
    """Return True if a text is a valid name of a database, tenant, scope or session."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


def check_name(field: str, name: str) -> str:
    """Return a name; raise InvalidInput that names the field if it is not a valid name."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidInput.at(field, f"{shortened(repr(name))} is not a name: it has {NAME_RULE}")
    return name
