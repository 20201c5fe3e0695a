"""The tree of a question in `docs/operations/monitoring.md` is that of real spans.

KB_GOLDEN=write writes it into the page.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.collector import Collector, ReceivedSpan
from support.servers import Server

import kbcore_client

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "monitoring.md"
BEGIN, END = "<!-- the tree of a question -->\n```text\n", "```\n<!-- its end -->"
RULES = "may_order(?who, ?what) :- likes(?who, ?what), in_stock(?what)."
SHOWN = (
    "service.name",
    "http.response.status_code",
    "kbcore.window.max_facts",
    "kbcore.window.entries",
    "kbcore.window.entries.goal",
    "kbcore.window.entries.other",
    "kbcore.goal.predicate",
    "kbcore.goal.binding",
    "kbcore.goal.table",
    "kbcore.goal.rows_read",
    "kbcore.engine.answers",
    "gen_ai.memory.record.count",
    "kbcore.commit.asserted",
    "kbcore.log.records",
)


def lines(collector: Collector, span: ReceivedSpan, depth: int = 0) -> Iterator[str]:
    """A line for a span and for each one below it."""
    shown = {**span.attributes}
    if depth == 0:
        shown |= {"service.name": span.resource["service.name"]}
    texts = [f"{name}={shown[name]}" for name in SHOWN if name in shown]
    text = "  ".join(texts)
    yield f"{'  ' * depth}{span.name}{'  ' if text else ''}{text}"
    for child in collector.children(span):
        yield from lines(collector, child, depth + 1)


def test_the_page_has_the_tree_of_real_spans(tmp_path: Path, collector: Collector) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "the agent"}))
    exporter = OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agent")

    def create(**arguments: Any) -> Any:
        with tracer.start_as_current_span("chat"):
            message = SimpleNamespace(role="assistant", content="You may order sencha.")
            return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    model = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    with Server(tmp_path, **collector.settings()) as server:
        kb = kbcore_client.connect("http://{}:{}".format(*server.address), tenant="mia")
        with kb:
            kb.teach(RULES)
            kb.tell("likes", ["mia", "sencha"])
            kb.tell("in_stock", ["sencha"])
            client = kb.wrap(model, goals=["may_order(mia, ?what)"], max_facts=10)
            with tracer.start_as_current_span("wrap") as root:
                question = {"role": "user", "content": "What may I order?"}
                client.chat.completions.create(model="m", messages=[question])
        trace = f"{root.get_span_context().trace_id:032x}"
        collector.wait(
            lambda received: (
                any(each.trace == trace and each.name == "log sync" for each in received.spans)
                and any(each.trace == trace and each.name == "wrap" for each in received.spans)
                and any(
                    each.trace == trace and each.name == "POST /memory/add"
                    for each in received.spans
                )
            )
        )
    provider.shutdown()
    (top,) = (each for each in collector.spans if each.trace == trace and not each.parent)
    tree = "".join(f"{line}\n" for line in lines(collector, top))
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    documented, end, tail = rest.partition(END)
    assert begin
    assert end
    if os.environ.get("KB_GOLDEN") == "write":
        PAGE.write_text(head + begin + tree + end + tail, encoding="utf-8")
        documented = tree
    assert documented == tree
