"""The rules a new tenant starts with, where plugins have some."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kbcore.errors import Conflict, KBError, PluginFailed
from kbcore.plug.manager import Plugins
from kbcore.state.catalog import Catalog
from kbcore.state.changes import AssertRules, CatalogAction, ChangeCatalog, ChangeSet, Delta
from kbcore.state.rulebook import RuleBook, stored_rule
from kbplanner.parser import parse_program
from kbplanner.passes.check import check_statements
from kbplanner.statements import RuleStatement
from kbplanner.terms import Rule


def initial_rules(plugins: Plugins, database: str, tenant: str) -> tuple[Rule, ...]:
    """What `kb_rule_texts` gives, read and checked together; raises PluginFailed naming the plugin whose text it is.

    Where the texts of several plugins do not go together, the last of them is named.
    """
    rules: list[Rule] = []
    for plugin, text in plugins.rule_texts(database, tenant):
        try:
            statements = parse_program(text)
            if not all(isinstance(statement, RuleStatement) for statement in statements):
                raise PluginFailed("there is something else than rules in it")
            check_statements(statements)
            rules += [statement.rule for statement in statements if isinstance(statement, RuleStatement)]
            RuleBook().check(tuple(map(stored_rule, rules)))
        except KBError as error:
            raise PluginFailed(
                f"plugin {plugin} gives rules for a new tenant (kb_rule_texts) that cannot be taken: {error.message}",
                {"plugin": plugin},
            ) from error
    return tuple(rules)


class NewTenants:
    """Teaches tenants the rules they start with, just before their first write; `commit` is the one write path."""

    def __init__(self, plugins: Plugins, catalog: Catalog, commit: Callable[[ChangeSet], Delta]) -> None:
        self._plugins = plugins
        self._catalog = catalog
        self._commit = commit

    def commit(self, changes: ChangeSet) -> Delta:
        """Commit a change set, with the rules beside it where it makes a tenant; raises PluginFailed."""
        if not self._makes_tenant(changes):
            return self._commit(changes)
        rules = initial_rules(self._plugins, changes.database, changes.tenant)
        if not changes.of_catalog:
            self._teach(changes.database, changes.tenant, rules)
            return self._commit(changes)
        delta = self._commit(changes)
        self._teach(changes.database, changes.tenant, rules)
        return delta

    def introduce(self, database: str, tenant: str) -> None:
        """Make a tenant that has its rules, before anything rests on what is there; raises PluginFailed."""
        self._teach(database, tenant, initial_rules(self._plugins, database, tenant))

    def _makes_tenant(self, changes: ChangeSet) -> bool:
        if changes.of_catalog and changes.changes[0] != ChangeCatalog(CatalogAction.CREATE_TENANT):
            return False
        return self._catalog.tenant(changes.database, changes.tenant) is None

    def _teach(self, database: str, tenant: str, rules: tuple[Rule, ...]) -> None:
        """Commit the rules, unless somebody else was quicker."""

        def check() -> None:
            known = self._catalog.find(database, tenant)
            if known is not None and known.generation:
                raise _NotNew("it is there")

        if rules:
            with suppress(_NotNew):
                self._commit(ChangeSet(database, tenant, (AssertRules(rules),), check))


class _NotNew(Conflict):
    """A tenant that is there already."""
