"""Long texts in the rule language: other requests get their turn while one is read and checked."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, serve_in_memory

from kbplanner.check.texts import check_texts

RULES = 60
TEXT = "\n".join(f"p{i}(?x, ?y) :- q{i}(?x, ?z), r(?z, ?y), ?z > {i}." for i in range(RULES))


class Turns:
    """Counts how often other requests could run."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.mark.parametrize(("path", "turns"), [("/check", RULES), ("/teach", RULES)])
def test_others_get_a_turn_after_each_statement(path: str, turns: int) -> None:
    taken = Turns()
    with serve_in_memory() as served:
        served.runtime.yield_now = taken
        answer = served.client.post(path, {"text": TEXT})
        assert answer.status_code == 200, answer.text
    assert taken.count >= turns


def test_a_request_is_served_while_a_long_text_is_checked() -> None:
    with serve_in_memory() as served:
        other = Client(served.app.test_client())
        answers: list[Any] = []

        def serve_another() -> None:
            if not answers:  # not for the requests that it makes itself
                answers.append(None)
                answers[0] = other.get("/health").status_code

        served.runtime.yield_now = serve_another
        assert served.client.post("/check", {"text": TEXT}).status_code == 200
    assert answers == [200]


def test_each_part_of_a_check_rests() -> None:
    taken = Turns()
    (findings,) = check_texts([TEXT], yield_now=taken)
    assert [list(map(str, findings))] == [list(map(str, check_texts([TEXT])[0]))]
    reading, statements, lint, recursion = RULES, RULES // 8, RULES // 8, RULES // 8
    assert taken.count >= reading + statements + lint + recursion
