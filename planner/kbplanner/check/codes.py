"""The table of diagnostic codes, by code and by name."""

from __future__ import annotations

from kbplanner.check.code import Code
from kbplanner.check.error_codes import ERROR_CODES
from kbplanner.check.warning_codes import WARNING_CODES

CODES: tuple[Code, ...] = (*ERROR_CODES, *WARNING_CODES)

BY_CODE: dict[str, Code] = {each.code: each for each in CODES}
BY_NAME: dict[str, Code] = {each.name: each for each in CODES}


def code_of(text: str) -> Code | None:
    """Return a code by its code or its name, in any case; None for an unknown one."""
    return BY_CODE.get(text.upper()) or BY_NAME.get(text.lower())
