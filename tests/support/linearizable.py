"""Check of recorded histories: could each operation have happened at one instant of its duration?

The object is one fact, which is stored or not. The check keeps every state that is possible after
each recorded answer (Lowe, Testing for linearizability, 2017). An operation whose outcome is
unknown may have happened at any time after its beginning, or never.
"""

from __future__ import annotations

from dataclasses import dataclass

STORE, REMOVE, READ = "store", "remove", "read"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a client; `end` is None if the outcome is unknown, `result` what was
    read.
    """

    kind: str
    begin: float
    end: float | None
    result: bool | None = None


def is_linearizable(history: list[Operation]) -> bool:
    """Return True if the operations on one fact, absent at first, have a valid order."""
    known = [
        each for each in history if each.end is not None or each.kind != READ
    ]  # a read without an answer says nothing
    events = sorted(
        [(each.begin, 0, number) for number, each in enumerate(known)]
        + [(each.end, 1, number) for number, each in enumerate(known) if each.end is not None]
    )
    open_ones: set[int] = set()
    # The state, and which of the open operations have happened.
    possible: set[tuple[bool, frozenset[int]]] = {(False, frozenset())}
    for _, is_end, number in events:
        if not is_end:
            open_ones.add(number)
            continue
        possible = {
            (state, done - {number})
            for state, done in _closure(possible, known, open_ones)
            if number in done
        }
        open_ones.discard(number)
        if not possible:
            return False
    return True


def _closure(
    possible: set[tuple[bool, frozenset[int]]], known: list[Operation], open_ones: set[int]
) -> set[tuple[bool, frozenset[int]]]:
    """Return what can be reached when open operations happen, in any order."""
    reached, waiting = set(possible), list(possible)
    while waiting:
        state, done = waiting.pop()
        for number in open_ones - done:
            operation = known[number]
            if operation.kind == READ and operation.result != state:
                continue
            after = state if operation.kind == READ else operation.kind == STORE
            following = (after, done | {number})
            if following not in reached:
                reached.add(following)
                waiting.append(following)
    return reached


__all__ = ["READ", "REMOVE", "STORE", "Operation", "is_linearizable"]
