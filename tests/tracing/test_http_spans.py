"""Spans of requests and of what is done for them."""

from __future__ import annotations

from support.collector import Collector
from support.http import Served


def test_a_query_is_a_request_span_with_a_goal_span(served: Served, collector: Collector):
    served.client.post("/tell", {"predicate": "likes", "args": ["ann", "tea"]})
    assert (
        served.client.post("/query", {"predicate": "likes", "args": ["ann", "?what"]}).status_code
        == 200
    )
    request = collector.span("POST /query")
    goal = collector.span("query")
    assert request.kind == "SERVER"
    assert request.parent == ""
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/query",
        "http.response.status_code": 200,
    }
    assert (goal.parent, goal.trace) == (request.id, request.trace)
    assert goal.attributes == {
        "kbcore.goal.predicate": "likes/2",
        "kbcore.goal.binding": "bf",
        "kbcore.goal.answers": 1,
        "kbcore.goal.rows_derived": 0,
        "kbcore.goal.steps": 0,
    }
    assert request.resource["service.name"] == "kbcore"


def test_a_goal_says_how_it_was_answered(served: Served, collector: Collector):
    served.client.post("/execute", {"command": "p(a, b). p(b, c). q(?x, ?y) :- p(?x, ?y)."})
    served.client.post("/execute", {"command": "q(?x, ?y) :- p(?x, ?z), q(?z, ?y)."})
    for _ in range(2):
        assert (
            served.client.post("/ask", {"predicate": "q", "args": ["?x", "?y"]}).status_code == 200
        )
    collector.wait(lambda received: len(received.named("ask")) == 2)
    first, second = collector.named("ask")
    assert first.attributes["kbcore.goal.table"] == "evaluated"
    assert second.attributes["kbcore.goal.table"] == "current"
    assert first.attributes["kbcore.goal.binding"] == "ff"
    assert first.attributes["kbcore.goal.answers"] == 3
    assert first.attributes["kbcore.goal.rows_derived"] > 0
    assert first.attributes["kbcore.goal.rows_read"] > 0
    assert first.attributes["kbcore.goal.steps"] > 0
    (engine,) = collector.children(first)
    assert engine.name == "engine"
    assert engine.attributes["kbcore.engine.steps"] == first.attributes["kbcore.goal.steps"]


def test_a_write_has_the_time_of_the_log(served: Served, collector: Collector):
    served.client.post("/tell", {"predicate": "likes", "args": ["ann", "tea"]})
    request = collector.span("POST /tell")
    assert collector.tree(request) == ["POST /tell", ["commit", ["log append"], ["log sync"]]]
    (append,) = collector.named("log append")
    assert append.attributes["kbcore.log.records"] == 1
    assert append.attributes["kbcore.log.bytes"] > 0
    assert collector.span("commit").attributes["kbcore.commit.asserted"] == 1


def test_a_proof_has_its_depth(served: Served, collector: Collector):
    served.client.post("/execute", {"command": "p(a). q(?x) :- p(?x). r(?x) :- q(?x)."})
    assert served.client.post("/explain", {"predicate": "r", "args": ["a"]}).status_code == 200
    proof = collector.span("prove")
    assert proof.attributes["kbcore.proof.depth"] == 2
    assert proof.attributes["kbcore.proof.nodes"] >= 3


def test_a_window_has_its_goals_below_it(served: Served, collector: Collector):
    served.client.post("/execute", {"command": "p(a). p(b). q(?x) :- p(?x)."})
    body = {"goals": ["q(?x)"], "maxFacts": 10}
    assert served.client.post("/memory/context", body).status_code == 200
    window = collector.span("window")
    assert window.attributes["kbcore.window.max_facts"] == 10
    assert window.attributes["kbcore.window.entries.goal"] > 0
    tree = collector.tree(window)
    assert ["ask", ["engine"]] in tree


def test_requests_without_a_route_have_no_path(served: Served, collector: Collector):
    assert served.client.get("/nothing/secret-path?token=secret").status_code == 404
    request = collector.span("GET")
    assert request.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 404,
    }


def test_a_request_continues_the_trace_of_its_client(served: Served, collector: Collector):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    goal = {"predicate": "likes", "args": ["?who"]}
    served.client.post("/query", goal, {"traceparent": f"00-{trace}-{parent}-00"})
    served.client.post("/query", goal, {"traceparent": "00-nonsense"})
    served.client.post(
        "/query", goal, {"traceparent": f"00-{trace}-{parent}-01", "tracestate": "a=1"}
    )
    collector.wait(lambda received: len(received.named("POST /query")) == 2)
    broken, continued = collector.named("POST /query")
    assert (continued.trace, continued.parent) == (trace, parent)
    assert broken.parent == ""
