"""Rule sets of a knowledge base: deploy, list, compare and roll back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbcore.branching.impact import ImpactGoal
from kbcore.branching.preview import Proposal
from kbcore.errors import Conflict, InvalidInput, NotFound
from kbcore.language.dumped_sets import DumpedSet
from kbcore.language.rule_set_files import (
    ReadRules,
    RuleSetFile,
    digest_of,
    name_of,
    read_rule_set,
)
from kbcore.operations.base import TenantHandle
from kbcore.operations.evaluated_goal import KEY_NAME
from kbcore.state.argument_types import check_arguments
from kbcore.state.changes import (
    AssertFacts,
    AssertRules,
    Change,
    Declare,
    DeployRuleSet,
    Outdated,
    RetractFact,
    RetractRule,
)
from kbcore.state.deploying import is_plainly_stored, stored_with
from kbcore.state.facts import Fact
from kbcore.state.labels import NO_LABELS, Labels, admits, to_json
from kbcore.state.names import check_name
from kbcore.state.rule_sets import (
    FACT,
    ITEMS_PER_YIELD,
    RULE,
    SETS_PER_YIELD,
    TEXTS_PER_YIELD,
    ContentDifference,
    Item,
    ItemKey,
    Owners,
    RuleSets,
    SetItems,
    SetVersion,
    StoredRuleSet,
    VersionNote,
    captured_set,
    difference,
    item_key,
    item_text,
)
from kbcore.state.rulebook import ParsedInput, ParsedRule, recursion_warning, rule_shape
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.limits import text_problem
from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Literal, Rule
from kbplanner.pacing import YieldNow, paced, yielding
from kbplanner.syntax.constraints import CONTRADICTION
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.statements import Statement
from kbplanner.syntax.textform import body_from_text
from kbtypes.rule_sets import (
    ChangedFacts,
    ChangedStatement,
    Deployment,
    Impact,
    RuleSetContents,
    RuleSetDiff,
    RuleSetInfo,
    RuleSetVersion,
)

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_ATTEMPTS = 100
"""Maximum number of attempts at a deployment while other writers change the same rules and
facts. Each one fails because another deployment has succeeded."""

MAX_LISTED_FACTS = 100
"""Maximum number of facts in each list of a difference."""

MAX_MESSAGE_CHARS = 10_000
MAX_REVISION_CHARS = 256
"""Maximum lengths of what is recorded about a version."""

MAX_IMPACT_GOALS = 100
"""Maximum number of goals of one dry run."""

RULES_PER_YIELD = 1
"""Rules compared, and goals read, between two calls of `yield_now`: about a millisecond."""

MAX_CANDIDATES = 20
"""Maximum number of removed rules that are compared with an added one of their head."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The wish to store nothing, and what to say about the deployment besides its difference: with
    `impact` what it would make true and false, with the changed answers of `goals`.
    """

    impact: bool = False
    goals: tuple[ImpactGoal, ...] = ()


def dry_run_of(
    is_dry: bool, impact: bool, goals: Sequence[str], field: str, yield_now: YieldNow
) -> DryRun | None:
    """Return the wish for a dry run with the impact on goals, given as texts; None for a
    deployment.

    Goals ask for the impact as well. Raises InvalidInput that names `field` for goals.
    """
    if not is_dry:
        if impact or goals:
            raise InvalidInput.at(
                field if goals else "impact", "is for dry runs only: nothing else is compared"
            )
        return None
    if len(goals) > MAX_IMPACT_GOALS:
        raise InvalidInput.at(field, f"has more than {MAX_IMPACT_GOALS} goals")
    read = (
        ImpactGoal(goal, body_from_text(goal, f"{field}[{index}]"))
        for index, goal in enumerate(paced(goals, yield_now, RULES_PER_YIELD))
    )
    return DryRun(impact or bool(goals), tuple(read))


@dataclass(frozen=True, slots=True)
class _Target:
    """The contents that a rule set is to have, its labels, and the view through which it is
    deployed.
    """

    name: str
    scope: str | None
    items: Mapping[ItemKey, Item]
    note: VersionNote
    first_version: int | None = None
    labels: Labels = NO_LABELS
    view: Labels = NO_LABELS


@dataclass(slots=True)
class _DeploymentPlan:
    """The changes of a deployment in one state of the tenant.

    `gone` are the removed items that the view shows with no other labels.
    """

    known: StoredRuleSet | None
    version: int
    diff: ContentDifference
    changes: tuple[Change, ...] = ()
    new_rules: tuple[ParsedRule, ...] = ()
    gone: frozenset[ItemKey] = field(default_factory=frozenset)

    def removed_rules(self, scope: str | None) -> set[tuple[str | None, str]]:
        """Return scope and id of the rules that the view shows no more."""
        return {(scope, key[1]) for key in self.gone if key[0] == RULE}

    @property
    def facts(self) -> Iterator[Fact]:
        """The facts that are new or changed in the rule set."""
        for item in self.diff.new:
            if isinstance(item, Fact):
                yield item

    def proposal(self, yield_now: YieldNow) -> Proposal:
        """Return the changes of facts and rules to preview; declarations derive nothing."""
        facts, rules = list[Fact](), list[Rule]()
        retractions, rule_retractions = list[RetractFact](), list[RetractRule]()
        for change in paced(self.changes, yield_now, ITEMS_PER_YIELD):
            if isinstance(change, AssertFacts):
                facts += change.facts
            elif isinstance(change, AssertRules):
                rules += (stored.rule for stored in change.rules)
            elif isinstance(change, RetractFact):
                if (FACT, change.predicate, change.args, change.positive) in self.gone:
                    retractions.append(change)
            elif isinstance(change, RetractRule) and (RULE, change.id) in self.gone:
                rule_retractions.append(change)
        return Proposal(tuple(facts), tuple(rules), tuple(retractions), tuple(rule_retractions))


class RuleSetMethods(TenantHandle, ABC):
    """Operations of a knowledge base on rule sets.

    The abstract methods are those of other parts of a knowledge base.
    """

    @abstractmethod
    def _modes(self) -> Modes:
        """Return the modes of the predicates that plugins provide."""

    @abstractmethod
    def _rule_warnings(
        self, rules: Sequence[Rule], defined: Iterable[tuple[str, int]], yield_now: YieldNow
    ) -> tuple[list[RuleWarning], list[RuleWarning]]:
        """Return the warnings about rules."""

    @abstractmethod
    def _impact(self, proposal: Proposal, scope: str | None, goals: Sequence[ImpactGoal]) -> Impact:
        """Return what a change would make true and false, and the changed answers of goals in a
        scope.
        """

    @abstractmethod
    def _labelled_as(self, labels: Mapping[str, Any]) -> Self:
        """Return a handle like this one that stores with labels, as `viewed` does."""

    @abstractmethod
    def _labelling(self, labels: Labels) -> Self:
        """Return a handle like this one that stores with labels."""

    @abstractmethod
    def _check_intervals(self, facts: Sequence[Fact], yield_now: YieldNow) -> None:
        """Raise InvalidInput for a fact whose interval is empty."""

    def deploy(  # noqa: PLR0913  one parameter for each option of a deployment
        self,
        files: Sequence[RuleSetFile],
        *,
        name: str | None = None,
        scope: str | None = None,
        expected_version: int | None = None,
        dry_run: DryRun | None = None,
        message: str | None = None,
        revision: str | None = None,
        first_version: int | None = None,
    ) -> Deployment:
        """Replace the contents of a rule set by those of files, as one change.

        Rules, declarations and facts that the files no longer have are removed, unless another rule
        set contains them or they were also stored one by one. Without a difference no version is
        made. `name` may be missing if a file has `@module`. `expected_version` is the version that
        is in force, 0 for none. With `dry_run` nothing is stored. `first_version` is the number of
        the version if the rule set does not exist, as for one of a dump; it then replaces no other
        contents.

        The rules and facts have the labels that this handle gives. One that gives none leaves a
        rule set its labels, which never change.

        Raises RuleSyntaxError and InvalidInput for files that cannot be deployed, and Conflict if
        another version is in force (`details["version"]`), if a statement belongs to another owner
        too and cannot change, or if the rule set has other contents and `first_version` is given.
        """
        yield_now = self._deadline()
        self._check_writable(scope)
        _check_note(message, revision)
        with yielding(yield_now):
            name = name_of(files, name, None)
            note = VersionNote(digest_of(files), message, revision, KEY_NAME.get())
            items = self._items_in_force(scope, name, note.digest)
            statements: list[Statement] = []
            if items is None:
                known = self._read_tenant().attached.need(ReadRules, ReadRules).of(scope, name)
                items = read_rule_set(files, name, scope, yield_now, known, statements)
        deployer = self._deployer(scope, name)
        target = _Target(name, scope, items, note, first_version, deployer.labels, self.view)
        deployment = deployer._deploy(target, expected_version, dry_run, yield_now)
        if statements and dry_run is None:  # what is not stored must not take memory
            rules = self._read_tenant().attached.need(ReadRules, ReadRules)
            rules.put(scope, name, statements, yield_now)
        return deployment

    def deploy_dumped(self, dumped: DumpedSet) -> Deployment:
        """Deploy a rule set of a dump, with its version and labels; raises as `deploy` does, and
        as `viewed`.
        """
        labelled = self if dumped.labels is None else self._labelled_as(dumped.labels)
        return labelled.deploy(
            [RuleSetFile(f"rule set {dumped.name}", dumped.text)],
            name=dumped.name,
            scope=dumped.scope,
            message=dumped.message,
            revision=dumped.revision,
            first_version=dumped.version,
        )

    def rollback(
        self,
        name: str,
        version: int | None = None,
        *,
        scope: str | None = None,
        expected_version: int | None = None,
        message: str | None = None,
    ) -> Deployment:
        """Deploy the contents that a rule set had in an earlier version, by default the one before.

        It becomes a new version. Raises NotFound for an unknown rule set or a version that is not
        kept, and Conflict as `deploy` does.
        """
        yield_now = self._deadline()
        self._check_writable(scope)
        _check_note(message, None)
        tenant = self._read_tenant()
        with tenant.lock.read():
            known = self._known(tenant, scope, name)
        number = known.version - 1 if version is None else version
        earlier = _version(known, number)
        note = VersionNote(earlier.note.digest, message, None, KEY_NAME.get(), number)
        deployer = self._deployer(scope, name)
        items = known.items_of(number, yield_now)
        target = _Target(name, scope, items, note, None, deployer.labels, self.view)
        if expected_version is None:
            expected_version = known.version  # the contents depend on what is in force
        return deployer._deploy(target, expected_version, None, yield_now)

    def rule_sets(self, scope: str | None = ALL_SCOPES) -> list[RuleSetInfo]:
        """Return the rule sets of a scope, or of all, by scope and name."""
        self._check_scope(scope)
        yield_now = self._deadline()
        tenant = self._read_tenant()
        with tenant.lock.read():
            known = [
                each
                for each in tenant.rule_sets.all()
                if scope == ALL_SCOPES or each.scope == scope
            ]
        return [_info(each, yield_now) for each in paced(known, yield_now, SETS_PER_YIELD)]

    def rule_set(self, name: str, *, scope: str | None = None) -> RuleSetContents:
        """Return the contents of a rule set as statements. Raises NotFound."""
        yield_now = self._deadline()
        tenant = self._read_tenant()
        with tenant.lock.read():
            captured = captured_set(tenant.rule_sets, self._known(tenant, scope, name), yield_now)
        return captured.written(yield_now)

    def rule_set_versions(self, name: str, *, scope: str | None = None) -> list[RuleSetVersion]:
        """Return the kept versions of a rule set, the newest first. Raises NotFound."""
        yield_now = self._deadline()
        tenant = self._read_tenant()
        with tenant.lock.read():
            versions = self._known(tenant, scope, name).versions
        return [_row(each, yield_now) for each in reversed(versions)]

    def rule_set_diff(
        self, name: str, before: int, after: int, *, scope: str | None = None
    ) -> RuleSetDiff:
        """Return the difference between two versions of a rule set; 0 is the empty one.

        Raises NotFound for a version that is not kept.
        """
        yield_now = self._deadline()
        tenant = self._read_tenant()
        with tenant.lock.read():
            known = self._known(tenant, scope, name)
        old, new = (_contents(known, number, yield_now) for number in (before, after))
        return RuleSetDiff(name, scope, *_shown(difference(old, new, yield_now), yield_now))

    # -- inside ------------------------------------------------------------------------------------

    def _deployer(self, scope: str | None, name: str) -> Self:
        """Return the handle that deploys a rule set: this one, or one with the labels of the rule
        set.

        Raises InvalidInput if the view does not admit these labels, and Conflict for a name that is
        in use, or has other labels.
        """
        tenant = self._stored_tenant()
        with tenant.lock.read():
            known = tenant.rule_sets.get(scope, name)
            dimensions = tenant.rules.dimensions()
        if not admits(self.view, self.labels, dimensions):
            problem = "a rule set is deployed through a view that admits its labels"
            raise InvalidInput.at("labels", problem)
        if known is None or known.labels == self.labels:
            return self
        if not admits(self.view, known.labels, dimensions):
            raise Conflict(f"the name '{name}' is in use", {"name": name})
        if self.labels:
            raise Conflict(
                f"the rule set '{name}' has other labels, which stay; deploy it without labels, or"
                " under another name",
                {"name": name, "labels": to_json(known.labels)},
            )
        return self._labelling(known.labels)

    def _split_definitions(
        self, target: _Target, plan: _DeploymentPlan, yield_now: YieldNow
    ) -> Iterator[RuleWarning]:
        """Yield a warning for each predicate with new rules that other rule sets have rules of."""
        tenant = self._read_tenant()
        heads = dict.fromkeys(_signature(each.rule.head) for each in plan.new_rules)
        with tenant.lock.read():
            sets = set_heads(tenant.rule_sets, target.scope, yield_now)
        for name, arity in heads:
            others = sorted(sets.get((name, arity), set()) - {target.name})
            if others and name != CONTRADICTION:
                message = f"rules of {name}/{arity} are also in the rule sets {', '.join(others)}"
                yield RuleWarning("split-definition", message)

    def _items_in_force(
        self, scope: str | None, name: str, digest: str
    ) -> Mapping[ItemKey, Item] | None:
        """Return the items of a rule set if they were read from files with this digest."""
        tenant = self._read_tenant()
        with tenant.lock.read():
            known = tenant.rule_sets.get(scope, name)
            if known is None or not known.is_whole:
                return None
            note = known.versions[-1].note
            is_from_files = note.digest == digest and note.rolled_back_to is None
            return known.items if is_from_files else None

    def _known(self, tenant: Tenant, scope: str | None, name: str) -> StoredRuleSet:
        self._check_scope(scope, tenant)
        known = tenant.rule_sets.get(scope, check_name("name", name))
        if known is None:
            raise NotFound(f"no rule set '{name}'", {"name": name, "scope": scope})
        return known

    def _deploy(
        self,
        target: _Target,
        expected_version: int | None,
        dry_run: DryRun | None,
        yield_now: YieldNow,
    ) -> Deployment:
        for _ in range(MAX_ATTEMPTS):
            tenant = self._stored_tenant()
            with tenant.lock.read():
                state = tenant.serial, tenant.generation
                plan = _plan(tenant, target, expected_version, yield_now)
            try:
                return self._carry_out(target, plan, state, dry_run, yield_now)
            except Outdated:
                continue
        raise Conflict(
            "others change the same rules and facts too often; try again", {"reason": "busy"}
        )

    def _carry_out(
        self,
        target: _Target,
        plan: _DeploymentPlan,
        state: tuple[int, int],
        dry_run: DryRun | None,
        yield_now: YieldNow,
    ) -> Deployment:
        """Check a plan and commit it; raise Outdated if the state has changed so that another plan
        is needed.
        """
        rules = [stored.rule for stored in plan.new_rules]
        facts = list(paced(plan.facts, yield_now))
        defined = [(fact.predicate, len(fact.args)) for fact in paced(facts, yield_now)]
        inputs = [
            (each.declaration.predicate, each.declaration.arity)
            for each in paced(plan.diff.new, yield_now)
            if isinstance(each, ParsedInput)
        ]
        warnings, later = self._rule_warnings(rules, [*defined, *inputs], yield_now)
        warnings += self._split_definitions(target, plan, yield_now)
        self._check_intervals(facts, yield_now)
        if self._services.predicates is not None:
            heads = ((r.head.predicate, r.head.arity) for r in rules if r.head.positive)
            self._services.predicates.check_new((*heads, *defined))
        cycles: list[tuple[str, ...]] = []

        def check() -> None:
            stored, tenant = self._stored_tenant(), self._read_tenant()
            if (stored.serial, stored.generation) != state:
                with stored.lock.read():
                    now = _plan(stored, target, None, yield_now)
                if now.version != plan.version or not _are_equal(
                    now.changes, plan.changes, yield_now
                ):
                    raise Outdated("what the rule set contains has changed")
            cycles[:] = tenant.rules.check(
                plan.new_rules, self._modes(), yield_now, plan.removed_rules(target.scope)
            )

        commit = impact = None
        if dry_run is not None or not plan.diff:
            check()
            tenant = self._read_tenant()
            check_arguments(tenant, plan.changes, self.clock.now_ms(), yield_now)
            if dry_run is not None and dry_run.impact:
                impact = self._impact_of(target, plan, dry_run.goals, yield_now)
        else:
            commit = self._commit(plan.changes, check, yield_now=yield_now).seq
            warnings += self._read_tenant().rules.endless(plan.new_rules, yield_now)
        warnings += [
            RuleWarning("negative-recursion", recursion_warning(cycle)) for cycle in cycles
        ]
        listed = _shown(plan.diff, yield_now)
        version = plan.version if plan.diff else plan.version - 1
        texts = [each.text for each in (*warnings, *later)]
        return Deployment(target.name, target.scope, *listed, version, commit, texts, impact)

    def _impact_of(
        self,
        target: _Target,
        plan: _DeploymentPlan,
        goals: Sequence[ImpactGoal],
        yield_now: YieldNow,
    ) -> Impact:
        """Return the impact of a plan; raises Outdated if a rule that it removes is gone."""
        try:
            return self._impact(plan.proposal(yield_now), target.scope, goals)
        except NotFound as error:
            raise Outdated("a rule of the set was removed") from error


def set_heads(
    sets: RuleSets, scope: str | None, yield_now: YieldNow
) -> dict[tuple[str, int], set[str]]:
    """Return the names of the rule sets of a scope with rules of each predicate."""
    heads: dict[tuple[str, int], set[str]] = {}
    for rule_set in sets.all():
        if rule_set.scope == scope:
            for item in paced(rule_set.items.values(), yield_now, ITEMS_PER_YIELD):
                if isinstance(item, ParsedRule):
                    heads.setdefault(_signature(item.rule.head), set()).add(rule_set.name)
    return heads


def _signature(head: Atom) -> tuple[str, int]:
    return head.predicate, head.arity


def _plan(
    tenant: Tenant, target: _Target, expected_version: int | None, yield_now: YieldNow
) -> _DeploymentPlan:
    """Return what a deployment changes in a tenant; the caller holds its read lock.

    Raises Conflict if another version is in force, or a statement with another owner would change,
    and InvalidInput for declarations with labels or through a view.
    """
    scope, sets = target.scope, tenant.rule_sets
    known = sets.get(scope, target.name)
    if known is not None and known.labels != target.labels:
        raise Conflict(f"the name '{target.name}' is in use", {"name": target.name})
    version = 0 if known is None else known.version
    if expected_version not in (None, version):
        raise Conflict(
            f"the rule set '{target.name}' has version {version}, not {expected_version}",
            {"version": version, "name": target.name},
        )
    diff = difference({} if known is None else known.items, target.items, yield_now)
    plan = _DeploymentPlan(known, version + 1, diff)
    if target.first_version is not None:
        if known is not None and diff:
            raise Conflict(
                f"the rule set '{target.name}' has version {version} with other contents; deploy it"
                " to replace them",
                {"version": version, "name": target.name},
            )
        if known is None:
            plan.version = target.first_version
    if not diff:
        if known is None:
            raise InvalidInput.at("files", "have no rule, declaration or fact")
        return plan
    if target.labels or target.view:
        _refuse_declarations(target, diff, yield_now)
    _check_other_owners(tenant, target, diff, yield_now)
    stored = SetItems.of(diff.new, yield_now)
    facts = tuple(_facts_to_store(tenant, target, diff, yield_now))
    removed = SetItems.of(_obsolete(tenant, target, diff, yield_now), yield_now)
    deployed = DeployRuleSet(
        target.name,
        scope,
        plan.version,
        target.note,
        stored.rules,
        stored.declarations,
        stored.facts,
        tuple(map(item_key, paced(diff.removed, yield_now))),
    )
    plan.new_rules = stored.rules
    plan.gone = frozenset(_gone(tenant, target, removed, yield_now))
    plan.changes = (
        deployed,
        *(RetractRule(each.id, scope) for each in (*removed.rules, *removed.declarations)),
        *((AssertRules(stored.rules),) if stored.rules else ()),
        *(
            (Declare(tuple(d.declaration for d in stored.declarations)),)
            if stored.declarations
            else ()
        ),
        *(
            RetractFact(f.predicate, f.args, f.positive, scope)
            for f in paced(removed.facts, yield_now)
        ),
        *((AssertFacts(facts),) if facts else ()),
    )
    return plan


def _refuse_declarations(target: _Target, diff: ContentDifference, yield_now: YieldNow) -> None:
    """Raise InvalidInput for a difference in declarations."""
    for item in paced((*diff.new, *diff.removed), yield_now, ITEMS_PER_YIELD):
        if not isinstance(item, Fact | ParsedRule):
            raise InvalidInput.at(
                "labels" if target.labels else "view",
                f"a rule set has declarations only without: {item_text(item)} belongs to everybody",
            )


def _gone(
    tenant: Tenant, target: _Target, removed: SetItems, yield_now: YieldNow
) -> Iterator[ItemKey]:
    """Yield the removed items that the view of a deployment shows with no other labels."""
    dimensions = tenant.rules.dimensions()
    for item in paced(removed, yield_now, ITEMS_PER_YIELD):
        others = (each for each in stored_with(tenant, item) if each != target.labels)
        if not any(admits(target.view, each, dimensions) for each in others):
            yield item_key(item)


def _check_other_owners(
    tenant: Tenant, target: _Target, diff: ContentDifference, yield_now: YieldNow
) -> None:
    """Raise Conflict if a rule or a declaration with another owner would change."""
    scope, sets = target.scope, tenant.rule_sets
    for _, new in diff.changed:
        if not isinstance(new, Fact):
            _check_owners(target, new, sets.owners_with(scope, item_key(new), target.labels))
    for item in paced(diff.added, yield_now, ITEMS_PER_YIELD):
        if isinstance(item, Fact | ParsedRule):
            continue
        declared = tenant.rules.declaration(scope, item.id)
        if declared is not None and declared.text != item.text:
            names = sets.sets_of(scope, item_key(item))
            _check_owners(target, item, frozenset(names))


def _obsolete(
    tenant: Tenant, target: _Target, diff: ContentDifference, yield_now: YieldNow
) -> Iterator[Item]:
    """Yield what a deployment retracts: removed items without another owner, and the previous
    texts of changed rules.
    """
    for item in paced(diff.removed, yield_now, ITEMS_PER_YIELD):
        owners = tenant.rule_sets.owners_with(target.scope, item_key(item), target.labels)
        if not owners - {target.name}:
            yield item
    for old, new in diff.changed:
        if not isinstance(new, Fact) and isinstance(old, ParsedRule):
            yield old


def _facts_to_store(
    tenant: Tenant, target: _Target, diff: ContentDifference, yield_now: YieldNow
) -> Iterator[Fact]:
    """Yield the facts that a deployment asserts: those not stored as they are, and changed ones."""
    for item in paced(diff.added, yield_now, ITEMS_PER_YIELD):
        if isinstance(item, Fact) and not is_plainly_stored(tenant, item, target.labels):
            yield item
    for _, new in diff.changed:
        if isinstance(new, Fact):
            yield new


def _are_equal(now: Sequence[Change], before: Sequence[Change], yield_now: YieldNow) -> bool:
    """Return True if two lists of changes are equal."""
    if len(now) != len(before):
        return False
    pairs = paced(zip(now, before, strict=True), yield_now, ITEMS_PER_YIELD)
    return all(first == second for first, second in pairs)


def _check_owners(target: _Target, item: Item, owners: Owners) -> None:
    """Raise Conflict if a statement that would change has another owner."""
    others = owners - {target.name}
    if others:
        whose = "was also stored by hand; retract it there first"
        if names := sorted(owner for owner in others if isinstance(owner, str)):
            whose = f"is in the rule set '{names[-1]}' too; change both, or give it another name"
        raise Conflict(f"{item_text(item)} {whose}", {"statement": item_text(item)})


def _check_note(message: str | None, revision: str | None) -> None:
    for name, text, longest in (
        ("message", message, MAX_MESSAGE_CHARS),
        ("revision", revision, MAX_REVISION_CHARS),
    ):
        if text is None:
            continue
        if not isinstance(text, str) or len(text) > longest:
            raise InvalidInput.at(name, f"must be a text of at most {longest} characters")
        if problem := text_problem(text):
            raise InvalidInput.at(name, problem)


def _version(known: StoredRuleSet, number: int) -> SetVersion:
    version = known.find(number)
    if version is None:
        first = known.versions[0].number
        raise NotFound(
            f"the rule set '{known.name}' has no version {number}; kept are {first} to"
            f" {known.version}",
            {"name": known.name, "version": number, "first": first, "last": known.version},
        )
    return version


def _contents(known: StoredRuleSet, number: int, yield_now: YieldNow) -> Mapping[ItemKey, Item]:
    if number == 0 and known.versions[0].number == 1:
        return {}
    return known.items_of(_version(known, number).number, yield_now)


def _info(known: StoredRuleSet, yield_now: YieldNow) -> RuleSetInfo:
    items = SetItems.of(known.items.values(), yield_now)
    return RuleSetInfo(
        known.name,
        known.scope,
        known.version,
        known.versions[-1].at,
        len(items.rules),
        len(items.declarations),
        len(items.facts),
        to_json(known.labels) or None,
    )


def _row(version: SetVersion, yield_now: YieldNow) -> RuleSetVersion:
    added, removed = (
        {item_key(item): item for item in paced(items, yield_now, ITEMS_PER_YIELD)}
        for items in (version.added, version.removed)
    )
    only_added = [item for key, item in added.items() if key not in removed]
    only_removed = [item for key, item in removed.items() if key not in added]
    edited = sum(1 for _ in edited_rules(only_added, only_removed, yield_now))
    note = version.note
    return RuleSetVersion(
        version.number,
        version.at,
        note.digest,
        note.message,
        note.revision,
        note.key,
        note.rolled_back_to,
        len(only_added) - edited,
        len(added) - len(only_added) + edited,
        len(only_removed) - edited,
    )


def _shown(
    diff: ContentDifference, yield_now: YieldNow
) -> tuple[list[str], list[ChangedStatement], list[str], ChangedFacts]:
    """Return a difference as the members of a record.

    A removed rule and an added one that it was edited to are one changed rule.
    """
    added = [item for item in diff.added if not isinstance(item, Fact)]
    removed = [item for item in diff.removed if not isinstance(item, Fact)]
    changed = [pair for pair in diff.changed if not isinstance(pair[1], Fact)]
    edited = list(edited_rules(added, removed, yield_now))
    before, after = ({id(pair[side]) for pair in edited} for side in (0, 1))
    changed += edited
    return (
        [
            item_text(item)
            for item in paced(added, yield_now, TEXTS_PER_YIELD)
            if id(item) not in after
        ],
        [_changed(*pair) for pair in paced(changed, yield_now, TEXTS_PER_YIELD)],
        [
            item_text(item)
            for item in paced(removed, yield_now, TEXTS_PER_YIELD)
            if id(item) not in before
        ],
        _changed_facts(diff, yield_now),
    )


def _changed_facts(diff: ContentDifference, yield_now: YieldNow) -> ChangedFacts:
    """Return the facts of a difference, with complete counts and the first of them as texts."""
    added = [item for item in diff.added if isinstance(item, Fact)]
    removed = [item for item in diff.removed if isinstance(item, Fact)]
    changed = [pair for pair in diff.changed if isinstance(pair[1], Fact)]
    return ChangedFacts(
        [item_text(item) for item in paced(added[:MAX_LISTED_FACTS], yield_now, 1)],
        [_changed(*pair) for pair in paced(changed[:MAX_LISTED_FACTS], yield_now, 1)],
        [item_text(item) for item in paced(removed[:MAX_LISTED_FACTS], yield_now, 1)],
        len(added),
        len(changed),
        len(removed),
    )


def edited_rules(
    added: Iterable[Item], removed: Iterable[Item], yield_now: YieldNow
) -> Iterator[tuple[ParsedRule, ParsedRule]]:
    """Yield pairs of a removed and an added rule without a name, of which one was edited to the
    other: first those that differ in constants only, then those of one head with the most
    predicates in common, in the order of the added rules.
    """
    waiting: dict[str, list[ParsedRule]] = {}
    for item in paced(removed, yield_now, RULES_PER_YIELD):
        if isinstance(item, ParsedRule) and item.rule.name is None:
            waiting.setdefault(rule_shape(item.rule), []).append(item)
    rest: list[ParsedRule] = []
    for item in paced(added, yield_now, RULES_PER_YIELD):
        if isinstance(item, ParsedRule) and item.rule.name is None:
            same = waiting.get(rule_shape(item.rule))
            if same:
                yield same.pop(0), item
            else:
                rest.append(item)
    by_head: dict[RelationSchema, list[ParsedRule]] = {}
    for rules in paced(waiting.values(), yield_now, RULES_PER_YIELD):
        for rule in rules:
            by_head.setdefault(_head_of(rule), []).append(rule)
    for rule in paced(rest, yield_now, RULES_PER_YIELD):
        candidates = by_head.get(_head_of(rule))
        if candidates:
            read = _read_by(rule)
            best = max(candidates[:MAX_CANDIDATES], key=lambda each: len(read & _read_by(each)))
            if read & _read_by(best) or not (read or _read_by(best)):
                candidates.remove(best)
                yield best, rule


def _head_of(rule: ParsedRule) -> RelationSchema:
    head = rule.rule.head
    return RelationSchema(head.predicate, head.arity, head.positive)


def _read_by(rule: ParsedRule) -> frozenset[str]:
    """Return the predicates in the body of a rule."""
    literals = (item for item in rule.rule.body if isinstance(item, Literal))
    return frozenset(literal.atom.predicate for literal in literals)


def _changed(before: Item, after: Item) -> ChangedStatement:
    return ChangedStatement(item_text(before), item_text(after))
