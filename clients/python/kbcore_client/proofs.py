"""The names of `kbtypes.proofs`: programs may import them from here too."""

from kbtypes.proofs import (
    MAX_INDENT_LEVELS,
    TREE,
    Premise,
    Proof,
    UnknownPredicate,
    WhyNot,
    WhyNotCandidate,
    node_text,
)

__all__ = [
    "MAX_INDENT_LEVELS",
    "TREE",
    "Premise",
    "Proof",
    "UnknownPredicate",
    "WhyNot",
    "WhyNotCandidate",
    "node_text",
]
