"""Content that no trace has without consent: texts of facts, constants of goals, prompts."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.agents import Agent
from support.collector import Collector
from support.http import Served, serve_in_memory
from support.receivers import SECRET, Receiver
from support.stand_in import StandIn

from kbcore.tracing.otel import CONTENT_VARIABLE
from kbcore.tracing.spans import turn_on

WORD = "xylophonist"
"""A word in every fact, goal, text, scope, tenant, path and error below."""


def use(served: Served, receiver: Receiver) -> None:
    """Do something of each kind with a word, also what fails."""
    client, post = served.client, served.client.post
    tenant = {"X-Tenant-ID": f"t-{WORD}", "X-Request-ID": WORD}
    agent = Agent(client)
    fact, goal = {"predicate": "likes", "args": [WORD, "tea"]}, f"likes({WORD}, ?what)"
    rules = f"happy(?x) :- likes(?x, tea), ?x != {WORD}2. @unique(likes/2)."
    subscription = {"goal": goal, "webhook": {"url": receiver.url, "secret": SECRET}}
    messages = [{"role": "user", "content": f"I am a {WORD}."}]
    for path, body in (
        ("/goals/subscribe", subscription),
        ("/tell", fact),
        ("/tell", {**fact, "scope": WORD, "metadata": {"source": WORD}}),
        ("/execute", {"command": rules}),
        ("/query", fact),
        ("/ask", {"predicate": "happy", "args": [WORD]}),
        ("/ask", {"text": goal}),
        ("/ask", {"predicate": "likes", "args": [WORD, 7, {"a": WORD}]}),
        ("/explain", {"predicate": "happy", "args": [WORD]}),
        ("/memory/context", {"goals": [f"happy({WORD})", goal], "query": f"the {WORD}"}),
        ("/memory/add", {"messages": messages, "session": WORD}),
        ("/memory/search", {"question": f"Who is a {WORD}?"}),
        ("/memory/query/temporal", {**fact, "timestamp": 1}),
        ("/memory/query/salient", {}),
        ("/extract", {"text": f"Ann is a {WORD}."}),
        ("/synthesize", {"question": f"Who is the {WORD}?"}),
        ("/memory/forget", {"about": f"likes({WORD}, ?x)", "dryRun": False}),
        ("/retract", fact),
        (f"/admin/databases/{WORD}/nuke", {}),
        (f"/{WORD}?{WORD}", {}),
    ):
        post(path, body, headers=tenant)
    call = {"name": "ask", "arguments": {"text": goal}}
    agent.legacy("tools/call", call, X_Tenant_ID=f"t-{WORD}")
    agent.legacy("tools/call", {**call, "arguments": {"text": f"{WORD}("}}, X_Tenant_ID="t")
    client.flask.open("/tell", method=WORD.upper(), headers={"X-Tenant-ID": WORD})
    receiver.wait(lambda receiver: receiver.deliveries)


def bytes_of(collector: Collector, monkeypatch: pytest.MonkeyPatch, **more: str) -> bytes:
    """Everything that is exported while the knowledge base is used."""
    for name, value in collector.settings(**more).items():
        monkeypatch.setenv(name, value)
    stop = turn_on(os.environ, lambda call: call(), "")
    assert stop is not None
    with StandIn() as model, Receiver() as receiver:
        settings: dict[str, Any] = {"llm_api_key": "k" * 20, **model.settings("openai")}
        settings |= {"webhook_urls": (receiver.url,), "webhook_private_addresses": True}
        with serve_in_memory(**settings) as served:
            use(served, receiver)
    stop(60)
    return b"\0".join(collector.raw)


def test_no_text_of_a_fact_is_exported(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = bytes_of(collector, monkeypatch).lower()
    assert WORD.encode() not in exported
    kinds = {span.name.split()[0] for span in collector.spans}
    assert kinds == {
        "HTTP",
        "POST",
        "ask",
        "chat",
        "commit",
        "create_memory",
        "delete_memory",
        "engine",
        "log",
        "prove",
        "query",
        "recall",
        "salient",
        "search_memory",
        "tools/call",
        "webhook",
        "window",
    }


def test_texts_are_exported_with_the_variable_of_the_conventions(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_of(collector, monkeypatch, **{CONTENT_VARIABLE: "true"})
    content = {
        name: value
        for span in collector.spans
        for name, value in span.attributes.items()
        if WORD in str(value)
    }
    assert set(content) == {
        "gen_ai.input.messages",
        "gen_ai.memory.query.text",
        "gen_ai.output.messages",
        "kbcore.goal.text",
    }
