"""Labels that the text of facts and rules names: what they mean where the text is stored.

They obey the rules of the labels of a request: a statement has those of the request, lowered by its
own. Facts and rules are stored in groups of equal labels, in one change set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kbcore.errors import TooLarge
from kbcore.state.changes import AssertFacts, AssertRules, Change, UseLabels
from kbcore.state.facts import Fact, FactKey
from kbcore.state.labels import (
    MAX_LABEL_SETS,
    Dimensions,
    Labels,
    labels_from,
    lowered,
)
from kbcore.state.rulebook import ParsedRule
from kbplanner.ir.dimensions import Dimension, WrittenLabel
from kbplanner.ir.phrases import Declaration
from kbplanner.ir.terms import Rule
from kbplanner.pacing import YieldNow, paced
from kbplanner.syntax.diagnostics import Diagnostic, syntax_error
from kbplanner.syntax.labels import label_problem

FACTS_PER_YIELD = 500
"""Facts whose labels are read between two calls of `yield_now`: about a millisecond."""

MAX_TIMES = 64
"""Times that a text may store the same fact: each is a change of its own."""

WrittenLabels = tuple[WrittenLabel, ...]


def with_declared(dimensions: Dimensions, declarations: Iterable[Declaration]) -> Dimensions:
    """Return dimensions and those that a text declares, which come first."""
    own = {each.name: each for each in declarations if isinstance(each, Dimension)}
    return {**dimensions, **own}


def read_labels(
    written: WrittenLabels, granted: Labels, dimensions: Dimensions, kind: str = "fact"
) -> Labels:
    """Return the labels of a statement of a kind, "fact" or "rule", in a request that gives the
    labels `granted`.

    Raises RuleSyntaxError with the place of what the knowledge base does not declare, and
    Forbidden, which names the dimension, for a label above those of the request.
    """
    for label in written:
        if problem := label_problem(label, dimensions, kind):
            at = label.line, problem.start, problem.end
            error = Diagnostic(*at, problem.code, problem.message, problem.hint, "", 0)
            raise syntax_error([error])
    asked = {
        each.name: each.values[0] if dimensions[each.name].is_ordered else list(each.values)
        for each in written
    }
    return lowered(granted, labels_from(asked, dimensions, "labels"), dimensions)


class LabelReader:
    """Reads the labels of the statements of one request, which gives the labels `granted`."""

    def __init__(self, granted: Labels, dimensions: Dimensions, known: Iterable[Labels]) -> None:
        self._granted = granted
        self._dimensions = dimensions
        self._sets = set(known)
        self._read: dict[tuple[str, tuple[tuple[str, tuple[str, ...], bool], ...]], Labels] = {}

    def labels(self, written: WrittenLabels, kind: str) -> Labels:
        """Return the labels of a statement; raises what `read_labels` raises, and TooLarge for too
        many different ones.
        """
        key = kind, tuple((each.name, each.values, each.is_list) for each in written)
        labels = self._read.get(key)
        if labels is None:
            labels = read_labels(written, self._granted, self._dimensions, kind)
            self._read[key] = labels
            self._sets.add(labels)
            if labels and len(self._sets) > MAX_LABEL_SETS:
                raise TooLarge(
                    f"a tenant has at most {MAX_LABEL_SETS} different labels",
                    {"limit": "labelSets", "value": MAX_LABEL_SETS},
                )
        return labels

    def of_all(self, facts: Iterable[Fact], rules: Iterable[Rule]) -> set[Labels]:
        """Return the labels of all statements."""
        return {
            *(self.labels(fact.labels, "fact") for fact in facts),
            *(self.labels(rule.labels, "rule") for rule in rules),
        }

    def changes(
        self,
        facts: Sequence[Fact],
        rules: Sequence[Rule],
        stored: Sequence[ParsedRule],
        yield_now: YieldNow,
    ) -> tuple[Change, ...]:
        """Return the changes that store facts and rules with the labels of each.

        `stored` are the same rules with their ids. A fact that comes again follows in a round of
        its own: what is stored last is the newest. Raises TooLarge for one that comes too often.
        """
        rules_of: dict[Labels, list[ParsedRule]] = {}
        for rule, parsed in paced(zip(rules, stored, strict=True), yield_now, FACTS_PER_YIELD):
            rules_of.setdefault(self.labels(rule.labels, "rule"), []).append(parsed)
        rounds: list[dict[Labels, list[Fact]]] = []
        times: dict[FactKey, int] = {}
        for fact in paced(facts, yield_now, FACTS_PER_YIELD):
            number = times[fact.key] = times.get(fact.key, -1) + 1
            if number == MAX_TIMES:
                raise TooLarge(
                    f"a text with labels stores a fact at most {MAX_TIMES} times",
                    {"limit": "timesOfAFact", "value": MAX_TIMES},
                )
            if number == len(rounds):
                rounds.append({})
            labels = self.labels(fact.labels, "fact")
            rounds[number].setdefault(labels, []).append(without_labels(fact))
        changes: list[Change] = []
        for labels, group_of_rules in rules_of.items():
            changes += UseLabels(labels), AssertRules(tuple(group_of_rules))
        for groups in rounds:
            for labels, group in groups.items():
                changes += UseLabels(labels), AssertFacts(tuple(group))
        return tuple(changes)


def without_labels(fact: Fact) -> Fact:
    """Return a fact without the labels of its text."""
    return replace(fact, labels=()) if fact.labels else fact
