"""Reads and writes through a view, and writes with labels.

The state of a view is a tenant like any other, so every read works on it. The services of a handle
are replaced by ones that return this tenant, give labels to what is written, and refuse what would
show or change more than the view admits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kbcore.errors import AlreadyExists, Conflict, Forbidden, InvalidInput, KBError
from kbcore.operations.base import not_here
from kbcore.operations.queries import Queries
from kbcore.operations.subscriptions.subscribing import StandingGoalMethods
from kbcore.reason.budget import Budget, Deadline, Notes
from kbcore.reason.options import DEFAULT_OPTIONS, AnswerOptions
from kbcore.state.access import Uncounted
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    ChangeSet,
    Delta,
    DeployRuleSet,
    EndFacts,
    EndSubscriptions,
    NoteAnswer,
    NoteDelivery,
    Outdated,
    PutSubscription,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
    UseLabels,
)
from kbcore.state.facts import Row
from kbcore.state.labelling import refuse_more_sets
from kbcore.state.labels import (
    NO_LABELS,
    Dimensions,
    Labels,
    admits,
    dominating,
    labels_from,
    lowered,
    meets,
    narrowed,
    view_from,
)
from kbcore.state.requirements import text_of
from kbcore.state.rulebook import is_same_rule
from kbcore.state.subscriptions import StoredSubscription
from kbcore.state.tenant import Tenant
from kbcore.state.views import ROWS_PER_YIELD, ViewState, ViewStates
from kbcore.subscriptions.registry import ViewGoals
from kbplanner.ir.modes import NO_MODES
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.pacing import YieldNow, paced
from kbplanner.syntax.printer import print_item

if TYPE_CHECKING:
    from kbcore.operations.services import Services

Seen = TypeVar("Seen", bound="ViewedReads")

MAX_ATTEMPTS = 20
"""Attempts to write while the state of the view is read and changed by others."""

_SEEN = (
    AssertFacts,
    AssertRows,
    AssertRules,
    AddEpisodes,
    AddEvidence,
    DeployRuleSet,
    EndFacts,
    NoteAnswer,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
    UseLabels,
)
"""Changes that take labels and touch only what a view admits."""

_SUBSCRIBING = (PutSubscription, EndSubscriptions, NoteDelivery)
"""Changes of standing goals, which say themselves what they see."""

_WRITING = frozenset(("begin", "erase", "erase_later", "in_transaction", "transactions"))
"""Services that write without the labels and the view."""

_REFUSED = _WRITING | {"erasure", "known_states", "log", "log_head", "scratch"}
"""Services that reach beyond the state of a view."""


_STABLE = frozenset(
    ("clock", "config", "limits", "meters", "offload", "plugins", "reasoner", "slots", "yield_now")
)
"""Services that stay the same objects as long as there is a handle."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The view of a key, and the labels that it gives to what it stores; by default all of a
    tenant, and none.
    """

    view: Labels = NO_LABELS
    labels: Labels = NO_LABELS


ALL = Grant()


class ViewServices:
    """The services of a node for one view of a tenant, and for writes with labels.

    Others are those of the node. `dimensions` are those of now where the services are those of an
    earlier state, in which the levels of the view may not be declared yet.
    """

    def __init__(
        self,
        services: Services,
        labels: Labels,
        view: Labels,
        dimensions: Dimensions | None = None,
    ) -> None:
        self._services = services
        self._labels = labels
        self._view = view
        self._dimensions = dimensions
        self._seen: Tenant | None = None
        self._state: ViewState | None = None

    def __getattr__(self, name: str) -> Any:
        if name in (_REFUSED if self._view else _WRITING):
            raise not_here("view" if self._view else "labels")
        value = getattr(self._services, name)
        if name in _STABLE:
            setattr(self, name, value)  # found without this method from now on
        return value

    @property
    def vectors(self) -> Any:
        """The vectors of facts; None for a view: they are not made for each view."""
        return None if self._view else self._services.vectors

    def read_tenant(self, database: str, name: str, now: int | None = None) -> Tenant:
        """Return the state of the view."""
        tenant = self._services.read_tenant(database, name, now)
        return self._viewed(tenant, now) if self._view else tenant

    @property
    def below(self) -> Services:
        """The services of the node."""
        return self._services

    def find_tenant(self, database: str, name: str) -> Tenant | None:
        """Return the state of the view, or None if the tenant does not exist."""
        tenant = self._services.find_tenant(database, name)
        return tenant if tenant is None or not self._view else self._viewed(tenant)

    def need_tenant(self, database: str, name: str) -> Tenant:
        """Return the state of the view of a tenant, which is created if it does not exist."""
        tenant = self._services.need_tenant(database, name)
        return self._viewed(tenant) if self._view else tenant

    def _viewed(self, tenant: Tenant, now: int | None = None) -> Tenant:
        services, state = self._services, self._state
        if state is None or not state.is_current or state.source is not tenant:
            state = self._state = self._state_of(tenant)
        else:
            state.use()
        seen = self._seen = state.tenant
        of_views = tenant.attached.get(ViewGoals)
        goals = None if of_views is None else of_views.get(self._view)
        if goals is not None and goals.tenant is not seen:
            goals.move_to(seen)
        if seen.next_due() is not None:
            now = services.clock.now_ms() if now is None else now
            if seen.due(now):
                with seen.lock.write():
                    seen.advance(now)
                    if seen.observer is not None:
                        seen.observer()
        return seen

    def _state_of(self, tenant: Tenant) -> ViewState:
        services = self._services
        states = tenant.attached.get(ViewStates)
        if states is None:
            states = self._new_states(tenant)
        state = states.current(self._view)
        if state is None:
            deadline = Deadline(
                services.clock, services.config.query_timeout_ms, services.yield_now
            )
            state = states.state_of(self._view, deadline)
        return state

    def _new_states(self, tenant: Tenant) -> ViewStates:
        services = self._services

        def states() -> ViewStates:
            # An earlier state is not kept long: it keeps the view that was read last.
            max_bytes = services.known_states.max_bytes if self._dimensions is None else 0
            make = new_state_maker(services, tenant)
            created = ViewStates(tenant, make, max_bytes, self._dimensions)
            created.when_behind = lambda view: tenant.attached.need(ViewGoals, ViewGoals).wake(view)
            return created

        known = tenant.attached.need(ViewStates, states)
        tenant.views = known
        return known

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it, with the labels and within the view."""
        if all(isinstance(change, _SUBSCRIBING) for change in changes.changes):
            return self._services.commit(changes)
        tenant = self._services.find_tenant(changes.database, changes.tenant)
        self.check_changes(tenant, changes)
        rules = [
            rule
            for change in changes.changes
            if isinstance(change, AssertRules)
            for rule in change.rules
        ]
        if tenant is not None:
            refuse_more_sets(tenant, {self._labels})
            if rules and self._view:
                with tenant.lock.read():
                    try:
                        removed = self._replaced(tenant, changes)
                        tenant.rules.check(rules, NO_MODES, changes.yield_now, removed)
                    except KBError:
                        raise _beside_others() from None
        episodes = [
            each.id
            for change in changes.changes
            if isinstance(change, AddEpisodes)
            for each in change.episodes
        ]
        check = changes.check
        if check is not None or rules or episodes:
            check = self._checked(tenant, changes, rules, episodes, check)
        if any(isinstance(change, RetractRule) for change in changes.changes):
            check = partial(self._check_declarations, changes, check)
        changes = replace(changes, check=check, labels=self._labels, view=self._view)
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._as_seen(self._services.commit(changes), tenant)
            except StateInUse:
                if tenant is not None:
                    self._viewed(tenant)  # waits for the readers of the state
        raise busy()

    def check_changes(self, tenant: Tenant | None, changes: ChangeSet) -> None:
        """Raise InvalidInput for changes that are not made with labels or through a view, and
        Forbidden for those that store with other labels than these, or lower ones.
        """
        for change in changes.changes:
            if not isinstance(change, _SEEN):
                raise not_here("view" if self._view else "labels")
        if tenant is not None:
            for change in changes.changes:
                if isinstance(change, RetractRule):
                    self._refuse_declaration(tenant, change)
        self._check_labels(tenant, changes)

    def _refuse_declaration(self, tenant: Tenant, change: RetractRule) -> None:
        """Raise InvalidInput for a change that removes a declaration: all belong to everybody."""
        if tenant.rules.declaration(change.scope, change.id) is not None:
            raise not_here("view" if self._view else "labels")

    def _check_labels(self, tenant: Tenant | None, changes: ChangeSet) -> None:
        """Raise Forbidden for changes that store with other labels than these, or lower ones."""
        own = self._labels
        if not own or tenant is None:
            return
        dimensions, checked, labels = tenant.rules.dimensions(), {own}, own
        for change in changes.changes:
            if isinstance(change, UseLabels):
                labels = change.labels
            elif labels not in checked:
                if lowered(own, labels, dimensions) != labels:
                    raise Forbidden(
                        "these labels may not be written with those of the request",
                        {"dimension": own[0][0]},
                    )
                checked.add(labels)

    def _checked(
        self,
        tenant: Tenant | None,
        changes: ChangeSet,
        rules: list[Any],
        episodes: list[str],
        check: Callable[[], None] | None,
    ) -> Callable[[], None]:
        """Return a check on the state of the view at the write."""

        def checked() -> None:
            if tenant is not None:
                removed = self._replaced(tenant, changes)
                for rule in rules:
                    if (rule.scope, rule.id) in removed:
                        continue
                    known = tenant.rules.get(rule.scope, rule.id)
                    if known is not None and not is_same_rule(known, rule):
                        raise _beside_others()
                self._check_episodes(tenant, episodes)
            if check is None:
                return
            states = None if tenant is None else tenant.attached.get(ViewStates)
            seen = self._seen
            if (
                self._view
                and states is not None
                and seen is not None
                and not states.bring(self._view, seen, self._services.yield_now)
            ):
                raise StateInUse("the state of the view is in use")
            check()

        return checked

    def _replaced(self, tenant: Tenant, changes: ChangeSet) -> set[tuple[str | None, str]]:
        """Return scope and id of the stored rules that a deployment removes with all their labels,
        before it stores others.
        """
        if not isinstance(changes.changes[0], DeployRuleSet):
            return set()
        removed = ((c.scope, c.id) for c in changes.changes if isinstance(c, RetractRule))
        return {
            key for key in removed if tenant.rules.labels.get(key, (NO_LABELS,)) == (self._labels,)
        }

    def _as_seen(self, delta: Delta, tenant: Tenant | None) -> Delta:
        """Return the effect of a write with the symbols of the state of the view, and without
        labels.
        """
        if not self._view or not delta.removed or tenant is None:
            return delta
        return as_seen(delta, self._viewed(tenant), self._services.yield_now)

    def _check_declarations(self, changes: ChangeSet, check: Callable[[], None] | None) -> None:
        """Raise InvalidInput if declarations would be removed: they belong to everybody."""
        if check is not None:
            check()
        tenant = self._services.find_tenant(changes.database, changes.tenant)
        if tenant is None:
            return
        for change in changes.changes:
            if isinstance(change, RetractRule):
                self._refuse_declaration(tenant, change)

    def _check_episodes(self, tenant: Tenant, ids: list[str]) -> None:
        """Raise AlreadyExists for the id of an episode that the view does not show."""
        if not self._view or not tenant.episode_labels:
            return
        dimensions = tenant.rules.dimensions()
        for id in ids:
            known = tenant.episodes.get(id) and tenant.episode_labels.get(id)
            if known and not admits(self._view, known, dimensions):
                raise AlreadyExists(f"the id '{id}' is in use", {"episode": id})


def new_state_maker(services: Services, tenant: Tenant) -> Callable[[], Tenant]:
    """Return a function that makes an empty tenant for the state of a view."""

    def make() -> Tenant:
        scratch = services.scratch()
        scratch.need_database(tenant.database, 0)
        empty = scratch.empty_tenant(tenant.database, tenant.name)
        empty.accesses = Uncounted()
        return empty

    return make


def as_seen(delta: Delta, seen: Tenant, yield_now: YieldNow) -> Delta:
    """Return the effect of a write with the symbols of what a view shows, and without labels."""
    removed = []
    for each in delta.removed:
        rows = [
            {name: value for name, value in row.items() if name != "labels"}
            for row in paced(each.rows, yield_now, ROWS_PER_YIELD)
        ]
        keys = [tuple(seen.engine.intern_many(row["args"])) for row in rows]
        removed.append(replace(each, keys=keys, rows=rows))
    return replace(delta, removed=removed)


def bring_state(tenant: Tenant, view: Labels, seen: Tenant, yield_now: YieldNow) -> bool:
    """Bring the state of a view up to date without waiting for its readers; return True if that
    worked. The caller makes sure that the tenant does not change.
    """
    states = tenant.attached.get(ViewStates)
    return states is not None and states.bring(view, seen, yield_now)


def seen_now(tenant: Tenant, view: Labels) -> Tenant | None:
    """Return the state of a view that can be brought up to date; None if it must be copied."""
    states = tenant.attached.get(ViewStates)
    return None if states is None else states.known(view)


def busy() -> Conflict:
    """Return the error of a write whose view was always read by others."""
    return Conflict("the tenant was read and changed by other requests again and again")


class StateInUse(Outdated):
    """Raised by the check of a write: the state of its view has readers and is behind."""


def _beside_others() -> Conflict:
    return Conflict("these rules cannot be stored beside rules that the view does not show")


TRUST = "trust"
"""The dimension of levels that says how far a source is trusted."""


class ViewedReads(Queries, StandingGoalMethods):
    """Handles that see what a view admits, and label what they write."""

    def viewed(
        self: Seen,
        view: Mapping[str, Any] | None = None,
        labels: Mapping[str, Any] | None = None,
        grant: Grant = ALL,
    ) -> Seen:
        """Return a handle that reads what a view admits, and gives labels to what it writes;
        itself without either.

        `view` is like `{"trust": "user", "team": ["eng"]}`, `labels` like `{"trust": "web"}`; they
        lower what `grant` gives. Its answers are those of a knowledge base that holds only what the
        view admits. A handle on a view is narrowed further. Raises InvalidInput for what the tenant
        does not declare, Forbidden for more than is granted, or than this handle has.
        """
        if view is None and labels is None and grant == ALL:
            return self
        self.require_present()
        if isinstance(self._services, ViewServices):
            grant = Grant(self.view, self.labels)
        dimensions = self._read_tenant().rules.dimensions()
        asked = () if view is None else view_from(view, dimensions, "view")
        lower = () if labels is None else labels_from(labels, dimensions, "labels")
        seen = narrowed(grant.view, asked, dimensions)
        written = lowered(grant.labels, lower, dimensions)
        return self._seeing(self._whole_services(), seen, written)

    def with_trust(
        self,
        literal: Literal,
        options: AnswerOptions = DEFAULT_OPTIONS,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Return the answers of a goal, each with the highest level of trust at which it follows,
        as `trust`: that of the highest view that has it too.

        The goal is evaluated once for each level of `@levels trust` above that of this view. Raises
        InvalidInput if the tenant declares none, and what `infer` raises.
        """
        self.require_present()
        dimension = self._read_tenant().rules.dimensions().get(TRUST)
        if dimension is None or not dimension.is_ordered:
            raise InvalidInput.at("withTrust", "the tenant declares no @levels trust")
        rows = self.infer(literal, options, notes=notes)
        own = dict(self.view).get(TRUST, dimension.values[0])
        levels = dimension.values[dimension.values.index(str(own)) + 1 :]
        everything = options._replace(limit=None, offset=0)
        left = {_answer(row): row for row in rows}
        for level in reversed(levels):
            if not left:
                break
            narrower = self._at_level(TRUST, level)
            for each in narrower.infer(literal, everything):
                row = left.pop(_answer(each), None)
                if row is not None:
                    row[TRUST] = level
        for row in left.values():
            row[TRUST] = own
        return rows

    def _answering(self: Seen, goal: Sequence[BodyItem]) -> Seen:
        """Return this handle, or the view of the levels that the predicates of a goal require."""
        view = self._required_view(goal)
        return self if view == self.view else self._through_levels(view)

    def _through_levels(self: Seen, view: Labels) -> Seen:
        return self._seeing(self._whole_services(), view, self.labels)

    def _required_view(self, goal: Sequence[BodyItem]) -> Labels:
        """Return the view of this handle, narrowed to the levels that a goal requires.

        Raises InvalidInput for an earlier state.
        """
        view = self.view
        while (required := self._requirement(goal, view=view)) is not None:
            if self.instant is not None:
                raise InvalidInput.at("knownAt", f"{text_of(required)}, which is known of now only")
            view = tuple(sorted({**dict(view), required.dimension: required.level}.items()))
        return view

    def _requirement(
        self,
        goal: Iterable[BodyItem],
        tenant: Tenant | None = None,
        view: Labels | None = None,
    ) -> Requirement | None:
        """Return what a predicate of a goal requires beyond a view, by default this one; None if
        nothing.
        """
        if self.present is not None:  # requirements of now hold for an earlier state too
            tenant = self.present.find_tenant(self.database, self.tenant)
        elif tenant is None:
            tenant = self._whole_services().find_tenant(self.database, self.tenant)
        if tenant is None or not tenant.rules.required:
            return None
        dimensions = tenant.rules.dimensions()
        for item in goal:
            if isinstance(item, Literal):
                each = tenant.rules.required.get((item.atom.predicate, item.atom.arity))
                seen = self.view if view is None else view
                if each is not None and not meets(each, seen, dimensions):
                    return each
        return None

    def _refuse_required(
        self, goals: Iterable[BodyItem], tenant: Tenant, where: str | None = None
    ) -> None:
        """Raise InvalidInput for goals that are answered at another level than this view."""
        required = self._requirement(goals, tenant)
        if required is not None:
            problem = f"{text_of(required)}: ask it by itself, or through such a view"
            raise InvalidInput(problem) if where is None else InvalidInput.at(where, problem)

    def answering(self: Seen, atom: Atom) -> Seen:
        """Return the handle that answers goals of the predicate of an atom: this one, or a view of
        the level that the predicate requires.
        """
        return self._answering((Literal(atom),))

    def _at_level(self: Seen, dimension: str, level: str) -> Seen:
        """Return a handle on this view, narrowed to a level."""
        view = tuple(sorted({**dict(self.view), dimension: level}.items()))
        return self._seeing(self._whole_services(), view, self.labels)

    def _falls_short(self, literal: Literal, options: AnswerOptions) -> str | None:
        """Return the sentence about a goal that follows below the level it requires; None if it
        requires none, or does not follow.
        """
        required = self._requirement((literal,))
        if required is None or literal.negated:
            return None
        dimensions = self._read_tenant().rules.dimensions()
        levels = dimensions[required.dimension].values
        own = str(dict(self.view).get(required.dimension, levels[0]))
        for level in reversed(levels[levels.index(own) : levels.index(required.level)]):
            if self._at_level(required.dimension, level)._follows(literal.atom, options):
                text = print_item(literal)
                return f"{text} follows at level {level}; {required.level} is required"
        return None

    def _follows(self, atom: Atom, options: AnswerOptions) -> bool:
        """Return True if an atom has an answer in this view, without the level that it requires."""

        def evaluate(tenant: Tenant, budget: Budget) -> bool:
            reasoner = self._services.reasoner(tenant)
            return any(
                reasoner.solve_once(partition, tenant.rules.whole(partition.name), atom, budget)[1]
                for partition in self._partitions(tenant, options.scope)
            )

        return self._evaluated(evaluate, options.request_limits)

    def _labelling(self: Seen, labels: Labels) -> Seen:
        return self._seeing(self._whole_services(), self.view, labels)

    def _labelled_as(self: Seen, labels: Mapping[str, Any]) -> Seen:
        return self.viewed(labels=labels)

    def _seeing(self: Seen, services: Services, view: Labels, labels: Labels) -> Seen:
        """Return a handle on a view, which labels what it writes; `services` are those without."""
        viewed = cast("Services", ViewServices(services, labels, view))
        handle = type(self)(viewed, self.database, self.tenant, self._caller)
        handle.actor, handle.view, handle.labels = self.actor, view, labels
        return handle

    def _through(self: Seen, view: Labels, present: Tenant | None) -> Seen:
        if not view:
            return self
        dimensions = {} if present is None else present.rules.dimensions()
        services = cast("Services", ViewServices(self._services, NO_LABELS, view, dimensions))
        handle = copy(self)
        handle._services, handle.view = services, view
        return handle

    def of_view(self: Seen, view: Labels) -> Seen:
        """Return a handle that sees a view, as it is stored with a subscription.

        Raises Forbidden if the tenant does not declare it any more.
        """
        if not view:
            return self
        narrowed(view, (), self._stored_tenant().rules.dimensions())
        return self._seeing(self._whole_services(), view, NO_LABELS)

    def seeing_goal(self: Seen, id: str) -> Seen:
        """Return a handle that sees what a subscription sees; itself for an unknown one."""
        known = self._stored_tenant().subscriptions.get(id)
        return self if known is None else self.of_view(known.view)

    def check_owner(self, subscription: StoredSubscription) -> None:
        """Raise Forbidden if the key that made a subscription may not see its view any more, or
        is no key any more. The lowest level is no view until a lower one is declared.
        """
        owner, view = subscription.owner, subscription.view
        dimensions = self._stored_tenant().rules.dimensions()
        if owner and not self._whole_services().may_see(owner, view, dimensions):
            raise Forbidden("the key of this standing goal may not see its view any more")

    def _seen_in(self, tenant: Tenant, budget: Budget) -> Callable[[], Tenant]:
        if not self.view:
            return super()._seen_in(tenant, budget)
        make = new_state_maker(self._whole_services(), tenant)
        dimensions = self._stored_tenant().rules.dimensions()
        states = ViewStates(tenant, make, sys.maxsize, dimensions)
        tenant.views = states

        def go_on() -> None:
            budget.check_time()
            budget.yield_now()

        return lambda: states.state(self.view, go_on)

    def _whole_services(self) -> Services:
        """Return the services without the view of this handle."""
        services = self._services
        return services.below if isinstance(services, ViewServices) else services

    def _stored_tenant(self) -> Tenant:
        """Return the tenant itself, also where this handle reads a view of it."""
        if not isinstance(self._services, ViewServices):
            return super()._stored_tenant()
        return self._services.below.read_tenant(self.database, self.tenant)

    def _of_own_labels(self: Seen) -> Seen:
        """Return a handle that reads what all readers of what this one stores may see: a fact of a
        lower level, or of another group, is no reason to refuse it.
        """
        tenant = self._stored_tenant()
        if not tenant.label_sets:
            return self
        seen = dominating(self.labels, self.view, tenant.rules.dimensions())
        if seen == self.view:
            return self
        return self._seeing(self._whole_services(), seen, self.labels)


def _answer(row: Row) -> tuple[Any, ...]:
    """Return what makes an answer: its scope, sign and arguments."""
    return row["scope"], row["negated"], *row["args"]
