"""The file that describes tables as predicates.

{
  "databases": {"shop": "sqlite:/srv/shop.db"},
  "predicates": {
    "price": {"database": "shop", "table": "prices", "columns": ["item", "cents"],
              "modes": [["in", "out"]], "pure": true}
  }
}

Without `modes` each column by itself can be the input. `pure` is false where it is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbcore.errors import ConfigError

_KEYS = {"database", "table", "columns", "modes", "pure"}


@dataclass(frozen=True, slots=True)
class TablePredicate:
    """A predicate over columns of a table or view, whose name may have a schema before a dot."""

    name: str
    database: str
    table: str
    columns: tuple[str, ...]
    modes: tuple[tuple[str, ...], ...]
    pure: bool


@dataclass(frozen=True, slots=True)
class Description:
    """The URLs of databases by name, and the predicates over their tables."""

    databases: Mapping[str, str]
    predicates: tuple[TablePredicate, ...]


def read_description(path: str) -> Description:
    """Read a file; raises ConfigError naming what is wrong in it."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"SQL_PREDICATES: cannot read {path!r}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"SQL_PREDICATES: {path!r} is no JSON: {error}") from error
    databases = _object(content, "databases", "the file")
    for name, url in databases.items():
        if not isinstance(url, str):
            raise _wrong(f"the URL of database {name!r} must be a text")
    predicates = _object(content, "predicates", "the file")
    return Description(
        databases, tuple(_predicate(name, each, databases) for name, each in predicates.items())
    )


def _predicate(name: str, value: Any, databases: Mapping[str, str]) -> TablePredicate:
    where = f"predicate {name!r}"
    if not isinstance(value, dict) or not set(value) <= _KEYS:
        raise _wrong(f"{where} must be an object with the keys {', '.join(sorted(_KEYS))}")
    if value.get("database") not in databases:
        raise _wrong(f"{where} names no database of the file")
    columns, table, pure = value.get("columns"), value.get("table"), value.get("pure", False)
    if not _texts(columns) or not columns:
        raise _wrong(f"{where}: columns must be a list of names")
    if not isinstance(table, str) or not table:
        raise _wrong(f"{where}: table must be the name of a table or view")
    if not isinstance(pure, bool):
        raise _wrong(f"{where}: pure must be true or false")
    modes = value.get("modes", _single_inputs(len(columns)))
    if not isinstance(modes, list) or not all(map(_texts, modes)):
        raise _wrong(f'{where}: modes must be a list of lists of "in" and "out"')
    return TablePredicate(
        name, value["database"], table, tuple(columns), tuple(map(tuple, modes)), pure
    )


def _single_inputs(width: int) -> list[list[str]]:
    """Return the modes in which one column is the input."""
    return [["in" if index == own else "out" for index in range(width)] for own in range(width)]


def _object(content: Any, key: str, where: str) -> dict[str, Any]:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, dict):
        raise _wrong(f"{where} must be an object with an object {key!r}")
    return value


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _wrong(problem: str) -> ConfigError:
    return ConfigError(f"SQL_PREDICATES: {problem}")
