"""Facts and rules in a model's answer, validated one by one like the input of a client.

Only the keys listed here are read: any other content of an answer, such as a scope or a command, is
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.language.kinds import HAPPENED, KINDS, EventId, Stated, atoms_of, day, person
from kbcore.language.messages import Span
from kbcore.language.names import NameTable
from kbcore.language.reading import SignedAtom
from kbcore.language.speech import Origin
from kbcore.llm.structured import BadAnswer, array, fraction
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, BodyItem, HeadTerm, Literal, Rule
from kbplanner.passes.check import check_fact, check_rule
from kbplanner.syntax.jsonform import args_from_json, atom_from_json, rule_from_json
from kbplanner.syntax.parser import parse_atom

MAX_REJECTED_CHARS = 200
"""Maximum length of the quotation of a rejected entry."""


@dataclass(frozen=True, slots=True)
class RejectedCandidate:
    """An entry of a model's answer that cannot be used, shortened, with the reason."""

    quote: str
    reason: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """The stored fact that a fact of an answer replaces, and the entry as it is quoted."""

    fact: Fact
    replaced: Atom
    quote: str


@dataclass(slots=True)
class Candidates:
    """The facts and rules of one answer, its rejected entries, and the facts to be replaced.

    `spans` are the places of the facts in the text.
    """

    facts: list[Fact] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rejected: list[RejectedCandidate] = field(default_factory=list)
    replacements: list[Replacement] = field(default_factory=list)
    spans: dict[SignedAtom, list[Span]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CandidateOptions:
    """Options of reading an answer: the known names, the scope and metadata of its facts, and
    whether it may have rules.

    `origin_of` returns the origin of a statement. `declared` are the declared predicates, and
    `event_id` returns the ids of events.
    """

    names: NameTable
    origin_of: Callable[[SignedAtom], Origin]
    event_id: EventId
    now: int
    declared: Collection[tuple[str, int]] = ()
    scope: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    rules: bool = False


def read_candidates(answer: Mapping[str, Any], options: CandidateOptions) -> Candidates:
    """Return the facts of an answer and, if they are asked for, its rules, with canonical names.

    Raises BadAnswer if the answer does not have the requested shape.
    """
    if "facts" not in answer:
        raise BadAnswer('"facts" is missing')
    candidates = Candidates()
    for entry in array(answer, "facts"):
        try:
            _read_fact(entry, options, candidates)
        except InvalidInput as error:
            candidates.rejected.append(RejectedCandidate(_brief(entry), error.message))
    for entry in array(answer, "rules") if options.rules else ():
        try:
            candidates.rules.append(_rule(entry, options.names, options.scope))
        except InvalidInput as error:
            candidates.rejected.append(RejectedCandidate(_brief(entry), error.message))
    return candidates


def _read_fact(entry: Any, options: CandidateOptions, candidates: Candidates) -> None:
    """Add the facts that an entry stands for to the candidates."""
    obj = _object(entry)
    names = options.names
    values = obj.get("args")
    texts = []
    for index, arg in enumerate(args_from_json(values if isinstance(values, list) else None)):
        if not isinstance(arg, str):
            raise InvalidInput.at(f"args[{index}]", "a fact must not contain variables")
        texts.append(arg)
    written = str(obj.get("predicate")), tuple(texts), not _flag(obj)
    origin = options.origin_of(written)
    if origin.speaker is not None:
        origin = replace(origin, speaker=names.name(origin.speaker))
    args = []
    for index, arg in enumerate(texts):
        name = names.name(person(f"args[{index}]", arg, origin.speaker))
        if not name:
            raise InvalidInput.at(f"args[{index}]", "must not be empty")
        args.append(name)
    predicate = obj.get("predicate")
    if isinstance(predicate, str):
        predicate = names.predicate(predicate, len(args))
    atom = atom_from_json({"predicate": predicate, "args": args, "negated": _flag(obj)})
    stated = Stated(
        atom.predicate,
        tuple(args),
        atom.positive,
        _kind(obj),
        day("since", obj.get("since")),
        day("until", obj.get("until")),
    )
    confidence = fraction(obj.get("confidence"))
    facts = []
    for each in atoms_of(stated, origin, options.now, options.event_id, options.declared):
        check_fact(Atom(each.predicate, each.args, each.positive))
        fact = Fact(
            each.predicate,
            each.args,
            each.positive,
            options.scope,
            valid_from=each.valid_from,
            valid_until=each.valid_until,
            confidence=confidence,
            metadata=dict(options.metadata),
        )
        facts.append(fact)
    for fact in facts:
        key = fact.predicate, fact.args, fact.positive
        candidates.facts.append(fact)
        candidates.spans.setdefault(key, []).append(origin.span)
    if obj.get("replaces"):
        _read_replaced(obj, facts, names, candidates)


def _read_replaced(
    obj: Mapping[str, Any], facts: Sequence[Fact], names: NameTable, candidates: Candidates
) -> None:
    """Note the stored fact that an entry replaces: one of the same predicate about the same thing,
    so that an answer can end no other fact. The facts of the entry stay if it names none.
    """
    text = obj["replaces"]
    try:
        if not isinstance(text, str):
            raise InvalidInput("must be a fact as text")
        replaced = _named(parse_atom(text.strip().removesuffix(".")), names)
        fact = next((each for each in facts if _is_about_the_same(each, replaced)), None)
        if fact is None:
            raise InvalidInput("must be a fact of the same predicate about the same thing")
    except InvalidInput as error:
        reason = f"replaces: {error.message.splitlines()[0]}"
        candidates.rejected.append(RejectedCandidate(_brief(obj), reason))
    else:
        candidates.replacements.append(Replacement(fact, replaced, _brief(obj)))


def _is_about_the_same(fact: Fact, replaced: Atom) -> bool:
    subject = 1 if fact.predicate == HAPPENED else 0  # after the id of an event
    return (
        (fact.predicate, len(fact.args)) == (replaced.predicate, replaced.arity)
        and replaced.positive
        and all(isinstance(arg, str) for arg in replaced.args)
        and fact.args[subject : subject + 1] == replaced.args[subject : subject + 1]
        and (fact.args != replaced.args or not fact.positive)
    )


def _kind(obj: Mapping[str, Any]) -> str | None:
    value = obj.get("kind")
    if value is None or value == "":
        return None
    if value not in KINDS:
        raise InvalidInput.at("kind", f"must be one of {', '.join(KINDS)}")
    return str(value)


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
