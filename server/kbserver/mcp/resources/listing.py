"""MCP resources: listing and reading by URI. Facts are paged."""

from __future__ import annotations

from typing import Any

from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.options import AnswerOptions
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.terms import Atom, Literal, Variable
from kbserver.answers import written
from kbserver.mcp.resources import uris
from kbserver.mcp.resources.uris import Address
from kbserver.schemas.context import Entry
from kbserver.schemas.ingest import SummaryAnswer
from kbserver.schemas.rules import StoredRuleShown

PAGE_SIZE = 200
"""Facts per page."""

JSON, TEXT = "application/json", "text/plain"

Json = dict[str, Any]

LISTED = tuple(
    {"uri": f"{uris.SCHEME}://{kind}", "name": kind, "description": description, "mimeType": JSON}
    for kind, description in (
        (uris.PREDICATES, "The predicates with their arity and their number of facts and rules."),
        (uris.RULES, "The rules, as text and as JSON."),
        (uris.SCOPES, "The names of the scopes."),
        (
            uris.SUMMARY,
            "Summary of the knowledge base: counts, most salient facts, contradictions.",
        ),
        (
            uris.FACTS,
            "The facts of the base scope, in pages; `next` is the URI of the next page.",
        ),
    )
)

TEMPLATES = tuple(
    {
        "uriTemplate": f"{uris.SCHEME}://{path}",
        "name": name,
        "description": description,
        "mimeType": kind,
    }
    for path, name, description, kind in (
        (
            "facts/{predicate}",
            "facts of a predicate",
            "The facts of one predicate in the base scope.",
            JSON,
        ),
        (
            "scopes/{scope}/facts/{predicate}",
            "facts in a scope",
            "The facts of one predicate in a scope.",
            JSON,
        ),
        ("context/{sessionId}", "context window", "The last context window of a session.", JSON),
        (
            "proof/{predicate}{/args*}",
            "proof",
            "Why a fact or conclusion of the base scope holds, as text.",
            TEXT,
        ),
    )
)


def read(kb: TenantKB, uri: str, address: Address) -> Json | None:
    """Return the contents of a resource, or None if it does not exist; raises KBError."""
    if address.kind == uris.PROOF:
        literal = Literal(Atom(address.name or "", address.args))
        return {
            "uri": uri,
            "mimeType": TEXT,
            "text": kb.explain((literal,), AnswerOptions(limit=1)),
        }
    contents = _contents(kb, address)
    return (
        None
        if contents is None
        else {"uri": uri, "mimeType": JSON, "text": written(contents).decode()}
    )


def _contents(kb: TenantKB, address: Address) -> Json | None:
    if address.kind == uris.FACTS:
        return _facts(kb, address)
    if address.kind == uris.RULES:
        return {"rules": StoredRuleShown.write_all(kb.rules(ALL_SCOPES))}
    if address.kind == uris.PREDICATES:
        return kb.predicates()
    if address.kind == uris.SCOPES:
        names = kb.scopes()
        return {"scopes": names, "count": len(names)}
    if address.kind == uris.SUMMARY:
        summary: Json = SummaryAnswer.write(kb.context_summary(None))
        return summary
    window = kb.last_window(address.name or "")
    if window is None:
        return None
    entries = Entry.write_all(window.entries)
    return {
        "windowId": window.id,
        "generatedAt": window.generated_at,
        "entries": entries,
        "rules": list(window.rules),
    }


def _facts(kb: TenantKB, address: Address) -> Json:
    """Return a page of facts; predicates before the page are skipped by their counts."""
    known = kb.predicates(address.scope)["predicates"]
    chosen = [row for row in known if address.name in (None, row["predicate"]) and row["factCount"]]
    contents: list[Json] = []
    skip = address.offset
    for row in chosen:
        if skip >= row["factCount"]:
            skip -= row["factCount"]
            continue
        limit = skip + PAGE_SIZE + 1 - len(contents)
        pattern = [Variable(f"v{index}") for index in range(row["arity"])]
        contents += kb.query_rows(row["predicate"], pattern, scope=address.scope, limit=limit)[
            skip:
        ]
        skip = 0
        if len(contents) > PAGE_SIZE:
            following = uris.facts_uri(address.name, address.scope, address.offset + PAGE_SIZE)
            return {"facts": contents[:PAGE_SIZE], "count": PAGE_SIZE, "next": following}
    return {"facts": contents, "count": len(contents), "next": None}
