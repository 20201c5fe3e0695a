"""The expected confidence of conclusions, computed by trying every rule instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from kbplanner.ir.terms import Atom, Rule
from support import naive

FOREVER = 1 << 62


@dataclass
class Told:
    """The attributes of an asserted fact; `start` 0 and `end` FOREVER where it says nothing."""

    confidence: float | None = None
    start: int = 0
    end: int = FOREVER


@dataclass
class Oracle:
    """The confidence and the window of every fact of the model of some rules over facts that all
    hold now.
    """

    rules: list[Rule]
    facts: dict[Atom, Told]
    model: naive.Model = field(init=False)

    def __post_init__(self) -> None:
        self.model = naive.model(self.rules, self.facts)
        self.instances = [
            (r, *found) for r in self.rules for found in naive.instances(r, self.model)
        ]

    def _best(self, own, step, better):
        """The fixpoint of values: `own` for told facts (None: no value), `step` from a rule's
        instance.
        """
        values = {
            atom: value for atom in self.facts if (value := own(self.facts[atom])) is not None
        }
        changed = True
        while changed:
            changed = False
            for rule, head, members, absent in self.instances:
                found = [self._member(rule, choices, values, step, better) for choices in members]
                if None not in found:
                    value = step(rule, found, absent)
                    if value is not None and (head not in values or better(value, values[head])):
                        values[head] = value
                        changed = True
        return values

    def _member(self, rule, choices, values, step, better):
        """The best of the choices there are for one thing an instance depends on."""
        best = None
        for facts in choices:
            if all(fact in values for fact in facts):
                value = (
                    values[facts[0]]
                    if len(facts) == 1
                    else step(rule, [values[fact] for fact in facts], False)
                )
                if best is None or better(value, best):
                    best = value
        return best

    def confidences(self) -> dict[Atom, float | None]:
        def factor(rule: Rule) -> float:
            return 1.0 if rule.confidence is None else rule.confidence

        best = self._best(
            lambda told: 1.0 if told.confidence is None else told.confidence,
            lambda rule, values, absent: min([factor(rule), *values]),
            lambda new, old: new > old,
        )
        carried = {atom for atom, told in self.facts.items() if told.confidence is not None}
        grown = True
        while grown:
            more = {
                head
                for rule, head, members, _ in self.instances
                if rule.confidence is not None
                or any(carried.intersection(f) for choices in members for f in choices)
            }
            grown = not more <= carried
            carried |= more
        return {atom: value if atom in carried else None for atom, value in best.items()}

    def windows(self) -> dict[Atom, tuple[int, int, bool]]:
        """Start and end of each fact's best window, and whether a proof with this window depends on
        no absence.
        """
        ends = self._best(
            lambda told: told.end,
            lambda rule, values, absent: min([FOREVER, *values]),
            lambda new, old: new > old,
        )
        found = {}
        starts = {
            last: self._best(
                lambda told, last=last: told.start if told.end >= last else None,
                lambda rule, values, absent: max([0, *values]),
                lambda new, old: new < old,
            )
            for last in set(ends.values())
        }
        for atom, end in ends.items():
            start = starts[end][atom]
            firm = self._best(
                lambda told, start=start, end=end: (
                    True if told.start <= start and told.end >= end else None
                ),
                lambda rule, values, absent: None if absent else True,
                lambda new, old: False,
            )
            found[atom] = (start, end, atom in firm)
        return found
