"""The agent card and messages with the official SDK, in both of its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import Server

pytest.importorskip("a2a", reason="the official SDK is not installed; tox -e full has it")

import httpx
import jwt
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.compat.v0_3.types import AgentCard as OlderCard
from a2a.types import Message, Part, Role, SendMessageRequest
from a2a.types.a2a_pb2 import AgentCard, GetTaskRequest
from a2a.utils.errors import TaskNotFoundError
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf.json_format import MessageToDict, ParseDict

from kbcore.encryption.master_key import create_key

pytestmark = pytest.mark.filterwarnings("ignore")

PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server(tmp_path_factory.mktemp("a2a")) as server:
        yield f"http://{server.address[0]}:{server.address[1]}"


def test_the_card_is_valid_in_both_versions(url: str) -> None:
    for path in PATHS:
        card = httpx.get(url + path).json()
        older = OlderCard.model_validate(card)
        assert older.url == f"{url}/a2a"
        for key in ("url", "protocolVersion", "preferredTransport"):
            del card[key]
        found = ParseDict(card, AgentCard())  # strictly: an unknown member is an error
        assert found.supported_interfaces[0].url == f"{url}/a2a"
        assert found.supported_interfaces[0].protocol_version == "1.0"


def said(text: str = "", **data: Any) -> SendMessageRequest:
    part = Part(text=text) if text else ParseDict({"data": data}, Part())
    return SendMessageRequest(message=Message(message_id="m", role=Role.ROLE_USER, parts=[part]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_messages(url: str, path: str, version: str) -> None:
    async def work() -> None:
        async with httpx.AsyncClient() as http:
            card = await A2ACardResolver(http, url, path).get_agent_card()
            for interface in list(card.supported_interfaces):
                if interface.protocol_version != version:
                    card.supported_interfaces.remove(interface)
            client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)

            async def ask(request: SendMessageRequest) -> dict[str, Any]:
                replies = [reply async for reply in client.send_message(request)]
                assert len(replies) == 1
                (part,) = MessageToDict(replies[0])["message"]["parts"]
                data: dict[str, Any] = part["data"]
                return data

            assert (await ask(said(op="tell", predicate="parent", args=["ann", "bob"])))["result"][
                "updated"
            ] in (0, 1)
            assert (await ask(said("anc(?x, ?y) :- parent(?x, ?y).")))["op"] == "ingest"
            found = await ask(said("anc(ann, ?who)"))
            assert found["result"]["results"][0]["args"] == ["ann", "bob"]
            wrong = await ask(said(op="ask", predicate="parent"))
            assert wrong["error"]["code"] == "VALIDATION_ERROR"
            with pytest.raises(TaskNotFoundError):
                await client.get_task(GetTaskRequest(id="t"))

    asyncio.run(asyncio.wait_for(work(), 30))


def test_the_card_has_a_signature_that_the_sdk_verifies(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    create_key(str(tmp_path / "key"))
    with Server(tmp_path / "data", RECEIPT_KEY_FILE=str(tmp_path / "key")) as server:
        url = f"http://{server.address[0]}:{server.address[1]}"
        card = httpx.get(url + PATHS[0]).json()
        keys = httpx.get(f"{url}/.well-known/kbcore-receipt-key").json()["keys"]
    for key in ("url", "protocolVersion", "preferredTransport"):
        del card[key]
    known = {each["kid"]: jwt.PyJWK.from_dict(each) for each in keys}
    verify = create_signature_verifier(lambda kid, jku: known[str(kid)], ["EdDSA"])
    verify(ParseDict(card, AgentCard()))
    card["name"] = "another"
    with pytest.raises(InvalidSignaturesError):
        verify(ParseDict(card, AgentCard()))
