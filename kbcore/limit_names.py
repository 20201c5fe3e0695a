"""Names of the limits that errors report: `details.limit` has the name, `details.value` the size.

A limit that a setting decides has the name of the setting. The others are listed here: budgets of
an evaluation, which requests can lower, and limits that are fixed.
"""

from __future__ import annotations

BUDGET_LIMITS = {
    "answers": "answers listed: `QUERY_MAX_ANSWERS`, `maxAnswers`",
    "derivedRows": "rows derived: `QUERY_MAX_ROWS`, `maxRows`",
    "historyMb": "MiB of the earlier state that `knownAt` needs: `HISTORY_CACHE_MB`",
    "memoryBytes": "bytes of derived rows: `QUERY_MAX_BYTES`, `maxBytes`",
    "mergeDecisions": "conflicts that a merge decides differently from the most frequent decision",
    "planConstants": "different constants in the rules that a goal depends on",
    "proofNodes": "nodes of all proofs: `QUERY_MAX_PROOF_NODES`",
    "rounds": "rounds in which a change follows a recursive conclusion",
    "ruleVariables": "variables that matter to the instances of a rule",
    "steps": "steps of the engine: `QUERY_MAX_STEPS`, `maxSteps`",
    "timeMs": "milliseconds: `QUERY_TIMEOUT_MS`, `timeoutMs`, `Prefer: wait`",
}
"""Limits of BUDGET_EXCEEDED, with their meaning, and the setting and the field that lower them."""

FIXED_LIMITS = {
    "address": "requests from an address: `RATE_LIMIT_ADDRESS`",
    "batchBytes": "bytes of the log records that are written at once",
    "bodyContainers": "arrays and objects of a body over 64 KiB",
    "bootstrap": "tries of `POST /auth/bootstrap` in a minute",
    "calls": "active requests of an MCP session",
    "credentials": "wrong keys from an address in a minute",
    "default": "requests of a key, without keys of a tenant: `RATE_LIMIT`",
    "keys": "API keys of a node",
    "labelSets": "different labels in a tenant",
    "newTextChars": "characters of constants that no fact has, in a preview or a transaction",
    "objectMembers": "members of an object in a body over 64 KiB",
    "questions": "open questions to the user of an MCP session",
    "recordBytes": "bytes of a log record or of a part of a snapshot",
    "resources": "resources that an MCP session follows",
    "sessions": "MCP sessions of a tenant",
    "streams": "open MCP streams of a tenant",
    "tenant": "requests of a tenant: `RATE_LIMIT_TENANT`",
    "timesOfAFact": "times that a text with labels stores one fact",
    "tokens": "refused tokens of an issuer from an address in a minute",
    "valueBytes": "bytes of a body over 64 KiB without a comma between two values",
    "viewsWithGoals": "views of a tenant that have standing goals",
}
"""Limits of PAYLOAD_TOO_LARGE and RATE_LIMITED that are not the name of a setting, with their
meaning.

`address`, `default` and `tenant` are names of policies in the header `RateLimit-Policy`.
"""
