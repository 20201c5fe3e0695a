"""Labels in the text of statements: what a knowledge base that declares dimensions says of them."""

from __future__ import annotations

from collections.abc import Mapping

from kbplanner.ir.dimensions import FACT_OPTIONS, RULE_OPTIONS, Dimension, WrittenLabel
from kbplanner.syntax.diagnostics import Problem, excerpt
from kbplanner.syntax.lowering import unknown_option


def label_problem(
    label: WrittenLabel, dimensions: Mapping[str, Dimension], kind: str
) -> Problem | None:
    """Return what is wrong with a label of a statement, a "fact" or a "rule"; None if nothing is.

    Start and end of the problem are the columns of the label.
    """
    code, hint = "bad-annotation", None
    dimension = dimensions.get(label.name)
    if dimension is None:
        code = "unknown-annotation"
        options = FACT_OPTIONS if kind == "fact" else RULE_OPTIONS
        message, hint = unknown_option(kind, label.name, options, dimensions)
    elif dimension.is_ordered and (label.is_list or label.values[0] not in dimension.values):
        message = f"{label.name} is one of {' < '.join(dimension.values)}"
    elif unknown := [each for each in label.values if each not in dimension.values]:
        groups = ", ".join(dimension.values)
        message = f'{label.name} is groups of {groups}, found "{excerpt(unknown[0])}"'
    else:
        return None
    return Problem(code, message, hint, label.column, label.end_column)
