"""Goals as trees that a dialect of SQL writes as a condition, and the protocol of dialects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbplanner.ir.terms import Comparison, Term

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table of a database that has the facts of a predicate, one column for each argument.

    `name` may have a schema before a dot.
    """

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SqlRows:
    """Distinct rows of constants that are written into the text."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class SqlUnion:
    """The rows of any of some branches, all with the same number of columns."""

    branches: tuple[SqlBranch, ...]


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Rows with a term for each column; an anonymous variable matches every value."""

    rows: SqlTable | SqlRows | SqlUnion
    args: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class SqlBranch:
    """A conjunction: `columns` for the values of variables that match each of `sources`, none of
    `absent`, and meet all `tests`.

    Variables of columns, absent rows and tests occur in sources. Tests are comparisons and the
    tests of `operators.SUBSTRING_TESTS`, of variables and constants.
    """

    columns: tuple[Term, ...]
    sources: tuple[SqlSource, ...] = ()
    absent: tuple[SqlSource, ...] = ()
    tests: tuple[Comparison, ...] = ()

    @property
    def is_unconditional(self) -> bool:
        """True if the branch is one row of constants."""
        return not (self.sources or self.absent or self.tests)


class SqlDialect(Protocol):
    """The SQL of a kind of database."""

    def condition(self, table: str, column: str, answers: SqlUnion) -> str:
        """Return the condition that a column of a table is among answers with one column.

        Raises ConfigError naming what to install.
        """
