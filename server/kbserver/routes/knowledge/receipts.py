"""Receipts of answers, and the public key that verifies them."""

from __future__ import annotations

from flask import Response

from kbcore.errors import NotFound
from kbcore.operations.tenant_kb import TenantKB
from kbcore.receipts.signing import SETTING
from kbcore.state.keys import READER
from kbserver.answers import JSON, written
from kbserver.http.etags import digested
from kbserver.http.request_context import runtime
from kbserver.operations import as_object, operation
from kbserver.schemas.fields import Json
from kbserver.schemas.node import ReceiptKeys
from kbserver.schemas.reason import ReceiptAsked, ReceiptBundle
from kbserver.security.permissions import PUBLIC, About

KEY_PATH = "/.well-known/kbcore-receipt-key"
"""Path of the public key of receipts."""


@operation(
    "POST /receipt",
    role=READER,
    replies=(as_object("The receipt, in canonical JSON.", ReceiptBundle),),
    body=ReceiptAsked,
    core=TenantKB.receipt,
    errors=(404,),
    prefer=("wait",),
    asks=True,
    audited=True,
    example={"goals": ["likes(cid, ?x)"]},
)
def receipt(outcome: bytes, arguments: Json) -> Response:
    """Return a signed receipt of the answers of goals, with their proofs.

    It has the facts and rules of the proofs, the records of the log that state them, the chain of
    digests from these to the last record, and the purges. Keep the bytes as they are: the form is
    canonical JSON (RFC 8785). Without `RECEIPT_KEY_FILE` the answer is 404.
    """
    return Response(outcome, content_type=JSON)


@operation(
    f"GET {KEY_PATH}",
    role=PUBLIC,
    about=About.NOTHING,
    replies=(as_object("The key, as a JSON Web Key Set.", ReceiptKeys),),
    errors=(404,),
    tagged=True,
    tenant=False,
    headers_checked=False,
)
def receipt_key() -> Response:
    """Return the public key that verifies receipts and the signature of the agent card."""
    key = runtime().receipt_key
    if key is None:
        raise NotFound("this server has no key for receipts", {"setting": SETTING})
    response = Response(written({"keys": [key.jwk]}), content_type=JSON)
    response.headers["Cache-Control"] = "public, max-age=300"
    return digested(response)
