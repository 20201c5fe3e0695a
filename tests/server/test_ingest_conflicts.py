"""The conflict strategy of facts that are read in texts."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, Served

KEY = "@key city(?who, _)."


def cities(client: Client) -> list[str]:
    return [args[-1] for args in client.ask("city", "mia", "?")]


@pytest.mark.parametrize("path", ["/context/ingest", "/context"])
def test_a_new_value_in_a_text_ends_the_older_one(
    client: Client, served: Served, path: str
) -> None:
    def read(text: str, **more: Any) -> Any:
        body = {"turns": [text]} if path == "/context" else {"text": text}
        return client.post(path, {**body, **more})

    assert read(f"{KEY} city(mia, hamburg).").status_code == 200
    start = served.clock.now_ms()
    served.clock.advance(1000)
    assert read("city(mia, berlin).").status_code == 200
    assert cities(client) == ["berlin"]
    recall = {"predicate": "city", "args": ["mia", "?"], "timestamp": start}
    [row] = client.post("/memory/recall", recall).get_json()
    assert (row["args"][1], row["validUntil"]) == ("hamburg", start + 1000)
    read("city(mia, rome).", conflictStrategy="KEEP_BOTH")
    assert cities(client) == ["berlin", "rome"]
    refused = read("~city(mia, rome).", conflictStrategy="REJECT")
    assert refused.status_code == 409
    unknown = read("city(mia, bern).", conflictStrategy="BEST")
    assert (unknown.status_code, "conflictStrategy" in unknown.text) == (400, True)


def test_a_discarded_fact_of_a_text_is_counted(client: Client) -> None:
    client.post("/teach", {"text": KEY})
    client.tell("city", "mia", "hamburg", confidence=0.9)
    body = {"text": "city(mia, berlin) [confidence=0.5].", "conflictStrategy": "CONFIDENCE"}
    answer = client.post("/context/ingest", body)
    assert answer.headers["X-Facts-Discarded"] == "1"
    assert answer.get_json()["discarded"] == 1
    assert cities(client) == ["hamburg"]


def test_a_key_and_its_values_in_one_text(client: Client) -> None:
    text = f"{KEY}\ncity(mia, hamburg).\ncity(mia, berlin)."
    assert client.post("/context/ingest", {"text": text}).get_json()["discarded"] == 1
    assert cities(client) == ["berlin"]
