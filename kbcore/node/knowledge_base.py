"""Knowledge base for Python programs: all operations on one tenant of an open runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from kbcore import python_values
from kbcore.errors import Conflict, NotReady
from kbcore.events.events import Wanted, listen, mark_of
from kbcore.node.admin import Admin
from kbcore.node.api_keys import Keys
from kbcore.operations.tenant_kb import TenantKB
from kbcore.operations.transaction import Operations
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.bulk import Bulk
from kbcore.python_api.context import PythonContext
from kbcore.python_api.episodes import PythonEpisodes
from kbcore.python_api.language import PythonLanguage
from kbcore.python_api.memory import PythonMemory
from kbcore.python_api.reads import PythonReads
from kbcore.python_api.rule_sets import PythonRuleSets
from kbcore.python_api.scopes import PythonScopes
from kbcore.python_api.subscriptions import PythonFollowing
from kbcore.python_api.user_memory import EmbeddedMemory
from kbcore.python_api.writes import PythonWrites
from kbcore.python_values import named
from kbcore.state.catalog import DEFAULT
from kbcore.state.names import check_name
from kbcore.state.tenant import ALL_SCOPES
from kbtypes.values import Instant

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


class _Closed:
    """Stands for the handle of a closed knowledge base."""

    def __getattr__(self, name: str) -> Any:
        raise NotReady("the knowledge base is closed")


class KnowledgeBase(
    PythonWrites,
    PythonReads,
    PythonFollowing,
    Bulk,
    PythonMemory,
    PythonEpisodes,
    PythonContext,
    PythonScopes,
    PythonRuleSets,
    PythonLanguage,
):
    """Facts, rules and answers of one tenant, for Python programs.

    `kbcore.open_kb` opens one with a storage of its own, which `close` or `with` closes;
    `runtime.open` returns one on a tenant of a running node. It can be used from several threads.

    Facts, patterns and goals are texts in the rule language, or a predicate with arguments.
    Arguments are strings, numbers or booleans; numbers and booleans get the text that the HTTP
    interface gives them. In queries and retractions a string that starts with `?` is a variable.
    `scope` names a partition (None: the base partition); reads also take "*" for all partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        tenant: str = DEFAULT,
        database: str = DEFAULT,
        *,
        owns_runtime: bool = True,
    ) -> None:
        self._runtime = runtime
        self._owns_runtime = owns_runtime
        self.database = database
        self.tenant = tenant
        self.kb: TenantKB = runtime.knowledge_base(database, tenant)

    def subscribe(
        self,
        listener: Callable[[dict[str, Any]], None],
        *,
        predicate: str | None = None,
        events: Iterable[str] | None = None,
        scope: str | None = None,
    ) -> Callable[[], None]:
        """Call `listener` with every event committed from now on; return a function that ends this.

        An event is a dict, as `GET /memory/events` sends it. `predicate` may end in `*`; `events`
        are the event types to report (None: all). The listener is called by the writing thread
        after the write, so it must be quick; an exception in it is logged. Through a view, the
        events are those of what it admits.
        """
        self.kb.require_present()
        if scope not in (None, ALL_SCOPES):
            check_name("scope", scope)
        runtime, selection = (
            self._runtime,
            Wanted.of(predicate, events, scope, self.kb.event_view()),
        )
        mark = mark_of(runtime.log_id(self.database, self.tenant))
        return listen(runtime.feed, mark, self.database, self.tenant, selection, listener)

    def memory(self, user: str | None = None) -> EmbeddedMemory[KnowledgeBase]:
        """Return the memory of an agent about a user: messages in, the text for a prompt out.

        The user is the tenant of this name in the same database, so that nothing passes between
        users; without `user` it is this tenant. Raises InvalidInput for a name that no tenant can
        have.
        """
        if user is None:
            return EmbeddedMemory(self)
        check_name("user", user)
        self.kb.require_whole()
        return EmbeddedMemory(KnowledgeBase(self._runtime, user, self.database, owns_runtime=False))

    def keys(self) -> Keys:
        """Return a handle on the API keys that a server on this storage accepts."""
        self.kb.require_whole()
        return self._runtime.keys()

    def admin(self) -> Admin:
        """Return a handle on whole databases and tenants."""
        self.kb.require_whole()
        return self._runtime.admin()

    @contextmanager
    def transaction(self) -> Iterator[KnowledgeBase]:
        """Yield a knowledge base whose writes are committed together at the end, or not at all.

        Inside the block only its own reads see its writes. An error that leaves the block, and a
        write that fails, discard the writes. Raises Conflict at the end if another writer has
        changed something that the block read or wrote; the block can then be retried.
        """
        self.kb.require_present()
        view, labels = self.kb.view, self.kb.labels
        operations = Operations(self._runtime, self.database, self.tenant, view, labels)
        inside = KnowledgeBase(self._runtime, self.tenant, self.database, owns_runtime=False)
        inside.kb = cast(TenantKB, operations)
        try:
            yield inside
        except BaseException:
            with suppress(Conflict):  # a write that failed has ended it already
                operations.roll_back()
            raise
        operations.commit()

    def known_at(self, at: Instant, *, timeout_ms: int | None = None) -> KnowledgeBase:
        """Return this knowledge base as it was known at an instant, for reads.

        Facts, rules, scopes, episodes and evidence are those of that instant, and so is "now".
        `kb.known_at(monday).ask(goal, as_of=last_year)` says what was known on Monday about last
        year. The result needs no closing. `timeout_ms` lowers the time limit for rebuilding the
        state. Raises InvalidInput for an instant in the future, or before `history_start`.
        """
        moment = python_values.moment("at", at)
        past = KnowledgeBase(self._runtime, self.tenant, self.database, owns_runtime=False)
        with named(knownAt="at"):
            past.kb = self.kb.known_at(moment, request_limits(timeout_ms))
        return past

    def viewed(
        self, view: Mapping[str, Any] | None = None, labels: Mapping[str, Any] | None = None
    ) -> KnowledgeBase:
        """Return this knowledge base as a view shows it; what is written through it gets labels.

        `view` is like `{"trust": "user", "team": ["eng"]}`: a level admits itself and those above,
        groups admit what belongs to one of them or to everybody. `labels` are like `{"trust":
        "web"}`. Answers, windows and proofs are those of a knowledge base that holds only what the
        view admits. The result needs no closing. Raises InvalidInput for levels and groups that no
        `@levels` or `@groups` declares.
        """
        seen = KnowledgeBase(self._runtime, self.tenant, self.database, owns_runtime=False)
        seen.kb = self.kb.viewed(view, labels)
        return seen

    def history_start(self) -> int:
        """Return the oldest instant that `known_at` can read, in epoch milliseconds."""
        return self.kb.history_start().at

    def close(self) -> None:
        """Write a snapshot if anything has changed, and release the storage.

        Later calls raise NotReady; answers that were asked before can still be read. A knowledge
        base of a runtime that was opened elsewhere leaves the runtime open and stays usable.
        """
        if self._owns_runtime:
            self._runtime.close()
            self.kb = cast(TenantKB, _Closed())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.database}/{self.tenant}>"

    def __enter__(self) -> KnowledgeBase:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
