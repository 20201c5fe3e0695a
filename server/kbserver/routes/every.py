"""All operations; importing this module declares them, in the order of the OpenAPI document."""

from kbserver.routes.agents import (
    agent,
    context,
    correction,
    episodes,
    history,
    ingest,
    language,
    mcp,
    memory,
    user_memory,
)
from kbserver.routes.knowledge import (
    facts,
    preview,
    reason,
    rules,
    scopes,
    subscriptions,
    transactions,
)
from kbserver.routes.node import (
    admin,
    auth,
    cluster,
    console,
    documents,
    events,
    maintenance,
    ops,
    replication,
)

SUBJECTS = (
    ops,
    facts,
    rules,
    reason,
    subscriptions,
    preview,
    transactions,
    scopes,
    user_memory,
    memory,
    episodes,
    history,
    correction,
    context,
    events,
    ingest,
    language,
    admin,
    cluster,
    maintenance,
    mcp,
    agent,
    auth,
    console,
    documents,
    replication,
)
"""The modules with operations."""
