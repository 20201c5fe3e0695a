"""Functions of time: the engine against the reference evaluator, and both against `datetime`."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import programs
from support.examples import examples
from support.reference.engine import ReferenceEngine

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.conditions import condition
from kbplanner.ir.operators import FUNCTION, INTERVAL_RELATIONS
from kbplanner.ir.terms import Apply, Atom, Comparison, Literal, Rule, Variable
from kbplanner.ir.values.compute import compute
from kbplanner.ir.values.instants import TIME_FUNCTIONS, instant
from kbplanner.ir.values.numbers import number

A, B, Z = (Variable(name) for name in "abz")
ROW = Literal(Atom("v", (A, B)))

offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))
times = st.one_of(
    st.datetimes(timezones=st.one_of(st.just(timezone.utc), offsets)),
    st.datetimes(
        datetime(2023, 12, 30),
        datetime(2024, 3, 2),
        timezones=st.one_of(st.just(timezone.utc), offsets),
    ),
)


@st.composite
def written(draw):
    """A text that is an instant, and the time that it names."""
    when = draw(times)
    form = draw(st.integers(0, 4))
    if form == 0:
        day = when.date()
        return day.isoformat(), datetime(day.year, day.month, day.day, tzinfo=timezone.utc)
    if form == 1:
        when = when.replace(second=0, microsecond=0)
        return when.isoformat(timespec="minutes"), when
    if form == 2:
        when = when.replace(microsecond=0, tzinfo=timezone.utc)
        return when.isoformat().replace(
            "+00:00", draw(st.sampled_from(["", "Z", "z", "+00"]))
        ), when
    if form == 3:
        when = when.replace(microsecond=when.microsecond // 1000 * 1000)
        text = when.isoformat(timespec="milliseconds")
        return text.replace("T", draw(st.sampled_from("Tt "))).replace(
            ".", draw(st.sampled_from(".,"))
        ), when
    sign = when.strftime("%z")
    return when.replace(tzinfo=None).isoformat(timespec="microseconds") + sign, when


instants = written().map(lambda pair: pair[0])
broken = st.one_of(
    st.tuples(
        instants, st.integers(0, 30), st.sampled_from(["", "0", "9", "x", "é", "-", ":", " ", "Z"])
    ).map(lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]),
    st.sampled_from(
        [
            "",
            "now",
            "2024",
            "2024-02",
            "2024-02-30",
            "2023-02-29",
            "0000-01-01",
            "2024-13-01",
            "2024-00-10",
            "2024-01-00",
            "2024-01-01T",
            "2024-01-01T24:00",
            "2024-01-01T10",
            "2024-01-01T10:60",
            "2024-01-01T10:00:60",
            "2024-01-01T10:00:00.",
            "2024-01-01T10:00:00.1234567891",
            "2024-01-01T10:00+24:00",
            "2024-01-01T10:00+02:",
            "2024-01-01T10:00+02:60",
            "2024-01-01T10:00+2",
            "2024-01-01Z",
            " 2024-01-01",
            "2024-01-01 ",
            "२०२४-01-01",
            "2024-1-1",
            "20240101",
            "2024-01-01T10:00:00ZZ",
            "2024-01-01T10.5:00",
            "12024-01-01",
        ]
    ),
    st.text("0123456789-:.TZ+ é", max_size=12),
)
texts = st.one_of(instants, instants, broken)
counts = st.one_of(
    st.integers(-40, 40).map(str),
    st.integers(-4_000_000, 4_000_000).map(str),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(
        ["0", "-0", "1.5", "1.0", "x", "", "9223372036854775807", "-9223372036854775808", "1e3"]
    ),
)
CALLS = [
    Apply(name, (A, B)[: FUNCTION[name].least])
    for name in TIME_FUNCTIONS
    if FUNCTION[name].least <= 2
]


def worlds(rules):
    return [programs.World(engine(), RuleSet(rules)) for engine in (Engine, ReferenceEngine)]


@examples(200)
@given(
    st.lists(st.tuples(texts, st.one_of(texts, counts)), min_size=1, max_size=12),
)
def test_functions_of_time_have_the_same_values_in_both_engines(pairs):
    rules = [
        Rule(Atom(f"f{i}", (A, B, Z)), (ROW, Comparison("=", Z, call)))
        for i, call in enumerate(CALLS)
    ]
    for made in worlds(rules):
        made.tell(Atom("v", pair) for pair in pairs)
        for i, call in enumerate(CALLS):
            expected = set()
            for pair in pairs:
                value = compute(call.function, pair[: len(call.args)])
                if value is not None:
                    expected.add((*pair, value))
            assert made.ask(Atom(f"f{i}", (A, B, Z))) == expected


@examples(150)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=12))
def test_conditions_hold_where_their_value_is_true(pairs):
    rules = [
        Rule(Atom(f"{name}_{negated}", (A, B)), (ROW, condition(Apply(name, (A, B)), negated)))
        for name in ("before", "after")
        for negated in (False, True)
    ]
    for made in worlds(rules):
        made.tell(Atom("v", pair) for pair in pairs)
        for name in ("before", "after"):
            for negated in (False, True):
                expected = {
                    p for p in pairs if compute(name, p) == ("false" if negated else "true")
                }
                assert made.ask(Atom(f"{name}_{negated}", (A, B))) == expected


@examples(400)
@given(written(), written(), st.integers(-800_000, 800_000))
def test_times_are_those_of_datetime(first, second, count):
    (text, when), (other_text, other) = first, second
    assert compute("before", (text, other_text)) == ("true" if when < other else "false")
    assert compute("after", (text, other_text)) == ("true" if when > other else "false")
    assert compute("year", (text,)) == str(when.year)
    assert compute("month", (text,)) == str(when.month)
    assert compute("day", (text,)) == str(when.day)
    assert compute("weekday", (text,)) == str(when.isoweekday())
    elapsed = other - when
    days, seconds = (
        compute("days_between", (text, other_text)),
        compute("seconds_between", (text, other_text)),
    )
    assert float(seconds) == pytest.approx(elapsed.total_seconds(), abs=1e-5)
    assert float(days) == pytest.approx(elapsed.total_seconds() / 86400, abs=1e-9)
    if not elapsed.microseconds:
        assert seconds == str(elapsed.days * 86400 + elapsed.seconds)
        assert isinstance(number(days), int) == (elapsed.seconds == 0)
    for function, step in (
        ("add_days", timedelta(days=count)),
        ("add_seconds", timedelta(seconds=count)),
    ):
        moved = compute(function, (text, str(count)))
        try:
            expected = when + step
        except OverflowError:
            assert moved is None
            continue
        found = instant(moved)
        assert found is not None
        assert found.moment == instant(expected.isoformat()).moment
        if function == "add_days":
            assert moved[10:] == text[10:]
        elif len(text) > 10:
            assert moved.endswith(text[16:] if text[16:17] != ":" else text[19:])


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        ("before", ("2026-05-01T10:00+02:00", "2026-05-01T08:00:01Z"), "true"),
        ("before", ("2026-05-01T10:00+02:00", "2026-05-01T08:00Z"), "false"),
        ("before", ("2026-05-01", "2026-05-01T00:00:00.000000001Z"), "true"),
        ("after", ("2026-05-01", "2026-05-01T00:00+00:01"), "true"),
        ("before", ("2026-05-01", "tomorrow"), None),
        ("days_between", ("2024-02-28", "2024-03-01"), "2"),
        ("days_between", ("2024-03-01", "2024-02-28"), "-2"),
        ("days_between", ("2024-01-01", "2024-01-02T12:00Z"), "1.5"),
        ("days_between", ("2024-01-01", "12"), None),
        ("seconds_between", ("2024-01-01T00:00:00.5Z", "2024-01-01T00:00:02Z"), "1.5"),
        ("seconds_between", ("2024-01-01T00:00:02Z", "2024-01-01T00:00:00.5Z"), "-1.5"),
        ("add_days", ("2024-02-28", "2"), "2024-03-01"),
        ("add_days", ("2024-02-28T23:30:00.25+05:30", "-1"), "2024-02-27T23:30:00.25+05:30"),
        ("add_days", ("9999-12-31", "1"), None),
        ("add_days", ("2024-02-28", "1.5"), None),
        ("add_seconds", ("2024-12-31T23:59", "60"), "2025-01-01T00:00"),
        ("add_seconds", ("2024-12-31T23:59+01:00", "61"), "2025-01-01T00:00:01+01:00"),
        ("add_seconds", ("2024-12-31T23:59:59.5Z", "1"), "2025-01-01T00:00:00.5Z"),
        ("add_seconds", ("2024-12-31", "-1"), "2024-12-30T23:59:59Z"),
        ("year", ("2026-01-01T00:30+02:00",), "2026"),
        ("day", ("2026-01-09",), "9"),
        ("weekday", ("2026-05-03",), "7"),
        ("weekday", ("2026-05-04T23:59-11:00",), "1"),
    ],
)
def test_values(function, args, value):
    assert compute(function, args) == value
    variables = (A, B)[: len(args)]
    rule = Rule(
        Atom("f", (Z,)),
        (Literal(Atom("v", variables)), Comparison("=", Z, Apply(function, variables))),
    )
    for made in worlds([rule]):
        made.tell([Atom("v", args)])
        assert made.ask(Atom("f", (Z,))) == ({(value,)} if value is not None else set())


ends = st.one_of(
    instants,
    st.sampled_from(
        ["2024-01-01", "2024-01-01T00:00Z", "2024-01-02", "2024-01-01T02:00+02:00", "2024-01-03"]
    ),
    st.sampled_from(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]),
    st.just(".."),
    broken,
)
FOUR = tuple(Variable(name) for name in "abcd")


def limits(first, second):
    """The ends of an interval as comparable values, by `datetime`; None where it has none."""
    parsed = []
    for text, open_end in ((first, -1), (second, 1)):
        if text == "..":
            parsed.append((open_end, 0))
        elif (found := instant(text)) is None:
            return None
        else:
            parsed.append((0, found.moment))
    start, end = parsed
    return (start, end) if start[0] < end[0] or (start[0] == end[0] == 0 and start < end) else None


RELATIONS = {
    "precedes": lambda s, e, os, oe: e < os,
    "meets": lambda s, e, os, oe: e == os,
    "overlaps": lambda s, e, os, oe: s < os < e < oe,
    "starts": lambda s, e, os, oe: s == os and e < oe,
    "during": lambda s, e, os, oe: os < s and e < oe,
    "finishes": lambda s, e, os, oe: os < s and e == oe,
    "equals_interval": lambda s, e, os, oe: s == os and e == oe,
    "intersects": lambda s, e, os, oe: s < oe and os < e,
}
INVERSES = {
    "preceded_by": "precedes",
    "met_by": "meets",
    "overlapped_by": "overlaps",
    "started_by": "starts",
    "includes": "during",
    "finished_by": "finishes",
}


@examples(150)
@given(st.lists(st.tuples(ends, ends, ends, ends), min_size=1, max_size=12))
def test_the_relations_of_intervals(rows):
    names = (*RELATIONS, *INVERSES)
    assert set(names) == set(INTERVAL_RELATIONS)
    rules = [
        Rule(
            Atom(f"{name}_{negated}", FOUR),
            (Literal(Atom("v", FOUR)), condition(Apply(name, FOUR), negated)),
        )
        for name in names
        for negated in (False, True)
    ]
    holding = {name: set() for name in names}
    valid = set()
    for row in rows:
        first, second = limits(*row[:2]), limits(*row[2:])
        if first is None or second is None:
            continue
        valid.add(row)
        for name in names:
            a, b = (second, first) if name in INVERSES else (first, second)
            if RELATIONS[INVERSES.get(name, name)](*a, *b):
                holding[name].add(row)
        assert sum(row in holding[name] for name in names if name != "intersects") == 1
    for made in worlds(rules):
        made.tell(Atom("v", row) for row in rows)
        for name in names:
            assert made.ask(Atom(f"{name}_False", FOUR)) == holding[name]
            assert made.ask(Atom(f"{name}_True", FOUR)) == valid - holding[name]


def test_every_day_of_the_calendar():
    """The engine counts days and weekdays as `date` does, from the first year to the last."""
    rules = [
        Rule(
            Atom("w", (A, Z)),
            (Literal(Atom("v", (A,))), Comparison("=", Z, Apply("weekday", (A,)))),
        ),
        Rule(
            Atom("n", (A, Z)),
            (Literal(Atom("v", (A,))), Comparison("=", Z, Apply("add_days", (A, "1")))),
        ),
    ]
    made = worlds(rules)[0]
    days = [date.fromordinal(n) for n in range(1, date.max.toordinal(), 97)]
    days += [date(year, 2, 28) for year in range(1, 10_000)]
    made.tell(Atom("v", (day.isoformat(),)) for day in days)
    assert made.ask(Atom("w", (A, Z))) == {(day.isoformat(), str(day.isoweekday())) for day in days}
    after = {(day.isoformat(), (day + timedelta(days=1)).isoformat()) for day in days}
    assert made.ask(Atom("n", (A, Z))) == after
