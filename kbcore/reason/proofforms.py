"""Proofs as they are shown: a tree, or a graph in which a shared lemma is written once.

Both are built level by level, so that a limit cuts far from the conclusion; what is cut is `elided`, and can be asked for by
itself. Nothing recurses along the proof.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, repeat
from typing import Any

from kbcore.reason.proof import ABSENT, ASSERTED, BUILTIN, Proof, ProofNode
from kbcore.state.facts import Row, derived_row
from kbplanner.printer import print_item
from kbplanner.terms import BodyItem, Variable

MAX_PROOF_NODES = 100_000
"""Nodes of one proof that can be asked for at most."""


@dataclass(frozen=True, slots=True)
class ProofLimits:
    """How much of a proof is shown: nodes, and rule steps below the conclusion."""

    nodes: int
    depth: int


def tree(result: Row, top: ProofNode, proof: Proof, limits: ProofLimits, goal: BodyItem) -> dict[str, Any]:
    """The proof of an answer as nested nodes; `goal` is the literal that was asked."""
    scope = result["scope"]
    shown: dict[str, Any] = {"goal": result, "step": {}, "substitution": {}}
    todo = deque([(top, shown, 0, goal)])
    proof.shown(1)
    count = 1
    while todo:
        node, into, level, item = todo.popleft()
        derived = node.instance >= 0 or node.rule is not None
        if derived and level < limits.depth:
            premises = proof.expand(node)
            if count + len(premises) <= limits.nodes and node.rule is not None:
                count += len(premises)
                proof.shown(len(premises))
                below = [{"goal": _goal_row(premise, scope), "step": {}, "substitution": {}} for premise in premises]
                into["step"] = _step("aggregate" if node.taken else "rule_application", rule=node.rule.text, below=below)
                into["step"].update(_taken(node))
                into["substitution"] = node.bindings
                todo.extend(zip(premises, below, repeat(level + 1), cycle(node.rule.rule.body), strict=False))
                continue
        into["substitution"] = _matched(item, node)
        into["step"] = _step("elided") if derived else _leaf(node)
    return {"result": result, "proof": shown}


def dag(result: Row, top: ProofNode, proof: Proof, limits: ProofLimits) -> dict[str, Any]:
    """The proof of an answer as a table of nodes; premises and root are names of nodes."""
    names = {top: "n1"}
    nodes: dict[str, Any] = {}
    truncated = False
    todo = deque([(top, 0)])
    proof.shown(1)
    while todo:
        node, level = todo.popleft()
        shown = nodes[names[node]] = _dag_node(node)
        if node.instance < 0 and node.rule is None:
            continue
        premises = proof.expand(node) if level < limits.depth else ()
        new = [premise for premise in dict.fromkeys(premises) if premise not in names]
        if level >= limits.depth or len(names) + len(new) > limits.nodes or node.rule is None:
            shown["kind"], truncated = "elided", True
            continue
        proof.shown(len(new))
        for premise in new:
            names[premise] = f"n{len(names) + 1}"
            todo.append((premise, level + 1))
        if node.taken:
            shown["kind"] = "aggregate"
            shown.update(_taken(node))
        shown["rule"] = {"id": node.rule.id, "text": node.rule.text}
        shown["bindings"] = node.bindings
        shown["premises"] = [names[premise] for premise in premises]
    about = {key: result[key] for key in ("predicate", "args", "negated", "scope", "confidence")}
    return {**about, "result": result, "proof": {"root": "n1", "truncated": truncated, "nodes": nodes}}


def _dag_node(node: ProofNode) -> dict[str, Any]:
    fact: dict[str, Any] = {"predicate": node.atom.predicate, "args": [_text(arg) for arg in node.atom.args]}
    if not node.atom.positive:
        fact["negated"] = True
    kind = "explicit_negative" if node.kind == ASSERTED and not node.atom.positive else node.kind
    shown = {"fact": fact, "kind": kind, "depth": node.depth, "premises": []}
    if node.item is not None:
        shown["text"] = print_item(node.item)
    else:
        shown["alternatives"] = node.alternatives
    return shown


def _taken(node: ProofNode) -> dict[str, Any]:
    if node.taken is None:
        return {}
    return {"text": node.taken.text, "rows": node.taken.rows, "inputs": list(node.taken.inputs)}


def _leaf(node: ProofNode) -> dict[str, Any]:
    if node.kind == ASSERTED:
        return _step("fact_match" if node.atom.positive else "explicit_negative", fact=node.row)
    step = _step("builtin" if node.kind == BUILTIN else "negation_as_failure")
    if node.item is not None:
        step["text"] = print_item(node.item)
    return step


def _step(
    kind: str, *, fact: Row | None = None, rule: str | None = None, below: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"type": kind, "fact": fact, "rule": rule, "bodyProofs": below}


def _goal_row(node: ProofNode, scope: str | None) -> Row:
    if node.row is not None:
        return node.row
    row = derived_row(node.atom, [_text(arg) for arg in node.atom.args], scope)
    if node.kind == ABSENT:
        row["negated"] = not row["negated"]
    elif node.kind == BUILTIN and node.item is not None:
        row["negated"] = bool(getattr(node.item, "negated", False))
    return row


def _text(arg: object) -> str:
    return "?_" if isinstance(arg, Variable) else str(arg)


def _matched(item: BodyItem, node: ProofNode) -> Mapping[str, str]:
    """What the variables of an atom of a body, or of the goal, stand for."""
    args = getattr(getattr(item, "atom", None), "args", ())
    return {
        str(arg): value
        for arg, value in zip(args, node.atom.args, strict=False)
        if isinstance(arg, Variable) and not arg.anonymous and isinstance(value, str)
    }
