"""Memory of an agent about a user, for Python programs: `kb.memory(user="mia")`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from kbcore import python_values
from kbcore.language.messages import messages_of
from kbcore.operations.episodes.episodes import DEFAULT_LISTED
from kbcore.operations.history.fact_history import DEFAULT_EVENTS, HistoryPage
from kbcore.operations.memory import MAX_FOUND, MAX_TOKENS
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.episodes import pattern_of
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import flag, fraction, instant, integer, named, positive, read_time
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom
from kbtypes.episodes import Evidences
from kbtypes.memory import AddedMessages, BelievedFacts, Forgotten, MemorySearch
from kbtypes.results import StoreOutcome
from kbtypes.values import Instant

KB = TypeVar("KB", bound=PythonHandle)


class EmbeddedMemory(Generic[KB]):
    """Memory of an agent about one user: messages go in, the text for a prompt comes out.

    A user is a tenant of the database, and `kb` is the knowledge base on it. Facts that are stored
    there in other ways belong to the memory too.
    """

    def __init__(self, kb: KB) -> None:
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
        only what is new. A message that was forgotten stays forgotten when it is sent again, and
        `forgotten` of the result counts it; say it later in the session, or at another time.

        The texts are kept, so that `search` finds them. They are prose: `likes(mia, tea)` in one is
        no fact. With a language model the facts that it reads are kept in addition; a new value of
        a declared `@key` ends the older one. `facts` of the result are those that were read,
        `episodes` the ids of the texts. Raises InvalidInput and AlreadyExists.
        """
        listed = [messages] if isinstance(messages, str | Mapping) else messages
        return self.kb.kb.memory_add(
            messages_of(listed, "messages", None, read_time),
            session=session,
            agent=agent,
            at=instant("at", at),
            request_limits=request_limits(timeout_ms),
        )

    def search(
        self,
        question: str,
        *,
        max_tokens: int = MAX_TOKENS,
        max_facts: int = MAX_FOUND,
        session: str | None = None,
        agent: str | None = None,
        citations: bool = True,
        timeout_ms: int | None = None,
    ) -> MemorySearch:
        """Return what is known about a question: `text` for a prompt, `entries` and `sources`.

        Standing instructions of the user come first. With `session` or `agent`, only what was said
        in these conversations is searched. Raises InvalidInput and BudgetExceeded.
        """
        with self._named():
            return self.kb.kb.memory_search(
                python_values.text("question", question),
                max_facts=positive("max_facts", max_facts) or MAX_FOUND,
                max_tokens=positive("max_tokens", max_tokens) or MAX_TOKENS,
                session=session,
                agent=agent,
                citations=citations,
                request_limits=request_limits(timeout_ms),
            )

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
        at `since`, by default now; one that holds already keeps an earlier beginning, as `warnings`
        of the result say. Raises InvalidInput if no key is declared and `replaces` is not given,
        and NotFound if `replaces` is not stored.
        """
        with named(predicate="fact", text="fact"):
            name, args, sign = python_values.fact(fact, None)
        new = Fact(
            name,
            args,
            sign,
            valid_from=instant("since", since),
            confidence=fraction("confidence", confidence),
            evidence=python_values.evidence("evidence", evidence),
        )
        old = None
        if replaces is not None:
            with named(predicate="replaces", text="replaces"):
                old = Atom(*python_values.fact(replaces, None))
        return self.kb.kb.memory_update(new, old)

    def forget(
        self,
        about: str,
        *,
        dry_run: bool = True,
        limit: int = DEFAULT_LISTED,
        timeout_ms: int | None = None,
    ) -> Forgotten:
        """Return what would be forgotten; with `dry_run=False`, forget it for good.

        `about` is a fact or a pattern such as `lives_in(mia, ?where)`, the id of an episode, or
        words, which mean the facts that have more than half of them; pronouns and the name of the
        user do not count. The facts go, also where they have ended, the texts that they are based
        on, and what nothing else supports; also from the log. `facts` and `texts` of the result
        list them. Raises InvalidInput and BudgetExceeded.
        """
        return self.kb.kb.memory_forget(
            python_values.text("about", about),
            dry_run=flag("dry_run", dry_run),
            limit=positive("limit", limit) or DEFAULT_LISTED,
            request_limits=request_limits(timeout_ms),
        )

    def history(
        self,
        about: str,
        *,
        limit: int = DEFAULT_EVENTS,
        offset: int = 0,
        oldest_first: bool = False,
        timeout_ms: int | None = None,
    ) -> HistoryPage:
        """Return when facts were stored, changed and removed, and by which request.

        `about` is a predicate or a pattern such as `lives_in(mia, ?where)`. Raises InvalidInput if
        the storage keeps no history, and BudgetExceeded.
        """
        with named(predicate="about", text="about"):
            pattern = pattern_of(about, None, None)
        return self.kb.kb.fact_history(
            pattern,
            limit=positive("limit", limit) or DEFAULT_EVENTS,
            offset=integer("offset", offset) or 0,
            oldest_first=oldest_first,
            request_limits=request_limits(timeout_ms),
        )

    def facts(
        self, *, limit: int = DEFAULT_LISTED, offset: int = 0, timeout_ms: int | None = None
    ) -> BelievedFacts:
        """Return what is believed now: stored facts with the passages that they are based on."""
        return self.kb.kb.memory_facts(
            limit=positive("limit", limit) or DEFAULT_LISTED,
            offset=integer("offset", offset) or 0,
            request_limits=request_limits(timeout_ms),
        )

    def _named(self) -> AbstractContextManager[None]:
        return named(maxFacts="max_facts", maxTokens="max_tokens", query="question")
