"""JSON forms of proofs: a tree, or a graph in which a shared lemma occurs once.

Both are built breadth first, so that a limit cuts the nodes farthest from the conclusion. A cut
node is `elided` and can be requested with a separate goal. No function recurses along the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from kbcore.proofs.facts import ABSENT, ASSERTED, BUILTIN, DERIVED, EXTERNAL, Facts
from kbcore.proofs.prover import AggregateInputs, FactProof
from kbcore.state.facts import Row, conclusion
from kbcore.state.rulebook import ParsedRule
from kbplanner.engine.proof_nodes import LEAF, Item, NodeGraph, Order, Tree
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Aggregate, BodyItem, Literal, Variable
from kbplanner.syntax.printer import print_item

MAX_PROOF_NODES = 100_000
"""Maximum number of nodes of one proof that a request may ask for."""

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
    result: Row, top: int, proof: FactProof, limits: ProofLimits, goal: BodyItem
) -> dict[str, Any]:
    """Return the proof of an answer in the requested form; `goal` is the literal of the query."""
    if limits.form == "dag":
        return dag(result, top, proof, limits)
    return tree(result, top, proof, limits, goal)


def tree(
    result: Row, top: int, proof: FactProof, limits: ProofLimits, goal: BodyItem
) -> dict[str, Any]:
    """Return the proof of an answer as nested nodes; `goal` is the literal of the query."""
    facts, scope = proof.facts, result["scope"]
    order = Order(top, limits.nodes, limits.depth, is_graph=False)
    proof.complete(order)
    for number in proof.unshaped_tests():
        facts.leaves[number] = _test_goal(facts, number, scope), _test_step(facts, number)
    parts = _tree_parts(proof, scope)
    root = order.build(parts, proof.yield_now)
    if root is None:
        args = facts.args[top]
        values = {name: args[i] for name, i in _variables(goal) if isinstance(args[i], str)}
        root = {"goal": result, "step": _root_step(proof, top), "substitution": values}
    root["goal"] = result
    return {"result": result, "proof": root}


def _tree_parts(proof: FactProof, scope: str | None) -> Tree:
    """Return the parts of the trees of a proof, completed by what was added since the last call."""
    facts, parts = proof.facts, proof.tree
    if parts is None:
        parts = proof.tree = Tree(
            facts.instances,
            facts.args,
            facts.relation_numbers,
            facts.leaves,
            [],
            [],
            proof.steps,
            [],
            [],
            {},
            {"goal": None, "step": None, "substitution": None},
            _step("elided"),
            ("goal", "step", "substitution", "fact", "bodyProofs", "args", "metadata"),
        )
    for schema in facts.relations[len(parts.conclusions) :]:
        parts.conclusions.append(conclusion(schema.predicate, schema.positive, [], scope))
        parts.matches.append(_step(_leaf_type(facts, schema)))
    for rule in proof.rules[len(parts.applications) :]:
        kind = "aggregate" if _aggregates(rule) else "rule_application"
        parts.applications.append(_step(kind, rule.text) | proof.rule_sets(rule))
        parts.items.append(tuple(map(_variables, rule.rule.body)))
    for step, inputs in islice(proof.aggregated.items(), len(parts.aggregates), None):
        parts.aggregates[step] = _aggregate_shape(inputs)
    return parts


def dag(result: Row, top: int, proof: FactProof, limits: ProofLimits) -> dict[str, Any]:
    """Return the proof of an answer as a table of nodes; premises and root are names of nodes."""
    facts = proof.facts
    order = Order(top, limits.nodes, limits.depth, is_graph=True)
    proof.complete(order)
    parts = NodeGraph(
        facts.instances,
        facts.args,
        facts.relation_numbers,
        facts.heights,
        facts.alternatives,
        [_fact(each, None) for each in facts.relations],
        [_node(_leaf_kind(facts, each)) for each in facts.relations],
        proof.steps,
        [_conclusion(rule) for rule in proof.rules],
        [{"id": rule.id, "text": rule.text} | proof.rule_sets(rule) for rule in proof.rules],
        {step: _aggregate_shape(inputs) for step, inputs in proof.aggregated.items()},
        _node("elided"),
        {number: _test_node(facts, number) for number in order.facts() if number in facts.tests},
        ("fact", "depth", "premises", "alternatives", "rule", "bindings", "args"),
    )
    nodes = order.table(parts, proof.yield_now)
    for name, number in zip(nodes, order.facts(), strict=True):
        if facts.instances[number] == LEAF and (spans := proof.quotations(number)):
            nodes[name]["evidence"] = spans
    records = zip(order.facts(), order.cut, strict=True)
    truncated = any(is_cut and facts.instances[number] != LEAF for number, is_cut in records)
    fields = {key: result[key] for key in ("predicate", "args", "negated", "scope", "confidence")}
    return {
        **fields,
        "result": result,
        "proof": {"root": "n1", "truncated": truncated, "nodes": nodes},
    }


def _fact(schema: RelationSchema, args: list[str] | None) -> dict[str, Any]:
    """Return the form of a fact in a graph."""
    fact: dict[str, Any] = {"predicate": schema.predicate, "args": args}
    return fact if schema.positive else fact | {"negated": True}


def _node(kind: str) -> dict[str, Any]:
    """Return the values of a node of a graph, in order."""
    return {"fact": None, "kind": kind, "depth": 0, "premises": None, "alternatives": 0}


def _conclusion(rule: ParsedRule) -> dict[str, Any]:
    """Return the values of the node of a conclusion of a rule, in order."""
    further = {"rule": None, "bindings": None}
    if not _aggregates(rule):
        return _node(DERIVED) | further
    return _node("aggregate") | {"text": None, "rows": None, "inputs": None} | further


def _test_node(facts: Facts, number: int) -> dict[str, Any]:
    kind, item = facts.tests[number]
    args = facts.args[number]
    fact = _fact(facts.schema(number), list(map(_text if kind == ABSENT else str, args)))
    return {"fact": fact, "kind": kind, "depth": 0, "premises": [], "text": print_item(item)}


def _aggregate_shape(inputs: AggregateInputs) -> dict[str, Any]:
    return {"text": inputs.text, "rows": inputs.rows, "inputs": list(inputs.inputs)}


def _aggregates(rule: ParsedRule) -> bool:
    return any(isinstance(arg, Aggregate) for arg in rule.rule.head.args)


def _root_step(proof: FactProof, top: int) -> dict[str, Any]:
    """Return the step of an answer that no rule concludes, or that is cut."""
    facts, kind = proof.facts, proof.facts.kind(top)
    if kind == DERIVED:
        return _step("elided")
    if kind not in (ASSERTED, EXTERNAL):
        return _test_step(facts, top)
    step = _step(_leaf_type(facts, facts.schema(top)))
    step["fact"] = facts.leaves[top]
    return step


def _leaf_type(facts: Facts, schema: RelationSchema) -> str:
    """Return the type of the step of a leaf of a relation in a tree."""
    if schema in facts.external:
        return EXTERNAL
    return "fact_match" if schema.positive else "explicit_negative"


def _leaf_kind(facts: Facts, schema: RelationSchema) -> str:
    """Return the kind of a leaf of a relation in a graph."""
    kind = _leaf_type(facts, schema)
    return ASSERTED if kind == "fact_match" else kind


def _test_step(facts: Facts, number: int) -> dict[str, Any]:
    kind, item = facts.tests[number]
    step = _step("builtin" if kind == BUILTIN else "negation_as_failure")
    step["text"] = print_item(item)
    return step


def _step(kind: str, rule: str | None = None) -> dict[str, Any]:
    return {"type": kind, "fact": None, "rule": rule, "bodyProofs": None}


def _test_goal(facts: Facts, number: int, scope: str | None) -> Row:
    """Return the row of an absence or of a builtin."""
    (kind, item), schema = facts.tests[number], facts.schema(number)
    positive = schema.positive != (kind == ABSENT or getattr(item, "negated", False))
    return conclusion(schema.predicate, positive, list(map(_text, facts.args[number])), scope)


def _text(arg: object) -> str:
    return "?_" if isinstance(arg, Variable) else str(arg)


def _variables(item: BodyItem) -> Item:
    """Return the variables of a body item of a rule, or of the goal, with their argument
    indexes.
    """
    terms = item.atom.args if isinstance(item, Literal) else ()
    return tuple(
        (str(arg), index)
        for index, arg in enumerate(terms)
        if isinstance(arg, Variable) and not arg.anonymous
    )
