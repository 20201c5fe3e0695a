"""The passes from rules to an evaluable program, in their order, and the driver that runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns

from kbplanner.errors import EngineFault, ExternalRecursion
from kbplanner.ir.calls import check_callable, infer_modes
from kbplanner.ir.equivalence import by_classes
from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.program import Clause, Program, dependencies
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.verify import verify
from kbplanner.pacing import YieldNow, go_on
from kbplanner.passes.adorn import adorn
from kbplanner.passes.linear_recursion import rewrite_linear_recursion
from kbplanner.passes.magic import magic
from kbplanner.passes.order import NoStatistics, Statistics
from kbplanner.passes.project import project
from kbplanner.passes.restrict import restrict
from kbplanner.passes.slice import slice_program
from kbplanner.passes.stratify import widen


@dataclass(frozen=True, slots=True)
class PassContext:
    """Input that every pass may read: the goal's adornment, and statistics of stored relations.

    A pass calls `yield_now` about once a millisecond.
    """

    adornment: str
    statistics: Statistics
    yield_now: YieldNow = go_on


Pass = Callable[[Program, PassContext], Program]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("restrict", lambda program, context: restrict(program, context.yield_now)),
    ("equivalence", lambda program, context: by_classes(program, context.yield_now)),
    ("slice", lambda program, context: slice_program(program, context.yield_now)),
    (
        "adorn",
        lambda program, context: adorn(
            program, context.adornment, context.statistics, context.yield_now
        ),
    ),
    (
        "linear_recursion",
        lambda program, context: rewrite_linear_recursion(program, context.yield_now),
    ),
    ("magic", lambda program, context: magic(program, context.yield_now)),
    ("project", lambda program, context: project(program, context.statistics, context.yield_now)),
)
"""Name and function of each pass, in order. Those in OPTIONAL may be skipped; the others build on
each other.
"""

OPTIONAL = frozenset({"restrict", "equivalence", "linear_recursion", "project"})


def rewrite(  # noqa: PLR0913  one parameter for each way to compile a goal
    clauses: Sequence[Clause],
    goal: RelationSchema,
    adornment: str,
    statistics: Statistics | None = None,
    *,
    skip: Collection[str] = (),
    full: bool = False,
    timings: dict[str, int] | None = None,
    external: Modes = NO_MODES,
    yield_now: YieldNow = go_on,
) -> Program:
    """Rewrite lowered clauses for a goal on a DERIVED relation asked with `adornment` ("b" bound,
    "f" free).

    Passes named in `skip` are left out (only optional ones may be); `timings` collects nanoseconds
    by pass name. Where demand would be recursive through absence, the passes run again and compute
    the relations concerned in full. With `full` every relation is computed in full: the program
    derives all conclusions the goal depends on, also for other constants. `yield_now` is called
    about once a millisecond. `external` has the modes of DERIVED relations that plugins provide:
    their demand is never dropped. Raises UnboundArgument if the goal does not bind what they need,
    and ExternalRecursion if one would have to be computed in full.
    """
    unknown = set(skip) - OPTIONAL
    if unknown:
        raise EngineFault(f"passes that cannot be skipped: {', '.join(sorted(unknown))}")
    context = PassContext(adornment, statistics or NoStatistics(), yield_now)
    source = Program(tuple(clauses), goal, external=_reached(clauses, goal, external, yield_now))
    # Once: the passes that may run again name relations that are computed in full.
    for name, run in PASSES[:2]:
        if name not in skip:
            source = _run(name, run, source, context, timings)
    if source.external:
        source = _with_modes(source, adornment, yield_now)
    if full:
        sliced = slice_program(source, yield_now)
        source = replace(sliced, full=frozenset(clause.head.schema for clause in sliced.clauses))
    while True:
        program = source
        for name, run in PASSES[2:]:
            if name not in skip:
                program = _run(name, run, program, context, timings)
        widened = widen(program, source, yield_now)
        if widened is None:
            return program
        widened = widened.difference(source.external)
        if widened == source.full:
            if source.external:  # demand for a plugin depends on an absence of what it gives
                raise ExternalRecursion(_names(source.external, source))
            raise EngineFault(f"no strata for {goal}: the rules should have been refused")
        if unbound := widened.intersection(source.modes):
            raise ExternalRecursion(_names(unbound, source))
        source = replace(source, full=widened)


def _reached(
    clauses: Sequence[Clause], goal: RelationSchema, external: Modes, yield_now: YieldNow
) -> Modes:
    """Return the modes of those external relations that the goal depends on."""
    if not external:
        return NO_MODES
    bare = replace(goal, restrictions=())
    reached = dependencies(clauses, (bare,), yield_now)
    return {schema: modes for schema, modes in external.items() if schema in reached}


def _with_modes(source: Program, adornment: str, yield_now: YieldNow) -> Program:
    """Return the program with the modes of all its relations, checked for its goal."""
    modes = infer_modes(source.clauses, source.external, yield_now)
    check_callable(source.clauses, source.goal, adornment, modes, source.external)
    return replace(source, modes=modes)


def _names(relations: Iterable[RelationSchema], source: Program) -> list[str]:
    """Return the names of the external relations that relations depend on."""
    reached = dependencies(source.clauses, relations)
    return sorted(str(schema.stored) for schema in source.external if schema in reached)


def _run(
    name: str,
    run: Pass,
    program: Program,
    context: PassContext,
    timings: dict[str, int] | None,
) -> Program:
    context.yield_now()
    start = perf_counter_ns()
    program = run(program, context)
    if timings is not None:
        timings[name] = timings.get(name, 0) + perf_counter_ns() - start
    verify(program, name, context.yield_now)
    return program
