"""Memory of an agent about a user: `kb.memory(user="mia")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbcore_client.requests import Request
from kbtypes.episodes import Evidences, FactHistory, spans_of
from kbtypes.memory import AddedMessages, BelievedFacts, Forgotten, MemorySearch
from kbtypes.results import StoreOutcome
from kbtypes.values import Instant, instant, messages_of, present, text_of

if TYPE_CHECKING:
    from kbcore_client._sync.knowledge_base import KnowledgeBase


class UserMemory:
    """Memory of an agent about one user: messages go in, the text for a prompt comes out.

    A user is a tenant of the database, and `kb` is the knowledge base on it. Facts that are stored
    there in other ways belong to the memory too.
    """

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb

    def add(
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
        only what is new.

        The texts are kept, so that `search` finds them. With a language model the facts that it
        reads are kept in addition; a new value of a declared `@key` ends the older one. `facts` of
        the result are those that were read, `episodes` the ids of the texts. Raises InvalidInput
        and AlreadyExists.
        """
        listed = [messages] if isinstance(messages, str | Mapping) else messages
        body = {
            "messages": messages_of(listed, "messages"),
            "session": session,
            "agent": agent,
            "at": instant(at),
        }
        sent = Request("/memory/add", body, writes=True, timeout_ms=timeout_ms)
        return AddedMessages.of((self.kb._send(sent)).json())

    def search(
        self,
        question: str,
        *,
        max_tokens: int | None = None,
        max_facts: int | None = None,
        session: str | None = None,
        agent: str | None = None,
        citations: bool = True,
        timeout_ms: int | None = None,
    ) -> MemorySearch:
        """Return what is known about a question: `text` for a prompt, `entries` and `sources`.

        Standing instructions of the user come first. With `session` or `agent`, only what was said
        in these conversations is searched. Raises InvalidInput and BudgetExceeded.
        """
        body = {
            "question": text_of("question", question),
            "maxTokens": max_tokens,
            "maxFacts": max_facts,
            "session": session,
            "agent": agent,
            "citations": citations,
        }
        names = {"maxTokens": "max_tokens", "maxFacts": "max_facts"}
        sent = Request("/memory/search", body, names=names, timeout_ms=timeout_ms)
        return MemorySearch.of((self.kb._send(sent)).json())

    def update(
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
        at `since`, by default now. Raises InvalidInput if no key is declared and `replaces` is not
        given, and NotFound if `replaces` is not stored.
        """
        new: dict[str, Any] = present({"text": text_of("fact", fact), "confidence": confidence})
        if evidence:
            new["evidence"] = spans_of("evidence", evidence)
        body = {"fact": new, "since": instant(since), "replaces": replaces}
        reply = self.kb._send(Request("/memory/update", body, writes=True))
        return StoreOutcome.of(reply.json())

    def forget(
        self,
        about: str,
        *,
        dry_run: bool = True,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> Forgotten:
        """Return what would be forgotten; with `dry_run=False`, forget it for good.

        `about` is a fact or a pattern such as `lives_in(mia, ?where)`, the id of an episode, or
        words, which mean the facts that match them. The facts go, the texts that they are based on,
        and what nothing else supports; also from the log. `facts` and `texts` of the result list
        them. Raises InvalidInput and BudgetExceeded.
        """
        body = {"about": text_of("about", about), "dryRun": dry_run, "limit": limit}
        sent = Request("/memory/forget", body, writes=True, keyed=False, timeout_ms=timeout_ms)
        return Forgotten.of((self.kb._send(sent)).json())

    def history(self, about: str, *, limit: int = 100, offset: int = 0) -> FactHistory:
        """Return when facts were stored, changed and removed, the newest event first.

        `about` is a predicate or a pattern such as `lives_in(mia, ?where)`. Raises InvalidInput if
        the storage keeps no history, and BudgetExceeded.
        """
        query = {"about": text_of("about", about), "limit": str(limit), "offset": str(offset)}
        reply = self.kb._send(Request("/memory/history", method="GET", query=query))
        return FactHistory.of(reply.json())

    def facts(self, *, limit: int = 100, offset: int = 0) -> BelievedFacts:
        """Return what is believed now: stored facts with the passages that they are based on."""
        query = {"limit": str(limit), "offset": str(offset)}
        reply = self.kb._send(Request("/memory/facts", method="GET", query=query))
        return BelievedFacts.of(reply.json())
