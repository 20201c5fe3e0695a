"""Tables of SQL databases as predicates, described by the file that SQL_PREDICATES names."""

from __future__ import annotations

from collections.abc import Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Predicate
from kbplugins.predicates_sql.databases import open_database
from kbplugins.predicates_sql.description import read_description
from kbplugins.predicates_sql.table import Table


@hookimpl
def kb_predicates(config: Config) -> Mapping[str, Predicate]:
    """Offer the tables that the file describes; nothing without one."""
    if not config.sql_predicates:
        return {}
    description = read_description(config.sql_predicates)
    databases = {name: open_database(url) for name, url in description.databases.items()}
    return {
        f"{each.name}/{len(each.columns)}": Predicate(
            each.name,
            len(each.columns),
            each.modes,
            Table(databases[each.database], each.table, each.columns).rows,
            each.pure,
        )
        for each in description.predicates
    }
