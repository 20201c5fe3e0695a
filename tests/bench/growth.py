"""Growth of the time of checking, storing and evaluating generated programs with their size.

`python tests/bench/growth.py [--only NAME ...]` prints, for each shape of program and operation,
the CPU seconds for programs of n, 2n and 4n rules, the exponent of the growth from 2n to 4n, and
the longest time without a turn of other requests.
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from gaps import Gaps
from support.http import serve_in_memory

from kbplanner.syntax.parser import load_grammar
from kbserver.process.garbage_collection import (
    GENERATION_0_OBJECTS,
    GENERATION_1_RUNS,
    NO_GENERATION_2,
)

MAX_SECONDS = 8
"""CPU time after which an operation is given up."""


def variables(count: int, name: str = "x") -> list[str]:
    return [f"?{name}{i}" for i in range(count)]


def joined(parts: list[str]) -> str:
    return ", ".join(parts)


def chain(n: int) -> str:
    return "".join(
        f"p{i + 1}(?x) :- p{i}(?x), q(?x, ?y{i % 3}), ?y{i % 3} != a.\n" for i in range(n)
    )


def chain_reversed(n: int) -> str:
    return "".join(f"p{i + 1}(?x) :- p{i}(?x), q(?x, _).\n" for i in reversed(range(n)))


def one_head(n: int) -> str:
    return "".join(f"p{n}(?x) :- q(?x, a{i}).\n" for i in range(n))


def one_head_recursive(n: int) -> str:
    """Each rule is recursive, so that each call looks at all rules."""
    return f"p{n}(?x) :- p(?x, ?y).\n" + "".join(
        f"p(?x, ?y) :- e{i}(?x, ?z), p(?z, ?y).\n" for i in range(n)
    )


def closure_with_bases(n: int) -> str:
    return f"p{n}(?y) :- p(a, ?y).\n" + "".join(
        f"p(?x, ?y) :- e{i}(?x, ?y).\np(?x, ?z) :- e{i}(?x, ?y), p(?y, ?z).\n"
        for i in range(n // 2)
    )


def same_body(n: int) -> str:
    return "".join(f"p{i + 1}(?x) :- q(?x, ?y), r(?y, ?z), s(?z).\n" for i in range(n))


def wide_bodies(n: int) -> str:
    body = joined([f"q(?x{i}, ?x{i + 1})" for i in range(60)])
    return "".join(f"p{i + 1}(?x0, ?x60) :- {body}.\n" for i in range(max(n // 60, 1)))


def wide_atoms(n: int) -> str:
    args = variables(60)
    body = joined([f"q{j}({joined(args[j % 5 :] + args[: j % 5])})" for j in range(15)])
    return "".join(f"p{i + 1}({joined(args)}) :- {body}.\n" for i in range(max(n // 60, 1)))


def equalities(n: int) -> str:
    names = variables(60)
    body = joined([f"{a} = {b}" for a, b in pairwise(names)])
    return "".join(f"p{i + 1}(?x0) :- q(?x59), {body}.\n" for i in range(max(n // 60, 1)))


def computations(n: int) -> str:
    names = variables(60)
    body = joined([f"{a} = {b} + 1" for a, b in pairwise(names)])
    return "".join(f"p{i + 1}(?x0) :- q(?x59), {body}.\n" for i in range(max(n // 60, 1)))


def nested(n: int) -> str:
    """Functions of 60 arguments, two deep, in 15 equations."""
    inner = f"max({joined(variables(30, 'v'))})"
    sides = [f"?w{i} = min({joined([inner] * 12)}, {i})" for i in range(15)]
    atoms = joined([f"q({v})" for v in variables(30, "v")])
    return "".join(f"p{i + 1}(?w0) :- {atoms}, {joined(sides)}.\n" for i in range(max(n // 100, 1)))


def distinct(n: int) -> str:
    """One rule with n different computations, in functions of 60 arguments."""
    sums = [f"?x + {i}" for i in range(n)]
    groups = [sums[i : i + 60] for i in range(0, n, 60)]
    while len(groups) > 1 or len(groups[0]) > 1:
        calls = [f"max({joined(group)})" for group in groups]
        groups = [calls[i : i + 60] for i in range(0, len(calls), 60)]
    return f"p1(?y) :- q(?x), ?y = {groups[0][0]}.\n"


def deep(n: int) -> str:
    expression = "?x"
    for level in range(40):
        expression = f"abs({expression} + 1)" if level % 2 else f"({expression} * 2)"
    return "".join(f"p{i + 1}(?y) :- q(?x), ?y = {expression}.\n" for i in range(max(n // 20, 1)))


def negations(n: int) -> str:
    return "".join(f"p{i + 1}(?x) :- q(?x), not p{i}(?x), not r{i}(?x).\n" for i in range(n))


def negations_denied(n: int) -> str:
    return (
        "".join(
            f"p{i + 1}(?x) :- q(?x), not p{i}(?x).\n~p{i + 1}(?x) :- r(?x), not s(?x).\n"
            for i in range(n // 2)
        )
        + f"p{n}(?x) :- p{n // 2}(?x).\n"
    )


def wide_negations(n: int) -> str:
    body = joined([f"not n{i}(?x)" for i in range(60)])
    heads = "".join(f"~n{i}(?x) :- m{i}(?x).\n" for i in range(60))
    return heads + "".join(f"p{i + 1}(?x) :- q(?x), {body}.\n" for i in range(max(n // 60, 1)))


def games(n: int) -> str:
    """Many components that recurse through negation."""
    return f"p{n}(?x) :- w0(?x).\n" + "".join(
        f"w{i}(?x) :- m{i}(?x, ?y), not w{i}(?y), w{i + 1}(?x).\n" for i in range(n)
    )


def game(n: int) -> str:
    """One component that recurses through negation."""
    return f"p{n}(?x) :- w0(?x).\n" + "".join(
        f"w{i}(?x) :- m(?x, ?y), not w{(i + 1) % n}(?y).\n" for i in range(n)
    )


def above_games(n: int) -> str:
    return "w(?x) :- m(?x, ?y), not w(?y).\np0(?x) :- w(?x).\n" + "".join(
        f"p{i + 1}(?x) :- p{i}(?x).\n" for i in reversed(range(n))
    )


def aggregates(n: int) -> str:
    return "".join(
        f"p{i + 1}(?c, sum(?v), max(?v), count(*)) :- order{i}(?c, ?o, ?v).\n" for i in range(n)
    )


def aggregate_chain(n: int) -> str:
    return "".join(f"p{i + 1}(?c, sum(?v)) :- p{i}(?c, ?v).\n" for i in range(n))


def extrema(n: int) -> str:
    return f"p{n}(?x, ?d) :- d(?x, ?d).\nd(?x, min ?d) :- start(?x), ?d = 0.\n" + "".join(
        f"d(?y, min ?d) :- d(?x, ?e), edge{i}(?x, ?y, ?w), ?d = ?e + ?w, ?w > 0.\n"
        for i in range(n)
    )


def recursions(n: int) -> str:
    return (
        "".join(
            f"t{i}(?x, ?y) :- e{i}(?x, ?y).\nt{i}(?x, ?z) :- t{i}(?x, ?y), t{i}(?y, ?z).\n"
            f"p{i + 1}(?x) :- p{i}(?x), t{i}(?x, ?y).\n"
            for i in range(n // 3)
        )
        + f"p{n}(?x) :- p{n // 3}(?x).\n"
    )


def same_generation(n: int) -> str:
    return (
        f"p{n}(?x) :- "
        + ", ".join(f"g{i}(?x, ?y{i})" for i in range(min(n // 2, 60)))
        + ".\n"
        + "".join(
            f"g{i}(?x, ?y) :- f{i}(?x, ?y).\ng{i}(?x, ?y) :- u{i}(?x, ?a), g{i}(?a, ?b), d{i}(?b, ?y), "
            f"g{min(i + 60, n // 2)}(?x, ?y).\n"
            for i in range(n // 2)
        )
    )


def long_recursions(n: int) -> str:
    """Recursive rules of 60 atoms in a row, which the compiler joins two by two."""
    steps = joined([f"e{i}(?x{i}, ?x{i + 1})" for i in range(1, 60)])
    count = max(n // 60, 1)
    rules = "".join(
        f"g{i}(?x0, ?x1) :- f{i}(?x0, ?x1).\ng{i}(?x0, ?x60) :- g{i}(?x0, ?x1), {steps}.\n"
        for i in range(count)
    )
    calls = joined([f"g{i}(?x, ?y)" for i in range(min(count, 60))])
    return f"{rules}p{n}(?x, ?y) :- {calls}.\n"


def one_cycle(n: int) -> str:
    return "".join(f"p{i + 1}(?x, ?y) :- p{(i + 7) % n}(?y, ?z), q(?z, ?x).\n" for i in range(n))


def keys(n: int) -> str:
    return "".join(f"@key k{i}(?x, _).\n" for i in range(n)) + f"p{n}(?x) :- k0(?x, ?y).\n"


def equivalences(n: int) -> str:
    return "".join(f"@equivalence same{i}/2.\n" for i in range(n)) + "".join(
        f"p{i + 1}(?x) :- p{i}(?x), same{i}(?x, ?y).\n" for i in range(n)
    )


def equivalence_rules(n: int) -> str:
    return (
        "".join(
            f"same{i}(?x, ?y) :- alias{i}(?x, ?y).\nsame{i}(?x, ?y) :- same{i}(?y, ?x).\n"
            f"same{i}(?x, ?z) :- same{i}(?x, ?y), same{i}(?y, ?z).\n"
            f"p{i + 1}(?x) :- p{i}(?x), same{i}(?x, ?y).\n"
            for i in range(n // 4)
        )
        + f"p{n}(?x) :- p{n // 4}(?x).\n"
    )


def adornments(n: int) -> str:
    """Each rule frees another argument of a call: there are 2**k ways to ask the predicate."""
    k = n.bit_length() * 2
    names = variables(k)
    rules = "".join(
        f"p({joined(names)}) :- d(?x{i}), p({joined([*names[:i], '_', *names[i + 1 :]])}).\n"
        for i in range(k)
    )
    return rules + f"p{n}(?y) :- p({joined(['a'] * k)}), q(?y).\n"


def versions(n: int) -> str:
    """Each rule makes one more pair of arguments equal or does not: 2**k versions of the last."""
    k = n.bit_length() * 2
    names = variables(k)
    rules = ""
    for i in range(k - 1):
        rules += f"v{i}({joined(names)}) :- v{i + 1}({joined(names)}).\n"
        same = [*names[: i + 1], names[i], *names[i + 2 :]]
        rules += f"v{i}({joined(names)}) :- v{i + 1}({joined(same)}), e(?x{i + 1}).\n"
    return (
        rules
        + f"v{k - 1}({joined(names)}) :- b({joined(names)}).\np{n}(?x0) :- v0({joined(names)}).\n"
    )


def general_chain(n: int) -> str:
    """Each predicate is asked with an argument bound and then in general."""
    return (
        "".join(
            f"p{i + 1}(?x) :- p{i}(?x).\np{i + 1}(?x) :- e(?x), p{i}(?y), f(?y, ?x).\n"
            for i in range(n // 2)
        )
        + f"p{n}(?x) :- p{n // 2}(?x).\n"
    )


def searches(n: int) -> str:
    return (
        "".join(f"p{i + 1}(?x) :- p{i}(?x).\n" for i in reversed(range(1, n)))
        + "p1(?x) :- q(?x), matches_text(?x, ?f, ?s).\n"
    )


def unbound_searches(n: int) -> str:
    return (
        "".join(f"p{i + 1}(?x) :- p{i}(?x).\n" for i in reversed(range(1, n)))
        + "p1(?f) :- matches_text(?x, ?f, ?s), p1(?x).\n"
    )


def searches_wide(n: int) -> str:
    names = variables(8)
    args = joined(names)
    return f"p0({args}) :- matches_text(?x0, ?x1, ?x2), q({args}).\n" + "".join(
        f"p{i + 1}({args}) :- p{i}({joined(names[i % 8 :] + names[: i % 8])}).\n" for i in range(n)
    )


def subsumption(n: int) -> str:
    """Bodies of one predicate in which many substitutions almost fit."""

    def body(k: int) -> str:
        return joined([f"e(?y{i}, ?y{(i * 7 + 1) % k})" for i in range(k)])

    return "".join(f"p{n}(?y0) :- {body(10 + i % 50)}.\n" for i in range(max(n // 40, 2)))


def repeated(n: int) -> str:
    return f"p{n}(?x) :- q(?x).\n" * n


def names(n: int) -> str:
    return "".join(f"@r{i}: p{i + 1}(?x) :- q(?x, a).\n" for i in range(n))


def confidences(n: int) -> str:
    return "".join(f"p{i + 1}(?x) :- p{i}(?x), q(?x) [confidence=0.5].\n" for i in range(n))


def tests_of(n: int) -> str:
    return (
        "".join(f'test "t{i}" {{ q(a). ?- q(?x) = [a]. }}\n' for i in range(n))
        + f"p{n}(?x) :- q(?x).\n"
    )


def queries(n: int) -> str:
    return f"p{n}(?x) :- q(?x).\n" + "".join(f"?- q(a{i}), p{i}(?x).\n" for i in range(n))


def facts(n: int) -> str:
    return "".join(f"q{i}(a{i}, b).\n" for i in range(n)) + f"p{n}(?x) :- q0(?x, ?y).\n"


def patterns(n: int) -> str:
    return "".join(
        f'p{i + 1}(?x) :- q(?x), matches(?x, "(a|b)*c{i}[a-z]{{1,20}}").\n' for i in range(n)
    )


def upper_words(n: int) -> str:
    return "".join(f"p{i + 1}(X) :- q(X, Y{i}).\n" for i in range(n))


def unsafe(n: int) -> str:
    return "".join(f"p{i + 1}(?x, ?y) :- q(?x).\n" for i in range(n))


def unknown_names(n: int) -> str:
    return "known(a).\n" + "".join(f"p{i + 1}(?x) :- knwon{i}(?x).\n" for i in range(n))


SHAPES: tuple[Callable[[int], str], ...] = (
    chain, chain_reversed, one_head, one_head_recursive, closure_with_bases, same_body, wide_bodies,
    wide_atoms, equalities, computations, nested, distinct, deep, negations, negations_denied, wide_negations,
    games, game, above_games, aggregates, aggregate_chain, extrema, recursions, same_generation,
    long_recursions, one_cycle, keys, equivalences, equivalence_rules, adornments, versions, general_chain, searches,
    unbound_searches, searches_wide, subsumption, repeated, names, confidences, tests_of, queries,
    facts, patterns, upper_words, unsafe, unknown_names,
)  # fmt: skip


class GivenUp(Exception):
    """An operation took more than MAX_SECONDS."""


@contextmanager
def limited() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise GivenUp

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def operations(text: str, n: int, goal: str) -> list[tuple[str, str, Any]]:
    return [
        ("check", "/check", {"text": text}),
        ("preview", "/preview", {"teach": text}),
        ("teach", "/teach", {"text": text}),
        ("ask", "/ask", {"text": goal}),
        ("explain", "/explain", {"text": goal}),
    ]


def goal_of(text: str, n: int) -> str:
    """Return a goal on the last predicate of the program."""
    for last in (n, max(n // 60, 1), max(n // 20, 1), max(n // 100, 1), 1):
        for line in text.splitlines():
            if line.startswith((f"p{last}(", f"@r{last - 1}: p{last}(")):
                head = line[: line.index(" :-")]
                arity = head.count(",") + 1
                return f"p{last}({joined(variables(arity, 'g'))})"
    raise AssertionError("a program without goal")


def measured(shape: Callable[[int], str], n: int) -> dict[str, tuple[float, float, Any]]:
    text = shape(n)
    taken: dict[str, tuple[float, float, Any]] = {}
    with serve_in_memory() as served:
        for name, path, body in operations(text, n, goal_of(text, n)):
            gaps = Gaps(1.0)
            served.runtime.yield_now = gaps
            gc.collect()
            began = time.thread_time()
            status: Any = "given up"
            try:
                with limited():
                    gaps()
                    gaps.longest = 0.0
                    status = served.client.post(path, body).status_code
            except GivenUp:
                pass
            seconds = time.thread_time() - began
            gaps()
            taken[name] = seconds, gaps.longest, status
            if status == "given up":
                break
    return taken


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rules", type=int, default=250)
    options = parser.parse_args()
    logging.disable()  # what was given up is a failure to the server
    load_grammar()
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_RUNS, NO_GENERATION_2)
    print(f"{'shape':20} {'op':8} {'n':>8} {'2n':>8} {'4n':>8} exponent   gap ms  status")
    for shape in SHAPES:
        if options.only and shape.__name__ not in options.only:
            continue
        runs = [measured(shape, options.rules * factor) for factor in (1, 2, 4)]
        for name in runs[0]:
            seconds = [run[name][0] if name in run else math.nan for run in runs]
            gap = max(run[name][1] for run in runs if name in run)
            status = "/".join(str(run[name][2]) for run in runs if name in run)
            exponent = math.log2(seconds[2] / seconds[1]) if seconds[1] > 0 else math.nan
            mark = "!" if (exponent > 1.35 and seconds[2] > 0.2) or gap > 0.05 else " "
            print(
                f"{shape.__name__:20} {name:8} {seconds[0]:8.3f} {seconds[1]:8.3f} {seconds[2]:8.3f} "
                f"{exponent:8.2f} {gap * 1000:8.0f}  {status} {mark}",
                flush=True,
            )


if __name__ == "__main__":
    main()
