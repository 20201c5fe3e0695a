"""One kind of error or warning: its code, what it means, and an example."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """A text with the error or warning, and the corrected text, both of a kind of text."""

    bad: str
    good: str
    kind: str = "program"


class Code:
    """One kind of error or warning.

    `code` identifies it, such as K012, and so does `name`, such as `unsafe`. `title` is a noun
    phrase, `explanation` a paragraph. `examples` are a text with it and the corrected text.
    """

    __slots__ = ("code", "examples", "explanation", "name", "title")

    def __init__(self, code: str, name: str, title: str, explanation: str, **examples: str) -> None:
        self.code = code
        self.name = name
        self.title = title
        self.explanation = explanation
        self.examples = Examples(**examples)

    @property
    def severity(self) -> Severity:
        """An error refuses the text; a warning does not."""
        return "warning" if self.code.startswith("K1") else "error"

    @property
    def page(self) -> str:
        """The explanation with its examples, as text for a terminal."""
        parts = [
            f"{self.code}, {self.name}: {self.title} ({self.severity})",
            textwrap.fill(self.explanation, 80),
            "Example:",
            textwrap.indent(self.examples.bad, "    "),
            "Corrected:",
            textwrap.indent(self.examples.good, "    "),
        ]
        return "\n\n".join(parts)
