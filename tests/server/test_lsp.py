"""`kbcore lsp`: a real process, driven over its standard input and output as an editor does."""

import asyncio
import os
import re
import shutil
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("pygls") is None:
    if os.environ.get("KB_TEST_EXTRAS") == "required":
        raise ModuleNotFoundError("these tests need pygls")
    pytest.skip("pygls is not installed", allow_module_level=True)

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).parents[2]
SECONDS = 30


class Editor:
    """An editor with a language server; `texts` are its open files by URI."""

    def __init__(self, folder):
        self.folder = folder
        self.client = LanguageClient("tests", "1")
        self.published = asyncio.Queue()
        self.messages = asyncio.Queue()
        self.texts = {}
        self.versions = {}

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(ls, params):
            self.published.put_nowait(params)

        @self.client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def show(ls, params):
            self.messages.put_nowait(params)

    def uri(self, name):
        return (self.folder / name).as_uri()

    async def open(self, name, text):
        """Open a file with a text that need not be stored, and return its diagnostics."""
        uri = self.uri(name)
        self.texts[uri], self.versions[uri] = text, 1
        item = lsp.TextDocumentItem(uri, "kb", 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.diagnostics(name)

    async def change(self, name, text):
        """Replace the text of a file, and return its diagnostics."""
        uri = self.uri(name)
        self.texts[uri] = text
        self.versions[uri] += 1
        document = lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))
        return await self.diagnostics(name)

    async def diagnostics(self, name):
        """Wait for the next diagnostics of the present version of a file."""
        uri = self.uri(name)
        while True:
            found = await asyncio.wait_for(self.published.get(), SECONDS)
            if found.uri == uri and found.version == self.versions.get(uri):
                return list(found.diagnostics)

    def position(self, name, mark):
        """Return the position of the `|` in a part of a text, written without it in the file."""
        text = self.texts[self.uri(name)]
        offset = text.index(mark.replace("|", "")) + mark.index("|")
        line = text.count("\n", 0, offset)
        before = text[text.rfind("\n", 0, offset) + 1 : offset]
        return lsp.Position(line, len(before.encode("utf-16-le")) // 2)

    def at(self, name, mark):
        document = lsp.TextDocumentIdentifier(self.uri(name))
        return {"text_document": document, "position": self.position(name, mark)}

    def shown(self, uri, where):
        """Return the text of a range of an open file."""
        lines = self.texts[uri].split("\n")
        assert where.start.line == where.end.line
        units = lines[where.start.line].encode("utf-16-le")
        return units[2 * where.start.character : 2 * where.end.character].decode("utf-16-le")

    def applied(self, uri, edits):
        """Return the text of a file after edits."""
        lines = self.texts[uri].split("\n")
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)

        def offset(position):
            line = lines[position.line].encode("utf-16-le") if position.line < len(lines) else b""
            return starts[position.line] + len(line[: 2 * position.character].decode("utf-16-le"))

        text = self.texts[uri]
        for edit in sorted(edits, key=lambda each: offset(each.range.start), reverse=True):
            text = text[: offset(edit.range.start)] + edit.new_text + text[offset(edit.range.end) :]
        return text


@asynccontextmanager
async def editor(folder, *, arguments=("-m", "kbserver.cli", "lsp"), **capabilities):
    it = Editor(folder)
    await it.client.start_io(sys.executable, *arguments)
    try:
        params = lsp.InitializeParams(capabilities=lsp.ClientCapabilities(**capabilities))
        it.initialized = await asyncio.wait_for(it.client.initialize_async(params), SECONDS)
        it.client.initialized(lsp.InitializedParams())
        yield it
    finally:
        await asyncio.wait_for(it.client.shutdown_async(None), SECONDS)
        it.client.exit(None)
        await asyncio.wait_for(it.client.stop(), SECONDS)


def session(folder, steps, **more):
    """Run steps, a function of an editor, and return their result."""

    async def run():
        async with editor(folder, **more) as it:
            return await asyncio.wait_for(steps(it), 2 * SECONDS)

    return asyncio.run(run())


def test_predicates_of_plugins_are_known(tmp_path):
    text = "item(pen).\ncheap(?x) :- item(?x), price(?x, ?p), ?p < 10.\nall(?x) :- price(?x, _).\n"

    async def steps(it):
        found = [(each.code, each.message) for each in await it.open("a.kb", text)]
        completed = await it.client.text_document_completion_async(
            lsp.CompletionParams(**it.at("a.kb", "item(?x), pr|ice"))
        )
        items = completed if isinstance(completed, list) else completed.items
        return found, {each.label for each in items}

    found, labels = session(tmp_path, steps)
    assert ("K101", "no facts or rules for price/2") in found
    lsp_command = ("-m", "kbserver.cli", "lsp", "--external", "price(in, out)")
    found, labels = session(tmp_path, steps, arguments=lsp_command)
    assert found == []
    assert "price" in labels


RULES = """% Who descends from whom.
% Direct or not.
@direct: ancestor(?x, ?y) :- parent(?x, ?y).
@further: ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
stranger(?x, ?y) :- parent(?x, _), parent(_, ?y), not ancestor(?x, ?y).
"""
FACTS = """parent(ann, bob).
parent(bob, "Cy D.").
"""
TESTS = """test "direct" {
    parent(a, b).
    ?- ancestor(a, ?x) = [b].
    ?- ancestor(a, b) because @direct.
}
test "wrong" { parent(a, b). ?- ancestor(a, ?x) = [c]. }
?- ancestor(ann, ?who).
?- ancestor(zoe, ?who).
"""


# ---- diagnostics ----


def test_mistakes_are_reported_while_typing(tmp_path):
    async def steps(it):
        first = await it.open("a.kb", 'p("😀", ?x).\nq(?x) :- r(?x), not s(?y).\n')
        last = await it.change("a.kb", "p(a).\n")
        return first, last, it.uri("a.kb")

    first, last, _ = session(tmp_path, steps)
    assert {(each.severity.name, each.source) for each in first} == {("Error", "kbcore")}
    assert len(first) == 2
    unsafe = next(each for each in first if each.code == "K012")
    assert unsafe.message.endswith('hint: write _ for "any"')
    assert (unsafe.range.start.line, unsafe.range.start.character) == (1, 22)
    assert last == []


def test_columns_count_the_units_of_the_editor(tmp_path):
    text = 'p("😀é", b) :- q(?x).\n'
    column = text.index("?x")

    async def steps(it):
        (found, *_) = [each for each in await it.open("a.kb", text) if each.code == "K104"]
        return found.range.start.character, it.initialized.capabilities.position_encoding

    assert session(tmp_path, steps) == (column + 1, "utf-16")
    general = lsp.GeneralClientCapabilities(
        position_encodings=[lsp.PositionEncodingKind.Utf8, lsp.PositionEncodingKind.Utf16]
    )
    chosen, encoding = session(tmp_path, steps, general=general)[::-1], None
    encoding, at = chosen[0], chosen[1]
    assert at == {"utf-8": len(text[:column].encode()), "utf-16": column + 1}[encoding]


def test_the_files_of_a_folder_belong_together(tmp_path):
    (tmp_path / "facts.kb").write_text(FACTS, encoding="utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "more.kb").write_text("unrelated(a).", encoding="utf-8")

    async def steps(it):
        known = await it.open("rules.kb", RULES)
        goal = await it.change(
            "rules.kb", RULES + "?- unrelated(?x), parant(?x, ?x), stranger(?x, _).\n"
        )
        return known, goal

    known, goal = session(tmp_path, steps)
    assert known == []
    assert [each.message for each in goal] == [
        "no facts or rules for unrelated/1",
        "no facts or rules for parant/2\nhint: did you mean parent/2?",
    ]


def test_a_change_in_one_file_checks_the_others(tmp_path):
    async def steps(it):
        await it.open("facts.kb", FACTS)
        assert await it.open("goals.kb", "?- parent(?x, ?y).\n") == []
        await it.change("facts.kb", "parents(a, b).\n")
        found = await it.diagnostics("goals.kb")
        document = lsp.TextDocumentIdentifier(it.uri("facts.kb"))
        it.client.text_document_did_close(lsp.DidCloseTextDocumentParams(document))
        return found

    assert "did you mean parents/2?" in session(tmp_path, steps)[0].message


# ---- names ----


def test_definitions_and_references(tmp_path):
    async def steps(it):
        await it.open("facts.kb", FACTS)
        await it.open("rules.kb", RULES)
        await it.open("tests.kb", TESTS)

        async def defined(name, mark):
            params = lsp.DefinitionParams(**it.at(name, mark))
            found = await it.client.text_document_definition_async(params)
            return [(Path(each.uri).name, each.range.start.line) for each in found]

        async def used(name, mark, *, declaration=True):
            context = lsp.ReferenceContext(include_declaration=declaration)
            params = lsp.ReferenceParams(context=context, **it.at(name, mark))
            found = await it.client.text_document_references_async(params)
            return sorted((Path(each.uri).name, each.range.start.line) for each in found)

        assert await defined("tests.kb", "ances|tor(ann") == [("rules.kb", 2), ("rules.kb", 3)]
        assert await defined("rules.kb", ":- |parent(?x, ?y), anc") == [
            ("facts.kb", 0),
            ("facts.kb", 1),
            ("tests.kb", 1),
            ("tests.kb", 5),
        ]
        assert await defined("rules.kb", "ancestor(?y, |?z)") == [("rules.kb", 3)]
        assert await defined("tests.kb", "@dir|ect") == [("rules.kb", 2)]
        assert await defined("rules.kb", "% Wh|o") == []
        assert await used("rules.kb", "strange|r") == [("rules.kb", 4)]
        assert await used("rules.kb", "@|direct") == [("rules.kb", 2), ("tests.kb", 3)]
        assert await used("rules.kb", "not anc|estor", declaration=False) == [
            ("rules.kb", 3),
            ("rules.kb", 4),
            ("tests.kb", 2),
            ("tests.kb", 3),
            ("tests.kb", 5),
            ("tests.kb", 6),
            ("tests.kb", 7),
        ]

    session(tmp_path, steps)


def test_declarations_are_renamed_with_their_predicates(tmp_path):
    text = (
        "@key owns(?car, _).\n@disjoint owns/2, rents/2.\n@disjoint cat, dog [scope=dog].\n"
        "@total dog(?x), owns(?x, _).\nowns(car1, dog). dog(rex).\n"
    )

    async def steps(it):
        await it.open("cars.kb", text)

        async def renamed(mark, new):
            params = lsp.RenameParams(new_name=new, **it.at("cars.kb", mark))
            edit = await it.client.text_document_rename_async(params)
            return it.applied(it.uri("cars.kb"), edit.changes[it.uri("cars.kb")])

        assert await renamed("ow|ns(car1", "has") == text.replace("owns", "has")
        words = text.replace("cat, dog ", "cat, hound ").replace("dog(", "hound(")
        assert await renamed("do|g(rex", "hound") == words

    session(tmp_path, steps)


def test_names_are_renamed_in_all_files(tmp_path):
    async def steps(it):
        await it.open("rules.kb", RULES)
        await it.open("tests.kb", TESTS)

        async def renamed(name, mark, new):
            params = lsp.RenameParams(new_name=new, **it.at(name, mark))
            edit = await it.client.text_document_rename_async(params)
            return {
                Path(uri).name: it.applied(uri, edits)
                for uri, edits in (edit.changes or {}).items()
            }

        assert await renamed("tests.kb", "ances|tor(ann", "is descended from") == {
            "rules.kb": RULES.replace("ancestor(", '"is descended from"('),
            "tests.kb": TESTS.replace("ancestor(", '"is descended from"('),
        }
        found = await renamed("rules.kb", "ancestor(?y, |?z)", "last")
        assert found == {"rules.kb": RULES.replace("?z", "?last")}
        found = await renamed("rules.kb", "@dir|ect", "first")
        assert found["tests.kb"] == TESTS.replace("@direct", "@first")
        place = await it.client.text_document_prepare_rename_async(
            lsp.PrepareRenameParams(**it.at("rules.kb", "strang|er"))
        )
        assert it.shown(it.uri("rules.kb"), place) == "stranger"
        for mark, new, problem in (
            ("ancestor(?y, |?z)", "?y", "has a variable"),
            ("ancestor(?y, |?z)", "a b", "letters"),
            ("@dir|ect", "further", "is called"),
            ("% Wh|o", "x", "no name"),
        ):
            with pytest.raises(JsonRpcException, match=problem):
                await renamed("rules.kb", mark, new)

    session(tmp_path, steps)


def test_hover_describes_predicates_and_rules(tmp_path):
    async def steps(it):
        await it.open("facts.kb", FACTS)
        await it.open("rules.kb", RULES)
        await it.open("tests.kb", TESTS)

        async def hover(name, mark):
            found = await it.client.text_document_hover_async(lsp.HoverParams(**it.at(name, mark)))
            return None if found is None else found.contents.value

        assert await hover("tests.kb", "ances|tor(ann") == (
            "**ancestor/2**: 0 facts, 2 rules, stratum 1\n\n"
            "Who descends from whom.\nDirect or not.\n\n"
            "```kb\n@direct: ancestor(?x, ?y) :- parent(?x, ?y).\n"
            "@further: ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).\n```\n\n"
            "Plan, with all arguments free:\n\n"
            "1. `scan parent(?x, ?y)`\n"
            "2. `scan parent(?x, ?y), then probe ancestor(?y, ?z)`"
        )
        assert await hover("rules.kb", ":- par|ent") == (
            "**parent/2**: 4 facts, 0 rules (2 facts in tests)"
        )
        assert "stratum 2" in await hover("rules.kb", "strange|r")
        assert "ancestor(?x, ?y) :- parent" in await hover("tests.kb", "@dir|ect")
        assert await hover("rules.kb", "(|?x") is None

    session(tmp_path, steps)


# ---- completion, fixes, layout ----


def test_completion(tmp_path):
    async def steps(it):
        await it.open("facts.kb", FACTS)
        await it.open("rules.kb", RULES)

        async def complete(text):
            await it.change("rules.kb", RULES + text.replace("|", ""))
            params = lsp.CompletionParams(**it.at("rules.kb", text))
            found = await it.client.text_document_completion_async(params)
            uri = it.uri("rules.kb")
            return {each.label: it.applied(uri, [each.text_edit]) for each in found}

        found = await complete("q(?x) :- anc|")
        assert list(found) == ["ancestor", "parent", "q", "stranger", "not"]
        assert found["ancestor"] == RULES + "q(?x) :- ancestor"
        assert list(await complete("?- parent(|")) == ["ann", "bob"]
        assert list(await complete("q(?who) :- parent(ann, |")) == ["?who", '"Cy D."', "bob"]
        assert list(await complete("q(?who) :- parent(?w|")) == ["?who"]
        assert list(await complete("?- q(b) because @|")) == ["direct", "further"]

    session(tmp_path, steps)


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("q(?x) :- p(?x, ?y).", "q(?x) :- p(?x, _)."),
        ("q(?x) :- p(?x), not r(?x, ?y).", "q(?x) :- p(?x), not r(?x, _)."),
        ("q(?x) => p(?x).", "q(?x) :- p(?x)."),
        ("q(?x) :- p(?x), ?x =< 3.", "q(?x) :- p(?x), ?x <= 3."),
        ("q(?x) :- p(?x) & r(?x).", "q(?x) :- p(?x) , r(?x)."),
        ("q(“a”).", 'q("a”).'),
        ("q(?).", "q(_)."),
        ("q(3d).", 'q("3d").'),
        ("parent(a, b).\n?- parant(?x, ?y).", "parent(a, b).\n?- parent(?x, ?y)."),
        ("p(a)\nq(b).", "p(a).\nq(b)."),
    ],
)
def test_hints_are_offered_as_fixes(tmp_path, text, fixed):
    async def steps(it):
        diagnostics = await it.open("a.kb", text)
        uri = it.uri("a.kb")
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
        found = await it.client.text_document_code_action_async(
            lsp.CodeActionParams(
                lsp.TextDocumentIdentifier(uri), whole, lsp.CodeActionContext(diagnostics)
            )
        )
        preferred = [each for each in found if each.is_preferred]
        return [it.applied(uri, each.edit.changes[uri]) for each in preferred]

    assert fixed in session(tmp_path, steps)


def test_formatting(tmp_path):
    async def steps(it):
        await it.open("a.kb", "q( ?x ):-p(?x ) . % why")
        document = lsp.TextDocumentIdentifier(it.uri("a.kb"))
        params = lsp.DocumentFormattingParams(document, lsp.FormattingOptions(4, True))
        edits = await it.client.text_document_formatting_async(params)
        formatted = it.applied(it.uri("a.kb"), edits)
        await it.change("a.kb", formatted)
        assert not await it.client.text_document_formatting_async(params)
        await it.change("a.kb", "p(")
        assert not await it.client.text_document_formatting_async(params)
        return formatted

    assert session(tmp_path, steps) == "q(?x) :- p(?x).  % why\n"


def test_symbols(tmp_path):
    async def steps(it):
        await it.open("a.kb", FACTS + RULES + TESTS)
        document = lsp.TextDocumentIdentifier(it.uri("a.kb"))
        found = await it.client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(document)
        )
        return [(each.name, each.detail) for each in found]

    assert session(tmp_path, steps) == [
        ("parent/2", "2 facts"),
        ("ancestor/2", "@direct"),
        ("ancestor/2", "@further"),
        ("stranger/2", None),
        ('test "direct"', None),
        ('test "wrong"', None),
        ("?- ancestor(ann, ?who)", None),
        ("?- ancestor(zoe, ?who)", None),
    ]


# ---- answers and tests ----


def test_lenses_count_answers_and_run_tests(tmp_path):
    async def steps(it):
        await it.open("facts.kb", FACTS)
        await it.open("rules.kb", RULES)
        await it.open("tests.kb", TESTS)
        document = lsp.TextDocumentIdentifier(it.uri("tests.kb"))
        lenses = await it.client.text_document_code_lens_async(lsp.CodeLensParams(document))
        titles = [(each.range.start.line, each.command.title) for each in lenses]
        assert titles == [(0, "run test"), (5, "run test"), (6, "2 answers"), (7, "no answer")]

        async def run(lens):
            command = lens.command
            params = lsp.ExecuteCommandParams(command.command, arguments=command.arguments)
            outcome = await it.client.workspace_execute_command_async(params)
            message = await asyncio.wait_for(it.messages.get(), SECONDS)
            return outcome, message.message, await it.diagnostics("tests.kb")

        assert await run(lenses[0]) == (True, 'passed: "direct"', [])
        passed, message, diagnostics = await run(lenses[1])
        assert (passed, message) == (False, 'failed: "wrong"')
        assert [each.source for each in diagnostics] == ["kbcore test"]
        assert "expected: [c]\nfound:    [b]" in diagnostics[0].message
        assert diagnostics[0].range.start.line == 5
        assert await it.change("tests.kb", TESTS + "\n") == []

    session(tmp_path, steps)


def test_goals_of_a_text_with_mistakes_have_no_count(tmp_path):
    async def steps(it):
        await it.open("a.kb", "p(a). q(?x :- p(?x).\n?- p(?x).\n")
        document = lsp.TextDocumentIdentifier(it.uri("a.kb"))
        return await it.client.text_document_code_lens_async(lsp.CodeLensParams(document))

    assert not session(tmp_path, steps)


# ---- the command and its page ----


def test_without_pygls_the_command_says_what_to_install(tmp_path):
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError(name='pygls')", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    async def run():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kbserver.cli", "lsp", env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output = await asyncio.wait_for(process.communicate(), SECONDS)
        return process.returncode, *output

    status, out, error = asyncio.run(run())
    assert (status, out) == (2, b"")
    assert b"pip install 'kbcore[lsp]'" in error


def test_the_example_of_the_documentation_has_no_diagnostics(tmp_path):
    for name in ("returns.kb", "returns_test.kb"):
        shutil.copy(ROOT / "docs/examples/returns" / name, tmp_path)

    async def steps(it):
        return [
            await it.open(name, (tmp_path / name).read_text(encoding="utf-8"))
            for name in ("returns.kb", "returns_test.kb")
        ]

    assert session(tmp_path, steps) == [[], []]


def test_the_page_starts_the_command():
    page = (ROOT / "docs/how-to/write-rules-as-text.md").read_text(encoding="utf-8")
    assert len(re.findall(r'"kbcore",? "lsp"', page)) >= 2
