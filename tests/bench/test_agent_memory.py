"""The benchmark of memories: made data, scores, readers of public sets, and a small run of all
systems.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from agent_memory import abilities, public
from agent_memory.ablation import steps
from agent_memory.baselines import BM25, plain_words, stems
from agent_memory.chats import CORRECTED, KINDS, NEVER, SEVERAL, SHORT, chat
from agent_memory.interface import Conversation, Question, Recall, Request, Turn
from agent_memory.kbcore_systems import ABSTAINING, GOALS, TEXTS, KBCore
from agent_memory.made import SMALL_PEOPLE, made_conversation
from agent_memory.report import BEGIN, END, write_markdown
from agent_memory.runner import run
from agent_memory.scoring import contains, evidence_recall, percentile, score, summary, tokens

HERE = Path(__file__).parent
AT = datetime(2024, 3, 1, tzinfo=timezone.utc)
QUESTION = Question("q", "a", "?", frozenset({"t1", "t2"}), ("Porto",), competing=("Riga",))


def small() -> Conversation:
    return made_conversation(7, SMALL_PEOPLE)


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data() -> None:
    assert small() == small()
    assert made_conversation(8, SMALL_PEOPLE).turns != small().turns


def test_each_ability_has_a_question_about_each_person() -> None:
    counts = dict.fromkeys(abilities.NAMES, 0)
    for question in small().questions:
        counts[question.ability] += 1
    assert counts == dict.fromkeys(abilities.NAMES, SMALL_PEOPLE)


def test_evidence_names_turns_and_turns_are_in_order_of_time() -> None:
    talk = small()
    ids = [turn.id for turn in talk.turns]
    assert len(set(ids)) == len(ids)
    assert all(question.evidence <= set(ids) for question in talk.questions)
    assert all(before.at < after.at for before, after in pairwise(talk.turns))


def test_answers_are_stated_in_their_evidence_unless_they_are_computed() -> None:
    talk = small()
    texts = {turn.id: turn.text for turn in talk.turns}
    for question in talk.questions:
        evidence = "\n".join(texts[each] for each in question.evidence)
        stated = [contains(evidence, answer) for answer in question.answers]
        if question.ability == abilities.ABSTENTION:
            assert not question.answers
            assert not question.evidence
        elif question.ability == abilities.SUMMARY:
            assert not any(stated)
        else:
            assert all(stated), question


def test_what_an_abstention_asks_is_never_stated() -> None:
    talk = small()
    stated = {(fact.predicate, fact.args[0]) for turn in talk.turns for fact in turn.facts}
    for question in talk.questions:
        if question.ability == abilities.ABSTENTION:
            predicate, rest = question.goals[0].split("(", 1)
            assert (predicate, rest.split('"')[1]) not in stated


def test_chats_have_two_speakers_and_questions_of_every_kind() -> None:
    talk = chat(1)
    assert talk == chat(1) != chat(2)
    assert len({turn.speaker for turn in talk.turns}) == 2
    assert all(before.at < after.at for before, after in pairwise(talk.turns))
    assert len({question.text for question in talk.questions}) == len(talk.questions)
    assert {question.ability for question in talk.questions} == set(KINDS)
    days = {turn.session: turn.at.date() for turn in talk.turns}
    assert all((after - before).days >= 1 for before, after in pairwise(days.values()))


@pytest.mark.parametrize("seed", range(1, 6))
def test_questions_of_chats_are_answered_by_their_evidence(seed: int) -> None:
    talk = chat(seed)
    texts = {turn.id: turn.text for turn in talk.turns}
    for question in talk.questions:
        said = " ".join(texts[turn] for turn in question.evidence)
        assert bool(question.evidence) == bool(question.answers) == (question.ability != NEVER)
        assert question.evidence <= question.related
        assert all(contains(said, answer) for answer in question.answers), question
        assert not any(contains(said, wrong) for wrong in question.competing), question
        assert (len(question.evidence) > 1) == (question.ability == SEVERAL)
        assert bool(question.competing) == (question.ability == CORRECTED)
        if question.ability == SHORT:
            assert not set(stems(question.text)) & set(stems(said)), question


def test_short_answers_are_found_by_the_question_before_them() -> None:
    talk = chat(1)
    mine = run(KBCore(TEXTS), [talk], 200).by_ability()[SHORT]
    baseline = run(BM25("plain", stems), [talk], 200).by_ability()[SHORT]
    assert mine.first_recall > baseline.first_recall + 0.1
    assert baseline.first_recall < 0.1


def test_steps_leave_parts_of_the_search_out_and_put_them_back() -> None:
    talk = chat(1)
    few = replace(talk, questions=talk.questions[::8])
    first, *_, last = (run(make(), [few], 200) for make in steps())
    usual = run(KBCore(TEXTS), [few], 200)
    assert first.total().first_recall < last.total().first_recall
    assert [each.first_recall for each in last.scores] == [
        each.first_recall for each in usual.scores
    ]


WINDOWS = """
import sys
from agent_memory.chats import chat
from agent_memory.interface import Request
from agent_memory.kbcore_systems import TEXTS, KBCore
talk, system = chat(1), KBCore(TEXTS)
system.reset("")
for turn in talk.turns:
    system.store(turn)
system.finish()
for question in talk.questions[::4]:
    print(question.id, system.recall(Request(question.text, 200)).text)
system.close()
"""


def test_windows_do_not_depend_on_the_process() -> None:
    windows = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        path = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", WINDOWS],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**environment, "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr
        windows.append(done.stdout)
    assert windows[0] == windows[1] != ""


def test_a_system_that_abstains_has_empty_windows_for_some_questions() -> None:
    talk = small()
    scores = run(KBCore(ABSTAINING), [talk], 200).by_ability()
    assert scores[abilities.ABSTENTION].supported > 0
    assert scores[abilities.UPDATE].recall == 1.0


@pytest.mark.parametrize("people", [3, 49])
def test_sizes_out_of_range_are_refused(people: int) -> None:
    with pytest.raises(ValueError, match="4 to 48"):
        made_conversation(1, people)


@pytest.mark.parametrize(
    ("window", "value", "expected"),
    [
        ("Ann lives in Porto.", "porto", True),
        ("Portonovo", "Porto", False),
        ("a 342.", "342", True),
        ("1342", "342", False),
        ("green  \n tea", "green tea", True),
        ("greentea", "green tea", False),
        ("costs (5+5)", "(5+5)", True),
    ],
)
def test_values_are_found_as_whole_words(window: str, value: str, expected: bool) -> None:
    assert contains(window, value) is expected


def test_scores_of_a_window() -> None:
    whole = score(QUESTION, Recall("in Porto", ["t1", "t2", "t3"]), None)
    assert (whole.recall, whole.in_window, whole.supported, whole.alone) == (1.0, True, True, True)
    assert whole.answered is None
    part = score(QUESTION, Recall("in Porto", ["t1"]), frozenset({"Porto"}))
    assert (part.recall, part.in_window, part.supported, part.alone) == (0.5, True, False, False)
    assert part.answered is True
    mixed = score(QUESTION, Recall("Porto, Riga", ["t1", "t2"]), frozenset({"Porto", "Riga"}))
    assert (mixed.supported, mixed.alone, mixed.answered) == (True, False, False)
    other = score(QUESTION, Recall("Lyon", ["t1", "t2"]), frozenset())
    assert (other.in_window, other.supported, other.answered) == (False, False, False)


def test_scores_of_something_that_was_never_said() -> None:
    nothing = replace(QUESTION, evidence=frozenset(), answers=(), competing=())
    empty = score(nothing, Recall("", []), frozenset())
    assert (empty.recall, empty.in_window, empty.alone, empty.answered) == (None, True, True, True)
    filled = score(nothing, Recall("in Porto", ["t1"]), frozenset({"Porto"}))
    assert (filled.in_window, filled.alone, filled.answered) == (False, False, False)


def test_summary_leaves_out_questions_without_a_score() -> None:
    nothing = replace(QUESTION, evidence=frozenset(), answers=(), competing=())
    scores = [
        score(QUESTION, Recall("Porto", ["t1"]), None),
        score(nothing, Recall("", []), frozenset()),
    ]
    means = summary(scores)
    assert (means.questions, means.recall, means.in_window) == (2, 0.5, 1.0)
    assert (means.supported, means.answered, means.tokens) == (0.5, 1.0, 1.0)


def test_recall_and_precision_of_the_first_ten() -> None:
    found = score(QUESTION, Recall("", []), None, ["t1", "x", "y", "z"])
    assert (found.first_recall, found.first_precision) == (0.5, 0.25)
    nothing = score(QUESTION, Recall("", []), None, [])
    assert (nothing.first_recall, nothing.first_precision) == (0.0, None)
    wider = replace(QUESTION, related=frozenset({"t1", "t2", "x"}))
    assert score(wider, Recall("", []), None, ["t1", "x", "y", "z"]).first_precision == 0.5


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9)))
def test_recall_is_the_share_of_the_evidence(evidence: set[int], turns: set[int]) -> None:
    names, seen = [str(each) for each in evidence], [str(each) for each in turns]
    expected = sum(each in turns for each in evidence) / len(evidence)
    assert evidence_recall(names, seen) == expected


@given(st.lists(st.integers(0, 100), min_size=1), st.sampled_from([0.5, 0.99, 1.0]))
def test_percentile_is_the_least_value_with_enough_below(values: list[int], share: float) -> None:
    result = percentile(values, share)
    enough = [v for v in values if sum(w <= v for w in values) >= share * len(values) - 1e-9]
    assert result == min(enough)


@pytest.mark.parametrize(("text", "count"), [("", 0), ("abc", 1), ("abcd", 1), ("abcde", 2)])
def test_tokens_are_rounded_up(text: str, count: int) -> None:
    assert tokens(text) == count


def turn(number: int, text: str, speaker: str = "Ann") -> Turn:
    return Turn(f"t{number}", "s1", speaker, text, AT)


def test_bm25_ranks_the_rarer_word_first_and_stops_at_the_budget() -> None:
    system = BM25("bm25", plain_words)
    for number, text in enumerate(["a cat slept", "a dog slept", "a cat and a zebra"]):
        system.store(turn(number, text))
    system.finish()
    assert system.recall(Request("zebra cat", 1000)).turns == ["t2", "t0"]
    first = system.recall(Request("zebra cat", tokens(turn(2, "a cat and a zebra").line)))
    assert first.turns == ["t2"]
    assert system.recall(Request("whale", 1000)).text == ""


def test_stems_match_other_forms_and_me_is_the_asker() -> None:
    system = BM25("bm25-stems", stems)
    system.store(turn(0, "painted the fence", "Bob"))
    system.store(turn(1, "painted the fence", "Ann"))
    system.finish()
    found = system.recall(Request("when am I painting fences?", 1000, asker="Ann"))
    assert next(iter(found.turns)) == "t1"
    assert "painting" not in stems("painting")


def test_kbcore_answers_every_question_of_the_made_data() -> None:
    total = run(KBCore(GOALS), [small()], 400).total()
    assert (total.recall, total.supported, total.answered) == (1.0, 1.0, 1.0)


def test_a_window_over_the_budget_ends_the_run() -> None:
    class Endless(BM25):
        def recall(self, request: Request) -> Recall:
            return Recall("x" * 4 * (request.budget + 1), [])

    with pytest.raises(ValueError, match="more than 50"):
        run(Endless("endless", plain_words), [small()], 50)


LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_10_date_time": "9:05 am on 2 June, 2023",
            "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "Bye."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a cat"},
                {"speaker": "Bob", "dia_id": "D2:2", "text": "Nice."},
                {"speaker": "Ann", "dia_id": "D2:3", "text": ""},
            ],
        },
        "qa": [
            {"question": "q0", "answer": 2022, "evidence": ["D2:1; D2:2"], "category": 1},
            {"question": "q1", "answer": "Bye", "evidence": ["D10:1", "D99:9"], "category": 4},
            {"question": "q2", "adversarial_answer": "x", "evidence": ["D2:1"], "category": 5},
        ],
    }
]


def written(folder: Path, data: object) -> Path:
    path = folder / "data.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_locomo_conversations_are_read(tmp_path: Path) -> None:
    (talk,) = public.read_locomo(written(tmp_path, LOCOMO))
    assert [each.id for each in talk.turns] == ["D2:1", "D2:2", "D10:1"]
    assert talk.turns[0].text == "Look! [shares a cat]"
    assert talk.turns[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=timezone.utc)
    first, second, third = talk.questions
    assert (first.ability, first.answers) == ("multi-hop", ("2022",))
    assert first.evidence == {"D2:1", "D2:2"}
    assert (second.ability, second.evidence) == ("single fact", {"D10:1"})
    assert (third.ability, third.answers, third.evidence) == ("adversarial", (), frozenset())
    assert [text.split(": ")[-1] for text in talk.unknown_evidence] == ["D99:9"]


LONGMEMEVAL = [
    {
        "question_id": "one",
        "question_type": "temporal-reasoning",
        "question": "When?",
        "answer": 3,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_session_ids": ["b", "a"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/10 (Wed) 10:00"],
        "haystack_sessions": [
            [
                {"role": "user", "content": "Three days.", "has_answer": True},
                {"role": "assistant", "content": "Fine."},
                {"role": "user", "content": " "},
            ],
            [{"role": "user", "content": "Hello."}],
        ],
        "answer_session_ids": ["b"],
    }
]


def test_longmemeval_questions_are_read(tmp_path: Path) -> None:
    (talk,) = public.read_longmemeval(written(tmp_path, LONGMEMEVAL))
    assert [each.text for each in talk.turns] == ["Hello.", "Three days.", "Fine."]
    (question,) = talk.questions
    assert (question.ability, question.answers) == ("temporal-reasoning", ("3",))
    assert question.evidence == {"0:b:0"}
    assert question.at == datetime(2023, 5, 30, 23, 40, tzinfo=timezone.utc)


def test_longmemeval_without_marks_has_the_turns_of_the_answer_sessions(tmp_path: Path) -> None:
    data = json.loads(json.dumps(LONGMEMEVAL))
    del data[0]["haystack_sessions"][0][0]["has_answer"]
    (talk,) = public.read_longmemeval(written(tmp_path, data))
    assert talk.questions[0].evidence == {"0:b:0", "0:b:1"}


def test_longmemeval_abstentions_have_no_evidence(tmp_path: Path) -> None:
    data = [LONGMEMEVAL[0] | {"question_id": "one_abs"}]
    (talk,) = public.read_longmemeval(written(tmp_path, data))
    (question,) = talk.questions
    assert (question.ability, question.evidence, question.answers) == (
        "abstention",
        frozenset(),
        (),
    )


@pytest.mark.parametrize(
    ("reader", "data", "message"),
    [
        (public.read_locomo, {"a": 1}, "must be a list"),
        (public.read_locomo, [{}], r"\[0\]\.conversation must be of type dict"),
        (
            public.read_locomo,
            [LOCOMO[0] | {"qa": [{"question": "q", "category": 9}]}],
            r"qa\[0\]\.category is 9",
        ),
        (public.read_locomo, [LOCOMO[0] | {"qa": None}], "qa must be a list"),
        (public.read_longmemeval, [1], "must be an object"),
        (
            public.read_longmemeval,
            [LONGMEMEVAL[0] | {"haystack_dates": []}],
            "numbers of sessions, ids and dates differ",
        ),
        (
            public.read_longmemeval,
            [LONGMEMEVAL[0] | {"question_date": "yesterday"}],
            "question_date is 'yesterday'",
        ),
    ],
)
def test_other_shapes_are_refused_with_the_place(tmp_path, reader, data, message) -> None:
    with pytest.raises(public.DataError, match=message):
        list(reader(written(tmp_path, data)))


def test_a_page_gets_the_tables_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    write_markdown(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="once"):
        write_markdown(page, "new")


def run_script(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "agent_memory" / "run.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_all_systems_run_small() -> None:
    done = run_script("--small")
    assert done.returncode == 0, done.stderr
    header, _, *rows = done.stdout.split("\n\n")[1].splitlines()
    assert header.startswith("| system | recall@10 | precision@10 | evidence recall")
    names = [row.split("|")[1].strip() for row in rows]
    assert names == [
        "bm25",
        "bm25-stems",
        "kbcore-text",
        "kbcore-facts",
        "kbcore-abstaining",
        "kbcore",
    ]


@pytest.mark.parametrize("option", ["--locomo", "--longmemeval"])
def test_public_data_run(tmp_path: Path, option: str) -> None:
    data = written(tmp_path, LOCOMO if option == "--locomo" else LONGMEMEVAL)
    done = run_script(option, str(data), "--systems", "bm25,kbcore")
    assert done.returncode == 0, done.stderr
    assert "public data" in done.stdout
    assert ("Left out: 1 ids" in done.stdout) is (option == "--locomo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--systems", "bm26"], "'bm26' is unknown; choose from bm25"),
        (["--budget", "0"], "--budget must be at least 1"),
        (["--locomo", "/nonexistent/file"], "No such file"),
    ],
)
def test_bad_options_are_refused(options: list[str], message: str) -> None:
    done = run_script(*options)
    assert done.returncode == 2
    assert message in done.stderr
