"""Episodes: bodies and answers."""

from __future__ import annotations

from typing import Any

from kbcore.operations.episodes.episodes import DEFAULT_LISTED, MAX_LISTED
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.episodes.episodes import MAX_SPEAKER_CHARS
from kbserver.schemas.base import Answer, Body
from kbserver.schemas.facts import Row
from kbserver.schemas.fields import Count, Flag, Instant, Json, Many, Name, Text, Time, Whole
from kbserver.schemas.requests import OfAnyInstant, seen

LIMIT = Whole(1, MAX_LISTED)
OFFSET = Whole(0)


class EpisodeBody(Body):
    """A text that someone said."""

    speaker = Text(required=True, schema={"minLength": 1, "maxLength": MAX_SPEAKER_CHARS})
    text = Text("At most EPISODE_MAX_CHARS characters.", required=True)
    at = Instant()
    session = Name("a session")
    id = Name("an episode")


class EpisodeToolBody(OfAnyInstant):
    """The episode whose facts a tool lists."""

    id = Name("an episode", required=True)
    limit = Whole(1, MAX_LISTED)
    offset = Whole(0)


class StoredEpisode(Answer):
    """A text that someone said."""

    id = Text()
    speaker = Text()
    text = Text()
    at = Time()
    session = Text(allow_none=True)
    sha256 = Text("Of the text in UTF-8, in hexadecimal digits.")
    length = Count("Characters of the text.")


class NewlyStoredEpisode(StoredEpisode):
    """A stored episode."""

    id = Text(of="episode.id")
    speaker = Text(of="episode.speaker")
    text = Text(of="episode.text")
    at = Time(of="episode.at")
    session = Text(of="episode.session", allow_none=True)
    sha256 = Text("Of the text in UTF-8, in hexadecimal digits.", of="episode.sha256")
    length = Count("Characters of the text.", of="episode.length")
    is_new = Flag("False: it was stored before.", data_key="isNew")


class EpisodeWithFacts(StoredEpisode):
    """An episode, and a page of the stored facts that it supports."""

    id = Text(of="episode.id")
    speaker = Text(of="episode.speaker")
    text = Text(of="episode.text")
    at = Time(of="episode.at")
    session = Text(of="episode.session", allow_none=True)
    sha256 = Text("Of the text in UTF-8, in hexadecimal digits.", of="episode.sha256")
    length = Count("Characters of the text.", of="episode.length")
    facts = Many(Row, "Facts of every scope whose evidence names the episode.")
    total_facts = Count(of="total")


class EpisodeList(Answer):
    """A page of episodes, in the order in which they were stored."""

    episodes = Many(StoredEpisode)
    total = Count()


def episode_tool(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return an episode with the facts that it supports."""
    arguments: dict[str, Any] = EpisodeToolBody().read(data, strict=strict)
    return EpisodeWithFacts.write(
        seen(kb, arguments).episode(
            arguments["id"],
            limit=arguments.get("limit", DEFAULT_LISTED),
            offset=arguments.get("offset", 0),
        )
    )
