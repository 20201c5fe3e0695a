"""Spans of an agent's work: memory, models, tools, and deliveries to receivers."""

from __future__ import annotations

from typing import Any

import pytest
from support.agents import Agent
from support.collector import Collector
from support.http import Served, serve_in_memory
from support.receivers import SECRET, Receiver
from support.stand_in import StandIn

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_operations_on_memory(served: Served, collector: Collector) -> None:
    post = served.client.post
    messages = [{"role": "user", "content": "My favourite tea is sencha."}]
    for path, body in (
        ("/memory/add", {"messages": messages}),
        ("/memory/search", {"question": "Which tea?"}),
        ("/memory/update", {"fact": "lives_in(ann, paris)", "replaces": "lives_in(ann, rome)"}),
        ("/memory/forget", {"about": "lives_in(ann, ?where)", "dryRun": False}),
    ):
        if "replaces" in body:
            served.client.tell("lives_in", "ann", "rome")
            served.clock.advance(1000)
        assert post(path, body).status_code == 200
    collector.wait(lambda received: received.named("delete_memory"))
    for name, count in (("create_memory", 1), ("search_memory", 1), ("update_memory", 1)):
        span = collector.span(name)
        assert span.attributes == {
            "gen_ai.operation.name": name,
            "gen_ai.memory.record.count": count,
        }
    assert collector.span("delete_memory").attributes["gen_ai.memory.record.count"] == 2
    window = collector.span("window")
    assert window.parent == collector.span("search_memory").id


def test_a_call_of_a_model(traced: Collector) -> None:
    with StandIn() as model:
        settings = {"llm_api_key": "k" * 20, **model.settings("openai")}
        with serve_in_memory(**settings) as served:
            body = {"text": "Ann likes tea."}
            assert served.client.post("/extract", body).status_code == 200
        (seen,) = model.seen
    request = traced.span("POST /extract")
    (call,) = [span for span in traced.spans if span.kind == "CLIENT"]
    assert call.name == f"chat {settings['llm_model']}"
    assert call.trace == request.trace
    assert call.attributes["gen_ai.operation.name"] == "chat"
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.request.model"] == settings["llm_model"]
    assert call.attributes["gen_ai.usage.input_tokens"] > 0
    assert call.attributes["gen_ai.usage.output_tokens"] > 0
    assert call.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert seen.headers["traceparent"] == f"00-{call.trace}-{call.id}-01"


def test_a_model_that_fails_is_an_error_with_its_class(traced: Collector) -> None:
    with StandIn() as model:
        settings = {"llm_api_key": "k" * 20, "llm_retries": 0, **model.settings("openai")}
        model.misbehave("500")
        with serve_in_memory(**settings) as served:
            assert served.client.post("/extract", {"text": "x"}).status_code == 502
    call = traced.span(f"chat {settings['llm_model']}")
    assert call.failed
    assert call.attributes["error.type"] == "ProviderFailed"
    assert traced.span("POST /extract").attributes["error.type"] == "502"


@pytest.mark.parametrize(
    "meta", [{}, {"progressToken": 1}, {"traceparent": f"00-{TRACE}-{PARENT}-01"}]
)
def test_a_call_of_a_tool(served: Served, collector: Collector, meta: dict[str, Any]) -> None:
    agent = Agent(served.client)
    params = {"name": "ask", "arguments": {"text": "likes(ann, ?what)"}, "_meta": meta}
    headers = {"X_Tenant_ID": "t", "Accept": "application/json, text/event-stream"}
    agent.legacy("tools/call", params, **headers)  # with a token, in a thread of its own
    request, call = collector.span("POST /mcp"), collector.span("tools/call ask")
    assert call.kind == "SERVER"
    assert call.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ask",
    }
    if "traceparent" in meta:
        assert (call.trace, call.parent) == (TRACE, PARENT)
        assert call.links == (request.id,)
    else:
        assert (call.trace, call.parent) == (request.trace, request.id)
    assert collector.span("ask").parent == call.id


def test_a_tool_that_fails(served: Served, collector: Collector) -> None:
    agent = Agent(served.client)
    params = {"name": "ask", "arguments": {"text": "likes(ann"}}
    agent.legacy("tools/call", params, X_Tenant_ID="t")
    call = collector.span("tools/call ask")
    assert (call.failed, call.attributes["error.type"]) == (True, "tool_error")


def test_a_delivery_is_linked_to_the_write_that_caused_it(traced: Collector) -> None:
    heads: list[Any] = []
    with Receiver() as receiver:
        take = receiver.take

        def noted(headers: Any, body: bytes) -> int:
            heads.append(headers)
            return take(headers, body)

        receiver.take = noted  # type: ignore[method-assign]
        settings = {"webhook_urls": (receiver.url,), "webhook_private_addresses": True}
        with serve_in_memory(**settings) as served:
            webhook = {"url": receiver.url, "secret": SECRET}
            body = {"goal": "likes(?who, tea)", "webhook": webhook}
            answer = served.client.post("/goals/subscribe", body)
            assert answer.status_code == 200, answer.text
            served.client.tell("likes", "ann", "tea")
            receiver.wait(lambda receiver: len(receiver.deliveries) >= 1)
    delivery = traced.wait(
        lambda received: [each for each in received.named("webhook") if each.links]
    )[0]
    commits = {each.id: each for each in traced.named("commit")}
    assert traced.children(commits[delivery.links[0]])[0].name == "log append"
    assert commits[delivery.links[0]].parent == traced.span("POST /tell").id
    parents = [head["traceparent"] for head in heads]
    assert f"00-{delivery.trace}-{delivery.id}-01" in parents
