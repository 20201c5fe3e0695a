"""The Python clients go on with the trace of their program."""

from __future__ import annotations

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from support.collector import Collector

import kbcore_client

SPAN = TracerProvider().get_tracer("program").start_span("program")


def check(collector: Collector) -> None:
    request = collector.span("POST /ask")
    ids = SPAN.get_span_context()
    assert request.trace == f"{ids.trace_id:032x}"
    assert request.parent == f"{ids.span_id:016x}"


def test_the_client(traced: Collector) -> None:
    with kbcore_client.connect("memory:") as kb, trace.use_span(SPAN):
        list(kb.ask("likes(?who, tea)"))
    check(traced)


def test_the_asynchronous_client(traced: Collector) -> None:
    async def ask() -> None:
        async with kbcore_client.connect_async("memory:") as kb:
            with trace.use_span(SPAN):
                list(await kb.ask("likes(?who, tea)"))

    asyncio.run(ask())
    check(traced)


def test_there_is_no_header_without_a_span() -> None:
    assert kbcore_client.trace_context.trace_headers() == {}
