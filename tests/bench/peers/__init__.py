"""Other engines, each given what suits it best. `find()` says which are here."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType


def find(names: Iterable[str]) -> dict[str, ModuleType]:
    """The modules of those peers that are installed, by the name of their column; a `VERSION` is
    empty where it is not.
    """
    from peers import asp, duck, sqlite, swipl

    every = {"sqlite": sqlite, "duckdb": duck, "swipl": swipl, "clingo": asp}
    return {name: every[name] for name in names}
