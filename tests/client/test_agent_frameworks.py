"""Adapters for LangChain, LlamaIndex, the OpenAI Agents SDK and Pydantic AI, with the frameworks
and their fake models.
"""

import asyncio
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from kbcore import Config
from kbcore_client import InvalidInput, connect

if not all(map(find_spec, ("agents", "langchain_core", "llama_index", "pydantic_ai"))):
    if os.environ.get("KB_TEST_EXTRAS") == "required":
        raise ModuleNotFoundError("these tests need the frameworks of the adapters")
    pytest.skip("a framework is not installed", allow_module_level=True)

from agents import Agent, ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel
from sqlalchemy.ext.asyncio import create_async_engine

from kbcore_client.adapters import langchain, llama_index, openai_agents, pydantic_ai
from kbcore_client.adapters.agent_tools import tool_functions

NAMES = ["ask", "explain", "list_predicates", "recall", "remember", "forget"]


@pytest.fixture
def family():
    with connect("memory:", config=Config(extraction_fallback="episode")) as kb:
        kb.tell("parent(ann, bob). parent(bob, cid).")
        kb.teach("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).")
        yield kb


# ---- the functions ----


@pytest.fixture
def call(family):
    functions = {each.__name__: each for each in tool_functions(family, limit=3)}
    return lambda name, text: functions[name](text)


def test_functions_answer_in_text(call):
    assert call("ask", "grandparent(ann, ?who)") == "grandparent(ann, cid)"
    assert call("ask", "parent(?x, ?y), parent(?y, ?z)") == "?x = ann, ?y = bob, ?z = cid"
    assert call("ask", "parent(ann, bob), parent(bob, cid)") == "yes"
    assert call("explain", "grandparent(ann, cid)").endswith("parent(bob, cid)  stored")
    assert call("list_predicates", "grand") == "grandparent/2: 0 facts, 1 rule"
    assert call("list_predicates", "zzz") == "No predicate."
    assert "parent(ann, bob)" in call("recall", "who is ann's child?")
    assert call("recall", "zebras") == "Nothing is known about this."


def test_functions_write(call, family):
    assert call("remember", "~parent(cid, ann). old(?x) :- parent(?x, _).") == (
        "Stored 1 new fact and 1 rule."
    )
    assert call("ask", "~parent(?x, ?y)") == "~parent(cid, ann)"
    assert call("forget", "parent(ann, ?x)") == "Retracted 1 fact."
    assert [each.__name__ for each in tool_functions(family, writes=False)] == NAMES[:4]


def test_mistakes_and_missing_answers_tell_the_model_what_to_do(call):
    assert call("ask", "parent(ann, ?who").startswith("Error: ")
    assert "^" in call("ask", "parent(ann, ?who")
    none = call("ask", "grandparent(bob, ?who)")
    assert none.startswith("No answer. ")
    assert "missing: parent(cid, ?z)" in none


def test_long_answers_are_cut(call):
    call("remember", "n(1). n(2). n(3). n(4).")
    assert call("ask", "n(?x)") == "n(1)\nn(2)\nn(3)\nand more than 3 answers in all"


# ---- LangChain ----


def test_langchain_tools_and_retriever(family):
    tools = langchain.tools(family)
    assert [tool.name for tool in tools] == NAMES
    assert tools[0].description == "Answer a goal from stored facts and rules."
    assert tools[0].args["goal"]["description"].startswith("Literals such as")
    assert tools[0].invoke({"goal": "grandparent(ann, ?who)"}) == "grandparent(ann, cid)"
    retriever = langchain.KBRetriever(kb=family, options={"max_facts": 1})
    (document,) = retriever.invoke("bob's child cid")
    assert document.page_content in ("parent(ann, bob)", "parent(bob, cid)")
    assert document.metadata["predicate"] == "parent"
    assert asyncio.run(retriever.ainvoke("bob"))


# ---- LlamaIndex ----


def test_llama_index_tools_and_retriever(family):
    tools = llama_index.tools(family)
    assert [tool.metadata.name for tool in tools] == NAMES
    assert "Answer a goal from stored facts and rules." in tools[0].metadata.description
    assert tools[0].call(goal="grandparent(ann, ?who)").content == "grandparent(ann, cid)"
    retriever = llama_index.KBRetriever(family, max_facts=1)
    (found,) = retriever.retrieve("bob's child cid")
    assert found.node.text in ("parent(ann, bob)", "parent(bob, cid)")
    assert found.node.metadata["predicate"] == "parent"
    assert 0 <= found.score <= 1
    assert asyncio.run(retriever.aretrieve("bob"))


# LlamaIndex looks at every attribute of a pydantic model, and so at deprecated ones.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
def test_a_llama_index_agent_reads_what_is_known_and_stores_what_is_said(family):
    """The prompt has the window for the question; what leaves the short-term memory is read
    again.
    """
    prompts = []

    def model(messages, **_):
        prompts.append(messages)
        if len(prompts) == 1:
            arguments = {"goal": "grandparent(ann, ?who)"}
            call = ToolCallBlock(tool_call_id="c1", tool_name="ask", tool_kwargs=arguments)
            return ChatMessage(role="assistant", blocks=[call])
        return ChatMessage(role="assistant", content="It is Cid.")

    async def run():
        engine = create_async_engine("sqlite+aiosqlite:///:memory:")
        memory = Memory.from_defaults(
            token_limit=60,
            token_flush_size=10,
            chat_history_token_ratio=0.3,
            memory_blocks=[llama_index.KBMemoryBlock(kb=family, options={"max_facts": 5})],
            async_engine=engine,
        )
        agent = FunctionAgent(
            tools=llama_index.tools(family, writes=False),
            llm=MockFunctionCallingLLM(response_generator=model),
        )
        answer = await agent.run("Whose parent is bob?", memory=memory)
        await memory.aput(ChatMessage(role="user", content="I like tea."))
        for role in ("assistant", "user", "assistant", "user"):
            await memory.aput(ChatMessage(role=role, content="and so on " * 20))
        await engine.dispose()
        return str(answer)

    assert asyncio.run(run()) == "It is Cid."
    system = prompts[0][0]
    assert system.role == "system"
    assert "parent(bob, cid)" in system.content
    assert "grandparent(ann, cid)" in str(prompts[1][-1].content)
    assert ("user", "I like tea.") in {row[:2] for row in family.query("said(?who, ?what, ?when)")}


def test_a_memory_block(family, caplog):
    block = llama_index.KBMemoryBlock(kb=family)
    asked = [ChatMessage(role="user", content="Who is the child of bob?")]
    text = asyncio.run(block.aget(asked))
    assert "parent(bob, cid)" in text
    shorter = asyncio.run(block.atruncate(text, 1))
    assert text.startswith(shorter)
    assert len(shorter.splitlines()) == len(text.splitlines()) - 1
    assert asyncio.run(block.atruncate(text, 10_000)) is None
    asyncio.run(block.aput([ChatMessage(role="user", content="I like tea.\n\nAnd Cid.")]))
    asyncio.run(block.aput([ChatMessage(role="tool", content="ignored(it)")]))
    assert not caplog.messages
    said = {row[:2] for row in family.query("said(?who, ?what, ?when)")}
    assert said == {("user", "I like tea."), ("user", "And Cid.")}
    asyncio.run(block.aput([ChatMessage(role="user", content="word " * 1_000_000)]))
    assert "was not stored" in caplog.text
    silent = llama_index.KBMemoryBlock(kb=family, store=False)
    asyncio.run(silent.aput([ChatMessage(role="user", content="I like milk.")]))
    assert {row[:2] for row in family.query("said(?who, ?what, ?when)")} == said


# ---- OpenAI Agents ----


class Scripted(Model):
    """A model that gives these outputs in turn; `inputs` are what it was asked."""

    def __init__(self, *outputs):
        self.outputs = list(outputs)
        self.inputs = []

    async def get_response(self, system_instructions, input, *args, **named):
        self.inputs.append(input)
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args, **named):
        raise NotImplementedError


def said(text):
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return ResponseOutputMessage(
        id="m1", content=content, role="assistant", status="completed", type="message"
    )


def called(name, arguments):
    return ResponseFunctionToolCall(
        call_id="c1", name=name, arguments=arguments, type="function_call"
    )


def test_an_agent_with_a_session_and_tools(family):
    model = Scripted(
        called("ask", '{"goal": "grandparent(ann, ?who)"}'), said("It is Cid."), said("Still Cid.")
    )
    agent = Agent(name="a", model=model, tools=list(openai_agents.tools(family, writes=False)))
    session = openai_agents.KBSession("s1", family)
    config = RunConfig(tracing_disabled=True)

    async def run():
        first = await Runner.run(agent, "Who?", session=session, run_config=config)
        second = await Runner.run(agent, "And now?", session=session, run_config=config)
        return first.final_output, second.final_output

    assert asyncio.run(run()) == ("It is Cid.", "Still Cid.")
    assert model.inputs[1][-1]["output"] == "grandparent(ann, cid)"
    texts = [item.get("content") for item in model.inputs[2]]
    assert (texts[0], texts[-1]) == ("Who?", "And now?")
    assert len(family.query("agent_item(s1, ?n, ?json)")) == 6


def test_a_session(family):
    items = [{"role": "user", "content": f"ünïcode {n}"} for n in range(12)]

    async def run():
        one = openai_agents.KBSession("s1", family, scope="agents")
        other = openai_agents.KBSession("s2", family, scope="agents")
        assert await one.get_items() == []
        assert await one.pop_item() is None
        await one.add_items([])
        await one.add_items(items[:5])
        await one.add_items(items[5:])
        await other.add_items(items[:1])
        assert await one.get_items() == items
        assert await one.get_items(limit=3) == items[-3:]
        assert await one.get_items(limit=0) == []
        assert await one.pop_item() == items[-1]
        assert await one.get_items() == items[:-1]
        await one.clear_session()
        assert await one.get_items() == []
        assert await other.get_items() == items[:1]
        await asyncio.gather(*(one.add_items([item]) for item in items[:4]))
        assert sorted(item["content"] for item in await one.get_items()) == [
            item["content"] for item in items[:4]
        ]

    asyncio.run(run())
    assert len(family.query("agent_item(?s, ?n, ?json)")) == 0
    for wrong in ("", "?x"):
        with pytest.raises(InvalidInput, match="session_id"):
            openai_agents.KBSession(wrong, family)


# ---- Pydantic AI ----


def test_a_pydantic_agent_calls_every_tool(family):
    toolset = pydantic_ai.toolset(family, writes=False)
    assert list(toolset.tools) == NAMES[:4]
    agent = PydanticAgent(TestModel(call_tools=["ask"]), toolsets=[toolset])
    result = asyncio.run(agent.run("Who?"))
    returned = [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if part.part_kind == "tool-return"
    ]
    assert len(returned) == 1
    assert returned[0].startswith(("No answer", "Error"))


# ---- documentation ----


def test_the_programs_of_the_page_run():
    page = Path(__file__).parents[2] / "docs/how-to/use-agent-frameworks.md"
    programs = re.findall(r"```agents\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(programs) == 5
    exec("\n".join(programs), {})


def test_long_items_of_a_session_come_back_whole(family):
    items = [
        {"role": "user", "content": "Gr\u00fc\u00dfe. " * 12_000},
        {"role": "user", "content": "hi"},
    ]

    async def run():
        session = openai_agents.KBSession("s1", family)
        await session.add_items(items)
        assert await session.get_items() == items
        assert [await session.pop_item(), await session.pop_item()] == items[::-1]
        assert family.count("agent_item_part") == 0
        await session.add_items(items)
        await session.clear_session()
        assert await session.get_items() == []
        assert family.count("agent_item_part") == 0

    asyncio.run(run())
