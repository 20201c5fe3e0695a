"""The operation that previews a change."""

from __future__ import annotations

from flask import Response

from kbcore.branching.preview import TruthPreview
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.keys import READER
from kbserver.answers import as_json
from kbserver.operations import Tool, as_object, operation
from kbserver.schemas.fields import Json
from kbserver.schemas.scopes import PreviewBody, Previewed


@operation(
    "POST /preview",
    role=READER,
    replies=(as_object("What the change would make true, false or undefined.", Previewed),),
    body=PreviewBody,
    viewed=True,
    core=TenantKB.preview,
    prefer=("wait",),
    errors=(409,),
    tool=Tool(
        name="preview",
        description="Show what would become true or false if facts and rules were stored (tell, "
        "teach) or retracted (forget, forgetRules). Nothing is stored.",
        takes=("tell", "teach", "forget", "forgetRules", "scope", "limit"),
        gives=("counts", "becomesTrue?", "becomesFalse?", "becomesUndefined?", "truncated?"),
    ),
)
def preview(outcome: TruthPreview, arguments: Json) -> Response:
    """Preview a change: what it would make true, false or undefined.

    Nothing is stored. Facts and rules are retracted first, then others are stored, so that an edit
    is a retraction and an assertion in one request.
    """
    return as_json(Previewed.write(outcome))
