"""Characters that show nothing: a text can hide words from a search, or instructions from people,
with them.
"""

from __future__ import annotations

import re

_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Zero width characters, controls of the direction, fillers, variants of glyphs, and tags; not
those that choose between an emoji and a letter.
"""

_JOINERS = "\u200c\u200d"
"""Characters that say how letters are joined, and join emoji."""

_INVISIBLE = re.compile(f"[{_HIDDEN}]")
_EVERY = re.compile(f"[{_HIDDEN}{_JOINERS}]")
_JOINED = "[\u0590-\u200b\u200e-\U0010ffff]"
"""Letters of the scripts that have joiners, and emoji."""

_JOINING = re.compile(f"(?<={_JOINED})([{_JOINERS}])[{_JOINERS}]*(?={_JOINED})|[{_JOINERS}]+")


def visible(text: str) -> str:
    """Return a text without invisible characters; joiners stay where letters or emoji need them."""
    if text.isascii():
        return text
    return _JOINING.sub(lambda joiner: joiner[1] or "", _INVISIBLE.sub("", text))


def without_invisible(text: str) -> str:
    """Return a text without invisible characters and joiners."""
    return text if text.isascii() else _EVERY.sub("", text)
