"""Names of relations of a program while it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kbplanner.ir.terms import Comparison, Variable


class Role(str, Enum):
    """Meaning of the rows of a relation."""

    STORED = "stored"
    """Asserted facts, from outside."""
    DERIVED = "derived"
    """Conclusions, including asserted facts of the same predicate."""
    DEMAND = "demand"
    """Bindings for which conclusions are requested (a magic set)."""
    REACH = "reach"
    """Demand of a rewritten linear recursion, each row with the seed it came from."""
    ANSWER = "answer"
    """Answers of a goal whose recursion was rewritten: its free arguments only."""
    BINDINGS = "bindings"
    """The distinct bindings of the body of a rule with aggregates, those of its group first."""
    GROUPS = "groups"
    """The groups of a rule with aggregates, each with the values of its aggregates."""
    LEAST_VALUE = "least"
    """Conclusions of a best-value predicate: of each group of rows that differ only in their last
    column, the one with the least value there. It takes the place of DERIVED."""
    GREATEST_VALUE = "greatest"
    """As LEAST_VALUE, with the greatest value."""
    CLASSES = "classes"
    """The names of an equivalence relation, each with the representative of its class; a clause
    that concludes a pair of names unites their classes.
    """
    FIRST = "first"
    """Conclusions of a recursion, each with the values of the instance that concluded it first; see
    `passes/first.py`. Later rows with the same conclusion are not added."""
    STEP = "step"
    """Conclusions of a transitive relation that the rule which closes it is not needed for: the
    steps of its paths. Proofs and confidences are read from such paths.
    """
    UNDENIED = "undenied"
    """Conclusions that are not also explicitly denied; used under `not` with anonymous
    arguments.
    """
    INSTANCE = "instance"
    """Instances of a clause: the values of its variables wherever its body holds."""
    PROJECTION = "projection"
    """Some columns of a relation, for a clause that tests that no row has given values in them."""
    PART = "part"
    """The values that a part of a clause's body shares with the yield_now of it:
    `passes/parts.py`.
    """
    JOIN = "join"
    """Two atoms of a body joined, without the variable they share: `passes/project.py`."""
    GUARD = "guard"
    """The values for which a part of a clause's body is useful."""


BEST = (Role.LEAST_VALUE, Role.GREATEST_VALUE)
"""Roles of relations with one row for each group."""

REPLACING = (*BEST, Role.CLASSES)
"""Roles of relations in which new rows take the place of others."""

ROLE_OF_EXTREMUM = {"min": Role.LEAST_VALUE, "max": Role.GREATEST_VALUE}
"""The role of the conclusions of rules with this extremum in their heads."""


@dataclass(frozen=True, slots=True)
class RelationSchema:
    """A relation: predicate, number of columns, sign, role, and for a derived one which arguments
    are bound.

    `arity` counts the columns of this relation; for a demand it is the number of bound arguments.
    `adornment` has a letter for each argument of the predicate, `b` bound or `f` free; it is empty
    for stored relations and before the adorn pass.
    """

    predicate: str
    arity: int
    positive: bool = True
    role: Role = Role.STORED
    adornment: str = ""
    source: Role | None = None
    """For a demand or reach: the role of the relation it serves; for a settled relation: of the one
    it is the result of.
    """
    truth: str = ""
    """TRUE or POSSIBLE for a bound of a relation that has undefined rows, see
    `passes/wellfounded.py`.
    """
    restrictions: tuple[Comparison, ...] = ()
    """For a version of a relation, see `passes/restrict.py`: what its rows meet. A variable is a
    column, by its number.
    """

    @property
    def stored(self) -> RelationSchema:
        """Return the relation of asserted facts behind this predicate and sign."""
        return RelationSchema(self.predicate, len(self.adornment) or self.arity, self.positive)

    @property
    def derived(self) -> RelationSchema:
        """Return the conclusions of this predicate and sign, not adorned."""
        arity = len(self.adornment) or self.arity
        return RelationSchema(self.predicate, arity, self.positive, Role.DERIVED, truth=self.truth)

    def best(self, function: str) -> RelationSchema:
        """Return the conclusions of this predicate and sign with the best value of each group, for
        the extremum `function`, not adorned.
        """
        return replace(self.stored, role=ROLE_OF_EXTREMUM[function])

    @property
    def bare(self) -> RelationSchema:
        """Return this relation before adornment."""
        return self.adorned("") if self.adornment else self

    @property
    def opposite(self) -> RelationSchema:
        """Return the same relation with the other sign."""
        return replace(self, positive=not self.positive)

    def adorned(self, adornment: str) -> RelationSchema:
        """Return this relation with the given arguments bound."""
        return RelationSchema(
            self.predicate,
            self.arity,
            self.positive,
            self.role,
            adornment,
            self.source,
            self.truth,
            self.restrictions,
        )

    @property
    def demand(self) -> RelationSchema:
        """Return the bindings requested of this adorned relation: one column for each bound
        argument.
        """
        return replace(self, role=Role.DEMAND, arity=self.adornment.count("b"), source=self.role)

    def __str__(self) -> str:
        if self.predicate.find("\0") > 0:  # the name that a pass gave it, and what makes it unique
            return self.predicate.partition("\0")[0]
        sign = "" if self.positive else "~"
        name = f"{sign}{self.predicate}/{len(self.adornment) or self.arity}"
        if self.role is not Role.STORED and self.adornment:
            name += f"[{self.adornment}]"
        if self.restrictions:
            name += f"{{{', '.join(map(_restriction, self.restrictions))}}}"
        if self.source not in (None, Role.DERIVED):
            name = f"{self.source.value} {name}"
        if self.truth:
            name = f"{self.truth} {name}"
        return name if self.role in (Role.STORED, Role.DERIVED) else f"{self.role.value} {name}"


def _restriction(item: Comparison) -> str:
    """Return a restriction as text, without its constant."""
    left, right = (
        side.name if isinstance(side, Variable) else "_" for side in (item.left, item.right)
    )
    return f"{'not ' if item.negated else ''}{left} {item.op} {right}"
