"""Bodies of texts to be executed, and what came of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.kb.scripts import Block, Executed, blocks_of
from kbcore.reason.budget import BudgetWanted
from kbserver.schemas.base import Envelope, budget_wanted
from kbserver.schemas.fields import BUDGET, scope_to_write, text

_execute = Envelope(
    "Execute", {"command": text, "scope": scope_to_write, **BUDGET}, required=("command",)
)


@dataclass(frozen=True, slots=True)
class Command:
    """A text as read, the partition for what names none, and what its questions may use in all."""

    blocks: list[Block]
    scope: str | None
    wanted: BudgetWanted


@_execute.shapes
def command(data: dict[str, Any], *, strict: bool) -> Command:
    """Read the body of /execute."""
    fields = _execute.load(data, strict)
    scope = fields.get("scope")
    blocks = blocks_of(fields["command"], scope)
    for block in blocks:
        named = {rule.scope for rule in block.rules} | {fact.scope for fact in block.facts}
        for one in sorted(name for name in named if name is not None):
            _judge(one)
    return Command(blocks, scope, budget_wanted(fields))


def _judge(scope: str) -> None:
    try:
        scope_to_write(scope)
    except ValueError as error:
        raise InvalidInput.at("command", f"scope {scope!r} {error}") from error


def shown_executed(done: Executed) -> dict[str, Any]:
    """Return the answer of /execute."""
    return {
        "result": done.text,
        "answers": done.answers,
        "questions": [{"goal": one.goal, "answers": one.answers} for one in done.questions],
        "asserted": done.asserted,
        "rules": [rule.text for rule in done.rules],
        "warnings": list(done.warnings),
        "timestamp": done.timestamp,
    }
