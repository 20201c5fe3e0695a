"""Conversations of agents: what a model would read every turn, as all turns again, as a window, as
a diff.

Each turn tells some facts among small talk, and at times takes one back, denies one, or tells one
that ends soon; each asks a question on the rules, which is the same for TOPIC turns. The premises
of right answers are known from the proofs of the engine, independently of how windows are made.
Windows and diffs are counted as natural text, tokens as characters by 4.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from measure import Effort
from table import Row

from kbcore import Config, open_runtime
from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.context.text.render import render, render_changes
from kbcore.context.text.tokens import tokens
from kbcore.context.window import GOAL_RELEVANT
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Literal
from kbplanner.syntax.parser import parse_goal, parse_rule
from kbplanner.syntax.printer import print_row
from kbtypes.windows import Entry, Window

RULES = """
colleague_of(?x, ?y) :- works_at(?x, ?f), works_at(?y, ?f), ?x != ?y.
can_help(?x, ?task) :- needs(?task, ?skill), has_skill(?x, ?skill), not away(?x).
blocked(?task) :- depends_on(?task, ?other), open(?other).
blocked(?task) :- depends_on(?task, ?other), blocked(?other).
"""

MINUTE = 60_000
SMALL_TALK = (
    "Well, thanks for looking into this, I really appreciate how quickly it went; where were we, and what about the rest of"
    " it? I have a meeting in between, and the phone keeps ringing, so forgive me if I say something twice or leave"
    " something out."
)
"""What people say around the facts of a turn."""

SKILLS = 24

TOPIC = 5
"""Turns about one topic; tokens are counted over this many turns, which include one change of
topic.
"""

Key = tuple[str, tuple[str, ...], bool]


@dataclass
class Tally:
    """What was counted over all turns."""

    needed: int = 0
    found: int = 0
    relevant: int = 0
    labelled: int = 0
    bad: int = 0
    inexact: int = 0
    unstable: int = 0
    replayed: list[int] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)


def conversations(effort: Effort, peers: Mapping[str, object] | None = None) -> Iterator[Row]:
    """Short and long ones, several of each."""
    for turns, facts, window_floor, diff_floor in ((15, 12, 10.0, 10.0), (100, 40, 20.0, 40.0)):
        tally = Tally()
        for seed in range(effort.pick(5, 1)):
            talk(turns, facts, seed, tally)
        yield from rows(turns, tally, window_floor, diff_floor)


def rows(turns: int, tally: Tally, window_floor: float, diff_floor: float) -> Iterator[Row]:
    """What was counted, each judged by itself."""
    size = f"{turns} turns"
    for name, got, total, least in (
        ("facts of gold proofs in the window", tally.found, tally.needed, 1.0),
        ("goal_relevant that a proof needs", tally.relevant, tally.labelled, 0.98),
    ):
        row = Row(name, size, None, f"{got:,} of {total:,}", floor=f"≥ {least:.0%}")
        row.met = total > 0 and got >= least * total
        row.ratio = f"{got / max(total, 1):.2%}"
        yield row
    for name, count in (
        ("expired or contradicted entries", tally.bad),
        ("diffs that do not lead to the window", tally.inexact),
        ("same request, another window", tally.unstable),
    ):
        yield Row(name, size, None, f"{count:,}", floor="0", met=count == 0)
    replayed = sum(tally.replayed) / len(tally.replayed)
    for name, sizes, least in (
        ("window", tally.windows, window_floor),
        ("diff", tally.diffs, diff_floor),
    ):
        mean = sum(sizes) / len(sizes)
        row = Row(
            f"tokens a turn at the end, {name}",
            size,
            None,
            f"{mean:,.0f}",
            floor=f"≥ {least:g} × fewer",
        )
        row.ratio = f"{replayed / max(mean, 1):.3g} × fewer than {replayed:,.0f}"
        row.met = replayed >= least * mean
        yield row


def talk(turns: int, facts: int, seed: int, tally: Tally) -> None:
    """One conversation, turn by turn, with windows of a fixed number of facts."""
    draw, clock = random.Random(f"{turns} {seed}"), ManualClock(1_700_000_000_000)
    with open_runtime(replace(Config(), storage_backend="memory"), clock=clock) as runtime:
        kb = runtime.knowledge_base()
        kb.assert_rules([parse_rule(rule) for rule in RULES.strip().splitlines()])
        said: list[str] = []
        request = WindowRequest(facts, session="talk")
        before: Window | None = None
        for turn in range(turns):
            clock.advance(MINUTE)
            said.append(one_turn(kb, draw, turn))
            goal = question(seed, turn // TOPIC)
            asked = replace(request, goals=(goal,))
            gold, proofs = needed(kb, goal)
            if before is None:
                window, changes = kb.context(asked), None
            else:
                changes = kb.context_diff("talk", {"goals": (goal,)})
                window = kb.context(asked)
                tally.inexact += not applied(before, changes.removed, changes.added, window)
            tally.unstable += kb.context(asked).entries != window.entries
            judge(window, gold, proofs, tally, clock.now_ms())
            whole = tokens(sum(len(text) + 1 for text in said))
            part = render(window) if changes is None else render_changes(changes)
            if turn >= turns - TOPIC:
                tally.replayed.append(whole)
                tally.windows.append(tokens(len(render(window))))
                tally.diffs.append(tokens(len(part)))
            before = window


def one_turn(kb: TenantKB, draw: random.Random, turn: int) -> str:
    """What is said in a turn, of which the facts are stored; the text."""
    person, other = f"person{draw.randrange(12)}", f"person{draw.randrange(12)}"
    told = [
        Fact("works_at", (person, f"firm{draw.randrange(5)}")),
        Fact("has_skill", (other, f"skill{draw.randrange(SKILLS)}")),
        Fact("needs", (f"task{turn % 20}", f"skill{draw.randrange(SKILLS)}")),
    ]
    if turn % 3 == 0:
        told.append(Fact("depends_on", (f"task{turn % 20 + 1}", f"task{turn % 20}")))
        told.append(Fact("open", (f"task{draw.randrange(20)}",)))
    if turn % 4 == 1:
        told.append(Fact("away", (other,), ttl=5 * MINUTE))
    if turn % 5 == 2:
        told.append(Fact("has_skill", (person, f"skill{draw.randrange(SKILLS)}"), positive=False))
    kb.assert_facts(told)
    text = [print_row(fact.predicate, fact.args, not fact.positive) for fact in told]
    if turn % 7 == 6:
        stored = kb.query_rows("open", [f"task{draw.randrange(20)}"])
        for row in stored:
            kb.retract_fact("open", row["args"])
            text.append(f"no longer {print_row('open', row['args'], False)}")
    return f"{SMALL_TALK} {'. '.join(text)}."


def question(seed: int, topic: int) -> Literal:
    """What is asked for some turns."""
    draw = random.Random(f"{seed} {topic}")
    person, task = (
        f"person{draw.randrange(12)}",
        f"task{draw.randrange(min(TOPIC * topic + 1, 20))}",
    )
    asked = (
        f"colleague_of({person}, person{draw.randrange(12)})",
        f"can_help(?who, {task})",
        f"blocked({task})",
    )
    text = draw.choice(asked)
    return parse_goal(text).literal


def needed(kb: TenantKB, goal: Literal) -> tuple[set[Key], set[Key]]:
    """The premises of the gold answers: the stored facts, and with them the conclusions on the way.

    An answer that depends on a fact of which the opposite is stored is none of gold: a window has
    one sign of it only.
    """
    facts: set[Key] = set()
    nodes: set[Key] = set()
    for proof in kb.prove(goal):
        rests: set[Key] = set()
        todo: list[dict[str, Any]] = [proof["proof"]]
        while todo:
            node = todo.pop()
            step, row = node["step"], node["goal"]
            key = row["predicate"], tuple(row["args"]), row["negated"]
            if step["type"] in ("fact_match", "explicit_negative", "rule_application"):
                nodes.add(key)
            if step["type"] in ("fact_match", "explicit_negative") and not step["bodyProofs"]:
                rests.add(key)
            todo += step["bodyProofs"] or []
        if not any(
            kb.query_rows(predicate, args, positive=negated) for predicate, args, negated in rests
        ):
            facts |= rests
    return facts, nodes


def applied(before: Window, removed: Any, added: Any, after: Window) -> bool:
    """Whether the first window without what went and with what came is the second, entry for
    entry.
    """
    gone = {entry.key for entry in removed}
    kept = [entry for entry in before.entries if entry.key not in gone]
    return _told([*kept, *added]) == _told(after.entries)


def _told(entries: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """Entries by key, without what drifts by itself: salience, category and when something was
    concluded.
    """
    plain = (
        e._replace(
            salience=0.0, category="", created_at=e.created_at if e.provenance is None else 0
        )
        for e in entries
    )
    return sorted(((entry.key, entry) for entry in plain), key=lambda one: one[0])


def judge(window: Window, gold: set[Key], proofs: set[Key], tally: Tally, now: int) -> None:
    """Compare a window with what is known independently."""
    keys = {(entry.predicate, entry.args, entry.negated) for entry in window.entries}
    tally.needed += len(gold)
    tally.found += len(gold & keys)
    relevant = [e for e in window.entries if e.category == GOAL_RELEVANT]
    tally.labelled += len(relevant)
    tally.relevant += sum((e.predicate, e.args, e.negated) in proofs for e in relevant)
    tally.bad += sum(e.valid_until is not None and e.valid_until <= now for e in window.entries)
    tally.bad += sum((predicate, args, not negated) in keys for predicate, args, negated in keys)


if __name__ == "__main__":
    raise SystemExit("run run.py --only conversations")
