"""The size of a tool's answer: a model reads all of it, so lists and texts that are too long for
its context window are cut.
"""

from __future__ import annotations

from typing import Any

from kbplanner.pacing import current_yield, paced
from kbserver.answers import Objects, written

BYTES_PER_TOKEN = 4
TRUNCATED, COUNT = "truncated", "count"
MARK = "\u2026"

ELEMENTS_PER_YIELD = 50
"""Elements written between two turns of others: about a millisecond."""


def within(answer: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    """Return an answer whose JSON has at most about `max_tokens` tokens of four bytes.

    The longest members are cut first: lists at their end, texts with a mark, and objects member by
    member. An answer that was cut has `truncated: true`, and its `count` is that of the elements
    that are left. Members that are short stay, so that an answer of many short members may be
    longer.
    """
    max_bytes = max_tokens * BYTES_PER_TOKEN
    size = len(written(answer))
    if size <= max_bytes:
        return answer
    shorter = {**_cut(answer, size - max_bytes), TRUNCATED: True}
    for name, value in answer.items():
        if isinstance(value, list | Objects) and answer.get(COUNT) == len(value):
            shorter[COUNT] = len(shorter[name])
    return shorter


def _cut(answer: dict[str, Any], excess: int) -> dict[str, Any]:
    """Return an object with some bytes less, cut from its longest members."""
    sizes = {name: len(written(value)) for name, value in answer.items()}
    shorter = dict(answer)
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if excess <= 0:
            break
        shorter[name] = _shorter(answer[name], sizes[name], excess)
        excess -= sizes[name] - len(written(shorter[name]))
    return shorter


def _shorter(value: Any, size: int, excess: int) -> Any:
    max_bytes = max(size - excess, 0)
    if isinstance(value, str):
        text = value.encode()[:max_bytes].decode(errors="ignore")
        return text + MARK if text else ""
    if isinstance(value, dict):
        return _cut(value, excess)
    if not isinstance(value, list | Objects):
        return value
    beginning: list[Any] = []
    for each in paced(value, current_yield(), ELEMENTS_PER_YIELD):
        max_bytes -= len(written(each)) + 1
        if max_bytes < 0:
            break
        beginning.append(each)
    return beginning
