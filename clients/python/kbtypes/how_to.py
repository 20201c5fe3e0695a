"""Changes that would make a goal true or false: sets of facts to add and to remove."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbtypes import markup
from kbtypes.records import Record, member


@dataclass(frozen=True, slots=True)
class HowToProposal(Record):
    """Facts to add and to remove, as atoms in the rule language; no part of them is enough."""

    add: tuple[str, ...]
    remove: tuple[str, ...]

    def __str__(self) -> str:
        parts = [f"add {atom}" for atom in self.add] + [f"remove {atom}" for atom in self.remove]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class HowTo(Record):
    """Changes of stored facts that would make a goal true or false, the smallest first.

    `make` is the truth value asked for, `truth` the present one: "true", "false" or "undefined". A
    goal that already has the value has no proposals. `truncated` says that a limit ended the
    search: there may be other proposals, perhaps smaller ones.
    """

    goal: str
    make: str
    truth: str
    proposals: tuple[HowToProposal, ...] = field(
        metadata=member(about="The smallest first, then by text.")
    )
    truncated: bool = field(metadata=member(about="A limit ended the search."))

    @property
    def text(self) -> str:
        """The proposals in words."""
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        """Return the proposals for notebooks."""
        return markup.lines(_lines(self))


def _lines(result: HowTo) -> Iterator[str]:
    if result.truth == result.make:
        yield f"{result.goal} is {result.make} already."
        return
    if not result.proposals:
        yield (
            f"The search was stopped by its limits before it found what makes {result.goal} "
            f"{result.make}."
            if result.truncated
            else f"No change of at most 3 facts makes {result.goal} {result.make}."
        )
        return
    yield f"{result.goal} would be {result.make} after one of these changes:"
    yield from (f"{number}. {each}" for number, each in enumerate(result.proposals, 1))
    if result.truncated:
        yield "The search was stopped by its limits: there may be other changes."
