"""Batches of facts and rules stored in a target: directly in a folder, over HTTP in a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from kbcore.language.dump import definition_text
from kbcore.language.dumped_sets import DumpedSet
from kbcore.state.facts import Fact, FactRows
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_atom, print_fact
from kbplanner.syntax.statements import Annotations
from kbserver.cli.shared.target import CommandTarget, folder


def store_facts(target: CommandTarget, facts: Sequence[Fact]) -> tuple[int, int]:
    """Store facts, all or none; return the numbers of new and of known facts."""
    if target.local:
        outcome = folder(target).kb.assert_facts(facts)
        return outcome.asserted, outcome.updated
    if any(fact.labels for fact in facts):
        text = "\n".join(map(_fact_text, facts))
        asserted = target.send("POST", "/execute", {"command": text}).json()["asserted"]
        return asserted, len(facts) - asserted
    body = {"facts": [_fact_body(fact) for fact in facts]}
    counts = target.send("POST", "/assert/facts", body).json()
    return counts["asserted"], counts["updated"]


def store_rows(target: CommandTarget, rows: Sequence[FactRows]) -> tuple[int, int]:
    """Store facts of a bulk load, all or none; return the numbers of new and of known facts."""
    if target.local:
        outcome = folder(target).kb.assert_rows(rows)
        return outcome.asserted, outcome.updated
    return store_facts(target, [fact for group in rows for fact in group.facts()])


def store_rules(target: CommandTarget, rules: Sequence[Definition]) -> None:
    """Store rules and phrases, all or none."""
    text = "\n".join(map(definition_text, rules))
    target.send("POST", "/assert/rule", {"text": text})


def deploy_dumped(target: CommandTarget, rule_set: DumpedSet) -> dict[str, Any]:
    """Deploy a rule set of a dump, and return what changed."""
    path = f"/rulesets/{quote(rule_set.name, safe='')}"
    body = {"text": rule_set.text, **rule_set.deployment()}
    deployed: dict[str, Any] = target.send("PUT", path, body).json()
    return deployed


def _fact_text(fact: Fact) -> str:
    """Return a fact as a statement, which can name its labels."""
    annotations = Annotations(
        fact.confidence,
        fact.ttl,
        fact.scope,
        fact.valid_from,
        fact.valid_until,
        fact.metadata or None,
        fact.labels,
    )
    return print_fact(Atom(fact.predicate, fact.args, fact.positive), annotations)


def _fact_body(fact: Fact) -> dict[str, Any]:
    body: dict[str, Any] = {"predicate": fact.predicate, "args": fact.args}
    if any(arg.startswith("?") for arg in fact.args):  # JSON would read a variable
        body = {"text": print_atom(Atom(fact.predicate, fact.args, fact.positive))}
    elif not fact.positive:
        body["negated"] = True
    for key, value in (
        ("scope", fact.scope),
        ("ttl", fact.ttl),
        ("validFrom", fact.valid_from),
        ("validUntil", fact.valid_until),
        ("confidence", fact.confidence),
        ("metadata", fact.metadata or None),
    ):
        if value is not None:
            body[key] = value
    return body
