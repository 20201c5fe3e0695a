"""Names of the files of facts: one table for each predicate, named by it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from kbcore.errors import InvalidInput
from kbplanner.ir.terms import Atom, Variable

PARQUET = ".parquet"

_ARITY = re.compile(r"(.*)\.(0|[1-9][0-9]?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableName:
    """The predicate and sign of a table of facts, and their arity if the file name has it.

    The text is the file name without its ending: `edge`, `edge.2` with the arity, `~edge` for
    explicit negatives. Characters that it cannot have are written as in URLs, `%2F`.
    """

    predicate: str
    positive: bool = True
    arity: int | None = None

    @classmethod
    def of(cls, text: str) -> TableName:
        """Return the table that a file name without its ending names."""
        name = text.removeprefix("~")
        numbered = _ARITY.fullmatch(name)
        stem, arity = (numbered[1], int(numbered[2])) if numbered else (name, None)
        return cls(unquote(stem), name == text, arity)

    def __str__(self) -> str:
        name = "".join(
            f"%{ord(char):02X}" if char in "%/" or ord(char) < 32 else char
            for char in self.predicate
        )
        if name.startswith((".", "~")):
            name = f"%{ord(name[0]):02X}{name[1:]}"
        if numbered := _ARITY.fullmatch(name):
            name = f"{numbered[1]}%2E{numbered[2]}"
        arity = "" if self.arity is None else f".{self.arity}"
        return f"{'' if self.positive else '~'}{name}{arity}"


def table_files(folder: Path, endings: Collection[str]) -> dict[TableName, tuple[Path, ...]]:
    """Return the files of facts in a folder: `p.parquet`, or all files in the folder `p`.

    `endings` are those of the files, with their dot; other files and hidden ones are left out.
    Raises InvalidInput if the folder does not exist, or for two tables of one predicate.
    """
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: this folder does not exist")
    files: dict[TableName, tuple[Path, ...]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            paths = tuple(file for file in sorted(path.iterdir()) if _is_table(file, endings))
            name = path.name
        elif _is_table(path, endings):
            paths, name = (path,), path.stem
        else:
            continue
        if not paths:
            continue
        table = TableName.of(name)
        if table in files:
            other = files[table][0]
            other = other if other.parent == folder else other.parent
            raise InvalidInput(f"{path}: {other} has facts of this predicate too")
        files[table] = paths
    return files


def _is_table(path: Path, endings: Collection[str]) -> bool:
    return path.suffix in endings and not path.name.startswith(".")


def column_names(goal: Atom) -> list[str]:
    """Return the column names of answers: the variables, `arg1`, ... for other arguments and for
    names that occur before. Names that differ in case only count as the same.
    """
    names: list[str] = []
    for index, arg in enumerate(goal.args, 1):
        name = arg.name if isinstance(arg, Variable) and not arg.anonymous else f"arg{index}"
        while name.casefold() in {other.casefold() for other in names}:
            name = f"arg{index}" if name != f"arg{index}" else f"{name}_"
        names.append(name)
    return names
