"""JSON-RPC 2.0 messages, used by MCP and A2A."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.strict_json import NotJson
from kbserver.http.json_body import parse_object
from kbserver.pace import reading

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

Id = str | int
Json = dict[str, Any]


class RpcFailure(Exception):
    """A request that is answered with an error; `status` overrides the HTTP status of the code,
    `headers` are further ones of the response.
    """

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        *,
        status: int | None = None,
        id: Id | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.id = id
        self.headers = headers or {}


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """A request, or a notification if `id` is None; `reply` marks an answer to a request of the
    server, whose result is `result`, None if it is an error.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    id: Id | None = None
    reply: bool = False
    result: Any = None

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` member of the parameters; empty if it is not an object."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    def text(self, name: str) -> str:
        """Return a parameter that must be a non-empty string; raises Failure."""
        value = self.params.get(name)
        if type(value) is not str or not value:
            raise RpcFailure(INVALID_PARAMS, f"params.{name} must be a string")
        return value

    def object(self, name: str) -> dict[str, Any]:
        """Return a parameter that must be an object, empty if absent; raises Failure."""
        value = self.params.get(name)
        if value is None:
            return {}
        if type(value) is not dict:
            raise RpcFailure(INVALID_PARAMS, f"params.{name} must be an object")
        return value


def read_message(body: bytes, max_depth: int) -> RpcMessage:
    """Parse the message in a body; raises Failure, also for batches."""
    try:
        with reading({}):
            fields = parse_object(body, max_depth)
    except InvalidInput as error:
        code = PARSE_ERROR if isinstance(error, NotJson) else INVALID_REQUEST
        hint = "; batches are not supported" if body.lstrip()[:1] == b"[" else ""
        raise RpcFailure(code, error.message + hint) from error
    if not body:
        raise RpcFailure(PARSE_ERROR, "the body is empty")
    id = fields.get("id")
    if "id" in fields and type(id) not in (str, int):
        raise RpcFailure(INVALID_REQUEST, "id must be a string or an integer")
    if fields.get("jsonrpc") != "2.0":
        raise RpcFailure(INVALID_REQUEST, 'jsonrpc must be "2.0"', id=id)
    method, params = fields.get("method"), fields.get("params")
    if method is None and id is not None and ("result" in fields or "error" in fields):
        return RpcMessage("", {}, id, reply=True, result=fields.get("result"))
    if type(method) is not str or not method:
        raise RpcFailure(INVALID_REQUEST, "method must be a string", id=id)
    if params is not None and type(params) is not dict:
        raise RpcFailure(INVALID_PARAMS, "params must be an object", id=id)
    return RpcMessage(method, params or {}, id)


def result(id: Id | None, value: Any) -> Json:
    """Return the JSON-RPC result of a request."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(id: Id | None, failure: RpcFailure) -> Json:
    """Return the JSON-RPC error of a request; the id is null if it could not be read."""
    body: Json = {"code": failure.code, "message": failure.message}
    if failure.data is not None:
        body["data"] = failure.data
    return {"jsonrpc": "2.0", "id": failure.id if id is None else id, "error": body}


def notification(method: str, params: Json) -> Json:
    """Return a JSON-RPC notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}
