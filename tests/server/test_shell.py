"""`kbcore shell`: statements from a pipe, dot commands, undo, completion, and the terminal."""

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbserver import cli
from kbserver.cli.shared.folder import open_memory
from kbserver.cli.shell.completion import candidates
from kbserver.cli.shell.dot_commands import COMMANDS, Leave, execute, run_command
from kbserver.cli.shell.entries import is_command, is_complete, pieces_of
from kbserver.cli.shell.interrupts import deferred_interrupts, interrupts
from kbserver.cli.shell.session import ShellSession
from kbserver.cli.shell.shell import run_all

ROOT = Path(__file__).parents[2]

FAMILY = "parent(ann, bob). parent(bob, cy).\nancestor(?x, ?y) :- parent(?x, ?y).\n"


def shell(text, *arguments):
    return CliRunner().invoke(
        cli.cli, ["shell", *arguments], input=text, env={"KBCORE_URL": None}, catch_exceptions=False
    )


@pytest.fixture
def session():
    target = open_memory("default", "default")
    yield ShellSession(target)
    target.close()


@pytest.fixture
def family(session):
    execute(session, FAMILY)
    return session


def rows(session, pattern):
    return session.target.send("POST", "/query", {"text": pattern, "scope": session.scope}).json()


def rule_texts(session):
    answer = session.target.send("GET", "/rules?scope=*").json()
    return [row["text"] for row in answer["rules"]]


# ---- entries ----


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("parent(ann, bob).", True),
        ("parent(ann, bob)", False),
        ("p(?x) :-\n", False),
        ("p(a). q(b)", False),
        ("p(a). % done", True),
        ("% only a comment", True),
        ("/* open", False),
        ("/* closed */", True),
        (".help", True),
        ("  .why 2", True),
        ("", True),
        ('p("a. b', False),
    ],
)
def test_an_entry_is_complete_when_its_statements_end(text, complete):
    assert is_complete(text) is complete


def test_a_dot_begins_a_command_only_before_a_word():
    assert is_command(".help")
    assert not is_command(". p(a).")
    assert not is_command("p(a).")


def test_goals_are_pieces_of_their_own_and_keep_their_places():
    text = "p(a).\nq(b). ?- p(?x).\n  r(c)."
    pieces = list(pieces_of(text))
    assert [piece.is_goal for piece in pieces] == [False, True, False]
    assert [piece.text.split() for piece in pieces] == [
        ["p(a).", "q(b)."],
        ["?-", "p(?x)."],
        ["r(c)."],
    ]
    for piece in pieces:
        lines, whole = piece.text.split("\n"), text.split("\n")
        for line, written in zip(lines, whole, strict=False):
            column = len(line) - len(line.lstrip())
            assert written[column:].startswith(line.strip())


# ---- statements from a pipe ----


def test_statements_and_goals_run_in_order():
    done = shell(f"{FAMILY}?- ancestor(ann, ?who).\n?- ancestor(zoe, ?who).\n")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "stored 2 facts",
        "stored 1 rule",
        "ancestor(ann, bob)",
        "no",
    ]


def test_a_mistake_names_its_line_and_the_rest_still_runs():
    done = shell("p(a).\n\nq(?x :- p(?x).\n?- p(?x).\n")
    assert done.exit_code == 1
    assert "input:3:2: error[K008]" in done.stderr
    assert done.stdout.splitlines() == ["stored 1 fact", "p(a)"]


def test_a_statement_without_its_dot_at_the_end_of_the_input_is_a_mistake():
    done = shell("p(a).\n?- p(?x)\n")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["stored 1 fact", "p(a)"]
    done = shell("p(a)")
    assert done.exit_code == 1
    assert "input:1:5: error" in done.stderr


def test_unknown_commands_name_the_nearest():
    done = shell(".udno\n.zzz\n")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "kbcore: there is no command .udno; did you mean .undo?",
        "kbcore: there is no command .zzz; .help lists them",
    ]


def test_warnings_have_their_lines_and_missing_predicates_are_named_together():
    done = shell("fact(a).\n\nq(?x) :- facts(?x), fact(?x), other(?x), more(?x, ?y).\n")
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "input:3:10: warning: no facts or rules for facts/1 (did you mean fact/1?)",
        (
            "input:3:51: warning: the variable ?y is used once "
            '(write _ for "any", or ?_y to keep the name)'
        ),
        "no facts or rules for other/1, more/2 yet",
    ]


def test_nothing_runs_after_quit():
    assert shell("p(a).\n.quit\np(b).\n").stdout == "stored 1 fact\n"


def test_files_are_loaded_first_and_a_broken_one_ends_the_shell(tmp_path):
    good, broken = tmp_path / "good.kb", tmp_path / "broken.kb"
    good.write_text(FAMILY, encoding="utf-8")
    broken.write_text("p(a", encoding="utf-8")
    assert shell("?- ancestor(bob, ?x).", str(good)).stdout.splitlines()[-1] == "ancestor(bob, cy)"
    done = shell("?- p(?x).", str(broken))
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{broken}:1:" in done.stderr


def test_a_storage_folder_keeps_what_is_stored(tmp_path):
    place = ["--storage-dir", str(tmp_path / "kb")]
    assert shell("p(a).\n", *place).exit_code == 0
    assert shell("?- p(?x).\n", *place).stdout == "p(a)\n"


def test_the_help_lists_every_command():
    text = shell(".help\n").stdout
    assert [line.split()[0] for line in text.splitlines() if line.startswith("  .")] == [
        f".{name}" for name in COMMANDS
    ]


# ---- commands ----


def test_why_proves_an_answer_of_the_last_goal(family, capsys):
    execute(family, "?- ancestor(?x, cy).")
    run_command(family, ".why")
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "ancestor(bob, cy)  by ancestor(?x, ?y) :- parent(?x, ?y).",
        "  parent(bob, cy)  stored",
    ]
    session = family
    assert not session.run(lambda: run_command(session, ".why 2"))
    assert "there is no answer 2" in capsys.readouterr().err


def test_commands_without_a_goal_take_the_last_one(family, capsys):
    execute(family, "?- ancestor(zoe, ?x).")
    run_command(family, ".whynot")
    assert "missing: parent(zoe, ?y)" in capsys.readouterr().out
    run_command(family, ".plan")
    assert "stratum 1" in capsys.readouterr().out
    run_command(family, ".analyze ancestor(ann, ?x)")
    assert "ms" in capsys.readouterr().out


def test_watch_prints_what_changes_do_to_a_goal(family, capsys):
    run_command(family, ".watch ancestor(ann, ?x)")
    execute(family, "parent(ann, eve).")
    run_command(family, ".forget parent(ann, bob)")
    run_command(family, ".undo")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[0] in "+-"] == [
        "+ ancestor(ann, eve)",
        "- ancestor(ann, bob)",
        "+ ancestor(ann, bob)",
    ]
    run_command(family, ".watch off")
    execute(family, "parent(ann, fay).")
    assert capsys.readouterr().out == "stored 1 fact\n"


def test_scopes_and_points_in_time(session, capsys):
    execute(session, "p(a). old(a) [validFrom=0, validUntil=1000].")
    run_command(session, ".scope draft")
    execute(session, "p(b). ?- p(?x).")
    run_command(session, ".scope")
    assert capsys.readouterr().out.splitlines()[-3:] == ["p(b)", "  base", "* draft"]
    run_command(session, ".scope base")
    execute(session, "?- p(?x). ?- old(?x).")
    assert capsys.readouterr().out.splitlines() == ["p(a)", "no"]
    run_command(session, ".asof 1970-01-01T00:00:00Z")
    execute(session, "?- p(?x).")
    assert capsys.readouterr().out == "no\n"
    assert not session.run(lambda: run_command(session, ".asof tomorrowish"))
    run_command(session, ".asof")
    assert capsys.readouterr().out == "1970-01-01T00:00:00Z\n"
    run_command(session, ".asof now")
    assert session.as_of is None


def test_a_file_that_is_loaded_again_replaces_what_it_stored(session, tmp_path, capsys):
    file = tmp_path / "rules.kb"
    file.write_text("p(a). q(?x) :- p(?x).", encoding="utf-8")
    run_command(session, f".load {file}")
    execute(session, "own(x).")
    file.write_text("p(b). r(?x) :- p(?x).", encoding="utf-8")
    run_command(session, f".load {file}")
    assert [row["args"] for row in rows(session, "p(?x)")] == [["b"]]
    assert rule_texts(session) == ["r(?x) :- p(?x)."]
    run_command(session, ".undo")
    assert rows(session, "p(?x)") == []
    assert len(rows(session, "own(?x)")) == 1


def test_a_file_that_no_longer_parses_leaves_what_it_stored(session, tmp_path):
    file = tmp_path / "rules.kb"
    file.write_text("p(a).", encoding="utf-8")
    run_command(session, f".load {file}")
    file.write_text("p(", encoding="utf-8")
    assert not session.run(lambda: run_command(session, f".load {file}"))
    assert len(rows(session, "p(?x)")) == 1


def test_what_is_saved_loads_again(family, tmp_path):
    file = tmp_path / "saved.kb"
    run_command(family, f".save {file}")
    assert shell("?- ancestor(?x, ?y).", str(file)).stdout.splitlines()[-2:] == [
        "ancestor(ann, bob)",
        "ancestor(bob, cy)",
    ]


# ---- undo ----

VALUES = ("args", "negated", "scope", "confidence", "validUntil", "metadata")


def contents(session):
    session.scope = "*"
    answer = session.target.send("GET", "/predicates?scope=*").json()["predicates"]
    facts = []
    for row in answer:
        pattern = f"{row['predicate']}({', '.join(['_'] * row['arity'])})"
        facts += rows(session, pattern) + rows(session, f"~{pattern}")
    session.scope = None
    found = sorted((row["predicate"], *(str(row[name]) for name in VALUES)) for row in facts)
    return found, sorted(rule_texts(session))


@pytest.mark.parametrize(
    "entry",
    [
        "p(a).",
        "p(b) [confidence=0.2].",
        "~p(b).",
        "p(d). p(d). q(?x) :- p(?x). @named: q(?x) :- r(?x).",
        "p(b) [scope=draft].",
        '@phrase r/1 "{0} is r".',
        "named(?x) :- p(?x). ?- named(?x).",
        ".forget p(?x)",
        ".forget ~s(?x)",
        ".forget @known",
    ],
)
def test_undo_restores_facts_and_rules(session, entry):
    execute(
        session,
        'p(b) [confidence=0.5, metadata=\'{"from": "x"}\']. p(c). ~p(c). ~s(a). r(a) [validUntil=99999999999999]. '
        "@known: t(?x) :- p(?x).",
    )
    before = contents(session)
    if entry.startswith("."):
        run_command(session, entry)
    else:
        execute(session, entry)
    assert contents(session) != before or entry.startswith("@phrase")
    run_command(session, ".undo")
    assert contents(session) == before


def test_undo_restores_what_stood_before_several_changes_of_an_entry(session):
    execute(session, "p(a) [confidence=0.3].")
    before = contents(session)
    execute(session, "p(a) [confidence=0.5]. ?- p(?x). p(a) [confidence=0.9]. q(b).")
    run_command(session, ".undo")
    assert contents(session) == before


def test_an_entry_that_fails_halfway_can_be_undone(session):
    assert not session.run(lambda: execute(session, "p(a). ?- p(?x). q(?x) :- p(."))
    assert len(rows(session, "p(?x)")) == 1
    run_command(session, ".undo")
    assert rows(session, "p(?x)") == []


def test_nothing_to_undo_is_said(session, capsys):
    assert not session.run(lambda: run_command(session, ".undo"))
    assert capsys.readouterr().err == "kbcore: there is nothing to undo\n"


# ---- completion ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("?- par", ["parent("]),
        ("?- ", ["ancestor(", "parent("]),
        ("?- parent(", ["ann", "bob"]),
        ("?- parent(ann, ", ["bob", "cy"]),
        ("?- parent(ann, c", ["cy"]),
        ("r(?who) :- parent(?w", ["?who"]),
        ("r(?x) :- parent(?x, ?y), anc", ["ancestor("]),
        ("p(a). anc", ["ancestor("]),
        ("?- parent(ann, bob) ", []),
        (".wh", [".why", ".whynot"]),
        (".why anc", ["ancestor("]),
        (".scope ", ["base", "*"]),
        ("no", ["not"]),
        ("?- missing(", []),
    ],
)
def test_completion(family, text, expected):
    found = candidates(family, text)
    assert [each.text for each in found] == expected


def test_file_names_are_completed(family, tmp_path):
    (tmp_path / "rules.kb").touch()
    (tmp_path / "folder").mkdir()
    found = candidates(family, f".load {tmp_path}/")
    assert [each.text for each in found] == ["folder/", "rules.kb"]
    assert candidates(family, f".load {tmp_path}/none/") == []


# ---- interrupts ----


def test_ctrl_c_waits_for_a_write_and_ends_a_goal():
    steps = []

    def write():
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("the write ends")

    def ask():
        with deferred_interrupts(), interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("never")

    for each in (write, ask):
        with pytest.raises(KeyboardInterrupt):
            each()
    assert steps == ["the write ends"]


def test_an_interrupted_entry_leaves_the_session_usable(family, capsys):
    assert not family.run(lambda: signal.raise_signal(signal.SIGINT))
    assert capsys.readouterr().err == "kbcore: interrupted\n"
    assert family.run(lambda: execute(family, "?- parent(ann, ?x)."))


# ---- the terminal ----


@pytest.fixture
def typed(family):
    prompt_toolkit = pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    from kbserver.cli.shell.terminal import entries, history_of

    assert prompt_toolkit.__version__

    def run(keys, file=None):
        with create_pipe_input() as source, create_app_session(source, DummyOutput()):
            source.send_text(keys)
            return list(entries(family, history_of(file), color=False))

    return run


CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


def test_an_entry_goes_on_until_its_dot(typed):
    assert typed(f"p(?x) :-\nq(?x).\n.help\n{CTRL_D}") == ["p(?x) :-\nq(?x).", ".help"]


def test_ctrl_c_discards_the_line(typed):
    assert typed(f"p(a{CTRL_C}p(b).\n{CTRL_D}") == ["p(b)."]


def test_completions_have_their_remarks(family):
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from kbserver.cli.shell.terminal import KbCompleter

    found = list(KbCompleter(family).get_completions(Document("?- anc"), CompleteEvent()))
    assert [(each.text, each.start_position) for each in found] == [("ancestor(", -3)]
    assert found[0].display_meta_text == "ancestor/2"


def test_the_history_is_kept_in_a_private_file(typed, tmp_path):
    file = tmp_path / "folder" / "history"
    assert typed(f"p(a).\n{CTRL_D}", file) == ["p(a)."]
    assert file.stat().st_mode & 0o077 == 0
    assert typed(f"{UP}\n{CTRL_D}", file) == ["p(a)."]


def test_long_answers_go_to_the_pager(family, monkeypatch, capsys):
    pytest.importorskip("prompt_toolkit")
    from kbserver.cli.shell import terminal

    pages = []
    monkeypatch.setattr("click.echo_via_pager", lambda lines: pages.append("".join(lines)))
    family.show = terminal.show_paged
    execute(family, "".join(f"n({i})." for i in range(100)) + "?- n(?x). ?- parent(ann, ?x).")
    assert len(pages) == 1
    assert pages[0].endswith("100 rows\n")
    assert "parent(ann, bob)" in capsys.readouterr().out


def test_leaving_is_an_exception_of_its_own(family):
    with pytest.raises(Leave):
        run_command(family, ".quit")
    run_all(family, (), iter([".quit", ".zzz"]))
    assert not family.failed


# ---- documentation ----


def test_the_session_of_the_page_runs_as_shown():
    page = (ROOT / "docs/how-to/use-the-shell.md").read_text(encoding="utf-8")
    (transcript,) = re.findall(r"```kbshell\n(.*?)```", page, re.DOTALL)
    typed, shown = [], []
    for line in transcript.splitlines():
        (typed if line.startswith(("kb> ", "... ")) else shown).append(line)
    done = shell("".join(f"{line[4:]}\n" for line in typed))
    assert done.exit_code == 0
    assert done.stdout.splitlines() == shown


def test_the_page_names_every_command():
    page = (ROOT / "docs/how-to/use-the-shell.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`\.([a-z]+)", page)) - {"kb"} == set(COMMANDS)
