"""Sizes of stored texts, which the quota TENANT_MAX_BYTES counts beside the memory of the engine.

Rules, episodes and subscriptions share this measure, so that their totals can be added.
"""

from __future__ import annotations

ENTRY_BYTES = 256
"""Approximate size of a rule, phrase, episode or subscription without its texts."""


def entry_bytes(*texts: str | None) -> int:
    """Return the approximate size of a stored entry with these texts, in bytes."""
    return ENTRY_BYTES + sum(
        len(text.encode("utf-8", "surrogatepass")) for text in texts if text is not None
    )
