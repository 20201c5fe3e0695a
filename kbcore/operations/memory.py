"""Memory of an agent about a user: messages in, the text for a prompt out.

A user is a tenant, so nothing passes between users. This is episodes, facts, rules and windows with
defaults for conversations; facts that are stored in other ways are part of it too.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files

from kbcore.branching.places import Keys, ScopePlace, places_of
from kbcore.context.request import NATURAL, SaidIn, WindowRequest
from kbcore.errors import InvalidInput
from kbcore.language.messages import ASSISTANT, MESSAGES_PER_YIELD, USER, Message, Source
from kbcore.language.reading import EPISODE
from kbcore.operations.base import TenantHandle
from kbcore.operations.episodes.correction import PurgeRemovals
from kbcore.operations.episodes.episodes import DEFAULT_LISTED, Supports
from kbcore.operations.facts_by_words import facts_meant
from kbcore.operations.history.fact_history import FactPattern
from kbcore.operations.memory_spans import memory_span
from kbcore.operations.natural_language import StoredText
from kbcore.operations.scripts import blocks_of
from kbcore.python_values import named
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.state.catalog import DEFAULT
from kbcore.state.episodes.episodes import StoredEpisodes
from kbcore.state.episodes.quoting import MAX_QUOTED_CHARS, quoted_all
from kbcore.state.facts import AssertOutcome, Fact, FactKey, Row
from kbcore.state.names import check_name
from kbcore.state.partition import StoredRelation
from kbcore.state.rulebook import RulesOutcome
from kbcore.state.tenant import Tenant
from kbcore.timestamps import time_text
from kbcore.upkeep.purge import MAX_SUBJECT_CHARS, PurgeTarget
from kbplanner.ir.phrases import Definition
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Rule, Variable
from kbplanner.pacing import YieldNow, paced
from kbplanner.syntax.printer import print_row
from kbplanner.syntax.textform import atom_from_text
from kbtypes.memory import (
    AddedMessages,
    BelievedFact,
    BelievedFacts,
    Forgotten,
    ForgottenFact,
    ForgottenText,
    MemorySearch,
)
from kbtypes.results import StoreOutcome
from kbtypes.windows import ADAPTER_PREDICATES, Window

MIN_RELEVANCE = 0.5
"""Share of the best match that a fact needs to be found."""

MAX_FOUND = 20
MAX_TOKENS = 1000
"""Default size of what a search returns, in facts and in tokens."""

FACTS_PER_YIELD = 100
"""Facts written between two calls of `yield_now`: about a millisecond."""

RELATIONS_PER_YIELD = 200
"""Relations whose facts are counted between two calls of `yield_now`: about a millisecond."""

VOCABULARY = "memory.kb"
_INSTALLED = RelationSchema("next_plan_day", 2, True)
"""A conclusion of the vocabulary: where rules have it, the vocabulary is installed."""

_NOT_BELIEVED = ADAPTER_PREDICATES | {EPISODE}

_PATTERN = re.compile(r"\w\(|\?\w")
"""Signs of a fact or a pattern in the rule language, which words hardly ever have: a misspelt
pattern must not be taken for words.
"""


class MemoryMethods(TenantHandle, ABC):
    """Memory about a user. The abstract methods are those of other parts of a knowledge base."""

    @abstractmethod
    def store_text(  # noqa: PLR0913  the same as in NaturalLanguage
        self,
        text: str | Sequence[Message],
        scope: str | None,
        origin: Source,
        request_limits: RequestLimits | None = ...,
        conflict: str | None = ...,
        *,
        hint: str | None = ...,
        keeps_texts: bool = ...,
        vocabulary: Sequence[Definition] = ...,
    ) -> StoredText:
        """Store the facts of messages and their texts."""

    @abstractmethod
    def context(
        self, request: WindowRequest, *, request_limits: RequestLimits | None = None
    ) -> Window:
        """Return a context window."""

    @abstractmethod
    def assert_rules(
        self,
        rules: Sequence[Definition],
        facts: Sequence[Fact] = (),
        defined: Iterable[tuple[str, int]] = (),
        supports: Supports | None = None,
        request_limits: RequestLimits | None = None,
        *,
        conflict: str = ...,
    ) -> RulesOutcome:
        """Store rules and facts."""

    @abstractmethod
    def replace_value(self, old: Atom, new: Fact) -> AssertOutcome:
        """End a stored fact when another one begins."""

    @abstractmethod
    def purge(
        self,
        target: PurgeTarget,
        *,
        dry_run: bool = False,
        wait: bool = True,
        limit: int = DEFAULT_LISTED,
        request_limits: RequestLimits | None = None,
    ) -> PurgeRemovals:
        """Remove facts and episodes for good."""

    @abstractmethod
    def _keys(self, scope: str | None, new_rules: Sequence[Rule]) -> Keys:
        """Return the keys of a scope that stored rules and new ones declare."""

    @abstractmethod
    def _intervals(self, fact: Fact, claim: ScopePlace | None, yield_now: YieldNow) -> list[Row]:
        """Return a row for each interval of the rivals of a fact at a place."""

    @memory_span("create_memory", lambda added: added.asserted)
    def memory_add(
        self,
        messages: Sequence[Message],
        *,
        session: str | None = None,
        agent: str | None = None,
        at: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> AddedMessages:
        """Store messages, and the facts that are read in them.

        The texts are kept as episodes and as facts `said(speaker, text, when)`, with and without a
        language model; with one the facts that it reads are stored in addition, and if it fails,
        `warning` of the result says so. Nothing in a text is read as a fact of the rule language:
        who speaks to an agent must not decide what is believed. A new value of a declared `@key`
        ends the older one.
        `session` and `agent` name the conversation and the agent it is with. Without a name, the
        speaker of the user's messages is the name of the tenant, and of others that of the agent.
        `at` (epoch milliseconds) is the time of messages without one of their own, by default now.
        A message that is stored already is not stored again, nor is one that was forgotten:
        `forgotten` of the result counts these.

        Raises InvalidInput, AlreadyExists if the id of a message belongs to another content,
        TooLarge, ReadOnlyFollower and BudgetExceeded.
        """
        for name, value in (("session", session), ("agent", agent)):
            if value is not None:
                check_name(name, value)
        if not messages:
            raise InvalidInput.at("messages", "must not be empty")
        yield_now = self._deadline(request_limits)
        names = {None: self._user, USER: self._user, ASSISTANT: agent or ASSISTANT}
        stored = self.store_text(
            [
                replace(each, speaker=names.get(each.speaker, each.speaker))
                for each in paced(messages, yield_now, MESSAGES_PER_YIELD)
            ],
            None,
            Source(self._user, at, session, agent),
            request_limits,
            keeps_texts=True,
            vocabulary=self._new_vocabulary(yield_now),
        )
        return AddedMessages(
            stored.recorded,
            tuple(
                print_row(fact.predicate, fact.args, not fact.positive)
                for fact in paced(stored.facts, yield_now, FACTS_PER_YIELD)
                if fact.predicate != EPISODE
            ),
            stored.asserted,
            stored.discarded,
            stored.failure,
            stored.forgotten,
        )

    @memory_span("search_memory", lambda search: len(search.entries), query="question")
    def memory_search(
        self,
        question: str,
        *,
        max_facts: int = MAX_FOUND,
        max_tokens: int = MAX_TOKENS,
        session: str | None = None,
        agent: str | None = None,
        citations: bool = True,
        request_limits: RequestLimits | None = None,
    ) -> MemorySearch:
        """Return what is known about a question, as text for a prompt, with its sources.

        Standing instructions of the user come first. With `session` or `agent`, only what was said
        in these conversations is searched. The text is empty if nothing matches. Raises
        InvalidInput and BudgetExceeded.
        """
        if not question.strip():
            raise InvalidInput.at("question", "must not be empty")
        for name, value in (("session", session), ("agent", agent)):
            if value is not None:
                check_name(name, value)
        request = WindowRequest(
            max_facts=max_facts,
            max_tokens=max_tokens,
            format=NATURAL,
            query=question,
            asker=self._user,
            min_relevance=MIN_RELEVANCE,
            citations=citations,
            said_in=None if session is agent is None else SaidIn(session, agent),
        )
        with named(query="question"):
            window = self.context(request, request_limits=request_limits)
        return MemorySearch(
            window.text,
            window.entries,
            window.sources or (),
            window.tokens,
            window.index_progress,
            window.vectors_missing,
        )

    @memory_span("update_memory", lambda stored: stored.asserted + stored.updated)
    def memory_update(
        self,
        fact: Fact,
        replaces: Atom | None = None,
        *,
        request_limits: RequestLimits | None = None,
    ) -> StoreOutcome:
        """Store a value that ends an older one, which stays in the history with its evidence.

        The older value is the fact `replaces`, or that of the declared `@key` of the predicate, or
        the opposite of the fact. A value that holds already keeps its beginning, unless the new one
        is earlier; `warnings` of the result say so. Raises InvalidInput if there is neither
        `replaces` nor a key, nor a stored opposite, and NotFound if `replaces` is not stored.
        """
        yield_now = self._deadline(request_limits)
        warnings = self._warnings(fact, yield_now)
        if replaces is not None:
            done = self.replace_value(replaces, fact)
            return StoreOutcome(
                done.asserted, done.updated, done.timestamp, (), warnings, done.discarded
            )
        new = self._new_vocabulary(yield_now)
        keys = self._keys(fact.scope, [each for each in new if isinstance(each, Rule)])
        opposite, *claims = places_of(fact, keys)
        if not claims and not self._intervals(fact, opposite, yield_now):
            name = f"{fact.predicate}/{len(fact.args)}"
            if not fact.positive:
                denied = print_row(fact.predicate, fact.args, negated=False)
                raise InvalidInput.at("fact", f"denies a fact that is not stored: {denied}")
            raise InvalidInput.at(
                "fact",
                f"has no older value to end: {name} has no declared @key; name the fact that it"
                " replaces, or declare a key",
            )
        outcome = self.assert_rules(
            new, [fact], request_limits=request_limits, conflict="NEWEST_WINS"
        )
        return StoreOutcome(
            outcome.asserted, outcome.updated, outcome.timestamp, (), warnings, outcome.discarded
        )

    @memory_span("delete_memory", lambda gone: 0 if gone.dry_run else gone.fact_count)
    def memory_forget(
        self,
        about: str,
        *,
        dry_run: bool = True,
        limit: int = DEFAULT_LISTED,
        request_limits: RequestLimits | None = None,
    ) -> Forgotten:
        """Remove facts, what was said that they are based on, and what nothing else supports.

        `about` is a fact or a pattern such as `lives_in(mia, ?where)`, the id of an episode, or
        words, which mean the facts that have more than half of them, those that have ended too.
        The name of the user and pronouns do not count. Nothing is removed with `dry_run`.
        Removal is for good: also from the log. Raises InvalidInput and BudgetExceeded.
        """
        if not 1 <= len(about.strip()) <= len(about) <= MAX_SUBJECT_CHARS:
            raise InvalidInput.at("about", f"must have 1 to {MAX_SUBJECT_CHARS} characters")
        target = self._forgotten(about.strip(), request_limits)
        done = self.purge(target, dry_run=dry_run, limit=limit, request_limits=request_limits)
        return Forgotten(
            done.dry_run,
            tuple(ForgottenFact(_text(row), row["why"]) for row in done.facts),
            done.fact_count,
            tuple(
                ForgottenText(each.id, each.speaker, each.at, each.text[:MAX_QUOTED_CHARS])
                for each in done.episodes[:limit]
            ),
            len(done.episodes),
            tuple(each.text for each in done.conclusions),
            done.conclusion_count,
            done.erased,
            done.timestamp,
        )

    def memory_facts(
        self,
        *,
        limit: int = DEFAULT_LISTED,
        offset: int = 0,
        request_limits: RequestLimits | None = None,
    ) -> BelievedFacts:
        """Return the facts that are valid now, with the passages that they are based on.

        They are ordered by predicate, then in order of storing. Texts of messages are left out.
        """

        def evaluate(tenant: Tenant, budget: Budget) -> BelievedFacts:
            tenant.note_episodes()
            listed: list[BelievedFact] = []
            total = 0
            for stored in budget.paced(_believed(tenant, budget), RELATIONS_PER_YIELD):
                count = stored.relation.counts().visible
                first = max(offset - total, 0)
                total += count
                if first < count and len(listed) < limit:
                    rows = _page(tenant, stored, first, limit - len(listed), budget)
                    listed += (_believed_fact(row, tenant.episodes) for row in budget.paced(rows))
            return BelievedFacts(tuple(listed), total)

        return self._evaluated(evaluate, request_limits)

    # -- inside ------------------------------------------------------------------------------------

    def _warnings(self, fact: Fact, yield_now: YieldNow) -> tuple[str, ...]:
        """Return a warning if a fact holds already when it is said to begin."""
        since = fact.valid_from
        if since is None or fact.ttl is not None:
            return ()
        starts = [
            row["validFrom"]
            for row in self._intervals(fact, None, yield_now)
            if row["validFrom"] < since and (row["validUntil"] is None or since < row["validUntil"])
        ]
        text = print_row(fact.predicate, fact.args, not fact.positive)
        return tuple(
            f"{text} holds since {time_text(start)} and keeps this beginning" for start in starts
        )

    @property
    def _user(self) -> str:
        """The name of the user: that of the tenant, or `user` for the tenant `default`."""
        return USER if self.tenant == DEFAULT else self.tenant

    def _new_vocabulary(self, yield_now: YieldNow) -> Sequence[Definition]:
        """Return the rules and declarations of the vocabulary if they are not installed."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            if _INSTALLED in tenant.rules.visible(None).derived:
                return ()
        return _VOCABULARY.definitions(yield_now)

    def _forgotten(self, about: str, request_limits: RequestLimits | None) -> PurgeTarget:
        if _PATTERN.search(about):
            atom = atom_from_text(about.removesuffix("."), "about")
            args = tuple(term for term in atom.args if isinstance(term, str | Variable))
            pattern = FactPattern(atom.predicate, args, None if atom.positive else False)

            def matching(tenant: Tenant, budget: Budget) -> tuple[FactKey, ...]:
                return tuple(key for key in pattern.stored(tenant, budget) if pattern.selects(key))

            return PurgeTarget(facts=self._evaluated(matching, request_limits))
        if self._read_tenant().episodes.get(about) is not None:
            return PurgeTarget(episode=about)

        def meant(tenant: Tenant, budget: Budget) -> tuple[FactKey, ...]:
            return facts_meant(tenant, about, self._user, budget)

        return PurgeTarget(facts=self._evaluated(meant, request_limits))


class _Vocabulary:
    """The rules and declarations of the vocabulary, parsed when they are needed first."""

    def __init__(self) -> None:
        self._definitions: tuple[Definition, ...] = ()

    def definitions(self, yield_now: YieldNow) -> tuple[Definition, ...]:
        """Return them; `yield_now` is called about once a millisecond."""
        if not self._definitions:  # another request may parse them in between
            text = (files("kbcore") / VOCABULARY).read_text(encoding="utf-8")
            blocks = blocks_of(text, None, yield_now)
            self._definitions = tuple(rule for block in blocks for rule in block.rules)
        return self._definitions


_VOCABULARY = _Vocabulary()


def _believed(tenant: Tenant, budget: Budget) -> list[StoredRelation]:
    """Return the relations of the base partition with facts, by predicate, without texts and the
    data of adapters.
    """
    relations = [
        stored
        for stored in budget.paced(tenant.partitions(None)[0].relations(), RELATIONS_PER_YIELD)
        if stored.schema.predicate not in _NOT_BELIEVED and stored.relation.counts().visible
    ]
    return sorted(
        relations,
        key=lambda each: (each.schema.predicate, each.schema.arity, not each.schema.positive),
    )


def _believed_fact(row: Row, episodes: StoredEpisodes) -> BelievedFact:
    return BelievedFact(
        _text(row),
        row["predicate"],
        tuple(row["args"]),
        row["negated"],
        row["validFrom"],
        row["confidence"],
        quoted_all(row.get("evidence", ()), episodes),
    )


def _text(row: Row) -> str:
    return print_row(row["predicate"], row["args"], row["negated"])


def _page(
    tenant: Tenant, stored: StoredRelation, first: int, count: int, budget: Budget
) -> list[Row]:
    arity = stored.schema.arity
    rows, ids = stored.relation.match([0] * arity, yield_now=budget.yield_now)
    chosen = ids[first : first + count]
    return stored.rows(tenant.engine, rows[first * arity : (first + count) * arity], chosen)
