"""What a model says that a text states, read as a client's input would be: every fact and every rule is judged by itself.

Only the keys listed here are looked at: whatever else an answer holds, a scope or a command, is not even read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.language.names import Names
from kbcore.llm.structured import BadAnswer, array, fraction
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, BodyItem, HeadTerm, Literal, Rule
from kbplanner.passes.check import check_fact, check_rule
from kbplanner.syntax.jsonform import args_from_json, atom_from_json, rule_from_json

SHOWN = 200
"""Characters of what was refused that are told."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something a model said that cannot be taken, in short, and why."""

    said: str
    reason: str


@dataclass(slots=True)
class Candidates:
    """What one answer holds."""

    facts: list[Fact] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def read_candidates(
    answer: Mapping[str, Any], names: Names, scope: str | None, metadata: Mapping[str, Any], rules: bool
) -> Candidates:
    """The facts of an answer, and its rules where some are wanted, with names made canonical.

    Each is put into `scope`. Raises BadAnswer where the answer is not of the shape at all.
    """
    if "facts" not in answer:
        raise BadAnswer('"facts" is missing')
    found = Candidates()
    for said in array(answer, "facts"):
        try:
            found.facts.append(_fact(said, names, scope, metadata))
        except InvalidInput as error:
            found.rejected.append(Rejected(_brief(said), error.message))
    for said in array(answer, "rules") if rules else ():
        try:
            found.rules.append(_rule(said, names, scope))
        except InvalidInput as error:
            found.rejected.append(Rejected(_brief(said), error.message))
    return found


def _fact(said: Any, names: Names, scope: str | None, metadata: Mapping[str, Any]) -> Fact:
    obj = _object(said)
    values = obj.get("args")
    args = []
    for index, arg in enumerate(args_from_json(values if isinstance(values, list) else None)):
        if not isinstance(arg, str):
            raise InvalidInput.at(f"args[{index}]", "a fact holds no variables")
        name = names.name(arg)
        if not name:
            raise InvalidInput.at(f"args[{index}]", "is empty")
        args.append(name)
    predicate = obj.get("predicate")
    if isinstance(predicate, str):
        predicate = names.predicate(predicate, len(args))
    atom = atom_from_json({"predicate": predicate, "args": args, "negated": _flag(obj)})
    check_fact(atom)
    sure = fraction(obj.get("confidence"))
    return Fact(atom.predicate, tuple(args), atom.positive, scope, confidence=sure, metadata=dict(metadata))


def _rule(said: Any, names: Names, scope: str | None) -> Rule:
    obj = _object(said)
    body = obj.get("body")
    if not isinstance(body, list):
        raise InvalidInput.at("body", "must be an array of atoms")
    read = rule_from_json({"head": _atom(obj.get("head")), "body": [_atom(one) for one in body]})
    items = tuple(_named_item(item, names) for item in read.body)
    rule = replace(read, head=_named(read.head, names), body=items, confidence=fraction(obj.get("confidence")), scope=scope)
    check_rule(rule)
    return rule


def _atom(said: Any) -> dict[str, Any]:
    obj = _object(said)
    return {"predicate": obj.get("predicate"), "args": obj.get("args"), "negated": _flag(obj)}


def _named(atom: Atom, names: Names) -> Atom:
    args: tuple[HeadTerm, ...] = tuple(names.name(arg) if isinstance(arg, str) else arg for arg in atom.args)
    return Atom(names.predicate(atom.predicate, len(args)), args, atom.positive)


def _named_item(item: BodyItem, names: Names) -> BodyItem:
    return Literal(_named(item.atom, names), item.negated) if isinstance(item, Literal) else item


def _object(said: Any) -> Mapping[str, Any]:
    if not isinstance(said, dict):
        raise InvalidInput("must be an object")
    return said


def _flag(obj: Mapping[str, Any]) -> bool:
    value = obj.get("negated")
    if value is not None and type(value) is not bool:
        raise InvalidInput.at("negated", "must be true or false")
    return bool(value)


def _brief(said: Any) -> str:
    obj = said if isinstance(said, dict) else {}
    predicate, args = obj.get("predicate"), obj.get("args")
    if isinstance(predicate, str) and isinstance(args, list):
        return f"{predicate}({', '.join(map(str, args[:8]))})"[:SHOWN]
    return str(said)[:SHOWN]
