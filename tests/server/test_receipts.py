"""Receipts over HTTP and as a command: `POST /receipt`, its public key, and `kbcore receipt`."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner
from support.http import Served, error_of, serve_in_memory
from support.keys import ONE

from kbcore.receipts.canonical_json import canonical_json
from kbcore.receipts.signing import ReceiptKey
from kbcore.receipts.verifier import verify
from kbserver.cli import cli

RULES = "parent(ann, bob). parent(bob, cy). anc(?x, ?y) :- parent(?x, ?y)."
KEY_PATH = "/.well-known/kbcore-receipt-key"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "receipt.key"
    path.write_bytes(base64.b64encode(bytes(range(32))))
    return str(path)


@pytest.fixture
def served(key_file: str) -> Iterator[Served]:
    with serve_in_memory(receipt_key_file=key_file) as opened:
        opened.client.post("/execute", {"command": RULES})
        yield opened


def test_a_receipt_is_valid_with_the_public_key(served: Served) -> None:
    keys = served.client.flask.get(KEY_PATH)
    assert keys.status_code == 200
    answer = served.client.post("/receipt", {"goals": ["anc(ann, ?x)", "parent(bob, cy)"]})
    assert answer.status_code == 200, answer.get_data(as_text=True)
    receipt = verify(answer.get_data(), keys.get_data())
    assert [len(goal["answers"]) for goal in receipt["goals"]] == [1, 1]


def test_the_answer_is_the_bundle_itself(served: Served) -> None:
    answer = served.client.post("/receipt", {"goals": ["anc(ann, ?x)"], "scope": None, "since": 0})
    assert answer.content_type == "application/json"
    assert (
        answer.get_data()
        == json.dumps(answer.get_json(), sort_keys=True, separators=(",", ":")).encode()
    )


def test_goals_are_objects_or_text(served: Served) -> None:
    goals = [
        {"predicate": "anc", "args": ["ann", "?x"]},
        {"text": "parent(bob, cy)"},
        "anc(ann, ?x)",
    ]
    answered = served.client.post("/receipt", {"goals": goals}).get_json()["receipt"]["goals"]
    assert [len(each["answers"]) for each in answered] == [1, 1, 1]
    assert answered[0] == answered[2]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "goals"),
        ({"goals": []}, "goals"),
        ({"goals": "anc(ann, ?x)"}, "goals"),
        ({"goals": ["anc(ann, ?x)"] * 101}, "goals"),
        ({"goals": ["anc(ann, ?x), parent(?x, ?y)"]}, "goals[0]"),
        ({"goals": ["anc(ann, ?x)", 7]}, "goals[1]"),
        ({"goals": ["anc(ann, ?x)"], "since": -1}, "since"),
        ({"goals": ["anc(ann, ?x)"], "since": 99}, "since"),
        ({"goals": ["anc(ann, ?x)"], "since": True}, "since"),
        ({"goals": ["anc(ann, ?x)"], "scope": "/"}, "scope"),
    ],
)
def test_a_wrong_body_is_refused(served: Served, body: object, field: str) -> None:
    error = error_of(served.client.post("/receipt", body), 400, "VALIDATION_ERROR")
    assert field in json.dumps(error)


def test_a_server_without_a_key() -> None:
    with serve_in_memory() as served:
        client = served.client
        for answer in (
            client.post("/receipt", {"goals": ["p(?x)"]}),
            client.flask.get(KEY_PATH),
        ):
            error = error_of(answer, 404, "NOT_FOUND")
            assert error["details"] == {"setting": "RECEIPT_KEY_FILE"}
        assert "signatures" not in client.flask.get("/.well-known/agent-card.json").get_json()


def test_the_public_key_needs_no_api_key_and_a_receipt_does(key_file: str) -> None:
    with serve_in_memory(receipt_key_file=key_file, api_key=ONE, auth_enabled=True) as served:
        keys = served.client.flask.get(KEY_PATH)
        assert keys.status_code == 200
        (jwk,) = keys.get_json()["keys"]
        assert jwk.keys() == {"kty", "crv", "x", "kid", "use", "alg"}
        tag = keys.headers["ETag"]
        again = served.client.flask.get(KEY_PATH, headers={"If-None-Match": tag})
        assert again.status_code == 304
        error_of(served.client.post("/receipt", {"goals": ["p(?x)"]}), 401, "UNAUTHORIZED")


def test_requests_for_receipts_are_audited_and_the_key_is_in_no_log(
    served: Served, caplog: pytest.LogCaptureFixture, key_file: str
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = served.client.post("/receipt", {"goals": ["anc(ann, ?x)"]})
    card = served.client.flask.get("/.well-known/agent-card.json")
    keys = served.client.flask.get(KEY_PATH)
    assert any(record.name == "kbserver.audit" for record in caplog.records)
    secret = bytes(range(32))
    secrets = [Path(key_file).read_bytes().strip(b"=\n"), secret, secret.hex().encode()]
    for data in (answer.get_data(), card.get_data(), keys.get_data(), caplog.text.encode()):
        assert not any(each in data for each in secrets)


def test_the_card_is_signed_for_known_hosts_only(served: Served) -> None:
    client = served.client.flask
    card = client.get("/.well-known/agent-card.json").get_json()
    (signature,) = card.pop("signatures")
    header = json.loads(_decoded(signature["protected"]))
    (jwk,) = client.get(KEY_PATH).get_json()["keys"]
    assert header == {
        "alg": "EdDSA", "typ": "JOSE", "kid": jwk["kid"], "jku": f"http://localhost{KEY_PATH}"
    }  # fmt: skip
    for name in ("url", "protocolVersion", "preferredTransport"):
        del card[name]
    token = f"{signature['protected']}.{_encoded(canonical_json(card))}.{signature['signature']}"
    public = jwt.PyJWK.from_dict(jwk)
    assert jwt.decode(token, public, algorithms=["EdDSA"]) == card
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token[:-3] + "AAA", public, algorithms=["EdDSA"])
    foreign = client.get("/.well-known/agent-card.json", headers={"Host": "evil.example"})
    assert "signatures" not in (foreign.get_json() or {})


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# -- commands --------------------------------------------------------------------------------------


def command(*arguments: str, expect: int = 0, **env: str) -> str:
    done = CliRunner().invoke(cli, arguments, env=env)
    assert done.exit_code == expect, done.output
    return done.output


def test_the_commands(tmp_path: Path) -> None:
    key, folder = str(tmp_path / "key"), str(tmp_path / "data")
    assert "new key" in command("receipt", "create-key", key)
    assert Path(key).stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in command("receipt", "create-key", key, expect=1)
    at = ("--storage-dir", folder)
    command("tell", RULES, *at)
    one, two, keys = (str(tmp_path / name) for name in ("one", "two", "keys"))
    create = ("receipt", "create", "anc(ann, ?x)", *at, "--output")
    assert "no key for receipts" in command(*create, one, expect=1)
    assert not Path(one).exists()
    assert "1 answer at record" in command(*create, one, RECEIPT_KEY_FILE=key)
    assert "exists" in command(*create, one, expect=1, RECEIPT_KEY_FILE=key)
    command("tell", "parent(cy, dee).", *at)
    command(*create, two, "--after", one, RECEIPT_KEY_FILE=key)
    private = ReceiptKey(base64.b64decode(Path(key).read_bytes()))
    Path(keys).write_text(json.dumps({"keys": [private.jwk]}))
    check = ("receipt", "verify", "--key", keys)
    assert "anc(ann, ?x): 1 answer" in command(*check, one)
    assert "valid" in command(*check, two, "--after", one)
    assert "does not continue" in command(*check, one, "--after", two, expect=1)
    Path(two).write_bytes(Path(two).read_bytes().replace(b"ann", b"eve"))
    assert "not valid: the signature is wrong" in command(*check, two, expect=1)
    assert "no receipt" in command(
        *create, f"{two}x", "--after", keys, expect=1, RECEIPT_KEY_FILE=key
    )


@pytest.mark.parametrize("content", [None, "short"])
def test_a_wrong_key_file_ends_a_start_with_78(tmp_path: Path, content: str | None) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "kbserver.cli", "serve", "--port", "0"],
        env={**os.environ, "RECEIPT_KEY_FILE": str(key), "STORAGE_DIR": str(tmp_path / "d")},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 78, done.stderr
    (line,) = done.stderr.splitlines()
    assert "RECEIPT_KEY_FILE" in line
    assert "short" not in line
    text = command("config", "check", expect=78, RECEIPT_KEY_FILE=str(key))
    assert "RECEIPT_KEY_FILE" in text
