"""Facts and rules in a model's answer, validated one by one like the input of a client.

Only the keys listed here are read: any other content of an answer, such as a scope or a command, is
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.language.names import NameTable
from kbcore.llm.structured import BadAnswer, array, fraction
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, BodyItem, HeadTerm, Literal, Rule
from kbplanner.passes.check import check_fact, check_rule
from kbplanner.syntax.jsonform import args_from_json, atom_from_json, rule_from_json

MAX_REJECTED_CHARS = 200
"""Maximum length of the quotation of a rejected entry."""


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """An entry of a model's answer that cannot be used, shortened, with the reason."""

    quote: str
    reason: str


@dataclass(slots=True)
class Candidates:
    """The facts and rules of one answer, and its rejected entries."""

    facts: list[Fact] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rejected: list[RejectedCandidate] = field(default_factory=list)


def read_candidates(
    answer: Mapping[str, Any],
    names: NameTable,
    scope: str | None,
    metadata: Mapping[str, Any],
    rules: bool,
) -> Candidates:
    """Return the facts of an answer and, if `rules`, its rules, with canonical names, in `scope`.

    Raises BadAnswer if the answer does not have the requested shape.
    """
    if "facts" not in answer:
        raise BadAnswer('"facts" is missing')
    candidates = Candidates()
    for entry in array(answer, "facts"):
        try:
            candidates.facts.append(_fact(entry, names, scope, metadata))
        except InvalidInput as error:
            candidates.rejected.append(RejectedCandidate(_brief(entry), error.message))
    for entry in array(answer, "rules") if rules else ():
        try:
            candidates.rules.append(_rule(entry, names, scope))
        except InvalidInput as error:
            candidates.rejected.append(RejectedCandidate(_brief(entry), error.message))
    return candidates


def _fact(entry: Any, names: NameTable, scope: str | None, metadata: Mapping[str, Any]) -> Fact:
    obj = _object(entry)
    values = obj.get("args")
    args = []
    for index, arg in enumerate(args_from_json(values if isinstance(values, list) else None)):
        if not isinstance(arg, str):
            raise InvalidInput.at(f"args[{index}]", "a fact must not contain variables")
        name = names.name(arg)
        if not name:
            raise InvalidInput.at(f"args[{index}]", "must not be empty")
        args.append(name)
    predicate = obj.get("predicate")
    if isinstance(predicate, str):
        predicate = names.predicate(predicate, len(args))
    atom = atom_from_json({"predicate": predicate, "args": args, "negated": _flag(obj)})
    check_fact(atom)
    confidence = fraction(obj.get("confidence"))
    return Fact(
        atom.predicate,
        tuple(args),
        atom.positive,
        scope,
        confidence=confidence,
        metadata=dict(metadata),
    )


def _rule(entry: Any, names: NameTable, scope: str | None) -> Rule:
    obj = _object(entry)
    body = obj.get("body")
    if not isinstance(body, list):
        raise InvalidInput.at("body", "must be an array of atoms")
    read = rule_from_json({"head": _atom(obj.get("head")), "body": [_atom(atom) for atom in body]})
    items = tuple(_named_item(item, names) for item in read.body)
    rule = replace(
        read,
        head=_named(read.head, names),
        body=items,
        confidence=fraction(obj.get("confidence")),
        scope=scope,
    )
    check_rule(rule)
    return rule


def _atom(entry: Any) -> dict[str, Any]:
    obj = _object(entry)
    return {"predicate": obj.get("predicate"), "args": obj.get("args"), "negated": _flag(obj)}


def _named(atom: Atom, names: NameTable) -> Atom:
    args: tuple[HeadTerm, ...] = tuple(
        names.name(arg) if isinstance(arg, str) else arg for arg in atom.args
    )
    return Atom(names.predicate(atom.predicate, len(args)), args, atom.positive)


def _named_item(item: BodyItem, names: NameTable) -> BodyItem:
    return Literal(_named(item.atom, names), item.negated) if isinstance(item, Literal) else item


def _object(entry: Any) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise InvalidInput("must be an object")
    return entry


def _flag(obj: Mapping[str, Any]) -> bool:
    value = obj.get("negated")
    if value is not None and type(value) is not bool:
        raise InvalidInput.at("negated", "must be true or false")
    return bool(value)


def _brief(entry: Any) -> str:
    obj = entry if isinstance(entry, dict) else {}
    predicate, args = obj.get("predicate"), obj.get("args")
    if isinstance(predicate, str) and isinstance(args, list):
        return f"{predicate}({', '.join(map(str, args[:8]))})"[:MAX_REJECTED_CHARS]
    return str(entry)[:MAX_REJECTED_CHARS]
