"""Reads of a knowledge base: answers, stored facts, aggregates, explanations and plans."""

from __future__ import annotations

from collections.abc import Iterator, Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from kbcore_client._sync.handle import Handle
from kbcore_client.answers import AnswerSet
from kbcore_client.errors import InvalidInput
from kbcore_client.requests import Reply, Request, goal_form
from kbtypes.markup import Report
from kbtypes.proofs import TREE, Proof
from kbtypes.values import (
    Arg,
    Instant,
    ReadAtom,
    Values,
    atom_of,
    check_constants,
    checked_values,
    columns,
    instant,
    text_of,
)

ALL_SCOPES = "*"
PAGE_SIZE = 1000
UNKNOWN = "x-unknown-predicates"
WARNINGS = "x-answer-warnings"


class Reads(Handle):
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
        server.

        With `with_trust` the rows of `rows()` have `trust`, the highest level of `@levels trust` at
        which the answer follows; the goal has one literal.
        Raises InvalidInput, RuleSyntaxError, BudgetExceeded.
        """
        checked_values(values)
        body = goal_form("goal", goal, args) | {
            "scope": scope,
            "limit": limit,
            "offset": offset or None,
            "minConfidence": min_confidence,
            "asOf": instant(as_of),
            "includeUndefined": include_undefined or None,
            "withTrust": with_trust or None,
        }
        request = Request("/ask", body, names=_NAMES, timeout_ms=timeout_ms)
        return _answers(self._send(request), goal, args, values)

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
        checked_values(values)
        if isinstance(goals, str):
            raise InvalidInput.at("goals", "must be a list, not one string")
        asked = [text_of(f"goals[{index}]", goal) for index, goal in enumerate(goals)]
        body = {"goals": asked, "scope": scope, "limit": limit, "asOf": instant(as_of)}
        reply = self._send(Request("/ask", body, timeout_ms=timeout_ms))
        unknown, warnings = reply.headers.get(UNKNOWN), int(reply.headers.get(WARNINGS, "0"))
        return [
            AnswerSet(rows, goal, None, values, _unknown_in(goal, unknown), warnings)
            for goal, rows in zip(asked, reply.json(), strict=True)
        ]

    def ask_pages(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        page_size: int = PAGE_SIZE,
        scope: str | None = None,
        values: Values = "text",
        timeout_ms: int | None = None,
    ) -> Iterator[AnswerSet]:
        """Yield the answers of a goal in pages, each fetched when it is needed.

        The options are those of `ask`. Raises Conflict if the tenant changes between two pages.
        """
        checked_values(values)
        body = goal_form("goal", goal, args) | {"scope": scope}
        request = Request("/ask", body, names=_NAMES, timeout_ms=timeout_ms)
        for reply in self._pages(request, page_size):
            yield _answers(reply, goal, args, values)

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
        the case of its letters. The other options are those of `ask`.
        """
        checked_values(values)
        body = _pattern(predicate, args) | {
            "scope": scope,
            "limit": limit,
            "offset": offset or None,
            "contains": contains or None,
            "asOf": instant(as_of),
        }
        reply = self._send(Request("/query", body, names=_PATTERN_NAMES))
        return _answers(reply, predicate, args, values)

    def query_pages(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        page_size: int = PAGE_SIZE,
        scope: str | None = None,
        contains: str = "",
        values: Values = "text",
    ) -> Iterator[AnswerSet]:
        """Yield the stored facts that match a pattern in pages, each fetched when it is needed.

        The options are those of `query`. Raises Conflict if the tenant changes between two pages.
        """
        checked_values(values)
        body = _pattern(predicate, args) | {"scope": scope, "contains": contains or None}
        for reply in self._pages(Request("/query", body, names=_PATTERN_NAMES), page_size):
            yield _answers(reply, predicate, args, values)

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
        body: dict[str, Any] = {"predicate": text_of("predicate", predicate), "op": "COUNT"}
        if args is not None or "(" in predicate:
            atom = _positive("predicate", predicate, args)
            body |= {"predicate": atom.predicate, "args": list(atom.args)}
        body |= {"scope": scope, "asOf": instant(as_of)}
        reply = self._send(Request("/aggregate", body))
        return int(reply.json()["matchedFacts"])

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
        error, unless `skip_non_numeric`. Raises InvalidInput.
        """
        atom = _positive("pattern", pattern, args)
        body = {
            "predicate": atom.predicate,
            "args": list(atom.args),
            "op": text_of("op", op),
            "argIndex": None if op.lower() == "count" else _column(atom, of),
            "scope": scope,
            "asOf": instant(as_of),
            "skipNonNumeric": skip_non_numeric or None,
        }
        reply = self._send(Request("/aggregate", body, names={"argIndex": "of"}))
        result: int | float | None = reply.json()["result"]
        return result

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
        body = goal_form("goal", goal, args) | {"scope": scope, "limit": limit}
        request = Request("/explain", body, names=_NAMES, timeout_ms=timeout_ms)
        return Report((self._send(request)).text.removesuffix("\n"))

    def prove(  # noqa: PLR0913  one parameter for each option of a query
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
        as_of: Instant | None = None,
        form: str = TREE,
        nodes: int | None = None,
        depth: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[Proof]:
        """Return the answers of a goal of one literal, each with a proof.

        `form` is `tree`, or `dag` for proofs that name a shared lemma once. A proof is cut at
        `nodes` nodes and at `depth` rules below the answer. The other options are those of `ask`.
        """
        body = goal_form("goal", goal, args) | {
            "withProof": True,
            "scope": scope,
            "limit": limit,
            "asOf": instant(as_of),
            "proofFormat": form,
            "proofNodes": nodes,
            "proofDepth": depth,
        }
        names = {**_NAMES, "proofFormat": "form", "proofNodes": "nodes", "proofDepth": "depth"}
        reply = self._send(Request("/ask", body, names=names, timeout_ms=timeout_ms))
        return [Proof(each["result"], each["proof"], form) for each in reply.json()]

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
        body = goal_form("goal", goal, args) | {"scope": scope, "plan": True, "analyze": analyze}
        request = Request("/explain", body, names=_NAMES, timeout_ms=timeout_ms)
        return Report((self._send(request)).text.removesuffix("\n"))

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
        body = goal_form("goal", goal, args) | {"scope": scope, "plan": True, "analyze": analyze}
        body["format"] = "json"
        reply = self._send(Request("/explain", body, names=_NAMES, timeout_ms=timeout_ms))
        plans: list[dict[str, Any]] = reply.json()["plans"]
        return plans

    def _pages(self, request: Request, page_size: int) -> Iterator[Reply]:
        """Yield the pages of a request, each fetched when it is needed."""
        query = {"limit": str(page_size)}
        names = {**request.names, "limit": "page_size"}
        while True:
            page = Request(
                request.path,
                request.body,
                query=query,
                names=names,
                timeout_ms=request.timeout_ms,
            )
            reply = self._send(page)
            yield reply
            if reply.next_page is None:
                return
            query = dict(parse_qsl(urlsplit(reply.next_page).query))


_NAMES = {"text": "goal"}
"""The argument that holds a goal as text."""

_PATTERN_NAMES = {"text": "predicate"}


def _pattern(predicate: str, args: Sequence[Arg] | None) -> dict[str, Any]:
    atom = atom_of("predicate", predicate, args)
    if args is None:  # JSON would read a quoted "?x" as a variable
        return {"text": predicate, "negated": atom.negative or atom.naf}
    return {"predicate": atom.predicate, "args": list(atom.args), "negated": False}


def _answers(reply: Reply, goal: str, args: Sequence[Arg] | None, values: str) -> AnswerSet:
    unknown, warnings = reply.headers.get(UNKNOWN), int(reply.headers.get(WARNINGS, "0"))
    return AnswerSet(reply.json(), goal, args, values, unknown, warnings)


def _unknown_in(goal: str, unknown: str | None) -> str:
    """Return the unknown predicates of several goals whose names are in one of them."""
    names = unknown.split(", ") if unknown else []
    return ", ".join(name for name in names if unquote(name).partition("/")[0] in goal)


def _positive(field: str, pattern: str, args: Sequence[Arg] | None) -> ReadAtom:
    atom = atom_of(field, pattern, args)
    if atom.negative or atom.naf:
        raise InvalidInput.at(field, "explicit negatives are not counted; query them")
    check_constants(field, atom)
    return atom


def _column(atom: ReadAtom, of: str | int | None) -> int:
    """Return the index of the argument to aggregate."""
    indexes = columns(atom.variables)
    names = ", ".join(f"?{name}" for name in indexes) or "no variable"
    if isinstance(of, int) and not isinstance(of, bool):
        return of
    if of is None:
        if len(indexes) != 1:
            raise InvalidInput.at("of", f"must name one variable of the pattern, which has {names}")
        return next(iter(indexes.values()))
    index = indexes.get(str(of).removeprefix("?"), -1)
    if index < 0:
        raise InvalidInput.at("of", f"{of!r} is not a variable of the pattern, which has {names}")
    return index
