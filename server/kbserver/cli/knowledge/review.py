"""Warnings about rules with their places in a text, from the parser in this process."""

from __future__ import annotations

from dataclasses import replace

from kbcore.language.files import read_statements
from kbcore.language.rule_review import Known, RuleReview, known_predicates
from kbplanner.ir.terms import Rule
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.parser import parse_rule
from kbserver.cli.shared.target import CommandTarget


def review_of(target: CommandTarget) -> RuleReview:
    """Return a review of new rules beside what the target has stored."""
    return RuleReview(lambda: stored_predicates(target))


def warnings_of(target: CommandTarget, text: str, scope: str | None) -> list[RuleWarning]:
    """Return the warnings about the rules of a text, in order; raises RuleSyntaxError."""
    review = review_of(target)
    for batch in read_statements([text], scope):
        review.add(batch)
    return review.all(stored_rules(target)) if review.has_rules else []


def stored_predicates(target: CommandTarget) -> Known:
    """Return the predicates of every scope with their arities."""
    return known_predicates(target.send("GET", "/predicates?scope=*").json()["predicates"])


def stored_rules(target: CommandTarget) -> list[Rule]:
    """Return the rules of every scope, each with its id as its name."""
    rows = target.send("GET", "/rules?scope=*").json()["rules"]
    return [replace(parse_rule(row["text"]), name=row["id"], scope=row["scope"]) for row in rows]
