"""Values of a key and their denials are believed as in order of time, in any order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.links import Link, catch_up, following, node

from kbcore import open_kb

DAY = 1000
Statement = tuple[str, bool, int]
"""A value, whether it is asserted or denied, and the day from which."""

STORIES: list[list[Statement]] = [
    [("a", True, 1), ("b", True, 2), ("a", True, 3), ("a", True, 4)],
    [("a", True, 1), ("b", True, 2), ("a", True, 3), ("b", True, 4)],
    [("a", True, 1), ("b", True, 2), ("a", True, 3), ("c", True, 4)],
    [("a", True, 1), ("a", True, 2), ("b", True, 3), ("a", True, 4)],
    [("a", True, 1), ("a", False, 2), ("a", True, 3), ("b", True, 4)],
    [("b", True, 1), ("a", True, 2), ("b", False, 3), ("a", True, 4)],
]
STATEMENT = st.tuples(st.sampled_from("abc"), st.sampled_from([True, True, True, False]))

Ask = Callable[[str, int], Iterable[tuple[str, ...]]]
"""A function that answers a goal as of a time."""


def in_order_of_time(story: list[Statement]) -> list[set[tuple[str, bool]]]:
    """Return the values that are believed in the middle of each day: those whose last statement is
    followed by none that ends it, which another value does, and the denial or the assertion of the
    same.
    """
    days = []
    for day in range(len(story) + 2):
        believed: set[tuple[str, bool]] = set()
        for value, positive, since in sorted(story, key=lambda each: each[2]):
            if since <= day:
                believed.discard((value, not positive))
                if positive:
                    believed = {each for each in believed if not each[1]}
                believed.add((value, positive))
        days.append(believed)
    return days


def believed(ask: Ask, name: str, days: int) -> list[set[tuple[str, bool]]]:
    return [
        {
            (row[-1], positive)
            for positive, sign in ((True, ""), (False, "~"))
            for row in ask(f"{sign}city({name}, ?where)", day * DAY + DAY // 2)
        }
        for day in range(days)
    ]


def text(name: str, statement: Statement) -> str:
    value, positive, day = statement
    return f"{'' if positive else '~'}city({name}, {value}) [validFrom={day * DAY}]"


def asking(kb: Any) -> Ask:
    return lambda goal, time: kb.ask(goal, as_of=time)


@examples(60)
@given(st.lists(STATEMENT, min_size=2, max_size=6), st.data())
def test_all_orders_are_believed_alike(values: list[tuple[str, bool]], data: st.DataObject) -> None:
    story = [(value, positive, day) for day, (value, positive) in enumerate(values, 1)]
    arrivals = data.draw(st.permutations(story))
    parts = data.draw(st.lists(st.integers(1, 3), min_size=len(arrivals), max_size=len(arrivals)))
    with open_kb() as kb:
        kb.teach("@key city(?who, _).")
        for statement in arrivals:
            kb.tell(text("one", statement), conflict="NEWEST_WINS")
        kb.tell(" . ".join(text("together", each) for each in arrivals), conflict="NEWEST_WINS")
        left = list(arrivals)
        for count in parts:
            some, left = left[:count], left[count:]
            if some:
                kb.tell(" . ".join(text("parts", each) for each in some), conflict="NEWEST_WINS")
        expected = in_order_of_time(story)
        for name in ("one", "together", "parts"):
            assert believed(asking(kb), name, len(expected)) == expected, (name, arrivals, parts)


def test_one_request_states_a_value_again_and_ends_it() -> None:
    story: list[Statement] = [
        (value, True, day) for day, value in enumerate(("a", "b", "a", "a", "b", "b"), 1)
    ]
    a1, b2, a3, a4, b5, b6 = (text("parts", each) for each in story)
    with open_kb() as kb:
        kb.teach("@key city(?who, _).")
        for together in (a1, b2, b5, f"{b6} . {a3}", a4):
            kb.tell(together, conflict="NEWEST_WINS")
        expected = in_order_of_time(story)
        assert believed(asking(kb), "parts", len(expected)) == expected


def tell_all(kb: Any) -> dict[str, list[Statement]]:
    """Assert each story in all orders, each under its own name; return the stories by name."""
    kb.teach("@key city(?who, _).")
    stories = {}
    for number, story in enumerate(STORIES):
        for order, told in enumerate(permutations(story)):
            name = f"n{number}_{order}"
            stories[name] = story
            for statement in told:
                kb.tell(text(name, statement), conflict="NEWEST_WINS")
    return stories


def check(kb: Any, stories: dict[str, list[Statement]]) -> None:
    for name, story in stories.items():
        expected = in_order_of_time(story)
        assert believed(asking(kb), name, len(expected)) == expected, (name, story)


def test_every_order_is_kept_by_log_snapshot_and_follower(tmp_path: Path) -> None:
    with node(tmp_path / "leader") as leader:
        stories = tell_all(leader.open("t"))
        check(leader.open("t"), stories)
        with following(tmp_path / "follower", Link(leader)) as follower:
            catch_up(follower)
            check(follower.open("t"), stories)
    with node(tmp_path / "leader") as leader:
        check(leader.open("t"), stories)
        leader.snapshot()
    with node(tmp_path / "leader") as leader:
        check(leader.open("t"), stories)
        kb = leader.open("t")
        for name, story in stories.items():
            kb.tell(text(name, ("d", True, 0)), conflict="NEWEST_WINS")
            stories[name] = [("d", True, 0), *story]
        check(kb, stories)


def test_what_was_stated_between_survives_a_restart(tmp_path: Path) -> None:
    """A value that arrives after a restart ends the older one up to its next statement."""
    story = [("a", True, 1), ("b", True, 2), ("a", True, 3), ("a", True, 5), ("c", True, 4)]
    expected = in_order_of_time(story)
    for by_snapshot in (False, True):
        folder = tmp_path / str(by_snapshot)
        with node(folder) as leader:
            leader.open("t").teach("@key city(?who, _).")
        for statement in (story[3], story[0], story[2], story[1], story[4]):
            with node(folder) as leader:
                leader.open("t").tell(text("ann", statement), conflict="NEWEST_WINS")
                if by_snapshot:
                    leader.snapshot()
        with node(folder) as leader:
            assert believed(asking(leader.open("t")), "ann", len(expected)) == expected
