"""The records that clients read have the members of the answers that the document describes."""

from __future__ import annotations

import dataclasses

import pytest
from support.http import serve_in_memory

from kbtypes import administration, episodes, memory, results, windows
from kbtypes.records import Record, key_of

ANSWERS = {
    results.StoredRule: "StoredRule",
    results.StoredPhrase: "StoredPhrase",
    results.StoredInput: "StoredInput",
    results.RetractOutcome: "Retracted",
    results.Finding: "Diagnostic",
    results.TruthChange: "TruthChange",
    results.PredicateChange: "PredicateChange",
    results.PreviewCounts: "PreviewCounts",
    results.Preview: "Previewed",
    results.Question: "Question",
    results.Executed: "Executed",
    results.PredicateInfo: "Predicate",
    results.ForkOutcome: "Forked",
    results.Modified: "ModifiedFact",
    results.ScopeDiff: "Compared",
    results.MergeOutcome: "Merged",
    results.DecayOutcome: "Decayed",
    results.ConsolidateOutcome: "Consolidated",
    results.Subscription: "StandingGoal",
    results.NeighbourCount: "NeighbourCount",
    results.Neighbours: "Neighbourhood",
    results.SlowGoal: "SlowGoal",
    episodes.CorrectOutcome: "Corrected",
    episodes.UndoOutcome: "Undone",
    episodes.PurgeState: "PastPurge",
    episodes.FactEvent: "HistoryEvent",
    episodes.FactHistory: "History",
    memory.AddedMessages: "AddedMessages",
    memory.BelievedFact: "BelievedFact",
    memory.BelievedFacts: "BelievedFacts",
    memory.Forgotten: "ForgottenMemories",
    memory.ForgottenFact: "ForgottenFact",
    memory.ForgottenText: "ForgottenText",
    administration.DatabaseInfo: "Database",
    administration.ApiKey: "ListedKey",
    windows.Provenance: "Provenance",
    windows.Contradiction: "Contradiction",
    windows.BucketStats: "Bucket",
    windows.IngestedFact: "ExtractedFact",
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
    names = {record.__name__ for record in Record.__subclasses__()}
    assert {record.__name__ for record in ANSWERS} == names


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
