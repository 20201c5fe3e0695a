"""Answer rows with their proofs, as a tree or as a table of nodes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from kbcore.proofs.facts import ABSENT
from kbcore.proofs.prover import body_prover, goal_prover
from kbcore.proofs.shapes import ProofLimits, shaped
from kbcore.reason.ask import Reasoner, body_variables
from kbcore.reason.budget import Budget
from kbcore.reason.goal_spans import describe_proof
from kbcore.reason.options import GoalOptions
from kbcore.state.facts import Row, derived_row
from kbcore.state.partition import Partition
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.passes.check import counterpart


def proofs(
    reasoner: Reasoner,
    partition: Partition,
    literal: Literal,
    rows: Sequence[Row],
    limits: ProofLimits,
    budget: Budget,
    as_of: int | None,
) -> Generator[dict[str, Any]]:
    """Yield the proofs of the rows that `reasoner.rows` returned for a literal, in order.

    Raises BudgetExceeded.
    """
    prover = goal_prover(reasoner, partition, budget, as_of, rows=limits.form != "dag")
    atom = literal.atom
    if rows and rows[0]["metadata"].get("basis") == "absence":
        proof = prover.without_rules()
        yield shaped(rows[0], proof.test(ABSENT, atom, literal), proof, limits, literal)
        return
    positive_atom = counterpart(literal) if literal.negated else atom
    schema = RelationSchema(positive_atom.predicate, positive_atom.arity, positive_atom.positive)
    with closing(prover.proofs(schema, [row["args"] for row in rows])) as proved_facts:
        for row, (top, proof) in zip(rows, proved_facts, strict=True):
            if budget.span is not None:
                describe_proof(budget, proof.facts.heights[top])
            yield shaped(row, top, proof, limits, literal)


def body_proofs(
    reasoner: Reasoner,
    partition: Partition,
    body: Sequence[BodyItem],
    limit: int | None,
    limits: ProofLimits,
    budget: Budget,
    as_of: int | None,
) -> Generator[dict[str, Any]]:
    """Yield the proof trees of the first answers of a goal of several literals.

    Each proof is one step with a premise per literal. The arguments of a row are the values of the
    goal's variables in order of appearance; the step has them as its substitution.
    """
    variables = body_variables(body)
    rows, count = reasoner.solve_body(partition, body, variables, budget, GoalOptions(as_of))
    count = count if limit is None else min(count, limit)
    budget.check_answers(count)
    width = len(variables)
    texts = reasoner.tenant.engine.texts(rows[: count * width])
    answers = [texts[i * width : (i + 1) * width] for i in range(count)]
    prover, head = body_prover(reasoner, partition, body, variables, budget, as_of)
    schema = RelationSchema(head.predicate, head.arity)
    with closing(prover.proofs(schema, answers)) as proved_facts:
        for args, (top, proof) in zip(answers, proved_facts, strict=True):
            if budget.span is not None:
                describe_proof(budget, proof.facts.heights[top])
            row = derived_row(head, args, partition.name)
            yield shaped(row, top, proof, limits, Literal(head))
