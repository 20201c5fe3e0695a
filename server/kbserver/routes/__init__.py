"""The routes, one blueprint a file. A route loads, calls one method of the core, dumps and returns."""

from flask import Blueprint

from kbserver.routes import (
    admin,
    agent,
    auth,
    context,
    documents,
    events,
    facts,
    ingest,
    language,
    maintenance,
    mcp,
    memory,
    ops,
    reason,
    replication,
    rules,
    scopes,
    transactions,
)

BLUEPRINTS: tuple[Blueprint, ...] = (
    ops.bp,
    facts.bp,
    rules.bp,
    reason.bp,
    transactions.bp,
    scopes.bp,
    memory.bp,
    context.bp,
    events.bp,
    ingest.bp,
    language.bp,
    admin.bp,
    maintenance.bp,
    mcp.bp,
    agent.bp,
    auth.bp,
    documents.bp,
    replication.bp,
    replication.admin,
)
