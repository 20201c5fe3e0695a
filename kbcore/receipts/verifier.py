"""Verification of receipts: `python verifier.py BUNDLE KEYS [EARLIER]`.

This file needs Python 3.10 and the package `cryptography`, and nothing of kbcore: copy it to where
receipts are verified. BUNDLE is the receipt, KEYS the answer of /.well-known/kbcore-receipt-key,
EARLIER a receipt of the same tenant that BUNDLE continues. Format: docs/reference/proofs.md.
"""

from __future__ import annotations

import base64
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

FORMAT = "kbcore-receipt-1"
STORED, CONCLUDED = ("asserted", "explicit_negative"), ("derived", "aggregate")
HOLDS = (*STORED, *CONCLUDED, "external")
COMPARISONS = ("=", "!=", "==", "!==", "<", "<=", ">", ">=")


class NotValid(ValueError):
    """A receipt that does not pass a check."""


def canonical(value: Any) -> str:
    """Return the canonical form of JSON (RFC 8785); the numbers of receipts are integers."""

    def ordered(item: Any) -> Any:
        if isinstance(item, dict):
            names = sorted(item, key=lambda name: str(name).encode("utf-16-be"))
            return {name: ordered(item[name]) for name in names}
        if isinstance(item, list):
            return [ordered(each) for each in item]
        if isinstance(item, float) or (isinstance(item, int) and abs(item) >= 1 << 53):
            raise NotValid(f"{item} is not an integer below 2^53")
        return item

    return json.dumps(ordered(value), ensure_ascii=False, separators=(",", ":"))


def verify(bundle: bytes, keys: bytes, earlier: bytes | None = None) -> dict[str, Any]:
    """Return the receipt of a bundle; raises NotValid."""
    try:
        receipt = _signed(bundle, keys)
        _check_chain(receipt)
        _check_records(receipt)
        _check_proofs(receipt)
        if earlier is not None:
            _check_continues(receipt, _signed(earlier, keys))
    except NotValid:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise NotValid("the receipt or the public key does not have its form") from error
    return receipt


def _signed(bundle: bytes, keys: bytes) -> dict[str, Any]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    parsed = json.loads(bundle.decode())
    if canonical(parsed).encode() != bundle or set(parsed) != {"receipt", "signature"}:
        raise NotValid("the bundle is not canonical JSON")
    receipt: dict[str, Any] = parsed["receipt"]
    if receipt["format"] != FORMAT:
        raise NotValid(f"the format is not {FORMAT}")
    known = {each["kid"]: each["x"] for each in json.loads(keys.decode())["keys"]}
    if receipt["key"] not in known:
        raise NotValid(f"the receipt is signed with another key: {receipt['key']}")
    public = Ed25519PublicKey.from_public_bytes(_decoded(known[receipt["key"]]))
    try:
        public.verify(_decoded(parsed["signature"]), canonical(receipt).encode())
    except InvalidSignature:
        raise NotValid("the signature is wrong") from None
    return receipt


def _decoded(text: str) -> bytes:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise NotValid("a text is not in base64url")
    return data


def _heads(chain: dict[str, Any]) -> list[str]:
    """Return the head before the first digest of a chain, and the head after each."""
    heads = [bytes.fromhex(chain["start"])]
    for digest in chain["digests"]:
        heads.append(sha256(heads[-1] + bytes.fromhex(digest)).digest())
    return [head.hex() for head in heads]


def _check_chain(receipt: dict[str, Any]) -> None:
    chain, purges = receipt["chain"], receipt["purges"]
    before = chain["count"] - len(chain["digests"])
    if before < 0 or (before == 0) != (chain["start"] == "00" * 32):
        raise NotValid("the chain does not begin at its first record")
    if _heads(chain)[-1] != chain["head"]:
        raise NotValid("the digests of the records do not lead to the head")
    erased = max((each["position"] for each in purges), default=0)
    for record in receipt["records"]:
        head = f"kbcore record {record['type']} {record['version']}\n"
        digest = sha256((head + record["payload"]).encode()).hexdigest()
        if record["position"] <= max(before, erased):
            raise NotValid(f"record {record['position']} is not in the chain, or was erased")
        if digest != chain["digests"][record["position"] - before - 1]:
            raise NotValid(f"record {record['position']} has another digest in the chain")


def stated(payload: str) -> set[tuple[Any, ...]]:
    """Return the facts and rules that the payload of a record states, as `statement` has them."""
    statements: set[tuple[Any, ...]] = set()
    for change in json.loads(payload)["changes"]:
        scope, op = change.get("s"), change["op"]
        for fact in change["facts"] if op in ("assert", "deploy") else ():
            statements.add((fact.get("s", scope), fact["p"], bool(fact.get("n")), *fact["a"]))
        for rows in change["rows"] if op == "rows" else ():
            for at in range(0, len(rows["a"]), rows["k"] or 1):
                args = rows["a"][at : at + rows["k"]]
                statements.add((rows.get("s"), rows["p"], bool(rows.get("n")), *args))
        for rule in change["rules"] if op in ("teach", "deploy") else ():
            statements.add((rule.get("s", scope), rule["text"]))
    return statements


def statement(item: dict[str, Any]) -> tuple[Any, ...]:
    """Return scope and text of a rule, or scope, predicate, sign and arguments of a fact."""
    if "text" in item:
        return item["scope"], item["text"]
    return item["scope"], item["predicate"], item["negated"], *item["args"]


def _check_records(receipt: dict[str, Any]) -> None:
    records = {each["position"]: stated(each["payload"]) for each in receipt["records"]}
    for each in receipt["facts"] + receipt["rules"]:
        if each["record"] is not None and statement(each) not in records[each["record"]]:
            raise NotValid(f"record {each['record']} does not state {statement(each)}")


def _check_proofs(receipt: dict[str, Any]) -> None:
    facts = set(map(statement, receipt["facts"]))
    rules = {(each["id"], each["text"]): each for each in receipt["rules"]}
    for answer in (each for goal in receipt["goals"] for each in goal["answers"]):
        nodes, default = answer["proof"]["nodes"], {"scope": answer["scope"], "negated": False}
        root = nodes[answer["proof"]["root"]]
        is_answer = statement({**default, **root["fact"]}) == statement(answer)
        if not is_answer or root["kind"] not in HOLDS:
            raise NotValid("a proof concludes another fact than its answer")
        for node in nodes.values():
            premises = [nodes[name] for name in node["premises"]]
            if node["kind"] in STORED and statement({**default, **node["fact"]}) not in facts:
                raise NotValid(f"a fact of a proof is not in the receipt: {node['fact']}")
            if node["kind"] in CONCLUDED:
                _check_step(node, premises, rules[node["rule"]["id"], node["rule"]["text"]])
            elif premises or node["kind"] == "elided":
                raise NotValid(f"a proof is not complete at {node['fact']}")


def _check_step(node: dict[str, Any], premises: list[Any], rule: dict[str, Any]) -> None:
    """Check that a conclusion and its premises are an instance of a rule, in the order of its body;
    of an aggregate, one instance for each of the inputs that are shown.
    """
    head, body, values, instances = rule["head"], rule["body"], node["bindings"], [node["bindings"]]
    is_aggregate = node["kind"] == "aggregate"
    if is_aggregate:
        instances = [{**each, **values} for each in node["inputs"]]

    def is_value(arg: str, value: str, values: dict[str, str]) -> bool:
        return arg == "?_" or values.get(arg, arg) == value

    def is_premise(item: dict[str, Any], each: dict[str, Any], values: dict[str, str]) -> bool:
        if item.get("builtin", item.get("predicate") in COMPARISONS):
            return bool(each["kind"] == "builtin")
        if item["negated"] or each["kind"] not in HOLDS:
            return bool(item["negated"] and each["kind"] == "absent")
        fact, is_negative = each["fact"], item.get("polarity") == "negative"
        pairs = zip(item["args"], fact["args"], strict=True)
        is_same = item["predicate"] == fact["predicate"] and each["depth"] < node["depth"]
        is_same = is_same and is_negative == fact.get("negated", False)
        return is_same and all(is_value(*pair, values) for pair in pairs)

    is_step = len(premises) == len(body) * len(instances) > 0
    is_step = is_step and all(
        is_premise(body[at % len(body)], each, instances[at // len(body)])
        for at, each in enumerate(premises)
    )
    computed = [is_aggregate and ("(?" in arg or "(*" in arg) for arg in head["args"]]
    for arg, value, is_free in zip(head["args"], node["fact"]["args"], computed, strict=True):
        name = arg[4:] if arg[:5] in ("min ?", "max ?") else arg
        is_step &= is_free or is_value(name, value, values)
    same = [head["predicate"], head["negated"]]
    is_step &= same == [node["fact"]["predicate"], node["fact"].get("negated", False)]
    if not is_step or any(computed) != is_aggregate:
        raise NotValid(f"{node['fact']} does not follow by the rule {rule['id']}")


def _check_continues(receipt: dict[str, Any], earlier: dict[str, Any]) -> None:
    chain, then = receipt["chain"], earlier["chain"]
    index = then["count"] - chain["count"] + len(chain["digests"])
    if [receipt["database"], receipt["tenant"]] != [earlier["database"], earlier["tenant"]]:
        raise NotValid("the earlier receipt is of another tenant")
    if not 0 <= index <= len(chain["digests"]) or _heads(chain)[index] != then["head"]:
        raise NotValid("the chain does not continue that of the earlier receipt")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: python verifier.py BUNDLE KEYS [EARLIER]")
    try:
        valid = verify(*(Path(name).read_bytes() for name in sys.argv[1:]))
    except OSError as problem:
        sys.exit(f"{problem.filename} cannot be read: {problem.strerror}")
    except NotValid as problem:
        sys.exit(f"not valid: {problem}")
    sys.stdout.write(f"valid: {valid['database']}/{valid['tenant']}\n")
