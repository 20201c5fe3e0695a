"""Decoder of bytecode for the reference engine."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kbplanner.compile.bytecode import KIND_OF, MAGIC, NO_SLOT, VERSION, Opcode
from kbplanner.errors import EngineFault

READS = (Opcode.SCAN, Opcode.PROBE, Opcode.MEMBER, Opcode.AGGREGATE)
"""Steps that read with a view."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One version of a rule: its number and the words of its steps."""

    number: int
    steps: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Component:
    """Rules that run in rounds, and the slots they read with a view."""

    recursive: bool
    rules: tuple[Rule, ...]
    reads: tuple[int, ...]


@dataclass(slots=True)
class ReferencePlan:
    """Decoded bytecode. `keys` has the columns of the keys of relations that keep first rows."""

    arities: list[int]
    derived: list[bool]
    params: int
    registers: int
    seed: int | None
    answer: int
    best: list[str | None]
    keys: list[int]
    components: list[Component] = field(default_factory=list)
    sensitive: set[int] = field(default_factory=set)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


_KIND = {kind: function for function, kind in KIND_OF.items()}
_FIXED = {Opcode.COMPARE: 4, Opcode.COPY: 3, Opcode.EQUAL: 3, Opcode.TEST: 4}
_HEADER = {Opcode.SCAN: 3, Opcode.PROBE: 3, Opcode.MEMBER: 3, Opcode.ABSENT: 2, Opcode.EMIT: 2}


def decode(words: array[int]) -> ReferencePlan:
    """Decode bytecode of this planner; raises EngineFault for another version."""
    magic, version, slots, params, registers, parts, seed, answer = words[:8]
    if (magic, version) != (MAGIC, VERSION):
        raise EngineFault("not bytecode of this version")
    shapes = words[8 : 8 + 2 * slots]
    plan = ReferencePlan(
        list(shapes[::2]),
        [bool(kind) for kind in shapes[1::2]],
        params,
        registers,
        None if seed == NO_SLOT else seed,
        answer,
        [_KIND.get(min(kind, KIND_OF["first"])) for kind in shapes[1::2]],
        [max(kind - KIND_OF["first"], 0) for kind in shapes[1::2]],
    )
    at = 8 + 2 * slots
    for _ in range(parts):
        _, recursive, rules = words[at : at + 3]
        at += 3
        decoded = []
        for _ in range(rules):
            _, number, length = words[at : at + 3]
            decoded.append(Rule(number, tuple(_steps(words, at + 3, length, plan.arities))))
            at += 3 + length
        reads = {step[1]: None for rule in decoded for step in rule.steps if step[0] in READS}
        plan.components.append(Component(bool(recursive), tuple(decoded), tuple(reads)))
    plan.sensitive = _sensitive(plan)
    return plan


def _steps(
    words: array[int], at: int, length: int, arities: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    end = at + length
    while at < end:
        opcode = Opcode(words[at])
        if opcode == Opcode.INTERSECT:  # the rows of the first, each tested in the second
            middle = at + 3 + arities[words[at + 1]]
            size = 2 + arities[words[middle]]
            yield (Opcode.PROBE, *words[at + 1 : middle])
            yield (Opcode.MEMBER, *words[middle : middle + size])
            at = middle + size
            continue
        if opcode in _FIXED:
            size = _FIXED[opcode]
        elif opcode == Opcode.AGGREGATE:
            arity = arities[words[at + 1]]
            size = 4 + arity + 3 * words[at + 3 + arity]
        elif opcode in (Opcode.CALL, Opcode.MATCHES, Opcode.CAPTURE, Opcode.GENERATE):
            size = 4 + words[at + 3]
        else:
            size = _HEADER[opcode] + arities[words[at + 1]]
        yield tuple(words[at : at + size])
        at += size


def _sensitive(plan: ReferencePlan) -> set[int]:
    feeds: dict[int, set[int]] = {}
    slots: set[int] = set()
    best = {slot for slot, word in enumerate(plan.best) if word in ("min", "max")}
    for component in plan.components:
        own = {rule.steps[-1][1] for rule in component.rules}
        for rule in component.rules:
            target = rule.steps[-1][1]
            for step in rule.steps:
                is_read = step[0] in READS or step[0] == Opcode.ABSENT
                if is_read and step[1] in best and not (target in best and step[1] in own):
                    slots.add(step[1])  # what is concluded from a replaced row would stay
                if is_read:
                    feeds.setdefault(target, set()).add(step[1])
                if step[0] in (Opcode.ABSENT, Opcode.AGGREGATE):
                    slots.add(step[1])
    todo = list(slots)
    while todo:
        for slot in feeds.get(todo.pop(), ()):
            if slot not in slots:
                slots.add(slot)
                todo.append(slot)
    return {slot for slot in slots if not plan.derived[slot]}
