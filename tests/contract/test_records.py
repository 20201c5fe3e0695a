"""The records that clients read have the members of the answers that the document describes."""

from __future__ import annotations

import dataclasses

import pytest
from support.http import serve_in_memory

from kbserver.schemas import base
from kbserver.schemas.json_schema import component_name
from kbtypes import administration, episodes, results, windows
from kbtypes.records import Record, key_of

WRITTEN = {
    results.StoredRule: "StoredRule",
    results.StoredPhrase: "StoredPhrase",
    results.StoredInput: "StoredInput",
    results.StoredMask: "StoredMask",
    results.StoredDimension: "StoredDimension",
    results.StoredRequirement: "StoredRequirement",
    results.RetractOutcome: "Retracted",
    results.Finding: "Diagnostic",
    results.PredicateInfo: "Predicate",
    results.ForkOutcome: "Forked",
    results.ScopeDiff: "Compared",
    results.Subscription: "StandingGoal",
    results.SlowGoal: "SlowGoal",
    episodes.UndoOutcome: "Undone",
    episodes.PurgeState: "PastPurge",
    administration.DatabaseInfo: "Database",
    administration.ApiKey: "ListedKey",
    windows.IngestedFact: "ExtractedFact",
}
"""The component of each record whose answer has a schema that is written by hand."""

ANSWERS = WRITTEN | {
    record: component_name(answer)
    for record, answer in base.ANSWERS.items()
    if isinstance(record, type) and issubclass(record, Record)
}
"""The component of the document that describes the answer of each record."""

ELSEWHERE = {
    "atoms": "only the retraction of a pattern lists them",
    "isNew": "the status says it",
    "tests": "the core alone knows them",
    "timestamp": "a fork does not answer its time",
    "key": "only the answer to a creation has the secret",
}
"""Members with a default that a component need not have."""


@pytest.fixture(scope="module")
def components() -> dict:
    with serve_in_memory() as served:
        return served.client.get("/openapi.json").json["components"]["schemas"]


def test_every_record_has_an_answer() -> None:
    # By name: a dataclass with slots is a second class, made from the first.
    names = {record.__name__ for record in _below(Record)}
    assert {record.__name__ for record in ANSWERS} == names


def _below(kind: type[Record]) -> list[type[Record]]:
    every = [each for direct in kind.__subclasses__() for each in (direct, *_below(direct))]
    return [each for each in every if each.__module__.startswith("kbtypes.")]


@pytest.mark.parametrize("record", ANSWERS, ids=lambda record: record.__name__)
def test_a_record_reads_what_the_answer_has(record: type[Record], components: dict) -> None:
    component = components[ANSWERS[record]]
    members, required = component["properties"], set(component.get("required", ()))
    for field in dataclasses.fields(record):
        key = key_of(field)
        defaults = {field.default, field.default_factory} - {dataclasses.MISSING}
        if key not in members:
            assert defaults, key
            assert key in ELSEWHERE
        elif key not in required:
            assert defaults, key
