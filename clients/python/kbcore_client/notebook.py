"""Magics for IPython and Jupyter notebooks: `%kb` asks a goal, `%%kb` runs a cell in the rule
language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from kbcore_client import AnswerSet, KBError, KnowledgeBase, connect
from kbtypes.results import Executed
from kbtypes.values import variables_of

_Result = TypeVar("_Result")

VARIABLE = "kb"
"""The variable of a notebook that has its knowledge base, if a cell names no other one."""

_MAGIC = re.compile(r"\s*%%?kb(?:[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]*(?=\n))?(?=\s|$)")
_WORD = re.compile(r"\??[^\W\d]\w*\Z|\?\Z")
_NAMES = re.compile(r"(?<![\w?])[^\W\dA-Z_]\w*(?=\()")
_END_OF_STATEMENT = re.compile(r"\.\s")


@magics_class
class KBMagics(Magics):
    """The magics `%kb` and `%%kb`.

    They use the knowledge base of the variable `kb`. A notebook without such a variable gets one
    with an empty knowledge base in memory.
    """

    @no_var_expand
    @line_cell_magic
    def kb(self, line: str, cell: str | None = None) -> AnswerSet | Executed:
        """Ask a goal, or run a cell in the rule language.

        `%kb parent(ann, ?who)` returns the answers, like `kb.ask`. A cell that begins with `%%kb`
        is stored and asked as a whole, like `kb.execute`: facts and rules end with a dot, a query
        is `?- goal.` After `%%kb` may come the name of the variable with the knowledge base.
        """
        if cell is None:
            goal = line.strip().removeprefix("?-").strip()
            if not goal:
                raise UsageError("a goal is missing; write %kb parent(ann, ?who)")
            if goal.endswith(".") and not goal.endswith(".."):
                goal = goal[:-1]
            return self._result(VARIABLE, lambda kb: kb.ask(goal))
        return self._result(line.strip() or VARIABLE, lambda kb: kb.execute(cell))

    def _result(self, variable: str, call: Callable[[KnowledgeBase], _Result]) -> _Result:
        """Return the result of a call; an error of the knowledge base has no traceback."""
        try:
            return call(self._opened(variable))
        except KBError as error:
            raise UsageError(f"{error.code}: {error.message}") from error

    def _opened(self, variable: str) -> KnowledgeBase:
        names: dict[str, object] = self.shell.user_ns  # type: ignore[union-attr]  # set before any call
        value = names.get(variable)
        if isinstance(value, KnowledgeBase):
            return value
        if value is not None:
            raise UsageError(
                f"{variable} is of type {type(value).__name__}; it must be a KnowledgeBase that"
                " kbcore_client.connect() opened"
            )
        if variable != VARIABLE:
            raise UsageError(f'no variable {variable}; open one: {variable} = connect("memory:")')
        opened = connect("memory:")
        names[VARIABLE] = opened
        return opened


class Completer:
    """Completion in cells and lines of the magics: names of predicates, and variables of the
    statement.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, context: CompletionContext) -> Any:
        """Return completions for IPython; none outside the magics."""
        written, whole = _before_cursor(context), context.full_text
        magic = _MAGIC.match(whole)
        word = _WORD.search(written)
        if magic is None or word is None or len(written) <= magic.end():
            return {"completions": []}
        fragment = word.group()
        names = sorted(self._names(fragment, magic["name"] or VARIABLE, written, whole))
        return {
            "completions": [SimpleCompletion(text=name, type="kb") for name in names],
            "matched_fragment": fragment,
            "suppress": True,  # what Python's own completion knows is no part of the rule language
            "ordered": True,
        }

    def _names(self, fragment: str, variable: str, written: str, whole: str) -> set[str]:
        if fragment.startswith("?"):
            statement = _END_OF_STATEMENT.split(written.removesuffix(fragment))[-1]
            known: Iterator[str] = (f"?{name}" for name in variables_of(statement))
        else:
            known = self._predicates(variable, whole)
        return {name for name in known if name.startswith(fragment) and name != fragment}

    def _predicates(self, variable: str, whole: str) -> Iterator[str]:
        yield from _NAMES.findall(whole)
        opened = self._shell.user_ns.get(variable)
        if isinstance(opened, KnowledgeBase):
            try:
                yield from (each.predicate for each in opened.predicates("*"))
            except KBError:
                return  # completion must not fail because a server cannot be reached


def _before_cursor(context: CompletionContext) -> str:
    lines = context.full_text.split("\n")
    written = lines[context.cursor_line][: context.cursor_position]
    return "\n".join([*lines[: context.cursor_line], written])


def register(shell: InteractiveShell) -> None:
    """Add the magics and the completion to a shell."""
    shell.register_magics(KBMagics)
    if shell.Completer is not None:
        completer = Completer(shell)

        def complete(context: CompletionContext) -> Any:
            return completer(context)

        marked: Any = context_matcher(identifier="kbcore")
        shell.Completer.custom_matchers.append(marked(complete))
