"""Adapters for LangChain, LlamaIndex, the OpenAI Agents SDK and Pydantic AI, with the frameworks
and their fake models.
"""

import asyncio
import inspect
import json
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
from kbcore_client.adapters.agent_tools import PROFILES, agent_tools, tool_functions, tool_named
from kbcore_client.tool_calls import definitions

NAMES = ["ask", "explain", "predicates", "context", "tell", "forget"]
MEMORY_READS = ["memory_search", "memory_facts", "memory_history"]


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
    assert call("predicates", "grand") == "grandparent/2: 0 facts, 1 rule"
    assert call("predicates", "zzz") == "No predicate."
    assert "parent(ann, bob)" in call("context", "who is ann's child?")
    assert call("context", "zebras") == "Nothing is known about this."


def test_functions_write(call, family):
    assert call("tell", "~parent(cid, ann). old(?x) :- parent(?x, _).") == (
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
    call("tell", "n(1). n(2). n(3). n(4).")
    assert call("ask", "n(?x)") == "n(1)\nn(2)\nn(3)\nand more than 3 answers in all"


def test_the_tools_are_those_of_the_protocol(family):
    """Names, descriptions and arguments are those that a server lists over MCP."""
    listed = {tool["name"]: tool for tool in family.tools("mcp")}
    for tool in agent_tools(family):
        of_server = listed[tool.name]
        assert tool.description == of_server["description"]
        assert tool.schema == of_server["inputSchema"]
    everything = {tool.name for tool in agent_tools(family, profile="all")}
    assert listed.keys() | {*PROFILES["memory"]} == everything
    assert [tool.name for tool in agent_tools(family, writes=False, profile="memory")] == (
        MEMORY_READS
    )
    with pytest.raises(InvalidInput, match="profile: must be one of default, memory, all"):
        agent_tools(family, profile="some")


def test_functions_have_the_signature_of_the_tool(family):
    functions = {each.__name__: each for each in tool_functions(family, profile="all")}
    assert functions["ask"].__doc__ == definitions()["ask"]["description"]
    parameters = inspect.signature(functions["memory_search"]).parameters
    assert list(parameters) == ["question", "maxTokens", "session", "agent"]
    assert parameters["question"].default is inspect.Parameter.empty
    assert parameters["maxTokens"].annotation == int | None
    for name, tool in definitions().items():
        assert inspect.signature(functions[name]).parameters.keys() == (
            tool["inputSchema"]["properties"].keys()
        )


def test_a_memory_by_tools(tmp_path):
    with connect(tmp_path / "kb") as kb:
        call = {tool.name: tool.call for tool in agent_tools(kb, profile="memory")}
        added = json.loads(call["memory_add"]({"messages": "I moved to Berlin.", "session": "s1"}))
        assert len(added["episodeIds"]) == 1
        assert "I moved to Berlin." in call["memory_search"]({"question": "Who moved to Berlin?"})
        assert call["memory_search"]({"question": "zebras"}) == "Nothing is known about this."
        stored = json.loads(call["memory_update"]({"fact": "lives_in(user, berlin)"}))
        assert stored["asserted"] == 1
        known = [each["fact"] for each in json.loads(call["memory_facts"]({}))["facts"]]
        assert "lives_in(user, berlin)" in known
        gone = json.loads(call["memory_forget"]({"about": "lives_in(user, ?x)"}))
        assert (gone["dryRun"], gone["factCount"]) == (True, 1)
        assert json.loads(call["memory_history"]({"about": "lives_in"}))["totalEvents"] == 1


def test_unknown_arguments_are_named_in_the_result(family):
    call = {tool.name: tool.call for tool in agent_tools(family)}
    text = call["ask"]({"text": "parent(ann, ?who)", "limitt": 3, "sort": "who"})
    assert text == "parent(ann, bob)\nIgnored arguments: limitt, sort"
    text = call["tell"]({"text": "likes(ann, tea)", "certainty": 1})
    assert text == "Stored 1 new fact.\nIgnored arguments: certainty"
    refused = call["forget"]({"text": "likes(ann, tea)", "why": "wrong"})
    assert refused.startswith("Error: why: ")
    assert family.count("likes") == 1


def test_optional_arguments_are_those_of_the_server(family):
    call = {tool.name: tool.call for tool in agent_tools(family)}
    proved = json.loads(call["ask"]({"text": "grandparent(ann, ?who)", "withProof": True}))
    assert proved["results"][0]["args"] == ["ann", "cid"]
    assert "proof" in proved["results"][0]
    assert "grandparent" in call["explain"]({"text": "grandparent(ann, ?who)", "plan": True})
    assert call["ask"]({"predicate": "parent", "args": ["?x", "cid"], "limit": None}) == (
        "parent(bob, cid)"
    )
    nulls = {"text": "p(a). q(?x) :- p(?x).", "ttl": None, "scope": None}
    assert call["tell"](nulls) == "Stored 1 new fact and 1 rule."
    dated = {"text": "lives_in(ann, rome)", "validFrom": "2020-01-01", "confidence": 0.5}
    assert call["tell"](dated) == "Stored 1 new fact."
    (row,) = family.query("lives_in(ann, ?where)").rows()
    assert row["confidence"] == 0.5


def test_old_names_work_with_a_warning(family):
    functions = tool_functions(family)
    for old, name, text in (
        ("remember", "tell", "likes(ann, tea)."),
        ("recall", "context", "what does ann like?"),
        ("list_predicates", "predicates", "likes"),
    ):
        with pytest.warns(DeprecationWarning, match=f"the tool {old} is now called {name}"):
            tool = tool_named(functions, old)
        assert tool is tool_named(functions, name)
        assert "1" in tool(text) or "likes(ann, tea)" in tool(text)
    for name, old, text, answer in (
        ("ask", "goal", "likes(ann, ?x)", "likes(ann, tea)"),
        ("explain", "goal", "likes(ann, tea)", "likes(ann, tea)  stored"),
        ("context", "question", "what does ann like?", "likes(ann, tea)."),
        ("tell", "statements", "likes(bob, tea).", "Stored 1 new fact and 0 rules."),
        ("forget", "fact", "likes(?x, tea)", "Retracted 2 facts."),
    ):
        with pytest.warns(DeprecationWarning, match=f"the argument {old} of {name}"):
            assert answer in tool_named(functions, name)(**{old: text})
    with pytest.raises(InvalidInput, match="must be one of ask, explain"):
        tool_named(functions, "infer")


def test_tools_of_an_earlier_instant(tmp_path):
    with connect(tmp_path / "kb") as kb:
        kb.tell("parent(ann, bob)")
        past = kb.known_at(kb.history("parent").events[0].at)
        kb.retract("parent(ann, bob)")
        call = {tool.name: tool.call for tool in agent_tools(past)}
        assert call["ask"]({"text": "parent(ann, ?who)"}) == "parent(ann, bob)"
        assert call["tell"]({"text": "parent(a, b)"}).startswith("Error: known_at is not available")
        assert {tool["name"] for tool in past.tools("mcp")} > set(NAMES)


# ---- LangChain ----


def test_langchain_tools_and_retriever(family):
    tools = langchain.tools(family)
    assert [tool.name for tool in tools] == NAMES
    assert tools[0].description.startswith("Answer a goal")
    assert tools[0].args["text"] == {"type": "string"}
    assert tools[0].invoke({"text": "grandparent(ann, ?who)"}) == "grandparent(ann, cid)"
    noted = tools[0].invoke({"text": "grandparent(ann, ?who)", "sort": "who"})
    assert noted == "grandparent(ann, cid)\nIgnored arguments: sort"
    retriever = langchain.KBRetriever(kb=family, options={"max_facts": 1})
    (document,) = retriever.invoke("bob's child cid")
    assert document.page_content in ("parent(ann, bob)", "parent(bob, cid)")
    assert document.metadata["predicate"] == "parent"
    assert asyncio.run(retriever.ainvoke("bob"))


# ---- LlamaIndex ----


def test_llama_index_tools_and_retriever(family):
    tools = llama_index.tools(family)
    assert [tool.metadata.name for tool in tools] == NAMES
    assert tools[0].metadata.get_parameters_dict() == definitions()["ask"]["inputSchema"]
    assert tools[0].call(text="grandparent(ann, ?who)").content == "grandparent(ann, cid)"
    noted = tools[0].call(text="grandparent(ann, ?who)", sort="who").content
    assert noted == "grandparent(ann, cid)\nIgnored arguments: sort"
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
            arguments = {"text": "grandparent(ann, ?who)"}
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
    assert "bob \u00b7 parent: cid" in system.content
    assert "grandparent(ann, cid)" in str(prompts[1][-1].content)
    assert ("user", "I like tea.") in {row[:2] for row in family.query("said(?who, ?what, ?when)")}


def test_a_memory_block(family, caplog):
    block = llama_index.KBMemoryBlock(kb=family)
    asked = [ChatMessage(role="user", content="Who is the child of bob?")]
    text = asyncio.run(block.aget(asked))
    assert "bob \u00b7 parent: cid" in text
    shorter = asyncio.run(block.atruncate(text, 1))
    assert text.startswith(shorter)
    assert len(shorter.splitlines()) == len(text.splitlines()) - 1
    assert asyncio.run(block.atruncate(text, 10_000)) is None
    turns = [
        ChatMessage(role="user", content="I like tea.\n\nAnd Cid."),
        ChatMessage(role="tool", content="ignored(it)"),
        ChatMessage(role="assistant", content="Noted."),
    ]
    asyncio.run(block.aput(turns, session_id="s1"))
    assert not caplog.messages
    stored = family.episodes(session="s1").episodes
    assert [(each.speaker, each.text) for each in stored] == [
        ("user", "I like tea.\n\nAnd Cid."),
        ("assistant", "Noted."),
    ]
    said = {row[:2] for row in family.query("said(?who, ?what, ?when)")}
    assert ("assistant", "Noted.") in said
    assert "I like tea." in asyncio.run(block.aget([ChatMessage(role="user", content="Tea?")]))
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
        called("ask", '{"text": "grandparent(ann, ?who)"}'), said("It is Cid."), said("Still Cid.")
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


def test_a_memory_finds_what_was_said_in_a_session(family):
    """The items themselves are no memories: they are in no window and in no list of facts."""
    items = [
        {"role": "user", "content": "I moved to Berlin."},
        {"type": "function_call", "call_id": "c1", "name": "ask", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "secret Berlin"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Berlin is nice."}]},
        {"role": "system", "content": "Berlin rules."},
    ]

    async def run():
        session = openai_agents.KBSession("s1", family)
        await session.add_items(items)
        assert await session.get_items() == items
        await openai_agents.KBSession("s2", family, store=False).add_items(items[:1])
        await session.clear_session()

    asyncio.run(run())
    memory = family.memory()
    text = memory.search("Who moved to Berlin?", session="s1").text
    assert "user: I moved to Berlin." in text
    assert "assistant: Berlin is nice." in text
    assert [each.session for each in family.episodes().episodes] == ["s1", "s1"]
    assert "agent_item" not in memory.search("Berlin").text
    assert {each.predicate for each in memory.facts().facts} == {"parent"}


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
    assert len(programs) == 6
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
