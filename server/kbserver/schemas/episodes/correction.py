"""Correcting, undoing and purging: bodies and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from kbcore.errors import InvalidInput
from kbcore.operations.episodes.correction import MAX_REASON_CHARS
from kbcore.operations.episodes.episodes import MAX_LISTED
from kbcore.operations.queries import MAX_CANDIDATES, FactInWords
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.options import FactOptions
from kbcore.state.facts import Fact
from kbcore.state.names import is_name
from kbcore.upkeep.purge import MAX_SUBJECT_CHARS, PurgeTarget
from kbplanner.ir.terms import Atom
from kbserver.schemas.atoms import AtomBody, atom_given
from kbserver.schemas.base import Answer, Body, answer_of, instance, within
from kbserver.schemas.facts import FactBody, LabelledRow, Row
from kbserver.schemas.fields import (
    WEBHOOK_SHOWN,
    Choice,
    Count,
    Flag,
    Forms,
    Instant,
    Json,
    Many,
    Name,
    Object,
    Text,
    Time,
    Whole,
    WriteScope,
)
from kbserver.schemas.requests import Budgeted, request_limits
from kbtypes import episodes


class AtomOrText(Forms):
    """A fact as an object, or as text such as `likes(ann, tea)`."""

    def __init__(self, form: type[Body], **more: Any) -> None:
        super().__init__(form, {"type": "string"}, **more)


class CorrectBody(Body):
    """A stored fact, the fact to store in its place, and the reason."""

    old = AtomOrText(AtomBody, description="The stored fact, as object or text.", required=True)
    new = AtomOrText(
        FactBody,
        description="The fact in its place, as `tell` takes it, or as text.",
        required=True,
    )
    reason = Text(required=True, schema={"minLength": 1, "maxLength": MAX_REASON_CHARS})
    scope = WriteScope()

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the arguments of `TenantKB.correct`; an error names the fact and its member."""
        fields = super()._read(data, strict, path)
        old = fact_in(fields["old"], "old", strict)
        new = fact_in(fields["new"], "new", strict)
        scopes = {
            scope for scope in (fields.get("scope"), old.scope, new.scope) if scope is not None
        }
        if len(scopes) > 1:
            raise InvalidInput.at("scope", "both facts are in one scope")
        return {
            "old": Atom(old.predicate, old.args, old.positive),
            "new": replace(new, scope=next(iter(scopes), None)),
            "reason": fields["reason"],
        }


def fact_in(value: Any, name: str, strict: bool) -> Fact:
    """Return the fact that a member of a body has, as object or text; raise InvalidInput."""
    if type(value) is str:
        value = {"text": value}
    if type(value) is not dict:
        raise InvalidInput.at(name, "must be a fact, as object or text")
    try:
        fact: Fact = instance(FactBody).read(value, strict=strict, path=f"{name}.")["fact"]
    except InvalidInput as error:
        raise within(error, name) from None
    return fact


def candidates(kb: TenantKB, data: Json, strict: bool) -> list[FactInWords] | None:
    """Return the facts that match `old` where it is a pattern, at most one more than a user may
    choose from; None if it is a fact. The operation itself reports what is malformed.
    """
    old = data.get("old")
    named = [each.get("scope") for each in (data, old, data.get("new")) if type(each) is dict]
    scopes = {scope for scope in named if scope is not None}
    if len(scopes) > 1 or not all(type(each) is str and is_name(each) for each in scopes):
        return None
    fields = {"text": old} if type(old) is str else dict(old) if type(old) is dict else {}
    fields.pop("scope", None)
    try:
        atom, positive = atom_given(instance(AtomBody).read(fields, strict=strict))
    except InvalidInput:
        return None
    if all(isinstance(arg, str) for arg in atom.args):
        return None
    options = FactOptions(scope=next(iter(scopes), None), limit=MAX_CANDIDATES + 1)
    return kb.facts_in_words(atom, options, positive=positive is not False)


Corrected = answer_of(
    episodes.CorrectOutcome,
    "Corrected",
    old=Object("The fact as it was."),
    new=Object("The fact with the evidence of the old one, and the metadata `corrects`."),
)


class UndoBody(Budgeted):
    """The change to undo."""

    seq = Whole(1, data_key="commitSeq", description="Its number in the log (X-Commit-Seq).")
    request = Text(
        "The idempotency key of its request, or the id of its transaction.",
        data_key="requestId",
        most=255,
        schema={"minLength": 1},
    )

    requires: ClassVar[Json] = {"anyOf": [{"required": ["commitSeq"]}, {"required": ["requestId"]}]}

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.undo`."""
        return {
            "seq": fields.get("seq"),
            "request": fields.get("request"),
            "request_limits": request_limits(fields),
        }


class UndoneAnswer(Answer):
    """The change that was undone, and what that did."""

    undone_seq = Count(of="undone")
    commit_seq = Count("Number of the change that undid it.", of="seq")
    retracted = Count("Facts that the change had stored.", of="change.retracted")
    restored = Count("Facts that the change had removed or modified.", of="change.restored")
    rules_changed = Count("Rules and phrases.", of="change.rules_changed")
    timestamp = Time()


class PurgeBody(Budgeted):
    """Selection of what to purge: exactly one of `subject`, `episode`, `speaker` and `before`."""

    subject = Text(
        "A name: facts and episodes that mention it as whole words, in any case; spaces and `_` in "
        "it are equal.",
        schema={"minLength": 1, "maxLength": MAX_SUBJECT_CHARS},
    )
    episode = Name("an episode")
    speaker = Text("Episodes of a speaker, and facts that nothing else supports.")
    before = Instant(description="Facts and episodes that are older.")
    drop_scopes = Flag("True: also drop the scopes whose names mention the subject.")
    dry_run = Flag("True: nothing changes.")
    wait = Flag(
        "False: the text is removed from log and snapshots in the background. Default: true."
    )
    limit = Whole(1, MAX_LISTED, "Facts, conclusions, episodes and rules that are listed.")

    requires: ClassVar[Json] = {
        "oneOf": [{"required": [name]} for name in ("subject", "episode", "speaker", "before")]
    }

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        """Return the arguments of `TenantKB.purge`; unknown keys are always refused.

        A purge cannot be undone: one with a misspelt `dryRun` must not be carried out.
        """
        return super()._read(data, strict=True, path=path)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.purge`."""
        names = ("subject", "episode", "speaker", "before")
        selectors = {name: fields[name] for name in names if name in fields}
        if len(selectors) != 1:
            problem = f"name one of {', '.join(names)}"
            first = next(iter(selectors), "subject")
            raise InvalidInput.at(first, problem)
        for name in ("subject", "speaker"):
            text = selectors.get(name)
            if text is not None and (not text.strip() or len(text) > MAX_SUBJECT_CHARS):
                raise InvalidInput.at(name, f"must have 1 to {MAX_SUBJECT_CHARS} characters")
        drop_scopes = fields.get("drop_scopes", False)
        if drop_scopes and "subject" not in selectors:
            raise InvalidInput.at("dropScopes", "needs a subject")
        options: Json = {
            name: fields[name] for name in ("dry_run", "wait", "limit") if name in fields
        }
        return {
            "target": PurgeTarget(**selectors, drop_scopes=drop_scopes),
            **options,
            "request_limits": request_limits(fields),
        }


class PurgedFact(Row):
    """A fact to purge, and why it was selected."""

    why = Choice("predicate", "argument", "metadata", "evidence", "before", "summary")


class LostConclusion(Answer):
    """A conclusion that no longer holds."""

    text = Text()
    scope = Text(allow_none=True)


class PurgedEpisode(Answer):
    """An episode to purge, without its text."""

    id = Text()
    speaker = Text()
    at = Time()
    session = Text(allow_none=True)
    length = Count()


class MentioningRule(Answer):
    """A rule or phrase that mentions the subject; a purge does not remove it."""

    id = Text()
    text = Text()
    scope = Text(allow_none=True)


class EndedGoal(Answer):
    """A standing goal that mentions the subject in its id, its text, or the address of its webhook.

    A purge ends it.
    """

    id = Text()
    goal = Text()
    webhook = Text(WEBHOOK_SHOWN, allow_none=True)


class NamedScopeAnswer(Answer):
    """A scope whose name mentions the subject."""

    scope = Text()
    fact_count = Count("All facts in it.")
    dropped = Flag("True: the purge dropped it, or would drop it.")


class Purged(Answer):
    """The facts, episodes and standing goals that a purge removed, or would remove."""

    purge_id = Text("Null after a dry run.", of="id", allow_none=True)
    dry_run = Flag()
    facts = Many(PurgedFact, "At most `limit`.")
    fact_count = Count()
    conclusions = Many(LostConclusion, "At most `limit`.")
    conclusion_count = Count()
    truncated = Flag("True: the conclusions were not all counted.")
    episodes = Many(PurgedEpisode, "At most `limit`.", of=lambda done: done.episodes[: done.limit])
    episode_count = Count(of=lambda done: len(done.episodes))
    rules = Many(MentioningRule, of=lambda done: done.rules[: done.limit])
    rule_count = Count(of=lambda done: len(done.rules))
    goals = Many(EndedGoal, of=lambda done: done.goals[: done.limit])
    goal_count = Count(of=lambda done: len(done.goals))
    scopes = Many(NamedScopeAnswer, of=lambda done: done.scopes[: done.limit])
    scope_count = Count(of=lambda done: len(done.scopes))
    similar = Many(
        Text(),
        "Names that have the subject as a part of a word: what mentions only these stays.",
        of=lambda done: done.similar[: done.limit],
    )
    restored = Many(
        LabelledRow,
        "Facts that a fact of the episode or speaker had ended, as they hold without it. At most "
        "`limit`.",
    )
    erased = Flag("True: no byte of the text is left in the log and the snapshots of this node.")
    undo_from = Count(
        "Changes with lower numbers cannot be undone any more; null after a dry run.",
        allow_none=True,
    )
    timestamp = Time()


class PastPurge(Answer):
    """A purge of the past, without what it removed."""

    purge_id = Text(of="record.id")
    by = Choice("subject", "episode", "speaker", "before", "facts", of="record.by")
    at = Time(of="record.at")
    facts = Count(of="record.facts")
    episodes = Count(of="record.episodes")
    erased = Flag("True: its text is gone from the log and the snapshots of this node.")
    waits_for = Choice(
        "work",
        "followers",
        "retry",
        "storage",
        description="Why the text is not gone: it is removed soon, a follower still needs the "
        "records, the last attempt failed, or the storage cannot erase. Null if it is gone.",
        allow_none=True,
    )


class PurgeList(Answer):
    """The purges of the tenant, oldest first."""

    purges = Many(PastPurge, of=lambda purges: purges)
