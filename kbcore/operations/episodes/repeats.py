"""Messages that are stored already: a client may send the same message, or a whole conversation,
more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbcore.errors import AlreadyExists
from kbcore.language.messages import Message
from kbcore.operations.episodes.recording import Recording
from kbcore.reason.budget import Budget
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.tenant import Tenant
from kbtypes.episodes import Episode


def stored_by_id(
    recording: Recording, messages: Sequence[Message], tenant: Tenant, budget: Budget
) -> set[int]:
    """Return the numbers of the messages whose id is that of an episode, or of an earlier message.

    The caller holds the read lock. Raises AlreadyExists if the other one has another content.
    """
    stored: set[int] = set()
    earlier: dict[str, NewEpisode] = {}
    for number, new in budget.paced(zip(recording.messages, recording.episodes, strict=True)):
        if messages[number].id is None:
            continue
        known = tenant.episodes.get(new.id) or earlier.get(new.id)
        if known is None:
            tenant.note_episodes(missing=new.id)
            earlier[new.id] = new
        elif not new.is_same(known):
            raise AlreadyExists(
                f"message {number + 1}: the episode '{new.id}' has another content",
                {"episode": new.id},
            )
        else:
            stored.add(number)
    return stored


def stored_before(recording: Recording, in_session: Iterable[Episode], budget: Budget) -> set[int]:
    """Return the numbers of the messages with which a list begins, if they are all that its session
    has; otherwise none.
    """
    count = 0
    for known in budget.paced(in_session):
        if count == len(recording.episodes) or not recording.episodes[count].is_same(known):
            return set()
        count += 1
    begun = recording.messages[count : count + 1]
    return set(recording.messages[:count]).difference(begun)
