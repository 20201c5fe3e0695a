"""Atoms and literals in bodies: as predicate and arguments, or as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kbcore.errors import InvalidInput
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.terms import Atom, Literal, Term, Variable
from kbplanner.pacing import current_yield, paced
from kbplanner.syntax.jsonform import atom_from_json, goal_from_json
from kbplanner.syntax.textform import atom_from_text, literal_from_text
from kbserver.schemas.base import Body, present
from kbserver.schemas.fields import Arguments, Flag, Json, Predicate, Text

MAX_PREDICATES = 1000
"""Maximum number of predicates in a list of a body, which is searched for each fact or relation."""

PREDICATES_PER_YIELD = 200
"""Names of predicates read between two calls of `yield_now`: about a millisecond."""

ATOM = ("predicate", "args")
"""The keys of an atom that is not given as text."""

ATOM_OR_TEXT = (*ATOM, "text")


class AtomBody(Body):
    """An atom and its sign: as `predicate` and `args`, or as `text`."""

    predicate = Predicate()
    args = Arguments()
    text = Text(
        "The atom as text, such as `parent(ann, ?who)`, in place of `predicate` and `args`."
    )
    negated = Flag()
    truth_val = Flag()

    requires: ClassVar[Json] = {"anyOf": [present("text"), present(*ATOM)]}

    def missing(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the missing keys of the atom; none if the atom is given as text."""
        if "text" in fields or ("predicate" in fields and "args" in fields):
            return ()
        return tuple(key for key in ATOM if key not in fields)


def sign(fields: Mapping[str, Any]) -> bool | None:
    """Return the sign a body asks for: True positive, False negative, None unspecified.

    Negative if `negated` is true or `truthVal` is false, even if the other key disagrees: published
    clients send defaults for both.
    """
    negated, truth = fields.get("negated"), fields.get("truth_val")
    if negated is None and truth is None:
        return None
    return not (negated is True or truth is False)


def atom_given(fields: Mapping[str, Any], *, nulls: bool = False) -> tuple[Atom, bool | None]:
    """Return the fact or pattern of a body, and its sign as `sign` does: from `text`, or from
    `predicate` and `args`.

    With `nulls`, null among `args` matches anything. The atom is negative if the text or the other
    keys say so.
    """
    if "text" in fields:
        _refuse_beside_text(fields)
        atom = atom_from_text(fields["text"])
        return atom, sign(fields) if atom.positive else False
    args = wildcards(fields["args"]) if nulls else fields["args"]
    return atom_from_json({"predicate": fields["predicate"], "args": args}), sign(fields)


def constants_of(atom: Atom, fields: Mapping[str, Any], problem: str) -> tuple[str, ...]:
    """Return the arguments of a fact. Raises InvalidInput with `problem` at the field of a
    variable.
    """
    args = []
    for index, arg in enumerate(atom.args):
        if not isinstance(arg, str):
            raise InvalidInput.at("text" if "text" in fields else f"args[{index}]", problem)
        args.append(arg)
    return tuple(args)


def literal_given(fields: Mapping[str, Any], path: str = "text") -> Literal:
    """Return the goal of a body: from `text`, whose place is `path`, or from `predicate`, `args`,
    `polarity` and the keys of `sign`.
    """
    negated = sign(fields) is False
    if "text" in fields:
        _refuse_beside_text(fields)
        literal = literal_from_text(fields["text"], path)
        atom = literal.atom
        positive = atom.positive and fields.get("polarity") != "negative"
        return Literal(Atom(atom.predicate, atom.args, positive), literal.negated or negated)
    goal: dict[str, Any] = {"negated": True} if negated else {}
    for key in (*ATOM, "polarity"):
        if key in fields:
            goal[key] = fields[key]
    return goal_from_json(goal)


def _refuse_beside_text(fields: Mapping[str, Any]) -> None:
    for key in ATOM:
        if key in fields:
            raise InvalidInput.at(
                key, 'cannot be combined with "text", which is the whole atom; send one of them'
            )


def wildcards(args: Any) -> Any:
    """Replace nulls in the arguments of a pattern by the anonymous variable.

    Arguments that are no list or too many stay as they are: they are refused with the atom.
    """
    if type(args) is not list or len(args) > DEFAULT_LIMITS.args:
        return args
    return ["?" if arg is None else arg for arg in args]


def atom_terms(atom: Atom) -> tuple[Term, ...]:
    """Return the arguments of an atom outside rule heads, which has no aggregates."""
    return tuple(arg for arg in atom.args if isinstance(arg, (str, Variable)))


def predicate_of(value: Any, path: str) -> str:
    """Read the predicate of a body without arguments; raises InvalidInput at `path`."""
    try:
        return atom_from_json({"predicate": value, "args": []}).predicate
    except InvalidInput as error:
        wrong = (error.details or {}).get("fields") or {"": [error.message]}
        raise InvalidInput.at(path, next(iter(wrong.values()))[0]) from None


def predicates_given(names: Any, path: str) -> tuple[str, ...]:
    """Return the predicates of a list in a body; raises InvalidInput that names the element."""
    if type(names) is not list:
        raise InvalidInput.at(path, "must be an array of predicates")
    if len(names) > MAX_PREDICATES:
        raise InvalidInput.at(path, f"has {len(names)} elements, and may have {MAX_PREDICATES}")
    return tuple(
        predicate_of(name, f"{path}[{index}]")
        for index, name in enumerate(paced(names, current_yield(), PREDICATES_PER_YIELD))
    )
