"""Tools for model APIs: their definitions, their calls, and the program of the page with the real
client of OpenAI.
"""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from kbcore_client import InvalidInput, connect

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "connect-an-mcp-client.md"
READS = ["aggregate", "ask", "context", "context_diff", "explain", "predicates", "query"]


def test_tools_have_the_form_of_each_api(kb):
    chat, responses = kb.tools(), kb.tools("openai-responses")
    messages, plain = kb.tools("anthropic"), kb.tools("mcp")
    assert set(READS) < {tool["name"] for tool in plain}
    for one, two, three, tool in zip(chat, responses, messages, plain, strict=True):
        assert one == {"type": "function", "function": {k: two[k] for k in two if k != "type"}}
        assert two["parameters"] == three["input_schema"] == tool["inputSchema"]
        assert two["name"] == three["name"] == tool["name"]
        assert two["description"] == three["description"] == tool["description"]
        # Both APIs refuse definitions whose top level is not a plain object.
        assert two["parameters"]["type"] == "object"
        assert not {"anyOf", "oneOf", "allOf"} & two["parameters"].keys()
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", two["name"])
    with pytest.raises(InvalidInput, match="format: must be one of openai, openai-responses"):
        kb.tools("other")


def test_calls_of_tools(kb):
    assert kb.call_tool("tell", '{"text": "likes(ann, tea)"}').data["asserted"] == 1
    result = kb.call_tool("ask", {"text": "likes(ann, ?what)"})
    assert [row["args"] for row in result.data["results"]] == [["ann", "tea"]]
    assert json.loads(result.text) == result.data
    assert not result.is_error
    assert kb.call_tool("predicates", "").data["totalPredicates"] == 1
    mistake = kb.call_tool("ask", {"text": "likes(ann"})
    assert mistake.is_error
    assert 'this \\"(\\" is never closed' in mistake.text
    with pytest.raises(InvalidInput, match="nothing"):
        kb.call_tool("nothing", {})
    for wrong in ("[1]", "{", "3"):
        with pytest.raises(InvalidInput, match="arguments"):
            kb.call_tool("ask", wrong)


@pytest.mark.skipif(
    find_spec("openai") is None and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="openai is not installed",
)
def test_the_program_of_the_page(http_url, monkeypatch):
    import openai

    requests = []

    def reply(request):
        body = json.loads(request.content)
        requests.append(body)
        turn = {"role": "assistant", "content": "Tea."}
        if len(requests) == 1:
            function = {"name": "ask", "arguments": '{"text": "likes(ann, ?what)"}'}
            call = {"id": "c1", "type": "function", "function": function}
            turn = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": turn, "finish_reason": "stop"}
        return httpx.Response(
            200, json={"id": "1", "object": "chat.completion", "choices": [choice]}
        )

    client = openai.OpenAI(
        api_key="key", http_client=httpx.Client(transport=httpx.MockTransport(reply))
    )
    monkeypatch.setattr(openai, "OpenAI", lambda: client)
    monkeypatch.setenv("KBCORE_URL", http_url)
    monkeypatch.setenv("MODEL", "m")
    with connect(http_url, tenant="ann") as kb:
        kb.tell("likes(ann, tea)")
    program = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
    names = {}
    exec(program, names)
    assert names["answer"]("What does Ann like?") == "Tea."
    assert requests[0]["tools"][0]["type"] == "function"
    result = requests[1]["messages"][-1]
    assert result["role"] == "tool"
    assert json.loads(result["content"])["results"][0]["args"] == ["ann", "tea"]
    client.close()


@pytest.mark.parametrize("format", ["openai", "openai-responses", "anthropic", "mcp"])
def test_the_command_prints_what_a_server_has(http_url, format):
    printed = subprocess.run(
        [sys.executable, "-m", "kbserver.cli", "tools", "--format", format],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    with connect(http_url) as kb:
        assert json.loads(printed) == kb.tools(format)
