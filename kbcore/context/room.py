"""What is in a window so far, and what still fits: facts, characters, facts of one predicate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.context.request import WindowRequest
from kbcore.context.salience import Ranked
from kbcore.context.window import Provenance
from kbcore.state.facts import Row
from kbplanner.printer import print_row

CHARS_A_TOKEN = 4
"""Characters that are taken for one token of a language model."""

FactKey = tuple[str | None, str, bool, tuple[str, ...]]
"""What makes a fact the same fact: scope, predicate, whether it is negated, arguments."""


@dataclass(slots=True, eq=False)
class Candidate:
    """A fact that may go into a window: a stored one with its `place` among the facts, or a conclusion with a provenance.

    `salience` is that of the stored fact, or of the weakest stored fact that a conclusion depends on; `lexical` says how
    well it matches the query. Once the fact is taken, `reason` says why, and `goal` whether a goal depends on it.
    `contradicted` says that the opposite is known too.
    """

    row: Row
    salience: float
    created_at: int
    place: Ranked | None = None
    provenance: Provenance | None = None
    lexical: float = 0.0
    category: str = ""
    reason: str = ""
    goal: bool = False
    contradicted: bool = False
    text: str = field(init=False)
    key: FactKey = field(init=False)

    def __post_init__(self) -> None:
        row = self.row
        self.text = print_row(row["predicate"], row["args"], row["negated"])
        self.key = (row["scope"], row["predicate"], row["negated"], tuple(row["args"]))

    @property
    def predicate(self) -> str:
        """Its predicate."""
        name: str = self.row["predicate"]
        return name


class Room:
    """A window being filled: never more facts, characters or facts of one predicate than the request allows."""

    def __init__(self, request: WindowRequest) -> None:
        self._most_facts = request.max_facts
        self._most_chars = None if request.max_tokens is None else request.max_tokens * CHARS_A_TOKEN
        self._most_alike = request.max_per_predicate
        self._alike: Counter[str] = Counter()
        self.taken: dict[FactKey, Candidate] = {}
        self.chars = 0
        self.repeats = 0
        self.cut: Counter[str] = Counter()

    @property
    def left(self) -> int:
        """How many facts there is room for, of whatever predicate and length."""
        return self._most_facts - len(self.taken)

    @property
    def facts(self) -> Iterable[Candidate]:
        """What was taken, in the order it was."""
        return self.taken.values()

    def alike_left(self, predicate: str) -> int:
        """How many facts of a predicate there is room for."""
        return self.left if self._most_alike is None else min(self.left, self._most_alike - self._alike[predicate])

    def refusal(self, facts: Sequence[Candidate]) -> str | None:
        """Why facts do not all fit: `maxFacts`, `maxFactsPerPredicate` or `maxTokens`; None where they do.

        Those that are in already take no room.
        """
        new = {fact.key: fact for fact in facts if fact.key not in self.taken}
        if len(new) > self.left:
            return "maxFacts"
        if self._most_alike is not None:
            alike = Counter(fact.predicate for fact in new.values())
            if any(count > self.alike_left(predicate) for predicate, count in alike.items()):
                return "maxFactsPerPredicate"
        if self._most_chars is not None and self.chars + sum(len(fact.text) for fact in new.values()) > self._most_chars:
            return "maxTokens"
        return None

    def take(self, fact: Candidate, category: str, reason: str) -> bool:
        """Put a fact in that fits; False where it was in already, which counts as a repetition."""
        if fact.key in self.taken:
            self.repeats += 1
            return False
        fact.category, fact.reason = category, reason
        self.taken[fact.key] = fact
        self._alike[fact.predicate] += 1
        self.chars += len(fact.text)
        return True

    def drop(self, facts: Iterable[Candidate]) -> None:
        """Take facts out again."""
        for fact in facts:
            del self.taken[fact.key]
            self._alike[fact.predicate] -= 1
            self.chars -= len(fact.text)


def tokens(chars: int) -> int:
    """The estimate of tokens for so many characters."""
    return -(-chars // CHARS_A_TOKEN)


Said = dict[str, Any]
"""Part of what a window says about how it was made."""
