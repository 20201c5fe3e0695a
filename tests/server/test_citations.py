"""Evidence in proofs, windows and answers: what was said, word by word."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, Client, Served, serve_in_memory
from support.stand_in import StandIn

TEXT = 'I like "green" tea.\nBob works here.'
QUOTE = {"start": 0, "end": 19, "text": 'I like "green" tea.', "speaker": "ann lee", "at": NOW}
RULE = {"text": "drinks(?x, ?y) :- likes(?x, ?y)."}


@pytest.fixture
def told(client: Client) -> str:
    """The id of an episode on which a fact, and a conclusion, are based."""
    return tell(client)


def tell(client: Client) -> str:
    id: str = client.post("/episodes", {"speaker": "ann lee", "text": TEXT}).get_json()["id"]
    client.tell("likes", "ann", "tea", evidence=[{"episode": id, "start": 0, "end": 19}])
    client.tell("likes", "bob", "milk")
    client.post("/assert/rule", RULE)
    return id


def test_proof_trees_end_in_what_was_said(client: Client, told: str) -> None:
    body = {"predicate": "drinks", "args": ["?x", "?y"], "withProof": True}
    by_subject = {
        each["result"]["args"][0]: each["proof"] for each in client.post("/ask", body).get_json()
    }
    (leaf,) = by_subject["ann"]["step"]["bodyProofs"]
    assert leaf["step"]["fact"]["evidence"] == [{"episode": told, **QUOTE}]
    (other,) = by_subject["bob"]["step"]["bodyProofs"]
    assert "evidence" not in other["step"]["fact"]
    stored = {"predicate": "likes", "args": ["ann", "tea"], "withProof": True}
    (proof,) = client.post("/ask", stored).get_json()
    assert proof["proof"]["step"]["fact"]["evidence"] == [{"episode": told, **QUOTE}]


def test_proof_graphs_end_in_what_was_said(client: Client, told: str) -> None:
    body = {
        "predicate": "drinks",
        "args": ["?x", "?y"],
        "withProof": True,
        "proofFormat": "dag",
    }
    for answer in client.post("/ask", body).get_json():
        spans = [node.get("evidence") for node in answer["proof"]["nodes"].values()]
        expected = [{"episode": told, **QUOTE}] if answer["args"][0] == "ann" else None
        assert spans == [None, expected]


def test_explanations_quote_in_one_line(client: Client, told: str) -> None:
    text = client.post("/explain", {"text": "drinks(ann, ?x)"}).text
    assert text.splitlines() == [
        "drinks(ann, tea)  by drinks(?x, ?y) :- likes(?x, ?y).",
        "  likes(ann, tea)  stored",
        '    said by "ann lee" on 2023-11-14T22:13:20Z: "I like \\"green\\" tea."',
    ]


def test_windows_cite_when_asked(client: Client, told: str) -> None:
    body = {"format": "facts", "goals": ["likes(?x, ?y)"]}
    plain = client.post("/memory/context", body).get_json()
    assert "sources" not in plain
    assert all("citations" not in entry for entry in plain["entries"])
    window = client.post("/memory/context", {**body, "citations": True}).get_json()
    assert window["sources"] == [{"number": 1, "episode": told, **QUOTE}]
    cited = {entry["args"][0]: entry.get("citations") for entry in window["entries"]}
    assert cited == {"ann": [1], "bob": None}
    assert "likes(ann, tea).  % [1]\n" in window["formattedText"]
    assert "likes(bob, milk).\n" in window["formattedText"] + "\n"
    natural = client.post(
        "/memory/context", {**body, "format": "natural", "citations": True}
    ).get_json()
    assert "Ann likes tea [1]." in natural["formattedText"].replace("ann", "Ann")
    assert natural["windowId"] == window["windowId"] == plain["windowId"]


def test_sources_are_footnotes_of_the_text_when_asked(client: Client, told: str) -> None:
    body = {"format": "natural", "goals": ["likes(?x, ?y)"], "citations": "text"}
    window = client.post("/memory/context", body).get_json()
    assert window["sources"] == [{"number": 1, "episode": told, **QUOTE}]
    assert window["formattedText"].splitlines()[-1] == (
        '[1] 14 Nov 2023, ann lee: I like "green" tea.'
    )
    body["times"] = "minute"
    text = client.post("/memory/context", body).get_json()["formattedText"]
    assert "[1] 14 Nov 2023 22:13, ann lee: " in text
    facts = client.post("/memory/context", {**body, "format": "facts", "times": "day"}).get_json()
    assert facts["formattedText"].splitlines()[-1] == (
        '% [1] 14 Nov 2023, ann lee: I like "green" tea.'
    )


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("citations", "yes", 'must be true, false or "text"'),
        ("citations", 1, 'must be true, false or "text"'),
        ("times", "second", "must be one of day, minute"),
        ("times", 5, "must be one of day, minute"),
    ],
)
def test_unknown_citations_and_times(client: Client, field: str, value: Any, expected: str) -> None:
    answer = client.post("/memory/context", {field: value})
    assert answer.status_code == 400
    assert field in answer.text
    assert expected in answer.text.replace("\\", "")


def test_sources_are_numbered_in_order_without_gaps(client: Client) -> None:
    ids = [
        client.post("/episodes", {"speaker": "ann", "text": f"said {n}"}).get_json()["id"]
        for n in range(30)
    ]
    for n, id in enumerate(ids):
        spans = [{"episode": each} for each in {id, ids[0], ids[n // 2]}]
        client.tell("note", f"number {n} of many notes", evidence=spans)
    for tokens in (40, 120, 400, None):
        body = {"citations": True, "format": "natural", "fill": "salience"}
        body |= {} if tokens is None else {"maxTokens": tokens}
        window = client.post("/memory/context", body).get_json()
        numbers = [source["number"] for source in window["sources"]]
        assert numbers == list(range(1, len(numbers) + 1))
        cited = [n for entry in window["entries"] for n in entry["citations"]]
        assert set(cited) == set(numbers)
        first = list(dict.fromkeys(cited))
        assert first == sorted(first)
        if tokens is not None:
            assert len(window["formattedText"]) <= tokens * 4


def test_answers_in_words_cite_when_asked() -> None:
    with StandIn() as model:
        settings: dict[str, Any] = model.settings(llm_retries=0, llm_timeout_ms=5000)
        with serve_in_memory(**settings) as served:
            check_synthesis(served)


def check_synthesis(served: Served) -> None:
    client = served.client
    id: str = client.post("/episodes", {"speaker": "ann", "text": "Ann works at Acme."}).get_json()[
        "id"
    ]
    client.tell("works_at", "Ann", "Acme", evidence=[{"episode": id}])
    question = {"question": "Where does Ann work?"}
    plain = client.post("/synthesize", question).get_json()
    assert "sources" not in plain
    answer = client.post("/synthesize", {**question, "citations": True}).get_json()
    assert answer["answer"] == plain["answer"] + " [1]"
    assert [source["text"] for source in answer["sources"]] == ["Ann works at Acme."]
    assert [step["citations"] for step in answer["derivation"]] == [[1]]
