"""Bulk runs of a knowledge base: its rules over its facts and over files, on a database."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from kbcore.bulk.files import PARQUET, TableName
from kbcore.bulk.job import BulkJob, BulkRules, plan_job, read_goal
from kbcore.bulk.run import RunOptions, run_job
from kbcore.bulk.sql import SqlGoal, sql_condition
from kbcore.bulk.tables import table_facts, table_names
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.errors import InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.answers import AnswerSet, TupleList, Tuples
from kbcore.python_api.handle import PythonHandle
from kbcore.python_api.queries import AtomQuery
from kbcore.python_values import integer, text
from kbcore.reason.options import AnswerOptions, FactOptions
from kbcore.state.facts import Row, conclusion
from kbcore.state.names import check_name
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal, Variable

CHUNK = 20_000
"""Facts that are written to a file at once."""


class Bulk(PythonHandle):
    """Bulk runs of a knowledge base."""

    @overload
    def bulk(
        self,
        goal: str,
        *,
        facts: str | os.PathLike[str] | None = None,
        engine: str = "duckdb",
        memory_limit: str | None = None,
        max_rows: int = 0,
        out: None = None,
        into: PythonHandle | str | None = None,
        scope: str | None = None,
    ) -> AnswerSet: ...

    @overload
    def bulk(
        self,
        goal: str,
        *,
        facts: str | os.PathLike[str] | None = None,
        engine: str = "duckdb",
        memory_limit: str | None = None,
        max_rows: int = 0,
        out: str | os.PathLike[str],
        into: PythonHandle | str | None = None,
        scope: str | None = None,
    ) -> Path: ...

    def bulk(  # noqa: PLR0913  one parameter for each option of a run
        self,
        goal: str,
        *,
        facts: str | os.PathLike[str] | None = None,
        engine: str = "duckdb",
        memory_limit: str | None = None,
        max_rows: int = 0,
        out: str | os.PathLike[str] | None = None,
        into: PythonHandle | str | None = None,
        scope: str | None = None,
    ) -> AnswerSet | Path:
        """Derive all answers of a goal of one atom on a database that works beyond memory.

        The rules are those of the knowledge base in `scope`. They apply to its facts that are valid
        now, and to those of the Parquet files in the folder `facts`, where a file has the name of
        its predicate. `memory_limit` is that of the database, such as "300MB". `max_rows` limits
        the derived rows; 0 is no limit.

        With `out` the answers are written to a new Parquet file in that folder, or a folder of
        files, whose path is returned; otherwise they are returned as tuples, all in memory. `into`
        stores them as facts, too: in a scope of this knowledge base by its name, or in the base of
        another knowledge base. A run that is repeated stores nothing twice. Raises InvalidInput,
        RuleSyntaxError, BudgetExceeded, and ConfigError naming what to install.
        """
        plugins = self.kb.plugins()
        atom = read_goal(text("goal", goal))
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "a bulk run reads one scope")
        databases = plugins.bulk_databases()
        if engine not in databases:
            raise InvalidInput.at("engine", f"must be one of {', '.join(sorted(databases))}")
        limit = integer("max_rows", max_rows) or 0
        store, target_scope = _target(self, into)
        formats = plugins.table_formats()
        with tempfile.TemporaryDirectory(prefix="kbcore-bulk-") as folder:
            job = self._job(atom, scope, facts, Path(folder) / "facts")
            answers_folder = Path(folder) if out is None else Path(out)
            options = RunOptions(memory_limit, limit, clock=self.kb.clock)
            result = run_job(job, databases[engine], answers_folder, options)
            table = TableName(atom.predicate, atom.positive)
            if store is not None:
                for file in result.files:
                    for group in table_facts(formats, file, table, target_scope):
                        store.assert_rows([group])
            if out is not None:
                return result.path
            read = formats[PARQUET.removeprefix(".")].read
            rows = [row for file in result.files for batch in read(str(file)) for row in batch]
        query = _BulkQuery(self.kb, Literal(atom), AnswerOptions(scope))
        return AnswerSet(TupleList(rows), query)

    def sql(
        self,
        goal: str,
        tables: Sequence[str],
        *,
        dialect: str = "postgres",
        scope: str | None = None,
    ) -> str:
        """Return a condition of SQL for the rows of a table of your own that a goal holds for.

        `goal` is one atom with one variable, such as `can_read(ann, ?doc)`. Each of `tables` says
        which table has the facts of a predicate, in place of the stored ones:
        `documents=document(id, owner)`. The variable stands for the first column of the first
        table. All other facts are written into the condition as they are now. `dialect` is
        postgres, sqlite or duckdb.

        Raises InvalidInput naming a rule that SQL does not express or a predicate with too many
        facts, RuleSyntaxError, BudgetExceeded, and ConfigError naming what to install.
        """
        if isinstance(tables, str):
            raise InvalidInput.at("tables", "must be a list, not one string")
        request = SqlGoal(text("goal", goal), [text("tables", each) for each in tables])
        dialects = self.kb.plugins().sql_dialects()
        if dialect not in dialects:
            raise InvalidInput.at("dialect", f"must be one of {', '.join(sorted(dialects))}")
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "a condition is about one scope")
        kb = self.kb.answering(read_goal(request.goal))
        rules = [known.rule for known in kb.rules(scope)]
        return sql_condition(request, rules, _FactsNow(kb, scope), dialects[dialect])

    def _job(
        self, goal: Atom, scope: str | None, facts: str | os.PathLike[str] | None, folder: Path
    ) -> BulkJob:
        """Compile the goal, and write the facts that the rules read to files in a new folder."""
        kb = self.kb.answering(goal)
        rules = RuleSet([known.rule for known in kb.rules(scope)])
        needed = {schema.predicate for schema in rules.reads | rules.derived} | {goal.predicate}
        stored: dict[tuple[str, bool, int], SymbolAnswers] = {}
        for entry in kb.predicates(scope)["predicates"]:
            name, arity = entry["predicate"], entry["arity"]
            for positive in (True, False) if name in needed else ():
                pattern = Atom(name, (Variable("_"),) * arity, positive)
                answers = kb.stored_answers(pattern, FactOptions(scope))
                if len(answers):
                    stored[name, positive, arity] = answers
        tables = self.kb.plugins().table_formats()[PARQUET.removeprefix(".")]
        folder.mkdir()
        for signature, table in table_names(stored).items():
            answers = stored[signature]
            tables.write(
                str(folder / f"{table}{PARQUET}"),
                [f"arg{index}" for index in range(1, signature[2] + 1)],
                (answers.tuples(at, at + CHUNK) for at in range(0, len(answers), CHUNK)),
            )
        folders = [folder] if facts is None else [folder, Path(facts)]
        return plan_job(BulkRules("the rules", rules, {}, {}), goal, *folders)


class _BulkQuery(AtomQuery):
    """The goal of a bulk run, whose answers have no details."""

    def rows(self, answers: Tuples) -> list[Row]:
        """Return the answers as conclusions."""
        atom = self.atom
        return [
            conclusion(atom.predicate, atom.positive, list(args), self._scope)
            for args in answers.converted(None)
        ]


class _FactsNow:
    """Facts and conclusions of a scope, as `SqlFacts`."""

    def __init__(self, kb: TenantKB, scope: str | None) -> None:
        self._kb = kb
        self._scope = scope
        self._provided = kb.plugins().predicates()

    def stored(self, atom: Atom) -> list[Row]:
        """Return the stored facts that match."""
        args = [arg for arg in atom.args if isinstance(arg, (str, Variable))]
        return self._kb.query_rows(atom.predicate, args, positive=atom.positive, scope=self._scope)

    def derived(self, atom: Atom) -> list[tuple[str, ...]]:
        """Return the answers of an atom."""
        rows = self._kb.infer(Literal(atom), AnswerOptions(self._scope))
        return [tuple(row["args"]) for row in rows]

    def is_provided(self, schema: RelationSchema) -> bool:
        """Return True if a plugin gives the rows of a predicate."""
        return f"{schema.predicate}/{schema.arity}" in self._provided


def _target(
    own: PythonHandle, into: PythonHandle | str | None
) -> tuple[TenantKB | None, str | None]:
    """Return the knowledge base and the scope that the answers are stored in."""
    if into is None:
        return None, None
    if isinstance(into, PythonHandle):
        return into.kb, None
    return own.kb, check_name("into", into)
