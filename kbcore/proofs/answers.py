"""Why the answers of a goal hold: its rows, each with its proof in the form asked for."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from kbcore.proofs.prover import ABSENT, Proof, ProofNode, body_prover, goal_prover
from kbcore.proofs.shapes import ProofLimits, dag, tree
from kbcore.reason.ask import Reasoner, body_variables
from kbcore.reason.budget import Budget
from kbcore.state.facts import Row, derived_row
from kbcore.state.partition import Partition
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.passes.check import counterpart

FORMS = ("tree", "dag")
"""A nested tree, or a table of nodes that writes a shared lemma once."""


def proofs(
    reasoner: Reasoner,
    partition: Partition,
    literal: Literal,
    rows: Sequence[Row],
    form: str,
    limits: ProofLimits,
    budget: Budget,
    as_of: int | None,
) -> Generator[dict[str, Any]]:
    """The proofs of rows that `reasoner.rows` gave for a literal in a partition, in their order; raises BudgetExceeded."""
    prover = goal_prover(reasoner, partition, budget, as_of)
    atom = literal.atom
    if rows and rows[0]["metadata"].get("basis") == "absence":
        absent = ProofNode(ABSENT, atom.predicate, atom.args, atom.positive, item=literal)
        yield _shown(rows[0], absent, prover.nothing(), form, limits, literal)
        return
    asked = counterpart(literal) if literal.negated else atom
    schema = RelationSchema(asked.predicate, asked.arity, asked.positive)
    with closing(prover.proofs(schema, [row["args"] for row in rows])) as found:
        for row, (top, proof) in zip(rows, found, strict=True):
            yield _shown(row, top, proof, form, limits, literal)


def body_proofs(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    limit: int | None,
    limits: ProofLimits,
    budget: Budget,
    as_of: int | None,
) -> Generator[dict[str, Any]]:
    """The proof trees of the first answers of a goal of several literals: one step with a premise for each literal.

    Their rows have the values of its variables as arguments, in order of appearance; the step has them as substitution.
    """
    variables = body_variables(body)
    rows, count = reasoner.solve_body(partition, body, variables, budget, as_of)
    count = count if limit is None else min(count, limit)
    budget.check_answers(count)
    width = len(variables)
    texts = reasoner.tenant.engine.texts(rows[: count * width])
    answers = [texts[i * width : (i + 1) * width] for i in range(count)]
    prover, head = body_prover(reasoner, partition, body, variables, budget, as_of)
    schema = RelationSchema(head.predicate, head.arity)
    with closing(prover.proofs(schema, answers)) as found:
        for args, (top, proof) in zip(answers, found, strict=True):
            yield tree(derived_row(head, args, partition.name), top, proof, limits, Literal(head))


def _shown(
    row: Row, top: ProofNode, proof: Proof, form: str, limits: ProofLimits, goal: Literal
) -> dict[str, Any]:
    return dag(row, top, proof, limits) if form == "dag" else tree(row, top, proof, limits, goal)
