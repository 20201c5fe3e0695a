"""Predicates of a knowledge base that a question can mean, and the values of their arguments.

Only what can be read in the given partitions counts: stored facts, and the rules visible there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kbcore.context.relevance.learnt_words import learnt_words
from kbcore.context.relevance.wording import MIN_NAME_CHARS, Wording, wording_of
from kbcore.context.text.memories import SAID
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.inputs import Input
from kbplanner.ir.terms import Literal, Rule, Variable
from kbplanner.syntax.constraints import CONTRADICTION, KEY
from kbtypes.windows import ADAPTER_PREDICATES

MAX_PREDICATES = 2000
"""Predicates whose words are compared with those of a question."""

MAX_ARITY = 6

MAX_VALUES = 4096
"""Facts of a predicate whose values are compared with those of another one."""

MAX_PROBES = 64
"""Values that are looked up where a predicate has more facts."""

MAX_RULE_DEPTH = 3
"""Rules that are followed from a conclusion to stored facts."""

MAX_RULES_FOLLOWED = 8
"""Rules of a predicate, and literals of a body, that are looked at."""

RULES_PER_YIELD = 1000
PREDICATES_PER_YIELD = 100
"""Rules, and predicates, looked at between two calls of `yield_now`: about a millisecond."""

_OWN = ADAPTER_PREDICATES | {SAID, CONTRADICTION}
"""Predicates that no question means: texts, data of adapters, and violations of constraints."""

Signature = tuple[str, int]


class Heads(NamedTuple):
    """The rules of a set by the predicate that they conclude, and the arguments that are its
    declared key by predicate.
    """

    rules: dict[Signature, list[Rule]]
    keys: dict[Signature, frozenset[int]]


class FactColumn(NamedTuple):
    """One argument of the stored facts of a predicate."""

    stored: StoredRelation
    position: int


_heads: WeakKeyDictionary[RuleSet, Heads] = WeakKeyDictionary()


class AskedPredicates:
    """The predicates of some partitions, for one question.

    With `at_any_time`, facts count that are not valid now. The caller holds the read lock.
    """

    def __init__(
        self,
        tenant: Tenant,
        partitions: Sequence[Partition],
        budget: Budget,
        *,
        at_any_time: bool = False,
    ) -> None:
        self._tenant = tenant
        self._partitions = partitions
        self._budget = budget
        self._hidden = at_any_time
        self._heads = [
            _heads_of(tenant.rules.visible(partition.name), budget) for partition in partitions
        ]
        self._stored: dict[Signature, list[StoredRelation]] = {}
        for partition in partitions:
            for stored in budget.paced(partition.relations(), PREDICATES_PER_YIELD):
                counts, schema = stored.relation.counts(), stored.schema
                if counts.live if at_any_time else counts.visible:
                    self._stored.setdefault((schema.predicate, schema.arity), []).append(stored)
        self._columns: dict[tuple[Signature, int], tuple[FactColumn, ...]] = {}
        self._values: dict[FactColumn, tuple[frozenset[int], bool]] = {}
        self._joined: dict[tuple[Signature, int, Signature, int], bool] = {}
        self.wordings: dict[Signature, Wording] = dict(islice(self._worded(), MAX_PREDICATES))

    @property
    def has_facts(self) -> bool:
        """True if a predicate that questions can mean has a fact."""
        return any(name not in _OWN for name, _ in self._stored)

    def _worded(self) -> Iterator[tuple[Signature, Wording]]:
        """Yield the predicates that have facts or rules, each with its words."""
        names = list(dict.fromkeys(each.name for each in self._partitions))
        phrases: dict[Signature, str] = {}
        inputs: dict[Signature, Input] = {}
        for name in names:
            templates = self._tenant.rules.templates(name)
            phrases |= {signature: each.text for signature, each in templates.items()}
            inputs |= self._tenant.rules.inputs(name)
        signatures = dict.fromkeys((*self._stored, *(s for h in self._heads for s in h.rules)))
        learnt = learnt_words(self._tenant, self._stored, self._budget)
        for signature in self._budget.paced(signatures, PREDICATES_PER_YIELD):
            name, arity = signature
            if name in _OWN or not 0 < arity <= MAX_ARITY:
                continue
            declared = inputs.get(signature)
            args = self._head_names(signature) if declared is None else declared.args
            gloss = None if declared is None else declared.gloss
            wording = wording_of(name, arity, phrases.get(signature), gloss, args)
            if signature in learnt:
                wording = replace(wording, learnt=learnt[signature])
            yield signature, wording

    def _head_names(self, signature: Signature) -> tuple[str, ...]:
        """Return the names of the variables in the head of the first rule of a predicate."""
        rules = next((h.rules[signature] for h in self._heads if signature in h.rules), ())
        for rule in rules[:1]:
            return tuple(
                arg.name if isinstance(arg, Variable) and len(arg.name) >= MIN_NAME_CHARS else ""
                for arg in rule.head.args
            )
        return ()

    def key_of(self, signature: Signature) -> frozenset[int]:
        """Return the arguments that are the declared key of a predicate; none without one."""
        return next((h.keys[signature] for h in self._heads if signature in h.keys), frozenset())

    def is_known(self, symbol: int) -> bool:
        """Return whether a constant is in a fact that can be read, or in a visible rule."""
        for relations in self._budget.paced(self._stored.values(), PREDICATES_PER_YIELD):
            for stored in relations:
                if any(self._has(stored, at, symbol) for at in range(stored.schema.arity)):
                    return True
        (text,) = self._tenant.engine.texts(array("I", [symbol]))
        visible = (self._tenant.rules.visible(each.name) for each in self._partitions)
        return any(text in rules.constants for rules in visible)

    def may_hold(self, signature: Signature, position: int, symbol: int) -> bool:
        """Return False if no fact of a predicate can have a constant at a position."""
        columns = self.columns(signature, position)
        return not columns or any(self._has(*column, symbol) for column in columns)

    def may_join(self, left: Signature, target: int, right: Signature, source: int) -> bool:
        """Return False if no value of one predicate's argument can be one of another's."""
        key = left, target, right, source
        known = self._joined.get(key)
        if known is None:
            known = self._joined[key] = self._share_values(
                self.columns(left, target), self.columns(right, source)
            )
        return known

    def _share_values(self, left: Sequence[FactColumn], right: Sequence[FactColumn]) -> bool:
        if not left or not right:
            return True
        for column in left:
            values, whole = self._values_of(column)
            for other in right:
                others, others_whole = self._values_of(other)
                if not values.isdisjoint(others):
                    return True
                if not others_whole and any(
                    self._has(*other, each) for each in islice(values, MAX_PROBES)
                ):
                    return True
                if not whole and any(
                    self._has(*column, each) for each in islice(others, MAX_PROBES)
                ):
                    return True
        return False

    def columns(
        self, signature: Signature, position: int, depth: int = MAX_RULE_DEPTH
    ) -> tuple[FactColumn, ...]:
        """Return the stored arguments from which the values of an argument come; none if that is
        not known.
        """
        key = signature, position
        if key in self._columns and depth == MAX_RULE_DEPTH:
            return self._columns[key]
        columns_of_facts = [
            FactColumn(stored, position) for stored in self._stored.get(signature, ())
        ]
        is_known = True
        for heads in self._heads if depth else ():
            for rule in heads.rules.get(signature, ())[:MAX_RULES_FOLLOWED]:
                of_rule = self._columns_in(rule, position, depth - 1)
                is_known = is_known and bool(of_rule)
                columns_of_facts += of_rule
        columns = tuple(dict.fromkeys(columns_of_facts)) if is_known else ()
        if depth == MAX_RULE_DEPTH:
            self._columns[key] = columns
        return columns

    def _columns_in(self, rule: Rule, position: int, depth: int) -> tuple[FactColumn, ...]:
        variable = rule.head.args[position]
        if isinstance(variable, Variable):
            for item in islice(rule.body, MAX_RULES_FOLLOWED):
                if isinstance(item, Literal) and not item.negated and item.atom.positive:
                    atom = item.atom
                    for at, arg in enumerate(atom.args):
                        if arg == variable:
                            return self.columns((atom.predicate, atom.arity), at, depth)
        return ()

    def _values_of(self, column: FactColumn) -> tuple[frozenset[int], bool]:
        """Return values of an argument, and whether they are all."""
        known = self._values.get(column)
        if known is None:
            arity, relation = column.stored.schema.arity, column.stored.relation
            rows, ids = relation.match([0] * arity, hidden=self._hidden, limit=MAX_VALUES)
            known = frozenset(rows[column.position :: arity]), len(ids) < MAX_VALUES
            self._values[column] = known
            self._budget.yield_now()
        return known

    def _has(self, stored: StoredRelation, position: int, symbol: int) -> bool:
        pattern = [0] * stored.schema.arity
        pattern[position] = symbol
        return bool(stored.relation.match(pattern, hidden=self._hidden, limit=1)[1])


def _heads_of(rules: RuleSet, budget: Budget) -> Heads:
    """Return the rules of a set by what they conclude; computed once for each set."""
    heads = _heads.get(rules)
    if heads is None:
        heads = Heads({}, {})
        for rule in budget.paced(rules.rules, RULES_PER_YIELD):
            head = rule.head
            if head.predicate == CONTRADICTION and head.args[:1] == (KEY,):
                _note_key(rule, heads.keys)
            elif head.positive:
                heads.rules.setdefault((head.predicate, head.arity), []).append(rule)
        _heads[rules] = heads
    return heads


def _note_key(rule: Rule, keys: dict[Signature, frozenset[int]]) -> None:
    """Note the arguments in which two rivals of a declared key are equal."""
    atoms = [item.atom for item in rule.body if isinstance(item, Literal)]
    if len(atoms) == 2 and atoms[0].predicate == atoms[1].predicate:
        first, second = atoms
        same = frozenset(
            at
            for at, pair in enumerate(zip(first.args, second.args, strict=False))
            if pair[0] == pair[1]
        )
        signature = first.predicate, first.arity
        keys[signature] = keys.get(signature, same) & same
