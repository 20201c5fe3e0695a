"""Reads of a knowledge base: answers, stored facts, aggregates, explanations, plans and dumps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

from kbcore import python_values
from kbcore.columns.build import variable_columns
from kbcore.errors import InvalidInput
from kbcore.language.dump import DUMP_FORMATS, KB, dump_lines
from kbcore.operations.slow_log import ListedGoal
from kbcore.operations.tenant_kb import TenantKB
from kbcore.proofs.candidates import TRUE, WhyNot
from kbcore.proofs.how_to import DEFAULT_PROPOSALS, HowToOptions
from kbcore.proofs.shapes import FORMS, ProofOptions
from kbcore.proofs.text import proof_text
from kbcore.python_api.answers import AnswerSet, RowTuples, Values
from kbcore.python_api.arguments import body_of, literal_of, request_limits
from kbcore.python_api.handle import PythonHandle
from kbcore.python_api.queries import AtomQuery, BodyQuery, StoredQuery
from kbcore.python_values import fraction, instant, integer, named, positive
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.ask import body_variables
from kbcore.reason.budget import Notes
from kbcore.reason.options import AnswerOptions, FactOptions
from kbcore.search.neighbours import BOTH, DEFAULT_NEIGHBOURS, FactsAround, NeighbourOptions
from kbcore.state.rulebook import (
    ParsedDimension,
    ParsedInput,
    ParsedMask,
    ParsedPhrase,
    ParsedRequirement,
    ParsedRule,
)
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.check.texts import PROGRAM
from kbplanner.ir.terms import Atom, BodyItem, Literal, Term
from kbplanner.syntax.textform import body_from_text
from kbtypes import proofs as plain
from kbtypes.how_to import HowTo
from kbtypes.results import Finding, PredicateInfo
from kbtypes.values import Arg, Instant


class Proof(plain.Proof):
    """An answer with its proof, whose text also has the quotations of evidence."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The proof as text, each conclusion above its premises; raises InvalidInput for a dag."""
        if self.form != FORMS[0]:
            raise InvalidInput.at("form", "only a proof of the form tree has a text")
        return proof_text({"result": self.answer, "proof": self.proof}, lambda: None)


@runtime_checkable
class Writable(Protocol):
    """A text file that is open for writing."""

    def write(self, text: str, /) -> object:
        """Write a text."""


class PythonReads(PythonHandle):
    """Reads of a knowledge base.

    A goal or pattern is a text, such as `"parent(ann, ?x)"`, or a predicate with arguments.
    """

    def ask(  # noqa: PLR0913  one parameter for each option of a query
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: Instant | None = None,
        include_undefined: bool = False,
        with_trust: bool = False,
        values: Values = "text",
        timeout_ms: int | None = None,
    ) -> AnswerSet:
        """Answer a goal with facts and rules.

        `ask("ancestor", ["ann", "?x"])` and `ask("ancestor(ann, ?x)")` return a tuple of all
        arguments for each answer. A text with several literals returns a tuple of the values of its
        variables, in order of appearance. With `values="python"` numbers and booleans are Python's.

        `min_confidence` (0 to 1) leaves out answers of less confidence. `as_of` judges validity at
        a point in time. With `include_undefined` the answers of a goal of one literal include those
        that are neither true nor false; `rows()` marks them. `timeout_ms` lowers the limit of the
        settings.

        With `with_trust` the rows of `rows()` have `trust`, the highest level of `@levels trust` at
        which the answer follows; the goal has one literal.
        Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        options = AnswerOptions(
            scope,
            integer("limit", limit),
            integer("offset", offset) or 0,
            fraction("min_confidence", min_confidence),
            instant("as_of", as_of),
            include_undefined,
            request_limits(timeout_ms),
        )
        body = body_of(goal, args)
        if with_trust:
            return self._trusted(body, options, values)
        return self._answers(self.kb, body, options, values)

    def _trusted(
        self, body: tuple[BodyItem, ...], options: AnswerOptions, values: Values
    ) -> AnswerSet:
        item = body[0]
        if len(body) > 1 or not isinstance(item, Literal):
            raise InvalidInput.at("with_trust", "needs a goal of one literal")
        notes = Notes()
        with named(withTrust="with_trust"):
            rows = self.kb.with_trust(item, options, notes)
        return AnswerSet(RowTuples(rows, notes.warnings), AtomQuery(self.kb, item, options), values)

    def ask_many(
        self,
        goals: Iterable[str],
        *,
        scope: str | None = None,
        limit: int | None = None,
        as_of: Instant | None = None,
        values: Values = "text",
        timeout_ms: int | None = None,
    ) -> list[AnswerSet]:
        """Answer several goals, given as texts, from one state; return the answers of each.

        No write comes between two of the goals. `limit` bounds the answers of each goal,
        `timeout_ms` the time of all together; the other options are those of `ask`. Raises
        InvalidInput that names the goal, as `goals[3]`, and BudgetExceeded.
        """
        options = AnswerOptions(scope, integer("limit", limit), as_of=instant("as_of", as_of))
        bodies = [
            body_from_text(python_values.text(f"goals[{index}]", goal), f"goals[{index}]")
            for index, goal in enumerate(_list_of_goals(goals))
        ]

        def ask(kb: TenantKB) -> list[AnswerSet]:
            return [
                self._answers(kb, body, options, values, f"goals[{index}]")
                for index, body in enumerate(bodies)
            ]

        return self.kb.at_once(ask, request_limits(timeout_ms))

    def _answers(
        self,
        kb: TenantKB,
        body: tuple[BodyItem, ...],
        options: AnswerOptions,
        values: Values,
        field: str | None = None,
    ) -> AnswerSet:
        """Return the answers of a goal from `kb`; `field` is the one that errors name."""
        item = body[0]
        if len(body) == 1 and isinstance(item, Literal):
            query = AtomQuery(self.kb, item, options)
            if item.negated or options.include_undefined or options.min_confidence is not None:
                notes = Notes()
                rows = kb.infer(item, options, notes=notes)
                return AnswerSet(RowTuples(rows, notes.warnings), query, values)
            return AnswerSet(kb.answers(item, options), query, values)
        if options.include_undefined or options.min_confidence is not None:
            option = "include_undefined" if options.include_undefined else "min_confidence"
            raise InvalidInput.at(
                option, "needs a goal of one literal; write a rule for the others"
            )
        variables = body_variables(body)
        try:
            answers = kb.body_answers(body, variables, options)
        except InvalidInput as error:
            if field is None:
                raise
            raise InvalidInput.at(field, error.message) from None
        return AnswerSet(answers, BodyQuery(self.kb, body, variables, options.scope), values)

    def check(self, text: str, *, kind: str = PROGRAM, scope: str | None = None) -> list[Finding]:
        """Return every error and warning of a text in the rule language; store nothing.

        `kind="goal"` checks one goal, such as `ancestor(ann, ?x)`. Predicates and rules that are
        stored count as defined; `scope` is for rules that name none. The codes are in
        docs/reference/diagnostics.md.
        """
        return self.kb.check(python_values.text("text", text), kind=kind, scope=scope)

    def query(  # noqa: PLR0913  one parameter for each option of a query
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        contains: str = "",
        as_of: Instant | None = None,
        values: Values = "text",
    ) -> AnswerSet:
        """Return the stored facts that match a pattern, without applying rules.

        The pattern is `query("p", ["?x"])` or `query("p(?x)")`; `~p(?x)` matches explicit
        negatives. `contains` selects the facts of which an argument contains this text, whatever
        the case of its letters; an empty text selects every fact. The other options are those of
        `ask`.
        """
        name, terms, positive = python_values.atom(predicate, args)
        options = FactOptions(
            scope,
            integer("limit", limit),
            integer("offset", offset) or 0,
            instant("as_of", as_of),
            python_values.text("contains", contains),
        )
        stored = StoredQuery(self.kb, Atom(name, tuple(terms), positive is not False), options)
        return AnswerSet(stored.answers(), stored, values)

    def count(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        as_of: Instant | None = None,
    ) -> int:
        """Return the number of valid, positive, stored facts.

        `count("parent")` counts the facts of a predicate of any arity; `count("parent(ann, ?x)")`
        and `count("parent", ["ann", "?x"])` those that match a pattern.
        """
        name, pattern = predicate, None
        if args is not None or "(" in predicate:
            name, pattern = _positive_pattern(predicate, args)
        query = AggregateQuery(name, "COUNT", pattern=pattern)
        at = instant("as_of", as_of)
        return self.kb.aggregate(query, scope=scope, as_of=at).matched

    def aggregate(
        self,
        op: str,
        pattern: str,
        args: Sequence[Arg] | None = None,
        *,
        of: str | int | None = None,
        scope: str | None = None,
        as_of: Instant | None = None,
        skip_non_numeric: bool = False,
    ) -> int | float | None:
        """Return `count`, `sum`, `min`, `max` or `avg` over the stored facts that match a pattern.

        `aggregate("sum", "salary(?who, ?amount)", of="?amount")` adds the values of a variable;
        `of` may be left out if the pattern has one variable, and be the index of an argument. The
        result of `min`, `max` and `avg` over no facts is None. A value that is not a number is an
        error, unless `skip_non_numeric`. Rules are not applied: for conclusions, use an aggregate
        in the head of a rule. Raises InvalidInput.
        """
        name, terms = _positive_pattern(pattern, args)
        index = None if op.lower() == "count" else _column(terms, of)
        query = AggregateQuery(name, op, index, terms, skip_non_numeric)
        at = instant("as_of", as_of)
        try:
            with named(argIndex="of"):
                return self.kb.aggregate(query, scope=scope, as_of=at).result
        except InvalidInput as error:
            if "value" not in (error.details or {}):
                raise
            problem = "is not a number; skip_non_numeric=True leaves such values out"
            raise InvalidInput(
                f"{(error.details or {})['value']!r} {problem}", error.details
            ) from None

    def explain(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Return proofs of the answers of a goal as text, each answer above its premises.

        The options are those of `ask`. `prove` returns proofs as objects.
        """
        options = AnswerOptions(
            scope, integer("limit", limit), request_limits=request_limits(timeout_ms)
        )
        return self.kb.explain(body_of(goal, args), options)

    def prove(  # noqa: PLR0913  one parameter for each option of a query
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        as_of: Instant | None = None,
        form: str = FORMS[0],
        nodes: int | None = None,
        depth: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[Proof]:
        """Return the answers of a goal of one literal, each with a proof.

        `form` is `tree`, or `dag` for proofs that name a shared lemma once. A proof is cut at
        `nodes` nodes and at `depth` rules below the answer. The other options are those of `ask`.
        """
        if form not in FORMS:
            raise InvalidInput.at("form", f"must be one of {', '.join(FORMS)}")
        options = AnswerOptions(
            scope,
            integer("limit", limit),
            as_of=instant("as_of", as_of),
            request_limits=request_limits(timeout_ms),
        )
        shape = ProofOptions(form, positive("nodes", nodes), positive("depth", depth))
        proofs = self.kb.prove(literal_of(goal, args), options, shape)
        return [Proof(entry["result"], entry["proof"], form) for entry in proofs]

    def neighbours(  # noqa: PLR0913  one parameter for each option of a query
        self,
        constant: Arg,
        *,
        predicates: Iterable[str] | None = None,
        direction: str = BOTH,
        scope: str | None = None,
        limit: int = DEFAULT_NEIGHBOURS,
        offset: int = 0,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> FactsAround:
        """Return stored facts that have a constant in any argument, and their number by predicate.

        `predicates` selects predicates by name. `direction` is "out" for facts whose first argument
        is the constant, "in" for those with it in a later one, "both" for all. The page has at most
        `limit` facts, at most 1,000, in which the predicates take turns; further ones follow at
        higher offsets. Raises InvalidInput, BudgetExceeded.
        """
        options = NeighbourOptions(
            scope,
            None if predicates is None else tuple(predicates),
            direction,
            positive("limit", limit) or DEFAULT_NEIGHBOURS,
            integer("offset", offset) or 0,
            instant("as_of", as_of),
            request_limits(timeout_ms),
        )
        (name,) = python_values.constants("constant", [constant])
        return self.kb.neighbours(name, options)

    def slow_goals(self) -> list[ListedGoal]:
        """Return the slowest goals of the last hour, slowest first: at most 20, from 10 ms on.

        The list is kept in memory, so a start begins with an empty one. `ms` is the slowest run of
        a goal, `count` the number of its runs of 10 ms or more.
        """
        return self.kb.slow_goals()

    def why_not(  # noqa: PLR0913  one parameter for each option of a query
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        depth: int = 1,
        min_confidence: float | None = None,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> WhyNot:
        """Explain why a goal has no answer: how far each rule gets, and its first missing premise.

        `why_not(...).text` says it in words. `limit` bounds the candidates, 5 if it is None;
        `depth` follows the missing premise of each down to this number of levels. The other options
        are those of `ask`. Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        options = AnswerOptions(
            scope,
            integer("limit", limit),
            min_confidence=fraction("min_confidence", min_confidence),
            as_of=instant("as_of", as_of),
            request_limits=request_limits(timeout_ms),
        )
        levels = positive("depth", depth)
        with named(minConfidence="min_confidence"):
            return self.kb.why_not(body_of(goal, args), options, depth=levels or 1)

    def how_to(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        make: str = TRUE,
        changing: Iterable[str] | None = None,
        scope: str | None = None,
        limit: int = DEFAULT_PROPOSALS,
        timeout_ms: int | None = None,
    ) -> HowTo:
        """Return the smallest changes of stored facts that would make a goal true, or false with
        `make="false"`; store nothing.

        The result has at most `limit` `.proposals` of at most three changes, each with `.add` and
        `.remove`, and `.text` says them in words. Facts of predicates without rules change;
        `changing` names predicates with rules whose facts may change too. A search that meets a
        limit is `truncated`. Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        names = () if changing is None else tuple(changing)
        how = HowToOptions(make, names, positive("limit", limit) or DEFAULT_PROPOSALS)
        options = AnswerOptions(scope, request_limits=request_limits(timeout_ms))
        return self.kb.how_to(body_of(goal, args), how, options)

    def plan(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        analyze: bool = False,
        timeout_ms: int | None = None,
    ) -> str:
        """Return the evaluation plan of a goal as text; with `analyze` the goal is run."""
        options = AnswerOptions(scope, request_limits=request_limits(timeout_ms))
        return self.kb.plan(body_of(goal, args), options, analyze=analyze)

    def plans(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        analyze: bool = False,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the evaluation plan of a goal in each scope, as the data of `plan`."""
        options = AnswerOptions(scope, request_limits=request_limits(timeout_ms))
        return self.kb.plans(body_of(goal, args), options, analyze=analyze)

    def rules(self, scope: str | None = ALL_SCOPES) -> list[ParsedRule]:
        """Return the rules in the order in which they were stored."""
        return self.kb.rules(scope)

    def phrases(self, scope: str | None = ALL_SCOPES) -> list[ParsedPhrase]:
        """Return the declared phrases of predicates, in the order of declaration."""
        return self.kb.phrases(scope)

    def inputs(self, scope: str | None = ALL_SCOPES) -> list[ParsedInput]:
        """Return the declared inputs, in the order of declaration."""
        return self.kb.inputs(scope)

    def masks(self, scope: str | None = ALL_SCOPES) -> list[ParsedMask]:
        """Return the declared masks of the decision log, in the order of declaration."""
        return self.kb.masks(scope)

    def dimensions(self, scope: str | None = ALL_SCOPES) -> list[ParsedDimension]:
        """Return the declared levels and groups of labels, in the order of declaration."""
        return self.kb.dimensions(scope)

    def requirements(self, scope: str | None = ALL_SCOPES) -> list[ParsedRequirement]:
        """Return the levels that answers of predicates require, in the order of declaration."""
        return self.kb.requirements(scope)

    def predicates(self, scope: str | None = None) -> list[PredicateInfo]:
        """Return the predicates that have facts or rules, or are declared, by name and
        arity.
        """
        return [
            PredicateInfo(
                entry["predicate"],
                entry["arity"],
                entry["factCount"],
                entry["ruleCount"],
                tuple(entry.get("args", ())),
                entry.get("gloss"),
                tuple(entry.get("types", ())),
            )
            for entry in self.kb.predicates(scope)["predicates"]
        ]

    @overload
    def dump(
        self, target: None = None, format: str | None = None, *, scope: str | None = ALL_SCOPES
    ) -> str: ...

    @overload
    def dump(
        self,
        target: str | os.PathLike[str] | Writable,
        format: str | None = None,
        *,
        scope: str | None = ALL_SCOPES,
    ) -> None: ...

    def dump(
        self,
        target: str | os.PathLike[str] | Writable | None = None,
        format: str | None = None,
        *,
        scope: str | None = ALL_SCOPES,
    ) -> str | None:
        """Write all facts, rules and rule sets as text that `load` reads back; without `target`
        return it.

        `target` is a path or a text file open for writing. `format` is `kb` for the rule language
        or `jsonl` for a JSON object on each line; None: that of the ending of the path, else `kb`.
        The dump is that of the moment of the call, also if other threads write.

        A dump keeps signs, scopes, confidence, validity and metadata, but no creation times,
        accesses and priorities, and of rule sets the version in force. Facts that have expired are
        left out. Raises InvalidInput, OSError.
        """
        if not (target is None or isinstance(target, str | os.PathLike | Writable)):
            raise InvalidInput.at("target", "must be a path or a text file open for writing")
        dump_format = _dump_format(target, format)
        facts, rules, declared, rule_sets = self.kb.contents(scope)
        lines = dump_lines(
            facts,
            [*(known.rule for known in rules), *(known.declaration for known in declared)],
            dump_format,
            (captured.written() for captured in rule_sets),
        )
        if target is None:
            return "".join(f"{line}\n" for line in lines)
        if isinstance(target, str | os.PathLike):
            _write_file(Path(target), lines)
        else:
            for line in lines:
                target.write(f"{line}\n")
        return None


def _list_of_goals(goals: Iterable[str]) -> Iterable[str]:
    if isinstance(goals, str):
        raise InvalidInput.at("goals", "must be a list, not one string")
    return goals


def _write_file(path: Path, lines: Iterable[str]) -> None:
    """Write a file at once: an error leaves the earlier file as it was."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _positive_pattern(predicate: str, args: Sequence[Arg] | None) -> tuple[str, list[Term]]:
    name, terms, positive = python_values.atom(predicate, args)
    if positive is False:
        raise InvalidInput.at("predicate", "explicit negatives are not counted; query them")
    return name, terms


def _column(terms: Sequence[Term], of: str | int | None) -> int:
    """Return the index of the argument to aggregate."""
    columns = variable_columns(Atom("", tuple(terms)))
    names = ", ".join(f"?{name}" for name in columns) or "no variable"
    if isinstance(of, int) and not isinstance(of, bool):
        return of
    if of is None:
        if len(columns) != 1:
            raise InvalidInput.at("of", f"must name one variable of the pattern, which has {names}")
        (index,) = columns.values()
        return index
    index = columns.get(str(of).removeprefix("?"), -1)
    if index < 0:
        raise InvalidInput.at("of", f"{of!r} is not a variable of the pattern, which has {names}")
    return index


def _dump_format(target: object, format: str | None) -> str:
    if format is None and isinstance(target, str | os.PathLike):
        suffix = Path(target).suffix.removeprefix(".")
        if suffix not in DUMP_FORMATS:
            endings = " or ".join(f".{known}" for known in DUMP_FORMATS)
            raise InvalidInput.at("target", f"the name must end in {endings}, or name the format")
        return suffix
    if format is not None and format not in DUMP_FORMATS:
        raise InvalidInput.at("format", f"must be one of {', '.join(DUMP_FORMATS)}")
    return format or KB
