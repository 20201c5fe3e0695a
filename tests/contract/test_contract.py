"""The interface document, sentence by sentence and in its order, for facts, rules, questions and
health.

Each test quotes the sentence it holds the server to.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, Served, error_of

from kbcore.config import Config

ALIASES = [
    ("/tell", "/assert/fact"),
    ("/ask", "/infer"),
    ("/teach", "/assert/rule"),
    ("/forget", "/retract"),
]

FACT = {"predicate": "parent", "args": ["ann", "bob"]}
RULE = {
    "head": {"predicate": "elder", "args": ["?x"]},
    "body": [{"predicate": "parent", "args": ["?x", "?y"]}],
}


def test_service_stores_facts_and_rules(client: Client) -> None:
    """Facts: a predicate plus an ordered list of arguments. Rules: a head atom derived from a body
    of atoms.
    """
    client.tell("parent", "ann", "bob")
    assert client.post("/teach", RULE).status_code == 200
    assert client.ask("parent", "ann", "bob") == [["ann", "bob"]]
    assert client.ask("parent", "bob", "ann") == []
    assert client.ask("elder", "?x") == [["ann"]]


def test_default_port() -> None:
    """The default local port is 9300."""
    assert Config().port == 9300


def test_partitions(client: Client) -> None:
    """Data is partitioned by database and, within a database, by tenant; scopes partition facts
    further.
    """
    client.tell("p", "a")
    client.tell("p", "b", scope="s")
    assert (
        client.post("/ask", {"predicate": "p", "args": ["?x"]}, {"X-Tenant-ID": "other"}).get_json()
        == []
    )
    assert client.ask("p", "?x") == [["a"]]
    assert client.ask("p", "?x", scope="s") == [["b"]]


def test_variables_start_with_a_question_mark(client: Client) -> None:
    """Inference is backward chaining. Variables are arguments that start with `?`."""
    client.tell("p", "a", "b")
    assert client.ask("p", "?first", "?second") == [["a", "b"]]
    assert client.ask("p", "?same", "?same") == []
    assert client.ask("p", "first", "?second") == []


def test_retracting_cascades(client: Client) -> None:
    """Retracting a fact also retracts the derived conclusions that depended on it (cascade)."""
    client.tell("parent", "ann", "bob")
    client.post("/teach", RULE)
    assert client.ask("elder", "ann")
    client.post("/retract", FACT)
    assert client.ask("elder", "ann") == []


def test_a_direct_query_applies_no_rules(client: Client) -> None:
    """A direct pattern query reads stored facts only and applies no rules."""
    client.tell("parent", "ann", "bob")
    client.post("/teach", RULE)
    assert client.post("/query", {"predicate": "elder", "args": ["?x"]}).get_json() == []


def test_aggregations_run_over_matched_facts(client: Client) -> None:
    """Aggregations (COUNT, SUM, MIN, MAX, AVG) run over matched facts."""
    for age in ("10", "20", "60"):
        client.tell("age", f"p{age}", age)
    results = {}
    for op in ("COUNT", "SUM", "MIN", "MAX", "AVG"):
        found = client.post("/aggregate", {"predicate": "age", "op": op, "argIndex": 1})
        results[op] = found.get_json()["result"]
    assert results == {"COUNT": 3, "SUM": 90, "MIN": 10, "MAX": 60, "AVG": 30}


@pytest.mark.parametrize(("alias", "full"), ALIASES)
def test_aliases(served: Served, alias: str, full: str) -> None:
    """Simplified aliases (same behaviour, same payloads)."""
    functions = served.app.view_functions
    views = {rule.rule: functions[rule.endpoint] for rule in served.app.url_map.iter_rules()}
    assert views[alias] == views[full]
    body = RULE if alias == "/teach" else FACT
    first, second = served.client.post(alias, body), served.client.post(full, body)
    assert (
        (first.status_code, first.content_type)
        == (second.status_code, second.content_type)
        == (200, first.content_type)
    )


def test_settings() -> None:
    """`STORAGE_DIR`, `LOG_LEVEL` (DEBUG, INFO, WARN or ERROR), `LOG_FORMAT` (`text`, the default,
    or `json`).
    """
    config = Config.from_env({"STORAGE_DIR": "/x", "LOG_LEVEL": "WARN", "LOG_FORMAT": "json"})
    assert (config.storage_dir, config.log_level, config.log_format) == ("/x", "WARN", "json")
    assert Config().log_format == "text"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("GET", "/nope"), ("POST", "/tell"), ("GET", "/ask")]
)
def test_every_response_carries_a_request_id(client: Client, method: str, path: str) -> None:
    """Every response carries an `X-Request-ID` header for correlation."""
    assert client.flask.open(path, method=method).headers["X-Request-ID"]


def test_health(client: Client) -> None:
    """`GET /health` is a liveness check. `GET /health/ready` is a readiness check."""
    assert client.flask.get("/health").get_json()["status"] == "healthy"
    ready = client.flask.get("/health/ready")
    assert ready.status_code == 200
    assert ready.get_json()["status"] == "healthy"


def test_atom_fields(client: Client) -> None:
    """`predicate` and `args` are required; in `/retract/pattern`, `null` is a wildcard; numbers may
    be passed as strings.
    """
    for missing in ("predicate", "args"):
        body = {key: value for key, value in FACT.items() if key != missing}
        error = error_of(client.post("/infer", body), 400, "VALIDATION_ERROR")
        assert missing in error["details"]["fields"]
    client.tell("age", "ann", "30")
    client.tell("age", "bob", 30)
    assert client.ask("age", "?x", "30") == [["ann", "30"], ["bob", "30"]]
    assert (
        client.post("/retract/pattern", {"predicate": "age", "args": [None, "30"]}).get_json()[
            "retracted"
        ]
        == 2
    )


def test_negated_is_optional_in_goals(client: Client) -> None:
    """negated | boolean | optional in goals."""
    client.tell("p", "a")
    assert client.ask("p", "b", negated=True) == [["b"]]
    assert client.ask("p", "a", negated=False) == [["a"]]


@pytest.mark.parametrize(
    "field", ["truthVal", "scope", "ttl", "validUntil", "validFrom", "metadata", "confidence"]
)
def test_optional_fields_of_a_fact_may_be_null(client: Client, field: str) -> None:
    """optional on input; string or null, value or null."""
    assert client.post("/assert/fact", {**FACT, field: None}).status_code == 200


def test_metadata_defaults_to_an_empty_object(client: Client) -> None:
    """metadata | object | optional, defaults to an empty object."""
    client.tell("p", "a")
    assert client.post("/infer", {"predicate": "p", "args": ["a"]}).get_json()[0]["metadata"] == {}


def test_rule_scope(client: Client) -> None:
    """Rule: head, body required; scope string or null, optional."""
    assert client.post("/assert/rule", {**RULE, "scope": None}).status_code == 200
    assert client.post("/assert/rule", {**RULE, "scope": "s"}).status_code == 200
    for missing in ("head", "body"):
        body = {key: value for key, value in RULE.items() if key != missing}
        error_of(client.post("/assert/rule", body), 400, "VALIDATION_ERROR")


def test_assert_fact(client: Client) -> None:
    """Response: plain text (not JSON) `Fact Asserted: <predicate>(<args joined by comma and
    space>)`.
    """
    response = client.post("/assert/fact", FACT)
    assert response.status_code == 200
    assert response.content_type == "text/plain; charset=utf-8"
    assert response.text == "Fact Asserted: parent(ann, bob)"


def test_assert_fact_in_a_transaction(client: Client) -> None:
    """When header `X-Transaction-ID` is sent, the write joins that transaction."""
    error_of(client.post("/assert/fact", FACT, {"X-Transaction-ID": "unknown"}), 404, "NOT_FOUND")
    assert client.ask("parent", "?x", "?y") == []


def test_assert_facts(client: Client) -> None:
    """Body: `{facts: array of Fact}`."""
    response = client.post("/assert/facts", {"facts": [FACT, {"predicate": "p", "args": []}]})
    assert response.status_code == 200
    assert response.get_json()["asserted"] == 2


def test_infer(client: Client) -> None:
    """Response: JSON array of Fact records (the derived or matching facts)."""
    client.tell("parent", "ann", "bob", metadata={"m": 1}, confidence=0.5)
    client.post("/assert/rule", RULE)
    matching = client.post(
        "/infer", {"predicate": "parent", "args": ["ann", "?who"], "scope": None}
    ).get_json()
    assert [row["args"] for row in matching] == [["ann", "bob"]]
    assert {"negated": False, "metadata": {"m": 1}, "confidence": 0.5}.items() <= matching[
        0
    ].items()
    derived = client.post("/infer", {"predicate": "elder", "args": ["?who"]})
    assert derived.content_type == "application/json"
    assert derived.get_json()[0]["args"] == ["ann"]


def test_query(client: Client) -> None:
    """Response: JSON array of `{predicate, args, truthVal}`."""
    client.tell("parent", "ann", "bob")
    (row,) = client.post("/query", {"predicate": "parent", "args": ["?x", "bob"]}).get_json()
    assert {"predicate": "parent", "args": ["ann", "bob"], "truthVal": True}.items() <= row.items()


def test_retract_pattern(client: Client) -> None:
    """A `null` in `args` matches any value at that position. All matching facts are retracted."""
    for child in ("bob", "cy"):
        client.tell("parent", "ann", child)
    client.tell("parent", "dan", "eve")
    assert (
        client.post("/retract/pattern", {"predicate": "parent", "args": ["ann", None]}).status_code
        == 200
    )
    assert client.ask("parent", "?x", "?y") == [["dan", "eve"]]


def test_aggregate_fields(client: Client) -> None:
    """argIndex: required for SUM, MIN, MAX, AVG; not needed for COUNT. Response: `{result:
    number}`.
    """
    client.tell("age", "ann", "30")
    assert client.post("/aggregate", {"predicate": "age", "op": "COUNT"}).get_json()["result"] == 1
    for op in ("SUM", "MIN", "MAX", "AVG"):
        error_of(client.post("/aggregate", {"predicate": "age", "op": op}), 400, "VALIDATION_ERROR")
        body: dict[str, Any] = {"predicate": "age", "op": op, "argIndex": 1, "scope": None}
        assert client.post("/aggregate", body).get_json()["result"] == 30
    error_of(
        client.post("/aggregate", {"predicate": "age", "op": "MEDIAN"}), 400, "VALIDATION_ERROR"
    )


def test_predicates(client: Client) -> None:
    """GET /predicates: discover the knowledge-base schema."""
    client.tell("parent", "ann", "bob")
    assert client.get("/predicates").get_json()["predicates"][0]["predicate"] == "parent"


def test_the_tenant_header_is_required(served: Served) -> None:
    """A missing `X-Tenant-ID` produces error code `VALIDATION_ERROR` with a message that names the
    missing header.
    """
    error = error_of(served.client.flask.post("/tell", json=FACT), 400, "VALIDATION_ERROR")
    assert "X-Tenant-ID" in error["message"]


def test_the_database_header_is_optional(client: Client) -> None:
    """X-Database selects the database; optional, defaults to `default`."""
    client.tell("p", "a")
    goal = {"predicate": "p", "args": ["?x"]}
    assert (
        client.post("/ask", goal, {"X-Database": "default"}).get_json()
        == client.post("/ask", goal).get_json()
        != []
    )


def test_the_content_type_is_required(client: Client) -> None:
    """Content-Type: application/json, required on all POST requests with a body."""
    error_of(client.post("/tell", data=b'{"predicate": "p", "args": []}'), 415, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/infer", 400, "VALIDATION_ERROR"),
        ("GET", "/infer", 405, "VALIDATION_ERROR"),
        ("GET", "/unknown", 404, "NOT_FOUND"),
    ],
)
def test_errors(client: Client, method: str, path: str, status: int, code: str) -> None:
    """All endpoints return errors as JSON: code, message, details (value or null, null when
    none).
    """
    error_of(client.flask.open(path, method=method, headers={"X-Tenant-ID": "t"}), status, code)


def test_memory_context(client: Client) -> None:
    """A request with only `maxFacts`/`minSalience` uses the fast path; with `goals`, `sessionId` or
    `relevanceBuckets` the response is a Context window. A window holds at most `maxFacts` facts;
    `maxFactsPerPredicate` caps facts per predicate.
    """
    client.tell("p", "a")
    client.tell("p", "b")
    client.tell("q", "c")
    fast = client.post("/memory/context", {"maxFacts": 2, "minSalience": 0.0}).get_json()
    assert len(fast["entries"]) == 2
    capped = client.post("/memory/context", {"maxFactsPerPredicate": 1}).get_json()
    assert sorted(entry["predicate"] for entry in capped["entries"]) == ["p", "q"]
    goals = [{"predicate": "p", "args": ["?x"], "negated": False}]
    buckets = [{"name": "rest", "predicates": ["q"], "weight": 1}]
    whole = client.post(
        "/memory/context", {"goals": goals, "sessionId": "s", "relevanceBuckets": buckets}
    ).get_json()
    assert [entry["category"] for entry in whole["entries"]] == [
        "goal_relevant",
        "goal_relevant",
        "rest",
    ]
    assert list(whole["bucketStats"]["rest"]) == [
        "factsIncluded",
        "maxAllocation",
        "minSalience",
        "maxSalience",
    ]
    assert whole["goalDriven"] is True


def test_contradictions_in_windows(client: Client) -> None:
    """autoResolveContradictions (true): resolve contradictions by keeping the higher-salience
    fact.
    """
    client.tell("p", "a")
    client.tell("p", "a", negated=True)
    found = client.post("/memory/context", {"sessionId": "s"}).get_json()
    assert (
        len(found["entries"]),
        found["contradictionsFound"],
        found["contradictionsResolved"],
    ) == (1, 1, 1)
    assert set(found["contradictions"][0]) == {
        "predicate",
        "args",
        "positiveSalience",
        "negativeSalience",
    }
    found = client.post(
        "/memory/context", {"sessionId": "s", "autoResolveContradictions": False}
    ).get_json()
    assert (len(found["entries"]), found["contradictionsResolved"]) == (2, 0)


def test_context_diff_and_clear(client: Client) -> None:
    """removed: key of the form predicate/arg1/arg2, with a reason. Response: `Session '<sessionId>'
    cleared`.
    """
    client.tell("p", "a", "b")
    client.post("/memory/context", {"sessionId": "s"})
    client.post("/retract", {"predicate": "p", "args": ["a", "b"]})
    found = client.post("/context/diff", {"sessionId": "s"}).get_json()
    gone = {
        "key": "p/a/b",
        "predicate": "p",
        "args": ["a", "b"],
        "negated": False,
        "scope": None,
        "reason": "retracted",
    }
    assert found["removed"] == [gone]
    assert client.post("/context/session/clear", {"sessionId": "s"}).text == "Session 's' cleared"


def test_context_optimize(client: Client) -> None:
    """Its responses carry the header `Deprecation: true`. It is removed after 2026-07-01."""
    assert client.post("/context/optimize", {}).headers["Deprecation"] == "true"


def test_consolidate(client: Client) -> None:
    """Compress repetitive episodic patterns into semantic summaries (alias POST
    /memory/compress).
    """
    for n in range(5):
        client.tell("saw", "ann", f"x{n}")
    found = client.post("/memory/consolidate", {}).get_json()
    assert found["factsConsolidated"] == 5
    assert [(row["predicate"], row["args"]) for row in found["newFacts"]] == [
        ("saw_consolidated", ["ann", "5"])
    ]
    client.tell("saw", "ann", "x5")
    assert client.post("/memory/compress", {}).get_json()["newFacts"][0]["args"] == ["ann", "6"]


@pytest.mark.parametrize("path", ["/memory/decay", "/memory/cleanup"])
def test_decay(client: Client, path: str) -> None:
    """Evict expired and low-salience facts; body `{threshold: number}`."""
    client.tell("p", "kept")
    assert (
        client.post("/tell", {"predicate": "p", "args": ["weak"], "confidence": 0.01}).status_code
        == 200
    )
    found = client.post(path, {"threshold": 0.2}).get_json()
    assert (found["expiredCount"], found["evictedCount"]) == (0, 1)
    assert [row["args"] for row in found["removedAtoms"]] == [["weak"]]
    assert client.ask("p", "?x") == [["kept"]]
    error_of(client.post(path, {"threshold": 2}), 400, "VALIDATION_ERROR")


def test_scopes(client: Client) -> None:
    """Fork copies all facts to a new scope; diff shows added, removed and modified; merge has a
    strategy; delete; list.
    """
    client.tell("p", "a")
    assert client.post("/scope/fork", {"targetScope": "s"}).get_json()["copied"] == 1
    for args in (["b"], ["c"]):
        assert (
            client.post("/tell", {"predicate": "p", "args": args, "scope": "s"}).status_code == 200
        )
    found = client.post("/scope/diff", {"targetScope": "s"}).get_json()
    assert [row["args"] for row in found["added"]] == [["b"], ["c"]]
    assert (found["removed"], found["modified"]) == ([], [])
    for strategy in ("SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH", "REJECT"):
        assert (
            client.post("/scope/merge", {"sourceScope": "s", "strategy": strategy}).status_code
            == 200
        )
    error_of(
        client.post("/scope/merge", {"sourceScope": "s", "strategy": "OTHER"}),
        400,
        "VALIDATION_ERROR",
    )
    assert len(client.ask("p", "?x")) == 3
    assert client.get("/scopes").get_json()["scopes"] == ["s"]
    assert client.flask.delete("/scope/s", headers={"X-Tenant-ID": "t"}).status_code == 200
    assert client.get("/scopes").get_json()["scopes"] == []


def test_administration(client: Client) -> None:
    """Databases and tenants are listed, created, deleted and emptied."""
    assert client.post("/admin/databases", {"name": "d"}).status_code in (200, 201)
    assert "d" in [row["name"] for row in client.get("/admin/databases").get_json()]
    assert client.post("/admin/databases/d/tenants", {"tenantId": "x"}).status_code in (200, 201)
    there = {"X-Database": "d", "X-Tenant-ID": "x"}
    goal = {"predicate": "p", "args": ["?x"]}
    for path in ("/admin/databases/d/tenants/x/nuke", "/admin/databases/d/nuke"):
        assert client.post("/tell", {"predicate": "p", "args": ["a"]}, there).status_code == 200
        assert len(client.post("/ask", goal, there).get_json()) == 1
        assert client.post(path).status_code == 200
        assert client.post("/ask", goal, there).get_json() == []
        assert client.get("/admin/databases/d/tenants").get_json() == ["x"]
    assert (
        client.flask.delete(
            "/admin/databases/d/tenants/x", headers={"X-Tenant-ID": "x"}
        ).status_code
        == 200
    )
    assert client.get("/admin/databases/d/tenants").get_json() == []


def test_transactions(client: Client) -> None:
    """Begin returns an id as plain text; commit applies the grouped operations as one unit;
    rollback discards them.
    """
    for end, stored in (("rollback", []), ("commit", [["a"], ["b"]])):
        begun = client.post("/tx/begin")
        assert begun.content_type == "text/plain; charset=utf-8"
        for name in ("a", "b"):
            body = {"predicate": "p", "args": [name]}
            assert client.post("/tell", body, {"X-Transaction-ID": begun.text}).status_code == 200
        assert client.ask("p", "?x") == []
        assert client.post(f"/tx/{end}/{begun.text}").status_code == 200
        assert client.ask("p", "?x") == stored
