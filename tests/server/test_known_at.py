"""Questions about what was known at an earlier instant, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http import Client, error_of
from support.runtimes import runtime

from kbcore import InvalidInput, open_kb
from kbcore.clock import ManualClock
from kbcore.node.runtime import Runtime
from kbcore.state.keys import READER
from kbplugins import storage_memory
from kbserver import create_app
from kbserver.operations import Operation, operations
from kbserver.security.permissions import About

MONDAY = 1_700_000_000_000
DAY = 24 * 3_600_000
GOAL = {"predicate": "grandparent", "args": ["ann", "?x"]}


class Node:
    """A node with a log, and a client on it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(MONDAY)
        self.runtime: Runtime = runtime(
            folder, clock=self.clock, sweep_interval_ms=0, mcp_tools="all"
        )
        self.client = Client(create_app(self.runtime).test_client())

    def day(self) -> int:
        """Move the clock to the next day; return the instant before."""
        now = self.clock.now_ms()
        self.clock.advance(DAY)
        return now


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.runtime.close()


def asked(client: Client, path: str, body: dict[str, Any], **more: Any) -> Any:
    response = client.post(path, {**body, **more})
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json() if response.is_json else response.get_data(as_text=True)


def taught(node: Node) -> list[int]:
    """A grandparent on Monday, another rule on Tuesday, and no grandparent on Wednesday."""
    node.client.post("/teach", {"text": "grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."})
    node.client.tell("parent", "ann", "bob")
    node.client.tell("parent", "bob", "cid")
    days = [node.day()]
    node.client.tell("parent", "bob", "dan")
    days.append(node.day())
    node.client.post("/forget", {"predicate": "parent", "args": ["ann", "bob"]})
    days.append(node.day())
    return days


def test_every_read_takes_an_instant(node: Node) -> None:
    monday, tuesday, wednesday = taught(node)
    ask = node.client
    names = [
        [row["args"][1] for row in asked(ask, "/ask", GOAL, knownAt=at)]
        for at in (monday, "2023-11-15T22:13:20Z", wednesday)
    ]
    assert tuesday == MONDAY + DAY
    assert names == [["cid"], ["cid", "dan"], []]
    (proof,) = asked(ask, "/ask", GOAL, knownAt=monday, withProof=True)
    assert proof["proof"]["step"]["type"] == "rule_application"
    assert "parent(bob, cid)" in asked(ask, "/explain", GOAL, knownAt=monday)
    why = asked(ask, "/explain", GOAL, knownAt=wednesday, whyNot=True)
    assert why["holds"] is False
    pattern = {"predicate": "parent", "args": ["?x", "?y"]}
    assert [len(asked(ask, "/query", pattern, knownAt=at)) for at in (monday, tuesday)] == [2, 3]
    count = asked(ask, "/aggregate", {"predicate": "parent", "op": "COUNT"}, knownAt=monday)
    assert count["result"] == 2
    around = asked(ask, "/neighbours", {"constant": "bob"}, knownAt=monday)
    assert around["totalFacts"] == 2
    window = asked(ask, "/memory/context", {"goals": [GOAL], "maxFacts": 10}, knownAt=monday)
    assert window["generatedAt"] == monday
    assert ["bob", "cid"] in [entry["args"] for entry in window["entries"]]
    summary = asked(ask, "/context/summary", {}, knownAt=tuesday)
    assert (summary["totalFacts"], summary["predicateCount"]) == (3, 1)
    assert asked(ask, "/ask", GOAL) == []


def test_what_was_known_then_about_another_time(node: Node) -> None:
    node.client.tell("works", "ann", "acme", validUntil=MONDAY + 10)
    node.day()
    node.client.tell("works", "ann", "bolt", validFrom=MONDAY - DAY)
    goal = {"predicate": "works", "args": ["ann", "?x"]}
    now = node.day()
    about_monday = asked(node.client, "/ask", goal, asOf=MONDAY + 5)
    known_then = asked(node.client, "/ask", goal, asOf=MONDAY + 5, knownAt=MONDAY + 5)
    assert [row["args"][1] for row in about_monday] == ["acme", "bolt"]
    assert [row["args"][1] for row in known_then] == ["acme"]
    assert [row["args"][1] for row in asked(node.client, "/ask", goal, knownAt=now)] == ["bolt"]
    # Between two changes validity is judged at the instant, in any order of the questions.
    for at, companies in ((MONDAY + 20, []), (MONDAY + 5, ["acme"]), (MONDAY + 20, [])):
        rows = asked(node.client, "/ask", goal, knownAt=at)
        assert [row["args"][1] for row in rows] == companies


def test_questions_about_one_state_share_it(node: Node) -> None:
    monday, tuesday, _ = taught(node)
    for at in (monday, monday + 1, monday + DAY - 1):
        asked(node.client, "/ask", GOAL, knownAt=at)
    assert len(node.runtime.known_states) == 1
    asked(node.client, "/ask", GOAL, knownAt=tuesday)
    assert len(node.runtime.known_states) == 2


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"knownAt": MONDAY + 9 * DAY}, "is in the future"),
        ({"knownAt": MONDAY - 1}, "is before"),
        ({"knownAt": "yesterday"}, "must be epoch milliseconds"),
    ],
)
def test_instants_that_are_refused(node: Node, more: dict[str, Any], problem: str) -> None:
    taught(node)
    error = error_of(node.client.post("/ask", {**GOAL, **more}), 400, "VALIDATION_ERROR")
    assert problem in error["message"]
    assert "knownAt" in error["details"]["fields"]
    if problem == "is before":
        assert error["details"]["oldest"] == MONDAY
        assert "2023-11-14T22:13:20.000Z" in error["message"]


def test_sessions_and_transactions_are_of_the_present(node: Node) -> None:
    taught(node)
    body = {"sessionId": "s", "knownAt": MONDAY}
    error = error_of(node.client.post("/memory/context", body), 400, "VALIDATION_ERROR")
    assert "knownAt" in error["details"]["fields"]
    id = node.client.post("/tx/begin").get_data(as_text=True)
    response = node.client.post(
        "/ask", {**GOAL, "knownAt": MONDAY}, headers={"X-Transaction-ID": id}
    )
    assert "knownAt" in error_of(response, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_a_purge_ends_the_history(node: Node) -> None:
    monday, tuesday, _ = taught(node)
    asked(node.client, "/ask", GOAL, knownAt=monday)
    node.client.post("/memory/purge", {"subject": "cid", "wait": False})
    assert len(node.runtime.known_states) == 0
    purged = node.day()
    for at in (monday, tuesday):
        error = error_of(node.client.post("/ask", {**GOAL, "knownAt": at}), 400, "VALIDATION_ERROR")
        assert error["details"]["oldest"] == purged
    pattern = {"predicate": "parent", "args": ["?x", "?y"]}
    rows = asked(node.client, "/query", pattern, knownAt=purged)
    assert [row["args"] for row in rows] == [["bob", "dan"]]


def test_an_emptied_tenant_has_no_history(node: Node) -> None:
    monday, _, _ = taught(node)
    node.runtime.admin().nuke_tenant("default", "t")
    emptied = node.day()
    assert error_of(node.client.post("/ask", {**GOAL, "knownAt": monday}), 400, "VALIDATION_ERROR")
    assert asked(node.client, "/ask", GOAL, knownAt=emptied) == []


def test_storage_without_a_log_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_memory, "KEPT_BYTES", 0)
    node = runtime()
    client = Client(create_app(node).test_client())
    client.tell("parent", "ann", "bob")
    error = error_of(client.post("/ask", {**GOAL, "knownAt": 0}), 400, "VALIDATION_ERROR")
    assert error["message"] == "knownAt: is not available: this storage keeps no history"
    reply = client.get("/memory/history?about=parent")
    error = error_of(reply, 400, "VALIDATION_ERROR")
    assert error["message"] == "this storage keeps no history"
    node.close()


def test_a_state_that_is_too_large_is_refused(tmp_path: Path) -> None:
    node = runtime(tmp_path, history_cache_mb=1)
    kb = node.knowledge_base("default", "t")
    client = Client(create_app(node).test_client())
    for part in range(4):
        names = [f"n{part}-{number}" * 5 for number in range(5000)]
        client.post("/assert/facts", {"facts": [{"predicate": "p", "args": [n]} for n in names]})
    at = node.clock.now_ms()
    error = error_of(
        client.post("/ask", {"predicate": "p", "args": ["?x"], "knownAt": at}),
        422,
        "BUDGET_EXCEEDED",
    )
    assert error["details"]["limit"] == "historyMb"
    assert kb.history_start().at <= at
    node.close()


# ---- lists ----


def listed(client: Client, path: str) -> Any:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.get_json()


def test_lists_take_an_instant_too(node: Node) -> None:
    client = node.client
    client.post("/teach", {"text": "@old: old(?x) :- parent(?x, ?y)."})
    client.tell("parent", "ann", "bob")
    body = {"speaker": "ann", "text": "Bob is my son.", "id": "e1"}
    client.post("/episodes", body)
    client.tell("parent", "ann", "cid", evidence=[{"episode": "e1", "start": 0, "end": 3}])
    monday = node.day()
    client.post("/scope/fork", {"sourceScope": None, "targetScope": "draft"})
    client.tell("parent", "ann", "dan", scope="draft")
    tuesday = node.day()
    client.post("/retract/rule", {"id": "old"})
    client.post("/forget", {"predicate": "parent", "args": ["ann", "cid"]})
    client.flask.delete("/scope/draft", headers={"X-Tenant-ID": "t"})
    client.post("/episodes", {"speaker": "bob", "text": "Hello."})
    node.day()
    at = f"knownAt={monday}"

    rules = [listed(client, f"/rules{query}")["rules"] for query in ("", f"?{at}")]
    assert [[rule["id"] for rule in each] for each in rules] == [[], ["old"]]
    facts = [
        [(each["predicate"], each["factCount"]) for each in listed(client, path)["predicates"]]
        for path in ("/predicates", f"/predicates?{at}")
    ]
    assert facts == [[("parent", 1)], [("old", 0), ("parent", 2)]]
    names = [
        listed(client, f"/scopes?knownAt={instant}")["scopes"] for instant in (monday, tuesday)
    ]
    assert names == [[], ["draft"]]
    assert listed(client, "/scopes?knownAt=2023-11-15T22:13:20Z")["scopes"] == ["draft"]
    diff = asked(client, "/scope/diff", {"targetScope": "draft"}, knownAt=tuesday)
    assert [row["args"] for row in diff["added"]] == [["ann", "dan"]]
    assert listed(client, f"/episodes?{at}")["total"] == 1
    assert listed(client, "/episodes")["total"] == 2
    assert listed(client, f"/episodes/e1?{at}")["totalFacts"] == 1
    assert listed(client, "/episodes/e1")["totalFacts"] == 0
    pattern = {"predicate": "parent", "args": ["ann", "?x"]}
    recalled = asked(client, "/memory/recall", {**pattern, "timestamp": monday}, knownAt=monday)
    assert [row["args"][1] for row in recalled] == ["bob", "cid"]
    first = asked(client, "/memory/query/salient", {"predicate": "parent"}, knownAt=monday)
    assert sorted(row["args"][1] for row in first) == ["bob", "cid"]
    # Reading the past counts no accesses, so the order stays what it was.
    assert asked(client, "/memory/query/salient", {"predicate": "parent"}, knownAt=monday) == first


def test_pages_of_lists_are_of_one_instant(node: Node) -> None:
    for name in ("p", "q", "r"):
        node.client.tell(name, "a")
    monday = node.day()
    node.client.tell("s", "a")
    node.day()
    first = node.client.get(f"/predicates?knownAt={monday}&limit=2")
    assert [each["predicate"] for each in first.get_json()["predicates"]] == ["p", "q"]
    assert first.headers["X-Total-Count"] == "3"
    assert "ETag" not in first.headers
    (link,) = first.headers.getlist("Link")
    following = node.client.get(link.partition(">")[0].removeprefix("<"))
    assert [each["predicate"] for each in following.get_json()["predicates"]] == ["r"]
    cursor = link.partition("cursor=")[2].partition(">")[0].partition("&")[0]
    refused = node.client.get(f"/predicates?limit=2&cursor={cursor}")
    assert "cursor" in error_of(refused, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_the_present_is_not_answered_as_the_past_from_a_tag(node: Node) -> None:
    node.client.tell("p", "a")
    monday = node.day()
    tag = node.client.get("/predicates").headers["ETag"]
    headers = {"X-Tenant-ID": "t", "If-None-Match": tag}
    assert node.client.flask.get("/predicates", headers=headers).status_code == 304
    past = node.client.flask.get(f"/predicates?knownAt={monday - DAY}", headers=headers)
    assert "is before" in error_of(past, 400, "VALIDATION_ERROR")["message"]


@pytest.mark.parametrize("text", ["yesterday", "", "1e3", "9" * 30, "2023-11-31"])
def test_instants_of_lists_that_are_refused(node: Node, text: str) -> None:
    node.client.tell("p", "a")
    for path in ("/rules", "/predicates", "/scopes", "/episodes"):
        error = error_of(node.client.get(f"{path}?knownAt={text}"), 400, "VALIDATION_ERROR")
        assert "knownAt" in error["details"]["fields"]


def test_lists_in_a_transaction_are_of_the_present(node: Node) -> None:
    node.client.tell("p", "a")
    monday = node.day()
    id = node.client.post("/tx/begin").text
    headers = {"X-Tenant-ID": "t", "X-Transaction-ID": id}
    response = node.client.flask.get(f"/rules?knownAt={monday}", headers=headers)
    error = error_of(response, 400, "VALIDATION_ERROR")
    assert "transaction" in error["message"]


READS_OF_THE_PRESENT = [
    (route, operation)
    for operation in operations()
    if operation.role == READER and operation.about is About.TENANT
    for route in operation.routes
    if not (operation.is_historic or "knownAt" in operation.query)
]


@pytest.mark.parametrize(("route", "operation"), READS_OF_THE_PRESENT, ids=lambda v: str(v)[:40])
def test_no_read_ignores_an_instant(node: Node, route: str, operation: Operation) -> None:
    """A read that has no earlier state says so, whether the instant is in the body or the query."""
    method, path = route.split()
    path = path.replace("<name>", "n").replace("<id>", "i")
    headers = {"X-Tenant-ID": "t"}
    where: list[dict[str, Any]] = [{"query_string": {"knownAt": MONDAY}}]
    if operation.body is not None:
        where.append({"json": {"knownAt": MONDAY}})
    for more in where:
        more.setdefault("json", {} if method == "POST" else None)
        response = node.client.flask.open(path, method=method, headers=headers, **more)
        error = error_of(response, 400, "VALIDATION_ERROR")
        assert error["details"]["fields"] == {
            "knownAt": ["is not available here: this reads the present state only"]
        }


def test_an_instant_in_the_wrong_place_is_refused(node: Node) -> None:
    node.client.tell("p", "a")
    response = node.client.post("/ask?knownAt=1", {"text": "p(?x)"})
    assert "in the body" in error_of(response, 400, "VALIDATION_ERROR")["message"]


def test_tools_take_an_instant_or_refuse_it(node: Node) -> None:
    node.client.tell("p", "a")
    monday = node.day()
    node.client.tell("q", "a")
    node.client.post("/scope/fork", {"sourceScope": None, "targetScope": "s"})

    def call(name: str, **arguments: Any) -> Any:
        params = {"name": name, "arguments": {**arguments, "knownAt": monday}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return node.client.post("/mcp", body).get_json()["result"]

    listed = call("predicates")["structuredContent"]["predicates"]
    assert [each["predicate"] for each in listed] == ["p"]
    assert call("list_scopes")["structuredContent"]["scopes"] == []
    rows = call("recall", text="q(?x)", timestamp=monday + 10 * DAY)["structuredContent"]
    assert rows["count"] == 0
    refused = call("fact_history", predicate="p")
    assert refused["isError"]
    assert "knownAt" in refused["content"][0]["text"]


def test_in_this_process_what_is_of_the_present_is_refused(tmp_path: Path) -> None:
    with open_kb(path=tmp_path) as kb:
        kb.tell("p(a).")
        past = kb.known_at(kb.history_start())
        assert past.scopes() == []
        assert [each.text for each in past.rules()] == []
        for use in (
            lambda: past.history("p"),
            lambda: past.follow("p(?x)"),
            lambda: past.subscribe(print),
            lambda: past.transaction().__enter__(),
            lambda: past.tell("p(b)."),
        ):
            with pytest.raises(InvalidInput):
                use()
