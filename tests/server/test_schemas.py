"""Bodies: the quick reader and marshmallow never disagree; points in time and numbers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.http import Client, error_of

from kbcore.errors import InvalidInput
from kbserver.operations import operations
from kbserver.schemas.base import Body
from kbserver.schemas.facts import BulkBody, FactBody
from kbserver.schemas.fields import Instant, Whole
from kbserver.schemas.json_schema import inline

BODIES = [
    FactBody(),
    *(declared.body_reader for declared in operations() if declared.body_reader is not None),
]
KEYS = sorted({field.data_key for body in BODIES for field in body.fields.values()} | {"more"})
likely = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        0.5,
        2.0,
        -1,
        "p",
        "s",
        "*",
        "2026-01-01T00:00:00Z",
        [],
        ["a"],
        {},
        {"a": 1},
    ]
)


@given(st.sampled_from(BODIES), st.data(), st.booleans())
def test_the_quick_reader_agrees_with_marshmallow(
    body: Body, draw: st.DataObject, strict: bool
) -> None:
    keys = [field.data_key for field in body.fields.values()]
    agree(body, draw.draw(st.dictionaries(st.sampled_from([*keys, "more"]), likely)), strict)


@given(st.sampled_from(BODIES), st.dictionaries(st.sampled_from(KEYS), likely), st.booleans())
@example(BulkBody(), {"facts": None}, False)
def test_the_quick_reader_agrees_with_marshmallow_about_keys_of_other_bodies(
    body: Body, data: dict[str, Any], strict: bool
) -> None:
    agree(body, data, strict)


def agree(body: Body, data: dict[str, Any], strict: bool) -> None:
    quick = body._read_valid(data, strict)
    try:
        checked = body._read_by_schema(data, strict)
    except InvalidInput:
        assert quick is None
    else:
        assert quick == checked


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        (0, 0),
        (-1, -1),
        (1.0, 1),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00+01", 0),
        ("1969-12-31T18:30:00-0530", 0),
        ("1970-01-01 00:00:00.5Z", 500),
        ("1970-01-01T00:00:00,123456789Z", 123),
        ("1969-12-31T23:59:59.999Z", -1),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ],
)
def test_instants(given: Any, milliseconds: int) -> None:
    assert Instant().read(given) == milliseconds


@pytest.mark.parametrize(
    "given",
    [
        "",
        "2023-02-29T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "٢026-01-01T00:00:00Z",
        1.5,
        "0",
    ],
)
def test_invalid_times(given: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Instant().read(given)


@given(st.text())
def test_any_text_is_an_instant_or_not(given: str) -> None:
    with suppress(ValueError):
        assert type(Instant().read(given)) is int


def test_whole_numbers() -> None:
    assert Whole(1, 5).read(3.0) == 3
    with pytest.raises(ValueError, match="from 1 to 5"):
        Whole(1, 5).read(6)
    with pytest.raises(ValueError, match="of at least 1"):
        Whole(1).read(float("inf"))


ATOM = {"predicate": "p", "args": ["?x"]}
STRAY = {**ATOM, "zz": 1}
BUCKET = {"name": "b", "predicates": ["p"], "weight": 1}


@pytest.mark.parametrize(
    ("path", "body", "stray"),
    [
        ("/teach", {"head": STRAY, "body": [ATOM]}, "head.zz"),
        ("/assert/rule", {"head": ATOM, "body": [ATOM, STRAY]}, "body[1].zz"),
        ("/retract/rule", {"head": ATOM, "body": [STRAY]}, "body[0].zz"),
        ("/explain", {"body": [STRAY]}, "body[0].zz"),
        ("/memory/context", {"goals": [ATOM, STRAY]}, "goals[1].zz"),
        (
            "/memory/context",
            {"relevanceBuckets": [{**BUCKET, "zz": None}]},
            "relevanceBuckets[0].zz",
        ),
        ("/context/diff", {"sessionId": "s", "goals": [STRAY]}, "goals[0].zz"),
        ("/context/ingest", {"text": "p(a).", "goals": [STRAY]}, "goals[0].zz"),
        ("/assert/facts", {"facts": [{"predicate": "p", "args": ["a"], "zz": 1}]}, "facts[0].zz"),
    ],
)
def test_unknown_keys_of_inner_objects_are_ignored_or_refused_as_the_client_prefers(
    client: Client, path: str, body: dict[str, Any], stray: str
) -> None:
    before = client.get("/rules").get_json(), client.get("/predicates").get_json()
    error = error_of(
        client.post(path, body, {"Prefer": "handling=strict"}), 400, "VALIDATION_ERROR"
    )
    assert error["details"]["fields"] == {stray: ["Unknown field."]}
    assert (client.get("/rules").get_json(), client.get("/predicates").get_json()) == before
    if path == "/retract/rule":
        client.post("/teach", body)
    accepted = client.post(path, body)
    assert (accepted.status_code, accepted.headers["X-Ignored-Fields"]) == (200, stray)


@pytest.mark.parametrize(
    "headers", [{}, {"Prefer": "handling=lenient"}], ids=["fast path", "flask"]
)
def test_ignored_fields_are_named_in_a_header(client: Client, headers: dict[str, str]) -> None:
    def ignored(path: str, body: dict[str, Any]) -> str | None:
        found: str | None = client.post(path, body, headers).headers.get("X-Ignored-Fields")
        return found

    fact = {"predicate": "p", "args": ["a"]}
    for path in ("/tell", "/query", "/ask"):
        assert ignored(path, fact) is None
        assert (
            ignored(path, {**fact, "confidense": 0.5, "x, é\n%": None})
            == "confidense, x%2C %C3%A9%0A%25"
        )
    assert (
        ignored("/ask", {"predicate": "p", "arguments": []}) == "arguments"
    )  # errors name them too
    many = {f"k{at:02}": at for at in range(30)}
    assert ignored("/ask", {**fact, **many}) == ", ".join([*list(many)[:20], "..."])
    assert ignored("/ask", {**fact, "k" * 300: 1}) == "k" * 100 + "..."
    odd = [fact, {**fact, "a": 1}, {**fact, "b": 1, "metadata": {"free": 1}}]
    assert ignored("/assert/facts", {"facts": odd, "c": 1}) == "c, facts[1].a, facts[2].b"


@pytest.mark.parametrize(
    "sign", [{"negated": True}, {"truthVal": False}, {"polarity": "negative"}, {"naf": True}]
)
def test_strict_requests_accept_every_spelling_of_atoms(
    client: Client, sign: dict[str, Any]
) -> None:
    rule = {
        "head": {"predicate": "q", "args": ["?x"]},
        "body": [ATOM, {"predicate": "r", "args": ["?x"], **sign}],
    }
    assert client.post("/teach", rule, {"Prefer": "handling=strict"}).status_code == 200
    goals = {
        "goals": [{**ATOM, **sign}],
        "relevanceBuckets": [BUCKET, {"name": "rest", "predicates": None}],
    }
    assert client.post("/memory/context", goals, {"Prefer": "handling=strict"}).status_code == 200


def test_null_is_taken_where_a_key_may_be_absent() -> None:
    schema = inline(BulkBody)
    assert schema["required"] == ["facts"]
    assert schema["properties"]["facts"]["type"] == "array"
    assert "null" in schema["properties"]["conflictStrategy"]["type"]


def test_a_null_weight_of_a_bucket_is_the_default(client: Client) -> None:
    body = {"relevanceBuckets": [{"name": "all", "weight": None}]}
    assert client.post("/memory/context", body).status_code == 200
