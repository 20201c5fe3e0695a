"""SWI-Prolog with tabling, in a process of its own that times itself. It is given our rules in
Prolog's spelling.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from measure import Effort, Sample, Skipped, too_late

if TYPE_CHECKING:
    from access import Step
    from graphs import Access
    from programs import Program
    from retracts import Deletions
    from writes import Outcomes, Retractions

    from peers.sqlite import Streamed

PROGRAM = shutil.which("swipl")
VERSION = (
    subprocess.run(
        [PROGRAM, "--version"], capture_output=True, text=True, timeout=20, check=False
    ).stdout.split(" for")[0]
    if PROGRAM
    else ""
)

PROGRAM_MAIN = """
timed(_, 0, _, _, _, []) :- !.
timed(_, _, Left, _, seen, []) :- Left =< 0, !.
timed(Goal, Repeats, Left, Limit, Seen, Times) :-
    garbage_collect,
    (   catch(call_with_time_limit(Limit, once_timed(Goal, Count, First)), time_limit_exceeded, fail)
    ->  again(Goal, First, Time), nb_setval(count, Count),
        Fewer is Repeats - 1, YieldNow is Left - Time,
        timed(Goal, Fewer, YieldNow, Limit, seen, More), Times = [Time|More]
    ;   Seen == seen -> Times = []
    ;   throw(time_limit_exceeded)
    ).
once_timed(Goal, Count, Time) :-
    abolish_all_tables,
    statistics(cputime, Start), aggregate_all(count, Goal, Count), statistics(cputime, End),
    Time is End - Start.
again(_, First, First) :- First >= 0.002, !.
again(Goal, _, Time) :-
    findall(One, (between(1, 10, _), once_timed(Goal, _, One)), Times), sum_list(Times, Sum), Time is Sum / 10.
bench(Goal, Repeats, Seconds, Limit) :-
    (   catch(timed(Goal, Repeats, Seconds, Limit, new, Times), Error, true),
        (   var(Error)
        ->  msort(Times, Sorted), length(Sorted, N), Middle is N // 2, nth0(Middle, Sorted, Median),
            nb_getval(count, Count), format("ok ~w ~w~n", [Count, Median])
        ;   Error == time_limit_exceeded -> format("late~n", [])
        ;   Error = error(Kind, _), format("error ~q~n", [Kind])
        )
    ->  true
    ;   format("error failed~n", [])
    ),
    abolish_all_tables, flush_output.
"""

ACCESS_MAIN = """
goal(list(User), Count) :- findall(Thing, may(User, read, Thing), Things), sort(Things, Sorted), length(Sorted, Count).
goal(check(User, Thing), Count) :- ( may(User, read, Thing) -> Count = 1 ; Count = 0 ).
steps(Left) :- step(_, Step), work(Step), statistics(cputime, Now), Now > Left, !.
steps(_).
work(tell(Fact)) :- !, assertz(Fact).
work(retract(Fact)) :- !, retract(Fact), !.
work(Goal) :- statistics(cputime, Start), goal(Goal, Count), statistics(cputime, End), Time is End - Start,
    format("~w ~w~n", [Count, Time]).
"""

RETRACTIONS_MAIN = """
rounds(Until) :- gone(_, X, Y), round(X, Y), statistics(cputime, Now), Now > Until, !.
rounds(_).
round(X, Y) :-
    statistics(cputime, Start),
    retract(edge(X, Y)), !,
    statistics(cputime, Between),
    findall(Z, ask(Z), Zs), length(Zs, Count),
    statistics(cputime, End),
    assertz(edge(X, Y)),
    Gone is Between - Start, Asked is End - Between,
    format("~w ~w ~w~n", [Count, Gone, Asked]).
"""

DELETIONS_MAIN = """
steps(Until) :- step(_, X, Y, Goal), round(X, Y, Goal), statistics(cputime, Now), Now > Until, !.
steps(_).
ask(all, Count) :- !, aggregate_all(count, path(_, _), Count).
ask(Start, Count) :- findall(Z, path(Start, Z), Zs), length(Zs, Count).
round(X, Y, Goal) :-
    statistics(cputime, Start),
    retract(edge(X, Y)), !,
    statistics(cputime, Between),
    ask(Goal, Count),
    statistics(cputime, End),
    Gone is Between - Start, Asked is End - Between,
    format("~w ~w ~w~n", [Count, Gone, Asked]).
"""


def prolog(rules: str) -> str:
    """Our rules in Prolog's spelling."""
    return re.sub(r"\?(\w+)", r"V_\1", rules).replace("not ", "\\+ ")


def heads(rules: str) -> Iterable[str]:
    """name/arity of what the rules define."""
    return dict.fromkeys(
        f"{name}/{args.count(',') + 1}" for name, args in re.findall(r"(\w+)\(([^)]*)\) :-", rules)
    )


def run(lines: Iterable[str], seconds: float) -> list[str]:
    """Run a program and return what it printed."""
    if PROGRAM is None:
        raise Skipped("not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.pl")
        path.write_text("\n".join(lines) + "\n")
        command = [
            PROGRAM,
            "-q",
            "--stack-limit=2g",
            "--table-space=2g",
            "-g",
            "main",
            "-t",
            "halt",
            str(path),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False
            )
            output = done.stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode()
    return output.splitlines()


def programs(program: Program, effort: Effort) -> list[Sample]:
    """Each goal with empty tables, counted."""
    lines = [
        ":- use_module(library(time)).",
        *(f":- table {head}." for head in heads(program.rules)),
        prolog(program.rules),
    ]
    for name, rows in program.relations.items():
        lines += [f"{name}({', '.join(row)})." for row in rows]
    lines.append(PROGRAM_MAIN)
    goals = program.goals
    calls = [
        f"bench({prolog(goal.text)}, {effort.repeats}, {effort.seconds}, {effort.limit})"
        for goal in goals
    ]
    lines.append(f"main :- {', '.join(calls)}.")
    samples = []
    for line in run(lines, 30 + len(goals) * (effort.limit + 2)):
        word, *rest = line.split(maxsplit=2)
        if word == "ok":
            samples.append(Sample(float(rest[1]), int(rest[0])))
        elif word == "late":
            samples.append(too_late(effort.limit))
        else:
            samples.append(Sample(None, None, " ".join(rest)[:40], beyond=float("inf")))
    return samples + [Sample(None, None, "stopped")] * (len(goals) - len(samples))


def retractions(script: Retractions, effort: Effort) -> Outcomes:
    """Incremental tables, as many rounds as there is time for."""
    lines = [":- dynamic([edge/2], [incremental(true)])."]
    lines += [f":- table {head} as incremental." for head in heads(script.rules)]
    lines += [prolog(script.rules), *(f"edge({x}, {y})." for x, y in script.edges)]
    lines += [f"gone({number}, {x}, {y})." for number, (x, y) in enumerate(script.gone)]
    lines += [RETRACTIONS_MAIN, f"ask(Y) :- path({script.start}, Y)."]
    lines.append(
        f"main :- statistics(cputime, Now), Until is Now + {effort.stream}, rounds(Until)."
    )
    found = [line.split() for line in run(lines, effort.stream * 4 + 30)]
    return [(float(gone), float(asked), int(count)) for count, gone, asked in found]


def retracts(script: Deletions, effort: Effort) -> Outcomes:
    """Incremental tables, all pairs in one of them before the clock starts; as many rounds as there
    is time for.
    """
    lines = [":- dynamic([edge/2], [incremental(true)])."]
    lines += [f":- table {head} as incremental." for head in heads(script.rules)]
    lines += [prolog(script.rules), *(f"edge({x}, {y})." for x, y in script.edges)]
    lines += [
        f"step({number}, {x}, {y}, {start or 'all'})."
        for number, ((x, y), start) in enumerate(script.steps)
    ]
    lines += [
        DELETIONS_MAIN,
        "main :- aggregate_all(count, path(_, _), _), statistics(cputime, Now),",
    ]
    lines.append(f"    Until is Now + {effort.stream}, steps(Until).")
    found = [line.split() for line in run(lines, effort.stream * 4 + 60)]
    return [(float(gone), float(asked), int(count)) for count, gone, asked in found]


def access(base: Access, rules: str, script: Sequence[Step], effort: Effort) -> Streamed:
    """Lists and checks over incremental tables, as many as there is time for."""
    names = {
        "member": base.member,
        "inside": base.inside,
        "allowed": base.grants,
        "banned": base.banned,
    }
    facts = "grant/3, member/2, inside/2, banned/2"
    program = [f":- dynamic(([{facts}]), [incremental(true)])."]
    program += [f":- table {head} as incremental." for head in heads(rules)]
    program.append(prolog(rules))
    for relation, rows in names.items():
        program += [f"{fact_text(relation, row)}." for row in rows]
    for number, step in enumerate(script):
        if step.write:
            shown = f"{step.write}({fact_text(step.relation, step.args)})"
        else:
            shown = (
                f"list({step.args[0]})" if step.thing is None else f"check({', '.join(step.args)})"
            )
        program.append(f"step({number}, {shown}).")
    program += [
        ACCESS_MAIN,
        f"main :- statistics(cputime, Now), Until is Now + {effort.stream}, steps(Until).",
    ]
    found = [line.split() for line in run(program, effort.stream * 2 + 60)]
    return [float(time) for _, time in found], [int(count) for count, _ in found]


def fact_text(relation: str, args: Sequence[str]) -> str:
    """A fact in Prolog; grants are for reading."""
    return (
        f"grant({args[0]}, read, {args[1]})"
        if relation == "allowed"
        else f"{relation}({', '.join(args)})"
    )
