"""Dumps: the facts and rules of a knowledge base as text that `load` reads back.

The functions take facts as rows with the keys of the HTTP interface, so that a dump can be made
from a server as well as from an open knowledge base. Rows and lines are iterators: a dump of any
size takes constant memory.

A dump keeps signs, scopes, confidence, validity, `ttl`, metadata and labels of facts, and names,
confidence, scopes and labels of rules, and the version in force of each rule set, with its number,
message and revision. It does not keep creation times, accesses and priorities, episodes and
evidence, earlier versions of rule sets and their times, nor scopes without facts and rules. A fact
that is valid from its creation is written without `validFrom`, and is valid from the load on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import orjson

from kbcore.errors import InvalidInput
from kbcore.language import dumped_sets
from kbcore.language.files import declaration_of, fact_of, rule_of
from kbcore.state.facts import Row
from kbcore.state.labels import from_json, write_labels
from kbcore.state.rule_sets import FACT, ItemKey, item_key
from kbcore.state.rulebook import stored_definition, stored_rule
from kbplanner.ir.dimensions import Dimension, WrittenLabel
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom, Rule
from kbplanner.syntax.jsonform import atom_from_json, rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_declaration, print_fact, print_rule
from kbplanner.syntax.statements import (
    Annotations,
    DeclarationStatement,
    FactStatement,
    RuleStatement,
)
from kbtypes.rule_sets import RuleSetContents

KB, JSON_LINES = "kb", "jsonl"

COMMENT = "%"
"""The beginning of the lines of a dump that are no statements."""

DUMP_FORMATS = (KB, JSON_LINES)
"""The forms of a dump: a text in the rule language, or a JSON object on each line."""


def dump_lines(
    facts: Iterable[Row],
    rules: Iterable[Definition],
    dump_format: str = KB,
    rule_sets: Iterable[RuleSetContents] = (),
) -> Iterator[str]:
    """Yield the lines of a dump, without line breaks: dimensions of labels, rule sets, facts in the
    order of the rows, then rules. Facts and rules that only rule sets contain are in their rule
    sets only; a rule set without contents is left out.

    `dump_format` is one of DUMP_FORMATS; raises InvalidInput for another one.
    """
    if dump_format not in DUMP_FORMATS:
        raise InvalidInput.at("format", f"must be one of {', '.join(DUMP_FORMATS)}")
    rules = list(rules)
    dimensions = [each for each in rules if isinstance(each, Dimension)]
    rules = [each for each in rules if not isinstance(each, Dimension)]
    for each in dimensions:
        text = definition_text(each)
        yield text if dump_format == KB else orjson.dumps({"text": text}).decode()
    owned: set[_Owned] = set()
    for contents in rule_sets:
        if not contents.statements:
            continue
        if dump_format == KB:
            yield from dumped_sets.block(contents)
        else:
            yield orjson.dumps(dumped_sets.entry(contents)).decode()
        owned.update(_owned(contents))
    if owned:
        facts = (row for row in facts if _fact_key(row) not in owned)
        rules = [each for each in rules if _rule_key(each) not in owned]
    if dump_format == KB:
        yield from map(fact_text, facts)
        yield from map(definition_text, rules)
        return
    for entry in chain(map(fact_entry, facts), map(rule_entry, rules)):
        yield orjson.dumps(entry).decode()


_Owned = tuple[str | None, ItemKey, frozenset[tuple[str, tuple[str, ...]]]]
"""Scope, key and written labels of an item that only rule sets contain."""


def _owned(contents: RuleSetContents) -> Iterator[_Owned]:
    """Yield the items of a rule set that were not stored by hand too."""
    by_hand = set(contents.by_hand)
    scope, labels = contents.scope, _names(write_labels(from_json(contents.labels or {})))
    for text in contents.statements:
        if text in by_hand:
            continue
        for statement in parse_program(text):
            if isinstance(statement, FactStatement):
                yield scope, item_key(fact_of(statement)), labels
            elif isinstance(statement, RuleStatement):
                yield scope, item_key(stored_definition(rule_of(statement, scope))), labels
            elif isinstance(statement, DeclarationStatement):
                definition = declaration_of(statement, scope)
                yield scope, item_key(stored_definition(definition)), labels


def _rule_key(definition: Definition) -> _Owned:
    labels = _names(definition.labels if isinstance(definition, Rule) else ())
    return definition.scope, item_key(stored_definition(definition)), labels


def _fact_key(row: Row) -> _Owned:
    key = FACT, row["predicate"], tuple(row["args"]), not row["negated"]
    return row["scope"], key, _names(write_labels(from_json(row.get("labels", {}))))


def _names(labels: Iterable[WrittenLabel]) -> frozenset[tuple[str, tuple[str, ...]]]:
    return frozenset((each.name, tuple(sorted(each.values))) for each in labels)


def fact_text(row: Row) -> str:
    """Return a fact as a statement in the rule language, with its annotations."""
    annotations = Annotations(
        row["confidence"],
        row["ttl"],
        row["scope"],
        _own_start(row),
        row["validUntil"],
        row["metadata"] or None,
        write_labels(from_json(row.get("labels", {}))),
    )
    return print_fact(_atom(row), annotations)


def fact_entry(row: Row) -> dict[str, Any]:
    """Return a fact as the JSON object of a line.

    A fact with labels, or that JSON cannot express, because an argument starts with `?`, is an
    object with `text`.
    """
    entry: dict[str, Any] = {"predicate": row["predicate"], "args": list(row["args"])}
    if row["negated"]:
        entry["negated"] = True
    try:
        is_expressible = atom_from_json(entry) == _atom(row)
    except InvalidInput:
        is_expressible = False
    if not is_expressible or row.get("labels"):
        return {"text": fact_text(row)}
    for key, value in (
        ("scope", row["scope"]),
        ("ttl", row["ttl"]),
        ("validFrom", _own_start(row)),
        ("validUntil", row["validUntil"]),
        ("confidence", row["confidence"]),
        ("metadata", row["metadata"] or None),
    ):
        if value is not None:
            entry[key] = value
    return entry


def definition_text(definition: Definition) -> str:
    """Return a rule or declaration as a statement in the rule language."""
    return print_rule(definition) if isinstance(definition, Rule) else print_declaration(definition)


def rule_entry(rule: Definition) -> dict[str, Any]:
    """Return a rule as the JSON object of a line.

    A rule with labels, or that JSON cannot express, is an object with `text`, and so is a
    declaration.
    """
    if not isinstance(rule, Rule):
        return {"text": print_declaration(rule)}
    if rule.labels:
        return {"text": print_rule(rule)}
    entry = rule_to_json(rule)
    try:
        is_expressible = rule_from_json(entry) == rule
    except InvalidInput:
        is_expressible = False
    return entry if is_expressible else {"text": print_rule(rule)}


def listed_rule(id: str, text: str, scope: str | None) -> Rule:
    """Return a stored rule from its id, text and scope, as `GET /rules` lists them.

    The id becomes the name of the rule, unless it was computed from the rule.
    """
    rule = parse_rule(text)
    unnamed = Rule(rule.head, rule.body, None, rule.confidence, scope)
    if stored_rule(unnamed).id == id:
        return unnamed
    return Rule(rule.head, rule.body, id, rule.confidence, scope)


def _atom(row: Row) -> Atom:
    return Atom(row["predicate"], tuple(row["args"]), not row["negated"])


def _own_start(row: Row) -> int | None:
    """Return the start of validity, None if it is the creation of the fact."""
    start: int | None = row["validFrom"]
    return None if start == row["createdAt"] else start
