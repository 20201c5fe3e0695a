"""Tools that a model can call, the same for every framework: those of the MCP server, with the same
names, descriptions and arguments, and with results in few words.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

from kbcore_client import InvalidInput, KBError, KnowledgeBase
from kbcore_client.tool_calls import ToolResult, definitions, is_read
from kbtypes.markup import counted
from kbtypes.records import Json
from kbtypes.values import row_text

Tool = Callable[..., str]
Arguments = dict[str, Any]

MAX_ANSWERS = 50

PROFILES: Mapping[str, tuple[str, ...]] = {
    "default": ("ask", "explain", "predicates", "context", "tell", "forget"),
    "memory": (
        *("memory_search", "memory_facts", "memory_history"),
        *("memory_add", "memory_update", "memory_forget"),
    ),
}
"""Names of tools by profile; the profile `all` has every tool of `tools.json`."""

OLD_NAMES = {"list_predicates": "predicates", "recall": "context", "remember": "tell"}
"""Names until version 0.4, which `tool_named` takes."""

OLD_ARGUMENTS = {
    "ask": "goal",
    "context": "question",
    "explain": "goal",
    "forget": "fact",
    "predicates": "beginning",
    "tell": "statements",
}
"""The argument that a tool had in place of its main one."""

MAIN_ARGUMENTS = {
    "ask": "text",
    "context": "query",
    "explain": "text",
    "forget": "text",
    "memory_add": "messages",
    "memory_forget": "about",
    "memory_history": "about",
    "memory_search": "question",
    "memory_update": "fact",
    "predicates": "prefix",
    "query": "text",
    "teach": "text",
    "tell": "text",
}
"""The argument that a function takes without its name."""

LIMITS = {"ask": "limit", "context": "maxFacts", "explain": "limit", "query": "limit"}
"""The argument of a tool that limits its answers."""

_MAX_EXPLAINED = 10
_PREDICATES_PER_ANSWER = 10


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool of a knowledge base; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    kb: KnowledgeBase
    limit: int

    def call(self, arguments: Mapping[str, Any]) -> str:
        """Return the result of a call as text.

        An error of the knowledge base, such as a mistake in a goal, becomes the result, so that the
        model can correct it. Arguments that the tool does not have are named at its end.
        """
        try:
            values = self._renamed(arguments)
            result = self.kb.call_tool(*self._request(values))
            if result.is_error:
                return _with_notes(f"Error: {json.loads(result.parts[0])['message']}", result)
            return _with_notes(self._text(result.data or {}, values), result)
        except KBError as error:
            return f"Error: {error.message}"

    def _renamed(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return the arguments under the names of today, without those that are null."""
        old, properties = OLD_ARGUMENTS.get(self.name), self.schema["properties"]
        arguments = {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in properties
        }
        if old not in arguments or old in properties:
            return arguments
        new = MAIN_ARGUMENTS[self.name]
        _warn(f"the argument {old} of {self.name}", new)
        return {new if name == old else name: value for name, value in arguments.items()}

    def _request(self, arguments: Arguments) -> tuple[str, Arguments]:
        """Return the tool to call and its arguments; texts may have several statements, and
        patterns.
        """
        if self.name in LIMITS:
            limit = min(self.limit, _MAX_EXPLAINED) if self.name == "explain" else self.limit
            arguments = {LIMITS[self.name]: limit, **arguments}
        elif self.name == "predicates":
            arguments = {"limit": _PREDICATES_PER_ANSWER * self.limit, **arguments}
        elif (
            self.name == "tell" and "text" in arguments and not arguments.keys() - {"text", "scope"}
        ):
            return "teach", arguments
        elif self.name == "forget" and "?" in str(arguments.get("text", "")):
            return "retract_pattern", arguments
        return self.name, arguments

    def _text(self, data: Json, arguments: Arguments) -> str:
        if self.name in ("ask", "query") and not arguments.get("withProof"):
            return _answers(data) or f"No answer. {self._why_not(arguments)}".rstrip()
        if self.name == "context":
            return data.get("formattedText") or "Nothing is known about this."
        if self.name == "memory_search":
            return data["text"] or "Nothing is known about this."
        if self.name == "explain":
            return str(data["text"])
        if self.name == "predicates":
            return _predicates(data) or "No predicate."
        if self.name == "tell":
            stored = counted(data["asserted"], "new fact")
            rules = data.get("rules")
            return (
                f"Stored {stored}."
                if rules is None
                else (f"Stored {stored} and {counted(len(rules), 'rule')}.")
            )
        if self.name == "forget":
            return f"Retracted {counted(data['retracted'], 'fact')}."
        return json.dumps(data, ensure_ascii=False)

    def _why_not(self, arguments: Arguments) -> str:
        names = ("predicate", "args", "text", "scope")
        asked = {name: arguments[name] for name in names if name in arguments}
        result = self.kb.call_tool("explain", {**asked, "whyNot": True})
        return "" if result.is_error or result.data is None else str(result.data["text"])


def agent_tools(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> list[AgentTool]:
    """Return tools for a model.

    Without `writes` there are those that only read. At most `limit` answers are listed. `profile`
    is `default`, `memory` for the tools of a memory about a user, or `all`. Raises InvalidInput for
    another profile.
    """
    known = definitions()
    names = known if profile == "all" else PROFILES.get(profile)
    if names is None:
        raise InvalidInput.at("profile", f"must be one of {', '.join((*PROFILES, 'all'))}")
    chosen = [known[name] for name in names]
    return [
        AgentTool(each["name"], each["description"], each["inputSchema"], kb, limit)
        for each in chosen
        if writes or is_read(each["name"])
    ]


def tool_functions(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> list[Tool]:
    """Return the tools as functions, with names, type hints and docstrings for a model."""
    return [
        _function(each) for each in agent_tools(kb, writes=writes, limit=limit, profile=profile)
    ]


def tool_named(functions: Iterable[Tool], name: str) -> Tool:
    """Return the function of a name; names of earlier versions are deprecated.

    Raises InvalidInput for another name.
    """
    if name in OLD_NAMES:
        _warn(f"the tool {name}", OLD_NAMES[name])
        name = OLD_NAMES[name]
    named = {each.__name__: each for each in functions}
    if name not in named:
        raise InvalidInput.at("name", f"must be one of {', '.join(named)}")
    return named[name]


def _function(tool: AgentTool) -> Tool:
    main = MAIN_ARGUMENTS.get(tool.name)

    def call(*args: Any, **named: Any) -> str:
        if args:
            (value,) = args
            named = {str(main): value, **named}
        return tool.call(named)

    required = tool.schema.get("required", ())
    names = sorted(tool.schema["properties"], key=lambda name: (name not in required, name != main))
    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = tool.description
    hints = {name: _hint(tool.schema["properties"][name], name in required) for name in names}
    call.__annotations__ = {**hints, "return": str}
    call.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty if name in required else None,
                annotation=hint,
            )
            for name, hint in hints.items()
        ],
        return_annotation=str,
    )
    return call


_TYPES: Mapping[str, Any] = {
    "array": list[Any],
    "boolean": bool,
    "integer": int,
    "number": float,
    "object": dict[str, Any],
    "string": str,
}


def _hint(schema: Json, is_required: bool) -> Any:
    kind = schema.get("type")
    hint = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
    return hint if is_required else hint | None


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=4)


def _with_notes(text: str, result: ToolResult) -> str:
    return "\n".join((text, *result.parts[1:]))


def _answers(data: Json) -> str:
    lines = [_answer(row) for row in data["results"]]
    if lines and data["truncated"]:
        lines.append(f"and more than {counted(len(lines), 'answer')} in all")
    return "\n".join(lines)


def _answer(row: dict[str, Any]) -> str:
    if "predicate" in row:
        return row_text(row)
    bindings = row["bindings"].items()
    return ", ".join(f"{name} = {value}" for name, value in bindings) or "yes"


def _predicates(data: Json) -> str:
    return "\n".join(
        f"{each['predicate']}/{each['arity']}: {counted(each['factCount'], 'fact')}, "
        f"{counted(each['ruleCount'], 'rule')}"
        for each in data["predicates"]
    )
