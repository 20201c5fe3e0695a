"""Context window: the facts for a prompt, in order, and the omitted facts."""

from __future__ import annotations

from kbtypes.windows import Entry, Provenance

GOAL_RELEVANT = "goal_relevant"
INFERRED = "inferred"
CONSOLIDATED = "consolidated"
EPHEMERAL = "ephemeral"
RECENT = "recent"
ASSERTED = "asserted"
OVERFLOW = "overflow"


ABSENCE = "negation as failure"
"""Rule text in the provenance of a negated goal that holds because its opposite cannot be
derived.
"""

UNPROVED = Provenance("", ())
"""Provenance of a conclusion whose proof exceeds the limits of the request."""

OTHER, VIOLATION = "other", "violation"
"""Roles of entries without a goal that do not match the query (MATCH): they fill the window, or
report a violation."""


SUMMARY_SUFFIX = "_consolidated"
"""The suffix of the predicate of a summary."""

QUERY = ""
"""In place of the goal of a note: the note is about the query."""


def is_absence(entry: Entry) -> bool:
    """Return whether an entry says that a fact cannot be derived."""
    return entry.provenance is not None and entry.provenance.rule == ABSENCE


def quote_part(arg: str) -> str:
    """Return an argument encoded as part of a key."""
    return arg.replace("%", "%25").replace("/", "%2F")
