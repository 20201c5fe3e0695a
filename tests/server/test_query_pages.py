"""Offset, text and total of POST /query."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.http import Served, serve_in_memory

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve_in_memory() as node:
        facts = [
            {"predicate": "likes", "args": [f"Ann {n}", f"tea {n % 4}"], "negated": n % 10 == 3}
            for n in range(20)
        ]
        facts.append({"predicate": "likes", "args": ["zoe", "Tea"], "metadata": {"k": 1}})
        assert node.client.post("/assert/facts", {"facts": facts}).status_code == 200
        assert node.client.post("/scope/fork", {"targetScope": "s"}).status_code == 200
        yield node


def query(served: Served, path: str = "/query", **options: object):
    body = {"predicate": "likes", "args": ["?x", "?y"], **options}
    answer = served.client.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.get_json(), answer.headers.get("X-Total-Count")


@pytest.mark.parametrize("further", [{}, {"negated": False}, {"scope": "*"}, {"scope": "s"}])
def test_pages_by_offset_are_the_whole_answer(served, further):
    whole, total = query(served, **further)
    assert total is None
    pages = []
    for offset in range(0, len(whole) + 4, 4):
        rows, total = query(served, limit=4, offset=offset, **further)
        assert total == str(len(whole))
        pages += rows
    assert pages == whole
    assert query(served, offset=5, **further) == (whole[5:], str(len(whole)))


def test_a_text_is_matched_in_any_argument_and_any_case(served):
    whole, _ = query(served)
    for text in ("ANN 1", "tEA", "zoe", "3", "coffee"):
        selected = [
            row for row in whole if any(text.lower() in name.lower() for name in row["args"])
        ]
        assert query(served, contains=text) == (selected, None)
        assert query(served, contains=text, limit=2, offset=1) == (
            selected[1:3],
            str(len(selected)),
        )
    assert query(served, contains="")[0] == whole
    assert query(served, contains="tea", args=["Ann 7", "?y"])[0] == [
        row for row in whole if row["args"][0] == "Ann 7"
    ]


def test_pages_of_the_query_string_have_the_total_and_the_offset_of_the_body(served):
    whole, _ = query(served, contains="ann")
    rows, total = query(served, "/query?limit=3", contains="ann", offset=2)
    assert (rows, total) == (whole[2:5], "20")
    body = {"predicate": "likes", "args": ["?x", "?y"], "limit": 2}
    refused = served.client.post("/query?limit=3", body)
    assert refused.status_code == 400
    assert "limit" in refused.text


def test_columns_have_the_page_and_the_total(served):
    body = {"predicate": "likes", "args": ["?x", "?y"], "contains": "zo", "limit": 5}
    answer = served.client.post("/query", body, headers={"Accept": ARROW})
    assert answer.status_code == 200
    assert answer.headers["X-Total-Count"] == "1"
    assert b"zoe" in answer.data
    assert b"Ann" not in answer.data


@pytest.mark.parametrize(
    ("field", "value"), [("offset", -1), ("offset", "1"), ("contains", 5), ("contains", ["a"])]
)
def test_bad_values_name_the_field(served, field, value):
    body = {"predicate": "likes", "args": ["?x", "?y"], field: value}
    answer = served.client.post("/query", body)
    assert answer.status_code == 400
    assert field in answer.text


def test_facts_of_the_past_are_filtered_and_counted(served):
    rows, total = query(served, asOf="2999-01-01T00:00:00Z", contains="TEA 2", limit=2)
    assert [row["args"][1] for row in rows] == ["tea 2"] * 2
    assert total == "5"
    assert query(served, asOf="1999-01-01T00:00:00Z", limit=2) == ([], "0")
