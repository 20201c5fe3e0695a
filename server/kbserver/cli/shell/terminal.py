"""The shell on a terminal: editing, completion, colours, history and paging, with
prompt_toolkit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import ColorDepth

from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.output import Listing, Output, table_lines
from kbserver.cli.shell.completion import candidates
from kbserver.cli.shell.entries import is_complete
from kbserver.cli.shell.pygments_lexer import KbLexer
from kbserver.cli.shell.session import ShellSession

_LINES_AROUND = 4
"""Lines of a screen that a listing leaves to its heading, its total and the prompt."""


class KbCompleter(Completer):
    """Completion of prompt_toolkit from the knowledge base of a session."""

    def __init__(self, session: ShellSession) -> None:
        self._session = session

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        for each in candidates(self._session, document.text_before_cursor):
            yield Completion(each.text, -each.size, display_meta=each.remark)


def history_of(file: Path | None) -> History:
    """Return the history that a file keeps, or one of this session only if the file is None."""
    if file is None:
        return InMemoryHistory()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)  # what is typed may be confidential
    return FileHistory(str(file))


def entries(session: ShellSession, history: History, color: bool) -> Iterator[str]:
    """Yield what the user types, until Ctrl-D at an empty prompt."""

    @Condition
    def is_open() -> bool:
        text = get_app().current_buffer.text
        return bool(text.strip()) and not is_complete(text)

    prompt: PromptSession[str] = PromptSession(
        history=history,
        lexer=PygmentsLexer(KbLexer),
        completer=KbCompleter(session),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        multiline=is_open,
        prompt_continuation="... ",
        color_depth=None if color else ColorDepth.DEPTH_1_BIT,
    )
    while True:
        try:
            text = prompt.prompt(f"kb[{session.scope}]> " if session.scope else "kb> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.strip():
            yield text


def show_paged(listing: Listing) -> None:
    """Print a listing, in a pager if it does not fit on the screen."""
    screen = shutil.get_terminal_size()
    records = listing.records
    if len(records) <= screen.lines - _LINES_AROUND:
        Output().show(listing)
        return
    lines = table_lines(listing.columns, map(listing.cells, records), screen.columns)
    click.echo_via_pager(f"{line}\n" for line in [*lines, counted(len(records), "row")])
