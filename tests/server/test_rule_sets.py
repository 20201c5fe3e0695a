"""Rule sets over HTTP: deploy, list, compare, roll back, and who may."""

from __future__ import annotations

import pytest

RULE = "may_enter(?who) :- level(?who, ?level), ?level >= 3."
TEXT = f"@module access.\n{RULE}\nlevel(ann, 3). level(bob, 2)."
PATH = "/rulesets/access"


def put(client, body, expect=200):
    answer = client.flask.put(PATH, json=body, headers={"X-Tenant-ID": "t"})
    assert answer.status_code == expect, answer.text
    return answer.get_json()


def test_a_rule_set_is_deployed_listed_compared_and_rolled_back(client):
    deployed = put(client, {"text": TEXT, "expectedVersion": 0, "message": "m", "revision": "r"})
    assert deployed == {
        "name": "access",
        "scope": None,
        "version": 1,
        "added": [RULE],
        "changed": [],
        "removed": [],
        "facts": {
            "added": ["level(ann, 3).", "level(bob, 2)."],
            "changed": [],
            "removed": [],
            "addedCount": 2,
            "changedCount": 0,
            "removedCount": 0,
        },
        "commit": deployed["commit"],
        "warnings": [],
    }
    edited = RULE.replace("3", "2")
    files = [{"path": "a.kb", "text": edited}, {"path": "b.kb", "text": "level(ann, 3)."}]
    dry = put(client, {"files": files, "dryRun": True})
    assert (dry["commit"], dry["version"]) == (None, 2)
    assert "impact" not in dry
    impact = put(client, {"files": files, "dryRun": True, "impactGoals": ["may_enter(?who)"]})[
        "impact"
    ]
    assert impact["counts"] == {"becomesTrue": 0, "becomesFalse": 1, "becomesUndefined": 0}
    assert [each["predicate"] for each in impact["byPredicate"]] == ["level"]
    assert impact["goals"] == [
        {
            "goal": "may_enter(?who)",
            "becomesTrue": [],
            "becomesFalse": [],
            "becomesTrueCount": 0,
            "becomesFalseCount": 0,
        }
    ]
    lower = put(client, {"text": TEXT.replace("3.", "2.", 1), "dryRun": True, "impact": True})
    assert lower["impact"]["counts"]["becomesTrue"] == 1
    assert (lower["impact"]["goals"], lower["impact"]["truncated"]) == ([], False)
    second = put(client, {"files": files})
    assert second["changed"] == [{"before": RULE, "after": edited}]
    assert second["facts"]["removed"] == ["level(bob, 2)."]
    (listed,) = client.get("/rulesets").get_json()["ruleSets"]
    assert (listed["name"], listed["version"], listed["rules"], listed["facts"]) == (
        "access",
        2,
        1,
        1,
    )
    newest, first = client.get(f"{PATH}/versions").get_json()["versions"]
    assert (newest["version"], first["message"], first["revision"]) == (2, "m", "r")
    diff = client.get(f"{PATH}/diff?from=2&to=1").get_json()
    assert diff["changed"] == [{"before": edited, "after": RULE}]
    back = client.post(f"{PATH}/rollback", {}).get_json()
    assert (back["version"], back["changed"]) == (3, diff["changed"])
    rules = client.get("/rules").get_json()["rules"]
    assert [rule["text"] for rule in rules] == [RULE]


def test_a_repeated_deployment_with_a_key_is_carried_out_once(client):
    def send(body, key="k1"):
        headers = {"X-Tenant-ID": "t", "Idempotency-Key": key}
        return client.flask.put(PATH, json=body, headers=headers)

    first = send({"text": TEXT})
    put(client, {"text": TEXT.replace(">= 3", ">= 2")})
    again = send({"text": TEXT})
    assert (again.status_code, again.get_json()) == (200, first.get_json())
    assert again.headers["Idempotency-Replayed"] == "true"
    (listed,) = client.get("/rulesets").get_json()["ruleSets"]
    assert listed["version"] == 2
    reused = send({"text": RULE})
    assert (reused.status_code, reused.get_json()["details"]["reason"]) == (409, "key_reused")
    assert send({"text": TEXT}, "k2").get_json()["version"] == 3
    dry = {"text": RULE, "dryRun": True}
    assert send(dry, "k3").get_json()["version"] == 4
    put(client, {"text": TEXT.replace(">= 3", ">= 1")})
    later = send(dry, "k3")  # a dry run is carried out again: nothing was stored
    assert (later.get_json()["version"], later.headers.get("Idempotency-Replayed")) == (5, None)


def test_another_version_than_the_expected_one_is_409(client):
    put(client, {"text": TEXT})
    error = put(client, {"text": RULE, "expectedVersion": 0}, expect=409)
    assert (error["code"], error["details"]["version"]) == ("CONFLICT", 1)
    answer = client.post(f"{PATH}/rollback", {"version": 1, "expectedVersion": 2})
    assert answer.status_code == 409


def test_a_first_version_is_for_a_rule_set_that_is_not_there(client):
    assert put(client, {"text": TEXT, "firstVersion": 5, "message": "m"})["version"] == 5
    again = put(client, {"text": TEXT, "firstVersion": 9})
    assert (again["version"], again["commit"]) == (5, None)
    error = put(client, {"text": RULE, "firstVersion": 6}, expect=409)
    assert (error["code"], error["details"]["version"]) == ("CONFLICT", 5)
    client.post("/tell", {"predicate": "level", "args": ["ann", "3"]})
    contents = client.get(PATH).get_json()
    assert contents.pop("deployedAt") > 0
    assert contents == {
        "name": "access",
        "scope": None,
        "version": 5,
        "message": "m",
        "revision": None,
        "statements": [RULE, "level(ann, 3).", "level(bob, 2)."],
        "byHand": ["level(ann, 3)."],
    }
    assert client.get(f"{PATH}/diff?from=0&to=5").status_code == 404
    assert put(client, {"text": RULE})["version"] == 6


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "files"),
        ({"text": "p(a).", "files": [{"path": "a", "text": ""}]}, "files"),
        ({"files": []}, "files"),
        ({"files": ["a"]}, "files"),
        ({"files": [{"path": "a"}]}, "files"),
        ({"files": [{"path": 1, "text": "p(a)."}]}, "files"),
        ({"text": "p(a).", "expectedVersion": -1}, "expectedVersion"),
        ({"text": "p(a).", "firstVersion": 0}, "firstVersion"),
        ({"text": "p(a).", "scope": "*"}, "scope"),
        ({"text": "p(a).", "message": "x" * 10_001}, "message"),
        ({"text": "@module other. p(a)."}, "name"),
        ({"text": "p(?x) :- "}, "text"),
        ({"text": "p(a).", "impact": True}, "impact"),
        ({"text": "p(a).", "impactGoals": ["p(?x)"]}, "impactGoals"),
        ({"text": "p(a).", "dryRun": True, "impactGoals": "p(?x)"}, "impactGoals"),
        ({"text": "p(a).", "dryRun": True, "impactGoals": [1]}, "impactGoals"),
        ({"text": "p(a).", "dryRun": True, "impactGoals": ["p("]}, "impactGoals[0]"),
    ],
)
def test_a_wrong_body_is_400_and_names_the_field(client, body, field):
    error = put(client, body, expect=400)
    assert any(name.startswith(field) for name in error["details"]["fields"]), error
    assert client.get("/rulesets").get_json()["ruleSets"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/rulesets/none", 404),
        ("GET", "/rulesets/none/versions", 404),
        ("GET", "/rulesets/none/diff?from=0&to=1", 404),
        ("GET", "/rulesets/none/diff", 400),
        ("POST", "/rulesets/none/rollback", 404),
        ("GET", f"{PATH}/diff?from=1&to=9", 404),
        ("GET", f"{PATH}/diff?from=x&to=1", 400),
        ("POST", f"{PATH}/rollback", 404),
        ("GET", "/rulesets?scope=a b", 400),
    ],
)
def test_what_does_not_exist_is_an_error(client, method, path, status):
    put(client, {"text": TEXT})
    answer = client.post(path, {}) if method == "POST" else client.get(path)
    assert answer.status_code == status


def test_a_fact_of_a_rule_set_is_not_retracted_by_hand(client):
    put(client, {"text": TEXT})
    answer = client.post("/retract/rule", {"text": RULE})
    assert (answer.status_code, answer.get_json()["details"]["ruleSets"]) == (409, ["access"])
