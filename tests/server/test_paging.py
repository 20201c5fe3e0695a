"""Pages of long answers: complete, in order, and refused after a change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import Served, serve_in_memory
from werkzeug.http import parse_options_header


@pytest.fixture(scope="module")
def filled() -> Iterator[Served]:
    with serve_in_memory() as found:
        facts = [{"predicate": "p", "args": [str(n)], "negated": n % 10 == 3} for n in range(25)]
        facts.append({"predicate": "t", "args": ["a"]})
        assert found.client.post("/assert/facts", {"facts": facts}).status_code == 200
        rules = "q(?x) :- p(?x). r(?x) :- q(?x). s(?x) :- r(?x)."
        assert found.client.post("/teach", {"text": rules}).status_code == 200
        for name in ("a", "b", "c"):
            assert found.client.post("/scope/fork", {"targetScope": name}).status_code == 200
        yield found


def following(response: Any) -> str | None:
    link = response.headers.get("Link")
    if link is None:
        return None
    target, options = parse_options_header(link)
    assert options == {"rel": "next"}
    return str(target).strip("<>")


def walk(served: Served, path: str, body: Any, limit: int) -> list[Any]:
    """All pages."""
    pages = []
    where: str | None = f"{path}{'&' if '?' in path else '?'}limit={limit}"
    while where is not None:
        answer = served.client.post(where, body) if body is not None else served.client.get(where)
        assert answer.status_code == 200, answer.text
        pages.append(answer.get_json())
        where = following(answer)
    return pages


GOALS = [
    ("/infer", {"predicate": "q", "args": ["?x"]}),
    ("/ask", {"predicate": "q", "args": ["?x"], "scope": "*"}),
    ("/ask", {"predicate": "q", "args": ["?x"], "offset": 4}),
    ("/query", {"predicate": "p", "args": ["?x"]}),
    ("/query", {"predicate": "p", "args": ["?x"], "scope": "*"}),
    ("/infer?proof=true", {"predicate": "r", "args": ["?x"]}),
]


@pytest.mark.parametrize(("path", "body"), GOALS)
@pytest.mark.parametrize("limit", [1, 7, 25, 1000])
def test_pages_together_are_the_answer(filled: Served, path: str, body: Any, limit: int) -> None:
    whole = filled.client.post(path, body).get_json()
    pages = walk(filled, path, body, limit)
    assert [row for page in pages for row in page] == whole
    assert all(len(page) == limit for page in pages[:-1])
    assert pages[-1]


@pytest.mark.parametrize(
    ("path", "member", "count"),
    [("/rules", "rules", 3), ("/scopes", "scopes", 3), ("/predicates", "predicates", 5)],
)
def test_lists_have_pages_and_their_length(
    filled: Served, path: str, member: str, count: int
) -> None:
    whole = filled.client.get(path).get_json()[member]
    assert len(whole) == count
    pages = walk(filled, path, None, 2)
    assert [item for page in pages for item in page[member]] == whole
    assert filled.client.get(path + "?limit=2").headers["X-Total-Count"] == str(count)


def test_an_empty_answer_is_one_empty_page(filled: Served) -> None:
    assert walk(filled, "/query", {"predicate": "none", "args": ["?x"]}, 5) == [[]]


Q = {"predicate": "q", "args": ["?x"]}


def cursor_of(served: Served, path: str = "/infer", body: Any = Q) -> str:
    link = following(served.client.post(path + "?limit=2", body))
    assert link is not None
    return link.partition("cursor=")[2]


@examples(60)
@given(st.data())
def test_a_modified_cursor_is_refused(filled: Served, data: st.DataObject) -> None:
    cursor = cursor_of(filled)
    place = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_=+/ é"))
    touched = cursor[:place] + other + cursor[place + 1 :]
    answer = filled.client.flask.post(
        "/infer",
        json=Q,
        headers={"X-Tenant-ID": "t"},
        query_string={"limit": "2", "cursor": touched},
    )
    assert answer.status_code == (200 if touched == cursor else 400)
    if touched != cursor:
        assert list(answer.get_json()["details"]["fields"]) == ["cursor"]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999", "cursor=abc", "limit=2&cursor="],
)
def test_invalid_pages_are_refused(filled: Served, query: str) -> None:
    for answer in (filled.client.post("/infer?" + query, Q), filled.client.get("/rules?" + query)):
        assert answer.status_code == 400
        assert next(iter(answer.get_json()["details"]["fields"])) in ("limit", "cursor")


def test_a_cursor_belongs_to_its_request_and_tenant(filled: Served) -> None:
    cursor = cursor_of(filled)
    more = f"?limit=2&cursor={cursor}"
    for path, body, headers in (
        ("/infer", {"predicate": "r", "args": ["?x"]}, {}),
        ("/ask", Q, {}),
        ("/infer", Q, {"X-Tenant-ID": "u"}),
    ):
        answer = filled.client.post(path + more, body, headers)
        assert answer.status_code == 400
        assert "belongs to another request" in answer.get_json()["message"]
    assert filled.client.post("/infer" + more, Q).status_code == 200
    assert filled.client.post("/infer" + more, {**Q, "limit": 3}).status_code == 400


def test_pages_inside_a_transaction_are_refused(filled: Served) -> None:
    transaction = filled.client.post("/tx/begin").text
    answer = filled.client.post("/infer?limit=2", Q, {"X-Transaction-ID": transaction})
    assert answer.status_code == 400


def test_a_change_invalidates_a_cursor() -> None:
    with serve_in_memory() as served:
        for n in range(5):
            served.client.tell("q", str(n), ttl=1000 if n == 4 else None)
        first, second = cursor_of(served), cursor_of(served)
        assert first == second
        served.clock.advance(2000)
        gone = served.client.post(f"/infer?limit=2&cursor={first}", Q)
        assert (gone.status_code, gone.get_json()["details"]) == (409, {"reason": "changed"})
        third = cursor_of(served)
        served.client.tell("other", "x")
        assert served.client.post(f"/infer?limit=2&cursor={third}", Q).status_code == 409
