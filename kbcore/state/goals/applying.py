"""Application of the changes of subscriptions to a tenant."""

from __future__ import annotations

from kbcore.state.changes import Delta, EndSubscriptions, NoteDelivery, PutSubscription
from kbcore.state.goals.subscriptions import Moment
from kbcore.state.tenant import Tenant


def change_subscriptions(
    tenant: Tenant, change: PutSubscription | EndSubscriptions | NoteDelivery, delta: Delta
) -> None:
    """Add, renew or remove subscriptions, or record what the receiver of a webhook has."""
    if isinstance(change, PutSubscription):
        tenant.subscriptions.put(change.subscription, Moment(delta.seq, tenant.at(delta.at)))
    elif isinstance(change, EndSubscriptions):
        tenant.subscriptions.remove(change.ids)
    else:
        tenant.subscriptions.note_delivery(change.id, change.delivered)
