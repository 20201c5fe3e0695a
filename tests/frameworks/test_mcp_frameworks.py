"""The programs of the pages about CrewAI and AutoGen, with these frameworks and models that say
what a test wants.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers import Server

pytestmark = pytest.mark.filterwarnings("ignore")

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
GOAL = {"text": "likes(ann, ?what)"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with Server(tmp_path) as found:
        url = f"http://{found.address[0]}:{found.address[1]}"
        monkeypatch.setenv("KBCORE_URL", url)
        yield url


def program(framework: str) -> dict[str, Any]:
    """Run the program of a framework on the page about frameworks, and return its names."""
    text = (HOW_TO / "use-agent-frameworks.md").read_text("utf-8")
    names: dict[str, Any] = {}
    exec(re.search(rf"```{framework}\n(.*?)```", text, re.DOTALL)[1], names)
    return names


def tell(server: str, tenant: str) -> None:
    fact = {"predicate": "likes", "args": ["ann", "tea"]}
    assert httpx.post(f"{server}/tell", json=fact, headers={"X-Tenant-ID": tenant}).is_success


def test_an_autogen_agent_asks(server):
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient

    tell(server, "team")
    names = program("autogen")
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    call = FunctionCall(id="c1", name="ask", arguments='{"text": "likes(ann, ?what)"}')
    info = ModelInfo(
        vision=False,
        function_calling=True,
        json_output=False,
        family="unknown",
        structured_output=False,
    )
    first = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)
    model = ReplayChatCompletionClient([first, "Tea."], model_info=info)
    assert asyncio.run(names["answer"](model, "What does Ann like?")) == "Tea."
    read = model.create_calls[1]["messages"][-1].content[0]
    assert not read.is_error
    assert '"args":["ann","tea"]' in read.content


def test_a_crewai_agent_has_the_tools(server, monkeypatch, tmp_path):
    for name in ("CREWAI_DISABLE_TELEMETRY", "OTEL_SDK_DISABLED"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    tell(server, "crew")
    agent = program("crewai")["analyst"]
    tools = {tool.name.rsplit("_", 1)[-1]: tool for tool in agent.get_mcp_tools(agent.mcps)}
    assert {"ask", "tell", "context"} < tools.keys()
    assert '"args":["ann","tea"]' in tools["ask"].run(**GOAL)
