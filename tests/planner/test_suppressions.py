"""Comments that suppress warnings: `% kb: ignore K104`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.check.texts import check_texts

ONCE = "old(?x) :- parent(?x, ?y)."
FACT = "parent(ann, bob).\n"


def codes(text: str) -> list[tuple[int, str]]:
    (findings,) = check_texts([text])
    return [(each.line, each.code) for each in findings]


def test_without_a_comment() -> None:
    assert codes(FACT + ONCE) == [(2, "K104")]


@pytest.mark.parametrize(
    "text",
    [
        f"{ONCE} % kb: ignore K104",
        f"{ONCE} # kb: ignore singleton",
        f"{ONCE} // kb:ignore k104, K104 because it is so".replace(" because it is so", ""),
        f"% kb: ignore K104\n{ONCE}",
        f"/* a\nb */ % kb: ignore K104\n{ONCE}",
        f"% kb: ignore-file K104\n\n\n{ONCE}\n{ONCE.replace('old', 'older')}",
        f"{ONCE}\n% kb: ignore-file K104",
    ],
)
def test_a_suppressed_warning(text: str) -> None:
    assert codes(FACT + text) == []


def test_a_comment_after_a_byte_order_mark() -> None:
    assert codes(f"\ufeff% kb: ignore K104\n{ONCE}\n{FACT}") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ONCE}\n% kb: ignore K104", [(2, "K104"), (3, "K113")]),
        (f"{ONCE} p(a). % kb: ignore K104\n{ONCE.replace('old', 'x')}", [(3, "K104")]),
        (f"% kb: ignore K104\n\n{ONCE}", [(2, "K113"), (4, "K104")]),
        (f'p("% kb: ignore K104"). {ONCE}', [(2, "K104")]),
        (f"/* % kb: ignore K104 */ {ONCE}", [(2, "K104")]),
        (f"% kb: ignore K101\n{ONCE}", [(2, "K113"), (3, "K104")]),
        (f"% kb: ignore\n{ONCE}", [(2, "K113"), (3, "K104")]),
        ("% kb: ignore K001, K999, nonsense", [(2, "K113")] * 3),
        ("% kb: ignore-file K104\n% kb: ignore-file K104\n" + ONCE, [(3, "K113")]),
    ],
)
def test_a_comment_that_suppresses_something_else(
    text: str, expected: list[tuple[int, str]]
) -> None:
    assert codes(FACT + text) == expected


def test_errors_are_never_suppressed() -> None:
    assert codes("p(?x). % kb: ignore-file K001\n")[0][1] != "K113"
    assert {code for _, code in codes("old(?x) :- . % kb: ignore K104")} >= {"K113"}


@given(st.lists(st.sampled_from(['"', "'", "\\", "%", "/*", "*/", "\n", "kb: ignore K104", "p."])))
@examples(200)
def test_any_text_is_read(parts: list[str]) -> None:
    codes(" ".join(parts))


@pytest.mark.parametrize(
    "part", ['\\"', "/*", "% kb: ignore K104\n", '"', "% kb: ignore-file K104 ", "kb: ignore "]
)
def test_the_work_grows_with_the_text(part: str) -> None:
    def turns(count: int) -> int:
        calls = []
        check_texts(["% kb: ignore K105\n" + part * count], yield_now=lambda: calls.append(1))
        return len(calls)

    assert turns(8000) <= 3 * turns(4000) + 10
