"""The terms of the language: frozen, hashable values without behaviour.

A constant is a plain `str`; two constants are the same exactly when their text is. A variable is a
`Variable`. Rules as text and rules as JSON both become these values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbplanner.ir.dimensions import WrittenLabel


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; `name` is without the question mark. `_` is anonymous: each occurrence is a new
    variable.
    """

    name: str

    @property
    def anonymous(self) -> bool:
        """True if each occurrence is a variable of its own."""
        return self.name == "_"

    def __str__(self) -> str:
        return "_" if self.anonymous else "?" + self.name


ANONYMOUS = Variable("_")

Term = Variable | str


def numbered_variables(count: int) -> tuple[Term, ...]:
    """Return `count` different variables, for the arguments of a clause that a pass makes."""
    return tuple(Variable(f"a{i}") for i in range(count))


@dataclass(frozen=True, slots=True)
class Apply:
    """An operator or function applied to expressions: `?x + 1` is `Apply("+", (Variable("x"),
    "1"))`.
    """

    function: str
    args: tuple[Expr, ...]


Expr = Variable | str | Apply


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate in a rule head: `count(*)` has no variable, `sum(?x)` has one."""

    function: str
    variable: Variable | None


@dataclass(frozen=True, slots=True)
class Extremum:
    """The last argument of a rule head that keeps one row for each group: `min ?d` keeps the least
    value, `max ?d` the greatest.
    """

    function: str
    variable: Variable


HeadTerm = Variable | str | Aggregate | Extremum


@dataclass(frozen=True, slots=True)
class Atom:
    """A signed atom. `positive=False` is explicit falsity, written `~p(...)`.

    `args` holds terms; only in a rule head may it also hold aggregates, and an extremum last.
    """

    predicate: str
    args: tuple[HeadTerm, ...] = ()
    positive: bool = True

    @property
    def arity(self) -> int:
        """The number of arguments; a predicate is identified by name and arity."""
        return len(self.args)

    @property
    def ground(self) -> bool:
        """True if all arguments are constants."""
        return all(isinstance(arg, str) for arg in self.args)

    def variables(self) -> Iterator[Variable]:
        """Yield every variable occurrence, in order, anonymous ones and those inside aggregates
        and extrema included.
        """
        for arg in self.args:
            if isinstance(arg, Variable):
                yield arg
            elif isinstance(arg, (Aggregate, Extremum)) and arg.variable is not None:
                yield arg.variable


@dataclass(frozen=True, slots=True)
class Literal:
    """A body atom, possibly under `not`: `not p(t)` holds when `p(t)` is not derivable or
    explicitly false.
    """

    atom: Atom
    negated: bool = False

    def variables(self) -> Iterator[Variable]:
        """Return every variable occurrence, in order."""
        return self.atom.variables()


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right` with `op` one of `operators.COMPARISONS`; or a string test,
    `starts_with(left, right)`.
    """

    op: str
    left: Expr
    right: Expr
    negated: bool = False

    def variables(self) -> Iterator[Variable]:
        """Yield every variable occurrence, left to right."""
        yield from expression_variables(self.left)
        yield from expression_variables(self.right)


BodyItem = Literal | Comparison


def extremum_of(head: Atom) -> Extremum | None:
    """Return the extremum of a rule head, which is its last argument; None without one."""
    last = head.args[-1] if head.args else None
    return last if isinstance(last, Extremum) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """`head :- body.` `name` is an optional id, `confidence` an optional factor in 0..1, `scope`
    None for everywhere. `labels` are those that its text names: they are stored beside the rule.
    """

    head: Atom
    body: tuple[BodyItem, ...]
    name: str | None = None
    confidence: float | None = None
    scope: str | None = None
    labels: tuple[WrittenLabel, ...] = field(default=(), compare=False, repr=False)


def expression_variables(expr: Expr) -> Iterator[Variable]:
    """Yield every variable occurrence of an expression, left to right."""
    if isinstance(expr, Variable):
        yield expr
    elif isinstance(expr, Apply):
        for arg in expr.args:
            yield from expression_variables(arg)


def applications(expr: Expr) -> Iterator[Apply]:
    """Yield every operator and function of an expression with its arguments, outer ones first."""
    if isinstance(expr, Apply):
        yield expr
        for arg in expr.args:
            yield from applications(arg)
