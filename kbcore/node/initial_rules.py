"""Initial rules of new tenants, offered by plugins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kbcore.errors import Conflict, KBError, PluginFailed
from kbcore.plug.manager import Plugins
from kbcore.state.changes import AssertRules, CatalogAction, ChangeCatalog, ChangeSet, Delta
from kbcore.state.rulebook import ParsedRule, RuleBook, stored_rule
from kbcore.state.tenant import Tenant
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import RuleStatement


def initial_rules(plugins: Plugins, database: str, tenant: str) -> tuple[ParsedRule, ...]:
    """Return the rules of `kb_rule_texts`, parsed and checked together.

    Raise PluginFailed naming the plugin.

    If the texts of several plugins contradict each other, the last plugin is named.
    """
    rules: list[ParsedRule] = []
    for plugin, text in plugins.rule_texts(database, tenant):
        try:
            statements = parse_program(text)
            if not all(isinstance(statement, RuleStatement) for statement in statements):
                raise PluginFailed("the text contains statements other than rules")
            check_statements(statements)
            rules += [
                stored_rule(statement.rule)
                for statement in statements
                if isinstance(statement, RuleStatement)
            ]
            RuleBook().check(rules)
        except KBError as error:
            raise PluginFailed(
                f"plugin {plugin} gives rules for a new tenant (kb_rule_texts) that cannot be stored: {error.message}",
                {"plugin": plugin},
            ) from error
    return tuple(rules)


class NewTenants:
    """Adds the initial rules of a tenant to its first write; `commit` is the one write path.

    `find` returns a tenant, None if it does not exist; raises UnknownDatabase.
    """

    def __init__(
        self,
        plugins: Plugins,
        find: Callable[[str, str], Tenant | None],
        commit: Callable[[ChangeSet], Delta],
    ) -> None:
        self._plugins = plugins
        self._find = find
        self._commit = commit

    def commit(self, changes: ChangeSet) -> Delta:
        """Commit a change set, with the initial rules if it creates a tenant; raise PluginFailed.

        A change set that is refused, or stores nothing, creates no tenant.
        """
        if not self._makes_tenant(changes):
            return self._commit(changes)
        rules = initial_rules(self._plugins, changes.database, changes.tenant)
        if changes.of_catalog:
            delta = self._commit(changes)
            self._teach(changes.database, changes.tenant, rules)
            return delta
        if rules:
            with suppress(_NotNew):
                return self._commit(self._with_rules(changes, rules))
        return self._commit(changes)

    def introduce(self, database: str, tenant: str) -> None:
        """Create a tenant with its initial rules, before a transaction reads it.

        Raise PluginFailed.
        """
        self._teach(database, tenant, initial_rules(self._plugins, database, tenant))

    def _makes_tenant(self, changes: ChangeSet) -> bool:
        if changes.of_catalog and changes.changes[0] != ChangeCatalog(CatalogAction.CREATE_TENANT):
            return False
        return changes.creates_tenant and self._find(changes.database, changes.tenant) is None

    def _with_rules(self, changes: ChangeSet, rules: tuple[ParsedRule, ...]) -> ChangeSet:
        """Return one change set of the initial rules and `changes`, so that both are stored or
        neither is.
        """
        taught = [
            rule
            for change in changes.changes
            if isinstance(change, AssertRules)
            for rule in change.rules
        ]

        def check() -> None:
            self._check_new(changes.database, changes.tenant)
            if changes.check is not None:
                changes.check()
            book = RuleBook()
            for rule in rules:
                book.add(rule)
            book.check(taught, yield_now=changes.yield_now)

        return replace(
            changes, changes=(AssertRules(rules), *changes.changes), check=check, depends=None
        )

    def _check_new(self, database: str, tenant: str) -> None:
        known = self._find(database, tenant)
        if known is not None and known.generation:
            raise _NotNew("the tenant exists already")

    def _teach(self, database: str, tenant: str, rules: tuple[ParsedRule, ...]) -> None:
        """Commit the rules, unless another write has created the tenant."""
        if rules:
            with suppress(_NotNew):
                check = partial(self._check_new, database, tenant)
                self._commit(ChangeSet(database, tenant, (AssertRules(rules),), check))


class _NotNew(Conflict):
    """A tenant that exists already."""
