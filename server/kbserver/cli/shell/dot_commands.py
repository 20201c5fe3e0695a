"""The dot commands of the shell, such as `.why` and `.undo`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kbcore.errors import KBError
from kbcore.language.files import FORMATS
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.knowledge.dump import dump_to
from kbserver.cli.knowledge.facts import (
    fact_listing,
    predicate_listing,
    rule_listing,
)
from kbserver.cli.knowledge.load import load_file
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import EVERY_SCOPE, read_goal
from kbserver.cli.shared.output import retraction_text
from kbserver.cli.shared.rule_files import read_text
from kbserver.cli.shared.target import ask_target, note, query_string
from kbserver.cli.shell.interrupts import interrupts
from kbserver.cli.shell.session import LoadedFile, ShellSession, Watched
from kbserver.cli.shell.undo import (
    MAX_FACTS,
    ChangeTooLarge,
    change_of_removing_rule,
    change_of_retracting,
)

MAX_UNDOABLE_BYTES = 1 << 20
"""Size of a file of statements up to which `.load` can be undone."""


class Leave(Exception):
    """The user leaves the shell."""


@dataclass(frozen=True, slots=True)
class DotCommand:
    """A command: its arguments in the help, its summary, and its function."""

    arguments: str
    summary: str
    run: Callable[[ShellSession, str], None]


def run_command(session: ShellSession, text: str) -> None:
    """Run a dot command; raises Leave, Failed and KBError."""
    name, _, argument = text.strip()[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean .{near[0]}?" if near else "; .help lists them"
        raise Failed(f"there is no command .{name}{hint}")
    command.run(session, argument.strip())


def execute(session: ShellSession, text: str) -> None:
    """Store the statements of an entry and answer its goals; raises Failed and KBError."""
    session.execute(text)


def _help(session: ShellSession, argument: str) -> None:
    click.echo("A fact or rule that ends with a dot is stored:  parent(ann, bob).")
    click.echo("A goal after ?- is answered:                    ?- parent(ann, ?who).")
    click.echo()
    for name, each in COMMANDS.items():
        click.echo(f"  {f'.{name} {each.arguments}'.ljust(26)}{each.summary}")


def _quit(session: ShellSession, argument: str) -> None:
    raise Leave


def _goal_text(session: ShellSession, argument: str, name: str) -> str:
    """Return the goal of a command, or the last goal if the argument is empty."""
    text = argument or session.last_goal
    if not text:
        raise Failed(f".{name} needs a goal, such as .{name} parent(ann, ?who)")
    return text


def _explained(session: ShellSession, goal: str, **fields: Any) -> None:
    question = read_goal(goal)
    with errors_in("goal", before=question.before), interrupts():
        body = {"text": question.text, **session.options.body(), **fields}
        click.echo(ask_target(session.target, "/explain", body).text.rstrip("\n"))


def _explain(session: ShellSession, argument: str) -> None:
    _explained(session, _goal_text(session, argument, "explain"))


def _plan(session: ShellSession, argument: str) -> None:
    _explained(session, _goal_text(session, argument, "plan"), plan=True, format="text")


def _analyze(session: ShellSession, argument: str) -> None:
    goal = _goal_text(session, argument, "analyze")
    _explained(session, goal, plan=True, analyze=True, format="text")


def _why(session: ShellSession, argument: str) -> None:
    if argument and not argument.isdecimal():
        _explained(session, argument, limit=1)
        return
    number = int(argument or 1)
    if session.last_goal is None:
        raise Failed(".why explains an answer of the last goal; ask one first")
    count = len(session.last_answers)
    if not 1 <= number <= count:
        raise Failed(f"the last goal had {counted(count, 'answer')}; there is no answer {number}")
    answer = session.last_answers[number - 1]
    if read_goal(session.last_goal).positions is None:
        raise Failed("the last goal has several literals; .explain shows the proofs of its answers")
    _explained(session, answer, limit=1)


def _whynot(session: ShellSession, argument: str) -> None:
    _explained(session, _goal_text(session, argument, "whynot"), whyNot=True, format="text")


def _scope(session: ShellSession, argument: str) -> None:
    if argument:
        session.scope = None if argument in ("base", "default") else argument
        if argument == EVERY_SCOPE:
            note("* reads every scope; statements need one scope")
        return
    names = session.target.send("GET", "/scopes").json()["scopes"]
    for name in ["base", *names]:
        mark = "*" if name == (session.scope or "base") else " "
        click.echo(f"{mark} {name}")


def _asof(session: ShellSession, argument: str) -> None:
    if not argument:
        click.echo(session.as_of or "now")
    elif argument == "now":
        session.as_of = None
    else:
        body = {"text": "asof_check(?x)", "asOf": argument}
        session.target.send("POST", "/query", body)  # refuses a time that it cannot read
        session.as_of = argument


def _watch(session: ShellSession, argument: str) -> None:
    if argument == "off":
        session.watched.clear()
    elif argument:
        goal = read_goal(argument)
        lines = session.lines_of(goal.text)
        session.watched.append(Watched(goal.text, lines))
        click.echo(f"{counted(len(lines), 'answer')} now; changes follow each statement")
    else:
        for each in session.watched:
            click.echo(f"?- {each.text}.  {counted(len(each.lines), 'answer')}")


def _time(session: ShellSession, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise Failed(".time takes on or off")
    session.shows_time = argument == "on" if argument else not session.shows_time


def _load(session: ShellSession, argument: str) -> None:
    if not argument:
        raise Failed(".load needs a file, such as .load family.kb")
    path = Path(argument).expanduser()
    if path.suffix not in FORMATS:
        raise Failed(f"{path}: unknown file type; the name must end in {', '.join(FORMATS)}")
    if path.suffix != ".kb" or path.stat().st_size > MAX_UNDOABLE_BYTES:
        note(f"{path}: .undo leaves what it stores")
        load_file(session.target, path, session.scope)
        session.report_watched()
        return
    text = read_text(str(path))
    before = session.files.get(str(path))
    if before is None or before.change not in session.changes:
        session.files[str(path)] = LoadedFile(text, session.execute(text, str(path)))
        return
    session.changes.remove(before.change)
    before.change.undo(session.target)
    depth = len(session.changes)
    try:
        change = session.execute(text, str(path))
    except (Failed, KBError):
        for partial in session.changes[depth:]:
            partial.undo(session.target)
        del session.changes[depth:]
        before.change = session.store(before.text, str(path))
        session.changes.append(before.change)
        raise
    note(f"{path}: replaces what it stored before")
    session.files[str(path)] = LoadedFile(text, change)


def _save(session: ShellSession, argument: str) -> None:
    if not argument:
        raise Failed(".save needs a file, such as .save family.kb")
    dump_to(session.target, Path(argument).expanduser())


def _undo(session: ShellSession, argument: str) -> None:
    if not session.changes:
        raise Failed("there is nothing to undo")
    session.changes[-1].undo(session.target)
    change = session.changes.pop()
    parts = [
        counted(len(names), noun)
        for names, noun in ((change.facts, "fact"), (change.added + change.removed, "rule"))
        if names
    ]
    click.echo(f"undone: {', '.join(parts)}")
    session.report_watched()


def _facts(session: ShellSession, argument: str) -> None:
    if not argument:
        raise Failed(".facts needs a pattern, such as .facts parent(ann, ?x)")
    goal = read_goal(argument)
    with errors_in("pattern", before=goal.before):
        body = {"text": goal.text, **session.options.body()}
        rows = ask_target(session.target, "/query", body).json()
    columns = dict(zip(goal.positions or (), goal.variables, strict=False))
    if rows:
        session.show(fact_listing(rows, columns, goal.arity))
    else:
        click.echo("no")


def _rules(session: ShellSession, argument: str) -> None:
    rows = session.target.send("GET", f"/rules{query_string(scope=session.scope or '*')}").json()[
        "rules"
    ]
    name = argument.partition("/")[0]
    session.show(rule_listing([row for row in rows if name in ("", row["head"]["predicate"])]))


def _predicates(session: ShellSession, argument: str) -> None:
    path = f"/predicates{query_string(scope=session.scope)}"
    session.show(predicate_listing(session.target.send("GET", path).json()["predicates"]))


def _forget(session: ShellSession, argument: str) -> None:
    if not argument:
        raise Failed(".forget needs a fact or pattern, or @ and the id of a rule")
    if argument.startswith("@"):
        id = argument[1:].strip().rstrip(".").strip("\"'")
        change = change_of_removing_rule(session.target, id, session.scope)
        body: dict[str, Any] = {"id": id, "scope": session.scope}
        click.echo(session.target.send("POST", "/retract/rule", body).text)
        session.changed(change)
        return
    goal = read_goal(argument)
    if goal.positions is None or ":-" in goal.text:
        raise Failed(".forget takes one fact or pattern, or @ and the id of a rule")
    with errors_in("pattern", before=goal.before):
        body = {"text": goal.text, "scope": session.scope}
        try:
            change = change_of_retracting(session.target, goal.text, session.scope)
        except ChangeTooLarge:
            raise Failed(
                f"more than {MAX_FACTS:,} facts match, which .undo could not restore; "
                "use `kbcore forget`"
            ) from None
        answer = ask_target(session.target, "/retract/pattern", body).json()
    ended = retraction_text(answer["cascaded"])
    click.echo(f"retracted {counted(answer['retracted'], 'fact')}{ended}")
    session.changed(change)


COMMANDS: dict[str, DotCommand] = {
    "why": DotCommand("[N | GOAL]", "Prove answer N of the last goal (default 1), or a goal", _why),
    "whynot": DotCommand(
        "[GOAL]", "Show why a goal has no answer; default: the last goal", _whynot
    ),
    "explain": DotCommand("[GOAL]", "Show the proofs of all answers", _explain),
    "plan": DotCommand("[GOAL]", "Show how a goal is evaluated", _plan),
    "analyze": DotCommand("[GOAL]", "Evaluate a goal; show its plan with rows and times", _analyze),
    "watch": DotCommand("[GOAL | off]", "After each change show what it did to a goal", _watch),
    "facts": DotCommand("PATTERN", "List stored facts, without applying rules", _facts),
    "rules": DotCommand("[PREDICATE]", "List the rules", _rules),
    "predicates": DotCommand("", "List the predicates", _predicates),
    "forget": DotCommand("PATTERN | @ID", "Retract facts, or a rule", _forget),
    "undo": DotCommand("", "Undo the last change", _undo),
    "load": DotCommand("FILE", "Store a file; again: replace what it stored before", _load),
    "save": DotCommand("FILE", "Write all facts, rules and rule sets to a file", _save),
    "scope": DotCommand("[NAME | base | *]", "List the scopes, or use one", _scope),
    "asof": DotCommand("[TIME | now]", "Answer as of a point in time", _asof),
    "time": DotCommand("[on | off]", "Show how long each entry takes", _time),
    "help": DotCommand("", "Show this list", _help),
    "quit": DotCommand("", "Leave; so does Ctrl-D", _quit),
}
