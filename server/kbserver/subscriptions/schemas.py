"""Standing goals: the body of a subscription, and the answers."""

from __future__ import annotations

from typing import Any, ClassVar

from kbcore.errors import InvalidInput
from kbcore.operations.subscriptions.replaying import GoalChange
from kbcore.operations.subscriptions.subscribing import (
    DEFAULT_TTL_MS,
    MAX_TTL_MS,
    DurableSubscription,
    GoalAnswers,
)
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.subscriptions import Webhook
from kbplanner.syntax.textform import body_from_text
from kbserver.schemas.base import Answer, Body, JsonObject
from kbserver.schemas.fields import (
    WEBHOOK_SHOWN,
    Arguments,
    ByName,
    Count,
    Duration,
    Flag,
    Json,
    Many,
    ReadScope,
    Text,
    Time,
    Value,
    Whole,
)

EVENT_ID = "Names a change of the goal; `since` takes it, to read the changes after it."


MAX_URL = 2000
"""Maximum length of the address and of the secret of a webhook, in characters."""

CHANGE_LIMIT = Whole(1, 1000, "Largest number of changes.")


class WebhookField(Value):
    """The address to which the changes of a goal are sent."""

    schema: ClassVar[Json] = {
        "type": "object",
        "required": ["url"],
        "additionalProperties": False,
        "properties": {
            "url": {
                "type": "string",
                "description": "An http or https address below one that WEBHOOK_URLS allows.",
            },
            "secret": {
                "type": "string",
                "description": "Signs the deliveries: `whsec_` and 24 to 64 bytes in base64. Never "
                "shown again; without it the secret of the settings signs.",
            },
        },
    }

    def read(self, value: Any) -> Webhook:
        """Return the webhook; raise ValueError for any other object."""
        if not isinstance(value, dict) or not {"url"} <= value.keys() <= {"url", "secret"}:
            raise ValueError("must be an object with url and perhaps secret")
        if not all(isinstance(text, str) and len(text) <= MAX_URL for text in value.values()):
            raise ValueError(f"has texts of at most {MAX_URL} characters")
        return Webhook(value["url"], value.get("secret", ""))


class SubscribeBody(Body):
    """A goal whose answers are kept current."""

    goal = Text(
        "One or more literals as text, such as `ancestor(ann, ?who)`.",
        required=True,
        schema={"minLength": 1},
    )
    scope = ReadScope()
    ttl = Duration(
        1000,
        MAX_TTL_MS,
        f"Milliseconds, or a text such as `1h`, after its last use after which the goal ends; {DEFAULT_TTL_MS} by default.",
    )
    id = Text("A name chosen by the client; subscribing again with it renews the goal.")
    webhook = WebhookField("Send each change to this address.")
    durable = Flag("False keeps the goal in memory only: a restart ends it. True by default.")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.subscribe_goal`."""
        if "ttl" in fields:
            fields["ttl_ms"] = fields.pop("ttl")
        fields["body"] = body_from_text(fields.pop("goal"), "goal")
        webhook = fields.pop("webhook", None)
        if fields.pop("durable", True):
            fields["keep"] = DurableSubscription(webhook)
        elif webhook is not None:
            raise InvalidInput.at("durable", "must be true for a goal with a webhook")
        return fields


class GoalAnswer(JsonObject):
    """An answer: an atom, or the bindings of a goal of several literals."""

    predicate = Text(optional=True)
    args = Arguments(optional=True)
    negated = Flag(optional=True)
    scope = Text(optional=True, allow_none=True)
    bindings = ByName(Text(), optional=True, description="Values by variable, such as `?x`.")


class StandingGoalShown(Answer):
    """A standing goal."""

    id = Text()
    goal = Text("The goal as text.")
    scope = Text(allow_none=True)
    ttl = Count(of="ttl_ms")
    expires_at = Time()
    count = Count("Number of current answers.")
    webhook = Text(WEBHOOK_SHOWN, of="public_webhook_url", allow_none=True)
    durable = Flag("True if the goal survives a restart.", of="is_durable")
    behind = Flag(
        "True if the answers are brought up to date when they are read, because the last change "
        "took too long.",
        of="is_behind",
    )


class StandingGoalList(JsonObject):
    """The standing goals of a tenant."""

    goals = Many(StandingGoalShown)


class Subscribed(StandingGoalShown):
    """A standing goal with its answers."""

    event_id = Text(EVENT_ID)
    commit_seq = Count("The last commit that the answers include.")
    timestamp = Time()
    answers = Many(GoalAnswer)


class GoalChangeShown(Answer):
    """Answers that appeared and disappeared with one commit, or when facts expired."""

    event_id = Text(EVENT_ID)
    commit_seq = Count(of="seq")
    previous_commit_seq = Count(
        "The commit before which the answers are compared with.", of="previous_seq"
    )
    timestamp = Time(of="at")
    appeared = Many(GoalAnswer)
    disappeared = Many(GoalAnswer)


class GoalChanges(JsonObject):
    """Changes of a standing goal."""

    changes = Many(GoalChangeShown)
    lost = Flag("True if the changes since the event are not kept: read the answers again.")


class GoalEnded(JsonObject):
    """The end of a standing goal."""

    ended = Flag("False if there was no goal of this id.")


def subscribed(outcome: GoalAnswers) -> Json:
    """Return a goal with its answers as JSON."""
    members: dict[str, Any] = StandingGoalShown.write(outcome.goal)
    return {
        **members,
        "webhook": outcome.webhook,
        "eventId": outcome.event_id,
        "commitSeq": outcome.seq,
        "timestamp": outcome.at,
        "answers": outcome.answers,
    }


def listed(kb: TenantKB) -> Json:
    """Return the goals of a tenant without their answers as JSON."""
    goals = [
        {**StandingGoalShown.write(goal), "webhook": kb.shown_webhook(goal)}
        for goal in kb.standing_goals()
    ]
    return {"goals": goals}


def changes_shown(changes: list[GoalChange] | None) -> Json:
    """Return changes as JSON; None means that they are not kept."""
    return {"changes": GoalChangeShown.write_all(changes or ()), "lost": changes is None}
