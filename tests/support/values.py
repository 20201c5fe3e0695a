"""Values of constants by their definition in `rule-language.md`, and texts whose values are easily
mistaken.

Nothing here is shared with the planner: numbers are fractions, times are of `datetime`.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from fractions import Fraction

from hypothesis import strategies as st

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
TIME = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([Tt ](?P<clock>[0-9]{2}:[0-9]{2}(:[0-9]{2})?)([.,](?P<part>[0-9]{1,9}))?(?P<offset>[Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?"
)


def has_exponent(text: str) -> bool:
    return bool(NUMBER.fullmatch(text)) and "e" in text.lower()


def number(text: str) -> Fraction | None:
    """The exact value of a number, None for text: also for exponents beyond the doubles."""
    if not NUMBER.fullmatch(text):
        return None
    if has_exponent(text):
        mantissa = Fraction(re.split("[eE]", text)[0])
        if mantissa == 0:
            return Fraction(0)
        if float(text) in (0.0, float("inf"), float("-inf")):
            return None
    return Fraction(text)


def time(text: str) -> tuple[datetime, int] | None:
    """The time that a text names, in UTC, with nanoseconds; None for other text."""
    match = TIME.fullmatch(text)
    if match is None or (match["part"] and match["clock"].count(":") == 1):
        return None
    try:
        when = datetime.fromisoformat(f"{match['day']}T{match['clock'] or '00:00'}")
    except ValueError:
        return None
    offset = match["offset"] or "Z"
    shift = timedelta(0)
    if offset not in "Zz":
        digits = offset[1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            return None
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        shift = -shift if offset[0] == "-" else shift
    return when.replace(tzinfo=timezone(shift)), int((match["part"] or "0").ljust(9, "0"))


def order(a: str, b: str) -> int | None:
    """-1, 0 or 1 as `<` compares two constants; None where they are not ordered."""
    x, y = number(a), number(b)
    if (x is None) != (y is None):
        return None
    pair: tuple = (x, y)
    if x is None:
        pair = time(a), time(b)
        if None in pair:
            pair = a.encode(), b.encode()
    return (pair[0] > pair[1]) - (pair[0] < pair[1])


def is_equal(a: str, b: str) -> bool:
    if has_exponent(a) or has_exponent(b):
        return a == b
    return order(a, b) == 0


def holds(op: str, a: str, b: str) -> bool:
    """Whether a comparison holds."""
    if op in ("==", "!=="):
        return (a == b) == (op == "==")
    if op in ("=", "!="):
        return is_equal(a, b) == (op == "=")
    sign = order(a, b)
    if sign is None:
        return False
    return {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


def answer_key(text: str) -> tuple:
    value = number(text)
    return (1, 0, text.encode()) if value is None else (0, value, text.encode())


ODD = [
    "30",
    "30.0",
    "030",
    "3e1",
    "30.00",
    "-0",
    "0",
    "0.0",
    "-0.0",
    "00",
    "0e46",
    "0e83",
    "1e10",
    "10e9",
    "10000000000",
    "1e999",
    "-1e999",
    "1e-999",
    "1E5",
    "100000",
    "1e5",
    "+1",
    "1.",
    ".5",
    "89882800000000000011",
    "89882800000000000012",
    "89882800000000000011.0",
    "28857836529306024611912",
    "28857836529306023000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "9007199254740993",
    "9007199254740992",
    "9007199254740993.0",
    "9007199254740992e0",
    "0.1",
    "0.10",
    "0.1000000000000000055511151231257827",
    "0.1000000000000000000000001",
    "1e-1",
    "2026-05-01",
    "2026-05-01T00:00Z",
    "2026-05-01T02:00:00+02:00",
    "2026-05-01T00:00:00.5Z",
    "2026-05-01T00:00:00,500Z",
    "2026-05-01t00:00:00.50z",
    "2026-04-30T23:30-01",
    "2026-05-02",
    "2026-05-01 00:00",
    "2026-02-30",
    "2026-13-01",
    "2026-05-01T25:00",
    "0001-01-01",
    "-1-1-1",
    "9999-12-31T23:59:59.999999999-23:59",
    "x",
    "",
    "größe",
    "हिन्दी",
    "it's",
    '"',
    "a b",
]
"""Constants whose values are easily mistaken."""


@st.composite
def _digits(draw, most: int = 40):
    text = draw(st.text("0123456789", min_size=1, max_size=most))
    return text if draw(st.integers(0, 9)) == 0 else text.lstrip("0") or "0"


@st.composite
def _numbers(draw):
    sign = draw(st.sampled_from(["", "", "-"]))
    part = draw(st.sampled_from(["", "", ".0", ".5", ".50", ".000"]))
    if draw(st.integers(0, 5)) == 0:
        part = "." + draw(_digits(25))
    power = draw(st.sampled_from([""] * 4 + ["e0", "e1", "E+2", "e-3", "e300", "e400", "e-400"]))
    return sign + draw(_digits()) + part + power


@st.composite
def _times(draw):
    day = draw(
        st.sampled_from(["2026-05-01", "2026-05-02", "2026-02-29", "2024-02-29", "0000-01-01"])
    )
    clock = draw(
        st.sampled_from(
            ["", "T00:00", "T22:00", "t02:00:00", " 23:30:00.5", "T00:00:00,500", "T24:00"]
        )
    )
    offset = draw(st.sampled_from(["", "Z", "z", "+02:00", "-0130", "+00", "+24"]))
    return day + clock + (offset if clock else "")


@st.composite
def _near(draw):
    """A number next to a large one: values that doubles do not tell apart."""
    large = draw(st.sampled_from([1 << 53, 1 << 63, 1 << 64, 10**20, 10**39, 89882800000000000011]))
    near = str(large + draw(st.integers(-2, 2)))
    return near + draw(st.sampled_from(["", "", ".0", ".5", "e0", ".000000000000000000001"]))


numbers = st.one_of(_numbers(), _near())
constants = st.one_of(
    st.sampled_from(ODD),
    numbers,
    numbers,
    _times(),
    st.text("aäßहि்́ש'\"\\ 1-", max_size=4),
)
"""Constants of every kind."""
