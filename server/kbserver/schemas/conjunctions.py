"""Goals of several literals: answers are the values of their variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.errors import InvalidInput
from kbcore.operations.queries import Write
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.ask import body_variables
from kbcore.reason.budget import Notes
from kbcore.reason.options import AnswerOptions
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.syntax.textform import body_from_text
from kbserver.schemas.base import JsonObject
from kbserver.schemas.fields import ByName, Text
from kbtypes.records import camel_case

ATOM_ONLY = (
    "args",
    "include_undefined",
    "min_confidence",
    "negated",
    "polarity",
    "predicate",
    "truth_val",
    "with_proof",
)
"""Fields that have a meaning for goals of one literal only."""


class Bindings(JsonObject):
    """An answer of a goal with several literals."""

    bindings = ByName(Text(), description="Values by variable, such as `?x`.")


@dataclass(frozen=True, slots=True)
class Conjunction:
    """A goal of /infer with several literals or comparisons."""

    body: tuple[BodyItem, ...]
    options: AnswerOptions

    def written(self, kb: TenantKB, write: Write, notes: Notes) -> list[bytes]:
        """Return the answers as a JSON array."""
        answers = self._answers(kb, notes, self.options)
        return [orjson.dumps(self._rows(answers))]

    def paged(
        self, kb: TenantKB, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return a page of answers and True if more follow. Raises InvalidInput if the body has a
        limit too.
        """
        answers = self._page(kb, notes, offset, limit)
        return [orjson.dumps(self._rows(answers)[:limit])], len(answers) > limit

    def table(self, kb: TenantKB, notes: Notes) -> AnswerTable:
        """Return the answers as a table with a column for each variable."""
        return self._answers(kb, notes, self.options).table(self._columns())

    def table_page(
        self, kb: TenantKB, notes: Notes, offset: int, limit: int
    ) -> tuple[AnswerTable, bool]:
        """Return a page of answers as a table and True if more follow; see `paged`."""
        answers = self._page(kb, notes, offset, limit)
        more = len(answers) > limit
        answers.truncate(limit)
        return answers.table(self._columns()), more

    def _page(self, kb: TenantKB, notes: Notes, offset: int, limit: int) -> SymbolAnswers:
        if self.options.limit is not None:
            raise InvalidInput.at("limit", "cannot be combined with ?limit=; send one of them")
        start = self.options.offset + offset
        return self._answers(kb, notes, self.options._replace(offset=start, limit=limit + 1))

    def _answers(self, kb: TenantKB, notes: Notes, options: AnswerOptions) -> SymbolAnswers:
        answers = kb.body_answers(self.body, body_variables(self.body), options)
        notes.warnings += answers.warnings
        if not len(answers):
            atoms = [item.atom for item in self.body if isinstance(item, Literal)]
            signatures = [(atom.predicate, len(atom.args)) for atom in atoms]
            notes.unknown = kb.unknown_predicates(signatures, options.scope)
        return answers

    def _rows(self, answers: SymbolAnswers) -> list[dict[str, dict[str, str]]]:
        names = [f"?{name}" for name in self._columns()]
        return [{"bindings": dict(zip(names, row, strict=True))} for row in answers.tuples()]

    def _columns(self) -> dict[str, int]:
        return {variable.name: at for at, variable in enumerate(body_variables(self.body))}


def conjunction_given(
    fields: Mapping[str, Any], options: AnswerOptions, path: str = "text"
) -> Conjunction | None:
    """Return the goal in `text` if it has several items, else None; `path` is its place.

    Raises InvalidInput for fields that need a goal of one literal.
    """
    text = fields.get("text")
    if not isinstance(text, str) or _is_atom(text):
        return None
    body = body_from_text(text, path)
    if len(body) == 1:
        return None
    for name in ATOM_ONLY:
        if fields.get(name) not in (None, False):
            raise InvalidInput.at(
                camel_case(name),
                "needs a goal of one literal; write a rule for the others",
            )
    return Conjunction(body, options)


def _is_atom(text: str) -> bool:
    """Return True if a text can only be one atom, without parsing it: most goals are."""
    opened = text.find("(")
    if opened < 0:
        return "," not in text
    is_closed = text.rstrip().endswith((")", ")."))
    return is_closed and text.find("(", opened + 1) < 0 and text.find(",", 0, opened) < 0
