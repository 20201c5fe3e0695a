"""JSON forms of proofs: a tree, or a graph in which a shared lemma occurs once.

Both are built breadth first, so that a limit cuts the nodes farthest from the conclusion. A cut
node is `elided` and can be requested with a separate goal. No function recurses along the proof.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import cycle
from typing import Any, TypeAlias

from kbcore.proofs.prover import (
    ABSENT,
    ASSERTED,
    BUILTIN,
    DERIVED,
    AggregateInputs,
    Proof,
    ProofNode,
)
from kbcore.state.facts import Row, conclusion
from kbplanner.ir.terms import BodyItem, HeadTerm, Literal, Variable
from kbplanner.syntax.printer import print_item

MAX_PROOF_NODES = 100_000
"""Maximum number of nodes of one proof that a request may ask for."""

Columns: TypeAlias = "tuple[tuple[str, int], ...]"
"""The variables of an atom with their argument indexes."""


FORMS = ("tree", "dag")
"""Proof forms: a nested tree, or a table of nodes in which a shared lemma occurs once."""


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """Form of a proof, one of FORMS, and its limits; None means the limit of the settings.

    A proof is cut at `nodes` nodes and at `depth` rule steps below the conclusion. The settings
    limit the depth of a tree only.
    """

    form: str = FORMS[0]
    nodes: int | None = None
    depth: int | None = None

    def limits(self, nodes: int, depth: int) -> ProofLimits:
        """Return the limits, with the given values of the settings where none are requested."""
        deepest = MAX_PROOF_NODES if self.form == "dag" else depth
        return ProofLimits(self.form, self.nodes or nodes, self.depth or deepest)


@dataclass(frozen=True, slots=True)
class ProofLimits:
    """Form of a proof, the maximum number of nodes, and of rule steps below the conclusion."""

    form: str
    nodes: int
    depth: int


def shaped(
    result: Row, top: ProofNode, proof: Proof, limits: ProofLimits, goal: BodyItem
) -> dict[str, Any]:
    """Return the proof of an answer in the requested form; `goal` is the literal of the query."""
    if limits.form == "dag":
        return dag(result, top, proof, limits)
    return tree(result, top, proof, limits, goal)


def tree(
    result: Row, top: ProofNode, proof: Proof, limits: ProofLimits, goal: BodyItem
) -> dict[str, Any]:
    """Return the proof of an answer as nested nodes; `goal` is the literal of the query."""
    scope, max_nodes, max_depth, expand = result["scope"], limits.nodes, limits.depth, proof.expand
    columns_by_item: dict[int, Columns] = {}
    root: dict[str, Any] = {"goal": result, "step": None, "substitution": None}
    todo: deque[tuple[ProofNode, dict[str, Any], int, BodyItem]] = deque()
    proof.shown(1)
    count = 1
    if top.kind == DERIVED:
        todo.append((top, root, 0, goal))
    else:
        root["step"], root["substitution"] = _leaf(top), _matched(goal, top, columns_by_item)
    while todo:
        node, into, level, item = todo.popleft()
        premises = expand(node) if level < max_depth else ()
        rule = node.rule
        if level >= max_depth or count + len(premises) > max_nodes or rule is None:
            into["step"], into["substitution"] = (
                _step("elided"),
                _matched(item, node, columns_by_item),
            )
            continue
        count += len(premises)
        proof.shown(len(premises))
        below: list[dict[str, Any]] = []
        for premise, body_item in zip(premises, cycle(rule.rule.body), strict=False):
            if premise.kind == DERIVED:
                row = conclusion(premise.predicate, premise.positive, list(premise.args), scope)
                below_node: dict[str, Any] = {"goal": row, "step": None, "substitution": None}
                todo.append((premise, below_node, level + 1, body_item))
            else:
                row = premise.row or _goal_row(premise, scope)
                below_node = {
                    "goal": row,
                    "step": _leaf(premise),
                    "substitution": _matched(body_item, premise, columns_by_item),
                }
            below.append(below_node)
        kind = "aggregate" if node.aggregated else "rule_application"
        into["step"] = {"type": kind, "fact": None, "rule": rule.text, "bodyProofs": below}
        if node.aggregated:
            into["step"].update(_aggregate_shape(node.aggregated))
        into["substitution"] = node.bindings
    return {"result": result, "proof": root}


def dag(result: Row, top: ProofNode, proof: Proof, limits: ProofLimits) -> dict[str, Any]:
    """Return the proof of an answer as a table of nodes; premises and root are names of nodes."""
    names = {top: "n1"}
    nodes: dict[str, Any] = {}
    truncated = False
    todo = deque([(top, 0)])
    proof.shown(1)
    while todo:
        node, level = todo.popleft()
        shape = nodes[names[node]] = _dag_node(node)
        if node.kind != DERIVED:
            continue
        premises = proof.expand(node) if level < limits.depth else ()
        new = [premise for premise in dict.fromkeys(premises) if premise not in names]
        if level >= limits.depth or len(names) + len(new) > limits.nodes or node.rule is None:
            shape["kind"], truncated = "elided", True
            continue
        proof.shown(len(new))
        for premise in new:
            names[premise] = f"n{len(names) + 1}"
            todo.append((premise, level + 1))
        if node.aggregated:
            shape["kind"] = "aggregate"
            shape.update(_aggregate_shape(node.aggregated))
        shape["rule"] = {"id": node.rule.id, "text": node.rule.text}
        shape["bindings"] = node.bindings
        shape["premises"] = [names[premise] for premise in premises]
    fields = {key: result[key] for key in ("predicate", "args", "negated", "scope", "confidence")}
    return {
        **fields,
        "result": result,
        "proof": {"root": "n1", "truncated": truncated, "nodes": nodes},
    }


def _dag_node(node: ProofNode) -> dict[str, Any]:
    kind, args = node.kind, list(map(_text, node.args)) if node.kind == ABSENT else list(node.args)
    fact: dict[str, Any] = {"predicate": node.predicate, "args": args}
    if not node.positive:
        fact["negated"] = True
        kind = "explicit_negative" if kind == ASSERTED else kind
    shape = {"fact": fact, "kind": kind, "depth": node.depth, "premises": []}
    if node.item is not None:
        shape["text"] = print_item(node.item)
    else:
        shape["alternatives"] = node.alternatives
    return shape


def _aggregate_shape(inputs: AggregateInputs) -> dict[str, Any]:
    return {"text": inputs.text, "rows": inputs.rows, "inputs": list(inputs.inputs)}


def _leaf(node: ProofNode) -> dict[str, Any]:
    if node.kind == ASSERTED:
        kind = "fact_match" if node.positive else "explicit_negative"
        return {"type": kind, "fact": node.row, "rule": None, "bodyProofs": None}
    step = _step("builtin" if node.kind == BUILTIN else "negation_as_failure")
    if node.item is not None:
        step["text"] = print_item(node.item)
    return step


def _step(kind: str) -> dict[str, Any]:
    return {"type": kind, "fact": None, "rule": None, "bodyProofs": None}


def _goal_row(node: ProofNode, scope: str | None) -> Row:
    """Return the row of an absence or of a builtin."""
    positive = node.positive
    if node.kind == ABSENT:
        positive = not positive
    elif node.kind == BUILTIN and node.item is not None:
        positive = not getattr(node.item, "negated", False)
    return conclusion(node.predicate, positive, list(map(_text, node.args)), scope)


def _text(arg: object) -> str:
    return "?_" if isinstance(arg, Variable) else str(arg)


def _matched(
    item: BodyItem, node: ProofNode, columns_by_item: dict[int, Columns]
) -> dict[str, HeadTerm]:
    """Return the values of the variables of a body atom or of the goal.

    `columns_by_item` is a cache by item id.
    """
    columns = columns_by_item.get(id(item))
    if columns is None:
        terms = item.atom.args if isinstance(item, Literal) else ()
        named = [
            (str(arg), index)
            for index, arg in enumerate(terms)
            if isinstance(arg, Variable) and not arg.anonymous
        ]
        columns = columns_by_item[id(item)] = tuple(named)
    args = node.args
    if node.kind == ABSENT:
        return {name: args[index] for name, index in columns if isinstance(args[index], str)}
    return {name: args[index] for name, index in columns}
