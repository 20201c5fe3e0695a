"""Asserting and retracting facts: bodies and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from kbcore.errors import InvalidInput, TooLarge
from kbcore.language.files import bulk_rows
from kbcore.operations.conflicts import KEEP_BOTH
from kbcore.search.neighbours import (
    BOTH,
    DEFAULT_NEIGHBOURS,
    DIRECTIONS,
    MAX_NEIGHBOURS,
    NeighbourOptions,
)
from kbcore.state.episodes.evidence import MAX_EVIDENCE, Evidence
from kbcore.state.facts import Fact, FactRows
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.pacing import current_yield, let_go, paced
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.jsonform import atom_from_json
from kbserver.http.request_context import runtime
from kbserver.schemas.atoms import (
    AtomBody,
    atom_given,
    atom_terms,
    constants_of,
    predicate_of,
    predicates_given,
    sign,
)
from kbserver.schemas.base import (
    ANSWERS,
    Answer,
    Body,
    JsonObject,
    Part,
    answer_of,
    present,
    within,
)
from kbserver.schemas.fields import (
    Anything,
    Choice,
    Count,
    Duration,
    Elements,
    Flag,
    Fraction,
    Instant,
    Json,
    ListOfForms,
    Many,
    Metadata,
    Name,
    Object,
    PatternArguments,
    Predicates,
    ReadScope,
    Strategy,
    Text,
    Time,
    Value,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import Budgeted, Historic, request_limits
from kbtypes import results
from kbtypes.results import RetractOutcome
from kbtypes.values import Row as RowType

_ERRORS_SHOWN = 20

MAX_GROUPS = 256
"""Relations of one bulk body whose rows are collected separately."""

ROWS_PER_YIELD = 1000
FACTS_PER_YIELD = 100
"""Plain elements and others read between two calls of `yield_now`: about a millisecond."""


class SpanPart(Part):
    """A span of an episode, in characters; without offsets the whole episode."""

    episode = Name("an episode", required=True)
    start = Whole(0)
    end = Whole(1, description="Up to, not including, this character.")


class EvidenceSpans(ListOfForms):
    """The spans that support a fact, checked one by one."""

    def __init__(self) -> None:
        super().__init__(
            SpanPart,
            description="Spans of episodes; asserting again adds some.",
            schema={"maxItems": MAX_EVIDENCE},
        )


def evidence_given(value: Any) -> tuple[Evidence, ...]:
    """Return the evidence of a fact in a body; raises InvalidInput that names the member."""
    if type(value) is not list:
        raise InvalidInput.at("evidence", "must be an array of spans")
    if len(value) > MAX_EVIDENCE:
        raise InvalidInput.at("evidence", f"has at most {MAX_EVIDENCE} spans")
    spans = []
    for index, span in enumerate(value):
        path = f"evidence[{index}]"
        if type(span) is not dict:
            raise InvalidInput.at(path, "must be an object")
        episode = span.get("episode")
        if type(episode) is not str:
            raise InvalidInput.at(f"{path}.episode", "must be the id of an episode")
        for name in ("start", "end"):
            offset = span.get(name)
            if offset is not None and (type(offset) is not int or offset < 0):
                raise InvalidInput.at(f"{path}.{name}", "must be a whole number of at least 0")
        spans.append(Evidence(episode, span.get("start"), span.get("end")))
    return tuple(dict.fromkeys(spans))


class FactBody(AtomBody):
    """A fact."""

    scope = WriteScope()
    ttl = Duration()
    valid_from = Instant()
    valid_until = Instant()
    confidence = Fraction()
    metadata = Metadata()
    evidence = EvidenceSpans()
    created_at = Anything()

    def arguments(self, fields: Json) -> Json:
        """Return the fact."""
        return {"fact": self.fact(fields)}

    def fact(self, fields: Json) -> Fact:
        """Return the fact that the fields describe; raises InvalidInput."""
        atom, positive = atom_given(fields)
        if "text" in fields and (problem := DEFAULT_LIMITS.name_problem(atom.predicate)):
            raise InvalidInput.at("text", problem)
        return Fact(
            atom.predicate,
            constants_of(atom, fields, "a fact holds no variables"),
            positive=positive is not False,
            scope=fields.get("scope"),
            ttl=fields.get("ttl"),
            valid_from=fields.get("valid_from"),
            valid_until=fields.get("valid_until"),
            confidence=fields.get("confidence"),
            metadata=fields.get("metadata", {}),
            evidence=evidence_given(fields["evidence"]) if "evidence" in fields else (),
        )


class TellBody(FactBody):
    """A fact, and what to do if the opposite is stored."""

    conflict_strategy = Strategy()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.assert_facts`."""
        conflict = fields.get("conflict_strategy", KEEP_BOTH)
        return {"facts": [self.fact(fields)], "conflict": conflict}


class BulkBody(Body):
    """Many facts."""

    facts = Elements(FactBody, description="At most MAX_BULK_FACTS of them.", required=True)
    conflict_strategy = Strategy()

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the facts, or the rows of facts that have nothing beside arguments.

        An error names the element and its field.
        """
        fields = super()._read(data, strict, path)
        elements = fields.get("facts")
        if type(elements) is not list:
            raise InvalidInput.at("facts", "must be an array of facts")
        try:
            limit = runtime().config.max_bulk_facts
            if len(elements) > limit:
                raise TooLarge(
                    f"one request asserts at most {counted(limit, 'fact')}, this one has"
                    f" {len(elements)}",
                    {"limit": "MAX_BULK_FACTS", "value": limit},
                )
            conflict = fields.get("conflict_strategy", KEEP_BOTH)
            if conflict == KEEP_BOTH and (rows := _plain_rows(elements)):
                return {"rows": rows}
            return {"facts": _facts(elements, strict), "conflict": conflict}
        finally:
            let_go(elements, runtime().yield_now)


class RetractBody(AtomBody, Budgeted):
    """A fact to retract; without a sign of either sign."""

    scope = WriteScope()
    count = Flag("False: the conclusions that no longer hold are not counted. Default: true.")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.retract_fact`."""
        atom, positive = atom_given(fields)
        problem = "a variable names no single fact; POST /retract/pattern removes all that match"
        return {
            "predicate": atom.predicate,
            "args": constants_of(atom, fields, problem),
            "positive": positive,
            "scope": fields.get("scope"),
            "count": fields.get("count", True),
            "request_limits": request_limits(fields),
        }


class RetractPatternBody(RetractBody):
    """A pattern of facts to retract: null and variables match anything."""

    args = PatternArguments("Absent: every fact of the predicate, of any number of arguments.")

    requires: ClassVar[Json] = {"anyOf": [present("text"), present("predicate")]}

    def missing(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the missing key of the predicate; none if the atom is given as text."""
        return () if "text" in fields or "predicate" in fields else ("predicate",)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.retract_pattern`."""
        if "text" not in fields and "args" not in fields:
            return {
                "predicate": predicate_of(fields["predicate"], "predicate"),
                "pattern": None,
                "positive": sign(fields),
                "scope": fields.get("scope"),
                "count": fields.get("count", True),
                "request_limits": request_limits(fields),
            }
        atom, positive = atom_given(fields, nulls=True)
        return {
            "predicate": atom.predicate,
            "pattern": atom_terms(atom),
            "positive": positive,
            "scope": fields.get("scope"),
            "count": fields.get("count", True),
            "request_limits": request_limits(fields),
        }


class Span(JsonObject):
    """A span of an episode that supports a fact."""

    episode = Text()
    start = Value("First character.", schema={"type": "integer"}, optional=True)
    end = Value("Up to, not including.", schema={"type": "integer"}, optional=True)


class Row(JsonObject):
    """A fact or conclusion."""

    predicate = Text()
    args = Many(Text())
    negated = Flag()
    scope = Text("Null is the base partition.", allow_none=True)
    metadata = Object()
    created_at = Value(
        "Epoch milliseconds; null for conclusions.", schema={"type": "integer"}, allow_none=True
    )
    valid_from = Time(allow_none=True)
    valid_until = Time(allow_none=True)
    ttl = Value(
        "Milliseconds from the last assertion.", schema={"type": "integer"}, allow_none=True
    )
    confidence = Fraction(allow_none=True)
    evidence = Many(Span, "Only of facts that have any.", optional=True)
    labels = Object("Levels and groups by dimension. Only of facts that have any.", optional=True)
    trust = Text("With `withTrust`: the highest level at which the answer follows.", optional=True)


ANSWERS[RowType] = Row


class QuotationShown(JsonObject):
    """A span of an episode with its text."""

    episode = Text()
    start = Count("First character.")
    end = Count("Up to, not including.")
    text = Text()
    speaker = Text()
    at = Time()
    truncated = Flag("True: the text is cut.", optional=True)


class QuotedRow(Row):
    """A stored fact at the end of a proof."""

    evidence = Many(QuotationShown, "Only of facts that have any.", optional=True)


class StoredRow(Row):
    """A stored fact with its truth value."""

    truth_val = Flag()


class LabelledRow(StoredRow):
    """A stored fact, with its details with each of its labels where it has several."""

    by_labels = Many(
        Row,
        "The details with each of its labels, the newest ones last. Only of facts with several.",
        optional=True,
    )


class SalientRow(Row):
    """A stored fact with its salience."""

    salience = Fraction()


class Stored(Answer):
    """The number of new facts."""

    asserted = Count()
    updated = Count()
    failed = Count(of=lambda outcome: 0)
    errors = Many(Anything(), of=lambda outcome: [])
    discarded = Count(of=lambda outcome: outcome.discarded or None, optional=True)
    timestamp = Time()


def _not_counted(outcome: RetractOutcome) -> bool | None:
    """Return False if the conclusions were not counted, else None."""
    return None if outcome.counted else False


def _if_counted(name: str) -> Callable[[RetractOutcome], Any]:
    """Return a reader of an attribute of an outcome; None if the conclusions were not counted."""
    return lambda outcome: getattr(outcome, name) if outcome.counted else None


class Retracted(Answer):
    """The outcome of retracting a fact; the counts of conclusions are absent if not asked for."""

    retracted = Count()
    counted = Flag("False: the conclusions were not counted.", of=_not_counted, optional=True)
    cascaded = Count(of=_if_counted("cascaded"), optional=True)
    cascaded_atoms = Many(Row, of=_if_counted("cascaded_atoms"), optional=True)
    newly_derivable = Count(of=_if_counted("newly_derivable"), optional=True)
    still_derivable = Flag()
    truncated = Flag()


class Matched(Answer):
    """The facts that matched a pattern and were retracted."""

    retracted = Count()
    atoms = Many(Row)
    counted = Flag("False: the conclusions were not counted.", of=_not_counted, optional=True)
    cascaded = Count(of=_if_counted("cascaded"), optional=True)
    truncated = Flag(of=lambda outcome: outcome.truncated or None, optional=True)


def spoken(predicate: str, args: Sequence[str]) -> str:
    """Return an atom as acknowledgements write it: raw arguments, joined by comma and space."""
    return f"{predicate}({', '.join(args)})"


def _plain_rows(elements: list[Any]) -> tuple[FactRows, ...]:
    """Return elements of predicate and arguments alone as bulk rows.

    Empty if an element has more members or needs a closer look.
    """
    groups: dict[tuple[str, int], list[str]] = {}
    plain = {"predicate", "args"}
    for element in paced(elements, current_yield(), ROWS_PER_YIELD):
        if type(element) is not dict or element.keys() != plain:
            return ()
        predicate, args = element["predicate"], element["args"]
        if type(args) is not list or not args or type(predicate) is not str:
            return ()
        group = groups.get((predicate, len(args)))
        if group is None:
            if len(groups) >= MAX_GROUPS or len(args) > DEFAULT_LIMITS.args:
                return ()
            group = groups[predicate, len(args)] = []
        group.extend(args)
    batches = [bulk_rows(predicate, arity, args) for (predicate, arity), args in groups.items()]
    rows = tuple(batch for batch in batches if batch is not None)
    return rows if len(rows) == len(batches) else ()


_FACT = FactBody()


def _facts(elements: list[Any], strict: bool) -> list[Fact]:
    facts: list[Fact] = []
    wrong: dict[str, list[str]] = {}
    for index, element in enumerate(paced(elements, current_yield(), FACTS_PER_YIELD)):
        try:
            if type(element) is not dict:
                raise InvalidInput("must be an object")
            facts.append(_FACT.read(element, strict=strict, path=f"facts[{index}].")["fact"])
        except InvalidInput as error:
            wrong.update((within(error, f"facts[{index}]").details or {})["fields"])
            if len(wrong) >= _ERRORS_SHOWN:
                break
    if wrong:
        first = next(iter(wrong))
        raise InvalidInput(f"{first}: {wrong[first][0]}; nothing was stored", {"fields": wrong})
    return facts


class NeighboursBody(Historic):
    """A constant, and which of the stored facts around it."""

    constant = Anything(
        schema={
            "type": ["string", "number", "boolean"],
            "description": "The constant; not a variable.",
        },
        required=True,
    )
    predicates = Predicates(allow_none=True)
    direction = Choice(
        *DIRECTIONS,
        description="`out`: the constant is the first argument; `in`: a later one; default `both`.",
    )
    scope = ReadScope()
    limit = Whole(1, MAX_NEIGHBOURS)
    offset = Whole(0)
    as_of = Instant()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.neighbours`."""
        options = NeighbourOptions(
            fields.get("scope"),
            _names_of(fields.get("predicates")),
            fields.get("direction", BOTH),
            fields.get("limit", DEFAULT_NEIGHBOURS),
            fields.get("offset", 0),
            fields.get("as_of"),
            request_limits(fields),
        )
        return {"constant": _constant_of(fields["constant"]), "options": options}


NeighbourCount = answer_of(results.NeighbourCount, "NeighbourCount", facts=Count(of="fact_count"))
Neighbourhood = answer_of(results.Neighbours, "Neighbourhood", total=Count(of="total_facts"))


def _names_of(value: Any) -> tuple[str, ...] | None:
    return None if value is None else predicates_given(value, "predicates")


def _constant_of(value: Any) -> str:
    try:
        (term,) = atom_terms(atom_from_json({"predicate": "p", "args": [value]}))
    except InvalidInput as error:
        wrong = (error.details or {}).get("fields") or {"": [error.message]}
        raise InvalidInput.at("constant", next(iter(wrong.values()))[0]) from None
    if not isinstance(term, str):
        raise InvalidInput.at(
            "constant", "must be a constant, not a variable; /query matches those"
        )
    return term
