"""Windows for a question: recall for facts of any age, the first person, precision, and the
rendered token budget.

The collection is that of `talk`: facts about people, questions in other words, one right answer
each. Facts are aged by a manual clock. First-person facts are the same statements as said by the
people themselves, one line of a chat each.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from conversations import needed
from measure import Effort
from table import Row
from talk import KINDS, NAMES, collection

from kbcore import Config, open_runtime
from kbcore.clock import ManualClock
from kbcore.context.request import FACTS, NATURAL, WindowRequest
from kbcore.operations.tenant_kb import TenantKB
from kbcore.search.bm25 import LexicalIndex
from kbcore.state.facts import Fact
from kbplanner.syntax.parser import parse_goal, parse_rule
from kbtypes.windows import Window

START = 1_700_000_000_000
HALF_LIFE_MS = Config().salience_half_life_ms
TOP = 10
OLD_HALF_LIVES = 6
FRESH_SHARE = 0.2
"""Share of the facts that are stored last if ages are mixed."""

Told = tuple[str, ...]
Question = tuple[str, int]
"""A text, and the place of the fact that answers it."""


def question_windows(effort: Effort) -> Iterator[Row]:
    """Give a row for each measure of windows made for questions and for goals."""
    facts, questions = collection()
    questions = questions[: effort.pick(len(questions), 20)]
    yield from _recall_by_age(facts, questions)
    yield from _precision(facts, questions)
    yield from _goal_precision(effort)
    yield from _rendered_budget(facts, questions)


def first_person(effort: Effort) -> Iterator[Row]:
    """Give the recall for questions such as "what do I drink", with and without an asker."""
    draw = random.Random(14)
    said: list[Told] = []
    asked: list[tuple[str, int, str]] = []
    for person in NAMES:
        for predicate, values, question in KINDS:
            phrase, value = (
                predicate.replace("_", " ").replace("-", " "),
                draw.choice(values.split("|")),
            )
            text = draw.choice(
                ("I, {0} {1}", "my {0}: {1}", "for me {0} {1}", "we said {0} {1}")
            ).format(phrase, value)
            if len(said) % 7 == 0:
                asked.append((question.format("I"), len(said), person))
            said.append(("said", person, f"D{NAMES.index(person)}:{len(said)}", text))
    asked = asked[: effort.pick(len(asked), 20)]
    with _knowledge() as (kb, clock):
        _tell(kb, said)
        clock.advance(OLD_HALF_LIVES * HALF_LIFE_MS)
        named = [
            kb.context(WindowRequest(TOP, query=text, asker=person)) for text, _, person in asked
        ]
        unnamed = [kb.context(WindowRequest(TOP, query=text)) for text, _, _ in asked]
        whole = [
            kb.context(WindowRequest(TOP, query=said[place][2])).entries for _, place, _ in asked
        ]
    with_asker, without = (_recall(windows, said, asked) for windows in (named, unnamed))
    row = Row(
        "recall@10, first person, with asker", f"{len(said):,}", len(asked), f"{with_asker:.3f}"
    )
    row.ratio = f"{without:.3f} without an asker"
    row.floor, row.met = "> without an asker", with_asker > without
    yield row
    right = sum(len(entries) == 1 for entries in whole)
    row = Row(
        "a line found by its identifier alone",
        f"{len(said):,}",
        len(asked),
        f"{right} of {len(asked)}",
    )
    row.floor, row.met = "all", right == len(asked)
    yield row


def _recall_by_age(facts: Sequence[Told], questions: Sequence[Question]) -> Iterator[Row]:
    draw = random.Random(15)
    fresh = set(draw.sample(range(len(facts)), int(FRESH_SHARE * len(facts))))
    plain = None
    for name, old in (
        ("fresh", []),
        ("old", list(range(len(facts)))),
        ("mixed", sorted(set(range(len(facts))) - fresh)),
    ):
        with _knowledge() as (kb, clock):
            _tell(kb, [facts[place] for place in old])
            clock.advance(OLD_HALF_LIVES * HALF_LIFE_MS)
            _tell(kb, [facts[place] for place in sorted(set(range(len(facts))) - set(old))])
            windows = [kb.context(WindowRequest(TOP, query=text)) for text, _ in questions]
            again = []
            for text, _ in questions:
                clock.advance(HALF_LIFE_MS // 10)
                again.append(kb.context(WindowRequest(TOP, query=text)).id)
            if plain is None:
                plain = _plain_recall(kb, facts, questions)
        found = _recall(windows, facts, questions)
        row = Row(
            f"recall@10 of windows, {name} facts", f"{len(facts):,}", len(questions), f"{found:.3f}"
        )
        row.ratio = f"BM25 alone {plain:.3f}"
        row.floor, row.met = "≥ BM25 - 0.02", found >= plain - 0.02
        yield row
        changed = sum(window.id != other for window, other in zip(windows, again, strict=True))
        row = Row(f"same question, another window, {name} facts", "", len(questions), f"{changed}")
        row.floor, row.met = "0", not changed
        yield row


def _precision(facts: Sequence[Told], questions: Sequence[Question]) -> Iterator[Row]:
    """Relevant to a question is its answer."""
    with _knowledge() as (kb, _):
        _tell(kb, facts)
        for name, more in (
            ("fill salience", {"fill": "salience"}),
            ("fill none", {}),
            ("fill none, minRelevance 0.5", {"min_relevance": 0.5}),
        ):
            windows = [kb.context(WindowRequest(50, query=text, **more)) for text, _ in questions]  # type: ignore[arg-type]
            found = _recall(windows, facts, questions)
            size = sum(len(window.entries) for window in windows)
            precision = found * len(questions) / size
            row = Row(
                f"query windows of 50, {name}",
                f"{len(facts):,}",
                len(questions),
                f"precision {precision:.3f}",
            )
            row.ratio = f"recall {found:.3f}, {size / len(questions):.3g} facts"
            yield row


def _goal_precision(effort: Effort) -> Iterator[Row]:
    draw = random.Random(16)
    people = effort.pick(60, 20)
    with _knowledge() as (kb, _):
        kb.assert_rules(
            [parse_rule("colleague(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y.")]
        )
        kb.assert_facts(
            [Fact("works_at", (f"p{n}", f"f{draw.randrange(people // 4)}")) for n in range(people)]
        )
        kb.assert_facts(
            [Fact("likes", (f"p{n % people}", f"thing {n}")) for n in range(10 * people)]
        )
        goals = [parse_goal(f"colleague(p{n}, ?who)").literal for n in range(effort.pick(40, 5))]
        for fill in ("salience", "none"):
            covered = gold_size = size = right = tokens = 0
            for goal in goals:
                gold, proofs = needed(kb, goal)
                window = kb.context(WindowRequest(40, goals=(goal,), fill=fill))
                keys = {(entry.predicate, entry.args, entry.negated) for entry in window.entries}
                covered, gold_size = covered + len(gold & keys), gold_size + len(gold)
                right, size, tokens = (
                    right + len(proofs & keys),
                    size + len(keys),
                    tokens + window.tokens,
                )
            row = Row(
                f"goal windows of 40, fill {fill}", "", len(goals), f"precision {right / size:.3f}"
            )
            row.ratio = f"coverage {covered / gold_size:.3f}, {tokens / len(goals):.0f} tokens"
            if fill == "none":
                row.floor = "precision ≥ 0.98, coverage 1"
                row.met = right >= 0.98 * size and covered == gold_size
            yield row


def _rendered_budget(facts: Sequence[Told], questions: Sequence[Question]) -> Iterator[Row]:
    with _knowledge() as (kb, _):
        _tell(kb, facts)
        kb.assert_rules([parse_rule("at_home(?x) :- hasPet(?x, ?y), not drives(?x, _).")])
        for form in (NATURAL, FACTS):
            over, fullest = 0, 0.0
            limits = (20, 60, 200, 600)
            for place, (text, _) in enumerate(questions):
                limit = limits[place % len(limits)]
                asked = WindowRequest(
                    query=text, max_tokens=limit, format=form, fill="salience", include_rules=True
                )
                share = -(-len(kb.context(asked).text) // 4) / limit
                over, fullest = over + (share > 1), max(fullest, share)
            row = Row(
                f"windows whose {form} text exceeds maxTokens",
                "",
                len(questions),
                f"{over / len(questions):.1%}",
            )
            row.ratio, row.floor, row.met = f"fullest {fullest:.0%} of the budget", "0 %", not over
            yield row


@contextmanager
def _knowledge() -> Iterator[tuple[TenantKB, ManualClock]]:
    clock = ManualClock(START)
    with open_runtime(Config(storage_backend="memory"), clock=clock) as runtime:
        yield runtime.knowledge_base(), clock


def _tell(kb: TenantKB, facts: Iterable[Told]) -> None:
    told = [Fact(fact[0], fact[1:]) for fact in facts]
    if told:
        kb.assert_facts(told)


def _recall(
    windows: Sequence[Window], facts: Sequence[Told], asked: Sequence[tuple[Any, ...]]
) -> float:
    """Return the share of questions whose answer is in their window."""
    hits = (
        facts[question[1]] in {(entry.predicate, *entry.args) for entry in window.entries}
        for window, question in zip(windows, asked, strict=True)
    )
    return sum(hits) / len(asked)


def _plain_recall(kb: TenantKB, facts: Sequence[Told], questions: Sequence[Question]) -> float:
    """Return the recall of BM25 alone, facts in the order of storage."""
    found = 0
    for text, place in questions:
        with kb._reads(None) as (tenant, budget):
            hits = LexicalIndex.of(tenant).search(tenant.partition(None), text, TOP, budget)
            symbols = [
                (stored.schema.predicate, stored.relation.rows(array("I", [row])))
                for stored, row, _ in hits
            ]
            found += facts[place] in [
                (predicate, *tenant.engine.texts(row)) for predicate, row in symbols
            ]
    return found / len(questions)
