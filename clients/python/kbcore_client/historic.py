"""Paths of reads that take an instant; docs/generate.py writes them from the operations."""

HISTORIC = frozenset(
    {
        "/aggregate",
        "/ask",
        "/context/summary",
        "/episodes",
        "/episodes/*",
        "/explain",
        "/goals/suggest",
        "/infer",
        "/memory/context",
        "/memory/query/salient",
        "/memory/query/temporal",
        "/memory/recall",
        "/neighbours",
        "/predicates",
        "/query",
        "/rules",
        "/rulesets",
        "/scope/diff",
        "/scopes",
    }
)
"""Paths of reads that can be answered from an earlier state; `*` is any last part."""
