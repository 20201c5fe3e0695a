"""The memory tool of Anthropic over episodes: texts of results, paths, long files, concurrent
edits, and what a search finds.
"""

import os
import threading
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.canned_model import CannedModel

from kbcore_client import connect
from kbcore_client.adapters import anthropic_memory
from kbcore_client.adapters.anthropic_memory import KBMemoryTool

NOTES = "/memories/notes.md"
HEADING = (
    "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and"
    " node_modules"
)


@pytest.fixture
def tool(kb):
    return KBMemoryTool(kb)


@pytest.fixture
def own():
    with connect("memory:") as kb:
        yield KBMemoryTool(kb), kb


def run(tool, command, **values):
    return tool.handle({"command": command, **values})


def content(tool, path):
    """The text of a file, from its numbered lines."""
    lines = run(tool, "view", path=path).split("\n")[1:]
    return "\n".join(line.split("\t", 1)[1] for line in lines)


def test_commands_have_the_documented_results(tool):
    assert run(tool, "view", path="/memories").splitlines() == [
        f"{HEADING}:",
        "0B\t/memories",
    ]
    text = "Likes tea.\nLives in Rome.\n"
    assert run(tool, "create", path=NOTES, file_text=text) == (
        "File created successfully at: /memories/notes.md"
    )
    assert run(tool, "view", path=NOTES) == (
        "Here's the content of /memories/notes.md with line numbers:\n"
        "     1\tLikes tea.\n     2\tLives in Rome."
    )
    assert run(tool, "view", path=NOTES, view_range=[2, -1]).endswith(":\n     2\tLives in Rome.")
    assert run(tool, "view", path=NOTES, view_range=[1, 1]).endswith(":\n     1\tLikes tea.")
    edited = run(tool, "str_replace", path=NOTES, old_str="Rome", new_str="Berlin")
    assert edited == (
        "The memory file has been edited.\n     1\tLikes tea.\n     2\tLives in Berlin."
    )
    assert run(tool, "insert", path=NOTES, insert_line=1, insert_text="Is tall.\n") == (
        "The file /memories/notes.md has been edited."
    )
    run(tool, "insert", path=NOTES, insert_line=0, insert_text="# Mia")
    run(tool, "insert", path=NOTES, insert_line=4, insert_text="The end.")
    assert content(tool, NOTES) == "# Mia\nLikes tea.\nIs tall.\nLives in Berlin.\nThe end."
    moved = run(tool, "rename", old_path=NOTES, new_path="/memories/people/mia.md")
    assert moved == "Successfully renamed /memories/notes.md to /memories/people/mia.md"
    assert run(tool, "delete", path="/memories/people") == "Successfully deleted /memories/people"
    assert "notes" not in run(tool, "view", path="/memories")


def test_errors_have_the_documented_texts(tool):
    run(tool, "create", path=NOTES, file_text="one\ntwo\none two\n")
    run(tool, "create", path="/memories/a/b.md", file_text="b")
    nothing = "/memories/x"
    for command, expected in {
        "view": "The path /memories/x does not exist. Please provide a valid path.",
        "str_replace": "Error: The path /memories/x does not exist. Please provide a valid path.",
        "insert": "Error: The path /memories/x does not exist",
        "delete": "Error: The path /memories/x does not exist",
    }.items():
        more = {
            "str_replace": {"old_str": "a", "new_str": "b"},
            "insert": {"insert_line": 0, "insert_text": "a"},
        }.get(command, {})
        assert run(tool, command, path=nothing, **more) == expected
        if more:  # a directory is no file
            assert "does not exist" in run(tool, command, path="/memories/a", **more)
    assert run(tool, "create", path=NOTES, file_text="new") == (
        "Error: File /memories/notes.md already exists"
    )
    assert "already exists" in run(tool, "create", path="/memories/a", file_text="new")
    assert run(tool, "create", path=f"{NOTES}/x", file_text="new") == (
        "Error: /memories/notes.md is a file, not a directory"
    )
    assert run(tool, "rename", old_path=nothing, new_path="/memories/y") == (
        "Error: The path /memories/x does not exist"
    )
    for target in ("/memories/a/b.md", "/memories/a"):
        assert run(tool, "rename", old_path=NOTES, new_path=target) == (
            f"Error: The destination {target} already exists"
        )
    assert "is inside" in run(tool, "rename", old_path="/memories/a", new_path="/memories/a/c/d")
    assert run(tool, "str_replace", path=NOTES, old_str="three", new_str="") == (
        "No replacement was performed, old_str `three` did not appear verbatim in"
        " /memories/notes.md."
    )
    assert run(tool, "str_replace", path=NOTES, old_str="one", new_str="1") == (
        "No replacement was performed. Multiple occurrences of old_str `one` in lines: 1, 3. Please"
        " ensure it is unique"
    )
    assert "must not be empty" in run(tool, "str_replace", path=NOTES, old_str="", new_str="1")
    assert run(tool, "insert", path=NOTES, insert_line=4, insert_text="x") == (
        "Error: Invalid `insert_line` parameter: 4. It should be within the range of lines of the"
        " file: [0, 3]"
    )
    for command, values in (
        ("delete", {"path": "/memories/"}),
        ("rename", {"old_path": "/memories", "new_path": "/memories/z"}),
        ("view", {"path": NOTES, "view_range": [1]}),
        ("view", {"path": NOTES, "view_range": [True, 2]}),
        ("view", {}),
        ("view", {"path": 7}),
        ("chmod", {"path": NOTES}),
        ("create", {"path": "/memories/nul", "file_text": "a\0b"}),
        ("create", {"path": "/memories/half", "file_text": "a\ud800b"}),
    ):
        assert run(tool, command, **values).startswith("Error: "), command
    assert content(tool, NOTES) == "one\ntwo\none two"
    assert content(tool, "/memories/a/b.md") == "b"
    assert len(run(tool, "view", path="/memories").splitlines()) == 5


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "/memoriesx/a",
        "memories/a",
        "/memories/../etc/passwd",
        "/memories/a/../../b",
        "/memories/..",
        "/memories/./a",
        "/memories//a",
        "/memories/..\\a",
        "/memories/%2e%2e/a",
        "/memories/%2E%2e%2Fa",
        "/memories/a%5Cb",
        "/memories/a\nb",
        "/memories/a\0b",
        "/memories/" + "a" * 300,
    ],
)
def test_paths_outside_are_refused(own, path):
    tool, kb = own
    run(tool, "create", path=NOTES, file_text="secret")
    for command, values in (
        ("view", {"path": path}),
        ("create", {"path": path, "file_text": "x"}),
        ("str_replace", {"path": path, "old_str": "s", "new_str": "x"}),
        ("insert", {"path": path, "insert_line": 0, "insert_text": "x"}),
        ("delete", {"path": path}),
        ("rename", {"old_path": path, "new_path": "/memories/z"}),
        ("rename", {"old_path": NOTES, "new_path": path}),
    ):
        assert run(tool, command, **values).startswith("Error: "), command
    assert kb.count("memory_file") == 1
    assert content(tool, NOTES) == "secret"


def test_directories_are_listed_two_levels_deep_with_sizes(own):
    tool, _ = own
    for path, size in (
        ("/memories/a.md", 100),
        ("/memories/d/b.md", 1536),
        ("/memories/d/e/c.md", 1024),
        ("/memories/.hidden", 10),
        ("/memories/node_modules/x", 10),
        ("/memories/empty", 0),
    ):
        run(tool, "create", path=path, file_text="x" * size)
    assert run(tool, "view", path="/memories").splitlines()[1:] == [
        "2.6K\t/memories",
        "100B\t/memories/a.md",
        "2.5K\t/memories/d",
        "1.5K\t/memories/d/b.md",
        "1K\t/memories/d/e",
        "0B\t/memories/empty",
    ]
    assert run(tool, "view", path="/memories/d/").splitlines()[1:] == [
        "2.5K\t/memories/d",
        "1.5K\t/memories/d/b.md",
        "1K\t/memories/d/e",
        "1K\t/memories/d/e/c.md",
    ]
    assert run(tool, "rename", old_path="/memories/d", new_path="/memories/f").startswith("Succ")
    assert content(tool, "/memories/f/e/c.md") == "x" * 1024
    assert tool.clear_all_memory() == "All memory cleared"
    assert len(run(tool, "view", path="/memories").splitlines()) == 2


def test_a_search_finds_what_files_say(kb, tool):
    run(tool, "create", path=NOTES, file_text="# Mia\n\nShe lives in Hamburg.\n?so what\n")
    memory = kb.memory()
    found = memory.search("Who lives in Hamburg?")
    assert "She lives in Hamburg." in found.text
    assert NOTES in found.text
    assert found.sources[0]["speaker"] == NOTES
    assert "memory_file" not in {entry.predicate for entry in found.entries}
    run(tool, "str_replace", path=NOTES, old_str="Hamburg", new_str="Berlin")
    assert memory.search("Hamburg").text == ""
    assert "She lives in Berlin." in memory.search("Who lives in Berlin?").text
    run(tool, "rename", old_path=NOTES, new_path="/memories/mia.md")
    assert "/memories/mia.md" in memory.search("Who lives in Berlin?").text
    assert memory.facts().total == 0
    run(tool, "delete", path="/memories/mia.md")
    assert memory.search("Berlin").text == ""
    assert (kb.count("memory_file"), kb.count("said")) == (0, 0)


def test_a_file_is_purged_with_its_earlier_texts(own):
    tool, kb = own
    run(tool, "create", path=NOTES, file_text="The password is swordfish.")
    run(tool, "str_replace", path=NOTES, old_str="swordfish", new_str="secret")
    assert kb.episodes(speaker=NOTES).total == 2
    kb.purge(speaker=NOTES)
    assert kb.episodes().total == 0
    assert run(tool, "view", path=NOTES).startswith("The path")


def test_long_files(kb, tool):
    lines = [f"{number}: the tulip bulbs of row {number} are blue" for number in range(4000)]
    text = "\n".join(lines)
    assert len(text) > 2 * 65_536
    run(tool, "create", path=NOTES, file_text=text)
    shown = run(tool, "view", path=NOTES)
    assert anthropic_memory.MAX_VIEW_CHARS <= len(shown) < anthropic_memory.MAX_VIEW_CHARS + 200
    assert shown.splitlines()[-1].endswith("of 4000: use view_range)")
    assert [line.split("\t")[1] for line in shown.splitlines()[1:1001]] == lines[:1000]
    rest = run(tool, "view", path=NOTES, view_range=[3999, -1]).split("\n")[1:]
    assert rest == [f"{number + 1:6d}\t{lines[number]}" for number in (3998, 3999)]
    run(tool, "str_replace", path=NOTES, old_str="row 3210 are blue", new_str="row 3210 are red")
    (changed,) = run(tool, "view", path=NOTES, view_range=[3211, 3211]).split("\n")[1:]
    assert changed.endswith("row 3210 are red")
    assert "row 3210 are red" in kb.memory().search("Which bulbs of row 3210 are red?").text
    assert len(kb.query("memory_file(?p, ?n, ?e, ?b, ?t)")) > 8


def test_sizes_are_bounded(own):
    tool, kb = own
    most = anthropic_memory.MAX_FILE_CHARS
    refused = run(tool, "create", path=NOTES, file_text="x" * (most + 1))
    assert refused.startswith("Error: The file /memories/notes.md would have 500001 characters")
    assert (kb.count("memory_file"), kb.episodes().total) == (0, 0)
    run(tool, "create", path=NOTES, file_text="x " * (most // 2))
    full = run(tool, "insert", path=NOTES, insert_line=0, insert_text="y")
    assert "a file has at most 500000" in full
    many = run(tool, "str_replace", path=NOTES, old_str="x", new_str="y")
    assert many.endswith("in lines: 1. Please ensure it is unique")
    long = run(tool, "view", path=NOTES)
    assert long.splitlines()[-1] == "(cut in line 1 of 1: use view_range)"


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


@pytest.fixture(scope="module")
def shared():
    with connect("memory:") as kb:
        yield KBMemoryTool(kb)


@settings(max_examples=40)
@given(texts=st.lists(TEXTS, max_size=5), part=st.integers(1, 30), passage=st.integers(1, 20))
def test_a_file_has_the_text_that_was_written(shared, texts, part, passage):
    """It has any characters and is cut anywhere; an edit is what it would be in a string."""
    text = "\n".join(texts)
    shared.clear_all_memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anthropic_memory, "PART_CHARS", part)
        patch.setattr(anthropic_memory, "PASSAGE_CHARS", passage)
        assert run(shared, "create", path=NOTES, file_text=text).startswith("File created")
        assert content(shared, NOTES) == text.removesuffix("\n")
        if text and text.find(text[:7]) == text.rfind(text[:7]):
            edit = {"old_str": text[:7], "new_str": "?new (text)\n"}
            assert run(shared, "str_replace", path=NOTES, **edit).startswith("The memory file")
            assert content(shared, NOTES) == ("?new (text)\n" + text[7:]).removesuffix("\n")


# ---- concurrent edits ----


def together(*actions):
    """Run actions in threads that begin at the same time; return their results."""
    results = [None] * len(actions)
    barrier = threading.Barrier(len(actions))

    def act(index):
        barrier.wait()
        results[index] = actions[index]()

    threads = [threading.Thread(target=act, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_two_edits_at_the_same_time_one_is_refused(tool, kb):
    """The second edit is carried out inside the first one: between its reading and its end."""
    run(tool, "create", path=NOTES, file_text="a\nb\n")
    first = KBMemoryTool(kb)
    store, others = first._store, []

    def interrupted(*args):
        if not others:
            edit = {"path": NOTES, "old_str": "b", "new_str": "B"}
            others.append(run(tool, "str_replace", **edit))
        store(*args)

    first._store = interrupted
    refused = run(first, "str_replace", path=NOTES, old_str="a", new_str="A")
    assert refused == (
        "Error: The path /memories/notes.md was changed by another command at the same time. View"
        " it and try again."
    )
    assert others[0].startswith("The memory file has been edited.")
    assert content(tool, NOTES) == "a\nB"


def test_an_edit_of_another_file_at_the_same_time_is_no_conflict(tool, kb):
    run(tool, "create", path=NOTES, file_text="a\n")
    first = KBMemoryTool(kb)
    store, others = first._store, []

    def interrupted(*args):
        if not others:
            others.append(run(tool, "create", path="/memories/other", file_text="o"))
        store(*args)

    first._store = interrupted
    run(first, "str_replace", path=NOTES, old_str="a", new_str="A")
    assert (content(tool, NOTES), content(tool, "/memories/other")) == ("A", "o")


def test_one_of_many_creates_wins(tool, kb):
    texts = [f"text {number}" for number in range(4)]
    results = together(
        *(lambda text=text: run(tool, "create", path=NOTES, file_text=text) for text in texts)
    )
    (winner,) = [
        text for text, result in zip(texts, results, strict=True) if result.startswith("File")
    ]
    assert content(tool, NOTES) == winner
    assert kb.count("said") == 1


# ---- the package of Anthropic ----

needs_package = pytest.mark.skipif(
    find_spec("anthropic") is None and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="anthropic is not installed",
)


def test_unknown_arguments_are_named(own):
    tool, _ = own
    result = run(tool, "create", path=NOTES, file_text="a", mode="w", force=True)
    assert result == (
        "File created successfully at: /memories/notes.md\nIgnored arguments: mode, force"
    )


@needs_package
def test_the_tool_is_one_of_the_package(own):
    from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError

    tool, _ = own
    assert isinstance(tool, BetaAbstractMemoryTool)
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}
    tool.call({"command": "create", "path": NOTES, "file_text": "Likes tea.\n"})
    tool.call({"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "Is tall."})
    tool.call({"command": "str_replace", "path": NOTES, "old_str": "tea", "new_str": "rum"})
    tool.call({"command": "rename", "old_path": NOTES, "new_path": "/memories/mia"})
    assert tool.call({"command": "view", "path": "/memories/mia", "view_range": [1, 1]}) == (
        "Here's the content of /memories/mia with line numbers:\n     1\tLikes rum."
    )
    tool.call({"command": "delete", "path": "/memories/mia"})
    with pytest.raises(ToolError, match="The path /memories/mia does not exist"):
        tool.call({"command": "view", "path": "/memories/mia"})


@needs_package
def test_a_runner_of_the_package_uses_the_tool(own):
    import anthropic

    tool, kb = own
    command = {"command": "create", "path": NOTES, "file_text": "Mia likes tea."}
    block = {"type": "tool_use", "id": "t1", "name": "memory", "input": command}
    answer = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    with CannedModel() as model:
        model.answer(
            {**answer, "content": [block], "stop_reason": "tool_use"},
            {**answer, "content": [{"type": "text", "text": "Noted."}], "stop_reason": "end_turn"},
        )
        with anthropic.Anthropic(base_url=model.url, api_key="key", max_retries=0) as client:
            runner = client.beta.messages.tool_runner(
                model="m",
                max_tokens=100,
                tools=[tool],
                messages=[{"role": "user", "content": "I like tea."}],
            )
            assert runner.until_done().content[0].text == "Noted."
    first, second = model.seen
    assert first["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    result = second["messages"][-1]["content"][0]
    assert result["content"] == "File created successfully at: /memories/notes.md"
    assert "Mia likes tea." in kb.memory().search("Who likes tea?").text
