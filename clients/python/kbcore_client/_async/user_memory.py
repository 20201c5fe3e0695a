"""Memory of an agent about a user: `kb.memory(user="mia")`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbcore_client._async.operations import AsyncMemoryOperations
from kbcore_client.errors import KBError
from kbcore_client.requests import Reply, Request
from kbtypes.episodes import Evidences, spans_of
from kbtypes.memory import AddedMessages
from kbtypes.results import StoreOutcome
from kbtypes.values import Instant, instant, messages_of, present, text_of

if TYPE_CHECKING:
    from kbcore_client._async.knowledge_base import AsyncKnowledgeBase

_log = logging.getLogger("kbcore_client")


class AsyncUserMemory(AsyncMemoryOperations):
    """Memory of an agent about one user: messages go in, the text for a prompt comes out.

    A user is a tenant of the database, and `kb` is the knowledge base on it. Facts that are stored
    there in other ways belong to the memory too.
    """

    def __init__(self, kb: AsyncKnowledgeBase) -> None:
        self.kb = kb

    @property
    def user(self) -> str:
        """The name of the user: that of the tenant, or `user` for the tenant `default`."""
        return "user" if self.kb.tenant == "default" else self.kb.tenant

    async def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        *,
        session: str | None = None,
        agent: str | None = None,
        at: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> AddedMessages:
        """Store messages, and the facts that are read in them.

        A message is a chat message: a dict with `role`, `content` (a text, or a list of parts with
        text) and optionally `name`, `at` and `id`; or a text, which the user said. `session` names
        the conversation, `agent` the agent it is with. `at` is the time of messages without one,
        by default now. What is stored already is not stored again: send the whole conversation, or
        only what is new. A message that was forgotten stays forgotten when it is sent again, and
        `forgotten` of the result counts it; say it later in the session, or at another time.

        The texts are kept, so that `search` finds them. They are prose: `likes(mia, tea)` in one is
        no fact. With a language model the facts that it reads are kept in addition; a new value of
        a declared `@key` ends the older one. `facts` of the result are those that were read,
        `episodes` the ids of the texts. Raises InvalidInput and AlreadyExists.
        """
        listed = [messages] if isinstance(messages, str | Mapping) else messages
        body = {
            "messages": messages_of(listed, "messages"),
            "session": session,
            "agent": agent,
            "at": instant(at),
        }
        sent = Request("/memory/add", body, writes=True, timeout_ms=timeout_ms)
        return AddedMessages.of((await self._send(sent)).json())

    async def update(
        self,
        fact: str,
        *,
        since: Instant | None = None,
        replaces: str | None = None,
        confidence: float | None = None,
        evidence: Evidences = (),
    ) -> StoreOutcome:
        """Store a new value, `update("lives_in(mia, Berlin)", since="2026-11-13")`, and end the
        older one.

        The older one is the fact `replaces`, or that of the declared `@key` of the predicate, or
        the opposite of the fact. It stays in the history with its evidence. The new value begins
        at `since`, by default now; one that holds already keeps an earlier beginning, as `warnings`
        of the result say. Raises InvalidInput if no key is declared and `replaces` is not given,
        and NotFound if `replaces` is not stored.
        """
        new: dict[str, Any] = present({"text": text_of("fact", fact), "confidence": confidence})
        if evidence:
            new["evidence"] = spans_of("evidence", evidence)
        body = {"fact": new, "since": instant(since), "replaces": replaces}
        reply = await self._send(Request("/memory/update", body, writes=True))
        return StoreOutcome.of(reply.json())

    async def _send(self, request: Request) -> Reply:
        return await self.kb._send(request)


async def store_messages(
    memory: AsyncUserMemory, messages: Sequence[Mapping[str, Any]], session: str | None
) -> None:
    """Store the messages of a conversation that goes on whether they can be stored or not.

    A failure is logged as a warning: the answer of the model must not be lost with it.
    """
    if not messages:
        return
    try:
        added = await memory.add(messages, session=session)
    except KBError as error:
        _log.warning("the conversation was not stored: %s: %s", error.code, error.message)
        return
    if added.warning is not None:
        _log.warning("the conversation was stored without its facts: %s", added.warning)
