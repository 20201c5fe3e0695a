"""Model clients with a knowledge base: what is known goes into the prompt, what is said is
stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kbcore_client._async.user_memory import store_messages
from kbcore_client.model_calls import (
    CALLS,
    COPIES,
    ModelCall,
    Path,
    check_path,
    is_inner,
    new_messages,
    question_of,
    system_text,
)
from kbtypes.windows import WindowOptions

if TYPE_CHECKING:
    from kbcore_client._async.knowledge_base import AsyncKnowledgeBase


class AsyncModelMemory:
    """Memory of a wrapped model client: what to put into a prompt, and where to store what is
    said.
    """

    def __init__(self, kb: AsyncKnowledgeBase, options: WindowOptions, store: bool) -> None:
        self._memory = kb.memory()
        self._options: WindowOptions = {
            "asker": self._memory.user,
            "format": "natural",
            **options,
        }
        self._store = store

    async def arguments(self, call: ModelCall, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with the context window for its last question."""
        options: WindowOptions = {**self._options}
        question = question_of(call.turns(arguments))
        if question is not None and "goals" not in options:
            options.setdefault("query", question)
        window = await self._memory.kb.context(**options)
        return call.with_system(arguments, system_text(window.text)) if window.text else arguments

    async def remember(self, call: ModelCall, arguments: dict[str, Any], answer: str) -> None:
        """Store what a call adds to the conversation, in the memory of the tenant."""
        messages = new_messages(call.turns(arguments), answer, self._options.get("asker"))
        if self._store:
            await store_messages(self._memory, messages, self._options.get("session"))


class AsyncWrappedClient:
    """A model client, or a part of one such as `client.chat`, with a knowledge base.

    Everything that is not a call of `CALLS` is that of the model client.
    """

    def __init__(self, client: object, memory: AsyncModelMemory, path: Path = ()) -> None:
        self._client = client
        self._memory = memory
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = (*self._path, name)
        check_path(path)
        value = getattr(self._client, name)
        if path in CALLS:
            return _AsyncCall(CALLS[path], value, self._memory)
        if is_inner(path):
            return AsyncWrappedClient(value, self._memory, path)
        if not self._path and name in COPIES:
            return lambda *args, **named: AsyncWrappedClient(value(*args, **named), self._memory)
        return value

    def __repr__(self) -> str:
        return f"wrapped({self._client!r})"


class _AsyncCall:
    """A call of a model client with a knowledge base; its arguments and results are the same."""

    def __init__(self, call: ModelCall, function: Any, memory: AsyncModelMemory) -> None:
        self._call = call
        self._function = function
        self._memory = memory

    async def __call__(self, **arguments: Any) -> Any:
        call, memory = self._call, self._memory
        result = await self._function(**await memory.arguments(call, arguments))
        if arguments.get("stream") is True:
            return AsyncWrappedStream(result, call, arguments, memory)
        await memory.remember(call, arguments, call.answer(result))
        return result


class AsyncWrappedStream:
    """A stream of a model client; what it says is stored when it has come to its end."""

    def __init__(
        self, stream: Any, call: ModelCall, arguments: dict[str, Any], memory: AsyncModelMemory
    ) -> None:
        self._stream = stream
        self._call = call
        self._arguments = arguments
        self._memory = memory
        self._events = self._forward()

    async def _forward(self) -> AsyncIterator[Any]:
        pieces: list[str] = []
        async for event in self._stream:
            pieces.append(self._call.piece(event))
            yield event
        await self._memory.remember(self._call, self._arguments, "".join(pieces))

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    async def __anext__(self) -> Any:
        return await self._events.__anext__()

    async def __aenter__(self) -> AsyncWrappedStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
