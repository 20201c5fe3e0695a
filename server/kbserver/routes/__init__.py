"""The operations, by subject; importing a module of this package declares those of its subject.

An operation reads the body, calls one method of the core and returns the serialized outcome. The
module `every` declares all operations. A process that needs few of them starts faster if it imports
only their modules.
"""

from collections.abc import Mapping

EVERY = f"{__name__}.every"
"""The module that declares all operations."""

PATHS = {
    "agents.context": ("context/diff", "context/optimize", "context/session", "memory/context"),
    "agents.correction": ("memory/correct", "memory/purge", "memory/purges", "memory/undo"),
    "agents.episodes": ("episodes",),
    "agents.history": ("facts/history",),
    "agents.language": ("extract", "goals/suggest", "synthesize"),
    "agents.memory": (
        "memory/cleanup",
        "memory/compress",
        "memory/consolidate",
        "memory/decay",
        "memory/prioritize",
        "memory/priority",
        "memory/query",
        "memory/recall",
    ),
    "agents.user_memory": (
        "memory/add",
        "memory/facts",
        "memory/forget",
        "memory/history",
        "memory/search",
        "memory/update",
    ),
    "knowledge.facts": (
        "assert/fact",
        "assert/facts",
        "forget",
        "retract",
        "retract/pattern",
        "tell",
    ),
    "knowledge.preview": ("preview",),
    "knowledge.reason": (
        "aggregate",
        "ask",
        "execute",
        "explain",
        "goals/slow",
        "infer",
        "neighbours",
        "predicates",
        "query",
    ),
    "knowledge.receipts": ("receipt",),
    "knowledge.rule_sets": ("rulesets",),
    "knowledge.rules": ("assert/rule", "check", "retract/rule", "rules", "teach"),
    "knowledge.scopes": ("scope", "scopes"),
    "knowledge.subscriptions": ("goals",),
}
"""The beginnings of the paths of subjects, one or two segments each."""

_SUBJECTS: Mapping[str, str] = {
    path: f"{__name__}.{subject}" for subject, paths in PATHS.items() for path in paths
}


def subject_of(path: str) -> str:
    """Return the module that declares the operations of a path; EVERY for a path of no subject
    here.

    The path may have a query string.
    """
    first, _, rest = path.partition("?")[0].removeprefix("/").partition("/")
    two = f"{first}/{rest.partition('/')[0]}"
    return _SUBJECTS.get(two) or _SUBJECTS.get(first) or EVERY
