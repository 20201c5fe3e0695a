"""A knowledge base: all operations on one tenant of a connection."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kbcore_client._async.connection import AsyncConnection, Destination
from kbcore_client._async.episodes import AsyncEpisodes
from kbcore_client._async.following import AsyncFollowing
from kbcore_client._async.language import AsyncLanguage
from kbcore_client._async.memory import AsyncContext, AsyncMemory
from kbcore_client._async.operations import AsyncAdministration
from kbcore_client._async.reads import AsyncReads
from kbcore_client._async.rule_sets import AsyncDeployments
from kbcore_client._async.tools import AsyncTools
from kbcore_client._async.user_memory import AsyncUserMemory
from kbcore_client._async.wrapping import AsyncModelMemory, AsyncWrappedClient
from kbcore_client._async.writes import AsyncWrites
from kbcore_client.errors import InvalidInput, KBError
from kbcore_client.model_calls import async_calls
from kbcore_client.requests import Request
from kbcore_client.settings import Settings
from kbcore_client.targets import server_url, target_of
from kbtypes.results import Event
from kbtypes.values import Instant, instant

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kbcore import Config
    from kbtypes.windows import WindowOptions

DEFAULT = "default"

_Client = TypeVar("_Client")


class AsyncKnowledgeBase(
    AsyncWrites,
    AsyncReads,
    AsyncFollowing,
    AsyncMemory,
    AsyncEpisodes,
    AsyncContext,
    AsyncDeployments,
    AsyncLanguage,
    AsyncTools,
):
    """Facts, rules and answers of one tenant, of a server or in this process.

    Facts, patterns and goals are texts in the rule language, or a predicate with arguments.
    Arguments are strings, numbers or booleans. In queries and retractions a string that starts with
    `?` is a variable. `scope` names a partition (None: the base partition); reads also take "*" for
    all partitions. A knowledge base can be shared by concurrent callers.
    """

    @property
    def database(self) -> str:
        """The database."""
        return self._destination.database

    @property
    def tenant(self) -> str:
        """The tenant."""
        return self._destination.tenant

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    def open(self, tenant: str, database: str | None = None) -> AsyncKnowledgeBase:
        """Return a knowledge base on another tenant of the same connection, known at the same
        instant, with the same view and labels.
        """
        database = database or self._destination.database
        destination = replace(self._destination, database=database, tenant=tenant, transaction=None)
        return AsyncKnowledgeBase(self._connection, destination)

    def memory(self, user: str | None = None) -> AsyncUserMemory:
        """Return the memory of an agent about a user: messages in, the text for a prompt out.

        The user is the tenant of this name in the same database, so that nothing passes between
        users; without `user` it is this tenant. Raises InvalidInput for an empty name.
        """
        if user == "":
            raise InvalidInput.at("user", "must not be empty")
        return AsyncUserMemory(self.open(user or self.tenant))

    def known_at(self, at: Instant) -> AsyncKnowledgeBase:
        """Return this knowledge base as it was known at an instant, for `ask`, `query` and the
        like.

        `known_at(monday).ask(goal, as_of=last_year)` says what was known on Monday about last year.
        Its reads raise InvalidInput for an instant in the future, and before the oldest instant
        available, which is in the details.
        """
        destination = replace(self._destination, known_at=instant(at))
        return AsyncKnowledgeBase(self._connection, destination)

    def viewed(
        self, view: Mapping[str, Any] | None = None, labels: Mapping[str, Any] | None = None
    ) -> AsyncKnowledgeBase:
        """Return this knowledge base as a view shows it; what is written through it gets labels.

        `view` is like `{"trust": "user", "team": ["eng"]}`: a level admits itself and those above,
        groups admit what belongs to one of them or to everybody. `labels` are like `{"trust":
        "web"}`. Its operations raise InvalidInput for levels and groups that no `@levels` or
        `@groups` declares, and Forbidden for more than the API key may see or write. Without one of
        the two, that of this knowledge base stays.
        """
        destination = self._destination
        if view is not None:
            destination = replace(destination, view=json.dumps(view))
        if labels is not None:
            destination = replace(destination, labels=json.dumps(labels))
        return AsyncKnowledgeBase(self._connection, destination)

    @property
    def admin(self) -> AsyncAdministration:
        """Databases, tenants and API keys of the server, always in their present state."""
        return AsyncAdministration(self._connection, self._destination)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncKnowledgeBase]:
        """Yield a knowledge base whose writes are committed together at the end, or not at all.

        Inside the block only its own reads see its writes. An error that leaves the block, and a
        write that fails, discard the writes. Raises Conflict at the end if another writer has
        changed something that the block read or wrote; the block can then be retried.
        """
        if self._destination.transaction is not None:
            raise InvalidInput("a transaction cannot be opened inside another one")
        transaction = (await self._send(Request("/tx/begin", {}, writes=True))).text
        destination = replace(self._destination, known_at=None, transaction=transaction)
        try:
            yield AsyncKnowledgeBase(self._connection, destination)
        except BaseException:
            # The server ends a transaction that is not ended; an error here would hide the first
            # one.
            with suppress(KBError):
                await self._send(Request(f"/tx/rollback/{transaction}", {}, writes=True))
            raise
        await self._send(Request(f"/tx/commit/{transaction}", {}, writes=True))

    async def events(
        self,
        *,
        predicate: str | None = None,
        events: Iterable[str] | None = None,
        scope: str | None = None,
        since: str | int | None = None,
    ) -> AsyncIterator[Event]:
        """Yield every change committed from now on, or after `since`, until the caller stops.

        `predicate` may end in `*`; `events` are the types to report (None: all); `since` is the id
        of an event, or a point in time. A lost connection is opened again where it ended. An event
        of type `events_lost` says that the server no longer keeps everything since then. Raises
        ConnectionFailed if there is no server at the beginning, and later after more failures in a
        row than `Retries.events` (without end by default), and errors of the server.
        """
        self._require_present()
        query = {"predicate": predicate, "scope": scope}
        query["events"] = None if events is None else ",".join(events)
        query["since"] = None if since is None else str(since)
        fields = {name: value for name, value in query.items() if value is not None}
        async for message in self._connection.messages("/memory/events", fields, self._destination):
            yield Event.of(json.loads(message.data))

    def wrap(
        self, client: _Client, *, store: bool = True, **options: Unpack[WindowOptions]
    ) -> _Client:
        """Return a model client whose calls know what is stored, and store what is said.

        `client` is an `AsyncOpenAI` or `AsyncAnthropic`, or has the same methods. Each call of
        `chat.completions`, `responses` or `messages` gets the window of `context(**options)` as
        part of the system prompt, by default for the last question of the user and in plain words.
        Afterwards `memory().add` stores the new turns, if `store`: their texts, and the facts that
        the language model of the knowledge base reads in them, if it has one. `session` names the
        conversation, `asker` the user, by default that of `memory()`. If storing fails, the answer
        of the model is returned and the reason logged as a warning of the logger `kbcore_client`. A
        stream is stored when it has ended.

        Errors of `context` are raised before the model is called. Raises InvalidInput if the client
        has none of these calls as coroutines.
        """
        if not async_calls(client):
            raise InvalidInput.at(
                "client", "must be an OpenAI or Anthropic client of the same kind as connect()"
            )
        memory = AsyncModelMemory(self, options, store)
        return cast("_Client", AsyncWrappedClient(client, memory))

    async def aclose(self) -> None:
        """Close the connection, for all tenants; a knowledge base in this process is released."""
        await self._connection.aclose()

    async def __aenter__(self) -> AsyncKnowledgeBase:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url} {self.database}/{self.tenant}>"


def connect_async(  # noqa: PLR0913  one parameter for each property of a connection
    target: str | os.PathLike[str],
    *,
    tenant: str = DEFAULT,
    database: str = DEFAULT,
    api_key: str | None = None,
    read_url: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    config: Config | None = None,
) -> AsyncKnowledgeBase:
    """Connect to a knowledge base.

    `target` is `"memory:"`, a folder or the URL of a storage for one in this process, which needs
    the package kbcore; or the address of a server, such as `http://127.0.0.1:9300`. `read_url` is
    the address of a follower for reads. `ca` is a file of CA certificates in PEM form, which then
    are the only ones that https servers are verified with. `settings` has time limits and retries.
    `config` has the settings of a knowledge base in this process, such as its language model; it is
    a `kbcore.Config`.

    Nothing is sent to a server until the first call. Raises InvalidInput and NotInstalled; in this
    process also the errors of `kbcore.open_kb`.
    """
    opened = target_of(target, config)
    if read_url is not None:
        if opened.app is not None:
            raise InvalidInput.at("read_url", "is for servers only")
        read_url = server_url("read_url", read_url)
    if ca is not None and opened.app is not None:
        raise InvalidInput.at("ca", "is for servers only")
    connection = AsyncConnection(opened, settings or Settings(), api_key, read_url, ca)
    return AsyncKnowledgeBase(connection, Destination(database, tenant))
