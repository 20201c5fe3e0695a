"""External predicates over HTTP: answers, the one shape of errors, and a server that answers others
at the same time.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http import Client, error_of, serve_in_memory
from support.servers import Server

ENDLESS = """CREATE VIEW endless AS WITH RECURSIVE numbers(n) AS (
    SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000000000000)
    SELECT 'apple' AS item, n AS cents FROM numbers WHERE n < 0"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A file that describes a table, a view that never ends, and a table that does not exist."""
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.execute("CREATE TABLE prices (item TEXT, cents INTEGER)")
            connection.execute("INSERT INTO prices VALUES ('apple', 3), ('melon', 12)")
            connection.execute(ENDLESS)
    finally:
        connection.close()
    content: dict[str, Any] = {"databases": {"shop": f"sqlite:{path}"}, "predicates": {}}
    for name, table in (("price", "prices"), ("slow", "endless"), ("lost", "missing")):
        content["predicates"][name] = {
            "database": "shop",
            "table": table,
            "columns": ["item", "cents"],
            "modes": [["in", "out"]],
        }
    (tmp_path / "predicates.json").write_text(json.dumps(content))
    return {"sql_predicates": str(tmp_path / "predicates.json")}


@pytest.fixture
def shop(settings: dict[str, str]) -> Iterator[Client]:
    with serve_in_memory(**settings) as served:
        served.client.tell("item", "apple")
        served.client.tell("item", "melon")
        yield served.client


def teach(client: Client, text: str) -> None:
    response = client.post("/teach", {"text": text})
    assert response.status_code == 200, response.text


def test_rules_read_a_table(shop: Client) -> None:
    teach(shop, "cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    assert shop.ask("cheap", "?x") == [["apple"]]
    assert shop.ask("price", "melon", "?p") == [["melon", "12"]]
    (proof,) = shop.post(
        "/infer", {"predicate": "cheap", "args": ["?x"], "withProof": True}
    ).get_json()
    assert proof["proof"]["step"]["bodyProofs"][1]["step"]["type"] == "external"
    plan = shop.post(
        "/explain",
        {"predicate": "cheap", "args": ["?x"], "plan": True, "analyze": True, "format": "json"},
    ).get_json()["plans"][0]
    assert plan["external"] == [
        {
            "predicate": "price/2",
            "mode": ["in", "out"],
            "relation": "demand price/2[bf]",
            "inputs": 2,
            "rows": 2,
        }
    ]


def test_errors_have_the_one_shape(shop: Client) -> None:
    teach(shop, "cheap(?x) :- price(?x, ?p), ?p < 10.")
    unbound = error_of(
        shop.post("/ask", {"predicate": "cheap", "args": ["?x"]}), 400, "VALIDATION_ERROR"
    )
    assert unbound["details"]["kind"] == "unbound-argument"
    assert unbound["details"]["arguments"] == [1]
    refused = error_of(
        shop.post("/teach", {"text": "p(?p) :- price(?x, ?p)."}), 400, "VALIDATION_ERROR"
    )
    assert refused["details"]["variables"] == ["?x"]
    stored = error_of(
        shop.post("/tell", {"predicate": "price", "args": ["a", "1"]}), 400, "VALIDATION_ERROR"
    )
    assert stored["details"]["kind"] == "external-predicate"
    failed = error_of(
        shop.post("/ask", {"predicate": "lost", "args": ["apple", "?p"]}), 502, "PLUGIN_FAILED"
    )
    assert failed["details"] == {"predicate": "lost/2", "reason": "error"}
    assert "missing" not in failed["message"]


def test_a_slow_call_holds_nothing_up_and_ends_at_the_time_limit(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """Under gevent: the callback is in a thread, and other requests of the tenant are served."""
    more = {"KBCORE_SQL_PREDICATES": settings["sql_predicates"], "QUERY_TIMEOUT_MS": "3000"}
    with Server(tmp_path / "data", **more) as server:
        assert server.post("/tell", {"predicate": "item", "args": ["apple"]})[0] == 200
        outcome: list[tuple[int, bytes]] = []
        slow = threading.Thread(
            target=lambda: outcome.append(
                server.post("/ask", {"predicate": "slow", "args": ["apple", "?p"]})
            )
        )
        slow.start()
        answered = 0
        while slow.is_alive():
            begun = time.monotonic()
            assert server.post("/tell", {"predicate": "item", "args": [str(answered)]})[0] == 200
            status, body = server.post("/ask", {"predicate": "price", "args": ["apple", "?p"]})
            assert (status, len(json.loads(body))) == (200, 1)
            assert time.monotonic() - begun < 2
            answered += 1
        assert answered > 3
        ((status, body),) = outcome
        assert status == 422
        assert json.loads(body)["details"]["limit"] == "timeMs"
