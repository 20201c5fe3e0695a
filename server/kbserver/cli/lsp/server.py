"""The protocol: requests of an editor, answered from the project of the file.

https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from kbcore import __version__
from kbcore.errors import KBError
from kbplanner.authoring.formatter import format_text
from kbplanner.authoring.outline import OutlinedStatement
from kbplanner.check.fixes import Fix, fixes_of
from kbplanner.ir.modes import Modes
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.knowledge.rule_tests import TestResult
from kbserver.cli.lsp.evaluation import answer_counts, join_orders, run_test
from kbserver.cli.lsp.positions import Lines
from kbserver.cli.lsp.project import Project, Stretch, outline
from kbserver.cli.lsp.workspace import folder_of, project_of
from kbtypes.results import Finding

SOURCE = "kbcore"
RUN_TEST = "kbcore.runTest"
CHECK_DELAY_SECONDS = 0.1
"""Pause in typing after which a text is checked."""

_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
}
_COMPLETION_KINDS = {
    "predicate": lsp.CompletionItemKind.Function,
    "constant": lsp.CompletionItemKind.Value,
    "variable": lsp.CompletionItemKind.Variable,
    "rule": lsp.CompletionItemKind.Reference,
    "keyword": lsp.CompletionItemKind.Keyword,
}


class _Positioned(Protocol):
    """Parameters of a request about a position."""

    text_document: lsp.TextDocumentIdentifier
    position: lsp.Position


class RuleServer(LanguageServer):
    """A language server for rule files; `external` are the predicates that plugins provide."""

    def __init__(self, external: Modes) -> None:
        self.external = external
        super().__init__(SOURCE, __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        # One thread: the texts of one change are evaluated before those of the next.
        self.evaluations = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self.failures: dict[str, list[lsp.Diagnostic]] = {}
        self._checks: dict[str, asyncio.TimerHandle] = {}

    def project(self, uri: str) -> Project:
        """Return the files that belong to a file."""
        return project_of(self.workspace, uri, self.external)

    def lines(self, text: str) -> Lines:
        """Return the lines of a text in the units of the editor."""
        return Lines(text, self.workspace.position_encoding)

    def location(self, project: Project, stretch: Stretch) -> lsp.Location:
        """Return a stretch of a project."""
        lines = self.lines(project.texts[stretch.file])
        return lsp.Location(stretch.file, lines.range(stretch.start, stretch.end))

    # ---- diagnostics ----

    def check_soon(self, uri: str) -> None:
        """Check a file, and the open ones that belong to it, after a pause in typing."""
        if uri in self._checks:
            self._checks.pop(uri).cancel()
        loop = asyncio.get_running_loop()
        self._checks[uri] = loop.call_later(CHECK_DELAY_SECONDS, self._check, uri)

    def closed(self, uri: str) -> None:
        """Forget a file that the editor has closed."""
        if uri in self._checks:
            self._checks.pop(uri).cancel()
        self.failures.pop(uri, None)
        self._publish(uri, [])

    def _check(self, uri: str) -> None:
        self._checks.pop(uri, None)
        if uri not in self.workspace.text_documents:
            return
        project = self.project(uri)
        for file, findings in project.findings().items():
            if file in self.workspace.text_documents:
                matches = [self._diagnostic(project, file, each) for each in findings]
                self._publish(file, matches + self.failures.get(file, []))

    def _publish(self, uri: str, diagnostics: list[lsp.Diagnostic]) -> None:
        version = None
        if uri in self.workspace.text_documents:
            version = self.workspace.get_text_document(uri).version
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, diagnostics, version)
        )

    def _diagnostic(self, project: Project, file: str, finding: Finding) -> lsp.Diagnostic:
        hint = f"\nhint: {finding.hint}" if finding.hint else ""
        return lsp.Diagnostic(
            self.finding_range(project, file, finding),
            finding.message + hint,
            severity=_SEVERITY[finding.severity],
            code=finding.code,
            source=SOURCE,
        )

    def finding_range(self, project: Project, file: str, finding: Finding) -> lsp.Range:
        """Return the range of a finding."""
        lines = self.lines(project.texts[file])
        start = lines.offset_of(finding.line, finding.column)
        return lines.range(start, lines.offset_of(finding.line, finding.end_column))

    # ---- tests ----

    def show_result(self, uri: str, result: TestResult) -> None:
        """Show the result of a test: a message, and a diagnostic for each failure."""
        name = result.block.name
        lines = self.lines(self.workspace.get_text_document(uri).source)
        self.failures[uri] = [
            lsp.Diagnostic(
                lines.range(
                    lines.offset_of(failure.line, 1), lines.offset_of(failure.line + 1, 1) - 1
                ),
                "\n".join(failure.lines),
                severity=lsp.DiagnosticSeverity.Error,
                source=f"{SOURCE} test",
            )
            for failure in result.failures
        ]
        if result.has_passed:
            text, kind = f'passed: "{name}"', lsp.MessageType.Info
        else:
            text, kind = f'failed: "{name}"', lsp.MessageType.Error
            if result.error is not None:
                text += f": {result.error}"
        self.window_show_message(lsp.ShowMessageParams(kind, text))
        self._check(uri)


def make_server(external: Modes) -> RuleServer:  # noqa: C901  one function for each request of the protocol
    """Return a language server with all its requests."""
    server = RuleServer(external)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(ls: RuleServer, params: lsp.DidOpenTextDocumentParams) -> None:
        ls.check_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: RuleServer, params: lsp.DidChangeTextDocumentParams) -> None:
        ls.failures.pop(params.text_document.uri, None)
        ls.check_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(ls: RuleServer, params: lsp.DidSaveTextDocumentParams) -> None:
        ls.check_soon(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(ls: RuleServer, params: lsp.DidCloseTextDocumentParams) -> None:
        ls.closed(params.text_document.uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def changed_on_disk(ls: RuleServer, params: lsp.DidChangeWatchedFilesParams) -> None:
        for uri in list(ls.workspace.text_documents):
            ls.check_soon(uri)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(ls: RuleServer, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        text = ls.workspace.get_text_document(params.text_document.uri).source
        try:
            formatted = format_text(text)
        except KBError:  # the diagnostics say what is wrong
            return []
        if formatted == text:
            return []
        return [lsp.TextEdit(ls.lines(text).range(0, len(text)), formatted)]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(ls: RuleServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        text = ls.workspace.get_text_document(params.text_document.uri).source
        return _symbols(text, ls.lines(text))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(ls: RuleServer, params: lsp.DefinitionParams) -> list[lsp.Location]:
        project, offset = _at(ls, params)
        matches = project.definitions(params.text_document.uri, offset)
        return [ls.location(project, stretch) for stretch in matches]

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(ls: RuleServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
        project, offset = _at(ls, params)
        uri = params.text_document.uri
        matches = project.references(uri, offset)
        if not params.context.include_declaration:
            defining = set(project.definitions(uri, offset))
            matches = [stretch for stretch in matches if stretch not in defining]
        return [ls.location(project, stretch) for stretch in matches]

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare_rename(ls: RuleServer, params: lsp.PrepareRenameParams) -> lsp.Range | None:
        project, offset = _at(ls, params)
        stretch = project.name_at(params.text_document.uri, offset)
        return None if stretch is None else ls.location(project, stretch).range

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def rename(ls: RuleServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        project, offset = _at(ls, params)
        try:
            texts = project.rename(params.text_document.uri, offset, params.new_name)
        except KBError as error:
            raise JsonRpcInvalidParams(error.message) from error
        edits: dict[str, list[lsp.TextEdit]] = {}
        for stretch, text in texts.items():
            edit = lsp.TextEdit(ls.location(project, stretch).range, text)
            edits.setdefault(stretch.file, []).append(edit)
        return lsp.WorkspaceEdit(changes=dict(edits))

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def hover(ls: RuleServer, params: lsp.HoverParams) -> lsp.Hover | None:
        project, offset = _at(ls, params)
        text = project.description(params.text_document.uri, offset)
        if text is None:
            return None
        predicate = project.predicate_at(params.text_document.uri, offset)
        if predicate is not None:
            orders = await asyncio.get_running_loop().run_in_executor(
                ls.evaluations, partial(join_orders, project.texts, *predicate)
            )
            if orders:
                text += "\n\nPlan, with all arguments free:\n\n"
                text += "\n".join(f"{n}. `{order}`" for n, order in enumerate(orders, 1))
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, text))

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["(", "?", "@"])
    )
    def completion(ls: RuleServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        uri = params.text_document.uri
        project, offset = _at(ls, params)
        lines = ls.lines(project.texts[uri])
        return [
            lsp.CompletionItem(
                each.text,
                kind=_COMPLETION_KINDS[each.kind],
                detail=each.remark or None,
                text_edit=lsp.TextEdit(lines.range(offset - each.size, offset), each.text),
            )
            for each in project.completions(uri, offset)
        ]

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
    )
    def code_actions(ls: RuleServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        uri = params.text_document.uri
        project = ls.project(uri)
        return list(_code_actions(ls, project, uri, params.range))

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    async def code_lenses(ls: RuleServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        project = ls.project(uri)
        text = project.texts[uri]
        lines = ls.lines(text)
        blocks = outline(text).blocks
        lenses = [
            lsp.CodeLens(
                lines.range(block.start, block.start),
                lsp.Command("run test", command=RUN_TEST, arguments=[uri, block.name]),
            )
            for block in blocks
            if block.kind == "test"
        ]
        goals = [
            each for each in outline(text).statements if each.kind == "goal" and each.test is None
        ]
        if goals:
            texts = [_goal_text(text, each) for each in goals]
            counts = await asyncio.get_running_loop().run_in_executor(
                ls.evaluations, partial(answer_counts, project.texts, texts)
            )
            lenses += [
                lsp.CodeLens(lines.range(goal.start, goal.start), lsp.Command(count, command=""))
                for goal, count in zip(goals, counts, strict=True)
                if count
            ]
        return lenses

    @server.command(RUN_TEST)
    async def run(ls: RuleServer, uri: str, name: str) -> bool | None:
        result = await asyncio.get_running_loop().run_in_executor(
            ls.evaluations, partial(run_test, ls.project(uri).texts, uri, name, folder_of)
        )
        if result is None:
            return None
        ls.show_result(uri, result)
        return result.has_passed

    return server


def _at(ls: RuleServer, params: _Positioned) -> tuple[Project, int]:
    """Return the project of a file, and the offset of a position in it."""
    uri = params.text_document.uri
    project = ls.project(uri)
    return project, ls.lines(project.texts[uri]).offset(params.position)


def _goal_text(text: str, goal: OutlinedStatement) -> str:
    return text[goal.start : goal.end].removeprefix("?-").rstrip().removesuffix(".")


def _symbols(text: str, lines: Lines) -> list[lsp.DocumentSymbol]:
    """Return the rules, the facts of each predicate in a row, the goals and the tests of a text."""
    matches: list[lsp.DocumentSymbol] = []

    def add(name: str, kind: lsp.SymbolKind, start: int, end: int, detail: str = "") -> None:
        whole = lines.range(start, end)
        matches.append(lsp.DocumentSymbol(name, kind, whole, whole, detail or None))

    facts: list[OutlinedStatement] = []

    def add_facts() -> None:
        if facts and (head := facts[0].head) is not None:
            count = counted(len(facts), "fact")
            name = f"{head.name}/{head.arity}"
            add(name, lsp.SymbolKind.Constant, facts[0].start, facts[-1].end, count)
        facts.clear()

    for each in outline(text).statements:
        if each.test is not None:
            continue
        if each.kind == "fact" and each.head is not None:
            before = facts[-1].head if facts else None
            if before is not None and (before.name, before.arity) != (
                each.head.name,
                each.head.arity,
            ):
                add_facts()
            facts.append(each)
            continue
        add_facts()
        if each.kind == "rule" and each.head is not None:
            name = f"{each.head.name}/{each.head.arity}"
            detail = f"@{each.name}" if each.name else ""
            add(name, lsp.SymbolKind.Function, each.start, each.end, detail)
        elif each.kind == "goal":
            add(f"?- {_goal_text(text, each).strip()}", lsp.SymbolKind.Event, each.start, each.end)
    add_facts()
    for block in outline(text).blocks:
        kind = lsp.SymbolKind.Method if block.kind == "test" else lsp.SymbolKind.Object
        add(f'{block.kind} "{block.name}"', kind, block.start, block.end)
    return sorted(matches, key=lambda each: (each.range.start.line, each.range.start.character))


def _code_actions(
    ls: RuleServer, project: Project, uri: str, selected: lsp.Range
) -> Iterator[lsp.CodeAction]:
    """Yield the fixes of the findings in a range."""
    text = project.texts[uri]
    lines = ls.lines(text)
    names = project.predicate_names()
    for finding in project.findings()[uri]:
        marked = ls.finding_range(project, uri, finding)
        if marked.end < selected.start or selected.end < marked.start:
            continue
        start, end = lines.offset(marked.start), lines.offset(marked.end)
        fixes: list[Fix] = fixes_of(finding, text[start:end], names)
        for number, fix in enumerate(fixes):
            where = lines.range(start, start if fix.inserts else end)
            yield lsp.CodeAction(
                fix.title,
                lsp.CodeActionKind.QuickFix,
                is_preferred=number == 0,
                edit=lsp.WorkspaceEdit(changes={uri: [lsp.TextEdit(where, fix.text)]}),
            )
