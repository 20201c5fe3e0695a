"""The fuzz targets: each takes arbitrary bytes and raises only for a bug."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable

from kbcore.language.reading import read_statements_of
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded, EngineFault, KBError
from kbplanner.passes.check import check_rule
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_rule
from kbplanner.syntax.statements import RuleStatement

NO_SLOT = 0xFFFFFFFF
LONGEST = 4096


def parser(data: bytes) -> None:
    """A text is read or refused; a rule that was read is the same after it was printed and read
    again.
    """
    try:
        statements = parse_program(data[:LONGEST].decode("utf-8", "surrogatepass"))
    except (UnicodeDecodeError, KBError):
        return
    for statement in statements:
        if isinstance(statement, RuleStatement):
            text = print_rule(statement.rule)
            (again,) = parse_program(text)
            if not isinstance(again, RuleStatement) or print_rule(again.rule) != text:
                raise AssertionError(f"printed and read again it is another rule: {text!r}")
            try:
                check_rule(statement.rule)
            except KBError:
                continue


def reading(data: bytes) -> None:
    """A text that people or models wrote is read, in part or wholly, or refused."""
    try:
        text = data[:LONGEST].decode("utf-8", "surrogatepass")
        taken = read_statements_of(text, None, lambda: None)
    except (UnicodeDecodeError, KBError):
        return
    if any(number < 1 or number > len(text.splitlines()) + 1 for number in taken.unread):
        raise AssertionError(f"lines that do not exist: {taken.unread}")


def loader(data: bytes) -> None:
    """Words are verified or refused at one of them; what was verified runs within its limits and
    harms nothing.
    """
    words = array("I", [0x4B425031, 1])
    words.frombytes(data[: LONGEST // 4 * 4][: len(data) // 4 * 4])
    if sys.byteorder == "big":
        words.byteswap()
    engine = Engine()
    engine.intern_many(["a", "1", "2.5", "x y", "b"])
    try:
        try:
            plan = engine.load(words)
        except EngineFault as fault:
            if not 0 <= (fault.details or {})["word"] <= len(words):
                raise AssertionError("refused at a word that does not exist") from fault
            return
        base = []
        for slot in range(words[2]):
            arity, derived = words[8 + 2 * slot], words[9 + 2 * slot]
            if not derived:
                relation = engine.relation(arity)
                rows = array(
                    "I", [1 + (row * 3 + column) % 5 for row in range(6) for column in range(arity)]
                )
                relation.insert(rows, 6 if arity else 1)
                base.append(relation)
        run = engine.open_run(
            plan, base, [1 + i % 5 for i in range(words[3])], RunLimits(300, 1 << 20, 3000)
        )
        try:
            if words[6] != NO_SLOT:
                run.seed(array("I", [1 + i % 5 for i in range(2 * words[8 + 2 * words[6]])]), 2)
            for fuel in (1, 7, 1 << 20):
                if run.step(fuel) == RunState.DONE:
                    break
        except (BudgetExceeded, EngineFault):
            return
        finally:
            run.close()
    finally:
        engine.close()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "parser": parser,
    "reading": reading,
    "loader": loader,
}
