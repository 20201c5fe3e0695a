"""Tests for authors of predicates to subclass.

    from kbcore.plug.conformance import PredicateConformance

    class TestMine(PredicateConformance):
        known = [("apple", "3"), ("nut", "1")]
        unknown = ("no such item", "-1")

        def make_predicate(self):
            return kb_predicates(...)["price/2"]

Like `conformance`, this module imports pytest, and nothing of the core imports it.
"""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pytest

from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import Predicate, PredicateCall
from kbplanner.syntax.jsonform import constant_from_json

Row = tuple[str, ...]


class PredicateConformance(Conformance, abstract=True):
    """Tests of the contract of `Predicate`.

    Subclass it, name it `Test...`, and implement `make_predicate`. `known` has some rows of the
    predicate, `unknown` a row none of whose values is in any row.
    """

    factory = "make_predicate"
    known: ClassVar[Sequence[Row]] = ()
    unknown: ClassVar[Row] = ()

    @abstractmethod
    def make_predicate(self) -> Predicate:
        """Return the predicate under test."""

    @pytest.fixture
    def predicate(self) -> Predicate:
        """Return the predicate under test."""
        return self.make_predicate()

    def test_it_describes_itself(self, predicate: Predicate) -> None:
        """Check that each mode has a use for every argument, and that no two modes are equal."""
        assert predicate.name
        assert predicate.modes
        assert len(set(predicate.modes)) == len(predicate.modes)
        for mode in predicate.modes:
            assert len(mode) == predicate.arity
            assert set(mode) <= {"in", "out"}

    def test_it_is_tested_with_rows(self, predicate: Predicate) -> None:
        """Check that the subclass names rows."""
        assert self.known, "set `known` to some rows of the predicate"
        assert all(len(row) == predicate.arity for row in (*self.known, self.unknown))

    def test_every_mode_finds_the_known_rows(self, predicate: Predicate) -> None:
        """Check that a batch has the rows of all its inputs, and no values that are none."""
        for mode in predicate.modes:
            rows = rows_of(predicate, mode, [*self.known, self.unknown])
            assert set(self.known) <= rows

    def test_a_row_depends_on_its_own_input_only(self, predicate: Predicate) -> None:
        """Check that an input has the same rows alone and in a batch."""
        for mode in predicate.modes:
            together = rows_of(predicate, mode, self.known)
            alone = [rows_of(predicate, mode, [row]) for row in self.known]
            assert together == set().union(*alone)

    def test_an_unknown_input_has_no_rows(self, predicate: Predicate) -> None:
        """Check that a predicate without a row for an input is not an error."""
        for mode in predicate.modes:
            if "in" in mode:
                assert not rows_of(predicate, mode, [self.unknown])

    def test_several_threads_at_a_time(self, predicate: Predicate) -> None:
        """Check that each thread gets its own rows."""
        mode = predicate.modes[0]
        expected = [rows_of(predicate, mode, [row]) for row in self.known]
        rows: dict[int, set[Row]] = {}

        def ask(number: int) -> None:
            rows[number] = rows_of(predicate, mode, [self.known[number]])

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(self.known))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [rows[number] for number in range(len(self.known))] == expected


def call_of(mode: Sequence[str], rows: Sequence[Row]) -> PredicateCall:
    """Return a call in a mode, whose inputs are those of rows."""
    places = [index for index, use in enumerate(mode) if use == "in"]
    inputs = list(dict.fromkeys(tuple(row[index] for index in places) for row in rows))
    return PredicateCall(
        "default",
        "default",
        None,
        tuple(mode),
        tuple(zip(*inputs, strict=True)),
        len(inputs),
        10_000,
        10.0,
    )


def rows_of(predicate: Predicate, mode: Sequence[str], rows: Sequence[Row]) -> set[Row]:
    """Return what a predicate returns for the inputs of rows, without rows that fit no input.

    Fails for a row that is none.
    """
    call = call_of(mode, rows)
    asked = set(call.inputs())
    places = [index for index, use in enumerate(mode) if use == "in"]
    fitting: set[Row] = set()
    for row in predicate.rows(call):
        assert not isinstance(row, str)
        assert len(row) == predicate.arity
        texts = tuple(constant_from_json(value, "value") for value in row)
        if tuple(texts[index] for index in places) in asked:
            fitting.add(texts)
    return fitting
