"""Messages that are stored already, or were erased: a client may send the same message, or a whole
conversation, more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kbcore.errors import AlreadyExists
from kbcore.language.messages import Message
from kbcore.operations.episodes.recording import Recording
from kbcore.reason.budget import Budget
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.episodes.erased import ErasedEpisode, is_default_id, with_erased
from kbcore.state.tenant import Tenant
from kbtypes.episodes import Episode

Skipped = tuple[int, "Skipped"] | None
"""Numbers of the episodes of a list that are those of erased episodes, the last one first."""


@dataclass(slots=True)
class KnownMessages:
    """Numbers of the messages of a list that are stored already, and of those that were erased.

    They were found with the episodes `recording` in the stored episodes of `version`; without a
    recording, they follow from the messages alone.
    """

    stored: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)
    recording: Recording | None = None
    version: int = 0


def known_messages(
    recording: Recording,
    messages: Sequence[Message],
    session: str | None,
    tenant: Tenant,
    budget: Budget,
) -> KnownMessages:
    """Return which messages of a list are known: by their id, as the beginning of their session,
    and an erased one by its time and length too.

    The caller holds the read lock. Raises AlreadyExists if the id of a message belongs to another
    content.
    """
    known = KnownMessages()
    erased = tenant.erased.in_session(session)
    times = {(each.at, each.chars) for each in budget.paced(erased.values())}
    earlier: dict[str, NewEpisode] = {}
    for number, new in budget.paced(zip(recording.messages, recording.episodes, strict=True)):
        has_place = (new.at, len(new.text)) in times
        if messages[number].id is None:
            if has_place:
                known.erased.add(number)
            continue
        stored = tenant.episodes.get(new.id) or earlier.get(new.id)
        if stored is not None and not new.is_same(stored):
            raise AlreadyExists(
                f"message {number + 1}: the episode '{new.id}' has another content",
                {"episode": new.id},
            )
        if stored is not None:
            known.stored.add(number)
        elif tenant.erased.has_id(new.id) or (has_place and is_default_id(new.id)):
            known.erased.add(number)
        else:
            earlier[new.id] = new
        if stored is None:
            tenant.note_episodes(missing=new.id)
    if session is not None and any(each.id is None for each in budget.paced(messages)):
        tenant.note_episodes()
        in_session = with_erased(tenant.episodes.in_session(session), erased)
        _note_beginning(known, recording, messages, in_session, (tenant, budget))
    known.stored -= known.erased
    return known


def _note_beginning(
    known: KnownMessages,
    recording: Recording,
    messages: Sequence[Message],
    in_session: Iterable[Episode | ErasedEpisode],
    reading: tuple[Tenant, Budget],
) -> None:
    """Note the messages with which a list begins, if its session has them all and no more.

    A client may have kept an erased message in its conversation or not, so that an erased episode
    is one of the list or none; of several ways to read the list, the one with most of them counts.
    """
    tenant, budget = reading
    new = recording.episodes

    def is_erased(index: int, erased: ErasedEpisode) -> bool:
        if index == len(new) or len(new[index].text) != erased.chars:
            return False
        if messages[recording.messages[index]].id is not None:
            return tenant.erased.has_id(new[index].id)
        return new[index].at in (None, erased.at)

    ways: dict[int, Skipped] = {0: None}
    for each in budget.paced(in_session):
        if isinstance(each, ErasedEpisode):
            ways |= {
                index + 1: (index, skipped)
                for index, skipped in budget.paced(list(ways.items()))
                if is_erased(index, each)
            }
        else:
            ways = {
                index + 1: skipped
                for index, skipped in budget.paced(ways.items())
                if index < len(new) and new[index].is_same(each)
            }
        if not ways:
            return
    count = max(ways)
    begun = recording.messages[count : count + 1]
    known.stored.update(set(recording.messages[:count]).difference(begun))
    skipped = ways[count]
    while skipped is not None:
        known.erased.update({recording.messages[skipped[0]]}.difference(begun))
        skipped = skipped[1]
