"""The benchmark of dependable memories: data against a second oracle, scores, and a small run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dependable_memory import public_sets, report, words
from dependable_memory.generate import ABILITIES, cases
from dependable_memory.interface import Answer, NotAvailable, Passage, within
from dependable_memory.model import Case, Input, Question, Relation, dump, load
from dependable_memory.oracle import Oracle
from dependable_memory.reader import names
from dependable_memory.runner import NOT_AVAILABLE, run
from dependable_memory.scoring import Score, total
from dependable_memory.systems.baselines import LastMention, bm25
from dependable_memory.systems.kbcore_systems import Rules

HERE = Path(__file__).parent
FOLDER = HERE / "dependable_memory"
SCHEMA = json.loads((FOLDER / "results.schema.json").read_text())


def replayed(case: Case, question: Question) -> frozenset[str]:
    """Answer a question in another way than the oracle: replay a table of rows, input by input.

    Each row is [since, number, source, sign, subject, relation, object]. A value holds if no row
    after it ends it, which is looked up for each value alone.
    """
    rows: list[list[str]] = []
    alias: dict[str, str] = {}
    untrusted: set[str] = set()
    for number, entry in enumerate(case.inputs):
        if entry.user != question.user:
            continue
        known = not question.known_at or entry.at <= question.known_at
        if entry.action == "forget":
            same = {entry.subject, alias.get(entry.subject, entry.subject)}
            same |= {nick for nick, real in alias.items() if real in same}
            if entry.relation:
                rows = [row for row in rows if row[4] not in same or row[5] != entry.relation]
            else:
                rows = [row for row in rows if row[4] not in same and row[6] not in same]
                alias = {n: r for n, r in alias.items() if n not in same and r not in same}
        elif entry.action == "alias" and known:
            alias[entry.subject] = entry.object
        elif entry.action == "distrust" and known:
            untrusted.add(entry.subject)
        elif entry.action in ("state", "deny") and known:
            row = [entry.since, f"{number:08}", entry.source, entry.action]
            rows.append([*row, entry.subject, entry.relation, entry.object])
    valid = question.valid_at or "9999"
    rows = [
        [*row[:4], alias.get(row[4], row[4]), *row[5:]]
        for row in rows
        if row[2] not in untrusted and row[0] <= valid
    ]
    kinds = {relation.name: relation.kind for relation in case.relations}

    def ends(later: list[str], row: list[str]) -> bool:
        if later[:2] <= row[:2] or later[4:6] != row[4:6]:
            return False
        same_value = later[6] == row[6]
        if kinds[row[5]] == "claim":
            return same_value and later[2] == row[2]
        return same_value or (kinds[row[5]] == "latest" and later[3] == "state")

    holding = [row for row in rows if not any(ends(later, row) for later in rows)]
    start = alias.get(question.subject, question.subject)
    path: list[str] = []
    for name in question.path:
        path.extend(next((rule.path for rule in case.rules if rule.head == name), (name,)))
    if question.kind == "verdict":
        about = [row for row in holding if row[4:] == [start, path[0], question.object]]
        return frozenset({"state": "yes", "deny": "no"}[row[3]] for row in about)
    if question.kind == "ever":
        about = [row for row in rows if row[4:6] == [start, path[0]] and row[3] == "state"]
        return frozenset(row[6] for row in about)
    pairs = {(row[4], row[4]) for row in holding}
    for step in path:
        edges = [row for row in holding if row[5] == step and row[3] == "state"]
        pairs = {(first, row[6]) for first, last in pairs for row in edges if row[4] == last}
    if question.subject:
        values = {last for first, last in pairs if first == start}
    else:
        values = {first for first, last in pairs if last == question.object}
    if question.kind == "count":
        return frozenset({str(len(values))} if values else ())
    if question.kind == "sum":
        return frozenset({str(sum(map(int, values)))} if values else ())
    return frozenset(values)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_second_oracle_gives_the_same_answers(seed: int) -> None:
    for case in cases(seed, "small"):
        for question in case.questions:
            assert frozenset(question.answers) == replayed(case, question), question


def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    command = [sys.executable, str(FOLDER / "run.py"), "--small", "--seed", "7", "--data"]
    subprocess.run([*command, str(file)], check=True, env={"PYTHONHASHSEED": "3"})
    assert file.read_text() == dump(cases(7, "small"))
    assert dump(cases(8, "small")) != dump(cases(7, "small"))


def test_cases_are_read_as_they_were_written() -> None:
    made = cases(1, "small")
    assert load(dump(made)) == made


def test_each_task_has_questions_with_and_without_an_answer() -> None:
    made = cases(2, "small")
    assert len(made) == len(ABILITIES)
    tasks = {(q.ability, q.task) for case in made for q in case.questions}
    assert len(tasks) == 35
    empty = [q for case in made for q in case.questions if not q.answers]
    assert {q.task for q in empty} >= {"absence", "gone", "never said", "unknown person"}
    assert all(set(q.answers).isdisjoint(q.gone) for case in made for q in case.questions)


def test_scored_sentences_are_not_those_of_the_examples() -> None:
    parts = [value for value in vars(words).values() if isinstance(value, words.Parts)]
    parts += [part for each in words.WORDS.values() for part in (each.says, each.phrases)]
    parts += list(words.ASKS.values())
    assert len(parts) > 40
    for part in parts:
        assert part.examples
        assert part.scored
        assert set(part.examples).isdisjoint(part.scored)
    lines = [{e.text for case in cases(1, "small", part) for e in case.inputs if e.action != "chat"}
             for part in (words.EXAMPLES, words.SCORED)]  # fmt: skip
    assert lines[0].isdisjoint(lines[1])


def test_inputs_are_in_order_of_learning_and_ids_are_unique() -> None:
    for case in cases(3, "small"):
        at = [entry.at for entry in case.inputs]
        assert at == sorted(set(at))
        ids = [entry.id for entry in case.inputs] + [q.id for q in case.questions]
        assert len(set(ids)) == len(ids)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="part is examples or scored"):
        cases(1, "small", "other")


def entry(number: int, action: str, **fields: str) -> Input:
    at = f"2024-01-{number:02}T00:00:00Z"
    values = {"id": str(number), "user": "u", "source": "s", "text": "", "since": at, **fields}
    return Input(at=at, action=action, **values)  # type: ignore[arg-type]


def question(**fields: object) -> Question:
    values = {"id": "q", "ability": "a", "task": "t", "user": "u", "kind": "values", "text": "?"}
    return Question(**{**values, "subject": "ann", "path": ("home",), **fields})  # type: ignore[arg-type]


HOME = Relation("home", "latest", "where a person lives", ("rome", "oslo", "bern"))


def answers(*inputs: Input, **fields: object) -> tuple[str, ...]:
    return Oracle(Case("c", (HOME,), (), inputs, ())).answers(question(**fields))


def home(number: int, value: str, action: str = "state", **fields: str) -> Input:
    return entry(number, action, subject="ann", relation="home", object=value, **fields)


def test_a_value_that_is_learned_late_does_not_replace_a_newer_one() -> None:
    late = home(3, "bern", since="2023-01-01T00:00:00Z")
    assert answers(home(1, "rome"), late) == ("rome",)
    assert answers(home(1, "rome"), late, valid_at="2023-06-01T00:00:00Z") == ("bern",)
    early = {"valid_at": "2023-06-01T00:00:00Z", "known_at": "2024-01-02T00:00:00Z"}
    assert answers(home(1, "rome"), late, **early) == ()


def test_a_denial_ends_its_own_value_only() -> None:
    assert answers(home(1, "rome"), home(2, "oslo", "deny")) == ("rome",)
    assert answers(home(1, "rome"), home(2, "rome", "deny")) == ()


def test_without_a_bad_source_the_value_before_it_holds_again() -> None:
    bad = entry(3, "distrust", subject="liar")
    assert answers(home(1, "rome"), home(2, "oslo", source="liar"), bad) == ("rome",)


def test_what_is_forgotten_is_gone_from_the_past_too() -> None:
    forget = entry(3, "forget", subject="annie")
    nick = entry(1, "alias", subject="annie", object="ann")
    assert answers(nick, home(2, "rome"), forget, known_at="2024-01-02T00:00:00Z") == ()
    assert answers(nick, home(2, "rome"), forget, home(4, "bern")) == ("bern",)


def test_scores_count_wrong_answers_and_abstentions_apart() -> None:
    score = Score("a", "t")
    asked = question(answers=("rome",), gone=("oslo",))
    score.add(asked, Answer(frozenset({"rome"}), "Ann: Rome, Oslo"))
    score.add(asked, Answer(frozenset({"rome", "oslo"}), "Ann: Rome"))
    score.add(asked, Answer(frozenset(), ""))
    score.add(asked, None)
    score.add(replace(asked, answers=()), Answer(frozenset()))
    assert (score.right, score.wrong, score.abstained, score.failed) == (2, 1, 1, 1)
    assert (score.hits, score.extra, score.missing) == (2, 1, 2)
    assert (score.windows, score.full, score.leaking, score.oversized) == (3, 2, 1, 0)
    assert total([score, score], "").questions == 10


def test_names_are_whole_words_and_hyphens_join() -> None:
    assert names("[2024] Ann Gruber lives here", "ann gruber")
    assert not names("Ann Gruber-Kovar lives here", "Ann Gruber")
    assert not names("room 1012", "room 101")


def test_a_window_ends_at_its_budget() -> None:
    passages = [Passage("x" * 40, ""), Passage("y" * 40, "")]
    assert within(passages, 20) == passages[:1]
    assert within(passages, 21) == passages


class Broken(LastMention):
    """A system whose answers fail."""

    def answer(self, question: Question) -> Answer:
        raise RuntimeError("broken")


def absent() -> LastMention:
    raise NotAvailable("a missing package")


def test_failures_and_missing_systems_are_rows_of_the_results() -> None:
    made = cases(1, "small")[-1:]
    broken, missing = run("broken", Broken, made), run("absent", absent, made)
    assert sum(score.failed for score in broken.scores) == len(made[0].questions)
    assert missing.status == NOT_AVAILABLE
    data = {"size": "small", "seed": 1, "part": "scored", "inputs": 1, "questions": 1}
    content = report.as_json([broken, missing], {**data, "python": "3"})
    jsonschema.validate(content, SCHEMA)
    text = report.tables(content)
    assert "RuntimeError: broken" in text
    assert "a missing package" in text


def test_the_schema_refuses_a_row_without_tasks() -> None:
    content = report.as_json([run("bm25", bm25, cases(1, "small")[-1:])], {})
    content["data"] = {"size": "small", "seed": 1, "part": "scored", "inputs": 1, "questions": 1}
    content["data"]["python"] = "3"
    jsonschema.validate(content, SCHEMA)
    content["rows"][0]["tasks"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, SCHEMA)


def test_rows_of_other_systems_stay_in_a_results_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, str(FOLDER / "run.py"), "--small", "--output", str(file)]
    for name in ("bm25", "last-mention"):
        subprocess.run([*command, "--systems", name], check=True, capture_output=True)
    content = json.loads(file.read_text())
    jsonschema.validate(content, SCHEMA)
    assert [row["system"] for row in content["rows"]] == ["bm25", "last-mention"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    again = [sys.executable, str(FOLDER / "run.py"), "--from", str(file), "--markdown", str(page)]
    subprocess.run(again, check=True, capture_output=True)
    text = page.read_text()
    assert "old" not in text
    assert "| last-mention |" in text
    assert text.endswith("after\n")


def test_the_folder_runs_without_kbcore(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['kbcore'] = None; sys.path.insert(0, sys.argv[1]);"
        "from dependable_memory.run import main; main(['--small', '--systems', 'bm25,kbcore-rules'])"
    )
    run_ = subprocess.run(
        [sys.executable, "-c", code, str(HERE)], check=True, capture_output=True, text=True
    )
    assert "| bm25 |" in run_.stdout
    assert "`kbcore-rules`: not available" in run_.stdout


def test_rules_answer_a_small_case_exactly() -> None:
    made = [case for case in cases(4, "small") if case.id in ("times", "trust-40", "disputes")]
    result = run("kbcore-rules", Rules, made)
    assert not result.errors
    score = total(result.scores, "")
    assert (score.right, score.questions) == (24, 24)


def test_facts_of_factconsolidation_are_passages(tmp_path: Path) -> None:
    row = {
        "context": "Here is a list of facts:\n0. Ann lives in Rome.\n1. Ann lives in Oslo.",
        "questions": ["Where does Ann live?"],
        "answers": [["Oslo", "Oslo, Norway"]],
        "metadata": {"source": "factconsolidation_sh_6k"},
    }
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([row]))
    (data,) = public_sets.read_factconsolidation(file)
    assert [each.text for each in data.inputs] == ["0. Ann lives in Rome.", "1. Ann lives in Oslo."]
    assert data.questions[0].accepted == ("Oslo", "Oslo, Norway")
    score = public_sets.measure(bm25(), data, 1000)["one hop"]
    assert (score.questions, score.answered) == (1, 1)
    row["answers"] = []
    file.write_text(json.dumps([row]))
    with pytest.raises(public_sets.DataError, match="numbers of questions and answers differ"):
        list(public_sets.read_factconsolidation(file))
    file.write_text("{")
    with pytest.raises(public_sets.DataError, match="is not JSON"):
        list(public_sets.read_factconsolidation(file))


def test_a_chat_of_beam_has_evidence_by_id(tmp_path: Path) -> None:
    chat = [
        {"turns": [[{"role": "user", "id": 0, "content": "My sprint ends on Friday. ->-> 1,1"},
                    {"role": "assistant", "id": 1, "content": "Noted."}]]}
    ]  # fmt: skip
    asked = {
        "information_extraction": [{"question": "When ends my sprint?", "source_chat_ids": [0]}],
        "knowledge_update": [{"question": "Sprint?", "source_chat_ids": {"a": [0], "b": [1]}}],
        "abstention": [{"question": "Who?"}],
    }
    (tmp_path / "probing_questions").mkdir()
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    (tmp_path / "probing_questions" / "probing_questions.json").write_text(json.dumps(asked))
    (data,) = public_sets.read_beam(tmp_path)
    assert [each.text for each in data.inputs] == ["My sprint ends on Friday.", "Noted."]
    scores = public_sets.measure(bm25(), data, 1000)
    assert scores["information_extraction"].recall == 1
    assert scores["knowledge_update"].recall == 0.5
    assert "abstention" not in scores


def test_beliefs_of_precisionmembench_have_what_must_not_be_there(tmp_path: Path) -> None:
    beliefs = [
        {"_id": "b1", "user_id": "test-user", "content": "Uses Fastify.", "aliases": ["express"]},
        {"_id": "b2", "user_id": "test-user", "content": "Reads maps.", "aliases": []},
    ]
    asked = [
        {"category": "Alias", "query": "express?", "expect": {"relevantBeliefs":
            {"shouldOnlyInclude": ["b1"]}}},
        {"category": "Alias", "query": " ", "expect": {}},
    ]  # fmt: skip
    (tmp_path / "beliefs.seed.json").write_text(json.dumps(beliefs))
    (tmp_path / "retrieval.cases.json").write_text(json.dumps(asked))
    (data,) = public_sets.read_precisionmembench(tmp_path)
    score = public_sets.measure(bm25(), data, 1000)["Alias"]
    assert (score.questions, score.recall, score.clean) == (1, 1.0, 1)
