"""One name for one class: names of classes that stand in several modules are few and known."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("kbcore", "planner", "plugins", "server", "clients/python")
MAX_SHARED = 27
"""Names that stood in two modules or more when the records became one package; 169 before."""


def names_in_several_modules() -> dict[str, list[str]]:
    """The names of classes at the top level of modules, by the modules that define them."""
    modules = defaultdict(set)
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            if "node_modules" in path.parts or "build" in path.parts:
                continue
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    modules[node.name].add(str(path.relative_to(ROOT)))
    return {name: sorted(paths) for name, paths in sorted(modules.items()) if len(paths) > 1}


def test_few_class_names_stand_in_two_modules() -> None:
    shared = names_in_several_modules()
    listing = "\n".join(f"{name}: {', '.join(paths)}" for name, paths in shared.items())
    print(listing)
    assert len(shared) <= MAX_SHARED, listing


def test_a_record_of_the_core_and_the_client_is_one_class() -> None:
    import kbcore
    import kbcore_client

    both = set(kbcore.__all__) & set(kbcore_client.__all__) - {"__version__"}
    different = {name for name in both if getattr(kbcore, name) is not getattr(kbcore_client, name)}
    # An object that asks a server differs from one that evaluates here, and a proof or an
    # explanation of the core has the literals themselves, where that of the client has texts.
    assert different == {"AnswerSet", "KnowledgeBase", "Proof", "WhyNot", "WhyNotCandidate"}
    assert {"Bucket", "ContextDiff", "KBError", "StoreOutcome", "Window"} <= both - different
