"""The command line itself: help, suggestions, environment, imports, output on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner
from support.commands import kbcore
from support.servers import Server

from kbcore import __version__
from kbserver import cli, operations
from kbserver.cli.shared.groups import summary_of
from kbserver.routes import EVERY, PATHS, subject_of

HEAVY = (
    "kbplanner.engine",
    "kbplanner._engine",
    "kbplanner.compile",
    "kbplanner.syntax.parser",
    "kbcore.embed",
    "kbcore.operations",
    "kbcore.config",
    "lark",
    "flask",
    "gevent",
    "marshmallow",
    "werkzeug",
    "httpx",
    "orjson",
    "pluggy",
    "kbserver.schemas",
    "kbserver.routes",
)
"""Modules that a command for a server does not import."""

PARSING = ("kbplanner.compile", "kbplanner.syntax.parser", "lark", "orjson")
"""Of these, the modules that commands import which read or write files in the rule language."""

CLIENT_COMMANDS = [
    ["tell", "parent(ann, bob)", "likes(?x, ?y) :- parent(?x, ?y)"],
    ["teach", "anc(?x, ?y) :- parent(?x, ?y)"],
    ["ask", "anc(ann, ?x)"],
    ["ask", "anc(ann, ?x), parent(ann, ?x)"],
    ["explain", "anc(ann, ?x)"],
    ["whynot", "anc(bob, ?x)"],
    ["query", "parent(?x, ?y)"],
    ["predicates"],
    ["rules"],
    ["context", "--goal", "anc(ann, ?x)"],
    ["run", "-"],
    ["status"],
    ["scope", "fork", "draft"],
    ["scope", "diff", "--to", "draft"],
    ["scope", "list"],
    ["scope", "delete", "draft", "--yes"],
    ["memory", "salient"],
    ["memory", "priority", "parent(ann, bob)", "0.5"],
    ["memory", "recall", "parent(?x, ?y)", "2999-01-01T00:00:00Z"],
    ["memory", "consolidate"],
    ["memory", "decay", "--yes"],
    ["memory", "episodes"],
    ["memory", "correct", "parent(ann, bob)", "parent(ann, bea)", "--reason", "r"],
    ["memory", "purge", "--subject", "zoe", "--yes"],
    ["memory", "purges"],
    ["admin", "databases"],
    ["forget", "parent(ann, ?x)"],
    ["--help"],
    ["--version"],
]

PROGRAM = """
import sys
from kbserver.cli import main
try:
    main(sys.argv[1:])
finally:
    print("modules:", *sorted(sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("kb")) as running:
        yield running


@pytest.fixture
def url(server, monkeypatch):
    address = f"http://127.0.0.1:{server.address[1]}"
    monkeypatch.setenv("KBCORE_URL", address)
    return address


def heavy_modules(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        input="?- parent(ann, ?x).",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stderr)
    modules = done.stderr.rpartition("modules:")[2].split()
    return [name for name in modules if name.startswith(HEAVY)]


def test_commands_for_a_server_import_neither_engine_nor_parser_nor_frameworks(url):
    for arguments in CLIENT_COMMANDS:
        assert heavy_modules(arguments) == [], arguments


def test_load_and_dump_import_the_parser_but_not_the_engine(url, tmp_path):
    file = tmp_path / "facts.kb"
    file.write_text("parent(ann, bob).\nanc(?x, ?y) :- parent(?x, ?y).\n", encoding="utf-8")
    for arguments in (["load", str(file)], ["dump"]):
        heavy = [name for name in heavy_modules(arguments) if not name.startswith(PARSING)]
        assert heavy == [], arguments


def modules_of(arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stderr.rpartition("modules:")[2].split()


def test_commands_on_a_folder_import_only_the_operations_of_their_subject(tmp_path):
    folder = ["--storage-dir", str(tmp_path / "kb")]
    modules_of(["tell", *folder, "parent(ann, bob)", "anc(?x, ?y) :- parent(?x, ?y)"])
    asked = modules_of(["ask", *folder, "anc(ann, ?x)"])
    declared = {name for name in asked if name.startswith("kbserver.routes.") and "." in name[16:]}
    assert declared == {"kbserver.routes.knowledge.reason"}
    others = ("kbserver.routes.every", "kbserver.app", "kbserver.a2a", "kbserver.mcp.calls")
    assert [name for name in asked if name.startswith((*others, "Stemmer"))] == []


def test_every_path_leads_to_the_module_that_declares_its_operation():
    import_module(EVERY)
    subjects = set()
    for (_, path), declared in operations.routes().items():
        subject = subject_of(f"{path}?limit=1")
        assert subject in (declared.respond.__module__, EVERY), path
        subjects.add(subject)
    assert set(PATHS) == {
        subject.removeprefix("kbserver.routes.") for subject in subjects if subject != EVERY
    }


def test_the_summaries_of_the_overview_are_those_of_the_commands():
    for section in cli.SECTIONS.values():
        for name, entry in section.items():
            command = cli.cli.get_command(click.Context(cli.cli), name)
            assert command is not None
            assert (name, summary_of(command)) == (name, entry.summary)


def every_command(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                yield from every_command(command.get_command(context, name), (*path, name))


def test_every_command_has_short_help_that_fits_80_columns():
    for path, _ in every_command(cli.cli):
        long, short = (
            CliRunner(env={"COLUMNS": "80"}).invoke(cli.cli, [*path, flag], prog_name="kbcore")
            for flag in ("--help", "-h")
        )
        assert (long.exit_code, long.output) == (0, short.output)
        texts = long.output.partition("Example")[0].splitlines()
        assert [line for line in texts if len(line) > 80] == []
        assert "..." not in long.output.partition("\n\n")[2], path


def test_the_version():
    assert kbcore("--version").stdout == f"kbcore {__version__}\n"
    assert kbcore("-V").stdout == f"kbcore {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        (["aks", "p(a)"], "no such command: aks. Did you mean ask?"),
        (["scope", "lst"], "no such command: lst. Did you mean list?"),
        (["predicate"], "Did you mean predicates?"),
        (["xyzzy"], "no such command: xyzzy.\n"),
        (["ask", "--lmit", "1", "p(a)"], "--limit"),
    ],
)
def test_a_misspelt_command_is_answered_with_a_similar_one(typed, suggestion):
    assert suggestion in kbcore(*typed, expect=2).stderr


def test_the_target_can_come_from_the_environment(url, monkeypatch):
    monkeypatch.setenv("KBCORE_TENANT", "from-env")
    kbcore("tell", "here(env)")
    assert kbcore("ask", "here(?x)", "--tenant", "from-env").stdout == "here(env)\n"
    assert kbcore("ask", "here(?x)", "--tenant", "other", expect=1).stdout == ""
    monkeypatch.setenv("KBCORE_DATABASE", "nowhere")
    assert "nowhere" in kbcore("ask", "here(?x)", expect=1).stderr
    monkeypatch.setenv("KBCORE_URL", "localhost:9300")
    refused = kbcore("ask", "here(?x)", expect=2).stderr
    assert refused.startswith("kbcore: not the address of a server: localhost:9300;")


def test_completion_lists_commands_with_their_summaries():
    done = CliRunner(
        env={"_KBCORE_COMPLETE": "fish_complete", "COMP_WORDS": "kbcore p", "COMP_CWORD": "p"}
    ).invoke(cli.cli, prog_name="kbcore")
    names = [line.partition(",")[2].split("\t")[0] for line in done.output.splitlines()]
    assert [name for name in names if name] == ["plugins", "predicates", "promote"]


def on_a_terminal(*arguments: str, environ: dict[str, str] | None = None) -> tuple[str, int]:
    """Run a command on a pseudo-terminal of 60 columns; return its output and exit status."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kbserver.cli", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "COLUMNS": "60", **(environ or {})},
    )
    os.close(slave)
    parts = []
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n"), process.wait()


def test_a_terminal_gets_a_table_and_colour(url):
    kbcore("tell", "lives(ann, oslo)", f"lives(bob, {'x' * 100})")
    output, status = on_a_terminal("ask", "lives(?who, ?town)")
    lines = output.splitlines()
    assert status == 0
    assert lines[0] == "\x1b[1mwho  town\x1b[0m"
    assert lines[2] == "ann  oslo"
    assert lines[3] == f"bob  {'x' * 54}…"
    assert lines[4] == "\x1b[2m2 rows\x1b[0m"
    output, status = on_a_terminal("ask", "lives(?who")
    assert status == 1
    assert "\x1b[31m\x1b[1merror[K008]:\x1b[0m" in output
    output, _ = on_a_terminal("ask", "lives(?who", environ={"NO_COLOR": "1"})
    assert output.startswith("goal:1:6: error[K008]: ")
    output, _ = on_a_terminal("ask", "--json", "lives(ann, ?town)")
    assert json.loads(output)[0]["bindings"] == {"?town": "oslo"}


def test_a_reader_that_leaves_ends_a_dump_quietly(url, tmp_path):
    file = tmp_path / "edges.csv"
    file.write_text("".join(f"a{n},b\n" for n in range(40_000)), encoding="utf-8")
    kbcore("load", "--tenant", "pipe", "--predicate", "edge", str(file))
    command = [sys.executable, "-m", "kbserver.cli", "dump", "--tenant", "pipe"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"edge(a0, b).\n"
        process.stdout.close()
        assert process.stderr.read() == b""
