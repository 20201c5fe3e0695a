"""Goals, patterns, explanations, aggregates and texts to run: bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.build import table_of_rows, variable_columns
from kbcore.columns.ipc import MEDIA_TYPE
from kbcore.errors import InvalidInput
from kbcore.operations.queries import Write
from kbcore.operations.receipts import MAX_GOALS
from kbcore.operations.scripts import blocks_of
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs.candidates import FALSE, TRUE, UNDEFINED, WhyNot, WhyNotCandidate
from kbcore.proofs.how_to import DEFAULT_PROPOSALS, HowToOptions
from kbcore.proofs.shapes import FORMS, MAX_PROOF_NODES, ProofOptions
from kbcore.proofs.why_not import MAX_DEPTH
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.budget import Notes, RequestLimits
from kbcore.reason.options import AnswerOptions, FactOptions
from kbcore.reason.predicates import MissingPredicate
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.pacing import current_yield, paced
from kbplanner.syntax.jsonform import atom_from_json, goal_from_json, item_from_json
from kbplanner.syntax.jsonwriter import item_to_json
from kbplanner.syntax.parser import check_goal_size, parse_body
from kbplanner.syntax.printer import print_item
from kbserver.answers import proofs_written
from kbserver.notices import shown_unknown
from kbserver.schemas import fields as forms
from kbserver.schemas.atoms import (
    ATOM,
    ATOM_OR_TEXT,
    AtomBody,
    atom_given,
    atom_terms,
    literal_given,
    predicates_given,
    wildcards,
)
from kbserver.schemas.base import Answer, JsonObject, answer_of, present, within
from kbserver.schemas.conjunctions import Bindings, Conjunction, conjunction_given
from kbserver.schemas.facts import QuotationShown, QuotedRow, Row
from kbserver.schemas.fields import (
    Anything,
    ByName,
    Choice,
    Count,
    Flag,
    Fraction,
    Instant,
    Json,
    ListOfForms,
    Many,
    Number,
    Object,
    One,
    PatternArguments,
    Predicate,
    ReadScope,
    Text,
    Time,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import Budgeted, Historic, proof_asked, request_limits
from kbserver.schemas.rules import AsText, BodyAtom, Literals
from kbtypes import how_to, results
from kbtypes.records import camel_case

OPERATIONS = ("COUNT", "SUM", "MIN", "MAX", "AVG")

_ANY_CASE = "|".join("".join(f"[{char}{char.lower()}]" for char in name) for name in OPERATIONS)

_TWO_LIMITS = "is in the query string and in the body; send one of them"

_NO_PROOF = "cannot be combined with proofs: undefined answers have no proof"


def nothing() -> None:
    """Do nothing: a page is short, so writing it needs no yield to other requests."""


@dataclass(frozen=True, slots=True)
class Question:
    """A goal of /infer; `proof` is None if only answers are requested. `with_trust` asks for the
    highest level of trust of each answer.
    """

    literal: Literal
    options: AnswerOptions
    proof: ProofOptions | None = None
    with_trust: bool = False

    def written(self, kb: TenantKB, write: Write, notes: Notes) -> list[bytes]:
        """Return the answers as a JSON array in parts; `write` serialises rows that the engine does
        not write.
        """
        if self.with_trust:
            rows = kb.with_trust(self.literal, self.options, notes)
            parts = [write(rows, nothing)] if rows else [b"[]"]
        elif self.proof is not None:
            parts = kb.prove_json(self.literal, proofs_written, self.options, self.proof)
        else:
            parts = kb.infer_json(self.literal, write, self.options, notes=notes)
        if self.literal.negated or parts == [b"[]"]:
            notes.unknown = self._unknown(kb)
        return parts

    def paged(
        self, kb: TenantKB, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return a page of answers and True if more follow. Raises InvalidInput if the body has a
        limit too.
        """
        self._refuse_limit()
        start = self.options.offset + offset
        page = self.options._replace(offset=start, limit=limit)
        if self.proof is not None:
            parts = replace(self, options=page).written(kb, write, notes)
            after = page._replace(offset=start + limit, limit=1)
            return parts, bool(kb.infer(self.literal, after, notes=notes))
        rows, more = self._page(kb, notes, start, limit)
        return [write(rows, nothing)], more

    def table(self, kb: TenantKB, notes: Notes) -> AnswerTable:
        """Return the answers as a table of columns. Raises InvalidInput if proofs are requested."""
        self._refuse_proof()
        table = kb.infer_table(self.literal, self.options, notes=notes)
        if self.literal.negated or not table.num_rows:
            notes.unknown = self._unknown(kb)
        return table

    def table_page(
        self, kb: TenantKB, notes: Notes, offset: int, limit: int
    ) -> tuple[AnswerTable, bool]:
        """Return a page of answers as a table and True if more follow; see `paged` and `table`."""
        self._refuse_proof()
        self._refuse_limit()
        rows, more = self._page(kb, notes, self.options.offset + offset, limit)
        variables = variable_columns(self.literal.atom)
        return table_of_rows(rows, variables, scoped=self.options.scope == ALL_SCOPES), more

    def _page(
        self, kb: TenantKB, notes: Notes, start: int, limit: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return `limit` answers as rows and True if more follow."""
        options = self.options._replace(offset=start, limit=limit + 1)
        infer = kb.with_trust if self.with_trust else kb.infer
        rows = infer(self.literal, options, notes=notes)
        if self.literal.negated or not rows:
            notes.unknown = self._unknown(kb)
        return rows[:limit], len(rows) > limit

    def _refuse_limit(self) -> None:
        if self.options.limit is not None:
            raise InvalidInput.at("limit", _TWO_LIMITS)

    def _refuse_proof(self) -> None:
        if self.with_trust:
            problem = "cannot be combined with Accept: " + MEDIA_TYPE
            raise InvalidInput.at("withTrust", problem)
        if self.proof is not None:
            problem = "cannot be combined with Accept: " + MEDIA_TYPE + "; proofs are JSON only"
            raise InvalidInput.at("withProof", problem)

    def _unknown(self, kb: TenantKB) -> list[MissingPredicate]:
        return kb.unknown_predicates([_signature(self.literal.atom)], self.options.scope)


@dataclass(frozen=True, slots=True)
class Questions:
    """The goals of one /infer, answered from one state."""

    goals: tuple[Question | Conjunction, ...]
    request_limits: RequestLimits

    def each_written(self, kb: TenantKB, write: Write, notes: Notes) -> list[list[bytes]]:
        """Return the answers of each goal as `Question.written` does."""

        def ask(kb: TenantKB) -> list[tuple[list[bytes], Notes]]:
            answered = []
            for index, goal in enumerate(self.goals):
                own = Notes()
                try:
                    answered.append((goal.written(kb, write, own), own))
                except InvalidInput as error:
                    raise within(error, f"goals[{index}]") from None
            return answered

        answered = kb.at_once(ask, self.request_limits)
        notes.warnings = sum(own.warnings for _, own in answered)
        notes.unknown = list(dict.fromkeys(each for _, own in answered for each in own.unknown))
        return [parts for parts, _ in answered]

    def written(self, kb: TenantKB, write: Write, notes: Notes) -> list[bytes]:
        """Return an array with the array of the answers of each goal, in parts."""
        parts = [b"["]
        for number, answers in enumerate(self.each_written(kb, write, notes)):
            parts += (b",", *answers) if number else answers
        return [*parts, b"]"]

    def paged(
        self, kb: TenantKB, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Raise InvalidInput: the answers of several goals have no pages."""
        raise InvalidInput.at("goals", "have no pages; 'limit' in the body bounds each answer")

    def table(self, kb: TenantKB, notes: Notes) -> AnswerTable:
        """Raise InvalidInput: a table has the answers of one goal."""
        raise InvalidInput.at("goals", "cannot be combined with Accept: " + MEDIA_TYPE)

    def table_page(
        self, kb: TenantKB, notes: Notes, offset: int, limit: int
    ) -> tuple[AnswerTable, bool]:
        """Raise InvalidInput as `paged` does."""
        raise InvalidInput.at("goals", "have no pages; 'limit' in the body bounds each answer")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A goal of one or more literals to explain, or whose plan is requested."""

    body: tuple[BodyItem, ...]
    options: AnswerOptions
    proof: ProofOptions
    plan: bool
    analyze: bool
    as_json: bool
    why_not: bool = False
    depth: int = 1
    how_to: HowToOptions | None = None

    def unknown(self, kb: TenantKB) -> list[MissingPredicate]:
        """Return the predicates of the goal that have no fact and no rule."""
        atoms = (item.atom for item in self.body if isinstance(item, Literal))
        return kb.unknown_predicates(map(_signature, atoms), self.options.scope)

    def answer(self, kb: TenantKB) -> str | dict[str, Any]:
        """Return the explanation as text, or as an object if it is a plan or says why not or how
        to.
        """
        if self.how_to is not None:
            proposals = kb.how_to(self.body, self.how_to, self.options)
            return HowToShown.write(proposals) if self.as_json else proposals.text
        if self.why_not:
            result = kb.why_not(self.body, self.options, depth=self.depth)
            return why_not_shown(result) if self.as_json else result.text
        if self.as_json:
            plans = kb.plans(self.body, self.options, analyze=self.analyze)
            return {"goal": ", ".join(map(print_item, self.body)), "plans": plans}
        if self.plan:
            return kb.plan(self.body, self.options, analyze=self.analyze)
        return kb.explain(self.body, self.options, self.proof)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for the stored facts; `positive` is None for both signs."""

    atom: Atom
    positive: bool | None
    options: FactOptions

    def written(self, kb: TenantKB, write: Write, notes: Notes) -> list[bytes]:
        """Return the matching facts with their truth values as a JSON array in parts; see
        `Question.written`.
        """
        return self._written(kb, write, notes, self.options)

    def paged(
        self, kb: TenantKB, write: Write, notes: Notes, offset: int, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return a page of matching facts and True if more follow; see `Question.paged`."""
        page = self._page(offset, limit)
        return self._written(kb, write, notes, page), _more(page, notes)

    def table(self, kb: TenantKB, notes: Notes) -> AnswerTable:
        """Return the matching facts as a table of columns."""
        return self._table(kb, notes, self.options)

    def table_page(
        self, kb: TenantKB, notes: Notes, offset: int, limit: int
    ) -> tuple[AnswerTable, bool]:
        """Return a page of matching facts as a table and True if more follow."""
        page = self._page(offset, limit)
        return self._table(kb, notes, page), _more(page, notes)

    def _written(
        self, kb: TenantKB, write: Write, notes: Notes, options: FactOptions
    ) -> list[bytes]:
        counted = notes if options.is_page else None
        parts = kb.query_json(self.atom, write, options, positive=self.positive, notes=counted)
        if parts == [b"[]"]:
            notes.unknown = kb.unknown_predicates([_signature(self.atom)], options.scope)
        return parts

    def _table(self, kb: TenantKB, notes: Notes, options: FactOptions) -> AnswerTable:
        counted = notes if options.is_page else None
        table = kb.query_table(self.atom, options, positive=self.positive, notes=counted)
        if not table.num_rows:
            notes.unknown = kb.unknown_predicates([_signature(self.atom)], options.scope)
        return table

    def _page(self, offset: int, limit: int) -> FactOptions:
        if self.options.limit is not None:
            raise InvalidInput.at("limit", _TWO_LIMITS)
        return replace(self.options, offset=self.options.offset + offset, limit=limit)


def _more(page: FactOptions, notes: Notes) -> bool:
    """Return True if facts follow those of a page, whose total number is in the notes."""
    return page.offset + (page.limit or 0) < (notes.total or 0)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate over stored facts."""

    query: AggregateQuery
    scope: str | None
    as_of: int | None
    request_limits: RequestLimits

    def unknown(self, kb: TenantKB) -> list[MissingPredicate]:
        """Return the predicate if it has no fact and no rule."""
        pattern = self.query.pattern
        arity = None if pattern is None else len(pattern)
        return kb.unknown_predicates([(self.query.predicate, arity)], self.scope)

    def answer(self, kb: TenantKB, now: int) -> dict[str, Any]:
        """Return the answer of /aggregate."""
        outcome = kb.aggregate(
            self.query, scope=self.scope, as_of=self.as_of, request_limits=self.request_limits
        )
        return {
            "result": outcome.result,
            "op": self.query.op,
            "operation": self.query.op,
            "predicate": self.query.predicate,
            "matchedFacts": outcome.matched,
            "timestamp": now,
        }


def _signature(atom: Atom) -> tuple[str, int]:
    return atom.predicate, atom.arity


def _answer_options(fields: Mapping[str, Any]) -> AnswerOptions:
    return AnswerOptions(
        fields.get("scope"),
        fields.get("limit"),
        fields.get("offset", 0),
        fields.get("min_confidence"),
        fields.get("as_of"),
        fields.get("include_undefined", False),
        request_limits(fields),
    )


def _proof_options(fields: Mapping[str, Any]) -> ProofOptions:
    form = fields.get("proof_format", FORMS[0])
    return ProofOptions(form, fields.get("proof_nodes"), fields.get("proof_depth"))


def _question(fields: Mapping[str, Any], path: str = "text") -> Question | Conjunction:
    """Return the question of a body; `path` is the place of its text."""
    proves, options = proof_asked(fields), _answer_options(fields)
    if "text" in fields:
        conjunction = conjunction_given({**fields, "with_proof": proves}, options, path)
        if conjunction is not None:
            return conjunction
    return Question(literal_given(fields, path), options, _proof(fields, proves))


def _question_of(goal: Any, options: Json, path: str) -> Question | Conjunction:
    """Return the question of an element of `goals`; raises InvalidInput that names its place."""
    if type(goal) is str:
        return _question({**options, "text": goal}, path)
    if type(goal) is dict and goal.keys() == {"text"} and type(goal["text"]) is str:
        return _question({**options, "text": goal["text"]}, f"{path}.text")
    proof = _proof(options, proof_asked(options))
    return Question(goal_from_json(goal, path), _answer_options(options), proof)


def _proof(fields: Mapping[str, Any], proves: bool) -> ProofOptions | None:
    """Return how proofs are written; None if only answers are requested."""
    if fields.get("include_undefined") and proves:
        raise InvalidInput.at("includeUndefined", _NO_PROOF)
    return _proof_options(fields) if proves else None


class GoalBody(AtomBody, Historic):
    """An atom, and the options of goals and of patterns."""

    scope = ReadScope()
    as_of = Instant()
    limit = Whole(1)
    offset = Whole(0)


class QueryBody(GoalBody):
    """A pattern for the stored facts."""

    contains = Text(
        "Text that an argument contains, whatever the case of its letters; an empty text selects "
        "every fact."
    )

    def arguments(self, fields: Json) -> Json:
        """Return the pattern."""
        atom, positive = atom_given(fields)
        options = FactOptions(
            fields.get("scope"),
            fields.get("limit"),
            fields.get("offset", 0),
            fields.get("as_of"),
            fields.get("contains", ""),
            request_limits(fields),
        )
        return {"pattern": Pattern(atom, positive, options)}


class QuestionBody(GoalBody):
    """A goal, and how it is answered."""

    polarity = Choice("positive", "negative")
    min_confidence = Fraction()
    with_proof = Flag()
    proof_format = Choice(*FORMS)
    proof_nodes = Whole(1, MAX_PROOF_NODES)
    proof_depth = Whole(1, MAX_PROOF_NODES)
    include_undefined = Flag()

    def arguments(self, fields: Json) -> Json:
        """Return the question; a `text` may have several literals."""
        return {"question": _question(fields)}


MAX_QUESTIONS = 1000
"""Maximum number of goals in one request."""

QUESTIONS_PER_YIELD = 10
"""Goals read between two calls of `yield_now`: a millisecond or two."""

_OF_ONE_GOAL = (*ATOM_OR_TEXT, "negated", "truth_val", "polarity")
"""The fields that state a goal, which an element of `goals` has instead."""


class InferBody(QuestionBody):
    """A goal, or several that are answered from one state."""

    goals = ListOfForms(
        BodyAtom,
        AsText,
        {"type": "string"},
        description=f"Up to {MAX_QUESTIONS} goals, in place of one, as objects or as text. The "
        "answer is an array with the answers of each. The options apply to each goal, the limits "
        "of time, derived rows, steps and answers to all goals together.",
        schema={"maxItems": MAX_QUESTIONS},
    )
    with_trust = Flag(
        "Give each answer the highest level of `@levels trust` at which it still follows, as `trust`."
    )

    requires: ClassVar[Json] = {
        "anyOf": [present("text"), present(*ATOM), present("goals", without=ATOM_OR_TEXT)]
    }

    def missing(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the missing keys of the goal; none if there are several goals."""
        return () if "goals" in fields else super().missing(fields)

    def arguments(self, fields: Json) -> Json:
        """Return the question, or all of them."""
        goals = fields.pop("goals", None)
        with_trust = fields.pop("with_trust", False)
        if goals is None:
            arguments = super().arguments(fields)
            if not with_trust:
                return arguments
            question = arguments["question"]
            if not isinstance(question, Question) or question.proof is not None:
                raise InvalidInput.at("withTrust", "is for one atom, without a proof")
            return {"question": replace(question, with_trust=True)}
        if with_trust:
            raise InvalidInput.at("withTrust", "cannot be combined with 'goals'")
        for name in _OF_ONE_GOAL:
            if name in fields:
                raise InvalidInput.at(camel_case(name), "cannot be combined with 'goals'")
        if type(goals) is not list:
            raise InvalidInput.at("goals", "must be an array of goals")
        if len(goals) > MAX_QUESTIONS:  # before any of them is read
            raise InvalidInput.at(
                "goals", f"has {len(goals)} elements; a request has at most {MAX_QUESTIONS}"
            )
        read = paced(goals, current_yield(), QUESTIONS_PER_YIELD)
        questions = tuple(
            _question_of(goal, fields, f"goals[{index}]") for index, goal in enumerate(read)
        )
        return {"question": Questions(questions, request_limits(fields))}


class ReceiptAsked(Budgeted):
    """The goals of a receipt."""

    goals = ListOfForms(
        BodyAtom,
        AsText,
        {"type": "string"},
        required=True,
        description=f"Up to {MAX_GOALS} goals of one literal, as objects or as text. A stored fact "
        "is a goal too.",
        schema={"minItems": 1, "maxItems": MAX_GOALS},
    )
    scope = ReadScope()
    since = Whole(
        0,
        description="Position of a record, such as the `count` of an earlier receipt: the chain "
        "begins after it.",
    )

    def arguments(self, fields: Json) -> Json:
        """Return the goals as literals."""
        goals = fields.pop("goals")
        if type(goals) is not list or not 1 <= len(goals) <= MAX_GOALS:
            raise InvalidInput.at("goals", f"must be an array of 1 to {MAX_GOALS} goals")
        literals = []
        for index, goal in enumerate(goals):
            question = _question_of(goal, {}, f"goals[{index}]")
            if not isinstance(question, Question):
                raise InvalidInput.at(
                    f"goals[{index}]", "must be one literal; write a rule for more"
                )
            literals.append(question.literal)
        return {
            "goals": literals,
            "scope": fields.get("scope"),
            "since": fields.get("since"),
            "request_limits": request_limits(fields),
        }


class ReceiptBundle(JsonObject):
    """A receipt and its signature; docs/reference/proofs.md has the members."""

    receipt = Object()
    signature = Text()


class ExplainBody(QuestionBody):
    """A literal as for a goal, several in `body`, or a goal in the rule language in `text`."""

    text = Text()
    body = Literals()
    plan = Flag()
    analyze = Flag()
    format = Choice("text", "json")
    why_not = Flag("Explain why the goal has no answer.")
    depth = Whole(1, MAX_DEPTH, description="Levels of missing premises, with `whyNot`.")
    how_to = Flag()
    make = Choice(
        TRUE, FALSE, description="With `howTo`: the truth value to reach; default: `true`."
    )
    changing = forms.Predicates("With `howTo`: predicates with rules whose facts may change too.")

    requires: ClassVar[Json] = {
        "anyOf": [present("text"), present("body"), present("predicate", "args")]
    }

    def missing(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """Return no keys: a goal in `body` has neither text nor predicate."""
        return ()

    def arguments(self, fields: Json) -> Json:
        """Return the explanation."""
        why_not, how_to = fields.get("why_not", False), fields.get("how_to", False)
        plans = fields.get("plan", False) or fields.get("analyze", False)
        if fields.get("include_undefined") and not (why_not or how_to):
            raise InvalidInput.at("includeUndefined", _NO_PROOF)
        if why_not and plans:
            raise InvalidInput.at("whyNot", "cannot be combined with 'plan' or 'analyze'")
        if how_to and (plans or why_not):
            raise InvalidInput.at("howTo", "cannot be combined with 'whyNot', 'plan' or 'analyze'")
        if "depth" in fields and not why_not:
            raise InvalidInput.at("depth", "applies with 'whyNot' only; proofs have 'proofDepth'")
        for key in ("make", "changing"):
            if key in fields and not how_to:
                raise InvalidInput.at(key, "applies with 'howTo' only")
        as_json = fields.get("format", "json" if why_not or how_to else "text") == "json"
        body = _goal(fields)
        if as_json and not (plans or why_not or how_to):
            raise InvalidInput.at(
                "format",
                "applies to plans, 'whyNot' and 'howTo' only; for proofs as JSON use /infer with "
                "'withProof'",
            )
        return {
            "explanation": Explanation(
                body,
                _answer_options(fields),
                _proof_options(fields),
                plans,
                fields.get("analyze", False),
                as_json,
                why_not,
                fields.get("depth", 1),
                _how_to(fields) if how_to else None,
            )
        }


class AggregateOperation(Text):
    """The name of an aggregate, in any case."""

    schema: ClassVar[Json] = {
        "type": "string",
        "pattern": f"^({_ANY_CASE})$",
        "description": f"One of {', '.join(OPERATIONS)}, in any case.",
    }


class AggregateBody(Historic):
    """An aggregate over stored facts."""

    predicate = Predicate(required=True)
    op = AggregateOperation()
    operation = AggregateOperation()
    arg_index = Whole(0)
    args = PatternArguments()
    scope = ReadScope()
    skip_non_numeric = Flag()
    as_of = Instant()

    requires: ClassVar[Json] = {"anyOf": [present("op"), present("operation")]}

    def arguments(self, fields: Json) -> Json:
        """Return the aggregation."""
        op = fields.get("op", fields.get("operation"))
        if op is None:
            raise InvalidInput.at("op", f"is required: one of {', '.join(OPERATIONS)}")
        if op.upper() not in OPERATIONS:
            raise InvalidInput.at("op", f"must be one of {', '.join(OPERATIONS)}")
        if op.upper() != "COUNT" and "arg_index" not in fields:
            raise InvalidInput.at("argIndex", f"is required for {op.upper()}")
        pattern = {"predicate": fields["predicate"], "args": wildcards(fields.get("args", []))}
        atom = atom_from_json(pattern)
        query = AggregateQuery(
            atom.predicate,
            op.upper(),
            fields.get("arg_index"),
            atom_terms(atom) if "args" in fields else None,
            fields.get("skip_non_numeric", False),
        )
        limits = fields.get("scope"), fields.get("as_of"), request_limits(fields)
        return {"aggregation": Aggregation(query, *limits)}


def _how_to(fields: Mapping[str, Any]) -> HowToOptions:
    limit = fields.get("limit")
    return HowToOptions(
        fields.get("make", TRUE),
        predicates_given(fields.get("changing", []), "changing"),
        DEFAULT_PROPOSALS if limit is None else limit,
    )


def _goal(fields: Mapping[str, Any]) -> tuple[BodyItem, ...]:
    if "text" in fields:
        check_goal_size(fields["text"], "text")
        return parse_body(fields["text"])
    if "body" not in fields:
        return (literal_given(fields),)
    items = fields["body"]
    if type(items) is not list or not items:
        raise InvalidInput.at("body", "must be an array of literals")
    if problem := DEFAULT_LIMITS.body_problem(len(items)):
        raise InvalidInput.at("body", problem)
    return tuple(item_from_json(item, f"body[{index}]") for index, item in enumerate(items))


class SetOfRule(JsonObject):
    """A rule set that contains a rule, and its version."""

    name = Text()
    version = Count()


class ProofStep(JsonObject):
    """The step that proved a goal."""

    type = Choice(
        "fact_match",
        "rule_application",
        "negation_as_failure",
        "explicit_negative",
        "builtin",
        "aggregate",
        "external",
        "elided",
    )
    fact = One(QuotedRow, allow_none=True)
    rule = Text(allow_none=True)
    rule_sets = Many(SetOfRule, "Of a rule that belongs to any.", optional=True)
    body_proofs = Many(lambda: ProofNode(), allow_none=True)
    text = Text(optional=True)
    rows = Count(optional=True)
    inputs = Many(Anything(), optional=True)


class ProofNode(JsonObject):
    """A goal and its proof."""

    goal = One(Row)
    step = One(ProofStep)
    substitution = ByName(Text())


class ProofTree(JsonObject):
    """An answer and its proof as a tree."""

    result = One(Row)
    proof = One(ProofNode)


class GraphFact(JsonObject):
    """The fact of a node."""

    predicate = Text()
    args = Many(Text())
    negated = Flag(optional=True)


class GraphRule(JsonObject):
    """The rule of a node."""

    id = Text()
    text = Text()
    rule_sets = Many(SetOfRule, "Of a rule that belongs to any.", optional=True)


class GraphNode(JsonObject):
    """A fact and the names of the nodes it depends on."""

    fact = One(GraphFact)
    kind = Text()
    depth = Count()
    premises = Many(Text())
    alternatives = Count(optional=True)
    text = Text(optional=True)
    rule = One(GraphRule, optional=True)
    bindings = ByName(Text(), optional=True)
    rows = Count(optional=True)
    inputs = Many(Anything(), optional=True)
    evidence = Many(QuotationShown, "Of a stored fact that has any.", optional=True)


class Graph(JsonObject):
    """The nodes of a proof by name."""

    root = Text()
    truncated = Flag()
    nodes = ByName(GraphNode)


class ProofGraph(JsonObject):
    """An answer and its proof as a graph."""

    predicate = Text()
    args = Many(Text())
    negated = Flag()
    scope = Text(allow_none=True)
    confidence = Fraction(allow_none=True)
    result = One(Row)
    proof = One(Graph)


_ANSWERS = [{"type": "array", "items": form} for form in (Row, ProofTree, ProofGraph, Bindings)]

ANSWERS: Json = {
    "anyOf": [*_ANSWERS, {"type": "array", "items": {"anyOf": _ANSWERS}}],
    "description": "Rows; with proofs asked for, a proof for each row; for a goal of several literals, "
    "the values of its variables. For `goals`, an array with the answers of each.",
}


COLUMNS: Json = {
    "type": "string",
    "format": "binary",
    "description": "The answers as an Arrow IPC stream.",
}


class Plans(JsonObject):
    """The plan of a goal in each partition asked."""

    goal = Text()
    plans = Many(Anything(schema={"type": "object"}))


class SlowGoalShown(Answer):
    """A slow goal: its slowest run in the last hour."""

    goal = Text("The goal as it was asked.")
    is_cut = Flag("The goal is longer than the text shows.")
    kind = Text()
    ms = Number()
    rows_made = Count()
    outcome = Text("`answered`, or the name of the error that ended the run.")
    at = Time()
    count = Count()


class SlowGoalsShown(JsonObject):
    """The slowest goals of a tenant, slowest first."""

    goals = Many(SlowGoalShown)


class Premise(JsonObject):
    """A literal or a comparison: as in the body of a rule, and as text."""

    predicate = Text(optional=True)
    builtin = Anything(optional=True)
    args = Many(Text())
    negated = Flag()
    polarity = Choice("negative", optional=True)
    text = Text()


class CandidateShown(JsonObject):
    """An instance of a rule that nearly concludes the goal."""

    rule = One(GraphRule, description="Null for the goal itself.", allow_none=True)
    scope = Text(allow_none=True)
    bindings = ByName(Text())
    satisfied = Many(Premise, "The premises that hold.")
    missing = One(Premise, description="The next premise, which does not hold.")
    blocked_by = One(Premise, description="What makes a negated premise false.", allow_none=True)
    undefined = Flag("The missing premise is undefined, not false.")
    because = One(
        lambda: CandidateShown(),
        description="The nearest candidate for `missing`.",
        allow_none=True,
    )


class UnknownShown(JsonObject):
    """A predicate without facts and rules."""

    name = Text()
    arity = Count(allow_none=True)
    did_you_mean = Text(allow_none=True)


class WhyNotShown(JsonObject):
    """Why a goal has no answer."""

    goal = Text()
    holds = Flag()
    truth = Choice(TRUE, FALSE, UNDEFINED)
    candidates = Many(CandidateShown)
    denied_by = One(Premise, description="The explicit negative, if it holds.", allow_none=True)
    near_facts = Many(Premise, "Stored facts that differ from the goal in one argument.")
    unknown_predicates = Many(UnknownShown)
    truncated = Flag("A limit ended the search.")
    falls_short = Text(
        "At which level of labels the goal follows. Only where its predicate requires more.",
        optional=True,
    )


HowToShown = answer_of(
    how_to.HowTo,
    "HowToShown",
    make=Choice(TRUE, FALSE, description="The truth value that the changes give the goal."),
    truth=Choice(TRUE, FALSE, UNDEFINED, description="The present truth value."),
)


def why_not_shown(result: WhyNot) -> Json:
    """Return the explanation of a goal without answers as JSON."""
    return {
        "goal": result.goal,
        "holds": result.holds,
        "truth": result.truth,
        "candidates": [_candidate_shown(candidate) for candidate in result.candidates],
        "deniedBy": _atom_shown(result.denied_by),
        "nearFacts": [_atom_shown(fact) for fact in result.near_facts],
        "unknownPredicates": [],
        **shown_unknown(result.unknown_predicates),
        "truncated": result.truncated,
        **({} if result.falls_short is None else {"fallsShort": result.falls_short}),
    }


def _candidate_shown(candidate: WhyNotCandidate) -> Json:
    rule, because = candidate.rule, candidate.because
    return {
        "rule": None if rule is None else {"id": rule.id, "text": rule.text},
        "scope": candidate.scope,
        "bindings": candidate.bindings,
        "satisfied": [_premise_shown(item) for item in candidate.satisfied],
        "missing": _premise_shown(candidate.missing),
        "blockedBy": _atom_shown(candidate.blocked_by),
        "undefined": candidate.undefined,
        "because": None if because is None else _candidate_shown(because),
    }


def _premise_shown(item: BodyItem) -> Json:
    return {**item_to_json(item), "text": print_item(item)}


def _atom_shown(atom: Atom | None) -> Json | None:
    return None if atom is None else _premise_shown(Literal(atom))


class Aggregated(JsonObject):
    """The value of an aggregate."""

    result = Number(allow_none=True)
    op = Text()
    operation = Text()
    predicate = Text()
    matched_facts = Count()
    timestamp = Time()


class PredicateShown(JsonObject):
    """A predicate with its arity and counts."""

    predicate = Text()
    arity = Count()
    fact_count = Count()
    rule_count = Count()
    has_rules = Flag()
    args = Many(Text(), "The names of the arguments of a declared input.", optional=True)
    types = Many(
        Text(allow_none=True),
        "Their types, null for an argument without one. Left out where none has a type.",
        optional=True,
    )
    gloss = Text("What a fact of a declared input means.", optional=True)


class Predicates(JsonObject):
    """The known predicates."""

    predicates = Many(PredicateShown)
    total_predicates = Count()
    total_facts = Count()
    total_rules = Count()


CLAUSES_PER_YIELD = 5000
"""Clauses whose scopes are collected between two calls of `yield_now`: about a millisecond."""


class ExecuteBody(Budgeted):
    """A text of statements, and the scope of those that name none."""

    command = Text(required=True)
    scope = WriteScope()

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.execute`."""
        scope = fields.get("scope")
        blocks = blocks_of(fields["command"], scope)
        clauses = (clause for block in blocks for clause in block.clauses)
        named = {clause.scope for clause in paced(clauses, current_yield(), CLAUSES_PER_YIELD)}
        for name in sorted(name for name in named if name is not None):
            _check_scope(name)
        return {"text": blocks, "scope": scope, "request_limits": request_limits(fields)}


def _check_scope(scope: str) -> None:
    try:
        WriteScope().read(scope)
    except ValueError as error:
        raise InvalidInput.at("command", f"scope {scope!r} {error}") from error


class AnswerRow(Row):
    """An answer of a query; it has the members of a row if the query is a single atom."""

    question = Count("The query of the text that it answers, counted from 0.")
    bindings = ByName(Text(), "The values of the variables of the query.")

    def on_bind_field(self, field_name: str, field_obj: Any) -> None:
        """Make the members of a row optional."""
        super().on_bind_field(field_name, field_obj)
        field_obj.required = field_name in ("question", "bindings")


ExecutedAnswer = answer_of(
    results.Executed,
    "Executed",
    answers=Many(AnswerRow),
    rules=Many(
        Text(),
        "The rules of the text as they are stored.",
        of=lambda done: [rule.text for rule in done.rules],
    ),
)
