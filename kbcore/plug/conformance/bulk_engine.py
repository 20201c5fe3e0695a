"""Conformance tests of bulk engines; plugin authors import them from `kbcore.plug.conformance`."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kbcore.errors import Cancelled, InvalidInput
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import BulkDatabase, BulkEngine, BulkFacts, BulkOptions
from kbplanner.compile.bulkplan import BulkPlan, bulk_plan
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.syntax.parser import parse_goal, parse_program
from kbplanner.syntax.statements import FactStatement, RuleStatement

Row = tuple[str, ...]

CLOSURE = """
edge(a, b). edge(b, c). edge(c, d). edge(d, b). edge('A', 'B').
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), reach(?y, ?z).
"""

EVERYTHING = """
n('10'). n('1.0'). n('1'). n('1_0'). n('1f'). n(' 1'). n('9223372036854775807'). n(word).
n('1e16'). n('-0.0'). n(''). big('9223372036854775806'). part('1.0', '1').
flag. ~shut(b). door(a). door(b). door(c). locked(c).
open(?x) :- door(?x), not shut(?x), flag.
shut(?x) :- locked(?x).
shut(?x) :- door(?x), not door(?x).
result(less, ?x) :- n(?x), ?x < 2.
result(same, ?x) :- n(?x), ?x = 1.
result(exact, ?x) :- n(?x), big(?y), ?x > ?y.
result(twice, ?y) :- n(?x), ?y = ?x * 2.
result(starts, ?x) :- n(?x), starts_with(?x, '1').
result(matches, ?x) :- n(?x), matches(?x, '^1.+').
result(part, ?y) :- part(?x, ?y), ?x = ?y, ?x !== ?y.
result(open, ?x) :- open(?x).
result(barred, ?x) :- ~shut(?x).
size(count(*)) :- n(?x).
total(sum(?x)) :- n(?x), ?x < 1000000.
most(max(?x)) :- n(?x).
result(member, ?x) :- n(?x), member(?x, ['1', '10', other]).
result(range, ?i) :- n(?x), ?x < 20, range(7, ?x, ?i).
result(split, ?p) :- n(?x), split(?x, '.', ?p).
first(representative(?x)) :- n(?x).
result(first, ?x) :- first(?x).
result(size, ?x) :- size(?x).
result(total, ?x) :- total(?x).
result(most, ?x) :- most(?x).
"""


class BulkEngineConformance(Conformance, abstract=True):
    """Tests of the contract of `BulkEngine`.

    Subclass it, name it `Test...`, and implement `make_database` and `read`.
    """

    factory = "make_database"

    @abstractmethod
    def make_database(self) -> BulkDatabase:
        """Return the database under test."""

    @abstractmethod
    def read(self, path: Path) -> Sequence[Row]:
        """Return the rows of a Parquet file, or of a folder of them."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Return an empty folder for the files of a run."""
        folder = tmp_path / "data"
        folder.mkdir()
        return folder

    def test_a_recursion_has_each_row_once_in_its_first_round(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """A run with a constant in the goal derives what the goal needs."""
        plan, facts = compiled(CLOSURE, "reach(a, ?y)")
        engine = self.make_database().open(BulkOptions(str(folder)))
        try:
            assert engine.bind(plan, facts) == 5
            make_seed(engine, plan)
            assert 0 in [rows for _, round_, rows in steps(engine, plan) if round_]
            assert engine.answers(plan, str(tmp_path / "answers")) == 3
        finally:
            engine.close()
            engine.close()
        assert sorted(self.read(tmp_path / "answers")) == [("a", "b"), ("a", "c"), ("a", "d")]

    def test_a_stopped_run_continues(self, folder: Path, tmp_path: Path) -> None:
        """Rows of an incomplete round are removed; texts that computations made stay known."""
        plan, facts = compiled(CLOSURE, "reach(?x, ?y)")
        database = self.make_database()
        engine = database.open(BulkOptions(str(folder)))
        engine.bind(plan, facts)
        make_seed(engine, plan)
        progress = steps(engine, plan)
        totals = [next(progress)[2], next(progress)[2]]
        next(progress)
        engine.close()
        (stratum,) = plan.strata
        engine = database.open(BulkOptions(str(folder)))
        try:
            rounds: dict[str, int | None] = dict.fromkeys(
                [*plan.stored, *filter(None, [plan.seed])]
            )
            engine.restore(plan, {**rounds, **dict.fromkeys(stratum.relations, 1)})
            later = [rows for _, _, rows in steps(engine, plan, after=1)]
            assert engine.answers(plan, str(tmp_path / "answers")) == sum(totals) + sum(later)
            for relation in plan.stored:
                engine.drop(relation)
        finally:
            engine.close()
        rows = self.read(tmp_path / "answers")
        cycle = {(x, y) for x in "bcd" for y in "bcd"} | {("a", y) for y in "bcd"}
        assert sorted(rows) == sorted(cycle | {("A", "B")})

    def test_values_are_those_of_the_language(self, folder: Path, tmp_path: Path) -> None:
        """Texts that are numbers, comparisons, functions, negation and aggregates."""
        plan, facts = compiled(EVERYTHING, "result(?kind, ?value)")
        engine = self.make_database().open(BulkOptions(str(folder)))
        try:
            engine.bind(plan, facts)
            make_seed(engine, plan)
            for _ in steps(engine, plan):
                pass
            engine.answers(plan, str(tmp_path / "answers"))
        finally:
            engine.close()
        results: dict[str, set[str]] = {}
        for kind, value in self.read(tmp_path / "answers"):
            results.setdefault(kind, set()).add(value)
        assert results == {
            "less": {"1.0", "1", "-0.0"},
            "same": {"1.0", "1"},
            "exact": {"9223372036854775807"},
            "twice": {"20", "2", "2e+16", "0"},
            "starts": {"10", "1.0", "1", "1_0", "1f", "1e16"},
            "matches": {"10", "1.0", "1_0", "1f", "1e16"},
            "part": {"1"},
            "open": {"a", "b"},
            "barred": {"b"},
            "member": {"1", "10"},
            "range": {"7", "8", "9"},
            "split": {
                "10",
                "1",
                "0",
                "1_0",
                "1f",
                " 1",
                "9223372036854775807",
                "word",
                "1e16",
                "-0",
                "",
            },
            "first": {"-0.0"},
            "size": {"11"},
            "total": {"12"},
            "most": {"9223372036854775807"},
        }

    def test_files_that_are_no_tables_are_named(self, folder: Path, tmp_path: Path) -> None:
        """The error names the file."""
        path = tmp_path / "edge.parquet"
        path.write_text("1,2\n")
        plan, _ = compiled("p(?x, ?y) :- edge(?x, ?y).", "p(?x, ?y)")
        facts = [BulkFacts(name, "edge/2", 2, (str(path),), ()) for name in plan.stored]
        engine = self.make_database().open(BulkOptions(str(folder)))
        try:
            with pytest.raises(InvalidInput, match=r"edge\.parquet is not a Parquet file"):
                engine.bind(plan, facts)
        finally:
            engine.close()

    def test_a_cancelled_run_does_nothing_more(self, folder: Path) -> None:
        """`cancel` may come before and after the end."""
        plan, facts = compiled(CLOSURE, "reach(?x, ?y)")
        engine = self.make_database().open(BulkOptions(str(folder)))
        try:
            engine.cancel()
            with pytest.raises(Cancelled):
                engine.bind(plan, facts)
        finally:
            engine.close()
        engine.cancel()


def compiled(program: str, goal: str) -> tuple[BulkPlan, list[BulkFacts]]:
    """Return the plan of a goal, and the facts of a program that it reads."""
    statements = parse_program(program)
    rules = RuleSet([each.rule for each in statements if isinstance(each, RuleStatement)])
    rows: dict[RelationSchema, list[Row]] = {}
    for each in statements:
        if isinstance(each, FactStatement):
            atom = each.atom
            schema = RelationSchema(atom.predicate, atom.arity, atom.positive)
            args = tuple(arg for arg in atom.args if isinstance(arg, str))
            rows.setdefault(schema, []).append(args)
    plan = bulk_plan(rules, parse_goal(goal).literal.atom, rules.deniable & set(rows))
    return plan, [
        BulkFacts(name, str(schema), schema.arity, (), tuple(rows.get(schema, ())))
        for name, schema in plan.stored.items()
    ]


def make_seed(engine: BulkEngine, plan: BulkPlan) -> None:
    """Make the seed of a goal with constants where no clause adds to it."""
    heads = {name for stratum in plan.strata for name in stratum.relations}
    if plan.seed is not None and plan.seed not in heads:
        engine.make(plan.seed, plan.arities[plan.seed], [plan.seed_row])


def steps(
    engine: BulkEngine, plan: BulkPlan, after: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """Evaluate a plan; yield for each round its first relation, its number and the rows added.

    `after` is the last round that the only stratum has completed already.
    """
    for stratum in plan.strata:
        round_ = 0 if after is None else after
        if after is None:
            for name in stratum.relations:
                rows = [plan.seed_row] if name == plan.seed else []
                engine.make(name, plan.arities[name], rows)
            added = int(plan.seed in stratum.relations)
            added += sum(
                engine.extend(name, [each for each in stratum.start if each.head == name], 0)
                for name in stratum.relations
            )
            yield stratum.relations[0], 0, added
        else:
            added = 1
        while stratum.rounds and added:
            round_ += 1
            added = sum(
                engine.extend(name, [each for each in stratum.rounds if each.head == name], round_)
                for name in stratum.relations
            )
            yield stratum.relations[0], round_, added
