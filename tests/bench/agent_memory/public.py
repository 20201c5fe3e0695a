"""Readers of public data sets in JSON that the user downloads; none is part of this project.

The shapes are those of LoCoMo (Maharana et al., 2024) and LongMemEval (Wu et al., 2024).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .interface import Conversation, Question, Turn

LOCOMO_CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open domain",
    4: "single fact",
    5: "adversarial",
}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""Date of turns for which the data have no date."""


class DataError(ValueError):
    """A file that does not have the expected shape."""


def read_locomo(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file in the shape of LoCoMo; raise DataError.

    Turns without text and picture are left out. Adversarial questions have no evidence and no
    answer, like abstentions.
    """
    for number, sample in enumerate(_list(_json(path), str(path))):
        place = f"{path}[{number}]"
        talk = _field(sample, "conversation", dict, place)
        turns = []
        sessions = (re.fullmatch(r"session_(\d+)", key) for key in talk)
        for session in sorted((m for m in sessions if m), key=lambda match: int(match[1])):
            name = session[0]
            date = _locomo_date(talk.get(f"{name}_date_time"), f"{place}.{name}_date_time")
            for index, turn in enumerate(_list(talk[name], f"{place}.{name}")):
                where = f"{place}.{name}[{index}]"
                text = _field(turn, "text", str, where)
                if turn.get("blip_caption"):
                    text += f" [shares {turn['blip_caption']}]"
                if not text.strip():
                    continue
                turns.append(
                    Turn(
                        _field(turn, "dia_id", str, where),
                        f"D{session[1]}",
                        _field(turn, "speaker", str, where),
                        text,
                        date,
                    )
                )
        known = {turn.id for turn in turns}
        questions, unknown = [], []
        for index, asked in enumerate(_list(sample.get("qa"), f"{place}.qa")):
            where = f"{place}.qa[{index}]"
            category = LOCOMO_CATEGORIES.get(asked.get("category"))
            if category is None:
                raise DataError(f"{where}.category is {asked.get('category')!r}; it must be 1 to 5")
            ids = {
                each
                for text in _list(asked.get("evidence", []), f"{where}.evidence")
                for each in re.split(r"[;,\s]+", text)
                if each
            }
            unknown += [f"{where}: {each}" for each in sorted(ids - known)]
            # The evidence of an adversarial question is what misleads: no answer follows from it.
            misleading = category == "adversarial"
            answers = () if misleading else _answers(asked.get("answer"), where)
            questions.append(
                Question(
                    f"{number}:{index}",
                    category,
                    _field(asked, "question", str, where),
                    frozenset() if misleading else frozenset(ids & known),
                    answers,
                )
            )
        name = str(sample.get("sample_id", number))
        yield Conversation(name, tuple(turns), tuple(questions), "", tuple(unknown))


def read_longmemeval(path: Path) -> Iterator[Conversation]:
    """Yield a conversation for each question of a file in the shape of LongMemEval.

    The evidence is the turns with `has_answer`; in a file without these marks, all turns of the
    answer sessions. Turns without text are left out. Questions whose id ends with `_abs` have no
    evidence and no answer. Raises DataError.
    """
    for number, entry in enumerate(_list(_json(path), str(path))):
        place = f"{path}[{number}]"
        name = _field(entry, "question_id", str, place)
        sessions = _field(entry, "haystack_sessions", list, place)
        ids = _field(entry, "haystack_session_ids", list, place)
        dates = _field(entry, "haystack_dates", list, place)
        if not len(sessions) == len(ids) == len(dates):
            raise DataError(f"{place}: numbers of sessions, ids and dates differ")
        answer_sessions = set(_field(entry, "answer_session_ids", list, place))
        turns, marked, of_sessions = [], set(), set()
        for position, (session, turn_list, date) in enumerate(
            zip(ids, sessions, dates, strict=True)
        ):
            at = _longmemeval_date(date, f"{place}.haystack_dates[{position}]")
            for index, turn in enumerate(_list(turn_list, f"{place}.haystack_sessions")):
                where = f"{place}.haystack_sessions[{position}][{index}]"
                # The same session may occur twice in a haystack.
                turn_id = f"{position}:{session}:{index}"
                role = _field(turn, "role", str, where)
                text = _field(turn, "content", str, where)
                if not text.strip():
                    continue
                turns.append(Turn(turn_id, session, role, text, at))
                if turn.get("has_answer"):
                    marked.add(turn_id)
                if session in answer_sessions:
                    of_sessions.add(turn_id)
        turns.sort(key=lambda turn: turn.at)
        nothing_said = name.endswith("_abs")
        question = Question(
            name,
            "abstention" if nothing_said else _field(entry, "question_type", str, place),
            _field(entry, "question", str, place),
            frozenset() if nothing_said else frozenset(marked or of_sessions),
            () if nothing_said else _answers(entry.get("answer"), place),
            asker="user",
            at=_longmemeval_date(entry.get("question_date"), f"{place}.question_date"),
        )
        missing = sorted(answer_sessions - set(ids))
        unknown = tuple(f"{place}: {session}" for session in missing)
        yield Conversation(name, tuple(turns), (question,), "", unknown)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not JSON in UTF-8: {error}") from error


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise DataError(f"{place} must be a list")
    return value


def _field(record: Any, name: str, kind: type, place: str) -> Any:
    if not isinstance(record, Mapping):
        raise DataError(f"{place} must be an object")
    if not isinstance(record.get(name), kind):
        raise DataError(f"{place}.{name} must be of type {kind.__name__}")
    return record[name]


def _answers(value: Any, place: str) -> tuple[str, ...]:
    """Return an answer as text; numbers occur."""
    if value is None or not str(value).strip():
        raise DataError(f"{place}.answer is missing")
    return (str(value),)


def _locomo_date(text: Any, place: str) -> datetime:
    """Read a date such as `1:56 pm on 8 May, 2023`."""
    return EPOCH if text is None else _date(text, "%I:%M %p on %d %B, %Y", place)


def _longmemeval_date(text: Any, place: str) -> datetime:
    """Read a date such as `2023/05/30 (Tue) 23:40`."""
    if isinstance(text, str):
        text = re.sub(r"\s*\(\w+\)\s*", " ", text)
    return _date(text, "%Y/%m/%d %H:%M", place)


def _date(text: Any, form: str, place: str) -> datetime:
    try:
        return datetime.strptime(text, form).replace(tzinfo=timezone.utc)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place} is {text!r}; it must have the form {form}") from error
