"""Spans of reads: goals and windows, with predicates and binding patterns but no constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from kbcore.reason.budget import Budget
from kbcore.tracing import spans
from kbcore.tracing.spans import Tracer, TraceSpan, shortened
from kbplanner.ir.terms import BodyItem, Comparison, Term, Variable
from kbplanner.syntax.printer import print_item


def begin_read(
    tracer: Tracer, kind: str, goal: Sequence[BodyItem] | None, budget: Budget
) -> TraceSpan | None:
    """Begin the span of a read of a kind, and give it to the budget if it is recorded.

    Reads of no kind, such as that of a list of scopes, have no span.
    """
    if kind == "other":
        return None
    span = tracer.begin(kind)
    if span is spans.INSIDE:
        return None
    if span.is_recorded:
        budget.span = span
        if budget.steps is None:
            budget.steps = 0
        if goal is not None:
            _describe_goal(span, goal, tracer.shows_content)
    return span


def goal_span(budget: Budget, goal: Sequence[BodyItem]) -> AbstractContextManager[None]:
    """Return a block in which a goal of a window is evaluated: a span inside of its span."""
    return _NO_SPAN if budget.span is None else _goal_span(budget, goal)


@contextmanager
def _goal_span(budget: Budget, goal: Sequence[BodyItem]) -> Iterator[None]:
    outer, rows_made, steps = budget.span, budget.rows_made, budget.steps or 0
    with spans.span("ask") as span:
        budget.span = span
        try:
            yield
        finally:
            budget.span = outer
            if span is not None:
                _describe_goal(span, goal, spans.tracer is not None and spans.tracer.shows_content)
                span.set("kbcore.goal.rows_derived", budget.rows_made - rows_made)
                span.set("kbcore.goal.steps", (budget.steps or 0) - steps)


def _describe_goal(span: TraceSpan, goal: Sequence[BodyItem], shows_content: bool) -> None:
    span.set("kbcore.goal.predicate", shortened(", ".join(map(_signature, goal))))
    span.set("kbcore.goal.binding", shortened(", ".join(map(_binding, goal))))
    if shows_content:
        span.set("kbcore.goal.text", ", ".join(map(print_item, goal)))


def describe_stored(span: TraceSpan, predicate: str, args: Sequence[Term], count: int) -> None:
    """Say in the span of a read which stored facts are read, and how many were."""
    span.set("kbcore.goal.predicate", shortened(f"{predicate}/{len(args)}"))
    span.set("kbcore.goal.binding", shortened(_pattern(args)))
    span.set("kbcore.goal.answers", count)


def describe_proof(budget: Budget, depth: int) -> None:
    """Say in the span of a read how deep its deepest proof is, in rule steps."""
    budget.proof_depth = max(budget.proof_depth, depth)


def end_read(
    span: TraceSpan, budget: Budget, error: BaseException | None, answers: int | None = None
) -> None:
    """End the span of a read with what it has used; `answers` is their number, if it has a goal."""
    if span.is_recorded:
        budget.span = None
        if answers is not None:
            span.set("kbcore.goal.answers", answers)
        span.set("kbcore.goal.rows_derived", budget.rows_made)
        if budget.steps is not None:
            span.set("kbcore.goal.steps", budget.steps)
        if budget.proof_nodes:
            span.set("kbcore.proof.nodes", budget.proof_nodes)
            span.set("kbcore.proof.depth", budget.proof_depth)
        if error is not None:
            span.fail(error)
    span.end()


_NO_SPAN: AbstractContextManager[None] = nullcontext()


def _signature(item: BodyItem) -> str:
    if isinstance(item, Comparison):
        return item.op
    sign = ("not " if item.negated else "") + ("" if item.atom.positive else "~")
    return f"{sign}{item.atom.predicate}/{len(item.atom.args)}"


def _binding(item: BodyItem) -> str:
    return item.op if isinstance(item, Comparison) else _pattern(item.atom.args)


def _pattern(args: Sequence[object]) -> str:
    """Return `b` for each argument that is bound, and `f` for each that is free."""
    return "".join("f" if isinstance(arg, Variable) else "b" for arg in args)
