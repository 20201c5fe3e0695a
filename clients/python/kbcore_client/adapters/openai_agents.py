"""Session and tools for the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from agents import FunctionTool, Tool
from agents.memory import SessionABC

from kbcore_client import Conflict, InvalidInput, KnowledgeBase
from kbcore_client._sync.user_memory import store_messages
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, AgentTool, agent_tools
from kbcore_client.adapters.long_texts import joined, parts_of
from kbcore_client.model_calls import text_in
from kbcore_client.tool_calls import arguments_of

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.memory import SessionSettings
    from agents.tool_context import ToolContext

ITEM, PART = "agent_item", "agent_item_part"

_ATTEMPTS = 5


class KBSession(SessionABC):
    """Session of the OpenAI Agents SDK whose items are facts.

    The items of a conversation are `agent_item(SESSION, NUMBER, JSON)`, numbered from 1 in their
    order. The JSON of an item of more than 64 KiB is empty there, and in the parts
    `agent_item_part(SESSION, NUMBER, PART, TEXT)`. Calls run in threads; writes are transactions.

    Unless `store` is False, what the user and the model say is also stored by `kb.memory().add`, so
    that `kb.memory().search` finds it; it stays there when items are removed. If that fails, the
    reason is logged as a warning of the logger `kbcore_client`.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, session_id: str, kb: KnowledgeBase, *, scope: str | None = None, store: bool = True
    ) -> None:
        if session_id.startswith("?") or not session_id:
            raise InvalidInput.at("session_id", "must be a text that does not begin with ?")
        self.session_id = session_id
        self._kb = kb
        self._scope = scope
        self._store = store

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in their order, or the last `limit` ones."""
        items = [item for _, item in await asyncio.to_thread(self._items, self._kb)]
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, all or none."""
        if items:
            await asyncio.to_thread(self._change, lambda kb: self._add(kb, items))
            if self._store:
                messages = [message for item in items for message in _messages(item)]
                memory = self._kb.memory()
                await asyncio.to_thread(store_messages, memory, messages, self.session_id)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None if there are no items."""
        item: TResponseInputItem | None = await asyncio.to_thread(self._change, self._pop)
        return item

    async def clear_session(self) -> None:
        """Remove all items."""
        await asyncio.to_thread(self._change, self._clear)

    def _items(self, kb: KnowledgeBase) -> list[tuple[int, Any]]:
        rows = kb.query(ITEM, [self.session_id, "?_", "?_"], scope=self._scope).rows()
        return sorted(
            (int(number), json.loads(text or self._whole(kb, number)))
            for _, number, text in (row["args"] for row in rows)
        )

    def _whole(self, kb: KnowledgeBase, number: str) -> str:
        rows = kb.query(PART, [self.session_id, number, "?_", "?_"], scope=self._scope).rows()
        return joined(row["args"][2:] for row in rows)

    def _add(self, kb: KnowledgeBase, items: list[TResponseInputItem]) -> None:
        last = max((number for number, _ in self._items(kb)), default=0)
        facts: list[list[str | int]] = []
        parts: list[list[str | int]] = []
        for number, item in enumerate(items, last + 1):
            text = json.dumps(item, ensure_ascii=False)
            own = parts_of(text)
            facts.append([self.session_id, number, "" if own else text])
            parts += ([self.session_id, number, *part] for part in enumerate(own, 1))
        kb.tell_many(ITEM, facts, scope=self._scope)
        if parts:
            kb.tell_many(PART, parts, scope=self._scope)

    def _pop(self, kb: KnowledgeBase) -> Any:
        items = self._items(kb)
        if not items:
            return None
        number, item = items[-1]
        kb.retract(ITEM, [self.session_id, number, "?_"], scope=self._scope)
        kb.retract(PART, [self.session_id, number, "?_", "?_"], scope=self._scope)
        return item

    def _clear(self, kb: KnowledgeBase) -> None:
        kb.retract(ITEM, [self.session_id, "?_", "?_"], scope=self._scope)
        kb.retract(PART, [self.session_id, "?_", "?_", "?_"], scope=self._scope)

    def _change(self, change: Any) -> Any:
        """Carry out a change as a transaction, again if others write the same session."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._kb.transaction() as kb:
                    return change(kb)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")


def _messages(item: TResponseInputItem) -> list[dict[str, Any]]:
    """Return an item as a message of a memory, if the user or the model says something in it."""
    role = item.get("role")
    if role not in ("user", "assistant") or item.get("type", "message") != "message":
        return []
    content = text_in(item.get("content"))
    return [{"role": role, "content": content}] if content.strip() else []


def tools(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> list[Tool]:
    """Return the tools of `agent_tools.agent_tools`."""
    return [_tool(each) for each in agent_tools(kb, writes=writes, limit=limit, profile=profile)]


def _tool(tool: AgentTool) -> Tool:
    async def call(context: ToolContext[Any], arguments: str) -> str:
        try:
            values = arguments_of(arguments)
        except InvalidInput as error:
            return f"Error: {error.message}"
        return await asyncio.to_thread(tool.call, values)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.schema,
        on_invoke_tool=call,
        strict_json_schema=False,
    )
