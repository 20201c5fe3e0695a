"""Why answers hold, and why a goal has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from kbtypes import markup
from kbtypes.errors import InvalidInput
from kbtypes.records import Json
from kbtypes.results import StoredRule
from kbtypes.rule_sets import sets_note
from kbtypes.values import Row, written_atom

TREE = "tree"


@dataclass(frozen=True, slots=True)
class Proof:
    """An answer with its proof.

    `answer` is a row. `proof` is the proof as JSON has it, in one of the forms `tree` and `dag`:
    see the page about proofs in the documentation of the server.
    """

    answer: Row
    proof: dict[str, Any]
    form: str = TREE

    @property
    def text(self) -> str:
        """The proof as text, each conclusion above its premises; raises InvalidInput for a dag."""
        if self.form != TREE:
            raise InvalidInput.at("form", "only a proof of the form tree has a text")
        return "\n".join(_lines(self.proof, _annotations(self.answer)))

    def _repr_html_(self) -> str:
        """Return the proof for notebooks; of a dag only its answer."""
        if self.form != TREE:
            return markup.lines([written_atom(self.answer["predicate"], self.answer["args"])])
        return markup.lines(self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Premise:
    """A literal or a comparison in the rule language."""

    text: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class UnknownPredicate:
    """A predicate without facts and rules; `did_you_mean` is a similar one, such as `likes/2`."""

    name: str
    arity: int | None
    did_you_mean: str | None

    def __str__(self) -> str:
        signature = self.name if self.arity is None else f"{self.name}/{self.arity}"
        hint = f" (did you mean {self.did_you_mean}?)" if self.did_you_mean else ""
        return signature + hint


@dataclass(frozen=True, slots=True)
class WhyNotCandidate:
    """An instance of a rule that nearly concludes the goal.

    `rule` is None if the goal itself is examined. The `satisfied` premises hold, and `missing` is
    the next one and does not. `blocked_by` is an atom that makes a negated premise false. With
    `undefined` the missing premise is undefined, else it is false. `because` is the nearest
    candidate for the missing premise, if more than one level was asked for.
    """

    rule: StoredRule | None
    scope: str | None
    bindings: dict[str, str]
    satisfied: tuple[Premise, ...]
    missing: Premise
    blocked_by: Premise | None = None
    undefined: bool = False
    because: WhyNotCandidate | None = None

    @classmethod
    def of(cls, answer: Json) -> WhyNotCandidate:
        """Return the candidate that an answer describes."""
        rule, because = answer["rule"], answer["because"]
        return cls(
            None if rule is None else StoredRule(rule["id"], rule["text"]),
            answer["scope"],
            answer["bindings"],
            tuple(map(_premise, answer["satisfied"])),
            _premise(answer["missing"]),
            None if answer["blockedBy"] is None else _premise(answer["blockedBy"]),
            answer["undefined"],
            None if because is None else cls.of(because),
        )


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Explanation of a goal without answers: the rule instances that got farthest, best first.

    A goal that holds has no candidates. `truth` is "true", "false" or "undefined". `denied_by` is
    the explicit negative of the goal, if it holds. `near_facts` are stored facts that differ from
    the goal in one constant. `truncated` says that a limit ended the search. `text` is the
    explanation in words. `falls_short` says at which level of labels the goal follows, where its
    predicate requires a higher one.
    """

    goal: str
    truth: str
    candidates: tuple[WhyNotCandidate, ...]
    denied_by: Premise | None
    near_facts: tuple[Premise, ...]
    unknown_predicates: tuple[UnknownPredicate, ...]
    truncated: bool
    falls_short: str | None = None

    @property
    def holds(self) -> bool:
        """True if the goal has an answer."""
        return self.truth == "true"

    @property
    def text(self) -> str:
        """The explanation in words."""
        return "\n".join(why_not_lines(self))

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks."""
        return markup.lines(why_not_lines(self))

    @classmethod
    def of(cls, answer: Json) -> WhyNot:
        """Return the explanation that an answer describes."""
        denied_by = answer["deniedBy"]
        return cls(
            answer["goal"],
            answer["truth"],
            tuple(map(WhyNotCandidate.of, answer["candidates"])),
            None if denied_by is None else _premise(denied_by),
            tuple(map(_premise, answer["nearFacts"])),
            tuple(
                UnknownPredicate(each["name"], each["arity"], each["didYouMean"])
                for each in answer["unknownPredicates"]
            ),
            answer["truncated"],
            answer.get("fallsShort"),
        )


def _premise(answer: dict[str, Any]) -> Premise:
    return Premise(answer["text"], answer)


def why_not_lines(result: Any, text: Callable[[Any], str] = str) -> Iterator[str]:
    """Yield the lines of an explanation in words, of a client or of the core.

    `text` writes premises, atoms and names of scopes.
    """
    if result.holds:
        yield f"{result.goal} holds."
        return
    undefined = "is undefined: it depends on its own negation"
    yield f"{result.goal} {undefined if result.truth == 'undefined' else 'does not hold'}."
    if result.falls_short is not None:
        yield f"{result.falls_short}."
    if result.denied_by is not None:
        yield f"Its explicit negative holds: {text(result.denied_by)}"
    for unknown in result.unknown_predicates:
        yield f"No fact or rule for {unknown}"
    if not result.candidates:
        yield (
            "The search was stopped by its limits before a rule was examined."
            if result.truncated
            else "No rule concludes it, and no stored fact matches."
        )
    for number, candidate in enumerate(result.candidates, 1):
        yield from _candidate_lines(candidate, text, f"{number}. ", "   ")
    if result.near_facts:
        yield "Stored facts that differ in one argument:"
        yield from (f"   {text(fact)}" for fact in result.near_facts)
    if result.truncated and result.candidates:
        yield "The search was stopped by its limits: other rule instances may get farther."


def _candidate_lines(
    candidate: Any, text: Callable[[Any], str], first: str, indent: str
) -> Iterator[str]:
    scope = "" if candidate.scope is None else f" [scope {text(candidate.scope)}]"
    rule, missing = candidate.rule, text(candidate.missing)
    yield f"{first}The goal{scope}" if rule is None else f"{first}Rule {rule.text}{scope}"
    for premise in candidate.satisfied:
        yield f"{indent}holds: {text(premise)}"
    if candidate.blocked_by is not None:
        yield f"{indent}missing: {missing}, because {text(candidate.blocked_by)} holds"
    elif candidate.undefined:
        yield f"{indent}missing: {missing}, which is undefined"
    else:
        values = candidate.bindings.items()
        named = [f"{name} is {value}" for name, value in values if not name.startswith("?")]
        yield f"{indent}missing: {missing}{', where ' + named[0] if named else ''}"
    if candidate.because is not None:
        yield from _candidate_lines(candidate.because, text, f"{indent}because: ", indent + "   ")


_ENDS = {
    "fact_match": "stored",
    "explicit_negative": "stored as false",
    "external": "external",
    "negation_as_failure": "nothing found",
    "builtin": "holds",
    "elided": "follows from rules; cut here, ask for it separately",
}

MAX_INDENT_LEVELS = 40
"""Deeper levels are not indented further."""


def _lines(root: dict[str, Any], annotations: str) -> Iterator[str]:
    """Yield the lines of a proof; it may be deeper than the recursion limit of Python."""
    pending = [(root, 0)]
    while pending:
        node, level = pending.pop()
        yield "  " * min(level, MAX_INDENT_LEVELS) + node_text(node) + annotations
        annotations = ""
        pending += [(below, level + 1) for below in reversed(node["step"]["bodyProofs"] or ())]


def node_text(node: dict[str, Any]) -> str:
    """Return a node of a proof tree as text, with the reason why it holds."""
    step, goal = node["step"], node["goal"]
    atom = written_atom(goal["predicate"], goal["args"])
    atom = f"~{atom}" if goal.get("negated") else atom
    if step["type"] == "aggregate":
        listed, rows = len(step["inputs"]), step["rows"]
        over = f"{step['text']} over {rows}" + (f", {listed} shown" if listed < rows else "")
        return f"{atom}  by {_rule(step)}  ({over})"
    if step["type"] != "rule_application":
        return f"{step.get('text') or atom}  {_ENDS[step['type']]}"
    return f"{atom}  by {_rule(step)}"


def _rule(step: dict[str, Any]) -> str:
    """Return the rule of a step, with the rule sets that contain it."""
    rule_sets = step.get("ruleSets")
    return f"{step['rule']}  ({sets_note(rule_sets)})" if rule_sets else step["rule"]


def _annotations(row: Row) -> str:
    """Return the annotations of an answer in parentheses, or an empty text."""
    parts: list[str] = []
    if row["confidence"] is not None:
        parts.append(f"confidence {row['confidence']:g}")
    if row["createdAt"] is None and row["validFrom"] is not None:
        parts.append(f"from {_time_text(row['validFrom'])}")
    if row["validUntil"] is not None:
        parts.append(f"until {_time_text(row['validUntil'])}")
    if row["metadata"].get("contradicted"):
        parts.append("contradicted")
    if row["metadata"].get("nonMonotonic"):
        parts.append("may be retracted by new facts")
    return f"  ({', '.join(parts)})" if parts else ""


def _time_text(milliseconds: int) -> str:
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return time.isoformat(timespec="milliseconds")
