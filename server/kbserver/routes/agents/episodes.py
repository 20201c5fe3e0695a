"""Operations on episodes: texts that someone said, on which facts are based."""

from __future__ import annotations

from flask import Response, request

from kbcore.operations.episodes.episodes import DEFAULT_LISTED, AddedEpisode
from kbcore.operations.tenant_kb import TenantKB
from kbcore.python_api.episodes import PythonEpisodes
from kbcore.state.keys import READER, WRITER
from kbserver.answers import as_json
from kbserver.http.request_context import named, reader
from kbserver.operations import COUNT, TEXT, Method, Tool, as_object, operation
from kbserver.schemas.episodes.episodes import (
    LIMIT,
    OFFSET,
    EpisodeBody,
    EpisodeList,
    EpisodeToolBody,
    EpisodeWithFacts,
    NewlyStoredEpisode,
    StoredEpisode,
    episode_tool,
)
from kbserver.schemas.fields import NAME, Json
from kbserver.schemas.requests import KNOWN_AT, KNOWN_AT_PARAMETER, seen_asked, whole_asked

_PAGE = {
    "limit": {**LIMIT.schema, "minimum": 1, "description": f"Default: {DEFAULT_LISTED}."},
    "offset": {**COUNT, "description": "How many to skip."},
}


@operation(
    "POST /episodes",
    role=WRITER,
    replies=(
        as_object("The stored episode.", StoredEpisode, status=201),
        as_object("The episode was stored before.", StoredEpisode),
    ),
    body=EpisodeBody,
    core=TenantKB.add_episode,
    writes=True,
    transaction=True,
    tool=Tool(
        name="remember_episode",
        description="Store a text that someone said, word by word. Name its id in the evidence of "
        "facts that you tell.",
        takes=("speaker", "text", "at", "session"),
        answer=NewlyStoredEpisode,
        gives=("id", "length", "isNew"),
    ),
    viewed=True,
)
def add_episode(outcome: AddedEpisode, arguments: Json) -> Response:
    """Store a text that someone said.

    The same content is stored once: speaker, text, time and session give the id, unless the body
    has one.
    """
    response = as_json(StoredEpisode.write(outcome.episode))
    response.status_code = 201 if outcome.is_new else 200
    return response


@operation(
    "GET /episodes",
    role=READER,
    replies=(as_object("The episodes.", EpisodeList),),
    methods=(Method(PythonEpisodes.episodes),),
    query={
        **_PAGE,
        "session": {**NAME, "description": "Only episodes of this session."},
        "speaker": {**TEXT, "description": "Only episodes of this speaker."},
        KNOWN_AT: KNOWN_AT_PARAMETER,
    },
    prefer=("wait",),
    asks=True,
    transaction=True,
    viewed=True,
)
def episodes() -> Response:
    """List the episodes in the order in which they were stored."""
    asked = request.args
    session = asked.get("session")
    page = seen_asked(reader(), asked).episodes(
        session=None if session is None else named("session", session),
        speaker=asked.get("speaker"),
        limit=whole_asked(asked, "limit", LIMIT, DEFAULT_LISTED),
        offset=whole_asked(asked, "offset", OFFSET, 0),
    )
    return as_json(EpisodeList.write(page))


@operation(
    "GET /episodes/<id>",
    role=READER,
    replies=(as_object("The episode, with the facts that it supports.", EpisodeWithFacts),),
    methods=(Method(PythonEpisodes.episode),),
    query={**_PAGE, KNOWN_AT: KNOWN_AT_PARAMETER},
    prefer=("wait",),
    asks=True,
    transaction=True,
    tool=Tool(
        name="episode",
        description="What was said in an episode, and the facts that depend on it.",
        body=EpisodeToolBody,
        takes=("id", "limit", "offset"),
        gives=("id", "speaker", "text", "at", "facts", "totalFacts"),
        work=episode_tool,
    ),
    viewed=True,
)
def episode(id: str) -> Response:
    """Return an episode with the stored facts whose evidence names it."""
    outcome = seen_asked(reader(), request.args).episode(
        named("id", id),
        limit=whole_asked(request.args, "limit", LIMIT, DEFAULT_LISTED),
        offset=whole_asked(request.args, "offset", OFFSET, 0),
    )
    return as_json(EpisodeWithFacts.write(outcome))
