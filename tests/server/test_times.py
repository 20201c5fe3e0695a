"""Times in requests: their forms, and warnings of seconds where milliseconds are meant."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
from support.agents import Agent
from support.http import NOW, Client, error_of

DAY = 1_693_526_400_000
"""2023-09-01 in epoch milliseconds."""

WARNING = "1693526400 looks like seconds, but was read as milliseconds: 1970-01-20T14:25:26.400Z"


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2023-09-01", DAY),
        ("2023-09-01T10:30", DAY + 37_800_000),
        ("2023-09-01 10:30:05", DAY + 37_805_000),
        ("2023-09-01T10:30+01:00", DAY + 34_200_000),
        (DAY, DAY),
    ],
)
def test_forms_of_instants(client: Client, time: Any, expected: int) -> None:
    client.tell("p", "a", validFrom=time)
    written = time if type(time) is int else f'"{time}"'
    client.post("/teach", {"text": f"p(b) [validFrom={written}]."})
    rows = client.post("/query", {"text": "p(?x)"}).get_json()
    assert [row["validFrom"] for row in rows] == [expected, expected]
    assert client.ask("p", "?x", asOf=time) == [["a"], ["b"]]
    assert client.ask("p", "?x", asOf="2022-01-01") == []
    recalled = client.post("/memory/recall", {"text": "p(?x)", "timestamp": time})
    assert len(recalled.get_json()) == 2


@pytest.mark.parametrize("time", ["2023-13-01", "2023-02-30", "today", "30d", "2023-9-1"])
def test_what_is_no_instant_is_refused(client: Client, time: str) -> None:
    body = {"predicate": "p", "args": ["a"], "validFrom": time}
    error = error_of(client.post("/tell", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == ["validFrom"]


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [("30d", 2_592_000_000), ("12h", 43_200_000), ("90 s", 90_000), ("5m", 300_000), (7, 7)],
)
def test_forms_of_durations(client: Client, ttl: Any, expected: int) -> None:
    client.tell("p", "a", ttl=ttl)
    (row,) = client.post("/query", {"text": "p(?x)"}).get_json()
    assert row["ttl"] == expected
    written = ttl if ttl == 7 else f'"{ttl}"'
    assert client.post("/teach", {"text": f"q(a) [ttl={written}]."}).status_code == 200
    (row,) = client.post("/query", {"text": "q(?x)"}).get_json()
    assert row["ttl"] == expected


@pytest.mark.parametrize("ttl", ["30", "d", "0d", "-1d", 0, 1.5, "30 days of rain"])
def test_what_is_no_duration_is_refused(client: Client, ttl: Any) -> None:
    body = {"predicate": "p", "args": ["a"], "ttl": ttl}
    error = error_of(client.post("/tell", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == ["ttl"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tell", {"predicate": "p", "args": ["a"], "validFrom": 1_693_526_400}),
        ("/assert/facts", {"facts": [{"text": "p(a)", "validFrom": 1_693_526_400}]}),
        ("/ask", {"text": "known(?x)", "asOf": 1_693_526_400}),
        ("/context/ingest", {"text": "p(a)", "at": 1_693_526_400}),
        ("/context", {"turns": [{"role": "user", "content": "p(a)", "at": 1_693_526_400}]}),
        ("/episodes", {"speaker": "ann", "text": "hi", "at": 1_693_526_400}),
    ],
)
def test_seconds_are_warned_of(client: Client, path: str, body: dict[str, Any]) -> None:
    client.tell("known", "a")
    response = client.post(path, body)
    assert response.status_code < 300, response.text
    assert unquote(response.headers["X-Time-Warnings"]) == WARNING


def test_milliseconds_are_not_warned_of(client: Client) -> None:
    for time in (0, 1000, NOW, "2023-09-01"):
        response = client.post("/tell", {"predicate": "p", "args": ["a"], "validFrom": time})
        assert "X-Time-Warnings" not in response.headers


def test_results_of_tools_have_the_warning(client: Client) -> None:
    result = Agent(client).call(
        "tell", predicate="p", args=["a"], validFrom=1_693_526_400, confidense=1
    )
    assert result["_meta"] == {"ignoredFields": ["confidense"], "timeWarnings": [WARNING]}
    texts = [part["text"] for part in result["content"]]
    assert texts[1:] == ["Ignored arguments: confidense", f"Warning: {WARNING}"]


def test_results_of_the_agent_have_the_warning(client: Client) -> None:
    data = {"op": "ingest", "text": "p(a)", "at": 1_693_526_400, "speaker": "ann"}
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": data}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    (part,) = client.post("/a2a", body).get_json()["result"]["message"]["parts"]
    assert part["data"]["warnings"] == [f"Warning: {WARNING}"]
    (episode,) = client.get("/episodes").get_json()["episodes"]
    assert (episode["speaker"], episode["at"]) == ("ann", 1_693_526_400)
