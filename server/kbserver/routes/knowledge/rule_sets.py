"""Operations on rule sets: deploy, list, compare and roll back."""

from __future__ import annotations

from flask import Response, request

from kbcore.errors import InvalidInput
from kbcore.python_api.rule_sets import PythonRuleSets
from kbcore.state.keys import READER, WRITER
from kbserver.answers import as_json
from kbserver.http.request_context import current_request, named, reader, writer
from kbserver.mcp import work
from kbserver.operations import COUNT, Method, Tool, as_object, operation
from kbserver.schemas.fields import EVERY_SCOPE, ReadScope, WriteScope
from kbserver.schemas.requests import (
    KNOWN_AT,
    KNOWN_AT_PARAMETER,
    load,
    scope_asked,
    seen_asked,
)
from kbserver.schemas.rule_sets import (
    DeployBody,
    Deployed,
    RollbackBody,
    RolledBack,
    RuleSetCompared,
    RuleSetContentsShown,
    RuleSetShown,
    RuleSetsShown,
    RuleSetVersionShown,
    RuleSetVersionsShown,
    notes_of,
)
from kbserver.security import audit
from kbserver.security.permissions import demand


@operation(
    "PUT /rulesets/<name>",
    role=WRITER,
    viewed=True,
    replies=(as_object("What changed, or would change.", Deployed),),
    body=DeployBody,
    writes=True,
    checked_inside=True,
    asks=True,
    errors=(422,),
    audited=True,
    dry_runs=True,
    tool=Tool(
        name="deploy",
        description="Replace a rule set by a text with rules, declarations and facts; what the text"
        " lacks is removed. dryRun shows what would change, and the changed answers of impactGoals."
        " expectedVersion: the version in force, 0 for none.",
        body=work.DeployToolBody,
        takes=(
            "name",
            "text",
            "scope",
            "expectedVersion",
            "dryRun",
            "impactGoals",
            "message",
            "revision",
        ),
        gives=(
            "name",
            "version",
            "added",
            "changed",
            "removed",
            "facts",
            "commit",
            "warnings",
            "impact?",
        ),
        destroys=True,
        work=work.deploy,
    ),
)
def deploy(name: str) -> Response:
    """Replace the contents of a rule set, as one change.

    What the files no longer have is removed, unless another rule set contains it or it was also
    stored one by one. Without a difference no version is made, and `commit` is null. Another
    version than the expected one is an error 409 with `version` in its details. A reader may send
    `dryRun`, with `impact` to see what would become true and false.
    """
    arguments = load(DeployBody)
    served = current_request()
    is_dry = arguments["dry_run"] is not None
    if served.principal is not None and not is_dry:
        demand(served.principal, WRITER)
    if served.keyed is not None:
        served.keyed.is_dry = is_dry
    if is_dry:
        audit.planned()
    outcome = writer().deploy(name=named("name", name), **arguments)
    audit.deployed(outcome, **notes_of(arguments))
    return as_json(Deployed.write(outcome))


@operation(
    "POST /rulesets/<name>/rollback",
    role=WRITER,
    viewed=True,
    replies=(as_object("What changed.", RolledBack),),
    body=RollbackBody,
    methods=(Method(PythonRuleSets.rollback),),
    writes=True,
    errors=(404, 422),
    audited=True,
    tool=Tool(
        name="rollback",
        description="Deploy an earlier version of a rule set again, by default the one before.",
        body=work.RollbackToolBody,
        takes=("name", "version", "scope", "expectedVersion", "message"),
        gives=("name", "version", "added", "changed", "removed", "facts", "commit", "warnings"),
        destroys=True,
        repeats=False,
        work=work.rollback,
    ),
)
def rollback(name: str) -> Response:
    """Deploy the contents of an earlier version of a rule set, as a new version."""
    arguments = load(RollbackBody)
    outcome = writer().rollback(named("name", name), **arguments)
    audit.deployed(outcome, message=arguments.get("message"))
    return as_json(RolledBack.write(outcome))


@operation(
    "GET /rulesets",
    role=READER,
    viewed=True,
    replies=(as_object("The rule sets.", RuleSetsShown),),
    methods=(Method(PythonRuleSets.rule_sets),),
    query={"scope": ReadScope.schema, KNOWN_AT: KNOWN_AT_PARAMETER},
    prefer=("wait",),
    asks=True,
    tool=Tool(
        name="rule_sets",
        description="List the rule sets there are, with the versions in force; with a name, the"
        " versions that are kept.",
        body=work.RuleSetsToolBody,
        answer=work.RuleSetsListed,
        takes=("name", "scope"),
        gives=("ruleSets?", "versions?", "count"),
        work=work.rule_sets,
    ),
)
def rule_sets() -> Response:
    """List the rule sets of a tenant, with the version that is in force."""
    scope = scope_asked(request.args, EVERY_SCOPE)
    known = seen_asked(reader(), request.args).rule_sets(scope)
    return as_json({"ruleSets": RuleSetShown.write_all(known), "count": len(known)})


@operation(
    "GET /rulesets/<name>",
    role=READER,
    viewed=True,
    replies=(as_object("The contents.", RuleSetContentsShown),),
    methods=(Method(PythonRuleSets.rule_set),),
    query={"scope": WriteScope.schema},
    errors=(404,),
)
def contents(name: str) -> Response:
    """Return the contents of a rule set in the version that is in force, as statements."""
    scope = scope_asked(request.args, None)
    outcome = reader().rule_set(named("name", name), scope=scope)
    return as_json(RuleSetContentsShown.write(outcome))


@operation(
    "GET /rulesets/<name>/versions",
    role=READER,
    viewed=True,
    replies=(as_object("The versions.", RuleSetVersionsShown),),
    methods=(Method(PythonRuleSets.rule_set_versions),),
    query={"scope": WriteScope.schema},
    errors=(404,),
)
def versions(name: str) -> Response:
    """List the kept versions of a rule set, the newest first."""
    scope = scope_asked(request.args, None)
    known = reader().rule_set_versions(named("name", name), scope=scope)
    return as_json({"versions": RuleSetVersionShown.write_all(known)})


@operation(
    "GET /rulesets/<name>/diff",
    role=READER,
    viewed=True,
    replies=(as_object("The differences.", RuleSetCompared),),
    methods=(Method(PythonRuleSets.rule_set_diff, keys={"before": "from", "after": "to"}),),
    query={"from": COUNT, "to": COUNT, "scope": WriteScope.schema},
    errors=(404, 422),
)
def diff(name: str) -> Response:
    """Compare two versions of a rule set; version 0 is empty."""
    scope = scope_asked(request.args, None)
    before, after = (_version_asked(key) for key in ("from", "to"))
    outcome = reader().rule_set_diff(named("name", name), before, after, scope=scope)
    return as_json(RuleSetCompared.write(outcome))


def _version_asked(key: str) -> int:
    text = request.args.get(key, "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput.at(key, "must be the number of a version")
    return int(text)
