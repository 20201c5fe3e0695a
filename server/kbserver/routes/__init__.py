"""The routes, one blueprint per file.

A route loads the body, calls one method of the core and returns the serialized result.
"""

from flask import Blueprint

from kbserver.routes.agents import agent, context, ingest, language, mcp, memory
from kbserver.routes.knowledge import facts, reason, rules, scopes, transactions
from kbserver.routes.node import admin, auth, documents, events, maintenance, ops, replication

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
