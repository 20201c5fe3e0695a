"""Model clients with a knowledge base: what is known goes into the prompt, what is said is
stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kbcore_client._sync.user_memory import store_messages
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
    from kbcore_client._sync.knowledge_base import KnowledgeBase


class ModelMemory:
    """Memory of a wrapped model client: what to put into a prompt, and where to store what is
    said.
    """

    def __init__(self, kb: KnowledgeBase, options: WindowOptions, store: bool) -> None:
        self._memory = kb.memory()
        self._options: WindowOptions = {
            "asker": self._memory.user,
            "format": "natural",
            **options,
        }
        self._store = store

    def arguments(self, call: ModelCall, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with the context window for its last question."""
        options: WindowOptions = {**self._options}
        question = question_of(call.turns(arguments))
        if question is not None and "goals" not in options:
            options.setdefault("query", question)
        window = self._memory.kb.context(**options)
        return call.with_system(arguments, system_text(window.text)) if window.text else arguments

    def remember(self, call: ModelCall, arguments: dict[str, Any], answer: str) -> None:
        """Store what a call adds to the conversation, in the memory of the tenant."""
        messages = new_messages(call.turns(arguments), answer, self._options.get("asker"))
        if self._store:
            store_messages(self._memory, messages, self._options.get("session"))


class WrappedClient:
    """A model client, or a part of one such as `client.chat`, with a knowledge base.

    Everything that is not a call of `CALLS` is that of the model client.
    """

    def __init__(self, client: object, memory: ModelMemory, path: Path = ()) -> None:
        self._client = client
        self._memory = memory
        self._path = path

    def __getattr__(self, name: str) -> Any:
        path = (*self._path, name)
        check_path(path)
        value = getattr(self._client, name)
        if path in CALLS:
            return _Call(CALLS[path], value, self._memory)
        if is_inner(path):
            return WrappedClient(value, self._memory, path)
        if not self._path and name in COPIES:
            return lambda *args, **named: WrappedClient(value(*args, **named), self._memory)
        return value

    def __repr__(self) -> str:
        return f"wrapped({self._client!r})"


class _Call:
    """A call of a model client with a knowledge base; its arguments and results are the same."""

    def __init__(self, call: ModelCall, function: Any, memory: ModelMemory) -> None:
        self._call = call
        self._function = function
        self._memory = memory

    def __call__(self, **arguments: Any) -> Any:
        call, memory = self._call, self._memory
        result = self._function(**memory.arguments(call, arguments))
        if arguments.get("stream") is True:
            return WrappedStream(result, call, arguments, memory)
        memory.remember(call, arguments, call.answer(result))
        return result


class WrappedStream:
    """A stream of a model client; what it says is stored when it has come to its end."""

    def __init__(
        self, stream: Any, call: ModelCall, arguments: dict[str, Any], memory: ModelMemory
    ) -> None:
        self._stream = stream
        self._call = call
        self._arguments = arguments
        self._memory = memory
        self._events = self._forward()

    def _forward(self) -> Iterator[Any]:
        pieces: list[str] = []
        for event in self._stream:
            pieces.append(self._call.piece(event))
            yield event
        self._memory.remember(self._call, self._arguments, "".join(pieces))

    def __iter__(self) -> Iterator[Any]:
        return self._events

    def __next__(self) -> Any:
        return self._events.__next__()

    def __enter__(self) -> WrappedStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
