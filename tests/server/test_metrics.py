"""Metrics of requests and operations, and `GET /metrics`."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Blueprint
from support.http import error_of, serve_in_memory
from support.runtimes import runtime
from support.stand_in import StandIn

import kbcore
import kbserver
from kbcore import Config, hookimpl, metrics
from kbcore.clock import ManualClock
from kbcore.errors import ConfigError, Unauthorized
from kbcore.limit_names import BUDGET_LIMITS
from kbcore.metrics import catalogue
from kbcore.node.opening import open_runtime
from kbcore.plug.webhooks import DeliveryOutcome
from kbcore.state.facts import Fact
from kbplanner.engine.binding import BUDGETS
from kbserver import create_app
from kbserver.hookspecs import Principal
from kbtypes.errors import STATUS

MEMORY = Config(storage_backend="memory")


def sample(text: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.M)
    assert found, f"{series} is not in\n{text}"
    return float(found[1])


def scrape(client) -> str:
    answer = client.flask.get("/metrics")
    assert answer.status_code == 200
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    return answer.text


def test_operations_are_counted(client):
    client.post("/teach", {"text": "far(?x, ?z) :- near(?x, ?y), near(?y, ?z)."})
    client.tell("near", "a", "b")
    client.tell("near", "b", "c")
    client.tell("near", "b", "c")
    assert client.ask("far", "a", "?x") == [["a", "c"]]
    client.post(
        "/ask",
        {"predicate": "far", "args": ["a", "?x"], "maxRows": 5},
        headers={"Prefer": "handling=strict"},
    )
    client.post("/query", {"predicate": "near", "args": ["?x", "?y"]})
    client.post("/forget", {"predicate": "near", "args": ["a", "b"]})
    client.post("/memory/context", {"maxFacts": 3})
    client.post("/tx/commit/nothing")
    client.get("/no/such/path")
    client.post("/tell", {"predicate": "p"})
    text = scrape(client)
    assert sample(text, "svc_facts_asserted_total") == 2
    assert sample(text, "svc_facts_updated_total") == 1
    assert sample(text, "svc_facts_retracted_total") == 1
    assert sample(text, "svc_rules_asserted_total") == 1
    assert sample(text, "svc_rules_fired_total") >= 1
    assert sample(text, "svc_memory_facts_total") == 1
    assert sample(text, "svc_rules") == 1
    assert sample(text, 'svc_inference_duration_seconds_count{kind="ask"}') == 2
    assert sample(text, 'svc_query_duration_seconds_count{kind="query"}') == 1
    assert sample(text, "svc_context_window_duration_seconds_count") == 1
    assert sample(text, 'svc_http_requests_total{method="POST",route="/tell",status="200"}') == 3
    assert sample(text, 'svc_http_requests_total{method="POST",route="/tell",status="400"}') == 1
    assert (
        sample(text, 'svc_http_requests_total{method="POST",route="/tx/commit/<id>",status="404"}')
        == 1
    )
    assert sample(text, 'svc_http_requests_total{method="GET",route="unmatched",status="404"}') == 1
    assert sample(text, 'svc_errors_total{code="NOT_FOUND"}') == 2
    assert sample(text, 'svc_errors_total{code="VALIDATION_ERROR"}') == 1
    assert sample(text, "svc_log_records_total") == 5
    assert sample(text, "svc_http_requests_in_progress") == 1
    assert sample(text, "svc_tenants") == 1
    assert sample(text, "svc_engine_bytes") > 0
    assert "/no/such/path" not in text
    assert '"t"' not in text


def test_transactions_budgets_and_evictions_are_counted(served):
    client = served.client
    begun = client.post("/tx/begin").text
    client.post(f"/tx/rollback/{begun}")
    client.post("/tx/begin")
    client.tell("p", "a", ttl=1)
    client.tell("p", "b")
    assert client.post(
        "/query", {"predicate": "p", "args": ["?x"], "maxAnswers": 1}
    ).status_code in (200, 422)
    served.clock.advance(1000)
    client.post("/memory/decay", {"threshold": 0})
    text = scrape(client)
    assert sample(text, 'svc_transactions_total{outcome="rolled_back"}') == 1
    assert sample(text, "svc_transactions_open") == 1
    assert sample(text, 'svc_memory_decay_evicted{reason="expired"}') == 1


def test_fast_path_and_flask_count_alike():
    counted = []
    for fast_path in (True, False):
        with serve_in_memory() as served:
            app = create_app(served.runtime, fast_path=fast_path)
            client = app.test_client()
            for _ in range(3):
                client.post(
                    "/tell", json={"predicate": "p", "args": ["a"]}, headers={"X-Tenant-ID": "t"}
                )
            text = client.get("/metrics").text
            counted.append(
                re.findall(r"^svc_(?:http_requests|facts|errors)\w*_total.*$", text, re.M)
            )
    assert counted[0] == counted[1]


def test_without_an_exposing_sink_the_route_is_404():
    with serve_in_memory(metrics_sinks=("none",)) as served:
        error = error_of(served.client.get("/metrics"), 404, "NOT_FOUND")
        assert error["details"] == {"setting": "METRICS_SINKS"}


def call_tool(client, name, **arguments):
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }
    return client.post("/mcp", message, headers={"Accept": "application/json"}).get_json()


def test_tool_calls_are_timed(client):
    call_tool(client, "tell", predicate="p", args=["a"])
    call_tool(client, "tell", predicate="p", args=["b"])
    call_tool(client, "ask", predicate="p", args=[None])
    call_tool(client, "no such tool")
    text = scrape(client)
    assert sample(text, 'svc_mcp_tool_call_duration_seconds_count{outcome="ok",tool="tell"}') == 2
    assert (
        sample(text, 'svc_mcp_tool_call_duration_seconds_count{outcome="failed",tool="ask"}') == 1
    )
    assert "no such tool" not in text


def test_open_mcp_streams_are_counted(client):
    stream = client.flask.get("/mcp/sse")
    assert next(stream.response).startswith(b"event: endpoint")
    assert sample(scrape(client), "svc_mcp_sse_subscribers") == 1
    stream.close()
    assert sample(scrape(client), "svc_mcp_sse_subscribers") == 0


def test_every_family_has_a_source():
    """A name on the page of metrics that nothing ever tells a value would stay empty for good."""
    rooms = Path(kbcore.__file__).parent, Path(kbserver.__file__).parent
    told = "".join(
        path.read_text()
        for room in rooms
        for path in room.rglob("*.py")
        if path != Path(metrics.__file__)
    )
    names = [name for name, value in vars(metrics).items() if isinstance(value, metrics.MetricSpec)]
    assert len(names) == len(metrics.FAMILIES)
    assert [name for name in names if not re.search(rf"\b{name}\b", told)] == []


class Door:
    @hookimpl
    def kb_http_authenticate(self, headers):
        token = headers.get("authorization")
        if token == "Bearer explode":
            raise ValueError("oh")
        if token == "Bearer wrong":
            raise Unauthorized("no such token")
        names = {
            "Bearer ann": Principal("ann"),
            "Bearer bob": Principal("bob", tenants=frozenset(("b",))),
        }
        return names.get(token or "")


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_plugin_authenticates_callers(fast_path):
    with open_runtime(MEMORY, plugins=[Door()]) as runtime:
        client = create_app(runtime, fast_path=fast_path).test_client()

        def ask(token, tenant, path="/query"):
            headers = {"X-Tenant-ID": tenant} | (
                {"Authorization": f"Bearer {token}"} if token else {}
            )
            if path != "/query":
                return client.get(path, headers=headers)
            return client.post(path, json={"predicate": "p", "args": []}, headers=headers)

        error_of(ask(None, "b"), 401, "UNAUTHORIZED")
        error_of(ask("wrong", "b"), 401, "UNAUTHORIZED")
        error_of(ask("stranger", "b"), 401, "UNAUTHORIZED")
        error_of(ask("explode", "b"), 500, "INTERNAL_ERROR")
        assert ask("ann", "x").status_code == ask("bob", "b").status_code == 200
        error_of(ask("bob", "x"), 403, "FORBIDDEN")
        error_of(ask("bob", "b", "/admin/databases"), 403, "FORBIDDEN")
        assert ask(None, "b", "/health").status_code == 200


class Routes:
    def __init__(self, name="weather"):
        self.name = name

    @hookimpl
    def kb_http_blueprints(self, runtime):
        blueprint = Blueprint(self.name, __name__, url_prefix="/weather")

        @blueprint.get("/<town>")
        def weather(town):
            if town == "atlantis":
                raise KeyError(town)
            return {"town": town, "databases": len(runtime.admin().databases())}

        return [blueprint]


def test_plugins_have_routes_under_x():
    with open_runtime(MEMORY, plugins=[Routes("ops")]) as runtime:
        client = create_app(runtime).test_client()
        assert client.get("/x/weather/oslo").get_json() == {"town": "oslo", "databases": 1}
        error_of(client.get("/x/weather/atlantis"), 500, "INTERNAL_ERROR")
        error_of(client.get("/weather/oslo"), 404, "NOT_FOUND")
        assert 'route="/x/weather/<town>",status="200"' in client.get("/metrics").text
        create_app(runtime)
    with (
        open_runtime(MEMORY, plugins=[Routes(), Routes()]) as runtime,
        pytest.raises(ConfigError, match="both mount"),
    ):
        create_app(runtime)


def test_clock_and_log_anomalies_are_counted(tmp_path):
    clock, before, after = ManualClock(), tmp_path / "before", tmp_path / "after"
    with runtime(before, clock=clock) as first:
        first.knowledge_base().assert_facts([Fact("p", ("a",))])
        shutil.copytree(before, after)  # as a crash would leave it
        clock.step(-6000)
        first.knowledge_base().assert_facts([Fact("p", ("b",))])
        first.knowledge_base().assert_facts([Fact("p", ("c",))])
        text = create_app(first).test_client().get("/metrics").text
        assert sample(text, "svc_clock_steps_back_total") == 1
        assert sample(text, "svc_wal_tail_bytes_dropped_total") == 0
    (segment,) = after.glob("wal-*")
    data = segment.read_bytes()
    end = len(data.rstrip(b"\0"))
    segment.write_bytes(data[:end] + b"torn" + data[end + 4 :])
    with runtime(after) as second:
        text = create_app(second).test_client().get("/metrics").text
        assert (
            sample(text, "svc_wal_tail_bytes_dropped_total")
            == second.log_status().tail_bytes_dropped
            > 0
        )
        assert sample(text, "svc_clock_steps_back_total") == 0
        assert second.log_head() == 1


ALERTS = Path(__file__).parents[2] / "docs" / "operations" / "alerts.yml"
COUNTED = re.compile(r"(?:rate|increase)\((svc_\w+)(?:\{([^}]*)\})?\[")
"""A counter of an alert, and the labels that it selects."""


def test_every_counter_of_an_alert_has_samples_from_the_start():
    counters = set(COUNTED.findall(ALERTS.read_text()))
    assert {name for name, _ in counters} >= {"svc_errors_total", "svc_snapshots_total"}
    with StandIn() as model, closing(open_runtime(replace(MEMORY, **model.settings()))) as node:
        samples = node.metrics.expose().decode().splitlines()
    for name, labels in counters:
        name = name.removesuffix("_bucket")
        wanted = [part for part in labels.split(",") if part and "!=" not in part]
        zeros = [
            line
            for line in samples
            if re.match(rf"{name}(_bucket)?(\{{| )", line)
            and all(part in line for part in wanted)
            and line.endswith(" 0.0")
        ]
        assert zeros, (name, labels)


def test_known_label_values_are_all_there_are():
    assert set(catalogue.ERROR_CODES) == set(STATUS)
    assert {each.value for each in DeliveryOutcome} == {
        value for (value,) in catalogue.WEBHOOK_DELIVERIES.known
    }
    named = set()
    for folder in ("kbcore", "planner/kbplanner"):
        for path in (ALERTS.parents[2] / folder).rglob("*.py"):
            named |= set(
                re.findall(
                    r'BudgetExceeded\((?:[^()]|\([^()]*\))*?"([a-zA-Z]+)",', path.read_text()
                )
            )
    assert named <= set(BUDGET_LIMITS)
    assert set(BUDGETS.values()) <= set(BUDGET_LIMITS)
