"""Other engines, each given what suits it best. `find()` says which are here."""

from __future__ import annotations

from types import ModuleType


def find(names: list[str]) -> dict[str, ModuleType]:
    """The modules of the peers by the name of their column."""
    from peers import duck, sqlite, swipl

    every = {"sqlite": sqlite, "duckdb": duck, "swipl": swipl}
    return {name: every[name] for name in names}
